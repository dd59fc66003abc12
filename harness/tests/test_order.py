"""The order of the tests: files that take minutes are not left for the end."""

from __future__ import annotations

import os
import subprocess
import sys

from harness.tests.quick import ROOT


def test_tests_with_guests_come_first() -> None:
    """They came last, and at the end one of two workers waited for the other's file."""
    files = ["harness/tests/test_order.py", "harness/tests/vm/test_lying.py"]
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    own = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}  # -v would print a tree
    done = subprocess.run(collect, cwd=ROOT, capture_output=True, text=True, check=True, env=own)
    found = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    assert list(dict.fromkeys(found)) == files[::-1]
