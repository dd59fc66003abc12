"""ext2, ext3 and ext4: what a block is follows from the superblock, the group descriptors and the journal.

From Documentation/filesystems/ext4 (super.rst, group_descr.rst, inodes.rst, ifork.rst, directory.rst,
orphan.rst). Little-endian.

The format has no magic number in bitmaps, inode tables and directories, so what they are follows from where
they are; whose a block is follows from the extent trees of all inodes that the image or the log holds, at
home or as a copy in the journal.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.blocks import jbd2
from harness.blocks.fields import BlockName, Image, Kind, Names, Write, blocks, le, several, shown_name

_SUPER_AT, _SUPER_BYTES, _MAGIC = 1024, 1024, 0xEF53
_RO_SPARSE, _INCOMPAT_64BIT, _INCOMPAT_META_BG, _COMPAT_SPARSE2 = 0x1, 0x80, 0x10, 0x200
_EXTENTS_FLAG, _EXTENT_MAGIC, _UNWRITTEN = 0x80000, 0xF30A, 32768
_XATTR_MAGIC, _ORPHAN_MAGIC, _TAIL_TYPE = 0xEA020000, 0x0B10CA04, 0xDE
_JOURNAL = 8
_SPECIAL = {1: "bad blocks", 2: "the root directory", 7: "resize", 8: "the journal", 11: "lost+found"}
_S_IFMT, _S_IFDIR, _S_IFREG = 0xF000, 0x4000, 0x8000
_MAX_GROUPS, _MAX_RUN, _MAX_DEPTH = 1 << 16, 1 << 20, 5
_MAX_TABLE_BLOCKS = 1 << 18
"""Blocks of inode tables that are read, 4 million inodes: a damaged superblock may speak of any number."""
_DIRECT = 12


@dataclass(frozen=True, slots=True)
class _Layout:
    block: int
    blocks: int
    first: int
    per_group: int
    inodes_per_group: int
    inode_bytes: int
    descriptor_bytes: int
    reserved: int
    copied: tuple[int, ...] | None
    """Groups with a copy of the superblock; None: see `has_super`."""
    sparse: bool
    behind_super: int | None
    """How many blocks of group descriptors stand behind each superblock; None: all of them."""
    journal: int

    @property
    def groups(self) -> int:
        return min(-(-(self.blocks - self.first) // self.per_group), _MAX_GROUPS)

    @property
    def per_descriptors(self) -> int:
        """Groups that a block of descriptors describes."""
        return max(self.block // self.descriptor_bytes, 1)

    def has_super(self, group: int) -> bool:
        """sparse_super: groups 0, 1 and the powers of 3, 5 and 7 have a superblock; sparse_super2: group 0
        and up to two others. (ext4_bg_has_super)
        """
        if self.copied is not None:
            return group == 0 or group in self.copied
        return group <= 1 or not self.sparse or any(_is_power(group, base) for base in (3, 5, 7))

    def descriptors_at(self, number: int) -> int:
        """Where a block of descriptors stands: with meta_bg, in the first group that it describes.
        (ext4's descriptor_loc)
        """
        if self.behind_super is None or number < self.behind_super:
            return self.first + 1 + number
        group = number * self.per_descriptors
        return self.first + group * self.per_group + self.has_super(group)


@dataclass(frozen=True, slots=True)
class _Owner:
    """Of a block, from an entry of the log on: block `logical` of the file `inode`; -1 for a block of its
    map, -2 for extended attributes.
    """

    entry: int
    inode: int
    logical: int
    mode: int


@dataclass(slots=True)
class _Journal:
    """Where the journal is: device block of each of its blocks. `super`: None where it was not found."""

    places: dict[int, int] = field(default_factory=dict)  # device block -> journal block
    super: jbd2.Super | None = None
    descriptors: dict[int, list[tuple[int, int, list[jbd2.Tag]]]] = field(default_factory=dict)
    """By journal block: (entry, sequence, tags) of each descriptor written there, in order."""
    waiting: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    """By journal block: (entry, device block, data) of what no descriptor has named yet."""


def read(image: Image, second_bytes: int) -> Ext4 | None:
    """None if the image holds another format."""
    data = image.read(_SUPER_AT, _SUPER_BYTES)
    if le(data, 0x38, 2) != _MAGIC:
        return None
    layout = _layout(data)
    if layout is None:
        return None
    return Ext4(image, layout, second_bytes)


def _layout(data: bytes) -> _Layout | None:
    shift, per_group, per_inodes = le(data, 0x18, 4), le(data, 0x20, 4), le(data, 0x28, 4)
    if shift > 6 or not per_group or not per_inodes:
        return None
    compat, incompat = le(data, 0x5C, 4), le(data, 0x60, 4)
    old = le(data, 0x4C, 4) == 0
    wide = bool(incompat & _INCOMPAT_64BIT)
    return _Layout(
        block=1024 << shift,
        blocks=le(data, 4, 4) | (le(data, 0x150, 4) << 32 if wide else 0),
        first=le(data, 0x14, 4),
        per_group=per_group,
        inodes_per_group=per_inodes,
        inode_bytes=128 if old else max(le(data, 0x58, 2), 128),
        descriptor_bytes=max(le(data, 0xFE, 2), 32) if wide else 32,
        reserved=le(data, 0xCE, 2),
        copied=(le(data, 0x24C, 4), le(data, 0x250, 4)) if compat & _COMPAT_SPARSE2 else None,
        sparse=bool(le(data, 0x64, 4) & _RO_SPARSE),
        behind_super=le(data, 0x104, 4) if incompat & _INCOMPAT_META_BG else None,
        journal=le(data, 0xE0, 4),
    )


class Ext4:
    """See the module. `learn` keeps the last content of each metadata block, so that names can say which
    inodes of a table changed.
    """

    def __init__(self, image: Image, layout: _Layout, second_bytes: int) -> None:
        self._image, self._l = image, layout
        self._block = layout.block
        self._second = second_bytes // layout.block if second_bytes else 0
        self._fixed: dict[int, str] = {}
        self._tables: list[tuple[int, int]] = []  # (first block of an inode table, group), ascending
        self._owners: dict[int, list[_Owner]] = {}
        self._held: dict[int, dict[tuple[int, int], int | bytes]] = {}
        """What an inode's map said last, as long as no other owner took a block of it: by first block of the
        file and of the device, how many blocks of an extent, or the block of pointers.
        """
        self._names = Names()
        self._journal = _Journal()
        self._last: dict[int, bytes] = {}
        self._changed: dict[tuple[int, int], list[int]] = {}  # (entry, device block) -> inodes changed
        self._read_groups()
        for block in itertools.islice(self._table_places(), _MAX_TABLE_BLOCKS):
            data = self._image.read(block * self._block, self._block)
            if data.strip(b"\0"):
                self._learn_table(-1, block, data)
        self._find_journal()

    # --- layout -------------------------------------------------------------------------------

    def _read_groups(self) -> None:
        layout, block = self._l, self._block
        table_blocks = max(1, layout.inodes_per_group * layout.inode_bytes // block)
        count, raw = -(-layout.groups // layout.per_descriptors), b""
        self._fixed[_SUPER_AT // block] = "superblock"
        for group in range(layout.groups):
            number, n = divmod(group, layout.per_descriptors)
            if not n:
                raw = self._image.read(layout.descriptors_at(number) * block, block)
            one = raw[n * layout.descriptor_bytes :][: layout.descriptor_bytes]
            if len(one) < layout.descriptor_bytes:
                break
            wide = layout.descriptor_bytes >= 64
            at = [le(one, n, 4) | (le(one, n + 0x20, 4) << 32 if wide else 0) for n in (0, 4, 8)]
            self._fixed[at[0]] = f"block bitmap of group {group}"
            self._fixed[at[1]] = f"inode bitmap of group {group}"
            self._tables.append((at[2], group))
            self._add_copies(group, count)
        self._tables.sort()
        self._starts = {group: first for first, group in self._tables}
        self._table_blocks = table_blocks

    def _add_copies(self, group: int, count: int) -> None:
        layout = self._l
        first, has_super = layout.first + group * layout.per_group, layout.has_super(group)
        if group and has_super:
            self._fixed[first] = f"copy of the superblock in group {group}"
        behind = count if layout.behind_super is None else min(layout.behind_super, count)
        number, n = divmod(group, layout.per_descriptors)
        if number >= behind:
            if n in (0, 1, layout.per_descriptors - 1):
                copy = f", copy in group {group}" if n else ""
                self._fixed[first + has_super] = f"group descriptors{copy}"
            return
        copy = f", copy in group {group}" if group else ""
        for n in range(behind if has_super else 0):
            self._fixed[first + 1 + n] = f"group descriptors{copy}"
        for n in range(layout.reserved if has_super else 0):
            self._fixed.setdefault(first + 1 + behind + n, f"reserved group descriptors{copy}")

    def _table_places(self) -> Iterator[int]:
        """The blocks of all inode tables, each once."""
        end = 0
        for first, _ in self._tables:
            yield from range(max(first, end), first + self._table_blocks)
            end = max(end, first + self._table_blocks)

    def _find_journal(self) -> None:
        if self._second:
            start = self._second + 1024 // self._block + 1
            data = self._image.read(start * self._block, self._block)
            self._journal.super = jbd2.Super.read(data)
            count = self._journal.super.blocks if self._journal.super else 0
            self._journal.places = {start + n: n for n in range(min(count, _MAX_RUN))}
            return
        owned = [
            (owner.logical, block)
            for block, owners in self._owners.items()
            for owner in owners
            if owner.inode == (self._l.journal or _JOURNAL) and owner.logical >= 0
        ]
        self._journal.places = {block: logical for logical, block in owned}
        first = next((block for logical, block in owned if logical == 0), None)
        if first is not None:
            self._journal.super = jbd2.Super.read(self._image.read(first * self._block, self._block))

    # --- learning -----------------------------------------------------------------------------

    def learn(self, write: Write) -> None:
        for at, data in blocks(write, self._block):
            place = at // self._block
            if len(data) != self._block:
                continue
            if place in self._journal.places:
                self._learn_journal(write.entry, place, data)
            else:
                self._learn_home(write.entry, place, place, data)

    def _learn_home(self, entry: int, place: int, home: int, data: bytes) -> None:
        """`data` is what the block `home` shall hold; it was written at `place`."""
        if self._table_of(home) is not None:
            self._changed[entry, place] = self._learn_table(entry, home, data)
            return
        owner = self._owner(home, entry)
        if owner is not None and owner.logical == -1:
            self._learn_map(entry, owner, data, {home})
        if (owner is not None and owner.mode & _S_IFMT == _S_IFDIR) or _is_directory(data):
            for inode, name in _directory(data):
                if name not in (".", ".."):
                    self._names.learn(entry, inode, name)

    def _learn_journal(self, entry: int, place: int, data: bytes) -> None:
        number = self._journal.places[place]
        if (found := jbd2.Super.read(data)) is not None and number == 0:
            self._journal.super = found.after(self._journal.super)
            return
        known, sup = jbd2.header(data), self._journal.super
        if sup is not None and sup.fast <= number < sup.blocks and known is None:
            self._learn_fast(entry, data)
            return
        features = sup.features if sup else 0
        if known is not None and known[0] == jbd2.DESCRIPTOR:
            found_tags = jbd2.tags(data, features)
            self._journal.descriptors.setdefault(number, []).append((entry, known[1], found_tags))
            self._learn_waiting(number, len(found_tags))
        elif (copy := self._copy_of(entry, number)) is not None:
            self._learn_home(entry, place, copy[0].home, _unescaped(data, copy[0]))
        else:
            self._journal.waiting[number] = entry, place, data

    def _learn_waiting(self, number: int, count: int) -> None:
        """Copies that came ahead of their descriptor, as they may in the order of a log."""
        waiting = self._journal.waiting
        for entry, place, data in [
            waiting.pop(n) for n in range(number + 1, number + 1 + count) if n in waiting
        ]:
            if (copy := self._copy_of(entry, self._journal.places[place])) is not None:
                self._learn_home(entry, place, copy[0].home, _unescaped(data, copy[0]))

    def _learn_fast(self, entry: int, data: bytes) -> None:
        for tag in jbd2.fast_tags(data):
            if tag.tag in (3, 4):
                self._names.learn(entry, tag.inode, shown_name(tag.value[8:]))
            if tag.tag == 6:
                self._learn_inode(entry, tag.inode, tag.value[4:])
            if tag.tag == 1:
                self._learn_extent(entry, tag.inode, tag.value[4:16], 0)

    def _learn_table(self, entry: int, home: int, data: bytes) -> list[int]:
        """Learn the inodes of a block of an inode table; returns those that differ from what was known."""
        first, size = self._first_inode(home), self._l.inode_bytes
        before = self._last.get(home, b"" if entry < 0 else bytes(len(data)))
        changed = []
        for n in range(len(data) // size):
            raw = data[n * size : (n + 1) * size]
            if raw != before[n * size : (n + 1) * size]:
                if raw.strip(b"\0"):
                    self._learn_inode(entry, first + n, raw)
                changed.append(first + n)
        self._last[home] = data
        return changed

    def _learn_inode(self, entry: int, inode: int, raw: bytes) -> None:
        mode, flags = le(raw, 0, 2), le(raw, 0x20, 4)
        if (xattrs := le(raw, 0x68, 4)) and xattrs < self._l.blocks:
            self._own(xattrs, _Owner(entry, inode, -2, mode))
        if mode & _S_IFMT not in (_S_IFDIR, _S_IFREG) and inode != _JOURNAL:
            return
        area = raw[0x28 : 0x28 + 60]
        owner = _Owner(entry, inode, -1, mode)
        if flags & _EXTENTS_FLAG:
            self._learn_map(entry, owner, area, set())
        else:
            self._learn_pointers(owner, area)

    def _learn_pointers(self, owner: _Owner, area: bytes) -> None:
        """The block map of an inode without extents: 12 direct blocks, then trees of depth 1, 2 and 3."""
        for n in range(_DIRECT):
            self._own(le(area, 4 * n, 4), _Owner(owner.entry, owner.inode, n, owner.mode))
        logical, per, seen = _DIRECT, self._block // 4, set[int]()
        for depth in (1, 2, 3):
            self._learn_indirect(owner, le(area, 4 * (_DIRECT + depth - 1), 4), depth, logical, seen)
            logical += per**depth

    def _learn_indirect(self, owner: _Owner, block: int, depth: int, logical: int, seen: set[int]) -> None:
        """`seen`: blocks of this map; a damaged one may lead to the same block again and again."""
        if not 0 < block < self._l.blocks or logical > _MAX_RUN or block in seen:
            return
        seen.add(block)
        self._own(block, _Owner(owner.entry, owner.inode, -1, owner.mode))
        data = self._last.get(block) or self._image.read(block * self._block, self._block)
        if self._held.get(owner.inode, {}).get((logical, block)) == data:
            return
        per = self._block // 4
        for n in range(len(data) // 4):
            pointer = le(data, 4 * n, 4)
            if not 0 < pointer < self._l.blocks:
                continue
            if depth == 1:
                self._own(pointer, _Owner(owner.entry, owner.inode, logical + n, owner.mode))
            else:
                self._learn_indirect(owner, pointer, depth - 1, logical + n * per ** (depth - 1), seen)
        if depth == 1:
            self._held.setdefault(owner.inode, {})[logical, block] = data

    def _learn_map(
        self, entry: int, owner: _Owner, data: bytes, seen: set[int], level: int | None = None
    ) -> None:
        """A node of an extent tree, `level` nodes above the leaves, and what hangs on it. `seen`: blocks of
        this tree; a damaged one may lead to the same block again and again.
        """
        depth = le(data, 6, 2)
        if le(data, 0, 2) != _EXTENT_MAGIC or depth > _MAX_DEPTH or level not in (None, depth):
            return
        count = le(data, 2, 2)
        for n in range(min(count, len(data) // 12)):
            one = data[12 + 12 * n : 24 + 12 * n]
            if not depth:
                self._learn_extent(entry, owner.inode, one, owner.mode)
                continue
            child = le(one, 4, 4) | le(one, 8, 2) << 32
            if not 0 < child < self._l.blocks or child in seen:
                continue
            seen.add(child)
            self._own(child, _Owner(entry, owner.inode, -1, owner.mode))
            below = self._last.get(child) or self._image.read(child * self._block, self._block)
            self._learn_map(entry, owner, below, seen, depth - 1)

    def _learn_extent(self, entry: int, inode: int, one: bytes, mode: int) -> None:
        logical, count = le(one, 0, 4), le(one, 4, 2)
        start = le(one, 8, 4) | le(one, 6, 2) << 32
        count -= _UNWRITTEN if count > _UNWRITTEN else 0
        known = self._held.get(inode, {}).get((logical, start), 0)
        known = known if isinstance(known, int) else 0
        for n in range(known, min(count, max(self._l.blocks - start, 0))):
            self._own(start + n, _Owner(entry, inode, logical + n, mode))
        self._held.setdefault(inode, {})[logical, start] = max(known, count)

    def _own(self, block: int, owner: _Owner) -> None:
        if not 0 < block < self._l.blocks:
            return
        owners = self._owners.setdefault(block, [])
        if not owners or (owners[-1].inode, owners[-1].logical) != (owner.inode, owner.logical):
            if owners:
                self._held.pop(owners[-1].inode, None)
            owners.append(owner)

    # --- looking up ---------------------------------------------------------------------------

    def _table_of(self, block: int) -> int | None:
        """The group of whose inode table a block is part."""
        n = bisect.bisect_right(self._tables, (block, 1 << 62)) - 1
        if n < 0 or block >= self._tables[n][0] + self._table_blocks:
            return None
        return self._tables[n][1]

    def _first_inode(self, block: int) -> int:
        group = self._table_of(block) or 0
        first = self._starts[group]
        per_block = self._block // self._l.inode_bytes
        return group * self._l.inodes_per_group + (block - first) * per_block + 1

    def _owner(self, block: int, entry: int) -> _Owner | None:
        """Whose a block was when `entry` was written: the last known by then, else the first known after."""
        owners = self._owners.get(block, [])
        return next((o for o in reversed(owners) if o.entry <= entry), owners[0] if owners else None)

    def _copy_of(self, entry: int, number: int) -> tuple[jbd2.Tag, int] | None:
        """(tag, sequence) of the journal's block `number`: of the descriptor in front of it that was written
        nearest in time.
        """
        sup = self._journal.super
        if sup is None or sup.fast <= sup.first:
            return None
        found = []
        ring = sup.fast - sup.first
        for start, written in self._journal.descriptors.items():
            distance = (number - start) % ring
            for at, sequence, of_it in written:
                if 0 < distance <= len(of_it):
                    found.append((at > entry, abs(at - entry), distance, of_it[distance - 1], sequence))
        if not found:
            return None
        best = min(found, key=lambda f: f[:3])
        return best[3], best[4]

    def _who(self, entry: int, inode: int) -> str:
        if name := self._names.at(entry, inode):
            return f"{inode} ({name})"
        return f"{inode} ({_SPECIAL[inode]})" if inode in _SPECIAL else str(inode)

    # --- naming -------------------------------------------------------------------------------

    def name(self, write: Write) -> Iterator[BlockName]:
        for at, data in blocks(write, self._block):
            place = at // self._block
            if place in self._journal.places:
                yield self._name_journal(write.entry, at, data)
            else:
                text, kind, sure = self._name_home(write.entry, place, place, data)
                yield BlockName(at, len(data), text, kind, sure)

    def _name_home(self, entry: int, place: int, home: int, data: bytes) -> tuple[str, Kind, bool]:
        """(text, kind, sure) of what the file system's block `home` shall hold."""
        if home in self._fixed:
            # It says whether the journal has to be replayed; without a journal it makes nothing count.
            is_record = self._fixed[home] == "superblock" and self._journal.super is not None
            kind = Kind.RECORD if is_record else Kind.METADATA
            return self._fixed[home], kind, True
        if (group := self._table_of(home)) is not None:
            first = self._first_inode(home)
            last = first + self._block // self._l.inode_bytes - 1
            changed = [self._who(entry, n) for n in self._changed.get((entry, place), ())]
            which = f": {several(changed)}" if changed else ""
            return f"inode table of group {group}, inodes {first} to {last}{which}", Kind.METADATA, True
        if le(data, 0, 4) == _XATTR_MAGIC:
            owner = self._owner(home, entry)
            whose = f" of inode {self._who(entry, owner.inode)}" if owner and owner.logical == -2 else ""
            return f"extended attributes{whose}", Kind.METADATA, True
        if len(data) >= 16 and le(data, len(data) - 8, 4) == _ORPHAN_MAGIC:
            return "orphan file", Kind.METADATA, True
        return self._name_owned(entry, home, data)

    def _name_owned(self, entry: int, home: int, data: bytes) -> tuple[str, Kind, bool]:
        if data[8:10] == b".\0" and _is_directory(data):
            return f"directory {self._who(entry, le(data, 0, 4))}, block 0", Kind.METADATA, True
        owner = self._owner(home, entry)
        if owner is not None:
            return self._name_of(entry, owner, data)
        directory = _is_directory(data)
        text = "directory block" if directory else ""
        return text, Kind.METADATA if directory else Kind.UNKNOWN, False

    def _name_of(self, entry: int, owner: _Owner, data: bytes) -> tuple[str, Kind, bool]:
        whose = self._who(entry, owner.inode)
        if owner.logical == -2:
            return f"extended attributes of inode {whose}", Kind.METADATA, False
        if owner.logical == -1:
            sure = le(data, 0, 2) == _EXTENT_MAGIC
            return f"{'extent tree' if sure else 'block map'} of inode {whose}", Kind.METADATA, sure
        if owner.mode & _S_IFMT == _S_IFDIR:
            return f"directory {whose}, block {owner.logical}", Kind.METADATA, False
        return f"data of inode {whose}, block {owner.logical}", Kind.DATA, False

    def _name_journal(self, entry: int, at: int, data: bytes) -> BlockName:
        number, sup = self._journal.places[at // self._block], self._journal.super
        features = sup.features if sup else 0
        known = jbd2.header(data)
        if number == 0 and jbd2.Super.read(data) is not None:
            return BlockName(at, len(data), jbd2.super_text(data), Kind.RECORD)
        if known is not None and known[0] in _JOURNAL_BLOCKS:
            text, kind = _JOURNAL_BLOCKS[known[0]]
            text = f"journal: {text} of transaction {known[1]}"
            if known[0] == jbd2.DESCRIPTOR:
                text += f" for {len(jbd2.tags(data, features))} blocks"
            if known[0] == jbd2.REVOKE:
                text += f", {len(jbd2.revoked(data, features))} blocks"
            return BlockName(at, len(data), text, kind)
        if sup is not None and sup.fast <= number < sup.blocks and (found := [*jbd2.fast_tags(data)]):
            kind = Kind.RECORD if jbd2.has_tail(found) else Kind.LOG
            return BlockName(at, len(data), jbd2.fast_text(found), kind)
        if (copy := self._copy_of(entry, number)) is not None:
            tag, sequence = copy
            what, _, _ = self._name_home(entry, at // self._block, tag.home, _unescaped(data, tag))
            text = f"journal: copy of {what or f'block {tag.home}'}, transaction {sequence}"
            return BlockName(at, len(data), text, Kind.LOG, sure=False, home=tag.home * self._block)
        return BlockName(at, len(data), f"journal block {number}, not in use", Kind.LOG, sure=False)


_JOURNAL_BLOCKS = {
    jbd2.DESCRIPTOR: ("descriptor", Kind.LOG),
    jbd2.COMMIT: ("commit record", Kind.RECORD),
    jbd2.REVOKE: ("revoke record", Kind.LOG),
}


def _unescaped(data: bytes, tag: jbd2.Tag) -> bytes:
    """A copy whose first word would have been the journal's magic number has zeros there."""
    return jbd2.MAGIC.to_bytes(4, "big") + data[4:] if tag.escaped else data


def _is_power(number: int, base: int) -> bool:
    while number > 1 and number % base == 0:
        number //= base
    return number == 1


def _is_directory(data: bytes) -> bool:
    """The first block of a directory begins with `.` and `..`; others with checksums end in a tail."""
    if data[8:10] == b".\0" and le(data, 4, 2) == 12 and data[20:23] == b"..\0":
        return le(data, 0, 4) != 0
    end = len(data) - 12
    return le(data, end, 4) == 0 and le(data, end + 4, 2) == 12 and le(data, end + 7, 1) == _TAIL_TYPE


def _directory(data: bytes) -> Iterator[tuple[int, str]]:
    """(inode, name) of the entries of a directory block."""
    at = 0
    while at + 8 <= len(data):
        inode, step, length = le(data, at, 4), le(data, at + 4, 2), le(data, at + 6, 1)
        if step < 8 or at + step > len(data):
            return
        if inode and 0 < length <= step - 8:
            yield inode, shown_name(data[at + 8 : at + 8 + length])
        at += step
