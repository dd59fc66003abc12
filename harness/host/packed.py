"""Files in compressed form: images and logs as one zstd frame (RFC 8878) with its content's size and
checksum, and kernel modules as distributions pack them.

A packed file appears whole or not at all, and what it unpacks to is bounded before a byte is written: a frame
of 205 KB can hold 6 GiB of zeros.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import zlib
from pathlib import Path
from typing import BinaryIO

import zstandard

from harness.errors import EnvironmentLacks, StoreError, UsageError
from harness.host.files import replacement

COPY_BYTES = 1 << 20
FRAME_HEADER_BYTES = 18  # at most; zstd.h, ZSTD_FRAMEHEADERSIZE_MAX
SPARE_BYTES = 64 << 20
"""What unpacking leaves of the host's disk."""


MODULE_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")


def read_module(path: Path) -> bytes:
    """A kernel module's bytes, unpacked if its name says that it is packed, as distributions do it. Raises
    UsageError for a damaged one.
    """
    data = path.read_bytes()
    try:
        match path.suffix:
            case ".xz":
                return lzma.decompress(data)
            case ".zst":
                unpacker = zstandard.ZstdDecompressor().decompressobj()
                unpacked = unpacker.decompress(data)
                if not unpacker.eof:
                    raise UsageError(f"{path} cannot be unpacked: it ends early", "copy it again")
                return unpacked
            case ".gz":
                return gzip.decompress(data)
    except (lzma.LZMAError, zstandard.ZstdError, OSError, EOFError, zlib.error) as e:
        raise UsageError(f"{path} cannot be unpacked: {e}", "copy it again") from e
    return data


def pack(source: Path, kept: Path) -> None:
    """Compress into `kept`, which appears whole, and on the platter, or not at all."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    compressor = zstandard.ZstdCompressor(level=1, write_checksum=True, write_content_size=True)
    with source.open("rb") as file, replacement(kept) as part:
        compressor.copy_stream(file, part, size=os.fstat(file.fileno()).st_size)


def unpack(kept: Path, image: Path, limit_bytes: int) -> Path:
    """Inverse of `pack`; nothing where `image` is there already.

    Raises StoreError for a damaged file and for one that would unpack to more than `limit_bytes`, OSError for
    one that cannot be read.
    """
    if image.exists():
        return image
    try:
        with kept.open("rb") as file:
            size = _content_size(file.read(FRAME_HEADER_BYTES))
            _need_room(kept, image, size, limit_bytes)
            file.seek(0)
            with replacement(image) as part:
                _copy(file, part, size)
    except (zstandard.ZstdError, MemoryError) as e:
        raise StoreError(f"{kept} is damaged: {e}", "record the case again") from e
    return image


def _content_size(header: bytes) -> int:
    """Raises ZstdError for what is no frame of ours."""
    frame = zstandard.get_frame_parameters(header)
    if not frame.has_checksum or frame.content_size in (
        zstandard.CONTENTSIZE_UNKNOWN,
        zstandard.CONTENTSIZE_ERROR,
    ):
        raise zstandard.ZstdError("it names no size and no checksum of what is in it")
    return frame.content_size


def _need_room(kept: Path, image: Path, size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise StoreError(
            f"{kept} would unpack to {size:,} bytes, and there can be {limit_bytes:,} at most",
            "record the case again; a file from somebody else may be made to fill the disk",
        )
    free = shutil.disk_usage(image.parent).free
    if size + SPARE_BYTES > free:
        raise EnvironmentLacks(
            f"{image.parent} has {free >> 20} MiB free; {kept.name} needs {size >> 20} MiB", "free some space"
        )


def _copy(file: BinaryIO, part: BinaryIO, size: int) -> None:
    """Piece by piece, zeros as holes; raises ZstdError where there is less than the header said, or the
    checksum differs.
    """
    reader = zstandard.ZstdDecompressor().stream_reader(file)
    written, zeros = 0, bytes(COPY_BYTES)
    while chunk := reader.read(COPY_BYTES):
        if chunk == zeros[: len(chunk)]:
            part.seek(len(chunk), os.SEEK_CUR)
        else:
            part.write(chunk)
        written += len(chunk)
    part.truncate(written)
    if written != size:
        raise zstandard.ZstdError(f"it ends after {written} of {size} bytes")
