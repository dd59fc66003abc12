"""By which of a few mechanisms a promise was broken, where the times of the writes tell them apart. Pure.

Each function knows one, and says it in a sentence; where none fits, nothing is said.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.blocks.fields import Kind
from harness.explain.facts import Facts, Flush
from harness.writelog.times import TimedWrite

_POINTS = {Kind.METADATA, Kind.RECORD}


class Mechanism(enum.StrEnum):
    """How a promise was broken."""

    NO_FLUSH = "no flush at all"
    IN_FLIGHT = "flush sent while the write was in flight"
    EARLY_ACK = "acknowledged before the flush"
    NOT_SENT = "acknowledged before it was written"
    RECORD_AHEAD = "record ahead of its blocks"
    METADATA_AHEAD = "metadata ahead of its data"
    IN_PLACE_AHEAD = "in place ahead of its record"
    DROPPED = "recovery dropped it"
    MADE_UP = "recovery made it up"
    TORN = "torn write"
    FAILED = "recovery itself fails"


@dataclass(frozen=True, slots=True)
class Told:
    """A mechanism, and what happened in a sentence."""

    mechanism: Mechanism
    sentence: str

    def __str__(self) -> str:
        return f"{self.mechanism.value.capitalize()}. {self.sentence}"


def mechanism_of(facts: Facts, *, made_up: bool, refused: bool = False) -> Told | None:
    """None where the times do not tell. `made_up`: what came back was never there. `refused`: recovery, or
    fsck after it, complains.
    """
    if not facts.lost and refused and facts.promise is None:
        return _failed()
    if not facts.lost:
        return _made_up() if made_up else _not_sent(facts) or _dropped(facts)
    return next((told for ask in _OF_A_LOSS if (told := ask(facts)) is not None), None)


# --- something was lost ---------------------------------------------------------------------------


def _lost(facts: Facts) -> TimedWrite:
    return facts.writes[facts.lost[0]]


def _unordered(facts: Facts) -> list[TimedWrite]:
    """What was on the platter although it had been sent later than the lost write, which was not durable."""
    lost = _lost(facts)
    return [
        w
        for w in facts.submitted()
        if w.submitted > lost.submitted
        and w.entry not in facts.lost
        and facts.legal.durable(lost.entry) > w.submitted
    ]


def _first(facts: Facts, kinds: set[Kind]) -> TimedWrite | None:
    return next((w for w in _unordered(facts) if facts.kinds(w.entry) & kinds), None)


def _sentence(facts: Facts, entry: int) -> str:
    text = facts.name(entry)
    return text[:1].upper() + text[1:]


def _torn(facts: Facts) -> Told | None:
    """Some sectors of a block on the platter and not the others."""
    entry = facts.torn
    if entry is None or facts.promise is not None:
        return None
    return Told(
        Mechanism.TORN,
        f"Of entry {entry}, {facts.part(entry).removesuffix(' of ')} were lost and the others written: it "
        "was in flight when the power failed.",
    )


def _record_ahead(facts: Facts) -> Told | None:
    """A commit record on the platter, and not all blocks of the log that it commits."""
    if Kind.LOG not in facts.kinds(facts.lost[0]):
        return None
    record = _first(facts, {Kind.RECORD})
    if record is None:
        return None
    return Told(
        Mechanism.RECORD_AHEAD,
        f"{_sentence(facts, record.entry)}, was on the platter without entry {facts.lost[0]}: it was sent at "
        f"event {record.submitted}, before a flush had covered what it commits.",
    )


def _metadata_ahead(facts: Facts) -> Told | None:
    """What points to data was on the platter, and the data was not; no operation had to have returned."""
    if Kind.DATA not in facts.kinds(facts.lost[0]) or facts.promise is not None:
        return None
    pointer = _first(facts, _POINTS)
    if pointer is None:
        return None
    return Told(
        Mechanism.METADATA_AHEAD,
        f"{_sentence(facts, pointer.entry)}, was on the platter without the data of entry {facts.lost[0]}: "
        f"it was sent at event {pointer.submitted}, before a flush had covered the data.",
    )


def _in_place_ahead(facts: Facts) -> Told | None:
    """Metadata written in place on the platter, and the journal or log that it needs was not."""
    if not facts.kinds(facts.lost[0]) & {Kind.LOG, Kind.RECORD}:
        return None
    place = _first(facts, {Kind.METADATA})
    if place is None:
        return None
    return Told(
        Mechanism.IN_PLACE_AHEAD,
        f"{_sentence(facts, place.entry)}, was written in place at event {place.submitted}, before entry "
        f"{facts.lost[0]} was durable.",
    )


def _sent(facts: Facts) -> list[Flush]:
    """Flushes sent before the promise was given."""
    ack = facts.promised_at
    return [] if ack is None else [f for f in facts.flushes if f.submitted < min(ack, facts.at)]


def _in_flight(facts: Facts) -> Told | None:
    lost, ack = _lost(facts), facts.promised_at
    flying = [f for f in _sent(facts) if lost.submitted < f.submitted < lost.completed]
    after = [f for f in _sent(facts) if f.submitted > lost.completed]
    if ack is None or not flying or after:
        return None
    return Told(
        Mechanism.IN_FLIGHT,
        f"The flush, entry {flying[-1].entry}, was sent at event {flying[-1].submitted}, while "
        f"entry {lost.entry} was still in flight (it completed at {lost.completed}): it does not cover it. "
        f"Then `{facts.operation(facts.promise or 0)}` returned.",
    )


def _no_flush(facts: Facts) -> Told | None:
    ack = facts.promised_at
    lost = [facts.writes[e] for e in facts.lost]
    done = max(w.completed for w in lost)
    if ack is None or done > ack or any(f.submitted > min(w.completed for w in lost) for f in _sent(facts)):
        return None
    return Told(
        Mechanism.NO_FLUSH,
        f"No flush was sent between the completion of entry {lost[-1].entry} (event {done}) and the return "
        f"of `{facts.operation(facts.promise or 0)}` (event {ack}).",
    )


def _early_ack(facts: Facts) -> Told | None:
    lost, ack = _lost(facts), facts.promised_at
    after = [f for f in _sent(facts) if f.submitted > lost.completed]
    if ack is None or not after or any(f.completed < ack for f in after):
        return None
    return Told(
        Mechanism.EARLY_ACK,
        f"`{facts.operation(facts.promise or 0)}` returned at event {ack}, before the flush that covers "
        f"entry {lost.entry} (entry {after[0].entry}) had completed (event {after[0].completed}).",
    )


_OF_A_LOSS: Sequence[Callable[[Facts], Told | None]] = (
    _torn,
    _record_ahead,
    _metadata_ahead,
    _in_flight,
    _no_flush,
    _early_ack,
    _in_place_ahead,
)


# --- nothing was lost -----------------------------------------------------------------------------


def _made_up() -> Told:
    return Told(
        Mechanism.MADE_UP,
        "Everything that was sent is on the platter, and what recovery brought back was never there.",
    )


def _failed() -> Told:
    return Told(
        Mechanism.FAILED, "Everything that was sent is on the platter, and nothing was lost or reordered."
    )


def _not_sent(facts: Facts) -> Told | None:
    data, ack = facts.data_of_subject(), facts.promised_at
    if ack is None or not data or data[-1].submitted < ack:
        return None
    return Told(
        Mechanism.NOT_SENT,
        f"`{facts.operation(facts.promise or 0)}` returned at event {ack}, before "
        f"{facts.name(data[-1].entry)}, was sent (event {data[-1].submitted}).",
    )


def _dropped(facts: Facts) -> Told | None:
    if facts.promised_at is None or not all(facts.on_platter(w.entry) for w in facts.data_of_subject()):
        return None
    return Told(
        Mechanism.DROPPED, "Everything that was sent is on the platter, and recovery did not bring it back."
    )
