"""The workload `lvm-update`: its `run` without lvm2, and its check on files as power cuts leave them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from harness.host.resources import resource
from harness.tests.workloads.checks import said_by_check


@pytest.mark.parametrize(
    ("lines", "told", "kept"),
    [
        ("1\n2\n3\n", "1\n2\n", True),
        ("", "", True),
        ("1\n2", "1\n", True),
        ("1\n", "1\n2\n", False),
        ("\0\0\0\0", "1\n2\n", False),
        ("1\n3\n", "1\n2\n", False),
    ],
)
def test_each_line_that_was_acknowledged_is_there(lines: str, told: str, kept: bool, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(lines)
    assert (said_by_check("lvm-update", tmp_path, told) == "") is kept


_ACKNOWLEDGES = 'echo "$1" >>acknowledged'
_CHANGES = "for _ in $(seq 500); do [ -s acknowledged ] && exit 0; sleep 0.01; done; exit 1"
"""Done once a line was acknowledged meanwhile."""


def run(folder: Path, lvm: str) -> int:
    """The exit code of the variant `tag`, with a script in lvm's place. Nothing that it started is left."""
    for name in ("bin", "mapper", "scratch", "mount"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "mapper/vg-lv").touch()
    (folder / "mount/acknowledged").write_text("")
    for name, script in {"lvm": lvm, "powercut-ack": _ACKNOWLEDGES, "sync": ":"}.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "bin" / name).chmod(0o755)
    program = (
        (resource("workloads") / "lvm-update/run").read_text().replace("/dev/mapper", f"{folder}/mapper")
    )
    path = f"{folder}/bin:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TMPDIR": f"{folder}/scratch"}
    line = ["sh", "-c", program, "run", "tag"]
    started = subprocess.Popen(line, cwd=folder / "mount", env=environment, start_new_session=True)
    code = started.wait()
    with pytest.raises(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    return code


def test_a_guest_records_one_variant_after_another(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(tmp_path, _CHANGES) == 0
        assert (tmp_path / "mount/acknowledged").read_text().startswith("1\n")
    assert not list((tmp_path / "scratch").iterdir())


def test_nothing_goes_on_once_lvm2_has_refused_a_change(tmp_path: Path) -> None:
    assert run(tmp_path, "exit 5") == 1
