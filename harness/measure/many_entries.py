"""many-entries: how time grows with the entries of one directory."""

from __future__ import annotations

from collections.abc import Sequence

from harness.measure.comparison import Configuration, Sizes, ratio, spread_table
from harness.measure.rig import InGuest, Rig
from harness.measurements.results import Curve, Ratio, Results
from harness.measurements.samples import Sample, Samples

FULL_ENTRIES = 500_000
ENTRIES = 6_250  # at scale 1
PARTS = (8, 4, 2, 1)
"""The clock is read at N/8, N/4, N/2 and N entries."""

PHASES = {"create": "create the files", "backup": "hard-link them into a backup"}
_WITHOUT_INDEX = "ext3 without dir_index"


class ManyEntries(InGuest):
    name = "many-entries"
    summary = (
        "a directory of very many tiny files, and a hard-linked backup of it: how time grows with entries"
    )
    repeats = (
        "a mail or news spool of 500,000 tiny files in one directory and `cp -al` of it, from the years "
        "when ext3 had no directory index by default (dir_index: D. Phillips, A Directory Index for Ext2, "
        "ALS 2001). No one figure was published for it; what is known is the shape: a linear directory "
        "costs the square of its entries, a hashed one or a tree does not"
    )
    rounds = 3
    memory_mib = 1024

    def configurations(self) -> Sequence[Configuration]:
        return [
            Configuration.of("ext2/default", called="ext2", mkfs=["-O", "^dir_index"]),
            Configuration.of("ext3/ordered", called=_WITHOUT_INDEX, mkfs=["-O", "^dir_index"]),
            Configuration.of("ext3/ordered", called="ext3 with dir_index", mkfs=["-O", "dir_index"]),
            Configuration.of("xfs/default", called="XFS"),
            Configuration.of("reiserfs/ordered", called="ReiserFS"),
        ]

    def sizes(self, scale: float) -> Sizes:
        return {"entries": max(64, round(ENTRIES * scale))}

    def disk_mib(self, sizes: Sizes) -> int:
        return 1024 + sizes["entries"] * 20_000 // (1 << 20)  # an inode is made for every 16 KiB

    def take(self, rig: Rig, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        points = _points(sizes)
        with rig.fresh(configuration) as root:
            answer = rig.script("many_entries", {"root": root, "points": points})
        values = {
            f"{phase} {point}": float(seconds)
            for phase in PHASES
            for point, seconds in zip(points, list(answer[f"{phase}_s"]), strict=True)  # type: ignore[call-overload]  # JSON
        }
        return Sample(configuration.name, number, values | _growth(values, points))

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        points = _points(sizes)
        growth = {f"{phase} growth": f"growth, {phase}" for phase in PHASES}
        note = (
            "Time of an entry in the last half of the directory over that in its first eighth: 1 where "
            "time grows in proportion to the entries, about 12 where each entry looks through all before "
            "it and does nothing else."
        )
        tables = [
            spread_table("How much dearer an entry becomes", samples, growth, self.configurations(), note)
        ]
        for phase, words in PHASES.items():
            columns = {f"{phase} {p}": f"{p:,} entries, s" for p in points}
            tables.append(spread_table(f"Seconds to {words}", samples, columns, self.configurations()))
        return Results(
            _ratios(samples, points[-1]), tables, series=_series(samples, points), notes=_notes(sizes)
        )


def _notes(sizes: Sizes) -> list[str]:
    return [
        f"{sizes['entries']:,} entries instead of 500,000, which `--scale {FULL_ENTRIES / ENTRIES:g}` "
        "makes: under emulation a linear directory of that size would take days.",
        "Names are looked up in memory; on the disks of that time the blocks of a large directory were "
        "read from all over the disk as well.",
    ]


def _points(sizes: Sizes) -> list[int]:
    return [sizes["entries"] // part for part in PARTS]


def _growth(values: dict[str, float], points: Sequence[int]) -> dict[str, float]:
    """Seconds of an entry in the last half over those in the first eighth."""
    found = {}
    for phase in PHASES:
        first = values[f"{phase} {points[0]}"] / points[0]
        last = (values[f"{phase} {points[-1]}"] - values[f"{phase} {points[-2]}"]) / (points[-1] - points[-2])
        if first > 0:
            found[f"{phase} growth"] = last / first
    return found


def _ratios(samples: Samples, entries: int) -> list[Ratio]:
    found = []
    for phase, words in PHASES.items():
        upper = samples.values(_WITHOUT_INDEX, f"{phase} {entries}")
        lower = samples.values("ext3 with dir_index", f"{phase} {entries}")
        found += ratio(f"time to {words}, {entries:,} entries, ext3 without / with dir_index", upper, lower)
    return found


def _series(samples: Samples, points: Sequence[int]) -> list[Curve]:
    found = []
    for phase, words in PHASES.items():
        for name in samples.configurations():
            spreads = [(p, samples.spread(name, f"{phase} {p}")) for p in points]
            line = [(float(p), s.median) for p, s in spreads if s]
            if line:
                found.append(Curve(f"Time to {words}", name, "entries", "seconds (median)", line))
    return found
