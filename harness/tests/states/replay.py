"""The contents of a crash state, computed naively: the reference for tests of the disk."""

from __future__ import annotations

from harness.errors import WriteLogError
from harness.model import SECTOR_BYTES, CrashState, EntryFlag
from harness.writelog.log import WriteLog, changes


def replay(base: bytes, log: WriteLog, state: CrashState) -> bytes:
    """The contents of the device in `state` of `log`, which began as `base`. Reads the log's file, and holds
    the whole device in memory.

    Raises WriteLogError for a state, or an entry, that does not fit the log or the device.
    """
    if state.prefix > log.entry_count:
        raise WriteLogError(f"state {state} of {log.path}, which has {log.entry_count} entries")
    device = bytearray(base)
    with log.path.open("rb") as file:
        for entry in log.entries[: state.prefix]:
            if entry.index in state.dropped or not changes(entry):
                continue
            sectors = entry.sectors
            if entry.index == state.prefix - 1 and state.torn_sectors is not None:
                sectors = min(sectors, state.torn_sectors)
            start, length = entry.sector * SECTOR_BYTES, sectors * SECTOR_BYTES
            if start + entry.sectors * SECTOR_BYTES > len(device):
                raise WriteLogError(
                    f"{log.path}: entry {entry.index} ends at sector {entry.sector + entry.sectors}, "
                    f"the device at {len(device) // SECTOR_BYTES}"
                )
            if EntryFlag.DISCARD in entry.flags:
                device[start : start + length] = bytes(length)
            else:
                file.seek(entry.data_offset)
                device[start : start + length] = file.read(length)
    return bytes(device)
