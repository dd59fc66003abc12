"""The same records without bcc: from the lines of tracefs' `trace` (Documentation/trace/events.rst).

Used when there are no headers for a kernel, so that bcc cannot compile. The kernel prints each event as text;
events are combined into records here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from harness.filesystems.tracepoints import SpanEvents
from harness.tracing.records import Checkpoint, Commit, Lost, Record, Span

# "  jbd2/vdb-8-123  [000] .....    12.345678: jbd2_start_commit: dev 254,16 transaction 3 sync 0"
_LINE = re.compile(
    r"^\s*.*?-(?P<task>\d+)\s+\[\d+\]\s+\S+\s+(?P<seconds>\d+)\.(?P<micros>\d{6}): (?P<event>[^:( ]+)"
    r"(?P<rest>.*)$"
)
_ENTRIES = re.compile(r"^# entries-in-buffer/entries-written: (\d+)/(\d+)", re.MULTILINE)
_NUMBERS = re.compile(r"(\w+) (\d+)(?=\s|$)")


@dataclass
class _Open:
    """What has begun and not ended: the commit under way by phases, everything else by a key."""

    commit: dict[str, int] = field(default_factory=dict)
    spans: dict[str, int] = field(default_factory=dict)


def parse_trace(text: str, disk: tuple[int, int], spans: Sequence[SpanEvents]) -> list[Record]:
    """The records in a `trace` file for the disk MAJOR,MINOR; what began before it is left out. Commits of
    jbd2 and calls of fsync are always among them; `spans` define others.

    If the ring buffer was too small for all events, the last record says how many are missing.
    """
    found: list[Record] = []
    begun = _Open()
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match:
            at_us = int(match["seconds"]) * 1_000_000 + int(match["micros"])
            event, rest = match["event"], match["rest"]
            if _is_of(rest, disk):
                found += _event(event, rest, match["task"], at_us, begun)
                found += _spans(event + rest, at_us, spans, begun)
    entries = _ENTRIES.search(text)
    if entries and (missing := int(entries[2]) - int(entries[1])) > 0:
        found.append(Lost(missing))
    return found


def _event(event: str, rest: str, task: str, at_us: int, begun: _Open) -> Iterator[Record]:
    if event in ("sys_fsync", "sys_fdatasync"):
        yield from _span(begun, f"fsync {task}", "fsync", at_us, end=rest.startswith(" ->"))
    elif event.endswith(("sync_file_enter", "sync_file_exit")):
        yield from _span(begun, f"fsync {task}", "fsync", at_us, end=event.endswith("exit"))
    elif handler := _JBD2.get(event):
        yield from handler(dict(_numbers(rest)), at_us, begun)


def _spans(event: str, at_us: int, spans: Sequence[SpanEvents], begun: _Open) -> Iterator[Record]:
    for span in spans:
        if span.begins(event):
            yield from _span(begun, span.place(event), span.what, at_us, end=False)
        elif span.ends(event) and not span.begin:
            yield Span(span.what, at_us)
        elif span.ends(event):
            yield from _span(begun, span.place(event), span.what, at_us, end=True)


def _is_of(rest: str, disk: tuple[int, int]) -> bool:
    """Whether an event is of that disk: `dev 254,16`, `dev 254:16`, `dev = (254,16)`. One that names no disk
    is of any.
    """
    match = re.search(r"dev(?: =)? \(?(\d+)[,:](\d+)", rest)
    return match is None or (int(match[1]), int(match[2])) == disk


def _numbers(rest: str) -> list[tuple[str, int]]:
    return [(name, int(value)) for name, value in _NUMBERS.findall(rest)]


def _span(begun: _Open, key: str, what: str, at_us: int, *, end: bool) -> Iterator[Record]:
    if not end:
        begun.spans[key] = at_us
    elif (since := begun.spans.pop(key, None)) is not None:
        yield Span(what, since, at_us - since)


# --- jbd2 ------------------------------------------------------------------------------------

_Numbers = dict[str, int]


def _start(numbers: _Numbers, at_us: int, begun: _Open) -> Iterator[Record]:
    begun.commit = {"transaction": numbers["transaction"], "sync": numbers.get("sync", 0), "start": at_us}
    yield from ()


def _phase(name: str) -> Callable[[_Numbers, int, _Open], Iterator[Record]]:
    def note(_: _Numbers, at_us: int, begun: _Open) -> Iterator[Record]:
        begun.commit[name] = at_us
        yield from ()

    return note


def _stats(numbers: _Numbers, _: int, begun: _Open) -> Iterator[Record]:
    for name in ("handle_count", "blocks", "blocks_logged"):
        begun.commit[name] = numbers.get(name, 0)
    yield from ()


def _end(numbers: _Numbers, at_us: int, begun: _Open) -> Iterator[Record]:
    c, begun.commit = begun.commit, {}
    if not {"start", "locking", "flushing", "logging"} <= c.keys():
        return
    if c["transaction"] != numbers["transaction"]:
        return
    yield Commit(
        at_us=c["start"],
        transaction=c["transaction"],
        starting_us=c["locking"] - c["start"],
        locked_us=c["flushing"] - c["locking"],
        flushing_us=c["logging"] - c["flushing"],
        logging_us=at_us - c["logging"],
        sync=c["sync"],
        handles=c.get("handle_count", 0),
        blocks=c.get("blocks", 0),
        logged=c.get("blocks_logged", 0),
    )


def _checkpoint(numbers: _Numbers, at_us: int, _: _Open) -> Iterator[Record]:
    yield Checkpoint(
        at_us=at_us,
        transaction=numbers["tid"],
        ms=numbers.get("chp_time", 0),
        written=numbers.get("written", 0),
        dropped=numbers.get("dropped", 0),
        forced=numbers.get("forced_to_close", 0),
    )


_JBD2: dict[str, Callable[[_Numbers, int, _Open], Iterator[Record]]] = {
    "jbd2_start_commit": _start,
    "jbd2_commit_locking": _phase("locking"),
    "jbd2_commit_flushing": _phase("flushing"),
    "jbd2_commit_logging": _phase("logging"),
    "jbd2_run_stats": _stats,
    "jbd2_end_commit": _end,
    "jbd2_checkpoint_stats": _checkpoint,
}
