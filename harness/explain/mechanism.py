"""By which of a few mechanisms a promise was broken, where the times of the writes tell them apart. Pure.

Each has a function that says it in a sentence where it fits; where none does, nothing is said.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.blocks.fields import Kind
from harness.explain.facts import Facts, Flush


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
class Diagnosis:
    """A mechanism, and what happened in a sentence."""

    mechanism: Mechanism
    sentence: str

    def __str__(self) -> str:
        return f"{self.mechanism.value.capitalize()}. {self.sentence}"


def mechanism_of(facts: Facts, *, made_up: bool, refused: bool = False) -> Diagnosis | None:
    """None where the times do not tell. `made_up`: what came back was never there. `refused`: recovery, or
    fsck after it, complains.
    """
    if facts.lost:
        possible = _OF_A_LOSS
    elif refused and facts.promise is None:
        possible = _OF_REFUSAL
    else:
        possible = _OF_INVENTION if made_up else _OF_RECOVERY
    asked = ((mechanism, sentence(facts)) for mechanism, sentence in possible.items())
    return next((Diagnosis(mechanism, text) for mechanism, text in asked if text), None)


Sentence = Callable[[Facts], str]
"""What happened, if it was this mechanism; else empty."""


# --- something was lost ---------------------------------------------------------------------------


def _ahead(lost: set[Kind], ahead: set[Kind], words: str, *, unpromised: bool = False) -> Sentence:
    """A write of a kind in `lost` was, and one in `ahead` was on the platter, sent when the lost one was not
    durable yet. `unpromised`: only where no operation had to have returned.
    """

    def sentence(facts: Facts) -> str:
        first = facts.writes[facts.lost[0]]
        if not facts.kinds(first.entry) & lost or (unpromised and facts.promise is not None):
            return ""
        for write in facts.submitted():
            unordered = first.submitted < write.submitted < facts.legal.durable(first.entry)
            if unordered and write.entry not in facts.lost and facts.kinds(write.entry) & ahead:
                name = facts.name(write.entry)
                return words.format(it=name[:1].upper() + name[1:], lost=first.entry, sent=write.submitted)
        return ""

    return sentence


def _torn(facts: Facts) -> str:
    """Some sectors of a block on the platter and not the others."""
    entry = facts.torn
    if entry is None or facts.promise is not None:
        return ""
    return (
        f"Of entry {entry}, {facts.part(entry).removesuffix(' of ')} were lost and the others written: it "
        "was in flight when the power failed."
    )


def _sent(facts: Facts) -> list[Flush]:
    """Flushes sent before the promise was given."""
    ack = facts.promised_at
    return [] if ack is None else [f for f in facts.flushes if f.submitted < min(ack, facts.at)]


def _in_flight(facts: Facts) -> str:
    lost, sent = facts.writes[facts.lost[0]], _sent(facts)
    flying = [f for f in sent if lost.submitted < f.submitted < lost.completed]
    if not flying or any(f.submitted > lost.completed for f in sent):
        return ""
    return (
        f"The flush, entry {flying[-1].entry}, was sent at event {flying[-1].submitted}, while entry "
        f"{lost.entry} was still in flight (it completed at {lost.completed}): it does not cover it. Then "
        f"`{_promising(facts)}` returned."
    )


def _no_flush(facts: Facts) -> str:
    ack = facts.promised_at
    lost = [facts.writes[e] for e in facts.lost]
    first, last = min(w.completed for w in lost), max(w.completed for w in lost)
    if ack is None or last > ack or any(f.submitted > first for f in _sent(facts)):
        return ""
    return (
        f"No flush was sent between the completion of entry {lost[-1].entry} (event {last}) and the return "
        f"of `{_promising(facts)}` (event {ack})."
    )


def _early_ack(facts: Facts) -> str:
    lost, ack = facts.writes[facts.lost[0]], facts.promised_at
    after = [f for f in _sent(facts) if f.submitted > lost.completed]
    if ack is None or not after or any(f.completed < ack for f in after):
        return ""
    return (
        f"`{_promising(facts)}` returned at event {ack}, before the flush that covers entry {lost.entry} "
        f"(entry {after[0].entry}) had completed (event {after[0].completed})."
    )


def _promising(facts: Facts) -> str:
    return facts.operation(facts.promise or 0)


_OF_A_LOSS: Mapping[Mechanism, Sentence] = {
    Mechanism.TORN: _torn,
    Mechanism.RECORD_AHEAD: _ahead(
        {Kind.LOG},
        {Kind.RECORD},
        "{it}, was on the platter without entry {lost}: it was sent at event {sent}, before a flush had "
        "covered what it commits.",
    ),
    Mechanism.METADATA_AHEAD: _ahead(
        {Kind.DATA},
        {Kind.METADATA, Kind.RECORD},
        "{it}, was on the platter without the data of entry {lost}: it was sent at event {sent}, before a "
        "flush had covered the data.",
        unpromised=True,
    ),
    Mechanism.IN_FLIGHT: _in_flight,
    Mechanism.NO_FLUSH: _no_flush,
    Mechanism.EARLY_ACK: _early_ack,
    Mechanism.IN_PLACE_AHEAD: _ahead(
        {Kind.LOG, Kind.RECORD},
        {Kind.METADATA},
        "{it}, was written in place at event {sent}, before entry {lost} was durable.",
    ),
}
"""In this order: the first that fits is told."""


# --- nothing was lost -----------------------------------------------------------------------------


_ALL_THERE = "Everything that was sent is on the platter, and"


def _not_sent(facts: Facts) -> str:
    data, ack = facts.data_of_subject(), facts.promised_at
    if ack is None or not data or data[-1].submitted < ack:
        return ""
    return (
        f"`{_promising(facts)}` returned at event {ack}, before {facts.name(data[-1].entry)}, was sent "
        f"(event {data[-1].submitted})."
    )


def _dropped(facts: Facts) -> str:
    if facts.promised_at is None or not all(facts.on_platter(w.entry) for w in facts.data_of_subject()):
        return ""
    return f"{_ALL_THERE} recovery did not bring it back."


_OF_RECOVERY: Mapping[Mechanism, Sentence] = {Mechanism.NOT_SENT: _not_sent, Mechanism.DROPPED: _dropped}
_OF_INVENTION: Mapping[Mechanism, Sentence] = {
    Mechanism.MADE_UP: lambda _: f"{_ALL_THERE} what recovery brought back was never there."
}
_OF_REFUSAL: Mapping[Mechanism, Sentence] = {
    Mechanism.FAILED: lambda _: f"{_ALL_THERE} nothing was lost or reordered."
}
