"""What a litmus program asks of the tree that came back: a predicate, as data.

A question is no promise. It names the trees that the author of an application would like to rely on; whether
a mode promises that, its contract says.
"""

from __future__ import annotations

import msgspec


class Bytes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Bytes `start` to `end` of a file (`end` left out: to its end), and which operations may have written
    them. The file has to reach `end`.

    `of`: numbers of operations, from 0. `zeros`: zeros count as well. `unit`: in so many bytes at a time all
    come from one of these; 0: each byte may come from another.
    """

    start: int = 0
    end: int | None = None
    of: list[int] = []
    zeros: bool = False
    unit: int = 0

    def __str__(self) -> str:
        sources = [f"operation {n}" for n in self.of] + ["zeros"] * self.zeros
        where = f"bytes {self.start} to {self.end}" if self.end is not None else "all bytes"
        whole = f", the same in each {self.unit} bytes" if self.unit and len(sources) > 1 else ""
        return f"{where} from {' or '.join(sources) or 'nowhere'}{whole}"


class Look(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one name is to look; what is left out may be anything. `there = false`: there is no such name.

    `kind`: `file`, `directory`, `symlink`. `sizes`: in bytes, any of these. `bytes`: where the contents come
    from. `mode`: permission bits. `owner`: user and group. `links`: names of the inode. `same_as`: another
    name of the same inode. `xattrs`: extended attributes that are there with these values; `lacks_xattrs`:
    those that are not. `target`: of a symbolic link. `allocated`: bytes that the file's blocks hold at least.
    """

    there: bool = True
    kind: str = ""
    sizes: list[int] = []
    bytes: list[Bytes] = []
    mode: int | None = None
    owner: tuple[int, int] | None = None
    links: int | None = None
    same_as: str = ""
    xattrs: dict[str, str] = {}
    lacks_xattrs: list[str] = []
    target: str = ""
    allocated: int = 0

    def __str__(self) -> str:
        if not self.there:
            return "is not there"
        parts = [
            f"is a {self.kind}" if self.kind else "",
            f"has {' or '.join(map(str, self.sizes))} bytes" if self.sizes else "",
            *(f"has {part}" for part in self.bytes),
            f"has the permissions {self.mode:o}" if self.mode is not None else "",
            f"belongs to {self.owner[0]}:{self.owner[1]}" if self.owner else "",
            f"has {self.links} names" if self.links is not None else "",
            f"is the same file as {self.same_as}" if self.same_as else "",
            *(f"has {name}={value}" for name, value in self.xattrs.items()),
            *(f"lacks {name}" for name in self.lacks_xattrs),
            f"leads to {self.target}" if self.target else "",
            f"has {self.allocated} bytes of blocks" if self.allocated else "",
        ]
        return " and ".join(filter(None, parts)) or "is there"


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a document says of a question. `by`: POSIX, a page of the manual, or a file of the kernel's
    documentation. `promises`: whether it promises the answer yes. `modes`: of which it speaks; none: of all.
    """

    by: str
    promises: bool
    says: str
    modes: list[str] = []


class PlantedEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A name of a planted answer. `contents`: pieces of a file in order, each its length and the number of
    the operation whose data it holds, or -1 for zeros. `inode`: names with the same number are one file; 0:
    a file of its own.
    """

    kind: str = "file"
    contents: list[tuple[int, int]] = []
    mode: int | None = None
    owner: tuple[int, int] = (0, 0)
    inode: int = 0
    xattrs: dict[str, str] = {}
    target: str = ""
    allocated: int | None = None


Answer = dict[str, PlantedEntry]


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is asked of every crash state behind the setup.

    `group`: of the table. `asks`: the question in words, which yes and no answer. `setup`: so many operations
    make what the question begins with. `after`: the question is put once so many operations have returned;
    left out: from the end of the setup on. `until`: and as long as no more than so many have begun. `holds`:
    alternatives, each a table of names and how they look; the answer is yes where one of them fits.
    `documented`: what documents say. `kept`, `broken`: planted answers, whole trees, to which the answer is
    yes and no. They test the predicate; and a mode promises the answer yes if its contract refuses every tree
    of `broken`.
    """

    group: str
    asks: str
    setup: int = 0
    after: int | None = None
    until: int | None = None
    holds: list[dict[str, Look]]
    documented: list[Statement] = []
    kept: list[Answer]
    broken: list[Answer]

    @property
    def first(self) -> int:
        """How many operations have returned when the question is put first."""
        return self.setup if self.after is None else self.after

    def is_put(self, begun: int, acked: int) -> bool:
        """Whether the question is put where so many operations had begun and returned."""
        return acked >= self.first and (self.until is None or begun <= self.until)

    @property
    def wanted(self) -> str:
        """The alternatives in words."""
        said = [
            ", ".join(f"{name or '.'} {look}" for name, look in alternative.items())
            for alternative in self.holds
        ]
        return "; or ".join(said)
