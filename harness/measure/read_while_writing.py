"""read-while-writing: what a reader waits for while another process writes without pause."""

from __future__ import annotations

import struct

from harness.measure.comparison import Configuration, Sizes, ratio, scaled, spread_table
from harness.measure.rig import InGuest, Rig
from harness.measurements.results import Ratio, Results
from harness.measurements.samples import Sample, Samples

JOURNAL = "ext3/journal"
MODES = (JOURNAL, "ext3/ordered", "ext3/writeback", "ext4/journal", "ext4/ordered", "ext4/writeback")
BESIDE = "/mnt/beside"
PARTITION_MIB = 96  # of the ext2 beside it
LAST_MIB = 512  # of the file system that is written to
OTHERS = ("ext3/ordered", "ext3/writeback")
_JOURNAL_S, _LEAST_S = 7.0, 67.0
_SOURCE = (
    "A. Morton's test as told by D. Robbins in the Advanced filesystem implementor's guide, part 8 (IBM "
    "developerWorks, about 2001; Linux 2.4, a disk of that time): 7 s with ext3 data=journal, 67 to 93 s "
    "with its other modes and with other file systems, which is 9.6 to 13.3 times as long"
)
_REMARK = (
    "Then reader and writer shared one disk arm, and a read between writes cost a seek each way. Here the "
    "disk is held to 16 MiB a second but has no arm, and the kernel is twenty years younger: what is left "
    "of the effect is the queue of writes that a read finds before it."
)


class ReadWhileWriting(InGuest):
    """See the module. As in the original the file that is read lies on an ext2 file system on the same disk;
    one more lies on the file system that is written to.
    """

    name = "read-while-writing"
    summary = "time to read a 16 MiB file while another process writes without pause"
    repeats = _SOURCE
    modes = MODES
    rounds = 3
    disk_mib_s = 16
    warms_up = False  # the disk is what is waited for

    def sizes(self, scale: float) -> Sizes:
        return {"file_mib": 16, "writer_mib": 96, **scaled(scale, settle_s=4, reads=2)}

    def disk_mib(self, sizes: Sizes) -> int:
        return 1 + PARTITION_MIB + LAST_MIB

    def take(self, rig: Rig, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        _partition(rig)
        beside = Configuration.of("ext2/default").profile
        rig.make(beside, f"{rig.guest.device}1")
        rig.mount(beside.fstype, f"{rig.guest.device}1", beside.mount_options, BESIDE)
        try:
            with rig.fresh(configuration, f"{rig.guest.device}2") as root:
                files = {"beside": f"{BESIDE}/read", "same": f"{root}/read"}
                for path in files.values():
                    rig.shell(f"dd if=/dev/urandom of={path} bs=1M count={sizes['file_mib']} 2>&1")
                rig.drop_caches()
                answer = rig.script(
                    "read_while_writing",
                    {
                        "writer": f"{root}/written",
                        "writer_bytes": sizes["writer_mib"] << 20,
                        "readers": files,
                        "settle_s": sizes["settle_s"],
                        "reads": sizes["reads"],
                    },
                )
                rig.run(["rm", f"{root}/written"])  # or the unmount would write it
        finally:
            if rig.up:
                rig.run(["umount", BESIDE])
        values = {name: float(str(value)) for name, value in answer.items()}
        values["written_mib_a_second"] = values.pop("written_bytes_a_second") / (1 << 20)
        return Sample(configuration.name, number, values)

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        columns = {
            "beside_busy_s": "beside it, while writing, s",
            "same_busy_s": "on it, while writing, s",
            "beside_idle_s": "beside it, alone, s",
            "same_idle_s": "on it, alone, s",
            "written_mib_a_second": "written meanwhile, MiB/s",
        }
        note = (
            "beside it: the file lies on an ext2 file system on the same disk, as in the original. on it: "
            "on the file system that is written to. Written meanwhile: what reached the disk, journal and "
            "all."
        )
        note += f" The disk is held to {self.disk_mib_s} MiB a second, reads and writes together."
        table = spread_table("Seconds to read 16 MiB", samples, columns, self.configurations(), note)
        return Results(_ratios(samples), [table])


def _partition(rig: Rig) -> None:
    """Two partitions, the first for the ext2 beside it. An old table is written again: it is the same."""
    device = rig.guest.device
    rig.guest.put("/tmp/table", partition_table(PARTITION_MIB, LAST_MIB))  # noqa: S108 - of the guest
    rig.shell(f"dd if=/tmp/table of={device} conv=fsync 2>&1; blockdev --rereadpt {device}")


def partition_table(first_mib: int, last_mib: int) -> bytes:
    """A master boot record with two Linux partitions, of which the first starts at 1 MiB. The layout: 16
    bytes a partition from byte 446, its type in the fifth of them, start and length in sectors last.
    """
    start, size, rest = 2048, first_mib * 2048, last_mib * 2048
    entries = [struct.pack("<4xB3xII", 0x83, *where) for where in ((start, size), (start + size, rest))]
    return b"\0" * 446 + b"".join(entries) + b"\0" * 32 + b"\x55\xaa"


def _ratios(samples: Samples) -> list[Ratio]:
    found: list[Ratio] = []
    journal = samples.values(JOURNAL, "beside_busy_s")
    for name in OTHERS:
        found += ratio(
            f"time to read, {name} / {JOURNAL}",
            samples.values(name, "beside_busy_s"),
            journal,
            published=round(_LEAST_S / _JOURNAL_S, 1),
            source=_SOURCE,
            remark=_REMARK,
        )
    for name in ("ext4/ordered", "ext4/writeback"):
        busy = samples.values(name, "beside_busy_s")
        found += ratio(
            f"time to read, {name} / ext4/journal", busy, samples.values("ext4/journal", "beside_busy_s")
        )
    for name in MODES:
        busy, idle = samples.values(name, "beside_busy_s"), samples.values(name, "beside_idle_s")
        found += ratio(f"time to read, {name}, while writing / alone", busy, idle)
    return found
