"""double-write: what it costs to write data twice, once into the journal and once to its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from harness.errors import GuestError
from harness.measure.comparison import Configuration, Sizes, Surroundings, ratio, scaled, spread_table
from harness.measure.rig import InGuest, Rig
from harness.measurements.results import Ratio, Results
from harness.measurements.samples import Sample, Samples
from harness.tracing.records import Commit

JOURNAL, ORDERED, WRITEBACK = "ext4/journal", "ext4/ordered", "ext4/writeback"
_SOURCE = "ext4 under data=journal and data=writeback, 10 MiB written by dd with conv=fsync"
_FASTER = 3.6
_JOURNAL_MS, _WRITEBACK_MS = 34.0, 10.6


class DoubleWrite(InGuest):
    name = "double-write"
    summary = (
        "10 MiB by dd conv=fsync under data=journal, ordered, writeback, with the latency of each commit"
    )
    repeats = (
        f"Published for {_SOURCE}: writeback gave {_FASTER} times the throughput of journal, and a commit "
        f"took {_JOURNAL_MS} ms on average under journal, {_WRITEBACK_MS} ms under writeback"
    )
    modes = (JOURNAL, ORDERED, WRITEBACK)
    rounds = 7
    flushes = True

    def sizes(self, scale: float) -> Sizes:
        return scaled(scale, written_mib=10)

    def disk_mib(self, sizes: Sizes) -> int:
        return 1024 + 4 * sizes["written_mib"]

    def take(self, rig: Rig, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        probes = rig.probes([configuration.profile.tracing])
        with rig.fresh(configuration) as root:
            rig.drop_caches()
            probes.collect()  # what making and mounting it has caused
            before = rig.sectors_written()
            said = rig.shell(
                f"dd if=/dev/zero of={root}/f bs=1M count={sizes['written_mib']} conv=fsync 2>&1"
            )
            records = probes.collect()
            written = rig.sectors_written() - before
        size, seconds = dd_result(said)
        commits = [r for r in records if isinstance(r, Commit)]
        if not commits:
            raise GuestError("no commit was traced while dd was writing")
        latencies = [c.us / 1e3 for c in commits]
        return Sample(
            configuration.name,
            number,
            {
                "mib_s": size / seconds / (1 << 20),
                "commit_ms": sum(latencies) / len(latencies),
                "longest_ms": max(latencies),
                "commits": len(commits),
                "logged_blocks": sum(c.logged for c in commits),
                "to_disk_mib": written * 512 / (1 << 20),
            },
        )

    def surroundings(self, rig: Rig) -> Surroundings:
        probes = rig.probes([c.profile.tracing for c in self.configurations()])
        return replace(super().surroundings(rig), source=probes.source)

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        columns = {
            "mib_s": "throughput, MiB/s",
            "commit_ms": "a commit on average, ms",
            "longest_ms": "longest commit, ms",
            "commits": "commits",
            "logged_blocks": "blocks logged",
            "to_disk_mib": "to the disk meanwhile, MiB",
        }
        table = spread_table("By mode", samples, columns, self.configurations())
        return Results(_ratios(samples), [table], notes=NOTES)


NOTES = (
    "A commit lasts from jbd2_start_commit to jbd2_end_commit; see `powercut trace` for its phases.",
    "Flushes reach the host's disk. What the host's page cache takes in between costs no seek: a disk with "
    "an arm pays more for writing in two places.",
    "ordered and writeback do the same work here: all of the file is written before its one commit, in both.",
    "To the disk meanwhile, and blocks logged, show the double write itself. With this kernel both writes "
    "of data=journal have happened when fsync returns: into the journal and to the file's own place.",
)


def dd_result(said: str) -> tuple[int, float]:
    """Bytes and seconds from dd's last line. Raises GuestError if there is none."""
    found = re.search(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s, ", said, re.MULTILINE)
    if not found or float(found[2]) <= 0:
        raise GuestError(f"dd did not say how long it took: {said[-300:]!r}")
    return int(found[1]), float(found[2])


def _ratios(samples: Samples) -> list[Ratio]:
    def rates(upper: str, lower: str) -> tuple[str, Mapping[int, float], Mapping[int, float]]:
        name = f"throughput, {upper.partition('/')[2]} / {lower.partition('/')[2]}"
        return name, samples.values(upper, "mib_s"), samples.values(lower, "mib_s")

    return [
        *ratio(*rates(WRITEBACK, JOURNAL), published=_FASTER, source=_SOURCE, remark=_REMARK),
        *ratio(
            "latency of a commit, journal / writeback",
            samples.values(JOURNAL, "commit_ms"),
            samples.values(WRITEBACK, "commit_ms"),
            published=round(_JOURNAL_MS / _WRITEBACK_MS, 1),
            source=f"{_JOURNAL_MS} ms to {_WRITEBACK_MS} ms, {_SOURCE}",
            remark=_ONE_COMMIT,
        ),
        *ratio(*rates(ORDERED, JOURNAL)),
        *ratio(*rates(WRITEBACK, ORDERED)),
    ]


_ONE_COMMIT = (
    "A commit here is the one that the fsync waits for: under data=journal it logs all 10 MiB, under "
    "writeback the 8 blocks of metadata (blocks logged, in the table). How many commits the published "
    "averages are made of is not known."
)
_REMARK = (
    "Under emulation the processor is many times slower than the disk, so the work that the kernel does "
    "for each block counts for more than what the disk does with it; on real hardware it is the other way "
    "round."
)
