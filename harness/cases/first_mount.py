"""Base images that a guest has a hand in: of file systems on a stack, and of those that write the same to
their disk at every mount.

Where a stack keeps the bytes of a file system, only the kernel knows: so a guest makes both.

XFS stamps the 2 MiB of its log that lie ahead of the head (xlog_clear_stale_blocks,
fs/xfs/xfs_log_recover.c). On a fresh image these are 513 blocks that a cut may lose, each on its own, and
that recovery reads: more states than can ever be visited, and none of them holds anything of the workload.
A second mount of an image that nothing has changed writes the same bytes to the same place, so there is
nothing left to lose.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harness.cases.recording import MKFS_ATTEMPTS, target_of
from harness.errors import GuestLost
from harness.filesystems.profiles import Profile
from harness.guests.session import Recorder, Session
from harness.host.packed import pack
from harness.model import SECTOR_BYTES, EntryFlag, LogEntry, Operation, OperationKind
from harness.writelog import read_log
from harness.writelog.events import times_of


def finish_base(session: Session, profile: Profile, base: Path, kept: Path) -> None:
    """Do in a guest what a base image that was just made still needs, to it and to `kept`. Raises as
    `Session.make` and `Session.record`.
    """
    if profile.stacked:
        part = base.with_suffix(".made")
        _make(session, profile, base, part)
        session.close()  # its disk has the old image open
        pack(part, kept)
        part.replace(base)
    elif profile.mounted_once:
        mount_once(session, profile, base, kept)


def _make(session: Session, profile: Profile, base: Path, made: Path) -> None:
    """A guest that is lost meanwhile, as on a busy host, is replaced."""
    for attempts_left in reversed(range(MKFS_ATTEMPTS)):
        try:
            session.make(target_of(profile, base, None), profile.making_script(), made)
            return
        except GuestLost:
            if not attempts_left:
                raise


def mount_once(session: Recorder, profile: Profile, base: Path, kept: Path) -> None:
    """Mount the base image in a guest and add to it, and to `kept`, what mount wrote before any operation. A
    kernel that tells no times leaves it as it is. Raises as `Session.record`.
    """
    bare = replace(profile, layer=None)
    events = session.record(target_of(bare, base, None), [Operation(OperationKind.SYNC)])
    log = read_log(session.log)
    times = times_of(log.entries, events)
    if times is None:
        return
    begun = min(mark.at for mark in times.marks if mark.text.startswith("begin "))
    part = base.with_suffix(".mounted")
    shutil.copyfile(base, part)
    add(part, session.log, (log.entries[w.entry] for w in times.writes if w.submitted < begun))
    pack(part, kept)
    part.replace(base)


def add(image: Path, log: Path, entries: Iterable[LogEntry]) -> None:
    """Write these entries of the log at `log` into an image, in this order."""
    with log.open("rb") as source, image.open("r+b") as device:
        for entry in entries:
            length = entry.sectors * SECTOR_BYTES
            source.seek(entry.data_offset)
            device.seek(entry.sector * SECTOR_BYTES)
            device.write(bytes(length) if EntryFlag.DISCARD in entry.flags else source.read(length))
