"""The checks of applications, run as the harness runs them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.host.resources import resource


def said_by_check(workload: str, folder: Path, told: str) -> str:
    """What the check of a workload's variant `synced` says of a folder; empty if it is content. `told`: what
    was acknowledged.
    """
    (folder / "told").write_text(told)
    line = ["sh", str(resource("workloads") / workload / "check"), str(folder / "told"), "synced"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stdout == ""), done
    return done.stdout
