"""What `powercut log ls` says of an entry beyond its place: the operation of a mark, the names of a write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.blocks import describe, named_log, written_paths
from harness.blocks.fields import BlockName
from harness.cases.recording import read_history
from harness.errors import StoreError, UsageError
from harness.filesystems.profiles import select_profiles
from harness.host.folders import OwnedFolder
from harness.host.packed import unpack
from harness.host.text import one_line
from harness.model import EntryFlag, LogEntry, Operation
from harness.store.layout import CaseLayout
from harness.writelog import WriteLog
from harness.writelog.log import ONE_DEVICE, Devices

_BASE_BYTES_MAX = 16 << 30


@dataclass(frozen=True, slots=True)
class Texts:
    """`names`: of each write. `operations`: those of the history beside the log, if there is one. `devices`:
    those of the log. `earlier`: what was done before it begins.
    """

    names: Mapping[int, Sequence[BlockName]] = field(default_factory=dict)
    operations: Sequence[Operation] = ()
    devices: Devices = ONE_DEVICE
    earlier: str = ""

    def line(self, entry: LogEntry) -> str:
        """`begin 7  fsync f`, `sector 328 + 8  inode table of group 0 ...`; of two devices, with which it is:
        `second device, sector 131080 + 8`, in sectors of the whole disk.
        """
        if EntryFlag.MARK in entry.flags:
            operation = self._operation(entry)
            said = operation or ("(powercut-ack)" if entry.mark.startswith("app ") else "")
            return one_line(f"{entry.mark}  {said}" if said else entry.mark)
        place, what = f"sector {entry.sector} + {entry.sectors}", self.what(entry)
        if device := self.devices.name(entry.sector):
            place = f"{device}, {place}" if entry.sectors else device
        return one_line(f"{place}  {what}" if what else place)

    def what(self, entry: LogEntry) -> str:
        """What a write wrote; empty where nothing of it has a name."""
        names = self.names.get(entry.index, ())
        return describe(names) if any(n.named for n in names) else ""

    def row(self, entry: LogEntry) -> dict[str, object]:
        """What a JSON object says of it."""
        names = [
            {k: v for k, v in msgspec.to_builtins(name).items() if v is not None}
            for name in self.names.get(entry.index, ())
            if name.named
        ]
        device = {} if entry.mark else {"device": self.devices.of(entry.sector)}
        return {"operation": self._operation(entry), "blocks": names, **device}

    def _operation(self, entry: LogEntry) -> str:
        found = re.fullmatch(r"(?:begin|ack) (\d{1,9})", entry.mark, re.ASCII)
        number = int(found[1]) if found else len(self.operations)
        return str(self.operations[number]) if number < len(self.operations) else ""


def texts_of(file: Path, log: WriteLog, contents: Path, order: Iterable[int]) -> Texts:
    """The texts for a log, with what lies beside `file` if that is in a run directory: the base image and the
    history. `contents`: the plain log. Raises StoreError for an image that is damaged.
    """
    operations: Sequence[Operation] = ()
    earlier = ""
    layout = CaseLayout(file.parent.parent / "base.img.zst", file.parent)
    if (history := layout.history).is_file() and not history.is_symlink():
        told = read_history(history)
        operations = [step.operation for step in told.steps]
        earlier = told.earlier.text if told.earlier else ""
    base = next((b for b in (layout.own_base, layout.base) if b.is_file() and not b.is_symlink()), None)
    with OwnedFolder("powercut-log-") as folder:
        image = folder.path / "base"
        if base is not None and file.suffix == ".zst":
            unpack(base, image, _BASE_BYTES_MAX)
        names = named_log(
            image,
            log,
            contents,
            second_bytes=_second_bytes(file.parent.parent.name),
            paths=written_paths(operations),
            order=order,
        ).writes
    return Texts(names, operations, log.devices, earlier)


def _second_bytes(mode: str) -> int:
    """Where the second device of a mode begins, by the name of its folder, `ext4-external-journal`; 0 for one
    without, or of a mode that is not known here.
    """
    try:
        (profile,) = select_profiles([mode.replace("-", "/", 1)])
    except (UsageError, StoreError, ValueError):
        return 0
    return profile.second_offset if profile.second else 0


def blkparse_lines(entries: Iterable[LogEntry], times: Mapping[int, str], texts: Texts) -> Iterator[str]:
    """Lines as blkparse(1) prints them, by time: Q for submitted, C for completed, m for a mark. `times`:
    `submitted..completed`, as numbers of events.
    """
    events: list[tuple[int, str, LogEntry]] = []
    for entry in entries:
        submitted, _, completed = times.get(entry.index, "").partition("..")
        if not submitted:
            continue
        events.append((int(submitted.rpartition("|")[2]), "m" if entry.mark else "Q", entry))
        if completed:
            events.append((int(completed), "C", entry))
    for number, (at, action, entry) in enumerate(sorted(events, key=lambda e: e[0]), 1):
        number_of = texts.devices.numbers[texts.devices.of(entry.sector)] or "254,0"
        head = f"{number_of}    0 {number:8} {0:5}.{at:09} {0:5}"
        if action == "m":
            yield f"{head}  m   N {texts.line(entry)}"
        else:
            what = texts.what(entry) if action == "Q" else "0"
            place = f" {entry.sector} + {entry.sectors}" if entry.sectors else ""
            yield one_line(f"{head}  {action} {_rwbs(entry):>3}{place} [{what or '?'}]")


def _rwbs(entry: LogEntry) -> str:
    """The letters of blk_fill_rwbs (kernel/trace/blktrace.c), as far as a log knows them."""
    letters = "F" if EntryFlag.FLUSH in entry.flags else ""
    if entry.sectors:
        letters += "D" if EntryFlag.DISCARD in entry.flags else "W"
    else:
        letters += "N" if not letters else ""
    letters += "F" if EntryFlag.FUA in entry.flags else ""
    return letters + ("M" if EntryFlag.METADATA in entry.flags else "")
