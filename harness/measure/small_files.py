"""small-files: trees of small files, created, copied, linked to, read, looked at, renamed, removed."""

from __future__ import annotations

from harness.measure.comparison import Configuration, Sizes, ratio, scaled, spread_table
from harness.measure.rig import InGuest, Rig
from harness.measurements.results import Cell, Ratio, Results, Table
from harness.measurements.samples import Sample, Samples

MODES = ("ext2/default", "ext3/ordered", "ext4/ordered", "xfs/default", "btrfs/default", "reiserfs/ordered")
BASE = "ext2/default"
MEDIANS_BYTES = (100, 1000, 10_000)
PHASES = ("create", "copy", "symlink", "read", "stat", "rename", "delete")
FRAGMENTS = {"created": "after create", "copied": "after copy"}


class SmallFiles(InGuest):
    """See the module. ReiserFS was held against ext2 and ext3 by its authors, so ext2 is the base here."""

    name = "small-files"
    summary = "trees of files of median 100, 1,000 and 10,000 bytes: seven phases, and fragments a file"
    repeats = (
        "Mongo, the benchmark of ReiserFS's authors (Namesys, about 2000 to 2004; "
        "reiser4.wiki.kernel.org/index.php/Mongo): its phases and its fragments a file after create and "
        "copy. Mongo draws sizes from a fractal distribution and sizes a tree by its bytes; here sizes are "
        "log-normal about the median, at most ten times it, and each tree has the same number of files"
    )
    modes = MODES
    rounds = 3

    def sizes(self, scale: float) -> Sizes:
        return scaled(scale, files=1000)

    def disk_mib(self, sizes: Sizes) -> int:
        return 1024 + sizes["files"] * 3 * 20_000 // (1 << 20)

    def take(self, rig: Rig, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        values: dict[str, float] = {}
        for median in MEDIANS_BYTES:
            with rig.fresh(configuration) as root:
                given = {"root": root, "median_bytes": median, "files": sizes["files"], "seed": number}
                answer = rig.script("small_files", given)
            values |= {f"{median} {name}": float(str(value)) for name, value in answer.items()}
        return Sample(configuration.name, number, values)

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        tables = [_ratios(samples, median) for median in MEDIANS_BYTES]
        tables += [self._seconds(samples, median) for median in MEDIANS_BYTES]
        return Results(_headlines(samples), [*tables, self._fragments(samples)], notes=NOTES)

    def _seconds(self, samples: Samples, median: int) -> Table:
        columns = {f"{median} {phase}_s": f"{phase}, s" for phase in PHASES}
        return spread_table(
            f"Seconds, files of median {median:,} bytes", samples, columns, self.configurations()
        )

    def _fragments(self, samples: Samples) -> Table:
        columns = {
            f"{median} {figure}_fragments": f"{median:,} bytes, {words}"
            for median in MEDIANS_BYTES
            for figure, words in FRAGMENTS.items()
        }
        note = (
            "Stretches of neighbouring blocks, by FIEMAP (ReiserFS: by FIBMAP). 0: the driver tells neither."
        )
        return spread_table("Fragments a file", samples, columns, self.configurations(), note)


NOTES = (
    "All of a tree's work is done by one process in the guest: the original starts programs, which under "
    "emulation would cost more than what is measured.",
    "The disk is a file on the host: it has no seek, which ReiserFS and XFS were made to spare. A difference "
    "here is one of processor time and of the number of requests.",
)


def _ratios(samples: Samples, median: int) -> Table:
    """Mongo's own form: every figure as a multiple of the base's."""
    rows: list[list[Cell]] = []
    for name in (m for m in MODES if m != BASE):
        cells = [
            ratio("", samples.values(name, f"{median} {p}_s"), samples.values(BASE, f"{median} {p}_s"))
            for p in PHASES
        ]
        rows.append([name, *(cell[0].measured if cell else None for cell in cells)])
    title = f"Time as a multiple of ext2's, files of median {median:,} bytes"
    return Table(title, ["configuration", *PHASES], rows, "Below 1: faster than ext2.")


def _headlines(samples: Samples) -> list[Ratio]:
    found: list[Ratio] = []
    for name in ("reiserfs/ordered", "ext3/ordered", "ext4/ordered"):
        for phase in ("create", "read", "delete"):
            upper, lower = samples.values(name, f"100 {phase}_s"), samples.values(BASE, f"100 {phase}_s")
            title = f"time to {phase} files of median 100 bytes, {name.partition('/')[0]} / ext2"
            found += ratio(title, upper, lower)
    return found
