"""A run directory as one file, to be attached to a report or kept by a CI job: `NAME.tar.zst`.

Such a file comes from somewhere else: it is data, as a run directory is (`harness.trust`). Unpacking makes
plain files and folders below one new folder, and nothing else: no links, no devices, no name that leads
elsewhere, no file twice, and no more bytes or files than the limits say. Its headers are ustar's (POSIX
1003.1), read one by one: the formats with names and numbers of any length are not.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import zstandard

from harness.errors import EnvironmentLacks, StoreError, UsageError
from harness.host.cache import alone
from harness.host.files import file_hash, refuses, replacement
from harness.host.folders import OwnedFolder
from harness.host.packed import COPY_BYTES, SPARE_BYTES
from harness.model import CaseId
from harness.store.database import Database, reading
from harness.store.directory import discard, read_info
from harness.store.layout import DATABASE, LOCK, PACKED, RUN, UNPACKING, CaseLayout, RunLayout, runs
from harness.store.lock import locked

MAX_BYTES = 32 << 30
MAX_FILES = 200_000
_MAX_DEPTH = 8
_MAGIC = b"\x28\xb5\x2f\xfd"  # of a zstd frame, RFC 8878
_USTAR = b"ustar"  # of a header, POSIX 1003.1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_BLOCK = tarfile.BLOCKSIZE


def is_bundle(path: Path) -> bool:
    """Whether a file may be one that `bundle` made."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def holds_a_run(path: Path) -> bool:
    """Whether a file is one that `bundle` made, and no other packed file."""
    if not is_bundle(path):
        return False
    try:
        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as packed:
            return _USTAR in packed.read(_BLOCK)
    except zstandard.ZstdError:
        return False


def bundle(run: Path, file: Path, case: CaseId | None = None) -> None:
    """Pack a run directory into `file`, which appears whole or not at all. `case`: with the recording of that
    case alone. Raises StoreError for what is no run directory, RunLocked while the run is written to,
    UsageError for a case without a recording. What `unbundle` would refuse is refused here.
    """
    run = run.resolve()
    read_info(run)
    if not _NAME.fullmatch(run.name):
        raise UsageError(f"{run} cannot be packed under that name", "rename it: letters, digits and . _ + -")
    layout = RunLayout(run)
    if case is not None and not _has_recording(layout.case(case)):
        raise UsageError(f"the run {run.name} has no recording of {case}", "leave out the case")
    with (
        _unchanged(layout),
        OwnedFolder("powercut-pack-") as folder,
        replacement(file) as part,
        zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(part, closefd=False) as packed,
    ):
        files = {DATABASE: _copied(layout.database, folder.path / DATABASE)}
        files |= {str(path.relative_to(run)): path for path in _files(layout, case)}
        if case is not None:
            files[PACKED] = folder.path / PACKED
            files[PACKED].write_text(f"{case}\n")
        _need_room(run, [*files.values()])
        for name, path in files.items():
            _add(packed, f"{run.name}/{name}", path)
        packed.write(bytes(2 * _BLOCK))


def _has_recording(kept: CaseLayout) -> bool:
    """Where a mode is only rules, it is that of calls."""
    return kept.history.is_file() or kept.calls.is_file()


def _unchanged(layout: RunLayout) -> contextlib.AbstractContextManager[None]:
    """The run's lock, but where it can only be read: nobody changes such a run."""
    if refuses(layout.lock):
        return contextlib.nullcontext()
    return locked(layout.lock, layout.path, "powercut pack")


def _need_room(run: Path, files: Sequence[Path]) -> None:
    """Raises StoreError for more than `unbundle` takes."""
    size = sum(path.stat().st_size for path in files)
    if len(files) > MAX_FILES or size > MAX_BYTES:
        raise StoreError(
            f"{run} has {len(files):,} files of {size >> 30} GiB, more than a package holds: "
            f"{MAX_FILES:,} files of {MAX_BYTES >> 30} GiB",
            "pack one case of it",
        )


def _copied(database: Path, copy: Path) -> Path:
    """A copy of the database as of now, whatever its journal holds. Raises StoreError if it is damaged."""
    with (
        contextlib.closing(sqlite3.connect(reading(database), uri=True)) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    Database.open(copy).close()  # nothing is packed that nobody can open
    return copy


def _files(layout: RunLayout, case: CaseId | None) -> Iterator[Path]:
    """The files to pack beside the database, run.json first. Links are not followed, and left out."""
    run = layout.path
    for path in sorted(run.rglob("*"), key=lambda p: (p.name != RUN, p)):
        inside = path.relative_to(run)
        left_out = inside.parts[0] in (LOCK, layout.scratch.name) or inside.parts[0].startswith(DATABASE)
        if (
            path.is_symlink()
            or not path.is_file()
            or left_out
            or (case is not None and path == layout.packed)
        ):
            continue
        if case is None or inside.parts[0] != layout.cases.name or _is_of(path, layout, case):
            yield path


def _is_of(path: Path, layout: RunLayout, case: CaseId) -> bool:
    shared = layout.base(case.filesystem, case.mode)
    return path == shared or path.is_relative_to(shared.parent / case.workload)


def _add(packed: BinaryIO, name: str, path: Path) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = path.stat().st_size, int(path.stat().st_mtime), 0o644
    if not _is_plain(info):
        raise StoreError(
            f"{name!r} cannot be packed: no run has a file of such a name", "remove or rename it"
        )
    try:
        packed.write(info.tobuf(tarfile.USTAR_FORMAT))
    except ValueError as e:
        raise StoreError(
            f"{path} cannot be packed: {e}",
            "there is room for a name of up to 100 bytes in folders of up to 155, and for up to 8 GiB",
        ) from e
    left = info.size
    with path.open("rb") as file:
        while left and (chunk := file.read(min(left, COPY_BYTES))):
            packed.write(chunk)
            left -= len(chunk)
    if left:
        raise StoreError(f"{path} became shorter while it was packed", "pack the run again")
    packed.write(bytes(-info.size % _BLOCK))


def packed_case(layout: RunLayout) -> CaseId | None:
    """The one case whose recording a package has; None for a whole run. Total over what that file holds."""
    try:
        return CaseId.parse(layout.packed.read_text(encoding="utf-8", errors="replace")[:1000].strip())
    except (OSError, ValueError):
        return None


def unpacked(reports: Path, name: str, sha256: str) -> Path:
    """Where the run `name` of a file with this hash is unpacked."""
    return runs(reports) / f"{name}.{sha256[:12]}"


def unbundle(file: Path, reports: Path) -> Path:
    """Unpack a file that `bundle` made into `reports/runs`; returns the run directory, which is there already
    if that file was unpacked before. Raises StoreError for what is none, or breaks the limits.
    """
    parent = runs(reports)
    parent.mkdir(parents=True, exist_ok=True)
    sha = file_hash(file)
    for known in sorted(parent.glob(f"*.{sha[:12]}")):
        if (known / RUN).is_file():
            return known.resolve()
        discard(known)  # what is left of one that somebody deleted
    scratch = Path(tempfile.mkdtemp(prefix=UNPACKING, dir=parent))
    try:
        with (
            alone(scratch),  # so that `powercut gc` leaves it, as long as this process lives
            file.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as packed,
        ):
            name = _unpack(packed, scratch, file)
        if not (scratch / name / RUN).is_file():
            raise StoreError(f"{file} holds no run: it has no {RUN}", "name a file that powercut pack made")
        final = unpacked(reports, name, sha)
        try:
            (scratch / name).rename(final)
        except OSError:
            if not (final / RUN).is_file():  # else another process was faster
                raise
        return final.resolve()
    except (zstandard.ZstdError, tarfile.TarError, UnicodeDecodeError) as e:
        raise StoreError(f"{file} is damaged: {e}", "pack the run again") from e
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpack(packed: BinaryIO, folder: Path, file: Path) -> str:
    """Unpack into a new folder; returns the one name at the top of it."""
    room = min(MAX_BYTES, shutil.disk_usage(folder).free - SPARE_BYTES)
    top = ""
    for count in range(MAX_FILES + 1):
        header = _exactly(packed, _BLOCK)
        if not any(header):
            if not top:
                raise StoreError(f"{file} holds nothing", "name a file that powercut pack made")
            _exactly(packed, _BLOCK)
            if packed.read(1):  # and so to the end of the frame, where its checksum is
                raise tarfile.ReadError("something stands behind its end")
            return top
        info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
        parts = _parts(info, file)
        if count == MAX_FILES or (top and parts[0] != top):
            raise StoreError(
                f"{file} holds more than one run directory", "name a file that powercut pack made"
            )
        top = parts[0]
        room -= info.size
        if room < 0:
            raise EnvironmentLacks(
                f"{file} unpacks to more than there is room for, or than {MAX_BYTES >> 30} GiB",
                "free some space; a file from somebody else may be made to fill the disk",
            )
        _write(packed, folder.joinpath(*parts), info.size)
    raise AssertionError("not reached")


def _parts(info: tarfile.TarInfo, file: Path) -> tuple[str, ...]:
    """The parts of a member's name. Raises StoreError for all but plain files below one folder."""
    if not _is_plain(info):
        raise StoreError(
            f"{file} holds {info.name!r}, which is no file of a run directory",
            "it comes from somebody who means no good, or is no file that powercut pack made",
        )
    return tuple(info.name.split("/"))


def _is_plain(info: tarfile.TarInfo) -> bool:
    """Whether a member is a plain file below one folder, with a name that is shown as it is."""
    parts = tuple(info.name.split("/"))
    return (
        info.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        and info.size >= 0
        and 1 < len(parts) <= _MAX_DEPTH
        and _NAME.fullmatch(parts[0]) is not None
        and PurePosixPath(info.name).parts == parts
        and ".." not in parts
        and info.name.isprintable()
    )


def _write(packed: BinaryIO, path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:  # x: nothing that is there is written over
        left = size
        while left:
            chunk = _exactly(packed, min(left, COPY_BYTES))
            file.write(chunk)
            left -= len(chunk)
    _exactly(packed, -size % _BLOCK)


def _exactly(packed: BinaryIO, size: int) -> bytes:
    """Raises TarError where there is less."""
    data = bytearray()
    while len(data) < size:
        chunk = packed.read(size - len(data))
        if not chunk:
            raise tarfile.ReadError(f"it ends {size - len(data)} bytes too early")
        data += chunk
    return bytes(data)
