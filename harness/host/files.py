"""Files replaced as a whole, and what goes into them: JSON, and text that may hold foreign bytes.

Names and messages of guests come as bytes of any kind; in a `str` those that are no UTF-8 stand as lone
surrogates (PEP 383). What is written here is valid UTF-8: such a byte is written out as `\\udcff`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from harness.host.text import printable

T = TypeVar("T")


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, says that the host's disk is full, or what this user may
    have of it; SQLite has no number for that.
    """
    if error is None:
        return False
    is_told = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in str(error)
    return is_told or is_full(error.__cause__)


@contextlib.contextmanager
def replacement(path: Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` at the end, on the platter; nothing of it where an exception leaves the
    block.

    Its name until then ends in `.part`, and is of this process and thread alone: what a kill leaves of it is
    never taken for the file.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextlib.contextmanager
def memory_file(name: str) -> Iterator[Path]:
    """An empty file in memory, by a path that this process and its children may open while the block lasts. A
    file of a disk costs more to make and remove than a short program takes.
    """
    descriptor = os.memfd_create(name)
    try:
        yield Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    finally:
        os.close(descriptor)


def copy_atomically(source: Path, copy: Path) -> None:
    """Copy a file so that `copy` is whole or not there. Raises OSError."""
    with source.open("rb") as file, replacement(copy) as part:
        shutil.copyfileobj(file, part)


def remembered(ask: Callable[[Path], T]) -> Callable[[Path], T]:
    """A question about a file's contents whose answer is known as long as the file has the same time and
    size. The question raises OSError, too, if there is no such file; what it raises is not remembered.
    """

    @functools.lru_cache(maxsize=4096)
    def asked(path: Path, *_: int) -> T:
        return ask(path)

    @functools.wraps(ask)
    def of(path: Path) -> T:
        seen = path.stat()
        return asked(path, seen.st_mtime_ns, seen.st_size, seen.st_ino)

    return of


@remembered
def file_hash(path: Path) -> str:
    """SHA-256 of a file's contents, in hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    """The names in it are on the platter."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes | str, mode: int = 0o644, *, durable: bool = True) -> None:
    """Replace a file so that a reader, or a crash, sees the old contents or the new. A kill may leave
    a hidden file beside it, an exception does not. `durable`: False for what can be made again, and may be
    lost in a crash of this host.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_again(path: Path, content: str, mode: int = 0o644) -> None:
    """Write a file that can be made again at any time, unless it is as it should be."""
    data = content.encode("utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        if path.read_bytes() == data and path.stat().st_mode & 0o777 == mode:
            return
    write_atomically(path, data, mode, durable=False)


def not_made(path: Path, error: OSError) -> str:
    """In words that the host refused to make a file or folder, and what is in the way."""
    there, link = _on_the_way(path)
    if link:
        return f"{path} cannot be made: {link} is a link that leads nowhere"
    # where all of the path above is there, as in /proc, ENOENT says that nothing is made there
    if error.errno == errno.ENOENT:
        return f"{path} cannot be made: {there} takes no new files"
    return f"{path} cannot be made: {error.strerror or error} ({there})"


def refuses(path: Path) -> str:
    """In words why no file or folder can be made at this path, with the folders above it, or why what is
    there cannot be written to; empty if all is well. Nothing changes.
    """
    if holds(path.exists):
        return "" if os.access(path, os.W_OK) else f"{path} cannot be written to"
    there, link = _on_the_way(path)
    try:
        if link:
            raise FileNotFoundError(errno.ENOENT, "", str(link))
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as e:
        return not_made(path, e)


def elsewhere(name: str) -> Path:
    """Where this user may write a file or folder of that name."""
    return Path(tempfile.gettempdir(), name)


def _on_the_way(path: Path) -> tuple[Path, Path | None]:
    """What there is of a path; and the link on it that leads nowhere, if there is one."""
    above = [path.absolute(), *path.absolute().parents]
    there = next(p for p in above if holds(p.is_symlink) or holds(p.exists))
    return there, next(filter(_leads_nowhere, above), None)


def _leads_nowhere(path: Path) -> bool:
    """Whether it is a link to what is not there; where a link leads that may not be followed is not known."""
    try:
        return path.is_symlink() and not path.exists()
    except OSError:
        return False


def holds(ask: Callable[[], bool]) -> bool:
    """What `exists`, `is_dir` or another question of a Path answers; no where the host refuses to tell, as
    behind a folder that this user may not enter. Those of Python 3.11 raise PermissionError there.
    """
    try:
        return ask()
    except OSError:
        return False


def json_or_none(path: Path, kind: type[T]) -> T | None:
    """What a file of JSON says; None if there is none, or none that can be read, as the power cut of a host
    leaves it. For what can be made again, and decides no verdict.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError, RecursionError):  # ValueError: msgspec's own errors, text that is no UTF-8
        return None


def json_bytes(value: object) -> bytes:
    """JSON of dataclasses, structs and plain values; foreign bytes in texts are written out."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_valid_value(msgspec.to_builtins(value)))


def json_line(value: object) -> str:
    """The same as text that may be printed: what controls a terminal is written as `\\u009b`."""
    return _shown(json_bytes(value).decode())


def json_text(value: object) -> str:
    """The same for people, on several lines."""
    return _shown(msgspec.json.format(json_bytes(value), indent=2).decode()) + "\n"


def _shown(text: str) -> str:
    """JSON text, in which all that `harness.host.text.printable` would escape is in strings."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if printable(c) == c else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    return "\\u007f" if c == "\x7f" else json.dumps(c)[1:-1]  # which leaves DEL as it is


def toml_string(text: str) -> str:
    """A basic string of TOML with this text, on one line: what `harness.host.text.printable` would escape is
    a number. One of JSON will not do: it may have pairs of surrogates, and leaves DEL as it is.
    """
    quoted = json.dumps(valid_text(text), ensure_ascii=False)
    return "".join(c if printable(c) == c else f"\\U{ord(c):08x}" for c in quoted)


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
