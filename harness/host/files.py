"""Files replaced as a whole, and what goes into them: JSON, and text that may hold foreign bytes.

Names and messages of guests come as bytes of any kind; in a `str` those that are no UTF-8 stand as lone
surrogates (PEP 383). What is written here is valid UTF-8: such a byte is written out as `\\udcff`.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec


def write_atomically(path: Path, content: bytes | str, mode: int = 0o644) -> None:
    """Replace a file so that a reader, or a crash, sees the old contents or the new."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.chmod(mode)
    temporary.replace(path)


def json_bytes(value: object) -> bytes:
    """JSON of dataclasses, structs and plain values; foreign bytes in texts are written out."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_valid_value(msgspec.to_builtins(value)))


def json_text(value: object) -> str:
    """The same for people."""
    return msgspec.json.format(json_bytes(value), indent=2).decode() + "\n"


def valid_text(text: str) -> str:
    """Text that is valid UTF-8: what came from undecodable bytes is written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _valid_value(value: object) -> object:
    """JSON values with every text made valid."""
    match value:
        case str():
            return valid_text(value)
        case list() | tuple():
            return [_valid_value(item) for item in value]
        case dict():
            return {_valid_value(key): _valid_value(item) for key, item in value.items()}
    return value
