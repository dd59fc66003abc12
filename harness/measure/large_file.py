"""large-file: one large file in records of 16 KiB, with the default mount options and with the fast ones."""

from __future__ import annotations

import json
from collections.abc import Sequence

from harness.errors import GuestError
from harness.measure.comparison import Configuration, Sizes, ratio, scaled, spread_table
from harness.measure.rig import InGuest, Rig
from harness.measurements.results import Ratio, Results
from harness.measurements.samples import Sample, Samples

FAST_EXT3 = "noatime,data=writeback,barrier=0"
FAST = f"{FAST_EXT3},journal_checksum"
PHASES = ("write", "rewrite", "read", "reread")
RECORD = "16k"


class LargeFile(InGuest):
    name = "large-file"
    summary = "write, rewrite, read, reread one large file in records of 16 KiB"
    repeats = (
        "iozone's table (`iozone -e -i 0 -i 1 -r 16k`; iozone.org) for ext3 and ext4 with default options "
        f"and with `{FAST}`, the options that tuning guides of about 2008 to 2012 advise. The programs "
        "differ: fio does the same reads and writes"
    )
    rounds = 3
    flushes = True

    def configurations(self) -> Sequence[Configuration]:
        return [
            Configuration.of("ext3/ordered", called="ext3 default", options=""),
            Configuration.of("ext3/ordered", called="ext3 fast", options=FAST_EXT3),
            Configuration.of("ext4/ordered", called="ext4 default", options=""),
            Configuration.of("ext4/performance", called="ext4 fast", options=FAST),
        ]

    def sizes(self, scale: float) -> Sizes:
        return scaled(scale, file_mib=128)

    def disk_mib(self, sizes: Sizes) -> int:
        return 512 + 2 * sizes["file_mib"]

    def take(self, rig: Rig, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        values = {}
        with rig.fresh(configuration) as root:
            for phase in PHASES:
                if phase != "reread":  # which shall find it in the cache
                    rig.drop_caches()
                said = rig.run(job(phase, f"{root}/large", sizes["file_mib"]))
                values[f"{phase}_kib_s"] = throughput(said, phase)
        return Sample(configuration.name, number, values)

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        columns = {f"{phase}_kib_s": f"{phase}, KiB/s" for phase in PHASES}
        note = (
            "write and rewrite last until fsync(2) has returned. read: from the disk. reread: from the cache."
        )
        table = spread_table("Throughput", samples, columns, self.configurations(), note)
        return Results(_ratios(samples), [table], notes=NOTES)


NOTES = (
    "No one figure was published that this could stand beside: iozone's tables are of one machine each. "
    "What is to be seen is whether the fast options pay, and for which phase.",
    f"ext3 fast is mounted with `{FAST_EXT3}`: the driver refuses journal_checksum for ext3 (`Mount "
    "option(s) incompatible with ext3`).",
    "Reading is touched by noatime alone, and that once a file: how far the ratios of read and reread are "
    "from 1 is how far from 1 noise can carry the others.",
    "The file is smaller than the guest's memory, so the cache is emptied before each phase but reread; "
    "iozone is run with a file larger than memory instead.",
)


def job(phase: str, path: str, size_mib: int) -> list[str]:
    """The fio line of a phase. fsync is part of a phase that writes, as with `iozone -e`."""
    writes = phase in ("write", "rewrite")
    return [
        "fio",
        f"--name={phase}",
        f"--filename={path}",
        f"--rw={'write' if writes else 'read'}",
        f"--bs={RECORD}",
        f"--size={size_mib}m",
        "--ioengine=psync",
        "--invalidate=0",
        "--thread",
        *(["--end_fsync=1"] if writes else []),
        *(["--overwrite=1"] if phase == "rewrite" else []),
        "--output-format=json",
    ]


def throughput(said: str, phase: str) -> float:
    """KiB/s of the one job in fio's JSON. Raises GuestError for what is none, and for a job that failed."""
    direction = "write" if phase in ("write", "rewrite") else "read"
    try:
        (job,) = json.loads(said[said.index("{") :])["jobs"]
        failed, rate, done = job["error"], job[direction]["bw_bytes"] / 1024, job[direction]["io_bytes"]
    except (ValueError, KeyError, TypeError) as e:
        raise GuestError(f"fio printed no result of one job: {said[-300:]!r}") from e
    if failed or not done or not rate:
        raise GuestError(f"fio did not {phase}: error {failed}, {done} bytes")
    return float(rate)


def _ratios(samples: Samples) -> list[Ratio]:
    found: list[Ratio] = []
    for filesystem in ("ext3", "ext4"):
        for phase in PHASES:
            fast = samples.values(f"{filesystem} fast", f"{phase}_kib_s")
            default = samples.values(f"{filesystem} default", f"{phase}_kib_s")
            found += ratio(f"throughput, {phase}, {filesystem} fast / default", fast, default)
    return found
