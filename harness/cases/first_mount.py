"""Base images that a guest has a hand in: of file systems on a stack, of those that write the same to
their disk at every mount, and of disks that somebody has.

Where a stack keeps the bytes of a file system, only the kernel knows: so a guest makes both.

On a disk that somebody has, the kernel under test recovers what is left to recover and makes the folder in
which operations will run. What fsck or the kernel finds wrong with it by then, no power cut has done.

XFS stamps the 2 MiB of its log that lie ahead of the head (xlog_clear_stale_blocks,
fs/xfs/xfs_log_recover.c). On a fresh image these are 513 blocks that a cut may lose, each on its own, and
that recovery reads: more states than can ever be visited, and none of them holds anything of the workload.
A second mount of an image that nothing has changed writes the same bytes to the same place, so there is
nothing left to lose.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harness.cases.recording import MKFS_ATTEMPTS, target_of
from harness.errors import GuestLost, UsageError
from harness.filesystems.profile import Profile
from harness.filesystems.stacks import MEMBER
from harness.guests.session import Recorder, Session
from harness.host.packed import pack
from harness.model import SECTOR_BYTES, EntryFlag, FsckClass, LogEntry, Operation, OperationKind
from harness.oracles.endings import any_of, complaints
from harness.writelog import read_log
from harness.writelog.events import times_of


def finish_base(session: Session, profile: Profile, base: Path, kept: Path) -> str:
    """Do in a guest what a base image that was just made still needs, to it and to `kept`. Returns what is to
    be said of a disk that somebody has. Raises as `Session.make` and `Session.record`, and UsageError for
    such a disk on which nothing can be judged.
    """
    said = _make_folder(session, profile, base, kept) if profile.folder else ""
    if profile.is_made_in_guest:
        part = base.with_suffix(".made")
        _make(session, profile, base, part)
        session.close()  # its disk has the old image open
        pack(part, kept)
        part.replace(base)
    if profile.mounted_once and not profile.stacked:
        mount_once(session, profile, base, kept)
    return f"{said}{_outside(session, profile, base)}" if profile.folder else ""


_REFUSED, _IS_THERE = 2, 3
_MOUNTED_AT = "/mnt"


def _make_folder(session: Session, profile: Profile, base: Path, kept: Path) -> str:
    """Have the kernel under test recover the disk and make the folder."""
    options = f"-o {shlex.quote(profile.mount_options)}" if profile.mount_options else ""
    folder = f"{_MOUNTED_AT}/{profile.folder}"
    mount = f"mount -t {profile.fstype} {options} {MEMBER} {_MOUNTED_AT}"
    script = (
        f"{mount} || {{ dmesg | tail -n 4; exit {_REFUSED}; }}\n"
        f"if [ -e {folder} ]; then umount {_MOUNTED_AT}; exit {_IS_THERE}; fi\n"
        f"mkdir {folder} && umount {_MOUNTED_AT} && dmesg\n"
    )
    part = base.with_suffix(".made")
    bare = replace(target_of(replace(profile, layer=None), base, None), first="true")
    exit_code, output = session.change(bare, script, part)
    session.close()  # its disk has the old image open
    if exit_code == _IS_THERE:
        raise UsageError(
            f"the disk has a folder {profile.folder} already: operations of the workload would run in it",
            "rename it, on a copy of the disk",
        )
    if exit_code:
        raise UsageError(
            f"the kernel under test does not mount the disk as {profile.name}: {output.strip()}",
            "name a mode that this disk has, or another kernel",
        )
    _need_sound(profile, part, output)
    pack(part, kept)
    part.replace(base)
    recovered = any_of(profile.console.recovered)
    is_recovered = any(recovered.search(line) for line in output.splitlines()) if recovered else False
    return "it was not unmounted cleanly, and this kernel recovered it first; " if is_recovered else ""


def _need_sound(profile: Profile, image: Path, log: str) -> None:
    """Raises UsageError for a disk of which fsck or the kernel complain before any crash."""
    if found := complaints(any_of(profile.console.errors), log.splitlines()):
        raise UsageError(
            f"the kernel complains of the disk before any crash: {next(iter(found.values()))}",
            "repair it, on a copy",
        )
    fsck = profile.check_filesystem(image) if profile.fsck else None
    if fsck and fsck.classified is not FsckClass.CLEAN:
        assert profile.fsck  # noqa: S101 - as above; tells mypy
        what = fsck.complaint or fsck.output.strip()[-300:]
        raise UsageError(
            f"{profile.fsck.program} finds fault with the disk before any crash: {what}",
            f"repair it, on a copy, with {profile.fsck.program}",
        )


def _outside(session: Session, profile: Profile, base: Path) -> str:
    seen = session.remember(target_of(profile, base, None))
    if seen is None:
        return ""
    names = "all" if seen.compared == seen.names else f"{seen.compared:,}, drawn,"
    mib = seen.bytes_read / (1 << 20)
    return (
        f"{seen.names:,} names outside the folder {profile.folder}, of which {names} are compared after each "
        f"recovery, with the contents of {seen.files_read:,} of {seen.files:,} files ({mib:.0f} MiB)"
    )


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
