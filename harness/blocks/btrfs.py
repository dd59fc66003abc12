"""btrfs: each node says its tree, level and generation, and where in the logical space it is.

From "On-disk format" of btrfs.readthedocs.io and include/uapi/linux/btrfs_tree.h (6.12). Little-endian.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harness.blocks.fields import BlockName, Image, Kind, Names, Write, le, several, shown_name
from harness.host.text import first_few

_SUPER_PLACES = (0x10000, 0x4000000, 0x4000000000)
_SUPER_BYTES, _MAGIC = 4096, b"_BHRfS_M"
_HEADER_BYTES, _ITEM_BYTES = 101, 25
_U64 = 1 << 64
_LOG_TREE = _U64 - 6
_TREES = {
    1: "root tree",
    2: "extent tree",
    3: "chunk tree",
    4: "device tree",
    5: "file tree",
    6: "root directory",
    7: "checksum tree",
    8: "quota tree",
    9: "UUID tree",
    10: "free space tree",
    11: "block group tree",
    _LOG_TREE: "log tree",
    _U64 - 8: "relocation tree",
    _U64 - 9: "data relocation tree",
}
_OBJECTS = {-5: "orphans", -6: "roots of log trees", -10: "data"}
_INODE_REF = 12
_TYPES = {
    1: "inode",
    12: "name",
    13: "names",
    24: "attribute",
    48: "orphan",
    60: "logged range of names",
    72: "logged range of names",
    84: "directory entry",
    96: "directory index",
    108: "extent",
    128: "checksums",
    132: "root",
    144: "root back reference",
    156: "root reference",
    168: "extent item",
    169: "metadata item",
    176: "tree back reference",
    178: "data back reference",
    182: "shared back reference",
    184: "shared data reference",
    192: "block group",
    198: "free space",
    199: "free extent",
    200: "free bitmap",
    204: "device extent",
    216: "device",
    228: "chunk",
    248: "temporary item",
    249: "device statistics",
}
_FILE_TYPES = (1, 12, 24, 84, 96, 108)


def read(image: Image, second_bytes: int) -> Btrfs | None:
    """None if the image holds another format."""
    data = image.read(_SUPER_PLACES[0], _SUPER_BYTES)
    if data[0x40:0x48] != _MAGIC:
        return None
    node = le(data, 0x94, 4)
    if not 4096 <= node <= 65536:
        return None
    return Btrfs(node, data[0x20:0x30])


class Btrfs:
    def __init__(self, node_bytes: int, fsid: bytes) -> None:
        self._node, self._fsid = node_bytes, fsid
        self._names = Names()
        self._by_tree: dict[int, Names] = {}
        """Of the file trees alone: several have inodes of the same number, and a log tree does not say of
        which of them it is.
        """

    def learn(self, write: Write) -> None:
        """Names of inodes, from the back references in leaves of file and log trees."""
        for n in range(0, len(write.data), 4096):
            node = write.data[n : n + self._node]
            if node[0x20:0x30] == self._fsid and self._is_node(node):
                owner = le(node, 0x58, 8)
                of_tree = self._by_tree.setdefault(owner, Names()) if _is_file_tree(owner) else Names()
                for inode, name in _named(node):
                    self._names.learn(write.entry, inode, name)
                    of_tree.learn(write.entry, inode, name)

    def _is_node(self, node: bytes) -> bool:
        """Whether a block that has our UUID can be a node: at most so many items, a level below 8."""
        return (
            le(node, 0x64, 1) < 8
            and le(node, 0x30, 8) % 4096 == 0
            and 0 < le(node, 0x50, 8) < _U64 >> 1
            and le(node, 0x60, 4) <= (self._node - _HEADER_BYTES) // _ITEM_BYTES
        )

    def name(self, write: Write) -> Iterator[BlockName]:
        at, end = write.at, write.at + len(write.data)
        while at < end:
            data = write.data[at - write.at : at - write.at + max(self._node, _SUPER_BYTES)]
            name = self._name(write.entry, at, data)
            yield name
            at += max(name.length, 1)

    def _name(self, entry: int, at: int, data: bytes) -> BlockName:
        if at in _SUPER_PLACES and data[0x40:0x48] == _MAGIC:
            log = le(data, 0x60, 8)
            text = f"superblock, generation {le(data, 0x48, 8)}{', with a log tree' if log else ''}"
            return BlockName(at, min(_SUPER_BYTES, len(data)), text, Kind.RECORD)
        if data[0x20:0x30] == self._fsid and self._is_node(data[: self._node]):
            node = data[: self._node]
            return BlockName(at, len(node), self._node_text(entry, node), Kind.METADATA)
        return BlockName(at, min(4096, len(data)), "", Kind.UNKNOWN, sure=False)

    def _node_text(self, entry: int, node: bytes) -> str:
        owner, level, generation = le(node, 0x58, 8), le(node, 0x64, 1), le(node, 0x50, 8)
        tree = _TREES.get(owner, f"file tree {owner}" if 256 <= owner < _U64 - 256 else f"tree {owner}")
        what = f"{tree}, level {level}, generation {generation}"
        return f"{what}: {text}" if level == 0 and (text := self._leaf_text(entry, node, owner)) else what

    def _leaf_text(self, entry: int, node: bytes, owner: int) -> str:
        """What a leaf of a file's or a log tree holds: inodes with their items; of others, how many."""
        items = [*_items(node)]
        if owner != _LOG_TREE and not _is_file_tree(owner):
            counted = Counter(_TYPES.get(kind, f"type {kind}") for _, kind, _, _ in items)
            return several([f"{count} {word}" for word, count in counted.items()], 4)
        by_inode: dict[int, list[str]] = {}
        for objectid, kind, _, _ in items:
            if kind in _FILE_TYPES or kind in _TYPES:
                by_inode.setdefault(objectid, []).append(_TYPES.get(kind, f"type {kind}"))
        here = dict(_named(node))
        said = [
            f"{_who(inode, here.get(inode) or self._name_in(entry, owner, inode))}: "
            f"{several([*dict.fromkeys(w)], 4)}"
            for inode, w in by_inode.items()
        ]
        shown, left_out = first_few(said, 4)
        return "; ".join(shown) + (f"; and {left_out} more" if left_out else "")

    def _name_in(self, entry: int, tree: int, inode: int) -> str:
        """What an inode of a tree is called; empty where several trees may be meant."""
        if len(self._by_tree) <= 1:
            return self._names.at(entry, inode)
        return self._by_tree[tree].at(entry, inode) if tree in self._by_tree else ""


def _is_file_tree(tree: int) -> bool:
    return tree == 5 or 256 <= tree < _U64 - 256


def _who(inode: int, name: str) -> str:
    if inode >= _U64 - 256:
        return _OBJECTS.get(inode - _U64, str(inode - _U64))
    name = name or ("the root directory" if inode == 256 else "")
    return f"inode {inode} ({name})" if name not in ("", "..") else f"inode {inode}"


def _named(node: bytes) -> Iterator[tuple[int, str]]:
    """(inode, name) of the back references of a leaf."""
    for objectid, kind, _, item in _items(node):
        if kind == _INODE_REF and (length := le(item, 8, 2)):
            yield objectid, shown_name(item[10 : 10 + length])


def _items(node: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(object, type, offset, bytes) of each item of a leaf; nothing of a node above."""
    if le(node, 0x64, 1):
        return
    for n in range(min(le(node, 0x60, 4), (len(node) - _HEADER_BYTES) // _ITEM_BYTES)):
        at = _HEADER_BYTES + n * _ITEM_BYTES
        start, size = _HEADER_BYTES + le(node, at + 17, 4), le(node, at + 21, 4)
        yield le(node, at, 8), le(node, at + 8, 1), le(node, at + 9, 8), node[start : start + size]
