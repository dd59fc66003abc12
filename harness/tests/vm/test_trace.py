"""One real trace: bcc and tracefs side by side in one guest, and the flow of powercut trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from harness.errors import GuestError, GuestLost
from harness.filesystems.profiles import select_profiles
from harness.host.progress import Lines
from harness.kernels.find import find_kernel
from harness.measurements.directory import read_measurements
from harness.tests.needs import needed
from harness.tools_image.rootfs import root_image
from harness.tracing.probes import TracefsProbes, wanted_families
from harness.tracing.records import Commit, decode_lines
from harness.tracing.rounds import TracePlan, overhead, trace, tracing

MODES = ["ext4/journal", "ext4/ordered"]


@pytest.fixture(scope="module", autouse=True)
def tools_can_be_had() -> None:
    """The root image is made here, where it is not in the cache: a minute or two."""
    with needed():
        root_image(Lines(Console(quiet=True)))


def test_two_modes_are_traced_and_compared(tmp_path: Path) -> None:
    plan = TracePlan(rounds=1, workload="dd if=/dev/zero of=f bs=1M count=4 conv=fsync", argv=["trace"])
    with (
        Lines(Console(quiet=True)) as progress,
        tracing(plan, find_kernel("debian-6.12"), select_profiles(MODES), tmp_path / "guest", progress) as s,
    ):
        assert (s.probes.source, s.probes.reason, s.lacking) == ("bcc", "", {})
        beside = TracefsProbes(s.tools, wanted_families([s.profiles[0].tracing]), "vdb", "for comparison")
        m = trace(s, tmp_path, progress)
        by_tracefs = {c.at_us: c for c in beside.collect() if isinstance(c, Commit)}

        by_bcc = [r for name in m.figures for r in decode_lines((tmp_path / name).read_text())]
        commits = [c for c in by_bcc if isinstance(c, Commit)]
        assert len(commits) >= 2 * plan.rounds
        for c in commits:  # of the same commit by its time and number: what tracefs saw
            (twin,) = [t for t in by_tracefs.values() if t.transaction == c.transaction and _near(t, c)]
            assert (c.logged, c.handles) == (twin.logged, twin.handles)

        assert read_measurements(tmp_path) == [m]
        assert [row[0] for row in m.tables[0].rows] == MODES
        assert {h.title for h in m.histograms} >= {f"{mode}: commit" for mode in MODES}
        # 4 MiB are 1024 blocks: through the log with data=journal, past it with data=ordered
        journal, ordered = (
            [c.logged for c in decode_lines((tmp_path / name).read_text()) if isinstance(c, Commit)]
            for name in m.figures
        )
        assert sum(journal) > 1024
        assert sum(ordered) < 100

        s.profiles = s.profiles[1:]
        found = overhead(s, progress)
        assert [(o.mode, len(o.without_s), len(o.with_s)) for o in found] == [(MODES[1], 1, 1)]
        assert all(o.probes_s is not None and 0 < o.probes_s < o.elapsed_s for o in found)

        with pytest.raises(GuestError, match="ended with 3: said"):
            s.tools.shell("echo said; exit 3", 30.0)
        with pytest.raises(GuestError, match="did not end within 1 s"):
            s.tools.run(["sleep", "100"], 1.0)
        s.tools.kill()
        with pytest.raises(GuestLost):
            s.tools.run(["true"], 5.0)


def _near(a: Commit, b: Commit) -> bool:
    return abs(a.at_us - b.at_us) < 500_000
