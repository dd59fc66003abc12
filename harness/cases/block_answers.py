"""Answers that depend on some blocks of the disk alone, by the contents of these."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from harness.guests.disk import Disk


class _Answer(Protocol):
    @property
    def blocks(self) -> tuple[int, ...] | None: ...


AnswerT = TypeVar("AnswerT", bound=_Answer)
Told = tuple[tuple[int, ...], tuple[bytes, ...], AnswerT]
"""An answer, the blocks that were read for it, and the hashes of their contents."""


class BlockAnswers(Generic[AnswerT]):
    """A cache of answers, by the contents of the blocks that were read for them. Thread-safe.

    A program that reads the same blocks with the same contents does the same: a disk that agrees with an
    earlier one on every block that was read there has the same answer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[tuple[int, ...], dict[tuple[bytes, ...], AnswerT]] = {}
        self._blocks: list[int] = []
        self._new: list[Told[AnswerT]] = []

    def recall(self, disk: Disk) -> AnswerT | None:
        """The answer for the state that the disk shows now, if it is known."""
        with self._lock:
            blocks, shapes = list(self._blocks), list(self._answers.items())
        if not shapes:
            return None
        hashes = dict(zip(blocks, disk.block_hashes(blocks), strict=True))
        for read, answers in shapes:
            found = answers.get(tuple(hashes[b] for b in read))
            if found is not None:
                return found
        return None

    def remember(self, disk: Disk, answer: AnswerT) -> None:
        """Keep the answer for the state that the disk shows now, unless its reads are not known. One that
        came without a read is not kept either: it would be the answer for every state.
        """
        if not answer.blocks:
            return
        told = (answer.blocks, tuple(disk.block_hashes(answer.blocks)), answer)
        self.hear([told])
        with self._lock:
            self._new.append(told)

    def told(self) -> list[Told[AnswerT]]:
        """What was remembered since this was asked last, for another process to `hear`."""
        with self._lock:
            new, self._new = self._new, []
            return new

    def hear(self, told: Iterable[Told[AnswerT]]) -> None:
        """Keep answers that another process remembered."""
        with self._lock:
            for blocks, contents, answer in told:
                self._answers.setdefault(blocks, {})[contents] = answer
                self._blocks = sorted({*self._blocks, *blocks})
