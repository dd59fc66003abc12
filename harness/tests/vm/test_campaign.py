"""A campaign with real guests, killed twice in different places. That it may be killed anywhere is tested
without guests: `harness/tests/campaigns/test_work.py`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from harness.campaigns.journal import KnownBatches
from harness.errors import ExitCode
from harness.tests.campaigns.toys import read_ledger

WAIT_S = 900.0


def powercut(*words: str | Path) -> subprocess.Popen[bytes]:
    """`powercut campaign`, as a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "harness", "campaign", *words], stdout=subprocess.DEVNULL)


def killed_when(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    """Kill the process as soon as something is the case. It must not end before."""
    until = time.monotonic() + WAIT_S
    try:
        while not ready():
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()


def judged(path: Path) -> list[str]:
    """The recordings that the run directories of the campaign hold."""
    return sorted(p.parent.name for p in path.glob("batches/*/runs/*/cases/*/*/history.json"))


def test_a_campaign_killed_twice_goes_on_and_judges_nothing_twice(tmp_path: Path, uml_kernel: Path) -> None:
    kernel = ("--kernel", uml_kernel)
    asked = (
        "--machine",
        "uml",
        "-c",
        "ext4/ordered",
        "-g",
        "random",
        "--length",
        "4",
        "--batch",
        "4",
        "--keep",
        "-j",
        "2",
    )
    first = powercut("--out", tmp_path, *asked, *kernel)
    killed_when(first, lambda: bool([p for p in (tmp_path / "runs").glob("*-campaign") if judged(p)]))
    (path,) = (tmp_path / "runs").glob("*-campaign")

    def ledger() -> KnownBatches:
        return read_ledger(path)

    assert not ledger().done
    second = powercut("--resume", path, *kernel)
    killed_when(second, lambda: len(ledger().done) == 1 and len(judged(path)) > 2)
    done, recorded = dict(ledger().done), judged(path)
    third = powercut("--resume", path, "--hours", "0.002", *kernel)
    try:
        assert third.wait(timeout=WAIT_S) == ExitCode.TIME_UP
    finally:
        third.kill()
    after = ledger()
    assert {n: after.done[n] for n in done} == done, "what was done is not done again"
    assert set(recorded) <= set(judged(path))
    names = [name for b in after.chosen.values() for name in b.workloads]
    assert names == [f"random2-{seed}-4" for seed in range(1, len(names) + 1)]
    assert len(after.started) == 3
    assert (path / "report.html").is_file()
