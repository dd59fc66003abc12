"""A journaling file system in miniature, written independently of the oracles, to try them on.

It imitates ext4, not the rules of `allowance`: a page cache, a block map, delayed
allocation, unwritten extents, transactions that commit whole, a disk with a volatile cache that loses
sectors. Every operation is a generator that yields between its transaction handles; at each of these
places anything that a kernel does in the background may happen, and the power may fail. What it shows
after a power cut is legal by construction, unless a `bug` was planted.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from harness.model import Extent, ExtentKind, FileKind, Operation, OperationKind, TreeEntry
from harness.oracles.contract import Contract
from harness.oracles.pattern import POISON, fill, word
from harness.oracles.persistence import OF_NAMES

K = OperationKind
PAGE = 4096
SECTOR = 512
ROOT = 1


@dataclass
class Block:
    """Where a page of a file lives. With data=journal `data` is in the journal instead."""

    place: int
    unwritten: bool
    data: bytes = b""


@dataclass
class Inode:
    kind: str
    mode: int
    target: bytes = b""
    size: int = 0
    owner: tuple[int, int] = (0, 0)
    flags: frozenset[str] = frozenset()
    xattrs: dict[str, bytes] = field(default_factory=dict)
    blocks: dict[int, Block] = field(default_factory=dict)


@dataclass
class Metadata:
    names: dict[str, int] = field(default_factory=dict)
    inodes: dict[int, Inode] = field(default_factory=lambda: {ROOT: Inode("directory", 0o755)})
    flagged: bool = False


@dataclass
class InFlight:
    inode: int
    page: int
    place: int
    data: bytes
    unwritten: bool


class PowerCut(Exception):
    """Raised out of an operation when the power fails."""


class SimpleDisk:
    """`steps` counts down to the power cut. `bugs`: names of planted bugs; see where each is tested."""

    def __init__(self, contract: Contract, random: Random, steps: int, bugs: frozenset[str] = frozenset()):
        self.contract, self.random, self.steps, self.bugs = contract, random, steps, bugs
        self.delayed = contract.size_lags
        self.meta = Metadata()
        self.committed = copy.deepcopy(self.meta)
        self.transaction = 1
        self.sync_tid: dict[int, int] = {}
        self.datasync_tid: dict[int, int] = {}
        self.sizes: dict[int, int] = {}  # i_size; the inode's size is i_disksize
        self.pages: dict[tuple[int, int], bytearray] = {}
        self.dirty: set[tuple[int, int]] = set()
        self.ordered: set[tuple[int, int]] = set()
        self.flying: list[InFlight] = []
        self.cached: list[tuple[int, bytes]] = []
        self.platter: dict[int, bytes] = {}
        self.next_place = 100
        self.next_inode = 10
        self.handles: dict[str, int] = {}
        self.aside: dict[int, list[tuple[int, bytes]]] = {}  # writes that wait for their commit
        self.background = random.choice([0.0, 0.1, 0.5])

    # --- what the kernel does by itself ---

    def step(self) -> None:
        self.steps -= 1
        while self.random.random() < self.background:
            what = self.random.choice(["commit", "write", "write", "complete", "complete", "destage"])
            if what == "commit":
                self.commit()
            elif what == "write" and self.dirty:
                self.write_page(*self.random.choice(sorted(self.dirty)))
            elif what == "complete" and self.flying:
                self.complete(self.random.choice(self.flying))
            elif what == "destage" and self.cached:
                self.tear(*self.random.choice(self.cached))
        if self.steps < 0:
            raise PowerCut

    def tear(self, place: int, data: bytes) -> None:
        """Some sectors of a write reach the platter. Of what is in the cache for one place, the
        oldest goes first, so newer data is not overtaken.
        """
        data = next(d for p, d in self.cached if p == place)
        old = bytearray(self.platter.get(place, poison(place)))
        for at in range(0, PAGE, SECTOR):
            if self.random.random() < 0.5:
                old[at : at + SECTOR] = data[at : at + SECTOR]
        self.platter[place] = bytes(old)

    def flush(self) -> None:
        for place, data in self.cached:
            self.platter[place] = data
        self.cached.clear()

    def commit(self) -> None:
        for inode, page in sorted(self.ordered):
            known = self.meta.inodes.get(inode)
            if known and page in known.blocks and "unordered" not in self.bugs:
                self.write_page(inode, page)
                self.finish(inode, page)
        self.ordered.clear()
        if "no-flush" not in self.bugs:
            self.flush()
        self.committed = copy.deepcopy(self.meta)
        self.transaction += 1

    def touch(self, inode: int, data: bool = False) -> None:
        self.sync_tid[inode] = self.transaction
        if data:
            self.datasync_tid[inode] = self.transaction

    def order(self, inode: int, page: int) -> None:
        if self.contract.data == "ordered":
            self.ordered.add((inode, page))

    def place(self) -> int:
        self.next_place += 1
        return self.next_place

    def write_page(self, inode: int, page: int) -> None:
        """Writeback: allocate if that was delayed, and send the page off."""
        if (inode, page) not in self.dirty:
            return
        self.finish(inode, page)
        node = self.meta.inodes[inode]
        if page not in node.blocks:
            node.blocks[page] = Block(self.place(), unwritten="early-written" not in self.bugs)
            self.touch(inode, data=True)
        reach = min(self.sizes[inode], (page + 1) * PAGE)
        if reach > node.size:
            node.size = reach
            self.touch(inode, data=True)
        block = node.blocks[page]
        data = bytearray(self.pages[inode, page])
        kept = max(0, min(PAGE, self.sizes[inode] - page * PAGE))
        data[kept:] = bytes(PAGE - kept)
        self.flying.append(InFlight(inode, page, block.place, bytes(data), block.unwritten))
        self.dirty.discard((inode, page))

    def complete(self, io: InFlight) -> None:
        self.flying.remove(io)
        self.cached.append((io.place, io.data))
        node = self.meta.inodes.get(io.inode)
        block = node.blocks.get(io.page) if node else None
        if io.unwritten and block and block.place == io.place:
            block.unwritten = False
            self.touch(io.inode, data=True)

    def finish(self, inode: int, page: int | None = None) -> None:
        for io in [i for i in self.flying if i.inode == inode and page in (None, i.page)]:
            self.complete(io)

    # --- operations ---

    def perform(self, index: int, op: Operation) -> None:
        for _ in getattr(self, "do_" + _METHOD.get(op.kind, op.kind.value))(index, op):
            self.step()
        if self.meta.flagged and op.kind in OF_NAMES and "dirsync-flag-does-nothing" not in self.bugs:
            paths = [op.target] if op.kind is K.LINK else [op.path, *[op.target] * (op.kind in _MOVES)]
            if any("D" in self.meta.inodes[self.parent(path)].flags for path in paths):
                self.commit()
                self.step()

    def parent(self, path: str) -> int:
        return self.meta.names[path.rpartition("/")[0]] if "/" in path else ROOT

    def find(self, path: str) -> int:
        if path in self.handles:
            return self.handles[path]
        return self.meta.names[path] if path else ROOT

    def new(self, op: Operation, kind: str, mode: int) -> int:
        self.next_inode += 1
        inode = self.next_inode
        targets = {"symlink": op.target.encode(), "char": b"1:3"}
        self.meta.inodes[inode] = Inode(kind, mode, targets.get(kind, b""))
        if kind == "directory":
            self.meta.inodes[inode].flags = self.meta.inodes[self.parent(op.path)].flags
        self.meta.names[op.path] = inode
        self.sizes[inode] = 0
        self.touch(inode, data=True)
        self.touch(self.parent(op.path))
        return inode

    def do_create(self, index: int, op: Operation) -> Iterator[None]:
        self.new(op, "file", 0o644)
        yield

    def do_tmpfile(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.new(op, "file", 0o644)
        if "tmpfile-named-early" not in self.bugs:
            del self.meta.names[op.path]
        yield
        for at in range(0, op.length, PAGE):
            self.write_chunk(inode, at, fill(index, at, min(PAGE, op.length - at)))
            yield
        self.meta.names[op.path] = inode
        for changed in (inode, self.parent(op.path)):
            self.touch(changed)
        yield

    def do_mmap(self, index: int, op: Operation) -> Iterator[None]:
        """The page fault that makes a page writable takes its own handle; the store comes after it."""
        inode, at, end = self.find(op.path), op.offset, op.offset + op.length
        if "past-end" in op.flags:
            last = self.sizes[inode] - 1
            self.write_chunk(
                inode, last, bytes(self.page(inode, last // PAGE)[last % PAGE : last % PAGE + 1])
            )
            yield
            if "past-end-kept" in self.bugs:
                self.page(inode, last // PAGE)[at % PAGE : at % PAGE + op.length] = fill(index, at, op.length)
            return
        while at < end:
            n = min(PAGE - at % PAGE, end - at)
            self.write_chunk(inode, at, bytes(self.page(inode, at // PAGE)[at % PAGE : at % PAGE + n]))
            yield
            self.write_chunk(inode, at, fill(index, at, n))
            at += n
            yield
        if "sync-range" in op.flags and "ranged-msync-does-nothing" not in self.bugs:
            pages = range(op.offset // PAGE, -(-end // PAGE))
            yield from self.persist(inode, data_only=True, pages=pages)
        elif "sync" in op.flags and "msync-does-nothing" not in self.bugs:
            yield from self.persist(inode, data_only=True)

    def do_mkdir(self, index: int, op: Operation) -> Iterator[None]:
        self.new(op, "directory", 0o755)
        yield

    def do_symlink(self, index: int, op: Operation) -> Iterator[None]:
        self.new(op, "symlink", 0o777)
        yield

    def do_link(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        self.meta.names[op.target] = inode
        self.touch(inode)
        self.touch(self.parent(op.target))
        yield

    def drop_name(self, path: str) -> None:
        inode = self.meta.names.pop(path)
        self.touch(inode)
        self.touch(self.parent(path))
        self.free(inode)

    def free(self, inode: int) -> None:
        """Unless it still has a name or is open."""
        if inode not in self.meta.names.values() and inode not in self.handles.values():
            self.finish(inode)
            del self.meta.inodes[inode]
            self.forget(inode, 0)

    def forget(self, inode: int, first: int, end: int = 1 << 40) -> None:
        """Drop pages of the cache."""
        for key in [k for k in self.pages if k[0] == inode and first <= k[1] < end]:
            del self.pages[key]
            self.dirty.discard(key)

    def do_unlink(self, index: int, op: Operation) -> Iterator[None]:
        self.drop_name(op.path)
        yield

    def do_rmdir(self, index: int, op: Operation) -> Iterator[None]:
        self.drop_name(op.path)
        yield

    def do_rename(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        if self.meta.names.get(op.target) == inode:
            return
        if op.target in self.meta.names:
            if self.contract.replace_is_safe and "no-auto-alloc" not in self.bugs:
                for key in sorted(k for k in self.dirty if k[0] == inode):
                    self.write_page(*key)
                yield
            self.drop_name(op.target)
        moved = {p: i for p, i in self.meta.names.items() if p == op.path or p.startswith(op.path + "/")}
        for path, there in moved.items():
            if "rename-keeps-old" not in self.bugs:
                del self.meta.names[path]
            self.meta.names[op.target + path.removeprefix(op.path)] = there
        for changed in (inode, self.parent(op.path), self.parent(op.target)):
            self.touch(changed)
        yield

    def do_exchange(self, index: int, op: Operation) -> Iterator[None]:
        names = self.meta.names
        one, other = names[op.path], names[op.target]
        if one == other:
            return
        names[op.path] = other
        if "exchange-forgets-one" not in self.bugs:
            names[op.target] = one
        for changed in (one, other, self.parent(op.path), self.parent(op.target)):
            self.touch(changed)
        yield

    def do_mkfifo(self, index: int, op: Operation) -> Iterator[None]:
        self.new(op, "fifo", 0o644)
        yield

    def do_mknod(self, index: int, op: Operation) -> Iterator[None]:
        self.new(op, "char", 0o644)
        yield

    def do_open(self, index: int, op: Operation) -> Iterator[None]:
        self.handles[op.target] = self.find(op.path)
        yield

    def do_nameless(self, index: int, op: Operation) -> Iterator[None]:
        self.next_inode += 1
        inode = self.handles[op.target] = self.next_inode
        self.meta.inodes[inode] = Inode("file", 0o644)
        self.sizes[inode] = 0
        self.touch(inode, data=True)
        yield

    def do_close(self, index: int, op: Operation) -> Iterator[None]:
        self.free(self.handles.pop(op.path))
        yield

    def do_writeback(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        for key in sorted(k for k in self.dirty if k[0] == inode):
            self.write_page(*key)
            yield

    def do_nothing(self, index: int, op: Operation) -> Iterator[None]:
        yield

    def do_chmod(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        self.meta.inodes[inode].mode = op.length
        self.touch(inode)
        yield

    def do_chown(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        self.meta.inodes[inode].owner = (op.offset, op.length)
        self.touch(inode)
        yield

    def do_clone(self, index: int, op: Operation) -> Iterator[None]:
        """Instead of sharing blocks it copies them, which looks the same."""
        source, target = self.find(op.path), self.find(op.target)
        for inode in (source, target):
            for key in sorted(k for k in self.dirty if k[0] == inode):
                self.write_page(*key)
                yield
            self.finish(inode)
        if not self.sizes[source]:
            return
        self.forget(target, 0)
        node = self.meta.inodes[target]
        node.blocks.clear()
        for page in [p for i, p in self.pages if i == source]:
            content = self.pages[target, page] = bytearray(self.pages[source, page])
            if self.contract.data == "journal":
                node.blocks[page] = Block(0, False, bytes(content))
            else:
                node.blocks[page] = Block(self.place(), unwritten=False)
                self.cached.append((node.blocks[page].place, bytes(content)))
        if "clone-forgets-size" not in self.bugs:
            node.size = self.sizes[source]
        self.sizes[target] = self.sizes[source]
        self.touch(target, data=True)
        yield

    def do_exchange_range(self, index: int, op: Operation) -> Iterator[None]:
        one, other = self.find(op.path), self.find(op.target)
        for inode in (one, other):
            for key in sorted(k for k in self.dirty if k[0] == inode):
                self.write_page(*key)
                yield
            self.finish(inode)
        a, b = self.meta.inodes[one], self.meta.inodes[other]
        a.blocks, b.blocks = b.blocks, a.blocks
        self.sizes[one], self.sizes[other] = self.sizes[other], self.sizes[one]
        if "exchange-keeps-sizes" not in self.bugs:
            a.size, b.size = self.sizes[one], self.sizes[other]
        theirs = {one: other, other: one}
        self.pages = {(theirs.get(i, i), page): data for (i, page), data in self.pages.items()}
        for inode in theirs:
            self.touch(inode, data=True)
        yield
        if "dsync" in op.flags:
            yield from self.persist(one, data_only=True)

    def do_setxattr(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        self.meta.inodes[inode].xattrs[op.name] = op.value
        self.touch(inode)
        yield

    def do_removexattr(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        del self.meta.inodes[inode].xattrs[op.name]
        self.touch(inode)
        yield

    def do_write(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        if inode in self.aside:
            self.write_aside(inode, index, op)
            yield
            return
        at = self.sizes[inode] if op.kind is K.APPEND else op.offset
        end = at + op.length
        if self.random.random() < 0.5:
            self.touch(inode)  # the clock has ticked: the modification time changes
            yield
        while at < end:
            n = min(PAGE - at % PAGE, end - at)
            self.write_chunk(inode, at, fill(index, at, n))
            at += n
            yield
        flags = set(op.flags)
        if "S" in self.meta.inodes[inode].flags and "sync-flag-does-nothing" not in self.bugs:
            flags.add("dsync")
        if {"sync", "dsync"} & flags and "sync-write-does-nothing" not in self.bugs:
            first = (end - op.length) // PAGE
            pages = range(first + ("sync-write-skips-a-page" in self.bugs), -(-end // PAGE))
            yield from self.persist(inode, data_only="sync" not in op.flags, pages=pages)

    def write_chunk(self, inode: int, at: int, data: bytes) -> None:
        node, page = self.meta.inodes[inode], at // PAGE
        content = self.page(inode, page)
        content[at % PAGE : at % PAGE + len(data)] = data
        end = at + len(data)
        grown = end > self.sizes[inode]
        self.sizes[inode] = max(self.sizes[inode], end)
        if self.contract.data == "journal":
            node.blocks[page] = Block(0, False, bytes(content))
            node.size = self.sizes[inode]
            self.touch(inode, data=True)
            return
        self.dirty.add((inode, page))
        block = node.blocks.get(page)
        if block is None and not self.delayed:
            node.blocks[page] = Block(self.place(), unwritten=False)
            self.order(inode, page)
            self.touch(inode, data=True)
        if grown and (not self.delayed or (block is not None and not block.unwritten)):
            node.size = self.sizes[inode]
            self.touch(inode, data=True)

    def page(self, inode: int, page: int) -> bytearray:
        return self.pages.setdefault((inode, page), bytearray(PAGE))

    def zero_part(self, inode: int, start: int, end: int, *, edge: bool = False) -> None:
        """Zero bytes of one page, in the cache and in the journal; `edge`: of a hole or a zeroed range."""
        page = start // PAGE
        node = self.meta.inodes[inode]
        self.page(inode, page)[start % PAGE : start % PAGE + end - start] = bytes(end - start)
        if page not in node.blocks:
            return
        if self.contract.data == "journal":
            node.blocks[page].data = bytes(self.page(inode, page))
        else:
            self.dirty.add((inode, page))
            if not edge or "zeroed-edges-lag" not in self.contract.rules:
                self.order(inode, page)

    def do_truncate(self, index: int, op: Operation) -> Iterator[None]:
        inode, size = self.find(op.path), op.length
        shrinks = size < self.sizes[inode]
        if size == self.sizes[inode]:
            return
        if shrinks:
            self.finish(inode)
        self.meta.inodes[inode].size = self.sizes[inode] = size
        self.touch(inode, data=True)
        yield
        if shrinks:
            first = -(-size // PAGE)
            if size % PAGE:
                self.zero_part(inode, size, first * PAGE)
            self.forget(inode, first)
            blocks = self.meta.inodes[inode].blocks
            for page in [p for p in blocks if p >= first and "truncate-keeps-blocks" not in self.bugs]:
                del blocks[page]
            yield

    def do_fallocate(self, index: int, op: Operation) -> Iterator[None]:
        inode, start, end = self.find(op.path), op.offset, op.offset + op.length
        node = self.meta.inodes[inode]
        size = self.sizes[inode]
        if {"collapse-range", "insert-range"} & set(op.flags):
            yield from self.shift(inode, start // PAGE, op.length // PAGE, "collapse-range" in op.flags)
            return
        if "punch-hole" in op.flags:
            if start < size:
                yield from self.punch(inode, start, min(end, -(-size // PAGE) * PAGE))
            return
        for page in range(start // PAGE, -(-end // PAGE)):
            if page not in node.blocks and (inode, page) not in self.dirty:
                node.blocks[page] = Block(self.place(), unwritten=True)
            if "keep-size" not in op.flags and min(end, (page + 1) * PAGE) > self.sizes[inode]:
                node.size = self.sizes[inode] = min(end, (page + 1) * PAGE)
            self.touch(inode, data=True)
            yield
        if "zero-range" in op.flags:
            yield from self.zero_range(inode, start, end)

    def shift(self, inode: int, start: int, length: int, collapses: bool) -> Iterator[None]:
        """Block by block, in a transaction each or in one for all."""
        for key in sorted(k for k in self.dirty if k[0] == inode and k[1] >= start):
            self.write_page(*key)
            yield
        self.finish(inode)
        self.forget(inode, start, start + length if collapses else start)
        by = -length if collapses else length
        self.pages = {
            (i, page + by * (i == inode and page >= start)): data for (i, page), data in self.pages.items()
        }
        node, step_by_step = self.meta.inodes[inode], self.random.random() < 0.5
        self.sizes[inode] += by * PAGE
        if not collapses:
            node.size = self.sizes[inode]
            self.touch(inode, data=True)
            if step_by_step:
                yield
        for page in range(start, start + length * collapses):
            node.blocks.pop(page, None)
        pages = sorted((p for p in node.blocks if p >= start), reverse=not collapses)
        for page in pages[: -1 if "shift-forgets-a-block" in self.bugs else None]:
            node.blocks[page + by] = node.blocks.pop(page)
            self.touch(inode, data=True)
            if step_by_step:
                yield
        node.size = self.sizes[inode]
        self.touch(inode, data=True)
        yield

    def do_copy(self, index: int, op: Operation) -> Iterator[None]:
        """Through the cache, page by page."""
        source, target = self.find(op.path), self.find(op.target)
        at, end = op.offset, op.offset + op.length
        while at < end:
            n = min(PAGE - at % PAGE, end - at)
            held = bytes(self.page(source, at // PAGE)[at % PAGE : at % PAGE + n])
            self.write_chunk(target, at, bytes(n) if "copy-writes-zeros" in self.bugs else held)
            at += n
            yield

    def do_subvolume(self, index: int, op: Operation) -> Iterator[None]:
        self.new(op, "directory", 0o755)
        yield

    def do_snapshot(self, index: int, op: Operation) -> Iterator[None]:
        """The data of the source is written first; then one transaction makes everything."""
        yield from self.do_sync(index, op)
        names, above = self.meta.names, f"{op.path}/" if op.path else ""
        inside = {p.removeprefix(above): inode for p, inode in names.items() if p.startswith(above)}
        copies: dict[int, int] = {}
        for path, inode in {"": self.find(op.path), **inside}.items():
            if inode not in copies:
                copies[inode] = self.copy_inode(inode)
            names[f"{op.target}/{path}" if path else op.target] = copies[inode]
            if "snapshot-in-two" in self.bugs:
                self.commit()
                yield
        self.touch(self.parent(op.target))
        if "snapshot-without-commit" not in self.bugs:
            self.commit()
        yield

    def copy_inode(self, inode: int) -> int:
        self.next_inode += 1
        copied = self.next_inode
        node = self.meta.inodes[copied] = copy.deepcopy(self.meta.inodes[inode])
        self.sizes[copied] = self.sizes.get(inode, 0)
        for page, block in node.blocks.items():
            content = self.pages[copied, page] = bytearray(self.page(inode, page))
            if self.contract.data == "journal":
                continue
            block.place = self.place()
            self.cached.append((block.place, bytes(content)))
        self.touch(copied, data=True)
        return copied

    def do_subvolume_delete(self, index: int, op: Operation) -> Iterator[None]:
        inside = [p for p in self.meta.names if f"{p}/".startswith(f"{op.path}/")]
        for path in sorted(inside, reverse=True):  # a directory after what is in it
            self.drop_name(path)
        yield

    def do_start_atomic(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        for key in sorted(k for k in self.dirty if k[0] == inode):
            self.write_page(*key)
        self.finish(inode)
        self.aside[inode] = []
        yield

    def write_aside(self, inode: int, index: int, op: Operation) -> None:
        size = max([self.sizes[inode], *(at + len(data) for at, data in self.aside[inode])])
        at = size if op.kind is K.APPEND else op.offset
        self.aside[inode].append((at, fill(index, at, op.length)))

    def do_commit_atomic(self, index: int, op: Operation) -> Iterator[None]:
        """Every page gets a new block, in one transaction; with a bug, in one for each write."""
        inode = self.find(op.path)
        for at, data in self.aside.pop(inode):
            self.move_pages(inode, at, data)
            if "atomic-in-parts" in self.bugs:
                self.commit()
                yield
        yield

    def move_pages(self, inode: int, at: int, data: bytes) -> None:
        node = self.meta.inodes[inode]
        self.sizes[inode] = node.size = max(self.sizes[inode], at + len(data))
        for page in range(at // PAGE, -(-(at + len(data)) // PAGE)):
            content = self.page(inode, page)
            first, last = max(at, page * PAGE), min(at + len(data), (page + 1) * PAGE)
            content[first % PAGE : first % PAGE + last - first] = data[first - at : last - at]
            if self.contract.data == "journal":
                node.blocks[page] = Block(0, False, bytes(content))
            else:
                node.blocks[page] = Block(self.place(), unwritten=False)
                self.cached.append((node.blocks[page].place, bytes(content)))
        self.touch(inode, data=True)

    def do_abort_atomic(self, index: int, op: Operation) -> Iterator[None]:
        del self.aside[self.find(op.path)]
        yield

    def do_shutdown(self, index: int, op: Operation) -> Iterator[None]:
        if not op.flags:
            yield from self.do_sync(index, op)
        yield

    def do_chattr(self, index: int, op: Operation) -> Iterator[None]:
        sign, letter = op.value[:1].decode(), op.value[1:].decode()
        node = self.meta.inodes[self.find(op.path)]
        node.flags = node.flags | {letter} if sign == "+" else node.flags - {letter}
        self.meta.flagged = True
        self.touch(self.find(op.path))
        yield

    def do_verity(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        for key in sorted(k for k in self.dirty if k[0] == inode):
            self.write_page(*key)
            yield
        self.finish(inode)
        yield
        self.meta.inodes[inode].xattrs["verity"] = b""
        self.touch(inode)
        yield

    def do_touch(self, index: int, op: Operation) -> Iterator[None]:
        self.touch(self.find(op.path))
        yield

    def zero_range(self, inode: int, start: int, end: int) -> Iterator[None]:
        self.finish(inode)
        if end >= self.sizes[inode]:  # ext4_update_disksize_before_punch
            self.meta.inodes[inode].size = self.sizes[inode]
        first, last = -(-start // PAGE), end // PAGE
        self.forget(inode, first, last)
        for page in range(first, last):
            self.meta.inodes[inode].blocks[page] = Block(self.place(), unwritten=True)
            self.touch(inode, data=True)
            yield
        self.zero_edges(inode, start, end)
        self.touch(inode, data=True)
        yield

    def zero_edges(self, inode: int, start: int, end: int) -> None:
        low, high = -(-start // PAGE) * PAGE, end // PAGE * PAGE
        for a, b in [(start, end)] if low > high else [(start, low), (high, end)]:
            if a < b:
                self.zero_part(inode, a, b, edge=True)

    def punch(self, inode: int, start: int, end: int) -> Iterator[None]:
        self.finish(inode)
        node = self.meta.inodes[inode]
        if end >= self.sizes[inode] > node.size:
            node.size = self.sizes[inode]
            self.touch(inode, data=True)
            yield
        self.zero_edges(inode, start, end)
        first, last = -(-start // PAGE), end // PAGE
        self.forget(inode, first, last)
        for page in [p for p in node.blocks if first <= p < last]:
            del node.blocks[page]
        self.touch(inode, data=True)
        yield

    # --- persistence ---

    def persist(self, inode: int, data_only: bool, pages: range | None = None) -> Iterator[None]:
        """fsync or fdatasync; where `pages` are given, only they are written and waited for."""
        if "fsync-does-nothing" in self.bugs:
            yield
            return
        for key in sorted(k for k in self.dirty if k[0] == inode and (pages is None or k[1] in pages)):
            self.write_page(*key)
            yield
        for page in [None] if pages is None else pages:
            self.finish(inode, page)
        tids = {self.datasync_tid.get(inode), None if data_only else self.sync_tid.get(inode)}
        if self.transaction in tids:
            self.commit()
        elif "no-flush" not in self.bugs:
            self.flush()
        yield

    def do_fsync(self, index: int, op: Operation) -> Iterator[None]:
        inode = self.find(op.path)
        yield from self.persist(inode, data_only=op.kind is K.FDATASYNC)

    def do_sync(self, index: int, op: Operation) -> Iterator[None]:
        for key in sorted(self.dirty):
            self.write_page(*key)
            yield
        for io in list(self.flying):
            self.complete(io)
        self.commit()
        yield

    # --- after the power cut ---

    def recovered(self) -> dict[str, TreeEntry]:
        """What a mount shows."""
        for io in self.flying:
            self.cached.append((io.place, io.data))
        for _ in range(self.random.choice([0, 1, 2, len(self.cached) * 2])):
            if self.cached:
                self.tear(*self.random.choice(self.cached))
        meta = self.committed
        links: dict[int, int] = {}
        for inode in meta.names.values():
            links[inode] = links.get(inode, 0) + 1
        tree = {"": entry("", ROOT, meta.inodes[ROOT], 2, b"")}
        for path, inode in sorted(meta.names.items()):
            node = meta.inodes.get(inode, Inode("file", 0o644))
            tree[path] = entry(path, inode, node, links[inode], self.read(node))
        return tree

    def read(self, node: Inode) -> bytes:
        content = bytearray(node.size)
        for page, block in node.blocks.items():
            if block.unwritten:
                continue
            data = block.data or self.platter.get(block.place, poison(block.place))
            at = page * PAGE
            if at < node.size:
                content[at : at + PAGE] = data[: max(0, min(PAGE, node.size - at))]
        return bytes(content)


_MOVES = (K.RENAME, K.EXCHANGE)
_METHOD = {
    K.APPEND: "write",
    K.EXCHANGE_RANGE: "exchange_range",
    K.SUBVOLUME_DELETE: "subvolume_delete",
    K.START_ATOMIC: "start_atomic",
    K.COMMIT_ATOMIC: "commit_atomic",
    K.ABORT_ATOMIC: "abort_atomic",
    K.GC: "nothing",
    K.COPY_RANGE: "copy",
    K.ENABLE_VERITY: "verity",
    K.FDATASYNC: "fsync",
    K.MMAP_WRITE: "mmap",
    K.SYNC_FILE_RANGE: "writeback",
    K.BEGIN_SYNC: "nothing",
    K.WRITE_BACK: "nothing",
    K.DROP_CACHES: "nothing",
    K.OPEN_TMPFILE: "nameless",
    K.REMOUNT: "sync",
    K.CRASH: "sync",
}


def poison(block: int) -> bytes:
    return struct.pack("<Q", word(POISON, block)) * (PAGE // 8)


def entry(path: str, inode: int, node: Inode, links: int, content: bytes) -> TreeEntry:
    """A recovered name, as the agent tells it."""
    return TreeEntry(
        path=path,
        kind=FileKind(node.kind),
        inode=inode,
        mode=node.mode,
        links=2 if node.kind == "directory" else links,
        uid=node.owner[0],
        gid=node.owner[1],
        size=len(content),
        blocks=0,
        target=node.target,
        xattrs=node.xattrs,
        extents=tuple(classify(content)) if node.kind == "file" else (),
    )


def classify(content: bytes) -> Iterator[Extent]:
    """Origins of a file's bytes, word by word, as `vms/agent/src/classify.rs` does it."""
    start = 0
    open_run: tuple[ExtentKind, int, int] | None = None
    for at in range(0, len(content), 8):
        origin = _origin(content[at : at + 8], at, open_run)
        if open_run is not None and origin != open_run:
            yield _run(open_run, start, at, content)
            start = at
        open_run = origin
    if open_run is not None:
        yield _run(open_run, start, len(content), content)


def _origin(data: bytes, at: int, before: tuple[ExtentKind, int, int] | None) -> tuple[ExtentKind, int, int]:
    if not any(data):
        return ExtentKind.ZERO, 0, 0
    if len(data) < 8:
        if before and before[0] is ExtentKind.WRITTEN and data == fill(before[1], at, len(data)):
            return before
        return ExtentKind.LITERAL, 0, 0
    number = int.from_bytes(data, "little")
    writer, place = number >> 16 & 0xFFFF, number >> 32
    if word(writer, place) != number:
        return ExtentKind.LITERAL, 0, 0
    if writer == POISON:
        return ExtentKind.POISON, place, 0
    if place == at // 8:
        return ExtentKind.WRITTEN, writer, 0
    return ExtentKind.MISPLACED, writer, place * 8 - at


def _run(origin: tuple[ExtentKind, int, int], start: int, end: int, content: bytes) -> Extent:
    kind, value, distance = origin
    if kind is ExtentKind.LITERAL:
        long = end - start > 64
        data = content[start : min(end, start + 64)]
        return Extent(ExtentKind.FOREIGN if long else kind, start, end - start, data=data)
    return Extent(kind, start, end - start, value, start + distance if kind is ExtentKind.MISPLACED else 0)
