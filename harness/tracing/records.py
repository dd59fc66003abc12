"""The records of probes, one for each event that has ended; the same from bcc and from tracefs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class Commit(msgspec.Struct, frozen=True, tag="commit", forbid_unknown_fields=True):
    """A commit of jbd2 (fs/jbd2/commit.c), from `jbd2_start_commit` to `jbd2_end_commit`.

    `at_us`: when it began, on the guest's CLOCK_MONOTONIC. Microseconds of its phases: `starting_us` until
    the journal takes the transaction (`jbd2_commit_locking`), `locked_us` until its handles have ended
    (`jbd2_commit_flushing`), `flushing_us` until its data has been submitted (`jbd2_commit_logging`),
    `logging_us` until its blocks and its commit record are in the log. `sync`: 1 where somebody waits for it.
    `handles`: changes that it is made of; `blocks`: credits that it had; `logged`: blocks written to the log
    (`jbd2_run_stats`).
    """

    at_us: int
    transaction: int
    starting_us: int
    locked_us: int
    flushing_us: int
    logging_us: int
    sync: int = 0
    handles: int = 0
    blocks: int = 0
    logged: int = 0

    @property
    def us(self) -> int:
        """The whole commit."""
        return self.starting_us + self.locked_us + self.flushing_us + self.logging_us


class Checkpoint(msgspec.Struct, frozen=True, tag="checkpoint", forbid_unknown_fields=True):
    """A transaction of jbd2 that left the log (`jbd2_checkpoint_stats`). `ms`: of writing it to its place, in
    steps of a jiffy; `written`, `dropped`: buffers; `forced`: times that a handle waited for room in the log.
    """

    at_us: int
    transaction: int
    ms: int = 0
    written: int = 0
    dropped: int = 0
    forced: int = 0


class Span(msgspec.Struct, frozen=True, tag="span", forbid_unknown_fields=True):
    """Something else that took time: `what` is `fsync`, or as the file system's `[tracing]` names it.
    `us` None: the kernel does not tell when it begins, so it is counted and not timed.
    """

    what: str
    at_us: int
    us: int | None = None


class Lost(msgspec.Struct, frozen=True, tag="lost", forbid_unknown_fields=True):
    """That many records, or events, are missing because the buffer was full."""

    records: int


Record = Commit | Checkpoint | Span | Lost

_decoder = msgspec.json.Decoder(Record)


def decode_lines(text: str) -> list[Record]:
    """Records from JSON lines. Raises msgspec.MsgspecError for a line that is not a record."""
    return [_decoder.decode(line) for line in text.splitlines() if line.strip()]


def encode_lines(records: Iterable[Record]) -> bytes:
    """Inverse of `decode_lines`."""
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def latencies_us(records: Sequence[Record], what: str) -> list[int]:
    """How long each thing of the name `what` took (`commit`, or as in `Span`), in order."""
    if what == "commit":
        return [r.us for r in records if isinstance(r, Commit)]
    return [r.us for r in records if isinstance(r, Span) and r.what == what and r.us is not None]
