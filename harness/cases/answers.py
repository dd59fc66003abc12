"""Answers of fsck, and of a second mount and writing, by the blocks that they depend on.

Both depend on those contents alone, whichever case left them: cases of one mode begin alike, and many of
their crash states recover to the same. So the workers of a run share them, for each mode and base image.
"""

from __future__ import annotations

import pickle
import threading

from harness.cases.block_answers import Hashes
from harness.cases.fsck_reads import FsckAnswers
from harness.cases.recording import Recording
from harness.cases.use_reads import UseAnswers
from harness.guests.disk import Disk

MESSAGES_MAX = 4000
"""Messages that workers send one another, a few KiB each; then they begin anew."""

BYTES_MAX = 64 << 20
"""Bytes of messages that are kept for those that come later; one of NILFS2's has some 100 KiB. Beyond them
nothing more is shared.
"""

Key = tuple[str, str, int]
"""Of what answers may be recalled for: the mode, its base image, and how often it has begun anew."""


class Answers:
    """Thread-safe. `use`: of a second mount with writing, `look`: of one alone."""

    def __init__(self) -> None:
        self.fsck = FsckAnswers()
        self.use, self.look = UseAnswers(), UseAnswers()

    def hashes(self, disk: Disk) -> Hashes:
        """The hashes of the disk's present contents, those of all blocks on which an answer depends included.
        Raises DiskError.
        """
        hashes = Hashes(disk)
        hashes.known((*self.fsck.blocks, *self.use.blocks, *self.look.blocks))
        return hashes

    def message(self) -> bytes:
        """The answers learned since the last call, for another process to recall; empty: none."""
        told = (self.fsck.messages(), self.use.messages(), self.look.messages())
        return pickle.dumps(told) if any(told) else b""

    def receive(self, message: bytes) -> None:
        """Learn what another process of this run noted."""
        fsck, use, look = pickle.loads(message)  # noqa: S301 - from this program: see `harness.cases.remote`
        self.fsck.receive(fsck)
        self.use.receive(use)
        self.look.receive(look)


class Messages:
    """What processes noted for one another, each with who noted it, up to `bytes_max`. It only grows.
    Thread-safe.
    """

    def __init__(self, key: Key = ("", "", 0), bytes_max: int = BYTES_MAX) -> None:
        self.key = key
        self._left = bytes_max
        self.mismatched = False
        """An answer was not the one that was known: what was noted here is told to no further case."""
        self._messages: list[tuple[object, bytes]] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, who: object, message: bytes) -> None:
        """Nothing is added if the note is empty, or too large for what is left."""
        if message and len(message) <= self._left:
            self._left -= len(message)
            self._messages.append((who, message))

    def since(self, received: int, who: object) -> tuple[tuple[bytes, ...], int]:
        """All but those of `who` itself, and how many there are by now. `received`: how many there were."""
        new = self._messages[received:]
        return tuple(message for by, message in new if by is not who), received + len(new)


class SharedMessages:
    """Of one run: one kernel, one kind of guest that visits. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: dict[tuple[str, str], Messages] = {}

    def of(self, recording: Recording) -> Messages:
        """The notes on file systems that were made alike."""
        of = (recording.profile.name, str(recording.target.base))
        with self._lock:
            messages = self._messages.get(of)
            if messages is not None and not messages.mismatched and len(messages) < MESSAGES_MAX:
                return messages
            anew = Messages((*of, messages.key[2] + 1 if messages is not None else 0))
            anew.mismatched = (
                messages is not None and messages.mismatched
            )  # what does not repeat itself is shared no more
            self._messages[of] = anew
            return anew
