"""Wording shared by all reports: names, numbers, the headline, history around a crash."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from harness.errors import ExitCode, WriteLogError
from harness.expectations import IN_BASELINE, Expectation, first_match, known_losses
from harness.filesystems.profiles import ANY, profiles
from harness.grouping import by_key
from harness.known.base import KnownBug, installed, version_of
from harness.known.words import brief, details, named
from harness.model import CaseId, CrashState, EntryFlag, LogEntry, Part, Violation
from harness.oracles import BY_DEFAULT, ORACLES
from harness.plan import Budget
from harness.store.records import (
    CaseInfo,
    CaseStatus,
    Counts,
    Coverage,
    DrawnEntry,
    Finding,
    How,
    KernelInfo,
    RunInfo,
    Step,
)
from harness.summary import CaseSummary, CaseVerdict, Summary, exit_code, shell_code, worst
from harness.writelog.log import devices_of

VERDICT_WORDS = {
    CaseVerdict.PASS: "kept",
    CaseVerdict.FAIL: "broken",
    CaseVerdict.XFAIL: "broken, as expected",
    CaseVerdict.UNKNOWN: "undecided",
    CaseVerdict.NOT_RUN: "not run",
}
EXIT_WORDS = {
    ExitCode.CONSISTENT: "consistent",
    ExitCode.INCONSISTENT: "inconsistent",
    ExitCode.UNDECIDED: "undecided",
    ExitCode.NOTHING_RUN: "nothing was run",
    ExitCode.TIME_UP: "stopped as asked, undecided",
    ExitCode.INTERRUPTED: "interrupted",
}
HOW_WORDS = {
    How.JUDGED: "recovered and judged",
    How.SAME_CONTENT: "same bytes as a judged state",
    How.MEMO: "equal to a judged state at least in every block that recovery read",
}
_HOW_BY_RULES = {How.JUDGED: "judged by the program's check"}


MEANINGS = {
    "entry": "a write, flush or mark of the write log, by its number there",
    "event": "a moment in the trace of the block layer, by its number: a write has one when it is sent, and "
    "one when it has completed",
    "crash point": "@52: the power fails when the first 52 entries are on the platter; @t52-40: it fails "
    "just before entry 52 completes, and entry 40, still in the disk's cache, is lost",
    "platter": "what the disk keeps without power, whatever it is made of; the rest was in its cache",
    "flush": "a request of the kernel: all writes that had completed before it was sent are on the platter "
    "once it completes",
    "FUA write": "forced unit access: a write that is on the platter once it has completed",
    "kept, broken, undecided": "verdicts, which a terminal calls ok, FAIL and UNKNOWN",
    "finding": "a broken promise of one case, shown at the smallest crash state that has it",
    "smallest": "of crash states: the fewest writes that differ from all lost or from all kept, and then the "
    "earliest; the fewest lost writes are looked for where a finding is explained",
    "symptom": "what a finding says was lost, without names and numbers: several findings may share it",
    "choice": "a block that was written but not flushed when the power failed: it may be lost or kept; an "
    "unexplored one left states out",
    "(?)": "behind the name of a block: it follows from other blocks, and not from its own words",
}
"""What a newcomer meets first in a report or an explanation."""
RULES_MEANINGS = {
    "call": "a call of the program that changes or syncs files, by its number",
    "micro-operation": "what a call changes, in parts that persist as a whole or not at all: a name, a size, "
    "a block of data, attributes",
    "not there": "lost, or the power had failed before the call",
    "crash point under rules": "@3: the first 3 micro-operations persisted; @3-0: without number 0 of them, "
    "which was lost",
}
"""The same where only rules decide what persists."""
_ALWAYS = ("kept, broken, undecided", "finding", "symptom")


def rules_alone(summary: Summary) -> bool:
    """Whether every case is of a mode that is only rules: no disk, no kernel, one judge."""
    return bool(summary.cases) and all(c.case.filesystem == ANY for c in summary.cases)


def meanings(summary: Summary) -> dict[str, str]:
    """What the words of a run's page mean."""
    if not rules_alone(summary):
        return MEANINGS | (RULES_MEANINGS if any(c.case.filesystem == ANY for c in summary.cases) else {})
    return {word: MEANINGS[word] for word in _ALWAYS} | RULES_MEANINGS


def code_words(code: ExitCode, summary: Summary) -> str:
    """An exit code of the run in words."""
    part = code is ExitCode.NOTHING_RUN and summary.checked
    return "not everything was run" if part else EXIT_WORDS[code]


_OF_A_LOSS = "A known loss is the mode's own, and no kernel mends it: use another mode for what has to last."
_OF_A_FAULT = "A known fault is the kernel's, and another kernel may be without it."
_TO_EXPECT = "What a file for --expect names fails no run."
_OF_FINDING = re.compile(r"\breports/findings/([\w-]+)")


def known_words(summary: Summary) -> str:
    """What is known of the run, in words: its exit code, but for those that only say how it ended."""
    code = shell_code(summary)
    ended = code in (ExitCode.TIME_UP, ExitCode.INTERRUPTED)
    return code_words(exit_code(summary) if ended else code, summary)


def red_as_a_whole(summary: Summary) -> str:
    """Why the run is no pass, where no case of it says so; else empty."""
    code = shell_code(summary)
    told = any(c.verdict in (CaseVerdict.FAIL, CaseVerdict.UNKNOWN) for c in summary.cases)
    if told or summary.missing or code in (ExitCode.CONSISTENT, ExitCode.TIME_UP):
        return ""
    return f"{code_words(code, summary)}: {headline(summary)}"


_NAMED_ORACLES = 3  # more than this many are counted
_NAMED_MODES = 2  # more than this many broken or undecided modes are counted, not named


def number(value: int) -> str:
    """1234567 as 1,234,567."""
    return f"{value:,}"


def plural(count: int, noun: str, several: str = "") -> str:
    """`1 state`, `2 states`. `several`: the plural of a noun to which no s is added."""
    return f"{number(count)} {noun if count == 1 else several or f'{noun}s'}"


MANY = 10**9
"""So many choices are not counted further."""


def choices(count: int) -> str:
    """`76 choices unexplored`."""
    return f"{plural(count, 'choice') if count < MANY else 'a billion choices or more'} unexplored"


def seconds(value: float) -> str:
    """A duration for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def shown_path(path: Path, cwd: Path | None = None) -> str:
    """`path` relative to the working directory if below it. Links such as `latest` are not resolved."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  # Path.resolve would follow the link
    cwd = cwd or Path.cwd()
    return str(absolute.relative_to(cwd)) if absolute.is_relative_to(cwd) else str(absolute)


def kernel_name(info: RunInfo) -> str:
    """`Linux 6.12.117`, or the name the user gave, until a guest has reported its release; with the user's
    own modules and their hashes, since a rebuilt module keeps its name. One that was built from a tree is
    named by that.
    """
    kernel, built = info.kernel, info.kernel.details.get("built from", "")
    name = " of ".join(filter(None, [f"Linux {kernel.release}" * bool(kernel.release), built])) or kernel.name
    modules = [f"{Path(path).name} (sha256 {sha[:12]})" for path, sha in kernel.replaced.items()]
    return f"{name} with {', '.join(modules)}" if modules else name


def machine_name(info: RunInfo) -> str:
    """The machine with its version and accelerator, if known."""
    machine = info.machine
    text = machine.name or " ".join(filter(None, [machine.kind.upper(), machine.version]))
    return f"{text} ({machine.accel})" if machine.accel else text


def modes(summary: Summary) -> dict[str, tuple[CaseSummary, ...]]:
    """Cases by configuration (`ext4/ordered`), in the order of the run."""
    found = by_key((c.case.configuration, c) for c in summary.cases)
    return {name: tuple(cases) for name, cases in found.items()}


def workloads(summary: Summary) -> tuple[str, ...]:
    """Names of the workloads, in the order of the run; for generated workloads, of their set."""
    return tuple(dict.fromkeys(c.case.family for c in summary.cases))


@dataclass(frozen=True, slots=True)
class Cell:
    """One case, or all cases of a set of generated workloads."""

    cases: tuple[CaseSummary, ...]

    @property
    def verdict(self) -> CaseVerdict:
        return worst(c.verdict for c in self.cases)

    @property
    def example(self) -> CaseSummary:
        """The first case that has the verdict of the cell."""
        verdict = self.verdict  # of all cases: asked once
        return next(c for c in self.cases if c.verdict is verdict)

    @property
    def figure(self) -> str:
        """The number of states checked, and of those that have the verdict: `117`, `93 of 111`; where the
        budget left out some of the log's own order, `49 of 183` that were kept are those checked; for a set,
        cases: `207 cases`, `2 of 207`; else empty. What is undecided beside another verdict is said, too.
        """
        run = [c for c in self.cases if c.verdict is not CaseVerdict.NOT_RUN]
        if not run:
            return ""
        if not self.cases[0].case.is_generated:
            counts = run[0].counts
            if not counts.checked:  # it was not begun: "0" would read as a result
                return ""
            coverage = run[0].info.coverage
            left = coverage.unexplored if coverage and not coverage.crash_times else 0
            if left and self.verdict is CaseVerdict.PASS:
                return f"{number(counts.checked)} of {number(counts.checked + left)}"
            unlike = counts.unknown if self.verdict is CaseVerdict.UNKNOWN else counts.failed
            part = f"{number(unlike)} of " if 0 < unlike < counts.checked else ""
            return part + number(counts.checked) + self._beside(counts.unknown)
        verdicts = Counter(c.verdict for c in run)  # each is asked once
        alike, every = verdicts[worst(verdicts)], len(run)
        beside = self._beside(verdicts[CaseVerdict.UNKNOWN])
        return plural(every, "case") if alike == every else f"{number(alike)} of {number(every)}{beside}"

    def _beside(self, undecided: int) -> str:
        """The undecided ones, where the verdict is another: nobody may take them for kept."""
        is_told = undecided and self.verdict is not CaseVerdict.UNKNOWN
        return f" ({number(undecided)} undecided)" if is_told else ""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Modes and workloads as a table: the more numerous are the rows, so that the table stays narrow."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], Cell]

    @classmethod
    def of(cls, summary: Summary) -> Matrix:
        """The matrix of a run; modes are the rows if there are as many of both."""
        named: dict[tuple[str, str], Cell] = {}
        for c in summary.cases:
            key = (c.case.configuration, c.case.family)
            named[key] = Cell((*(named[key].cases if key in named else ()), c))
        down, across = tuple(modes(summary)), workloads(summary)
        if len(across) <= len(down):
            return cls(down, across, named)
        return cls(across, down, {(workload, mode): c for (mode, workload), c in named.items()})

    def cell(self, row: str, column: str) -> Cell | None:
        """None where no such case was planned."""
        return self.cells.get((row, column))

    def is_only_planned(self, row: str) -> bool:
        """Whether the run came to an end before any case of the row was started."""
        cells = (cell for column in self.columns if (cell := self.cell(row, column)))
        return all(c.status is CaseStatus.PLANNED for cell in cells for c in cell.cases)


def pieces(name: str) -> list[str]:
    """`name` split after `/`, `-` and `_`, where a narrow column may wrap it."""
    return re.findall(r"[^/_-]+[/_-]*|[/_-]+", name)


def how_judged(case: CaseId) -> Mapping[How, str]:
    """How verdicts of a case are reached. Nothing recovers in a mode that is only rules."""
    return HOW_WORDS | _HOW_BY_RULES if case.filesystem == ANY else HOW_WORDS


def how_reached(summary: Summary) -> str:
    """`66 recovered and judged, 54 same bytes as a judged state`."""
    total: Counter[str] = Counter()
    for way in How:
        for c in summary.cases:
            total[how_judged(c.case)[way]] += c.by_how.get(way, 0)
    return ", ".join(f"{number(count)} {words}" for words, count in total.items() if count)


def pace(states: int, guest_seconds: float) -> str:
    """`3.3 s of guest time, 36 states/s per guest`; empty if either is zero."""
    if not states or guest_seconds <= 0:
        return ""
    rate = states / guest_seconds
    said = number(round(rate)) if rate >= 10 else f"{rate:.1f}"
    return f"{seconds(guest_seconds)} of guest time, {said} states/s per guest"


def headline(summary: Summary) -> str:
    """The result of the run in one sentence: what broke first, then what could not be decided, was kept, or
    broke as expected.
    """
    by_mode = {name: worst(c.verdict for c in cases) for name, cases in modes(summary).items()}
    run = {name: verdict for name, verdict in by_mode.items() if verdict is not CaseVerdict.NOT_RUN}
    systems = ", ".join(dict.fromkeys(name.partition("/")[0] for name in run or by_mode))
    subject = f"{kernel_name(summary.info)} · {systems}" if systems else kernel_name(summary.info)
    if not run or not summary.checked:
        return f"{subject}: nothing was checked, so nothing is known."
    own = _own_checks(summary, CaseVerdict.FAIL)
    judged = _of_file_systems(summary)
    kept = [name for name, verdict in judged.items() if verdict is CaseVerdict.PASS]
    parts = _not_kept(summary, judged, CaseVerdict.FAIL) + own
    parts += _undecided(summary, judged)
    if kept or (len(judged) > 1 and CaseVerdict.UNKNOWN not in judged.values()):
        # Beside "my-db lost ...", "every promise" alone would read as if nothing had been lost.
        parts.append(f"{'in all other cases ' if own else ''}{_kept(summary, kept, len(judged))}")
    elif own and not judged and not rules_alone(summary):
        parts.append("nothing else was found there")
    parts += _not_kept(summary, judged, CaseVerdict.XFAIL) + _own_checks(summary, CaseVerdict.XFAIL)
    if missing := summary.missing:
        parts.append(f"{plural(len(missing), 'required case')} not run")
    parts += _judged_by(summary)
    needed = {c.case.configuration for c in missing}
    left_out = [name for name in by_mode if name not in run and name not in needed]
    if len(left_out) > _NAMED_MODES:
        parts.append(f"{len(left_out)} modes were not run")
    else:
        parts += [f"{name} was not run" for name in left_out]
    return f"{subject}: {'; '.join(parts)}."


def counted_findings(summary: Summary) -> str:
    """How the numbers of a run belong together: `18 findings (5 symptoms). 37 states are broken; each finding
    is shown at its smallest.`; empty for one finding or none. Symptoms as the headline counts them, mode by
    mode.
    """
    found = summary.unexpected
    if len(found) < 2:
        return ""
    symptoms = len({(f.case.configuration, f.symptom) for f in found})
    broken = sum(c.counts.failed for c in summary.cases if any(f.expectation is None for f in c.findings))
    many = "1 state is" if broken == 1 else f"{number(broken)} states are"
    shown = "each finding is shown at its smallest"
    return f"{number(len(found))} findings ({plural(symptoms, 'symptom')}). {many} broken; {shown}."


def known_or_new(findings: Sequence[Finding], kernel: KernelInfo) -> str:
    """Which of these findings are known bugs, and which their modes are known to lose, in a sentence; empty
    for none. A finding is a known bug so far as was compared (`harness.known.match`): nothing is of a kernel
    whose version is not known. What a program's own check says is no bug of a kernel, and is told apart.
    """
    of_kernel = [f for f in findings if f.known or f.oracle != "program"]
    if not of_kernel:
        return ""
    own, said = len(findings) - len(of_kernel), _compared(of_kernel, kernel)
    if not own:
        return said
    many = "findings are" if own > 1 else "finding is"
    others = "The others" if len(of_kernel) > 1 else "The other"
    return f"{number(own)} {many} of a program's own check. {others}: {said[0].lower()}{said[1:]}"


def _compared(findings: Sequence[Finding], kernel: KernelInfo) -> str:
    """The sentence on findings of file systems."""
    many = len(findings) > 1
    if not version_of(kernel.linux):
        these = "these findings were" if many else "this finding was"
        return f"The kernel's version is not known, so {these} not compared with known bugs."
    names = enumerated(list(dict.fromkeys(f.known.bug.name for f in findings if f.known)))
    known, of_loss = sum(bool(f.known) for f in findings), [f for f in findings if f.loss]
    if not known and not of_loss:
        return "None of these findings is a known bug." if many else "This finding is no known bug."
    lost = [f for f in of_loss if _by_options(f)]
    faults = [f for f in of_loss if f not in lost]
    bugs = enumerated(list(dict.fromkeys(bug.name for f in faults if (bug := _bug_of_loss(f)))))
    parts = {
        f"a known bug: {names}": known,
        f"a known loss of {_losing(lost)}": len(lost),
        f"a known fault of some kernels in {_losing(faults)}{f': {bugs}' * bool(bugs)}": len(faults),
        "new": len(findings) - known - len(of_loss),
    }
    told = {what: count for what, count in parts.items() if count}
    steps = [_OF_A_LOSS] * bool(lost) + [_OF_A_FAULT] * bool(faults) + [_TO_EXPECT] * bool(of_loss)
    step = "".join(f" {sentence}" for sentence in steps)
    if len(told) == 1:
        return f"{'Each of these findings' if many else 'This finding'} is {next(iter(told))}.{step}"
    of = [f"{number(n)} {f'is {w}' if n == 1 else f'are {_several(w)}'}" for w, n in told.items()]
    return f"Of {plural(len(findings), 'finding')}, {'; '.join(of)}.{step}"


def _several(what: str) -> str:
    """`known bugs: ...` for `a known bug: ...`."""
    for one, several in (("bug", "bugs"), ("loss", "losses"), ("fault", "faults")):
        what = what.replace(f"a known {one}", f"known {several}")
    return what


def _losing(findings: Sequence[Finding]) -> str:
    """The modes that are known to lose what these findings say."""
    modes = list(dict.fromkeys(f.case.configuration for f in findings))
    return enumerated(modes) if len(modes) <= _NAMED_MODES else plural(len(modes), "mode")


def _by_options(f: Finding) -> bool:
    """Whether a mode is known to lose this by its own options, so on each kernel. The usual mode of a file
    system has none to blame.
    """
    line = first_match(known_losses(), f.case, f.symptom, f.spared)
    usual = f.case.configuration.partition("@")[0] in usual_modes()
    return not (line is None or not line.by_options or _OF_FINDING.search(line.reason) or usual)


def _bug_of_loss(f: Finding) -> KnownBug | None:
    """The known bug that the reason of a known loss names."""
    told = _OF_FINDING.search(f.loss)
    return installed().get(told[1]) if told else None


def kind_of_loss(f: Finding) -> str:
    """`loss`, or `fault of some kernels`: what a known loss is, by its mode's options or not."""
    return "loss" if _by_options(f) else "fault of some kernels"


def named_loss(f: Finding) -> str:
    """`known loss of MODE`, or `known fault of some kernels in MODE`; empty if its mode is not known to lose
    this.
    """
    kind = kind_of_loss(f) if f.loss else ""
    return f"known {kind} {'of' if kind == 'loss' else 'in'} {f.case.configuration}" if kind else ""


def known_lines(f: Finding) -> list[str]:
    """Below a finding: which known bug it is, and what to do; or why its mode is known to lose this."""
    if f.loss:
        bug = _bug_of_loss(f)
        return [f"{named_loss(f)}: {f.loss}", *([brief(bug)] if bug else [])]
    return [named(f.known), *details(f.known)] if f.known else []


def only_own_check_failed(c: CaseSummary) -> bool:
    """Whether a workload's own check is all that complains of what came back. Then the program may have asked
    for too little, and nothing that the file system promises was seen broken.
    """
    failed = c.verdict in (CaseVerdict.FAIL, CaseVerdict.XFAIL)
    return failed and all(f.oracle == "program" for f in c.findings)


def _of_file_systems(summary: Summary) -> dict[str, CaseVerdict]:
    """The verdict of each mode that was run, but for cases in which only a workload's own check failed."""
    by_name = {
        name: worst(c.verdict for c in cases if not only_own_check_failed(c))
        for name, cases in modes(summary).items()
    }
    return {name: verdict for name, verdict in by_name.items() if verdict is not CaseVerdict.NOT_RUN}


def _own_checks(summary: Summary, verdict: CaseVerdict) -> list[str]:
    """What workloads lost, by their own checks: `my-db lost or damaged what it acknowledged on 3 of 3 file
    systems, says its own check`.
    """
    ran = by_key((c.case.family, c) for c in summary.cases if not c.was_not_run)
    where = {
        name: [c for c in cases if c.verdict is verdict and only_own_check_failed(c)]
        for name, cases in ran.items()
    }
    where = {name: cases for name, cases in where.items() if cases}
    expected = ", as expected" if verdict is CaseVerdict.XFAIL else ""
    if len(where) > _NAMED_MODES:
        return [
            f"{len(where)} workloads lost or damaged what they acknowledged, say their own checks{expected}"
        ]
    there = by_key((_places(cases, ran[name]), name) for name, cases in where.items())
    return [f"{_lost_there(names, place)}{expected}" for place, names in there.items()]


def _lost_there(names: Sequence[str], place: str) -> str:
    """Of workloads, that they lost something on the same file systems, as their own checks say."""
    if len(names) == 1:
        return f"{names[0]} lost or damaged what it acknowledged on {place}, says its own check"
    who = f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{who} lost or damaged what they acknowledged on {place}, say their own checks"


def _places(cases: Sequence[CaseSummary], of: Sequence[CaseSummary]) -> str:
    """`ext4/ordered`, `3 of 3 file systems`, `2 of 4 modes`: where some of the cases of one workload were."""
    some, every = ({c.case.configuration for c in group} for group in (cases, of))
    if len(every) == 1:
        return next(iter(some))
    systems = {c.case.filesystem for c in of}
    return f"{len(some)} of {len(every)} {'file systems' if len(systems) == len(every) else 'modes'}"


def _not_kept(summary: Summary, run: Mapping[str, CaseVerdict], verdict: CaseVerdict) -> list[str]:
    """The modes of this verdict: a few by name and with the oracles that failed, many as a number."""
    names = [name for name, seen in run.items() if seen is verdict]
    if len(names) > _NAMED_MODES:
        return [f"{len(names)} modes {_did(verdict, '')}{_known(summary, names, verdict)}"]
    return [
        f"{name} {_did(verdict, _oracles(summary, name, verdict))}{_known(summary, [name], verdict)}"
        for name in names
    ]


def _known(summary: Summary, names: Sequence[str], verdict: CaseVerdict) -> str:
    """What of these modes' unexpected findings are known bugs: `, a known bug: xfs-sync-no-flush`; or that
    all are known losses; empty if none is known.
    """
    found = [f for f in summary.unexpected if f.case.configuration in names]
    if found and all(f.loss for f in found):
        return f", {_losses(found, 'such modes' if len(names) > 1 else 'such a mode')}"
    bugs = list(dict.fromkeys(f.known.bug.name for f in found if f.known))
    if verdict is not CaseVerdict.FAIL or not bugs:
        return ""
    if new := sum(f.known is None for f in found):
        return f", {number(len(found) - new)} of {plural(len(found), 'finding')} known bugs"
    which = "a known bug" if len(bugs) == 1 else "known bugs"
    return f", {which}: {enumerated(bugs)}" if len(bugs) <= _NAMED_MODES else f", {len(bugs)} known bugs"


def _losses(found: Sequence[Finding], such: str) -> str:
    """What known losses are together: `known losses of such a mode`."""
    by_options = [_by_options(f) for f in found]
    parts = [f"known losses of {such}"] * any(by_options)
    parts += ["known faults of some kernels"] * (not all(by_options))
    return enumerated(parts)


def _undecided(summary: Summary, run: Mapping[str, CaseVerdict]) -> list[str]:
    """The modes of which a case could not be decided, those that broke promises in another one, too."""
    open_ones = [c.case.configuration for c in summary.cases if c.verdict is CaseVerdict.UNKNOWN]
    names = [name for name in run if name in open_ones]
    if len(names) <= _NAMED_MODES:
        return [_not_decided(summary, name) for name in names]
    some = any(run[name] is not CaseVerdict.UNKNOWN for name in names)
    cases = f"{plural(len(open_ones), 'case')} of " if some else ""
    return [f"{cases}{len(names)} modes could not be decided"]


def _not_decided(summary: Summary, mode: str) -> str:
    """`2 of 236 cases of ext4/ordered could not be decided`; the mode alone where none was."""
    cases = [c for c in modes(summary)[mode] if c.verdict is not CaseVerdict.NOT_RUN]
    open_ones = sum(c.verdict is CaseVerdict.UNKNOWN for c in cases)
    some = f"{number(open_ones)} of {plural(len(cases), 'case')} of " if open_ones < len(cases) else ""
    return f"{some}{mode} could not be decided"


def _judged_by(summary: Summary) -> list[str]:
    """What to say of a run that only some oracles judged: less than all of them promise less."""
    used = {oracle for c in summary.cases for oracle in c.info.oracles} or set(BY_DEFAULT)
    if used >= set(BY_DEFAULT) or rules_alone(summary):  # there, a program's own check is all there is
        return []
    names = [name for name in ORACLES if name in used]
    who = f"{len(names)} of {len(ORACLES)} oracles" if len(names) > _NAMED_ORACLES else enumerated(names)
    return [f"judged by {who} alone"]


def judging(info: CaseInfo) -> Sequence[str]:
    """The oracles that had something to judge in a case: without cuts in recoveries, a faulty disk, a
    program of the workload's own or steps before the mount, an oracle for these says nothing.
    """
    mode = info.case.configuration
    plain = mode not in modes_with_steps() and "@" not in mode
    idle = {
        *(["confluence"] if not info.again else []),
        *(["honesty"] if info.disk is None else []),
        *(["program"] if info.calls is None else []),
        *(["assembles"] if plain else []),
    }
    return [name for name in info.oracles if name not in idle] or info.oracles


@cache
def usual_modes() -> frozenset[str]:
    """The modes that most people use of a file system."""
    return frozenset(name for name, profile in profiles().items() if profile.usual)


@cache
def modes_with_steps() -> frozenset[str]:
    """The modes in which something is done with a crashed disk before the mount."""
    return frozenset(name for name, profile in profiles().items() if profile.first)


def enumerated(names: Sequence[str]) -> str:
    """`fsck`, `fsck and size`, `fsck, size and stale`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _did(verdict: CaseVerdict, oracles: str) -> str:
    return f"broke promises{oracles}{', as expected' if verdict is CaseVerdict.XFAIL else ''}"


def _oracles(summary: Summary, mode: str, verdict: CaseVerdict) -> str:
    """` (fsck)`, ` (3 symptoms: durability, fsck)`: what a mode broke; ` (9 symptoms)`: much, as expected. A
    symptom counts once, however many workloads and files show it.
    """
    own = {c.case for c in summary.cases if only_own_check_failed(c)}
    symptoms = {
        f.symptom
        for f in summary.findings
        if f.case.configuration == mode
        and f.case not in own
        and (f.expectation is None) == (verdict is CaseVerdict.FAIL)
    }
    names = {s.oracle for s in symptoms}
    if verdict is CaseVerdict.XFAIL and len(names) > _NAMED_ORACLES:
        return f" ({len(symptoms)} symptoms)"
    counted = f"{len(symptoms)} symptoms: " if len(symptoms) > len(names) else ""
    return f" ({counted}{', '.join(sorted(names))})" if names else ""


def _kept(summary: Summary, kept: Sequence[str], of: int) -> str:
    by_mode = modes(summary)
    cases = [c for name in kept for c in by_mode[name] if not only_own_check_failed(c)]
    states = sum(c.counts.checked for c in cases)
    if not kept:
        return f"none of {of} modes kept every promise"
    who = f"{len(kept)} of {of} modes" if of > 1 else kept[0]
    coverage = [c.info.coverage for c in cases if not c.was_not_run]
    cuts = [cut.coverage for c in cases for cut in c.info.again]
    if not any(coverage) and not any(cut.unexplored or cut.sampled for cut in cuts):
        return f"{who} kept every promise at every one of {number(states)} crash states"
    return f"{who} kept every promise in {covered_together(coverage, states, cuts)}"


def covered_together(cases: Sequence[Coverage | None], states: int, cuts: Sequence[Coverage] = ()) -> str:
    """What was covered in several cases, in words: how many crash states, then how much is left. None: the
    states of the write log's own order, all of them. `cuts`: how far recoveries were cut.
    """
    whole = bool(cases) and all(c is not None and c.exhaustive for c in cases)
    if whole and not any(c.unexplored or c.sampled for c in cuts):
        return f"all {number(states)} legal crash states"
    legal = "legal " if any(c is not None and c.crash_times for c in cases) else ""
    return f"{number(states)} {legal}crash states ({', '.join([extent(cases), *in_cuts(cuts)])})"


def in_cuts(cuts: Iterable[Coverage]) -> list[str]:
    """What was left out where recoveries were cut."""
    known = tuple(cuts)
    left, drawn = sum(c.unexplored for c in known), sum(c.drawn for c in known)
    found = [
        (choices(left), left),
        (f"{number(drawn)} states sampled without a difference", drawn),
    ]
    return [f"{what} in cut recoveries" for what, count in found if count]


def extent(cases: Sequence[Coverage | None], not_ended: int = 0) -> str:
    """`36 of 39 cases complete, 76 choices unexplored in 3`: how far the legal states were covered. None: the
    write log's own order was, as a whole. `not_ended`: how many cases there are besides that were cut short,
    of which that is not known.
    """
    ordered = [c for c in cases if c is None or not c.crash_times]
    cut = [c for c in ordered if c is not None and c.unexplored]
    sampled = [c for c in cases if c is not None and c.sampled and not c.unexplored]
    part = [c for c in cases if c is not None and c.crash_times and not c.exhaustive and c not in sampled]
    complete = len(cases) - len(ordered) - len(sampled) - len(part)
    found = [
        (f"{number(sum(c.drawn for c in sampled))} states sampled without a difference", len(sampled)),
        (choices(sum(c.unexplored for c in part)), len(part)),
        ("only the log's own order", len(ordered) - len(cut)),
        (f"{plural(sum(c.unexplored for c in cut), 'state')} of the log's own order left out", len(cut)),
    ]
    left = [(what, count) for what, count in found if count]
    open_ = "not ended: how far is not known"
    if len(cases) + not_ended == 1:
        return open_ if not_ended else left[0][0] if left else "complete"
    of = f" of {number(len(cases) + not_ended)} cases"
    parts = [f"{number(complete)}{of} complete"] if complete else []
    for what, count in left:
        parts.append(f"{what} in {number(count)}{'' if parts else of}")
    if not_ended:
        parts.append(f"{number(not_ended)}{'' if parts else of} {open_}")
    return ", ".join(parts)


def asked_states(models: Sequence[str], budget: Budget) -> str:
    """Which crash states a plan asks for; see `--states` and `--budget`."""
    named = ", ".join([*models, *([f"up to {budget.text}"] if budget != Budget() else [])])
    if {"exhaustive", "sectors"} & set(models):
        return f"legal crash states ({named})"
    return f"the write log's own order ({named}), not all legal crash states"


def covered(coverage: Coverage) -> str:
    """Which legal crash states of a case were covered, in words."""
    at = f"at {plural(coverage.crash_times, 'crash time')}"
    if coverage.exhaustive:
        return f"exhaustive: every legal crash state {at}"
    if not coverage.crash_times:
        return coverage.why
    if coverage.sampled and not coverage.unexplored:
        whole, many = number(coverage.crash_times - coverage.sampled), number(coverage.sampled)
        instead = f"{up_to(coverage.losses)} and {number(coverage.drawn)} sampled: no difference found"
        return f"every legal crash state at {whole} crash times; at {many} with too many, {instead}"
    ended = ", ended by" if coverage.why.startswith("the ") else ":"  # what is no limit ended nothing
    left = f"{choices(coverage.unexplored)}{ended} {coverage.why}"
    # A budget of 60 states stood beside 104 that were judged.
    more = ", which these two may exceed" * (not coverage.losses and coverage.why.startswith("the budget"))
    return f"{up_to(coverage.losses)} {at}; {left}{more}"


def less_than_asked(cases: Iterable[CaseInfo]) -> str:
    """In how many cases legal states were asked for and could not be told, and why; empty if in none."""
    why = [c.coverage.not_legal for c in cases if c.coverage and c.coverage.not_legal]
    of = plural(len(why), "case")
    return f"legal crash states were asked for, and could not be told in {of}: {why[0]}" if why else ""


def recoveries_cut(cases: Iterable[CaseInfo]) -> str:
    """How far recoveries were cut again in several cases, in a line; empty where that was not asked for."""
    generations = [case.again for case in cases if case.again]
    cuts = [cut for of_case in generations for cut in of_case]
    if not any(cut.recoveries or cut.not_cut for cut in cuts):
        return ""
    ended = all(not of_case[-1].recoveries for of_case in generations)
    whole = ended and all(cut.coverage.exhaustive and not cut.not_cut for cut in cuts)
    times = sum(cut.coverage.crash_times for cut in cuts)
    visits = sum(cut.coverage.visits for cut in cuts)
    left = sum(cut.coverage.unexplored for cut in cuts)
    not_cut = sum(cut.not_cut for cut in cuts)
    sampled = sum(cut.coverage.sampled for cut in cuts)
    drawn = number(sum(cut.coverage.drawn for cut in cuts))
    return ", ".join(
        [
            f"cut again{' to the end' if whole else ''}, "
            f"{max((cut.depth for cut in cuts if cut.recoveries), default=0)} deep: "
            f"{plural(sum(cut.recoveries for cut in cuts), 'recovery', 'recoveries')}",
            f"{plural(times, 'crash time')} in them",
            f"{plural(visits, 'visit')} to what none before had read",
            *([choices(left)] if left else []),
            *(["every legal state"] if not (left or sampled or not_cut) else []),
            *([f"{drawn} states sampled without a difference at {number(sampled)}"] if sampled else []),
            *([f"{plural(not_cut, 'recovery', 'recoveries')} not cut"] if not_cut else []),
        ]
    )


def covered_briefly(info: CaseInfo) -> str:
    """What follows a case's number of states in one line: `all legal ones`, `103 choices unexplored`, and
    then what is left of its cut recoveries.
    """
    own = _covered_briefly(info.coverage) if info.coverage else ""
    return ", ".join(filter(None, [own, *in_cuts(cut.coverage for cut in info.again)]))


def _covered_briefly(coverage: Coverage) -> str:
    if coverage.exhaustive:
        return "all legal ones"
    if coverage.sampled and not coverage.unexplored:
        return f"{number(coverage.drawn)} sampled where there are too many: no difference found"
    if coverage.crash_times:
        return choices(coverage.unexplored)
    return f"{number(coverage.unexplored)} left out" if coverage.unexplored else "only the log's own order"


def up_to(losses: int | None) -> str:
    """`states with up to 2 blocks lost, or up to 2 kept`, of the blocks that could be lost."""
    if losses is None:
        return "every legal state"
    if losses < 0:
        return "part of the simplest states"
    if losses == 0:
        return "the two simplest states, all lost and all kept,"
    return f"states with up to {plural(losses, 'block')} lost, or up to {number(losses)} kept,"


DeviceOf: TypeAlias = Callable[[int], str]
"""Of which device an entry is, by its number, in words."""


def no_device(_: int) -> str:
    """Of an entry of a log of one device: nothing."""
    return ""


def device_of(entries: Iterable[DrawnEntry | LogEntry]) -> DeviceOf:
    """For the entries of a log, where it is of several devices."""
    known = {e.index: e for e in entries}
    mark = known[0].mark if 0 in known else ""
    try:
        devices = devices_of([LogEntry(0, 0, 0, EntryFlag.MARK, 0, mark)])
    except WriteLogError:
        return no_device  # somebody else's log
    return lambda number: devices.name(known[number].sector) if number in known else ""


def state_words(state: CrashState, device: DeviceOf = no_device) -> str:
    """A crash state as a sentence for people. `device`: of an entry, if there are several."""
    if state.fault is not None:
        return f"{state_words(state.without_fault, device)}; while that is recovered, {state.fault.text}"
    persisted = state.persisted
    if persisted is None:
        return _prefix_words(state, device)
    parts = [_part_words(part, device) for part in persisted.parts]
    named = enumerated(parts)
    if persisted.only:
        what = f"only {named}" if parts else "nothing"
        fate = f"of what no flush had made durable, {what} had been written"
    elif parts:
        fate = f"{named} {'is' if len(parts) == 1 else 'are'} lost"
    else:
        fate = "nothing that was submitted is lost"
    return f"the power fails before entry {state.prefix} of the write log completes; {fate}"


def _prefix_words(state: CrashState, device: DeviceOf) -> str:
    if not state.prefix:
        return "no entry of the write log is on the platter"
    first = "the first entry" if state.prefix == 1 else f"the first {number(state.prefix)} entries"
    text = f"{first} of the write log {'is' if state.prefix == 1 else 'are'} on the platter"
    if state.dropped:
        text += f", without {enumerated([_entry_words(d, device) for d in state.dropped])}"
    if state.torn_sectors is not None:
        of = device(state.prefix - 1)
        text += f"; of the last one{of and f' ({of})'}, only its first {plural(state.torn_sectors, 'sector')}"
    return text


def _entry_words(entry: int, device: DeviceOf) -> str:
    of = device(entry)
    return f"entry {number(entry)}{of and f' ({of})'}"


def _part_words(part: Part, device: DeviceOf) -> str:
    entry = _entry_words(part.entry, device)
    if part.block is not None:
        return f"block {part.block} of {entry}"
    return entry if part.sector is None else f"sector {part.sector} of {entry}"


def history_around(steps: Sequence[Step], prefix: int, context: int = 5) -> Iterable[tuple[str, Step | None]]:
    """Operations around the power failure, as (status, operation).

    `acked`: had returned; `running`: had begun; `later`: had not begun. `cut` (without an operation) is the
    power failure, `more` stands for omitted operations.
    """
    acked = [s for s in steps if s.ack is not None and s.ack < prefix]
    running = [s for s in steps if s.begin is not None and s.begin < prefix and s not in acked]
    later = [s for s in steps if s not in acked and s not in running]
    if len(acked) > context:
        yield "more", None
    for step in acked[-context:]:
        yield "acked", step
    for step in running:
        yield "running", step
    yield "cut", None
    for step in later[:context]:
        yield "later", step
    if len(later) > context:
        yield "more", None


def history_lines(info: CaseInfo, prefix: int) -> list[str]:
    """`history_around` as text."""
    lines = []
    for kind, step in history_around(info.steps, prefix):
        if step is not None:
            said = {"acked": "returned", "running": "begun", "later": "not begun"}[kind]
            lines.append(f"  {step.index:>5}  {said:<10} {step.text}")
        else:
            lines.append("    ...." if kind == "more" else "  ----- the power failed here " + "-" * 40)
    return lines


def grouped(findings: Iterable[Finding]) -> list[tuple[Finding, ...]]:
    """Findings of one case that are shown at the same crash state, which are probably of one cause, together;
    in the order in which they come.
    """
    return [*map(tuple, by_key(((f.case, f.state), f) for f in findings).values())]


def is_shown(violation: Violation) -> bool:
    """Whether a violation's summary says what was found, so that it need not be said once more."""
    message = re.fullmatch(r"(?:exit code \d+: )?(.+)", violation.found, re.DOTALL)
    return message is not None and message[1] in violation.summary


def counted(counts: Counts) -> str:
    """`190 checked: 126 kept, 64 broken`; and, where that differs, of how many, and how many contents."""
    said = [(counts.passed, "kept"), (counts.failed, "broken"), (counts.unknown, "undecided")]
    text = ", ".join(f"{number(count)} {what}" for count, what in said if count)
    of = f" of {number(counts.generated)}" if counts.generated != counts.checked else ""
    contents = f"; {number(counts.distinct)} different disks" if counts.distinct != counts.generated else ""
    return f"{number(counts.checked)}{of} checked" + (f": {text}" if text else "") + contents


def where(finding: Finding) -> str:
    """`@417, the smallest of 38 states that show it; mount fails with EIO there, too`."""
    beside = f"; {finding.unmounted} there, too" if finding.unmounted else ""
    if finding.states > 1:
        which = "the smallest" if finding.is_smallest else "one"
        return f"{finding.state}, {which} of {number(finding.states)} states that show it{beside}"
    if finding.states == 1:
        return f"{finding.state}, the only state that was seen to show it{beside}"
    return f"{finding.state}, seen while another finding was minimised{beside}"


def together(cases: Iterable[CaseSummary]) -> list[tuple[str, tuple[CaseSummary, ...]]]:
    """Undecided cases and cases not run, grouped by reason, in order of first appearance. A case with reasons
    of its own gets an entry of its own.
    """
    found: dict[object, tuple[str, list[CaseSummary]]] = {}
    for c in cases:
        why = c.undecided or c.reason or "no reason given"
        key = object() if c.unknown_reasons else (c.verdict, why)
        found.setdefault(key, (why, []))[1].append(c)
    return [(why, tuple(alike)) for why, alike in found.values()]


def doubts(summary: Summary) -> list[tuple[str, list[CaseSummary]]]:
    """Why a check may find nothing, each with the cases that ran it."""
    return [*by_key((c.info.doubt, c) for c in summary.cases if c.info.doubt).items()]


def xpass(expectation: Expectation, summary: Summary) -> str:
    """What to do about an expectation that nothing met. A pattern may still be met by workloads that this run
    did not include.
    """
    if expectation.reason == IN_BASELINE:
        return (
            "fixed since the baseline, or not shown by this run: a new pack of this run would not expect it"
        )
    taken = sum(expectation.applies_to(c.case) for c in summary.cases)
    if not re.search(r"[*?[]", expectation.configuration + expectation.workload):
        return "remove the line if the failure is gone"
    return (
        f"not met in the {plural(taken, 'case')} of this run it applies to; "
        "remove the line if no other case meets it"
    )
