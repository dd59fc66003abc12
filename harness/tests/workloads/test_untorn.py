"""The check of the workload `untorn`, on files as power cuts leave them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from harness.host.resources import resource

UNIT_BYTES = 16384


def unit(*generations: int) -> bytes:
    """A unit whose equal parts are of these generations."""
    return b"".join(bytes([g]) * (UNIT_BYTES // len(generations)) for g in generations)


NEW = unit(1) + unit(0) + unit(0)


@pytest.mark.parametrize(
    ("told", "units", "code", "says"),
    [
        ("", b"", 0, ""),
        ("ready", NEW, 0, ""),
        ("ready\n0 1", NEW, 0, ""),
        ("ready\n0 1\n0 2", NEW, 1, "unit 0 is of generation 1, and 2 was acknowledged"),
        ("ready", unit(0) + unit(1, 1, 1, 0) + unit(0), 1, "unit 1 are of generations 1 1 1 0"),
        ("ready", unit(0) * 2 + unit(*[1] * 31, 0), 1, "a write is torn"),
        ("ready", unit(0) * 2, 1, "32768 bytes, not 49152"),
    ],
)
def test_a_torn_or_lost_write_is_told(tmp_path: Path, told: str, units: bytes, code: int, says: str) -> None:
    (tmp_path / "units").write_bytes(units)
    (tmp_path / "told").write_text(told)
    check = [sys.executable, str(resource("workloads") / "untorn" / "check"), str(tmp_path / "told")]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert says in done.stdout


def test_a_file_that_is_gone_is_told_and_what_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    check = [sys.executable, str(resource("workloads") / "untorn" / "check")]
    (tmp_path / "told").write_text("ready")
    gone = subprocess.run([*check, "told"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (gone.returncode, gone.stdout) == (1, "the file is gone\n")
    (tmp_path / "units").mkdir()
    unread = subprocess.run([*check, "told"], cwd=tmp_path, capture_output=True, check=False)
    assert unread.returncode == 2
