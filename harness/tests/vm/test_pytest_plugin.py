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
