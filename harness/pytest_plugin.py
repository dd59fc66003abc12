"""pytest plugin: one test for every pair of mode and workload that a test names.

    @pytest.mark.crash_consistency(configurations=["ext4/ordered"], workloads=["append-fsync"])
    def test_crash(crash_case):
        crash_case.check()

gives `test_crash[ext4-ordered-append_fsync]`. All selected workloads of a mode share one run, in one set of
guests, which starts with the first of their tests. An undecided case fails, and so does a case that this host
or kernel cannot run, naming what is missing: a test suite of nothing but skips would be green. A case is
skipped only if the file system lacks an operation of the workload, and a session that skipped all of them
ends with pytest's exit code 5. Each worker of pytest-xdist has runs of its own, of all selected workloads.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter, defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
from rich.console import Console

from harness.errors import PowercutError, UsageError
from harness.filesystems.profiles import select_profiles
from harness.guests.machine import accelerators
from harness.host.progress import Lines
from harness.host.text import one_line
from harness.model import CaseId, bounds
from harness.plan import Plan
from harness.report.lines import reproduce, source_words
from harness.run import execute, new_run
from harness.summary import CaseSummary, CaseVerdict
from harness.workloads.load import select_workloads

MARKER = "crash_consistency"
_WRITTEN = f'@pytest.mark.{MARKER}(configurations=["ext4/ordered"], workloads=["append-fsync"])'


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("powercut", "crash consistency of file systems")
    group.addoption(
        "--powercut-kernel",
        default="debian-6.12",
        metavar="K",
        help="a name of powercut list kernels, a version, bzImage or vmlinux",
    )
    group.addoption("--powercut-modules", default=None, metavar="DIR", help="modules of your own kernel")
    group.addoption(
        "--powercut-accel",
        default="auto",
        choices=["auto", *accelerators()],
        help="the machine's accelerator",
    )
    group.addoption("--powercut-reports", default="reports", metavar="DIR", help="where runs are kept")
    group.addoption(
        "--powercut-jobs",
        default=min(os.cpu_count() or 1, 256),
        type=_jobs,
        metavar="N",
        help="guests to run at once",
    )


def _jobs(word: str) -> int:
    try:
        return msgspec.convert(word, bounds.Jobs, strict=False)
    except msgspec.ValidationError as e:
        raise argparse.ArgumentTypeError(f"{word!r}: {e}") from e


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(configurations, workloads): one test for each pair, through the fixture crash_case",
    )
    config.stash[_RUNS] = _Runs(config)
    config.pluginmanager.register(_Looked())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that uses `crash_case` becomes one for each pair that its marker names."""
    if "crash_case" not in metafunc.fixturenames:
        return
    try:
        pairs = _pairs(metafunc.definition)
    except PowercutError as e:
        # as a test that fails: an error of the collection would stop every other test of the session
        metafunc.parametrize("crash_case", [_Mistaken(str(e))], ids=["mistaken"], indirect=True)
        return
    ids = [f"{case.filesystem}-{case.mode}-{case.workload.replace('-', '_')}" for case, _ in pairs]
    metafunc.parametrize("crash_case", pairs, ids=ids, indirect=True)


def _pairs(test: pytest.Item) -> list[tuple[CaseId, str]]:
    """What the marker of a test names: each case, with its workload as it is named to a run. Raises
    UsageError.
    """
    marker = test.get_closest_marker(MARKER)
    if marker is None:
        raise UsageError("the test uses crash_case, and has no marker", f"mark it with {_WRITTEN}")
    named = _named(marker)
    pairs = [
        (CaseId(p.filesystem, p.mode, w.name), name if "/" in name else w.name)
        for p in select_profiles(named["configurations"])
        for name in named["workloads"]
        for w in select_workloads([name])
    ]
    if not pairs:
        raise UsageError(f"the marker {MARKER} names no mode or no workload", f"write {_WRITTEN}")
    return pairs


def _named(marker: pytest.Mark) -> Mapping[str, Sequence[str]]:
    """The lists of a marker. Raises UsageError if it has something else, which would have no effect."""
    wanted = ("configurations", "workloads")
    if lacks := [name for name in wanted if name not in marker.kwargs]:
        raise UsageError(f"the marker {MARKER} lacks {' and '.join(lacks)}", f"write {_WRITTEN}")
    others = [*map(repr, marker.args), *(name for name in marker.kwargs if name not in wanted)]
    if others:
        raise UsageError(f"the marker {MARKER} does not take {' and '.join(others)}", f"write {_WRITTEN}")
    for name, words in marker.kwargs.items():
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise UsageError(f"{name} of the marker {MARKER} is no list of names", f"write {_WRITTEN}")
    return marker.kwargs


def pytest_collection_finish(session: pytest.Session) -> None:
    """Run only what was selected (-k, -m)."""
    runs = session.config.stash[_RUNS]
    for item in session.items:
        call = getattr(item, "callspec", None)
        chosen = call.params.get("crash_case") if call is not None else None
        if chosen is not None and not isinstance(chosen, _Mistaken):
            runs.select(*chosen)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A mistaken marker, and a test that asks for no verdict, fail even where the test is marked with xfail:
    nothing was tested.
    """
    report = yield
    call = getattr(item, "callspec", None)
    chosen = call.params.get("crash_case") if call is not None else None
    mistaken = isinstance(chosen, _Mistaken) and report.when == "setup"
    if chosen and report.when == "call":
        item.stash[_PASSED] = report.passed
    passed = report.when == "teardown" and report.passed and item.stash.get(_PASSED, False)
    asks_nothing = chosen and passed and not item.stash.get(_ASKED, False)
    if asks_nothing:
        report.longrepr = _ASKS_NOTHING
    if mistaken or asks_nothing:
        report.outcome = "failed"
        if hasattr(report, "wasxfail"):
            del report.wasxfail
    # An attribute of a report also reaches the process that started the workers of pytest-xdist.
    vars(report)["is_crash_case"] = chosen is not None
    return report


_ASKS_NOTHING = "nothing was run: the test does not ask for the verdict; add crash_case.check()"


class _Looked:
    """Whether any crash case of a session came to an answer.

    A session whose crash cases were all skipped has checked nothing. Its exit code is that of a session
    without tests (5), never 0.
    """

    def __init__(self) -> None:
        self._outcomes: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if getattr(report, "is_crash_case", False) and (report.when == "call" or not report.passed):
            # pytest calls a test that failed as expected skipped, too: its case was checked.
            self._outcomes["xfailed" if hasattr(report, "wasxfail") else report.outcome] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_nothing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._is_nothing:
            terminalreporter.write_line(
                "powercut: no crash case was checked, all were skipped; `pytest -rs` shows why", red=True
            )

    @property
    def _is_nothing(self) -> bool:
        return set(self._outcomes) == {"skipped"}


@pytest.fixture
def crash_case(request: pytest.FixtureRequest) -> CrashCase:
    """The pair of this test; nothing is run before `check` or `summary`."""
    if isinstance(request.param, _Mistaken):
        pytest.fail(request.param.why, pytrace=False)
    case, _ = request.param
    return CrashCase(case, request.config.stash[_RUNS], request.node.stash)


@dataclass(frozen=True)
class _Mistaken:
    """In place of the cases of a test whose marker names none."""

    why: str


@dataclass(frozen=True)
class CrashCase:
    """A file system mode under a workload."""

    case: CaseId
    _runs: _Runs
    _of_test: pytest.Stash = field(default_factory=pytest.Stash, compare=False)

    def _ask(self) -> None:
        self._of_test[_ASKED] = True

    def summary(self) -> CaseSummary:
        """Counts, findings and verdict over all crash states."""
        self._ask()
        return self._runs.result(self.case)

    def check(self) -> None:
        """Fail the test with the findings and how to reproduce them, or with the reason the case is
        undecided.
        """
        seen = self.summary()
        if seen.was_not_run and not seen.lacks:
            # No host and no kernel could run it. What this host lacks fails below.
            pytest.skip(f"{seen.case}: {seen.reason}")
        if seen.verdict is not CaseVerdict.PASS:
            _fail(seen, self._runs.source(self.case))


def _fail(seen: CaseSummary, source: str) -> NoReturn:
    lines = [f"{seen.case}: {seen.verdict.value} ({seen.counts.checked} crash states checked)"]
    for finding in seen.findings:
        lines += [f"{finding.oracle}: {finding.summary}"]
        for v in finding.violations[:1]:
            lines += [f"  expected: {v.expected}", f"  found:    {v.found}"]
        lines += [f"reproduce: {reproduce(finding.case, finding.state, source)}"]
    if seen.verdict is CaseVerdict.NOT_RUN:
        lines += [f"not run: {seen.reason}"]
    elif seen.undecided:
        lines += [f"undecided: {seen.undecided}"]
        lines += [f"reproduce: {reproduce(seen.case, r.example, source)}" for r in seen.unknown_reasons]
    pytest.fail("\n".join(map(one_line, lines)), pytrace=False)


class _Runs:
    """One run per mode with all its selected workloads, started by the first test that needs it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._selected: dict[str, dict[str, None]] = defaultdict(dict)
        self._results: dict[CaseId, CaseSummary] = {}
        self._sources: dict[str, str] = {}

    def select(self, case: CaseId, workload: str) -> None:
        self._selected[case.configuration][workload] = None

    def source(self, case: CaseId) -> str:
        return self._sources[case.configuration]

    def result(self, case: CaseId) -> CaseSummary:
        if case not in self._results:
            self._run(case.configuration)
        return self._results[case]

    def _run(self, configuration: str) -> None:
        option = self._config.getoption
        plan = Plan(
            configurations=[configuration],
            workloads=list(self._selected[configuration]),
            kernel=option("--powercut-kernel"),
            modules=option("--powercut-modules"),
            accel=option("--powercut-accel"),
            jobs=option("--powercut-jobs"),
            require_all=True,
            argv=["pytest", *self._config.invocation_params.args],
        )
        with new_run(plan, Path(option("--powercut-reports")), "pytest") as store:
            self._sources[configuration] = source_words(store, str(store.path))
            summary = execute(plan, store, Lines(Console(quiet=True)))
        self._results.update({c.case: c for c in summary.cases})


_RUNS = pytest.StashKey[_Runs]()
_ASKED = pytest.StashKey[bool]()
"""Whether a test, or a fixture of it, has asked for its verdict."""
_PASSED = pytest.StashKey[bool]()
