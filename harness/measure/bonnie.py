"""bonnie: bonnie++ on eight file systems."""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import GuestError
from harness.measure.comparison import Configuration, Sizes, ratio, scaled, spread_table
from harness.measure.rig import InGuest, Rig
from harness.measurements.results import Ratio, Results
from harness.measurements.samples import Sample, Samples

MODES = {
    "ext2": "ext2/default",
    "ext3": "ext3/ordered",
    "ext4": "ext4/ordered",
    "XFS": "xfs/default",
    "ReiserFS": "reiserfs/ordered",
    "btrfs": "btrfs/default",
    "F2FS": "f2fs/posix",
    "JFS": "jfs/default",
}
FORMAT = "1.98"
FIELDS = 50
TOO_SHORT = "+"
"""What bonnie++ prints for the rate of work that took less than half a second: it would mean nothing."""

RATES = {
    9: "per character out, KiB/s",
    11: "block out, KiB/s",
    13: "rewrite, KiB/s",
    15: "per character in, KiB/s",
    17: "block in, KiB/s",
    19: "seeks/s",
    26: "sequential create/s",
    28: "sequential stat/s",
    30: "sequential delete/s",
    32: "random create/s",
    34: "random stat/s",
    36: "random delete/s",
}
"""Number of the field in the CSV line, and what it is (bon_csv2txt(1)). The percentage of the processor that
it took stands in the next field.
"""
_IN_OUT = (9, 11, 13, 15, 17, 19)


class Bonnie(InGuest):
    name = "bonnie"
    summary = "bonnie++ on ext2, ext3, ext4, XFS, ReiserFS, btrfs, F2FS and JFS"
    repeats = (
        "the tables of bonnie++ (R. Coker) in which file systems have been held against each other since "
        "about 2000. Each is of one machine, and no ratio in them is the one that others found too, so "
        "none stands beside these"
    )
    rounds = 2
    memory_mib = 192
    warms_up = False  # one round takes long enough to be warm

    def configurations(self) -> Sequence[Configuration]:
        return [Configuration.of(mode, called=name) for name, mode in MODES.items()]

    def sizes(self, scale: float) -> Sizes:
        return {
            **scaled(scale, file_mib=384, per_character_mib=1, seeks=4000),
            "files": max(1, round(8 * scale)) << 10,
        }

    def disk_mib(self, sizes: Sizes) -> int:
        return 1024 + 2 * sizes["file_mib"]

    def take(self, rig: Rig, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        with rig.fresh(configuration) as root:
            rig.drop_caches()
            said = rig.run(line(root, configuration.name, sizes))
        return Sample(configuration.name, number, parse(said), {"csv": csv_line(said)})

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        rows = self.configurations()
        in_out = {str(field): RATES[field] for field in _IN_OUT}
        files = {str(field): words for field, words in RATES.items() if field not in _IN_OUT}
        note = "A gap: bonnie++ gives no rate for work that took less than half a second (it prints `+++++`)."
        processor = {
            f"{field} cpu": words.replace(", KiB/s", "").removesuffix("/s") for field, words in RATES.items()
        }
        tables = [
            spread_table("Sequential output and input, random seeks", samples, in_out, rows, note),
            spread_table("Creating, looking at and deleting empty files", samples, files, rows, note),
            spread_table("Percentage of the processor", samples, processor, rows),
        ]
        return Results(_ratios(samples), tables, notes=NOTES)


NOTES = (
    "At scale 1 the guest has 192 MiB of memory and the file twice as much, as bonnie++'s manual asks for.",
    "Nothing is fsynced between the steps: a file system that writes later leaves its writing to the next "
    "step.",
    "ext2 and ext3 are both by ext4's driver, and made with the defaults of today's mke2fs, dir_index "
    "among them.",
    "ext2 is slow at random create alone, which follows a deletion: without a journal ext4's driver passes "
    "over every inode that was deleted shortly before (fs/ext4/ialloc.c, find_inode_bit), which fits; it "
    "was not looked into further.",
)


def line(root: str, label: str, sizes: Sizes) -> list[str]:
    """bonnie++ for a file system mounted at `root`: quiet, so that the CSV line stands alone."""
    return [
        "bonnie++",
        *("-d", root),
        *("-u", "0:0"),
        *("-m", label),
        *("-s", f"{sizes['file_mib']}M:8k:{sizes['seeks']}:1"),
        *("-r", "0"),
        f"-f{sizes['per_character_mib']}",
        *("-n", str(sizes["files"] >> 10)),
        "-q",
    ]


def csv_line(said: str) -> str:
    """The line with the results. Raises GuestError where there is none of the known form."""
    found = [text for text in said.splitlines() if text.startswith(f"{FORMAT},")]
    if len(found) != 1 or len(found[0].split(",")) != FIELDS:
        raise GuestError(f"bonnie++ printed no line of {FIELDS} fields in format {FORMAT}: {said[-300:]!r}")
    return found[0]


def parse(said: str) -> dict[str, float]:
    """Rates by the number of their field, percentages as `N cpu`; without those that mean nothing."""
    fields = csv_line(said).split(",")
    values = {}
    for field in RATES:
        rate, processor = fields[field], fields[field + 1]
        if rate and not rate.startswith(TOO_SHORT):
            values[str(field)] = float(rate)
        if processor and not processor.startswith(TOO_SHORT):
            values[f"{field} cpu"] = float(processor)
    return values


def _ratios(samples: Samples) -> list[Ratio]:
    found: list[Ratio] = []
    for name in (n for n in MODES if n != "ext2"):
        for field in (11, 26, 32):
            rates = samples.values(name, str(field)), samples.values("ext2", str(field))
            found += ratio(f"{RATES[field].partition(',')[0].removesuffix('/s')}, {name} / ext2", *rates)
    return found
