"""The litmus programs: the workloads of the set `litmus`, each with its question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.host.text import near_or
from harness.model import Workload
from harness.model.questions import Question
from harness.workloads.load import load_workload, workload_sets

SET = "litmus"
MAX_OPERATIONS = 6
"""Of a program, behind its setup: a question about more is hard to read."""


@dataclass(frozen=True, slots=True)
class Program:
    """A litmus program. `operations`: of the workload, the setup first."""

    workload: Workload
    question: Question

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def operations(self) -> list[str]:
        return [str(op) for op in self.workload.operations]


def programs(names: Sequence[str] = ()) -> list[Program]:
    """The programs of these names, in the order of the table; all if there are none. Raises UsageError for an
    unknown name, and for a program that makes no sense.
    """
    known = workload_sets()[SET]
    for name in names:
        if name not in known:
            raise UsageError(
                f"no litmus program {name!r}", near_or(name, known, "powercut litmus --list names all")
            )
    found = [_program(name) for name in known if not names or name in names]
    groups = list(dict.fromkeys(GROUPS))
    return sorted(found, key=lambda p: (groups.index(p.question.group), p.name))


def _program(name: str) -> Program:
    workload = load_workload(name)
    asked = workload.question
    if asked is None:
        raise UsageError(f"litmus program {name}: no question", "add [question]: see docs/reference/files.md")
    behind = len(workload.operations) - asked.setup
    if not 0 < behind <= MAX_OPERATIONS:
        raise UsageError(
            f"litmus program {name}: {behind} operations behind the setup",
            f"1 to {MAX_OPERATIONS} are possible",
        )
    if not 0 <= asked.setup <= asked.first <= len(workload.operations):
        raise UsageError(
            f"litmus program {name}: the question is put after operation {asked.first}",
            f"name one between the setup, {max(0, asked.setup)}, and the end, {len(workload.operations)}",
        )
    if asked.until is not None and asked.until < asked.first:
        raise UsageError(
            f"litmus program {name}: the question is put after operation {asked.first} and until "
            f"{asked.until}, so nowhere",
            f"name an `until` from {asked.first} on",
        )
    if asked.group not in GROUPS:
        raise UsageError(f"litmus program {name}: no group {asked.group!r}", f"one of: {', '.join(GROUPS)}")
    return Program(workload, asked)


GROUPS = (
    "one append",
    "two appends",
    "overwrites",
    "new names",
    "rename over a file",
    "rename to a new name",
    "links and removals",
    "attributes",
    "sizes and allocation",
    "everything at once",
)
"""The parts of the table, in order."""
