"""Digests against damage that no parser notices: a changed byte in a verdict, a missing row.

Every row carries a digest over its columns. A state's digest covers its violations; a case's row holds the
sum of its states' digests, and `meta` the sum of the cases' digests, the *root*, so that a missing or
duplicate row is detected like a changed one. run.json holds the digest of plan.json from the start, and the
root once the run is finished, so that no file can be replaced by one from another time.

Digests protect against damage, not forgery: whoever can write the file can write its digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

DIGEST_BYTES = 16
_MODULUS = 1 << 8 * DIGEST_BYTES
NOTHING = "0" * (2 * DIGEST_BYTES)
"""The sum of no digests."""


def digest(*values: object) -> str:
    """The digest of values and their types. Values: what SQLite returns, and sequences of it."""
    return hashlib.blake2b(repr(values).encode(), digest_size=DIGEST_BYTES).hexdigest()


def digest_of_bytes(data: bytes) -> str:
    """The digest of a file's contents."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def moved(total: str, *, out: Iterable[str] = (), into: Iterable[str] = ()) -> str:
    """A sum of digests after removing `out` and adding `into`."""
    changed = int(total, 16) + sum(int(d, 16) for d in into) - sum(int(d, 16) for d in out)
    return f"{changed % _MODULUS:0{2 * DIGEST_BYTES}x}"


def state_digest(row: Sequence[object], violations: Sequence[Sequence[object]]) -> str:
    """The digest of a state's row (with the case's name, not its number) and its violations, in order."""
    return digest(tuple(row), tuple(map(tuple, violations)))
