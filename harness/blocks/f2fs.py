"""F2FS: areas by the superblock, nodes by their footers, whose data by the addresses in nodes.

From Documentation/filesystems/f2fs.rst, include/linux/f2fs_fs.h and fs/f2fs (6.12). Little-endian, blocks of
4 KiB.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.blocks import words
from harness.blocks.fields import BlockName, Image, Kind, Names, Write, blocks, le, shown_name

_BLOCK = 4096
_SUPER_AT, _SUPER_BYTES, _MAGIC = 1024, 3072, 0xF2F52010
_FOOTER_AT, _ADDRESSES_AT = _BLOCK - 24, 360
_IN_INODE, _IN_NODE, _XATTRS = 923, 1018, 50
_XATTR_NODE = (1 << 29) - 1
_FSYNC, _DENTRY, _OFFSET_SHIFT = 0x2, 0x4, 3
_NAT_ENTRIES, _SIT_ENTRIES = 455, 55
_INLINE_XATTR, _INLINE_DATA, _INLINE_DENTRY, _EXTRA = 0x1, 0x2, 0x4, 0x20
_S_IFMT, _S_IFDIR, _S_IFREG = 0xF000, 0x4000, 0x8000
_FLEXIBLE, _COMPRESSED = 0x40, 0x4


@dataclass(frozen=True, slots=True)
class _Layout:
    segment: int
    checkpoint: int
    sit: int
    nat: int
    ssa: int
    main: int
    end: int
    flexible: bool
    """Whether each inode says how much room it has for extended attributes."""


@dataclass(slots=True)
class _Owner:
    """Of a block: the address number `offset` of an inode, or of its direct node number `node`, leads to it.
    `entry`: the last that said so, before anything else was said.
    """

    entry: int
    inode: int
    node: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class _Inode:
    """`skipped`: words ahead of its own addresses. `own`, `per_node`: how many addresses it has itself, and
    each of its direct nodes. (addrs_per_page, do_read_inode)
    """

    directory: bool
    skipped: int
    own: int
    per_node: int

    @classmethod
    def of(cls, data: bytes, *, flexible: bool) -> _Inode:
        mode, inline = le(data, 0, 2) & _S_IFMT, data[3]
        skipped = min(le(data, _ADDRESSES_AT, 2) // 4, _IN_INODE) if inline & _EXTRA else 0
        if flexible:
            xattrs = le(data, _ADDRESSES_AT + 2, 2) if skipped else 0
        else:
            xattrs = _XATTRS if inline & (_INLINE_XATTR | _INLINE_DENTRY) else 0
        compressed = mode == _S_IFREG and skipped > 8 and le(data, 80, 4) & _COMPRESSED
        cluster = 1 << min(data[_ADDRESSES_AT + 33], 9) if compressed else 1
        own = max(_IN_INODE - skipped - xattrs, 0)
        return cls(mode == _S_IFDIR, skipped, own // cluster * cluster, _IN_NODE // cluster * cluster)


def read(image: Image, second_bytes: int) -> F2fs | None:
    """None if the image holds another format."""
    data = image.read(_SUPER_AT, _SUPER_BYTES)
    if le(data, 0, 4) != _MAGIC or le(data, 0x10, 4) != 12 or not 0 < le(data, 0x14, 4) < 20:
        return None
    places = [le(data, at, 4) for at in (0x4C, 0x50, 0x54, 0x58, 0x5C)]
    if places != sorted(places) or not places[0]:
        return None
    checkpoint, sit, nat, ssa, main = places
    flexible = bool(le(data, 0x884, 4) & _FLEXIBLE)
    return F2fs(_Layout(1 << le(data, 0x14, 4), checkpoint, sit, nat, ssa, main, le(data, 0x24, 8), flexible))


class F2fs:
    def __init__(self, layout: _Layout) -> None:
        self._l = layout
        self._owners: dict[int, list[_Owner]] = {}
        self._names = Names()
        # by number, each with the last entry that said so, before the number was given to another
        self._inodes: dict[int, list[tuple[int, _Inode]]] = {}

    def learn(self, write: Write) -> None:
        for at, data in blocks(write, _BLOCK):
            if at // _BLOCK >= self._l.main and self._is_node(data):
                self._learn_node(write.entry, data)

    def _learn_node(self, entry: int, data: bytes) -> None:
        nid, inode = le(data, _FOOTER_AT, 4), le(data, _FOOTER_AT + 4, 4)
        if nid != inode:
            if (node := _direct_node(data)) is not None:
                self._own(entry, inode, node, struct.unpack_from(f"<{_IN_NODE}I", data))
            return
        name = shown_name(data[92 : 92 + min(le(data, 88, 4), 255)])
        self._names.learn(entry, inode, name)
        known = _Inode.of(data, flexible=self._l.flexible)
        versions = self._inodes.setdefault(inode, [])
        if versions and versions[-1][1] == known:
            versions.pop()
        versions.append((entry, known))
        if not data[3] & (_INLINE_DATA | _INLINE_DENTRY):
            at = _ADDRESSES_AT + 4 * known.skipped
            self._own(entry, inode, None, struct.unpack_from(f"<{known.own}I", data, at))

    def _own(self, entry: int, inode: int, node: int | None, addresses: Sequence[int]) -> None:
        for offset, address in enumerate(addresses):
            if not self._l.main <= address < self._l.end:
                continue
            owners = self._owners.setdefault(address, [])
            last = owners[-1] if owners else None
            if last and (last.inode, last.node, last.offset) == (inode, node, offset):
                last.entry = entry
            else:
                owners.append(_Owner(entry, inode, node, offset))

    def _is_node(self, data: bytes) -> bool:
        """Whether a block of the main area has the footer of a node: numbers that fit, and a next block in
        the main area (f2fs-tools leave that 0). What operations wrote may have such numbers there.
        """
        if words.extents(data[_FOOTER_AT:]):
            return False
        nid, inode, after = le(data, _FOOTER_AT, 4), le(data, _FOOTER_AT + 4, 4), le(data, _BLOCK - 4, 4)
        limit = (self._l.ssa - self._l.nat) * _NAT_ENTRIES
        if not (
            0 < nid < limit and 0 < inode < limit and (not after or self._l.main <= after <= self._l.end)
        ):
            return False
        return nid != inode or le(data, 0, 2) & _S_IFMT != 0

    # --- naming -------------------------------------------------------------------------------

    def name(self, write: Write) -> Iterator[BlockName]:
        for at, data in blocks(write, _BLOCK):
            place = at // _BLOCK
            if place < self._l.main:
                yield self._area(at, place, data)
            elif self._is_node(data):
                yield BlockName(at, len(data), self._node_text(write.entry, data), Kind.METADATA)
            else:
                yield self._main(write.entry, at, data)

    def _area(self, at: int, place: int, data: bytes) -> BlockName:
        """What lies ahead of the main area: each block's use follows from its place."""
        layout, size = self._l, len(data)
        if place < 2:
            return BlockName(at, size, "superblock" + (", second copy" if place else ""), Kind.RECORD)
        if place < layout.checkpoint:
            return BlockName(at, size, "reserved", Kind.METADATA)
        if place < layout.sit:
            return self._checkpoint(at, place, data)
        if place < layout.nat:
            copy, first = self._pair(place - layout.sit, layout.nat - layout.sit)
            segment = first * _SIT_ENTRIES
            text = f"SIT copy {copy}: segments {segment} to {segment + _SIT_ENTRIES - 1}"
            return BlockName(at, size, text, Kind.METADATA)
        if place < layout.ssa:
            segment, offset = divmod(place - layout.nat, layout.segment)
            nid = (segment // 2 * layout.segment + offset) * _NAT_ENTRIES
            text = f"NAT copy {segment % 2 + 1}: nodes {nid} to {nid + _NAT_ENTRIES - 1}"
            return BlockName(at, size, text, Kind.METADATA)
        return BlockName(at, size, f"SSA: summary of segment {place - layout.ssa}", Kind.METADATA)

    @staticmethod
    def _pair(offset: int, total: int) -> tuple[int, int]:
        """SIT's second copy stands behind all of its first."""
        half = max(total // 2, 1)
        return offset // half + 1, offset % half

    def _checkpoint(self, at: int, place: int, data: bytes) -> BlockName:
        pack, offset = divmod(place - self._l.checkpoint, self._l.segment)
        if _is_checkpoint(data):
            where = "head" if offset == 0 else "foot"
            text = f"checkpoint pack {pack + 1}: {where}, version {le(data, 0, 8) & 0xFFFFFFFF}"
            return BlockName(at, len(data), text, Kind.RECORD)
        text = f"checkpoint pack {pack + 1}: summaries, orphans or NAT bits, block {offset}"
        return BlockName(at, len(data), text, Kind.METADATA)

    def _node_text(self, entry: int, data: bytes) -> str:
        nid, inode = le(data, _FOOTER_AT, 4), le(data, _FOOTER_AT + 4, 4)
        flag, version = le(data, _FOOTER_AT + 8, 4), le(data, _FOOTER_AT + 12, 8) & 0xFFFFFFFF
        marks = [word for bit, word in ((_FSYNC, "fsync mark"), (_DENTRY, "dentry mark")) if flag & bit]
        who = self._who(entry, inode)
        what = f"inode {who}" if nid == inode else f"node {nid} of inode {who}"
        return ", ".join([what, f"checkpoint {version}", *marks])

    def _main(self, entry: int, at: int, data: bytes) -> BlockName:
        owners = self._owners.get(at // _BLOCK, [])
        # A node is written after the data that it points to: the first owner from then on, else the last.
        owner = next((o for o in owners if o.entry >= entry), owners[-1] if owners else None)
        if owner is None:
            return BlockName(at, len(data), "", Kind.UNKNOWN, sure=False)
        known, number = self._inode(owner), self._number(owner)
        which = self._who(entry, owner.inode) + (f", block {number}" if number is not None else "")
        if known and known.directory:
            return BlockName(at, len(data), f"directory {which}", Kind.METADATA, sure=False)
        return BlockName(at, len(data), f"data of inode {which}", Kind.DATA, sure=False)

    def _number(self, owner: _Owner) -> int | None:
        """The block of the file. None: it takes the inode to tell, and the log does not have that."""
        if owner.node is None:
            return owner.offset
        known = self._inode(owner)
        return known.own + owner.node * known.per_node + owner.offset if known else None

    def _inode(self, owner: _Owner) -> _Inode | None:
        """What the owner's inode was when it was said to be the owner."""
        versions = self._inodes.get(owner.inode, ())
        later = (known for entry, known in versions if entry >= owner.entry)
        return next(later, versions[-1][1] if versions else None)

    def _who(self, entry: int, inode: int) -> str:
        name = self._names.at(entry, inode)
        return f"{inode} ({name})" if name else str(inode)


def _is_checkpoint(data: bytes) -> bool:
    """Whether the checksum of a checkpoint's head or foot fits: crc32_le, seeded with the magic number
    (f2fs_crc32).
    """
    at = le(data, 0xA4, 4)
    if not 192 <= at <= _BLOCK - 4 or len(data) < _BLOCK:
        return False
    return zlib.crc32(data[:at], _MAGIC ^ 0xFFFFFFFF) ^ 0xFFFFFFFF == le(data, at, 4)


def _direct_node(data: bytes) -> int | None:
    """Which of the file's direct nodes it is, by its place among all nodes: two hang on the inode, as many as
    a node has numbers on each of two indirect nodes, all others on indirect nodes below a last one. None: it
    is an indirect node, or one of extended attributes. (f2fs_start_bidx_of_node, IS_DNODE)
    """
    place = le(data, _FOOTER_AT + 8, 4) >> _OFFSET_SHIFT
    if place in (0, _XATTR_NODE):
        return None
    if place <= 2:
        return place - 1
    indirect, first = (3, 2) if place < 2 * _IN_NODE + 5 else (2 * _IN_NODE + 6, 2 * _IN_NODE + 2)
    above, below = divmod(place - indirect, _IN_NODE + 1)
    return first + above * _IN_NODE + below - 1 if above >= 0 and below else None
