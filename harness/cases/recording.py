"""Recordings: a base image, the write log of a workload on it, and the history that the log's marks tell.

In a run directory: `cases/<fs>-<mode>/base.img.zst` (shared by the workloads of that mode), and
`cases/<fs>-<mode>/<workload>/log.zst` with `history.json`. Worked on uncompressed, in a scratch folder.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from harness.errors import LogDiffers, StoreError, WriteLogError
from harness.filesystems.profiles import Profile
from harness.guests.worker import Target, Worker
from harness.host.files import write_atomically
from harness.model import (
    Acknowledgement,
    CaseId,
    EntryFlag,
    History,
    HistoryStep,
    LogEntry,
    Operation,
    Workload,
)
from harness.oracles.pattern import poison
from harness.writelog import WriteLog, read_log

COPY_BYTES = 1 << 20
FRAME_HEADER_BYTES = 18  # at most; zstd.h, ZSTD_FRAMEHEADERSIZE_MAX

ATTEMPTS = 6
"""Recordings made before one whose log does not give the disk is an error. What is no matter of chance, as a
log device that is full, is an error at once.
"""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a case is judged on. `base` and `log` are uncompressed working copies."""

    case: CaseId
    profile: Profile
    workload: Workload
    base: Path
    log: Path
    write_log: WriteLog
    history: History

    def digest(self) -> str:
        """Of the write log: verdicts belong to one recording."""
        with self.log.open("rb") as f:
            return hashlib.file_digest(f, "blake2b").hexdigest()

    @property
    def target(self) -> Target:
        """What a worker shows to recover states of this recording."""
        return target_of(self.profile, self.base, self.log)


def target_of(profile: Profile, base: Path, log: Path | None) -> Target:
    """What is put on the disk for a mode."""
    return Target(profile.fstype, profile.mount_options, base, log, profile.second_offset)


def make_base(profile: Profile, kept: Path, scratch: Path) -> Path:
    """The image that recording begins with: poison everywhere, then mkfs. Kept compressed as `kept`.

    Poison, so that a block which no one has written shows when it turns up in a file.
    """
    image = scratch / f"{profile.filesystem}-{profile.mode}.base.img"
    if image.exists():
        return image
    if kept.exists():
        return unpack(kept, image)
    part = image.with_suffix(".part")
    with part.open("wb") as f:
        for chunk in poison(profile.size_bytes):
            f.write(chunk)
    profile.make_filesystem(part)
    pack(part, kept)
    part.rename(image)
    return image


def record(
    worker: Worker,
    profile: Profile,
    workload: Workload,
    case: CaseId,
    base: Path,
    kept: Path,
    scratch: Path,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Recording:
    """Run the workload in the worker's guest and keep its log and history in the folder `kept`.

    Raises WriteLogError where the log cannot be trusted; see also `Worker.record`.
    """
    target = target_of(profile, base, None)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            worker.record(target, workload.operations, on_progress)
            break
        except LogDiffers:  # without a journal a page may change while it is being written: by chance
            if attempt == ATTEMPTS:
                raise
    log = scratch / f"{case.filesystem}-{case.mode}.{workload.name}.log"
    with worker.log_device.open("rb") as source, log.open("wb") as copy:
        _copy_exactly(source, copy, read_log(worker.log_device).used_bytes)
    written = read_log(log)
    history = history_of(written.entries, workload.operations)
    pack(log, kept / "log.zst")
    shutil.copyfile(worker.directory / "console.txt", kept / "console.txt")
    write_atomically(
        kept / "history.json", msgspec.json.encode(history)
    )  # last: it says that the rest is there
    return Recording(case, profile, workload, base, log, written, history)


def load_recording(
    case: CaseId, profile: Profile, workload: Workload, cases: Path, scratch: Path
) -> Recording:
    """One that a run directory keeps; `cases` is its folder of that name. Raises StoreError."""
    folder = cases / f"{case.filesystem}-{case.mode}"
    kept = folder / case.workload
    try:
        history = msgspec.json.decode((kept / "history.json").read_bytes(), type=History)
        base = unpack(folder / "base.img.zst", scratch / f"{case.filesystem}-{case.mode}.base.img")
        log = unpack(kept / "log.zst", scratch / f"{case.filesystem}-{case.mode}.{case.workload}.log")
    except (OSError, msgspec.MsgspecError) as e:
        raise StoreError(
            f"the recording of {case} in {kept} cannot be read: {e}", "record it again: powercut run"
        ) from e
    return Recording(case, profile, workload, base, log, read_log(log), history)


def copy_recording(case: CaseId, source: Path, cases: Path) -> None:
    """Take over another run's recording of this case; its base image must have been taken over before.

    Raises StoreError where that run has none.
    """
    if not is_kept(case, source):
        raise StoreError(f"{source.parent} has no recording of {case}", "name a run that recorded this case")
    part = Path(f"{case.filesystem}-{case.mode}") / case.workload
    (cases / part).mkdir(parents=True, exist_ok=True)
    for name in ("log.zst", "console.txt", "history.json"):  # the last says that the rest is there
        shutil.copyfile(source / part / name, cases / part / name)


def is_kept(case: CaseId, cases: Path) -> bool:
    """Whether the run directory holds a whole recording of this case."""
    return (cases / f"{case.filesystem}-{case.mode}" / case.workload / "history.json").exists()


def history_of(entries: Sequence[LogEntry], operations: Sequence[Operation]) -> History:
    """The history that the marks `begin N`, `ack N` and, from applications, `app TEXT` tell.

    Raises WriteLogError where a mark is missing, doubled or out of order: positions would be wrong.
    """
    marks = [(e.index, e.mark) for e in entries if e.flags & EntryFlag.MARK]
    told = [(index, m) for index, text in marks if (m := re.fullmatch(r"(begin|ack) (\d+)", text))]
    expected = [(word, number) for number in range(len(operations)) for word in ("begin", "ack")]
    found = [(m[1], int(m[2])) for _, m in told]
    if found != expected:
        first = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(found))
        raise WriteLogError(
            f"the log's marks do not tell the history: {len(found)} marks for {len(operations)} operations, "
            f"the first difference at mark {first}",
            "the log is incomplete, or from another workload: record again",
        )
    positions = [index for index, _ in told]
    return History(
        tuple(
            HistoryStep(i, op, begin=positions[2 * i], ack=positions[2 * i + 1])
            for i, op in enumerate(operations)
        ),
        _acknowledgements(marks),
    )


def _acknowledgements(marks: Sequence[tuple[int, str]]) -> tuple[Acknowledgement, ...]:
    """Each belongs to the operation that was begun last."""
    found: list[Acknowledgement] = []
    operation = -1
    for index, text in marks:
        word, _, rest = text.partition(" ")
        if word == "begin":
            operation += 1
        elif word == "app":
            found.append(Acknowledgement(operation, rest, index))
    return tuple(found)


def pack(source: Path, kept: Path) -> None:
    """Compress into `kept`, which appears whole or not at all."""
    part = kept.with_suffix(".part")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as f, part.open("wb") as g:
        zstandard.ZstdCompressor(level=1).copy_stream(f, g, size=source.stat().st_size)
    part.rename(kept)


def unpack(kept: Path, image: Path) -> Path:
    """Inverse of `pack`; nothing where `image` is there already. Raises StoreError for a damaged file."""
    if image.exists():
        return image
    part = image.with_suffix(".part")
    try:
        with kept.open("rb") as f, part.open("wb") as g:
            size = zstandard.frame_content_size(f.read(FRAME_HEADER_BYTES))
            f.seek(0)
            _, written = zstandard.ZstdDecompressor().copy_stream(f, g)
        if size not in (-1, written):  # -1: it does not say
            raise zstandard.ZstdError(f"it ends after {written} of {size} bytes")
    except zstandard.ZstdError as e:
        part.unlink()
        raise StoreError(f"{kept} is damaged: {e}", "record the case again: powercut run") from e
    part.rename(image)
    return image


def _copy_exactly(source: BinaryIO, copy: BinaryIO, length: int) -> None:
    left = length
    while left:
        chunk = source.read(min(left, COPY_BYTES))
        if not chunk:
            raise WriteLogError(f"the log device ends {left} bytes before its last entry does")
        copy.write(chunk)
        left -= len(chunk)
