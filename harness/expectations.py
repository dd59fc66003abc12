"""Expected failures: a text file whose every line requires a reason.

```
# configuration   workload   oracle        symptom             why
ext4/nobarrier    *          durability    lost-writes         # barrier=0 sends no flush
ext2/default      *          durability    "NAME: missing"     # what sync wrote last is not durable
```

Configuration, workload, oracle and symptom are shell patterns (`*`, `?`, `[...]`). Symptoms are in quotes, as
many as needed, and as the report of a finding has them: what an oracle says was lost, with NAME and N for the
names and numbers of the workload. They may be left out, but such a line covers every fault that the oracle
will ever find there. A reason that ends in `(by its options)` blames the mode. `lost-writes`, before the
symptoms, leaves out what also shows although the disk had all that it was sent: no missing flush explains
that. For each finding, the first matching line counts.

What is known of a mode is known of it on disks with other sectors as well (`ext4/nobarrier@4k`): these lose
nothing less. It is not known of the mode on a stack, or without a volatile cache, unless the pattern covers
that name, too: `ext4/*` covers `ext4/ordered@raid1`. `*` alone covers every mode: what a program gives up by
itself (SQLite with `synchronous=OFF`) is lost under each. No other wildcard, `*/*` included, covers a mode
that is told to send no flushes (`ext4/nobarrier`), or one whose promises are those of a file system in a file
of it (`xfs/default@loop`, which `xfs/*@loop` covers).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Protocol

from harness.errors import UsageError
from harness.filesystems.profiles import what_sets_apart
from harness.host.resources import resource
from harness.model import CaseId, CrashState
from harness.symptoms import Symptom

_LINE = re.compile(r'(?P<words>(?:"[^"]*"|[^"#])*)(?:#(?P<reason>.*))?')
_SYMPTOM = re.compile(r'"([^"]*)"')
LOST_WRITES = "lost-writes"
BY_OPTIONS = "(by its options)"
"""Behind a reason: the mode loses this by its options, so on each kernel."""
_ENDS_SO = re.compile(r'^[^"]*(\s+"[^"]+")*$')
"""Symptoms come last, and none is empty."""
_OTHER_SECTORS = re.compile(r"@\d[a-z0-9]*$")
"""Behind a mode, a kind of disk in which only sectors differ (`harness.filesystems.disks`)."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """Findings of `oracle` in `configuration` under `workload` are expected. `origin`: `file:line`.

    Each is a shell pattern. `oracle` may be several, separated by commas, for a fault that shows now in one
    oracle, now in another. `symptoms`: those that are expected; none: any. `exact`: not in the same mode on
    a disk with other sectors.
    """

    configuration: str
    workload: str
    oracle: str
    reason: str
    origin: str = ""
    symptoms: tuple[str, ...] = ()
    lost_writes: bool = False
    exact: bool = False

    def applies_to(self, case: CaseId) -> bool:
        """Whether it covers this case, under any oracle."""
        if self.exact and not fnmatchcase(case.configuration, self.configuration):
            return False
        return covers(self.configuration, case) and fnmatchcase(case.workload, self.workload)

    @property
    def by_options(self) -> bool:
        """Whether the mode's own options are to blame: the line says so, or covers all of its oracle, or all
        that lost writes explain.
        """
        return not self.symptoms or self.reason.endswith(BY_OPTIONS)

    def names(self, oracle: str) -> bool:
        """Whether a finding of `oracle` may be expected."""
        return any(fnmatchcase(oracle, p) for p in self.oracle.split(","))

    def matches(self, case: CaseId, symptom: Symptom, state: CrashState | None = None) -> bool:
        """Whether a finding in `case` with this symptom is expected. `state`: the one of those that show it
        in which the fewest writes are lost.
        """
        if self.lost_writes and state is not None and state.is_whole:
            return False
        as_known = not self.symptoms or any(fnmatchcase(symptom.what, p) for p in self.symptoms)
        return self.applies_to(case) and self.names(symptom.oracle) and as_known

    def __str__(self) -> str:
        named = [LOST_WRITES] * self.lost_writes + [f'"{what}"' for what in self.symptoms]
        return " ".join([self.configuration, self.workload, self.oracle, *named])


def covers(pattern: str, case: CaseId) -> bool:
    """Whether a pattern of modes is about the mode of a case, or about the one whose known failures are known
    of it as well. A pattern other than `*` has to name what sets the mode apart, see `Profile.apart`.
    """
    if pattern == "*":
        return True
    names = {case.configuration, _OTHER_SECTORS.sub("", case.configuration)}
    fits = any(fnmatchcase(name, pattern) for name in names)
    return fits and all(word in pattern for word in what_sets_apart(case.configuration))


def first_match(
    expectations: Iterable[Expectation], case: CaseId, symptom: Symptom, state: CrashState | None = None
) -> Expectation | None:
    """The first expectation that covers a finding, or None: see `Expectation.matches`."""
    return next((e for e in expectations if e.matches(case, symptom, state)), None)


class Found(Protocol):
    """A finding, as far as it makes one known."""

    @property
    def case(self) -> CaseId: ...

    @property
    def symptom(self) -> Symptom: ...


IN_BASELINE = "the baseline has it, too"


def known_failures(findings: Iterable[Found], origin: str) -> tuple[Expectation, ...]:
    """What an earlier run found, as expected failures: of the same case, oracle and symptom. A case whose
    operations changed since is for the caller to leave out: by its name it is the same.
    """
    symptoms: dict[tuple[CaseId, str], dict[str, None]] = {}
    for f in findings:
        symptoms.setdefault((f.case, f.symptom.oracle), {})[escape(f.symptom.what)] = None
    return tuple(
        Expectation(
            escape(case.configuration),
            escape(case.workload),
            oracle,
            IN_BASELINE,
            origin,
            tuple(known),
            exact=True,
        )
        for (case, oracle), known in symptoms.items()
    )


_SHOWN = 60  # characters of a line in an error


def parse_expectations(text: str, origin: str) -> tuple[Expectation, ...]:
    """Parse the text of a file of expectations; `origin` is its name in errors.

    Raises UsageError, naming file and line, for a line without a reason or without its three patterns.
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{origin}:{number}"
        m = _LINE.fullmatch(line.strip())
        words, reason = (m["words"].strip(), m["reason"] or "") if m else (line, "")
        symptoms = tuple(_SYMPTOM.findall(words))
        patterns = _SYMPTOM.sub(" ", words).split()
        if not words:
            continue
        lost_writes = patterns[3:] == [LOST_WRITES]
        if m is None or len(patterns) != 3 + lost_writes or not _ENDS_SO.search(words):
            raise UsageError(
                f"{where}: {len(patterns) or 'no'} pattern{'s' * (len(patterns) != 1)} where three belong: "
                f"{_short(words)}",
                'write: <configuration> <workload> <oracle> "<symptom>"  # reason; without the symptom: any; '
                f"with {LOST_WRITES} before it: not where no write is lost",
            )
        if not reason.strip():
            raise UsageError(
                f"{where}: the expected failure {_short(words)} has no reason",
                "say after a # why this failure is expected; a reader must be able to check it",
            )
        what = (patterns[0], patterns[1], patterns[2], reason.strip(), where, symptoms, lost_writes)
        found.append(Expectation(*what))
    return tuple(found)


def _short(words: str) -> str:
    shown = words.strip()
    return repr(shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}...")


def read_expectations(path: Path) -> tuple[Expectation, ...]:
    """Read the file of expectations at `path`. Raises UsageError if it cannot be read or is malformed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the expected failures in {path}: {error}", "give a readable text file"
        ) from error
    return parse_expectations(text, str(path))


@functools.cache
def known_losses() -> tuple[Expectation, ...]:
    """What unmodified kernels are known to lose, by the files of this installation: in the order of the log,
    in any other, and where recovery is cut. Raises UsageError for a file that does not parse.
    """
    names = ("natural-faults.expected", "reordering.expected", "recovery.expected")
    return tuple(e for name in names for e in read_expectations(resource("vms", "filesystems", name)))
