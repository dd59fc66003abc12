"""The file system in which a workload under construction will run, decided as late as possible.

There are two directories, A and B, with two files in each, foo and bar. A name that no operation has needed
yet is *open*; the first operation that needs it to exist, or not to, decides how it was at the beginning, and
`setup` creates that. So every operation finds what it depends on, and nothing else exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.model import BLOCK_BYTES, Operation, OperationKind

DIRECTORIES = ("A", "B")
FILES = ("A/foo", "A/bar", "B/foo", "B/bar")
ATTRIBUTE = "user.a"

# A file of the setup: two blocks of data, a hole of two, and a tail that ends inside a block.
HEAD_BYTES = 2 * BLOCK_BYTES
TAIL_START = 4 * BLOCK_BYTES
TAIL_BYTES = 5000

K = OperationKind


class Invalid(Exception):
    """The operation cannot come after those before it."""


@dataclass(slots=True, eq=False)
class File:
    """A regular file; two names of one inode share one File. `attribute`: whether it has ATTRIBUTE; None
    while that is open.
    """

    size: int = 0
    hole: bool = False  # the hole of the setup is still there
    attribute: bool | None = False
    had_attribute: bool = False  # in the setup


class Directory:
    """A directory; the names in `World.now` say what is in it."""


class Symlink:
    """A symbolic link."""


Thing = File | Directory | Symlink


@dataclass(slots=True)
class World:
    """What each name is now: None where nothing exists, no entry where that is open."""

    now: dict[str, Thing | None] = field(default_factory=dict)
    _made: dict[str, Thing] = field(default_factory=dict)  # by the setup, in order

    @classmethod
    def empty(cls) -> World:
        """A fresh file system, nothing open."""
        return cls(dict.fromkeys((*DIRECTORIES, *FILES)))

    # --- asking ---

    def directory(self, path: str) -> None:
        """Require a directory of that name. Raises Invalid, as do the other methods of this section."""
        if path and path not in self.now:
            self.now[path] = self._made[path] = Directory()
        if path and not isinstance(self.now[path], Directory):
            raise Invalid(f"{path} is no directory")

    def absent(self, path: str) -> None:
        """Require that the name does not exist, and that its parent directory does."""
        self.directory(parent(path))
        if path not in self.now:
            self.now[path] = None
            for inner in FILES:
                if parent(inner) == path:
                    self.now[inner] = None
        if self.now[path] is not None:
            raise Invalid(f"{path} exists")

    def file(self, path: str) -> File:
        """Require a regular file of that name, and return it."""
        self.directory(parent(path))
        if path not in self.now:
            self.now[path] = self._made[path] = File(TAIL_START + TAIL_BYTES, hole=True, attribute=None)
        found = self.now[path]
        if not isinstance(found, File):
            raise Invalid(f"{path} is no file")
        return found

    def linked(self, path: str, other: str) -> None:
        """Require that both are names of one file."""
        self.directory(parent(other))
        fresh = path not in self.now and other not in self.now
        file = self.file(path)
        if fresh:
            self.now[other] = self._made[other] = file
        if self.now.get(other) is not file:
            raise Invalid(f"{path} and {other} are not names of one file")

    def with_attribute(self, path: str) -> File:
        """Require a file of that name which has ATTRIBUTE, and return it."""
        file = self.file(path)
        if file.attribute is None:
            file.attribute = file.had_attribute = True
        if not file.attribute:
            raise Invalid(f"{path} has no attribute")
        return file

    def inside(self, path: str) -> list[str]:
        """The names that exist below a directory; those that were open do not exist from now on."""
        self.directory(path)
        for inner in FILES:
            if parent(inner) == path:
                self.now.setdefault(inner, None)
        return [p for p, thing in self.now.items() if thing is not None and p.startswith(f"{path}/")]

    # --- changing ---

    def put(self, path: str, thing: Thing | None) -> None:
        self.now[path] = thing

    def move(self, path: str, target: str) -> None:
        """Move a name, with everything below it."""
        moved = [p for p in self.now if p == path or p.startswith(f"{path}/")]
        things = {target + p.removeprefix(path): self.now[p] for p in moved}
        self.now.update(dict.fromkeys(moved))
        self.now.update(things)

    def exchange(self, path: str, target: str) -> None:
        """Exchange two names, each with everything below it."""
        changed: dict[str, Thing | None] = {}
        for old, new in ((path, target), (target, path)):
            moved = [p for p in self.now if p == old or p.startswith(f"{old}/")]
            changed = dict.fromkeys(moved) | changed | {new + p.removeprefix(old): self.now[p] for p in moved}
        self.now.update(changed)

    # --- what must have been there ---

    def setup(self) -> list[Operation]:
        """The operations that create the beginning and make it durable; none if the beginning is empty."""
        operations: list[Operation] = []
        names: dict[int, str] = {}
        for path in sorted(self._made, key=lambda p: isinstance(self._made[p], File)):  # directories first
            thing = self._made[path]
            if not isinstance(thing, File):
                operations.append(Operation(K.MKDIR, path))
            elif id(thing) in names:
                operations.append(Operation(K.LINK, names[id(thing)], path))
            else:
                names[id(thing)] = path
                operations.append(Operation(K.CREATE, path))
                operations.append(Operation(K.WRITE, path, length=HEAD_BYTES))
                operations.append(Operation(K.WRITE, path, offset=TAIL_START, length=TAIL_BYTES))
                if thing.had_attribute:
                    operations.append(Operation(K.SETXATTR, path, name=ATTRIBUTE, value=b"old"))
        return [*operations, Operation(K.SYNC)] if operations else []


def parent(path: str) -> str:
    """The parent directory; the root is the empty path."""
    return path.rpartition("/")[0]
