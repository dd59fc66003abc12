"""Programs made of calls, for tests: as the guest would note them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harness.rules.calls import STORE, Acked, Left, NotedCall, Notes
from harness.rules.rules import Rule, Rules

ROOT = 1
OWNER = (0o644, 0, 0)


def rules(*, names: bool = False, order: bool = False) -> Rules:
    """Those of a mode. `order`: of names, and a truncation cuts at once."""
    return Rules(Rule(names, "a test"), Rule(order, "a test"), Rule(order, "a test"))


@dataclass(slots=True)
class Calls:
    """Makes notes, a call after the other. Inodes count from 2."""

    made: list[NotedCall] = field(default_factory=list)
    acks: list[Acked] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    inodes: dict[str, int] = field(default_factory=lambda: {".": ROOT})

    def _call(self, word: str, text: str, **fields: object) -> Calls:
        self.made.append(replace(NotedCall(word, 7, owner=OWNER, text=text), **fields))  # type: ignore[arg-type]  # its fields
        return self

    def create(self, path: str) -> Calls:
        return self._make("create", path)

    def mkdir(self, path: str) -> Calls:
        return self._make("mkdir", path)

    def _make(self, word: str, path: str) -> Calls:
        self.inodes[path] = 1 + max([ROOT, *(c.inode for c in self.made)])
        return self._call(word, f"{word}({path})", inode=self.inodes[path], path=path)

    def write(
        self,
        path: str,
        data: bytes,
        offset: int = 0,
        *,
        durable: str = "",
        owner: tuple[int, int, int] = OWNER,
    ) -> Calls:
        at = len(self.data)
        self.data += data
        where = {"offset": offset, "length": len(data), "at": at, "durable": durable, "owner": owner}
        return self._call(
            "write", f"write({path}, {len(data)} at {offset})", inode=self.inodes[path], **where
        )

    def size(self, path: str, length: int, *, owner: tuple[int, int, int] = OWNER) -> Calls:
        where = {"length": length, "owner": owner}
        return self._call("size", f"ftruncate({path}, {length})", inode=self.inodes[path], **where)

    def empty(self, path: str, *, owner: tuple[int, int, int] = OWNER) -> Calls:
        """An open(2) with O_TRUNC."""
        return self._call("size", f"openat({path}, truncate)", inode=self.inodes[path], owner=owner)

    def store(self, path: str, data: bytes) -> Calls:
        """Into a mapping; seen at the next call."""
        at = len(self.data)
        self.data += data
        where = {"length": len(data), "at": at, "owner": (0, 0, 0)}
        return self._call("write", f"{STORE} of {path} ({len(data)} at 0)", inode=self.inodes[path], **where)

    def reserve(self, path: str, length: int) -> Calls:
        """A fallocate(2) with FALLOC_FL_KEEP_SIZE alone, which zeroes nothing."""
        return self._call("zero", f"fallocate({path}, keep-size, {length} at 0)", inode=self.inodes[path])

    def zero(self, path: str, offset: int, length: int) -> Calls:
        where = {"offset": offset, "length": length}
        return self._call("zero", f"fallocate({path}, zero)", inode=self.inodes[path], **where)

    def chmod(self, path: str, mode: int) -> Calls:
        return self._call("attributes", f"chmod({path})", inode=self.inodes[path], owner=(mode, 0, 0))

    def xattr(self, path: str, name: str, value: bytes | None) -> Calls:
        """Set an extended attribute; None removes it."""
        at = len(self.data)
        self.data += value or b""
        where = {"inode": self.inodes[path], "other": name, "at": at, "length": len(value or b"")}
        word = "removexattr" if value is None else "setxattr"
        return self._call(word, f"{word}({path}, {name})", **where)

    def link(self, path: str, other: str) -> Calls:
        self.inodes[other] = self.inodes[path]
        return self._call("link", f"link({path}, {other})", inode=self.inodes[path], path=path, other=other)

    def exchange(self, path: str, other: str) -> Calls:
        self.inodes[path], self.inodes[other] = self.inodes[other], self.inodes[path]
        return self._call("exchange", f"exchange({path}, {other})", path=path, other=other)

    def rename(self, old: str, new: str) -> Calls:
        self.inodes[new] = self.inodes.pop(old)
        return self._call("rename", f"rename({old}, {new})", path=old, other=new)

    def unlink(self, path: str) -> Calls:
        self.inodes.pop(path)
        return self._call("unlink", f"unlink({path})", path=path)

    def fsync(self, path: str) -> Calls:
        return self._call("fsync", f"fsync({path})", inode=self.inodes[path])

    def fdatasync(self, path: str) -> Calls:
        return self._call("fdatasync", f"fdatasync({path})", inode=self.inodes[path])

    def msync(self, path: str, offset: int, length: int) -> Calls:
        where = {"inode": self.inodes[path], "offset": offset, "length": length}
        return self._call("fdatasync", f"msync({path}, {length} at {offset})", **where)

    def sync(self) -> Calls:
        return self._call("sync", "sync()")

    def ack(self, text: str) -> Calls:
        self.acks.append(Acked(len(self.made), text))
        return self

    def notes(self, left: Sequence[Left] = ()) -> Notes:
        return Notes(ROOT, (0o755, 0, 0), tuple(self.made), tuple(self.acks), tuple(left), bytes(self.data))
