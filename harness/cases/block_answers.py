"""Answers that depend on some blocks of the disk alone, by the contents of these."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
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
        if unknown := [block for block in dict.fromkeys(blocks) if block not in self._known]:
            self._known.update(zip(unknown, self._disk.block_hashes(unknown), strict=True))
        return tuple(self._known[block] for block in blocks)


class BlockAnswers(Generic[AnswerT]):
    """A cache of answers, by the contents of the blocks that were read for them. Thread-safe. It begins anew
    where it would hold more than `blocks_max` blocks.

    A program that reads the same blocks with the same contents does the same: a disk that agrees with an
    earlier one on every block that was read there has the same answer.
    """

    def __init__(self, blocks_max: int = BLOCKS_MAX) -> None:
        self._lock = threading.Lock()
        self._blocks_max, self._held = blocks_max, 0
        self._answers: dict[tuple[int, ...], dict[tuple[bytes, ...], AnswerT]] = {}
        self._blocks: list[int] = []
        self._new: list[Message[AnswerT]] = []

    @property
    def blocks(self) -> Sequence[int]:
        """All that were read for an answer."""
        with self._lock:
            return self._blocks

    def recall(self, hashes: Hashes) -> AnswerT | None:
        """The answer for what a disk shows now, if it is known."""
        with self._lock:
            blocks, shapes = self._blocks, list(self._answers.items())
        hashes.of(blocks)  # in one message
        for read, answers in shapes:
            found = answers.get(hashes.of(read))
            if found is not None:
                return found
        return None

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
                self._held += len(blocks)
                if self._held > self._blocks_max:
                    self._answers, self._blocks, self._held = {}, [], len(blocks)
                self._answers.setdefault(blocks, {})[contents] = answer
                self._blocks = sorted({*self._blocks, *blocks})
