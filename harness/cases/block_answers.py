"""Answers that depend on some blocks of the disk alone, by the contents of these."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from harness.guests.disk import Disk


class _Answer(Protocol):
    @property
    def blocks(self) -> tuple[int, ...] | None: ...


BLOCKS_MAX = 400_000
"""Blocks of all answers that are kept, each with its hash: some 100 bytes. A recovery that looks for the end
of a log, as NILFS2's, reads thousands.
"""

AnswerT = TypeVar("AnswerT", bound=_Answer)
Contents = tuple[bytes | None, ...]
Message = tuple[tuple[int, ...], tuple[bytes, ...], AnswerT]
"""An answer, the blocks that were read for it, and the hashes of their contents."""


class Hashes:
    """Of blocks of what a disk shows, each asked for once: nothing is to write to it meanwhile."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._known: dict[int, bytes] = {}

    def of(self, blocks: Iterable[int]) -> tuple[bytes, ...]:
        """Their hashes, in the same order. Raises DiskError."""
        blocks = tuple(blocks)
        return tuple(map(self.known(blocks).__getitem__, blocks))

    def known(self, blocks: Iterable[int]) -> Mapping[int, bytes]:
        """The hashes of these blocks, and of others that were asked for before. Raises DiskError."""
        if unknown := sorted(dict.fromkeys(blocks).keys() - self._known.keys()):
            self._known.update(zip(unknown, self._disk.block_hashes(unknown), strict=True))
        return self._known


class _Node(Generic[AnswerT]):
    """Where the reads of some answers are alike so far. A program that read the same contents reads the same
    block next, so there is one branch; more where the order of reads is left to chance.
    """

    __slots__ = ("answer", "branches")

    def __init__(self, branches: Iterable[_Branch[AnswerT]] = ()) -> None:
        self.answer: AnswerT | None = None
        self.branches = list(branches)

    def recall(self, hash_of: Callable[[int], bytes | None]) -> AnswerT | None:
        """An answer whose blocks all have these hashes."""
        nodes = [self]
        while nodes:
            node = nodes.pop()
            if node.answer is not None:
                return node.answer
            for branch in node.branches:
                child = branch.next.get(tuple(map(hash_of, branch.read)))
                if child is not None:
                    nodes.append(child)
        return None

    def keep(self, blocks: tuple[int, ...], contents: tuple[bytes, ...], answer: AnswerT) -> None:
        """Recall the answer where these blocks have these contents."""
        node = self
        while blocks:
            branch = next((b for b in node.branches if b.read[0] == blocks[0]), None)
            if branch is None:
                node.branches.append(branch := _Branch(blocks, {}))
            common = branch.share(blocks)
            node = branch.next.setdefault(contents[:common], _Node())
            blocks, contents = blocks[common:], contents[common:]
        node.answer = answer


class _Branch(Generic[AnswerT]):
    """Blocks that are read one after the other, and what follows, by their contents."""

    __slots__ = ("next", "read")

    def __init__(self, read: tuple[int, ...], following: dict[Contents, _Node[AnswerT]]) -> None:
        self.read, self.next = read, following

    def share(self, blocks: tuple[int, ...]) -> int:
        """How many blocks these begin with as well; the branch ends behind them from now on."""
        pairs = zip(self.read, blocks, strict=False)
        common = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.read), len(blocks)))
        if common < len(self.read):
            nodes: dict[Contents, _Node[AnswerT]] = {}
            for contents, child in self.next.items():
                rest = _Branch[AnswerT](self.read[common:], {})
                node = nodes.setdefault(contents[:common], _Node([rest]))
                node.branches[0].next[contents[common:]] = child
            self.read, self.next = self.read[:common], nodes
        return common


class BlockAnswers(Generic[AnswerT]):
    """A cache of answers, by the contents of the blocks that were read for them, in the order of reading.
    Thread-safe. It begins anew where it would hold more than `blocks_max` blocks.

    A program that reads the same blocks with the same contents does the same: a disk that agrees with an
    earlier one on every block that was read there has the same answer. After hundreds of cases there are
    hundreds of lists of blocks, of hundreds each, so they are a tree: one path of it is walked, not each list
    (XFS under schedules: three quarters of a worker's time).
    """

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        self._lock = threading.Lock()
        self._blocks_max = blocks_max
        self._begin()
        self._new: list[Message[AnswerT]] = []

    def _begin(self) -> None:
        self._root, self._held = _Node[AnswerT](), 0
        self._blocks: list[int] = []

    @property
    def blocks(self) -> Sequence[int]:
        """All that were read for an answer."""
        with self._lock:
            return self._blocks

    def recall(self, hashes: Hashes) -> AnswerT | None:
        """The answer for what a disk shows now, if it is known."""
        hash_of = hashes.known(self.blocks).get  # in one message
        with self._lock:
            return self._root.recall(hash_of)

    def remember(self, hashes: Hashes, answer: AnswerT) -> None:
        """Keep the answer for what a disk shows now, unless its reads are not known. One that came without a
        read is not kept either: it would be the answer for every state.
        """
        if not answer.blocks:
            return
        told = (answer.blocks, hashes.of(answer.blocks), answer)
        self.receive([told])
        with self._lock:
            self._new.append(told)

    def messages(self) -> list[Message[AnswerT]]:
        """What was remembered since this was asked last, for another process to `hear`."""
        with self._lock:
            new, self._new = self._new, []
            return new

    def receive(self, told: Iterable[Message[AnswerT]]) -> None:
        """Keep answers that another process remembered."""
        with self._lock:
            for blocks, contents, answer in told:
                if self._held + len(blocks) > self._blocks_max:
                    self._begin()
                self._held += len(blocks)
                self._root.keep(blocks, contents, answer)
                self._blocks = sorted({*self._blocks, *blocks})
