"""A run directory from somebody else in which every free text tries to control the terminal and to pass for a
line of Powercut: what commands print of it, and the files that they make of it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import click
import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.expectations import Expectation
from harness.host.files import json_line
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.oracles import ORACLES
from harness.store import RunStore
from harness.store.records import (
    CaseInfo,
    CaseNote,
    CaseStatus,
    Coverage,
    Evidence,
    JudgedState,
    KernelInfo,
    MachineInfo,
    NestedCrashes,
    RunInfo,
    Step,
)
from harness.tests.cli.runner import powercut
from harness.tests.report.demo import FINISHED, run_info

FORGED = "forged in"
CHECKED = {"case", "state", "log_hash", "plan", "pins", "seal", "digest", "name of the run", "stopped"}
"""Fields that are no free text: the store refuses what is not of their form, or computes them."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
CASE = CaseId("ext4", "ordered", "append-fsync")
T = TypeVar("T")


def hostile(where: str) -> str:
    forged = f"{FORGED} {where}"
    return f"a\x1b]0;pwn\x07\x9b31m\u202e\x7f\r\n{forged}\r{forged}\u2028{forged}\n  next: x"


def poisoned(value: T, where: str) -> T:
    """The value with every text in it hostile, and saying in which field it is."""
    if isinstance(value, str) and type(value) is str:
        return hostile(where)  # type: ignore[return-value]  # a str for a str
    if isinstance(value, tuple):
        return tuple(poisoned(v, f"{where}[]") for v in value)  # type: ignore[return-value]  # as before
    if isinstance(value, dict):
        more = {hostile(f"a key of {where}"): hostile(where)}
        return {k: poisoned(v, where) for k, v in value.items()} | more  # type: ignore[return-value]  # as before
    if dataclasses.is_dataclass(value) and not isinstance(value, (CaseId, CrashState, type)):
        changed = {
            f.name: poisoned(getattr(value, f.name), f"{type(value).__name__}.{f.name}")
            for f in dataclasses.fields(value)
            if f.name not in CHECKED
        }
        return dataclasses.replace(value, **changed)
    return value


def of_run(info: RunInfo) -> RunInfo:
    full = dataclasses.replace(
        info,
        kernel=KernelInfo("k", "v", "r", "s", {"a": "b"}, {"m.ko": "s"}),
        host="h",
        notes=(CaseNote("", "note"),),
    )
    machine = MachineInfo("uml", "a", "v", 1, "n", {"a": "b"})
    return dataclasses.replace(poisoned(dataclasses.replace(full, machine=machine), ""), name=info.name)


def put_case(store: RunStore, workload: str, judgements: tuple[Judgement, ...], status: CaseStatus) -> None:
    case = dataclasses.replace(CASE, workload=workload)
    known = CaseInfo(
        case,
        oracles=("x",),
        generated=len(judgements),
        distinct=len(judgements),
        log_hash="log",
        steps=(Step(0, "s", 1, 2),),
        files={"f": "0"},
        coverage=Coverage(14, 0, 185, 40, "why"),
        again=(NestedCrashes(2, 3, 4, Coverage(1, 0, 1, 1, "why")),),
        left_at="w",
    )
    store.add_case(dataclasses.replace(poisoned(known, ""), files={}))
    states = [JudgedState(CrashState(n), f"{n}", j) for n, j in enumerate(judgements)]
    store.put_judgements(case, states)
    store.set_case_status(case, status, hostile("reason"))


def violation(oracle: str) -> Violation:
    return dataclasses.replace(poisoned(Violation("", "", "", "", "", ""), ""), oracle=oracle)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("foreign")
    broken = Judgement((violation("fsck"), violation(hostile("Violation.oracle"))))
    undecided = Judgement(unknown=(hostile("Judgement.unknown"),))
    with RunStore.create(root, "foreign", run_info()) as store:
        put_case(store, "broken", (broken, Judgement()), CaseStatus.DONE)
        put_case(store, "undecided", (undecided, Judgement()), CaseStatus.DONE)
        put_case(store, "known", (broken,), CaseStatus.DONE)
        put_case(store, "left-out", (), CaseStatus.NOT_RUN)
        for finding in store.findings():
            store.put_evidence(finding, poisoned(Evidence(finding.state, "log", "fsck", {"a": "b"}), ""))
        store.set_expectations(
            [
                Expectation("*", "known", "*", hostile("Expectation.reason"), hostile("Expectation.origin")),
                Expectation("ext4/ordered", "left-out", next(iter(ORACLES)), hostile("r"), hostile("o")),
            ]
        )
        store.finish(FINISHED)
        store.update_info(of_run(store.info), store.info.seal)
    return store.path


def wrong_in(text: str) -> Iterator[str]:
    """Lines that pass for ours, and characters that control a terminal."""
    for line in re.split(r"[\r\n\u2028\u2029\x85\x0b\x0c]", text):
        if line.startswith(FORGED):
            yield line
    yield from (
        f"{m[0]!r} behind {text[max(0, m.start() - 60) : m.start()]!r}" for m in CONTROL.finditer(text)
    )


COMMANDS = [
    "report RUN",
    "list runs --out OUT",
    "compare RUN RUN",
    "compare RUN RUN --by findings",
    "show ext4-ordered/broken@0 --from RUN",
    "repro ext4-ordered/broken@0 --from RUN",
    "shrink ext4-ordered/broken --from RUN",
    "triage RUN",
    "run --resume RUN",
    "run --failed-from RUN -n",
    "bugreport ext4-ordered/broken --from RUN",
    "coverage RUN",
    "pack RUN",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_prints_a_foreign_line_as_its_own(
    words: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headline, the machine's line and the rows of a table passed newlines on: a kernel's name could add
    `Passed all 3 cases` to a summary.
    """
    monkeypatch.chdir(tmp_path)
    given = [w.replace("RUN", str(run)).replace("OUT", str(run.parent.parent)) for w in words.split()]
    result = powercut(*given)
    assert not [*wrong_in(result.output)]
    assert "a defect of powercut" not in result.output


@pytest.mark.parametrize("words", ["compare RUN RUN --json", "list runs --out OUT --json"])
def test_json_on_a_terminal_is_harmless_and_still_json(words: str, run: Path) -> None:
    """The console escaped in JSON as in text, `\\x9b`, which no parser takes."""
    given = [w.replace("RUN", str(run)).replace("OUT", str(run.parent.parent)) for w in words.split()]
    text = powercut(*given).output
    assert not [*wrong_in(text)]
    json.loads(text)


@pytest.mark.parametrize("text", ["\x7f", "\x9b", "\u202e", "\U0001fffe", "\udcff", "é"])
def test_what_json_escapes_is_the_same_when_it_is_read(text: str) -> None:
    read = json.loads(json_line({"a": text}))
    assert read == {"a": text.encode("utf-8", "backslashreplace").decode()}


def test_no_file_of_a_report_holds_a_foreign_line_or_control(run: Path) -> None:
    """A raw ESC stood in summary.txt, which people look at with cat."""
    powercut("report", run)
    made = [p for p in run.rglob("*") if p.suffix in (".txt", ".md", ".xml", ".json", ".html")]
    assert {p.name for p in made} >= {"summary.txt", "summary.md", "junit.xml", "results.json", "report.html"}
    for path in made:
        if path.name not in ("run.json", "plan.json"):
            lines = wrong_in(path.read_text())
            quoted = path.suffix == ".html" or path.name == "fsck.txt"  # lines there are not lines of ours
            assert not [line for line in lines if not (quoted and line.startswith(FORGED))], path


def test_a_foreign_text_in_an_error_of_the_command_line_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """click prints its own errors past the console that escapes."""

    @click.command("foreign")
    def foreign() -> None:
        raise click.UsageError(hostile("an error"))

    monkeypatch.setitem(main.commands, "foreign", foreign)
    result = CliRunner().invoke(main, ["foreign"])
    assert result.exit_code == 2
    assert not [*wrong_in(result.output)]
