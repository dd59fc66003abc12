"""What the plugin makes of a verdict; that it runs what it should is in `vm/test_pytest_plugin.py`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harness.model import CaseId, CrashState
from harness.pytest_plugin import CrashCase
from harness.store.records import CaseInfo, CaseStatus, Counts, UnknownReason
from harness.summary import CaseSummary, CaseVerdict

CASE = CaseId("jfs", "default", "append-fsync")


class Told:
    """Runs that came to this."""

    def __init__(self, summary: CaseSummary) -> None:
        self._summary = summary

    def result(self, case: CaseId) -> CaseSummary:
        return self._summary

    def source(self, case: CaseId) -> str:
        return "RUN"


def of(
    status: CaseStatus, counts: Counts, reason: str = "", unknown: tuple[UnknownReason, ...] = ()
) -> CrashCase:
    summary = CaseSummary(CaseInfo(CASE), status, reason, 0.0, counts, (), unknown, {})
    return CrashCase(CASE, cast(Any, Told(summary)))


def test_a_case_that_kept_every_promise_passes() -> None:
    kept = of(CaseStatus.DONE, Counts(3, 3, passed=3, contents=3))
    assert kept.summary().verdict is CaseVerdict.PASS
    kept.check()


def test_what_cannot_be_run_here_fails_with_what_it_lacks() -> None:
    """It was skipped once, and a suite of nothing but skips is green. So was this test then: a skip that is
    raised in it is none of its failures, unless it is caught.
    """
    lacking = of(CaseStatus.NOT_RUN, Counts(), "mkfs.jfs is not installed; apt-get install jfsutils")
    with pytest.raises(BaseException, match=r"mkfs\.jfs is not installed") as told:
        lacking.check()
    assert isinstance(told.value, pytest.fail.Exception)
    assert "not run: " in str(told.value)


def test_what_a_guest_said_cannot_steer_the_terminal() -> None:
    lost = of(CaseStatus.UNKNOWN, Counts(), "\x1b[2J\n1 passed")
    with pytest.raises(pytest.fail.Exception, match=r"undecided: \\x1b\[2J\\n1 passed"):
        lost.check()


def test_what_a_file_system_does_not_have_is_skipped() -> None:
    """No host and no kernel could run it; `powercut run` does not count it either."""
    never = of(CaseStatus.NOT_SUPPORTED, Counts(), "this file system does not support `tmpfile a 4096`")
    with pytest.raises(pytest.skip.Exception, match="does not support `tmpfile"):
        never.check()


def test_what_is_undecided_fails() -> None:
    why = UnknownReason("a guest was lost", 1, CrashState(2))
    counts = Counts(3, 3, passed=2, unknown=1, contents=3)
    undecided = of(CaseStatus.UNKNOWN, counts, "a guest was lost", (why,))
    again = f"reproduce: powercut repro {CASE}@2 --from RUN"
    with pytest.raises(pytest.fail.Exception, match=f"undecided: a guest was lost\n{again}"):
        undecided.check()


_MARKED = "(configurations=['ext4/ordered'], workloads=['append-fsync']"


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ('(configurations=["ext4/orderd"], workloads=["append-fsync"])', "*did you mean ext4/ordered*"),
        ('(configurations=["ext4/ordered"], workloads=["apend-fsync"])', "*did you mean append-fsync*"),
        ('(configurations=["ext4/ordered"])', "*lacks workloads*"),
        ("", "*lacks configurations and workloads*"),
        # these had no effect, and the test passed
        (f"{_MARKED}, states='exhaustive')", "*not take states*"),
        ("('exhaustive'," + _MARKED[1:] + ")", "*not take 'exhaustive'*"),
        # these ended the session
        ('(configurations=["ext4/ordered"], workloads=[])', "*names no mode or no workload*"),
        ('(configurations=["ext4/ordered"], workloads=[1])', "*workloads of the marker * is no list*"),
        # the letter e was looked for
        (
            '(configurations="ext4/ordered", workloads=["append-fsync"])',
            "*configurations of the marker * is no list*",
        ),
    ],
)
def test_a_mistaken_marker_fails_its_own_test_and_no_other(
    pytester: pytest.Pytester, marker: str, says: str
) -> None:
    """One mistyped mode stopped the whole session, in 25 lines of the plugin's insides."""
    marked = f"@pytest.mark.crash_consistency{marker}"
    pytester.makepyfile(
        f"import pytest\n{marked}\ndef test_crash(crash_case):\n    pass\n\ndef test_other():\n    pass\n"
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([says])
    result.stdout.no_fnmatch_line("*_caller.py*")


def test_a_mistaken_marker_is_no_expected_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n"
        '@pytest.mark.crash_consistency(configurations=["ext4/orderd"], workloads=["append-fsync"])\n'
        "@pytest.mark.xfail(strict=True)\n"
        "def test_crash(crash_case):\n    pass\n"
    )
    pytester.runpytest_subprocess().assert_outcomes(errors=1)


def test_without_a_marker_the_test_says_what_to_write(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_crash(crash_case):\n    pass\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.crash_consistency*"])


@pytest.mark.parametrize("others", ["", "def test_other():\n    pass\n"])
def test_a_session_that_skipped_every_crash_case_is_not_green(pytester: pytest.Pytester, others: str) -> None:
    """It ended with exit code 0, though nothing was checked."""
    pytester.makepyfile(_CASES.format("pytest.skip('not supported')") + others)
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["powercut: no crash case was checked*"])


def test_one_crash_case_with_an_answer_is_enough(pytester: pytest.Pytester) -> None:
    asks = "crash_case._ask() if 'xfs' in str(crash_case.case) else pytest.skip('not supported')"
    pytester.makepyfile(_CASES.format(asks))
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("powercut: no crash case*")


@pytest.mark.parametrize(
    ("marked", "called"),
    [("@pytest.mark.crash", "passed"), ("@pytest.mark.xfail\n@pytest.mark.crash", "xpassed")],
)
def test_a_test_that_does_not_ask_for_the_verdict_fails(
    pytester: pytest.Pytester, marked: str, called: str
) -> None:
    """It passed, and nothing was run."""
    pytester.makepyfile(_CASES.format("pass").replace("@pytest.mark.crash", marked))
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(**{called: 2, "errors": 2})
    result.stdout.fnmatch_lines(["nothing was run: *; add crash_case.check()"])


def test_crash_cases_that_fail_as_expected_were_checked(pytester: pytest.Pytester) -> None:
    """pytest calls an expected failure skipped as well: "no crash case was checked" was said of it."""
    marked = "@pytest.mark.xfail(strict=True)\n@pytest.mark.crash"
    pytester.makepyfile(_CASES.format("pytest.fail('known')").replace("@pytest.mark.crash", marked))
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(xfailed=2)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("powercut: no crash case*")


def test_workers_tell_the_session_that_started_them(pytester: pytest.Pytester) -> None:
    """With pytest-xdist the cases are skipped in other processes."""
    pytester.makepyfile(_CASES.format("pytest.skip('not supported')"))
    assert pytester.runpytest_subprocess("-n", "2").ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("jobs", ["0", "257", "many"])
def test_as_many_jobs_as_no_run_may_have_are_refused(pytester: pytest.Pytester, jobs: str) -> None:
    """`--powercut-jobs 0` was a traceback of ThreadPoolExecutor."""
    pytester.makepyfile("def test_other():\n    pass\n")
    result = pytester.runpytest_subprocess("--powercut-jobs", jobs)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--powercut-jobs: '*': Expected `int`*"])


def test_a_session_without_crash_cases_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\ndef test_other():\n    pytest.skip('not here')\n")
    assert pytester.runpytest_subprocess().ret == pytest.ExitCode.OK


_CASES = """
import pytest

@pytest.mark.crash_consistency(configurations=["ext4/ordered", "xfs/default"], workloads=["append-fsync"])
def test_crash(crash_case):
    {}

"""


def test_a_fixture_may_ask_for_the_verdict(pytester: pytest.Pytester) -> None:
    """ "nothing was run", of a fixture of the user's that checks, before the test or behind it."""
    pytester.makepyfile(
        """
        import pytest
        MARK = pytest.mark.crash_consistency(configurations=["ext4/ordered"], workloads=["append-fsync"])

        @pytest.fixture
        def checked(crash_case):
            yield crash_case
            crash_case._ask()

        @MARK
        def test_behind(checked):
            assert {checked: 1}
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
