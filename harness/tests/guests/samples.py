"""Samples of every message, for `vms/protocol/vectors.json`.

After a change of the protocol: `python -m harness.tests.guests.samples` writes the file anew; the
Rust test (`cargo test -p powercut-protocol`) then tells whether both sides still agree.
"""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from harness.guests import wire
from harness.model import (
    Call,
    ChangeKind,
    DifferenceKind,
    ExtentKind,
    FileKind,
    HoldOrder,
    OperationFlag,
    OperationKind,
)

VECTORS = Path(__file__).resolve().parents[3] / "vms" / "protocol" / "vectors.json"

UNIONS: dict[str, type[msgspec.Struct]] = {
    base.__name__: base for base in (wire.AgentRequest, wire.AgentReply, wire.DiskRequest, wire.DiskReply)
}
SENT = tuple(kind for kind in OperationKind if kind is not OperationKind.CRASH)
"""Operations that a guest is asked for: after a crash it is another guest."""
_PLAIN: dict[type[inspect.Type], list[Any]] = {
    inspect.BoolType: [False, True],
    inspect.NoneType: [None],
    inspect.StrType: ["", "dir/ü", "7f" * 16],
    inspect.BytesType: [b"", b"\x00\xff" * 200],
}


def _values(of: inspect.Type) -> list[Any]:
    """Values of a field: the least, the largest, and each word and variant that there is."""
    match of:
        case inspect.EnumType():
            return list(SENT if of.cls is OperationKind else of.cls)
        case inspect.IntType():
            return [of.ge or 0, 300, 1 << 63] if of.le is None else [of.ge or 0, min(300, of.le), of.le]
        case inspect.ListType():
            return [[], _values(of.item_type)]
        case inspect.TupleType():
            return list(zip(*map(_values, of.item_types), strict=True))
        case inspect.UnionType():
            return [value for each in of.types for value in _values(each)]
        case inspect.StructType():
            fields = {field.name: _values(field.type) for field in of.fields}
            count = max(map(len, fields.values()), default=1)
            return [
                of.cls(**{f: v[n] if n < len(v) else v[0] for f, v in fields.items()}) for n in range(count)
            ]
    return _PLAIN[type(of)]


SAMPLES: list[tuple[str, str, msgspec.Struct]] = [
    (f"{kind.__name__} {number}", union, message)
    for union, base in UNIONS.items()
    for kind in base.__subclasses__()
    for number, message in enumerate(_values(inspect.type_info(kind)))
]


WORDS: list[type[enum.StrEnum]] = [
    Call,
    ChangeKind,
    DifferenceKind,
    FileKind,
    HoldOrder,
    OperationFlag,
    OperationKind,
    ExtentKind,
]


def vectors() -> dict[str, Any]:
    """What the file holds. `json` is for readers; bytes are in Base64 there."""
    return {
        "protocol": wire.PROTOCOL_VERSION,
        "limits": wire.LIMITS,
        "words": {
            words.__name__: [word.value for word in (SENT if words is OperationKind else words)]
            for words in WORDS
        },
        "messages": [
            {
                "name": name,
                "type": kind,
                "hex": wire.encode(message).hex(),
                "json": json.loads(msgspec.json.encode(message)),
            }
            for name, kind, message in SAMPLES
        ],
    }


def write_vectors() -> None:
    VECTORS.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_vectors()
