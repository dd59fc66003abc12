"""Known bugs in words, the same on every page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.known.base import KnownBug, Record
from harness.known.match import Match

NEW = "new: it agrees with no known bug"


def named(match: Match | None) -> str:
    """`known: NAME (...)` for a line behind a finding; for a new finding, that it is new."""
    return f"known: {brief(match.bug)}" if match else NEW


def brief(bug: KnownBug) -> str:
    """`xfs-sync-no-flush (loses data that was synced; from 3.10 on; mended in 7.4)`."""
    record = bug.record
    return f"{bug.name} ({record.severity.words}; {kernels(record)})"


def kernels(record: Record) -> str:
    """The kernels that have a bug, so far as known."""
    last = f", last seen in {record.last}" if record.last and record.last != record.first else ""
    first = f"{'' if record.since else 'seen '}from {record.first} on"
    if not record.mended:
        return f"{first}{last}, not mended"
    return f"{first}, mended in {' and '.join(record.mended)}"


def details(match: Match) -> Iterator[str]:
    """Lines below a finding that is known: the bug, what was compared, what to do."""
    yield match.bug.title
    unknown = "" if "cause" in match.compared else "; the cause was not"
    yield f"compared: {', '.join(match.compared)}{unknown}"
    if match.bug.record.workaround:
        yield f"workaround: {match.bug.record.workaround}"


def perhaps(bugs: Sequence[KnownBug], mode: str) -> str:
    """That something may be one of some known bugs of a mode; empty for none."""
    names = [bug.name for bug in bugs]
    if len(names) > 1:
        return f"perhaps one of the known bugs of {mode}: {', '.join(names)} (powercut known NAME)"
    return f"perhaps the known bug {names[0]} of {mode} (powercut known {names[0]})" if names else ""


def about(bug: KnownBug) -> Iterator[tuple[str, str]]:
    """All that is known of a bug: what it is, and the words. Last what only programs read."""
    record = bug.record
    yield "what", bug.title
    yield "severity", record.severity.words
    yield "mechanism", record.mechanism
    yield "kernels", kernels(record)
    yield "since", record.since
    yield "mended by", record.mended_by
    yield "how likely", record.likely
    yield "workaround", record.workaround
    yield "list", record.list
    yield "status", record.status
    for s in record.shows:
        shown = " or ".join(f'"{what}"' for what in s.symptoms)
        also = [f"cause: {' or '.join(s.causes)}"] * bool(s.causes) + ["no flush"] * s.quiet
        during = "" if s.during.value == "power-cut" else f" ({s.during.value})"
        yield "shows", "; ".join([f"{', '.join(s.modes)}: {', '.join(s.oracles)}: {shown}{during}", *also])
    for s in record.shows:
        for what, pattern in (("words", s.says), ("operations", s.operations), ("later", s.later)):
            if pattern:
                yield "pattern", f"{what} of {s.symptoms[0]}: {pattern}"
