"""Damage that no parser sees: a changed byte in a verdict, a row that is gone.

Every row carries a digest over its columns. A state's digest covers its violations; a case's row holds the
sum of its states' digests, and `meta` the sum of the cases' digests, the *root*, so that a row which is
missing, or there twice, shows as one that was changed. run.json names the root once the run is finished, and
the digest of plan.json from the start, so that no file can be exchanged for that of another moment.

Against damage, not against somebody who forges: whoever can write the file can write its digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

DIGEST_BYTES = 16
_MODULUS = 1 << 8 * DIGEST_BYTES
NOTHING = "0" * (2 * DIGEST_BYTES)
"""The sum of no digests."""


def digest(*values: object) -> str:
    """Of the values and of their types. Values: what SQLite returns, and sequences of it."""
    return hashlib.blake2b(repr(values).encode(), digest_size=DIGEST_BYTES).hexdigest()


def digest_of_bytes(data: bytes) -> str:
    """Of a file's contents."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def moved(total: str, *, out: Iterable[str] = (), into: Iterable[str] = ()) -> str:
    """A sum of digests after some have left it and others have come in."""
    changed = int(total, 16) + sum(int(d, 16) for d in into) - sum(int(d, 16) for d in out)
    return f"{changed % _MODULUS:0{2 * DIGEST_BYTES}x}"


def state_digest(row: Sequence[object], violations: Sequence[Sequence[object]]) -> str:
    """Of a state's row (its name in place of the case's number) and the rows of its violations, in order."""
    return digest(tuple(row), tuple(map(tuple, violations)))
