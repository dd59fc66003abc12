"""Answers of fsck, and of a second mount and writing, by the blocks that they depend on.

Both depend on those contents alone, whichever case left them: cases of one mode begin alike, and many of
their crash states recover to the same. So the stations of a run share them, for each mode and base image.
"""

from __future__ import annotations

import pickle
import threading

from harness.cases.block_answers import Hashes
from harness.cases.fsck_reads import FsckAnswers
from harness.cases.recording import Recording
from harness.cases.use_reads import UseAnswers
from harness.guests.disk import Disk

NOTES_MAX = 4000
"""Notes that stations keep for one another, a few KiB each; then they begin anew."""

Key = tuple[str, str, int]
"""Of what answers may be recalled for: the mode, its base image, and how often it has begun anew."""


class Answers:
    """Thread-safe. `use`: of a second mount with writing, `look`: of one alone."""

    def __init__(self) -> None:
        self.fsck = FsckAnswers()
        self.use, self.look = UseAnswers(), UseAnswers()

    def hashes(self, disk: Disk) -> Hashes:
        """Of what the disk shows now, with those of all blocks on which an answer depends. Raises
        DiskError.
        """
        hashes = Hashes(disk)
        hashes.of((*self.fsck.blocks, *self.use.blocks, *self.look.blocks))
        return hashes

    def note(self) -> bytes:
        """What others may recall of what was learned since this was asked last; empty: nothing."""
        told = (self.fsck.told(), self.use.told(), self.look.told())
        return pickle.dumps(told) if any(told) else b""

    def hear(self, note: bytes) -> None:
        """Learn what another process of this run noted."""
        fsck, use, look = pickle.loads(note)  # noqa: S301 - from this program: see `harness.cases.remote`
        self.fsck.hear(fsck)
        self.use.hear(use)
        self.look.hear(look)


class Notes:
    """What processes noted for one another, each with who noted it. It only grows. Thread-safe."""

    def __init__(self, key: Key = ("", "", 0)) -> None:
        self.key = key
        self.doubted = False
        """An answer was not the one that was known: what was noted here is told to no further case."""
        self._notes: list[tuple[object, bytes]] = []

    def __len__(self) -> int:
        return len(self._notes)

    def add(self, who: object, note: bytes) -> None:
        """Nothing is added if the note is empty."""
        if note:
            self._notes.append((who, note))

    def since(self, heard: int, who: object) -> tuple[tuple[bytes, ...], int]:
        """All but those of `who` itself, and how many there are by now. `heard`: how many there were."""
        new = self._notes[heard:]
        return tuple(note for by, note in new if by is not who), heard + len(new)


class SharedNotes:
    """Of one run: one kernel, one kind of guest that visits. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[tuple[str, str], Notes] = {}

    def of(self, recording: Recording) -> Notes:
        """The notes on file systems that were made alike."""
        of = (recording.profile.name, str(recording.target.base))
        with self._lock:
            notes = self._notes.get(of)
            if notes is not None and not notes.doubted and len(notes) < NOTES_MAX:
                return notes
            anew = Notes((*of, notes.key[2] + 1 if notes is not None else 0))
            anew.doubted = (
                notes is not None and notes.doubted
            )  # what does not repeat itself is shared no more
            self._notes[of] = anew
            return anew
