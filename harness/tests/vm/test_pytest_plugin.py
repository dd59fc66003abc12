"""The pytest plugin, as a user's own test suite uses it."""

from __future__ import annotations

import pytest

TEST = """
import pytest

@pytest.mark.crash_consistency(
    configurations=["ext4/ordered", "ext4/nobarrier"], workloads=["append-fsync", "overwrite"]
)
def test_crash(crash_case):
    crash_case.check()
"""


def test_one_test_a_pair_with_the_repro_line_in_its_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TEST)
    result = pytester.runpytest_subprocess("-k", "append", "-v", "--powercut-reports", "runs")
    result.assert_outcomes(passed=1, failed=1, deselected=2)
    result.stdout.fnmatch_lines(
        [
            "*::test_crash[[]ext4-ordered-append_fsync[]] PASSED*",
            "*::test_crash[[]ext4-nobarrier-append_fsync[]] FAILED*",
            "*durability*fsync*",
            "reproduce: powercut repro ext4-nobarrier/append-fsync@* --from *",
        ]
    )


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ('configurations=["ext4/orderd"], workloads=["append-fsync"]', "*ext4/ordered*"),
        ('configurations=["ext4/ordered"], workloads=["apend-fsync"]', "*append-fsync*"),
        ('configurations=["ext4/ordered"]', "*lacks 'workloads'*"),
    ],
)
def test_a_wrong_marker_says_what_is_wrong(pytester: pytest.Pytester, marker: str, says: str) -> None:
    pytester.makepyfile(
        f"import pytest\n@pytest.mark.crash_consistency({marker})\ndef test_crash(crash_case):\n    pass\n"
    )
    result = pytester.runpytest_subprocess()
    assert result.ret != 0
    result.stdout.fnmatch_lines([says])


def test_without_a_marker_the_fixture_says_what_to_write(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_crash(crash_case):\n    pass\n")
    result = pytester.runpytest_subprocess()
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*@pytest.mark.crash_consistency*"])
