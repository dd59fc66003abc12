"""Data that identifies its writer and its place: the host's side of `vms/protocol/src/pattern.rs`.

Both sides are tested against `vms/protocol/pattern_vectors.json`. A word is eight bytes, little-endian:
bits 0..16 check, 16..32 writer (the index of the operation; 0xffff for poison), 32..64 place (file
offset / 8; for poison the number of the 4 KiB device block).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

from harness.oracles.timeline import ZERO, moved_by, writer_of

POISON = 0xFFFF
WORD_BYTES = 8
POISON_BLOCK_BYTES = 4096
_CHUNK_BLOCKS = 256
_U64 = (1 << 64) - 1


def word(writer: int, place: int) -> int:
    """The word that `writer` writes at `place`, in words of eight bytes, modulo 2**32."""
    body = (place & 0xFFFFFFFF) << 32 | writer << 16
    return body | _check(body)


def _check(body: int) -> int:
    """splitmix64 (Steele, Lea, Flood 2014), folded to 16 bits."""
    z = (body + 0x9E3779B97F4A7C15) & _U64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _U64
    z ^= z >> 31
    z ^= z >> 32
    return (z ^ (z >> 16)) & 0xFFFF


def fill(writer: int, offset: int, length: int) -> bytes:
    """The bytes that `writer` writes at file offsets `offset` to `offset + length`."""
    first = offset // WORD_BYTES
    last = (offset + length + WORD_BYTES - 1) // WORD_BYTES
    words = [word(writer, place) for place in range(first, last)]
    skip = offset - first * WORD_BYTES
    return struct.pack(f"<{len(words)}Q", *words)[skip : skip + length]


def writer_in(part: bytes) -> int | None:
    """Whose word these first bytes of one may be; None where they are too few to tell, or a whole word."""
    return int.from_bytes(part[2:4], "little") if _WRITER_END <= len(part) < WORD_BYTES else None


def begins(part: bytes, writer: int, places: range) -> bool:
    """Whether these are the first bytes of a word of `writer` at one of those places."""
    if writer_in(part) != writer:
        return False
    step = 1 << 8 * (len(part) - 4)  # places that agree in the bytes that are there
    first = places.start + (int.from_bytes(part[4:], "little") - places.start) % step
    return any(
        word(writer, p).to_bytes(8, "little").startswith(part) for p in range(first, places.stop, step)
    )


def begins_poison(part: bytes) -> bool:
    """Whether these may be the first bytes of a word of poison, of one of the first blocks of a device."""
    return begins(part, POISON, range(_POISONED))


def may_be_poison(part: bytes) -> bool:
    """Whether a word of poison begins with these three bytes: one short of naming a writer. Fewer tell
    nothing, as any byte begins some word of poison.
    """
    return len(part) == _MAY_TELL and part in _poison_begins()


@functools.cache
def _poison_begins() -> frozenset[bytes]:
    words = (word(POISON, place) for place in range(_POISONED))
    return frozenset(w.to_bytes(WORD_BYTES, "little")[:_MAY_TELL] for w in words)


_MAY_TELL = 3
_WRITER_END = 4
_POISONED = 1 << 16


def data_of(origin: int, start: int, length: int) -> bytes:
    """What bytes of this origin hold at `start`."""
    if origin == ZERO:
        return bytes(length)
    return fill(writer_of(origin), start - moved_by(origin), length)


def poison(device_bytes: int) -> Iterator[bytes]:
    """Chunks, in order, that fill a device before mkfs. Raises ValueError unless `device_bytes` is a
    multiple of 4096.
    """
    if device_bytes % POISON_BLOCK_BYTES:
        raise ValueError(f"device size {device_bytes} is no multiple of {POISON_BLOCK_BYTES}")
    blocks = device_bytes // POISON_BLOCK_BYTES
    words_in_block = POISON_BLOCK_BYTES // WORD_BYTES
    for first in range(0, blocks, _CHUNK_BLOCKS):
        yield b"".join(
            struct.pack("<Q", word(POISON, block)) * words_in_block
            for block in range(first, min(first + _CHUNK_BLOCKS, blocks))
        )
