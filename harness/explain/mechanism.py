"""By which of a few mechanisms a promise was broken, where the times of the writes tell them apart. Pure.

Each has a function that says it in a sentence where it fits; where none does, nothing is said.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.blocks.fields import Kind
from harness.explain.effects import Change, Sort, Sync, word_of
from harness.explain.facts import Facts, Flush
from harness.explain.program import Gap, Order, Program, is_told, told_calls, wanted_sync
from harness.host.text import first_few
from harness.writelog.calls import ProgramCall
from harness.writelog.times import TimedWrite


class Mechanism(enum.StrEnum):
    """How a promise was broken."""

    NO_FLUSH = "no flush at all"
    IN_FLIGHT = "flush sent while the write was in flight"
    EARLY_ACK = "acknowledged before the flush"
    NOT_WAITED = "acknowledged while the write was in flight"
    NOT_SENT = "acknowledged before it was written"
    NO_COMMIT = "acknowledged without a commit"
    PROGRAM_EARLY = "the program acknowledged before fsync had returned"
    PROGRAM_NEVER = "the program acknowledged without fsync"
    PROGRAM_REPLACED = "the program removed the old before the new was durable"
    PROGRAM_GAP = "the program removed the old before it made the new"
    PROGRAM_BETWEEN = "the program's check refuses what lies between two of its calls"
    PROGRAM_HALF = "half of one write is there"
    PROGRAM_ORDER = "the program's later call took effect without an earlier one"
    PROGRAM_NAMED = "the file had its name before its contents were durable"
    RECORD_AHEAD = "record ahead of its blocks"
    METADATA_AHEAD = "metadata ahead of its data"
    IN_PLACE_AHEAD = "in place ahead of its record"
    LATE_COMMIT = "there only with a later commit"
    BROKEN_LATER = "broken by a later write"
    DROPPED = "recovery dropped it"
    REUSED = "written over blocks that were not free yet"
    PRESENT = "a write came too early"
    MADE_UP = "recovery made it up"
    TORN = "torn write"
    FAILED = "recovery itself fails"
    WRONG = "wrong although nothing was lost"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A mechanism, and what happened in a sentence."""

    mechanism: Mechanism
    sentence: str

    def __str__(self) -> str:
        return f"{self.mechanism.value.capitalize()}. {self.sentence}"


def mechanism_of(
    facts: Facts, *, made_up: bool, refused: bool = False, mounted: bool = False
) -> Diagnosis | None:
    """None where the times do not tell. `made_up`: what came back was never there. `refused`: recovery, or
    what uses the file system after it, complains. `mounted`: that is not the mount.
    """
    if facts.program is not None and (found := of_program(facts, facts.program)) is not None:
        return found
    if facts.lost:
        possible = _OF_A_LOSS
    elif refused and facts.promise is None:
        possible = _OF_A_COMPLAINT if mounted else _OF_REFUSAL
    else:
        possible = _OF_INVENTION if made_up else _OF_RECOVERY
    asked = ((mechanism, sentence(facts)) for mechanism, sentence in possible.items())
    return next((Diagnosis(mechanism, text) for mechanism, text in asked if text), None)


Sentence = Callable[[Facts], str]
"""What happened, if it was this mechanism; else empty."""


# --- an application ----------------------------------------------------------------------------------


def of_program(facts: Facts, program: Program) -> Diagnosis | None:
    """Where its calls explain all that is missing. Not where trees do not tell, and an fsync of it sent
    nothing: that is the kernel's.
    """
    if program.idle and not program.shown:
        return None
    told = (_taken(facts, program), _acknowledged_early(facts, program), _half(facts, program))
    if (found := next(filter(None, told), None)) is not None:
        return found
    if (gap := program.gap) is not None and (gap.sync is None or not facts.lost):
        mechanism = Mechanism.PROGRAM_GAP if gap.sync is not None else Mechanism.PROGRAM_BETWEEN
        return Diagnosis(mechanism, _between(program, gap))
    if (order := program.order) is not None:
        return Diagnosis(Mechanism.PROGRAM_ORDER, out_of_order(program, order))
    named = program.early
    return None if named is None else Diagnosis(Mechanism.PROGRAM_NAMED, _named_early(program, named))


def _taken(facts: Facts, program: Program) -> Diagnosis | None:
    gone = program.taken
    if gone is None or not (program.shown or _is_what_replaces(facts, gone)):
        return None
    return Diagnosis(Mechanism.PROGRAM_REPLACED, out_of_order(program, gone))


def _acknowledged_early(facts: Facts, program: Program) -> Diagnosis | None:
    if not program.unsynced or not (program.shown or _explained(facts, program)):
        return None
    said = f"{program.name} acknowledged `{program.text}` at event {program.at}"
    if (sync := program.pending) is not None:
        end = f"returned only at event {sync.returned}" if sync.returned is not None else "never returned"
        sentence = f"{said}, while {sync.text}, called at event {sync.began}, was still under way: it {end}."
        return Diagnosis(Mechanism.PROGRAM_EARLY, sentence)
    return Diagnosis(
        Mechanism.PROGRAM_NEVER, _without(program, said, program.blamed, program.at, tried=program.tried)
    )


def _without(program: Program, said: str, changes: Sequence[Change], by: int, *, tried: bool) -> str:
    """`by`: the event before which a sync was wanted. `tried`: the check was run on trees of what the program
    had written.
    """
    if not tried and not is_told(changes):
        return (
            f"{said}. No sync had covered {_calls(changes)}; the states compared do not tell which of these "
            "matters."
        )
    wanted = wanted_sync(changes, tried=tried)
    lost = "one of these is" if len({c.call for c in changes}) > 1 else "this is"
    shown = f" The check refuses a tree in which only {lost} lost." if tried else ""
    weak = _too_weak(program, changes, by)
    behind = program.behind if by == program.at else None
    late = f" {behind.text}, called at event {behind.began}, comes behind that." if behind else ""
    return f"{said} without having called {wanted}, for {_calls(changes)}.{weak}{shown}{late}"


def _too_weak(program: Program, changes: Sequence[Change], by: int) -> str:
    """That what the program called for its file does not do it: fdatasync(2) leaves attributes out."""
    weak = (s.call for s in program.weak if s.call.began < by and any(_looks_like(s, c) for c in changes))
    call = next(weak, None)
    return f" {call.text}, called at event {call.began}, does not make that durable." if call else ""


def _looks_like(sync: Sync, change: Change) -> bool:
    """Whether it might be taken for the sync of a change, and is none."""
    of = Sort.ATTRIBUTES if word_of(sync.call) == "fdatasync" else Sort.DATA
    is_none = sync.span is None or not sync.has(change)
    return is_none and (sync.inode, of) == (change.inode, change.sort) and sync.call.began > change.began


def _calls(changes: Sequence[Change]) -> str:
    """The calls that matter, and how many more there were."""
    told, more = told_calls(changes)
    also = f", and {more} more {'call' if more == 1 else 'calls'} before" if more else ""
    return " and ".join(f"{c.text} (event {c.began})" for c in told) + also


def out_of_order(program: Program, order: Order) -> str:
    """That a call came before what it relies on was durable."""
    takes = ", which takes away what had been durable," if order.taken else ""
    if order.is_in_place:
        return (
            f"{program.name} called {order.ahead.text} at event {order.ahead.began}{takes} before what "
            f"replaces it was durable: {_calls(order.missing)}."
        )
    said, end = f"{program.name} called {order.ahead.text} at event {order.ahead.began}{takes}", ""
    if (last := order.until) is not None:
        said += f", and later calls up to {last.text} at event {last.began},"
        end = " The states compared do not tell which of these calls relies on that."
    return f"{_without(program, said, order.missing, (last or order.ahead).began, tried=order.tried)}{end}"


def _between(program: Program, gap: Gap) -> str:
    if gap.sync is None:
        return (
            f"{program.name} called {gap.ahead.text} at event {gap.ahead.began}, and {gap.made.call.text} "
            f"only at event {gap.made.began}. The check refuses a tree of what the calls leave in between, "
            "although nothing is lost. No fsync helps."
        )
    same = f" (`{'`, `'.join(gap.also)}` names the same file)" if gap.also else ""
    return (
        f"{program.name} called {gap.ahead.text} at event {gap.ahead.began}{same}, and made that durable by "
        f"{gap.sync.text}, called at event {gap.sync.began}, before it called {gap.made.call.text} at event "
        f"{gap.made.began}: a power cut in between leaves neither the old nor the new, and no fsync helps."
    )


def _named_early(program: Program, named: Change) -> str:
    contents = _calls(program.bare) if program.bare else "the contents"
    return (
        f"{program.name} gave the name `{named.path}` by {named.call.text} at event {named.began}, and no "
        f"fsync of {contents} had returned when the name became durable."
    )


def _half(facts: Facts, program: Program) -> Diagnosis | None:
    """Where a write of several blocks is there in part, and nothing else is missing."""
    write = program.half or program.whole
    if write is None or not program.in_part or (program.half is None and not _is_torn(facts, write)):
        return None
    sentence = (
        f"Of {write.call.text}, called at event {write.began}, a part came back: a power cut "
        "may tear a write of several blocks that has no RWF_ATOMIC."
    )
    return Diagnosis(Mechanism.PROGRAM_HALF, sentence)


def _is_torn(facts: Facts, write: Change) -> bool:
    """Whether of the blocks of a write one is on the platter, or a part of one, and others are lost."""
    gone = set(facts.lost).intersection(facts.cleared)
    if not gone or any(facts.kinds(e) - {Kind.DATA, Kind.UNKNOWN} for e in gone):
        return False
    data = data_of(facts, Order(write.call, (write,), paths=frozenset({write.path})))
    return any(map(facts.part, gone)) or any(facts.on_platter(w.entry) for w in data)


def _is_what_replaces(facts: Facts, gone: Order) -> bool:
    """Whether the missing data are the contents that replace the old ones: none of them are on the platter,
    and every other lost write was sent later.
    """
    data = data_of(facts, gone)
    if any(facts.on_platter(w.entry) for w in data):
        return False
    late = gone.ahead.began
    own = {w.entry for w in data}
    return all(e in own or facts.writes[e].submitted > late for e in facts.lost if e in facts.writes)


def data_of(facts: Facts, gone: Order) -> list[TimedWrite]:
    """The writes that may have the contents of what is missing: none that is called another file's, or was
    sent while another file was synced and has no name.
    """

    def may_be(write: TimedWrite) -> bool:
        names = [n for n in facts.names.get(write.entry, ()) if n.kind in (Kind.DATA, Kind.UNKNOWN)]
        files = {n.text.partition("(")[2].partition(")")[0] for n in names}
        if any(not f for f in files) and not any(_ran(s, write.submitted) for s in gone.elsewhere):
            return True
        return not files.isdisjoint({*gone.paths, *(path.rpartition("/")[2] for path in gone.paths)})

    begun = min(c.began for c in gone.missing)
    return [w for w in facts.times.writes if gone.paths and w.submitted > begun and may_be(w)]


def _ran(sync: ProgramCall, at: int) -> bool:
    return sync.returned is not None and sync.began < at < sync.returned


def _explained(facts: Facts, program: Program) -> bool:
    """Whether all that is missing was sent after the program had acknowledged, or never asked for."""
    missing = facts.lost or tuple(e for e in facts.cleared if facts.writes[e].submitted >= facts.at)
    if not missing:
        return _not_asked_for(facts, program)
    return all(
        facts.writes[entry].submitted > program.at
        or program.unsynced_data
        or Kind.DATA not in facts.kinds(entry)
        for entry in missing
        if entry in facts.writes
    )


def _not_asked_for(facts: Facts, program: Program) -> bool:
    """Where all that was sent is there: whether contents that changed since the acknowledgement before were
    not sent. If contents were in part synced, that part may be what is missing: then nothing is said.
    """
    contents = [c for c in program.latest if c.sort is Sort.DATA]
    if not contents or any(c.sort is Sort.DATA for c in program.kept):
        return False
    sent = (facts.kinds(w.entry) for w in facts.submitted() if w.submitted > contents[0].began)
    return all(kinds and kinds.isdisjoint({Kind.DATA, Kind.UNKNOWN}) for kinds in sent)


# --- something was lost ---------------------------------------------------------------------------


def _ahead(lost: set[Kind], ahead: set[Kind], words: str, *, unpromised: bool = False) -> Sentence:
    """A write of a kind in `lost` was, and one in `ahead` was on the platter, sent when the lost one was not
    durable yet. Where no operation had to have returned, only one whose absence is a control. `unpromised`:
    only there.
    """

    def sentence(facts: Facts) -> str:
        first = facts.writes[facts.lost[0]]
        if not facts.kinds(first.entry) & lost or (unpromised and facts.promise is not None):
            return ""
        unordered = range(first.submitted + 1, facts.legal.durable(first.entry))
        possible = [
            w
            for w in facts.submitted()
            if w.submitted in unordered and w.entry not in facts.lost and facts.kinds(w.entry) & ahead
        ]
        turning = [w for w in possible if w.entry in facts.turning][-1:]
        for write in turning or (possible if facts.promise is not None else []):
            name = facts.name(write.entry)
            said = words.format(it=name[:1].upper() + name[1:], lost=first.entry, sent=write.submitted)
            return f"{said}{_not_waited_for(first, write)}"
        return ""

    return sentence


def _not_waited_for(first: TimedWrite, then: TimedWrite) -> str:
    """That a write had not completed when another was sent: so a flush that comes with that does not cover
    it.
    """
    if first.completed < then.submitted:
        return ""
    return (
        f" Entry {first.entry} was still in flight then (it completed at {first.completed}): nobody waited "
        "for it, and no flush sent by then covers it."
    )


def _torn(facts: Facts) -> str:
    """Some sectors of a block on the platter and not the others."""
    entry = facts.torn
    if entry is None or facts.promise is not None:
        return ""
    completed = facts.writes[entry].completed
    where = "in flight" if completed >= facts.at else f"in the cache (it completed at event {completed})"
    return (
        f"Of entry {entry}, {facts.part(entry).removesuffix(' of ')} were lost and the others written: it "
        f"was {where} when the power failed."
    )


def _sent(facts: Facts, write: TimedWrite) -> list[Flush]:
    """Flushes of a write's device, sent before the promise was given."""
    ack = facts.promised_at
    return [] if ack is None else [f for f in facts.flushes_of(write) if f.submitted < min(ack, facts.at)]


def _in_flight(facts: Facts) -> str:
    lost = facts.writes[facts.lost[0]]
    sent = _sent(facts, lost)
    flying = [f for f in sent if lost.submitted < f.submitted < lost.completed]
    if not flying or any(f.submitted > lost.completed for f in sent):
        return ""
    return (
        f"The flush, entry {flying[-1].entry}, was sent at event {flying[-1].submitted}, while entry "
        f"{lost.entry} was still in flight (it completed at {lost.completed}): it does not cover it. Then "
        f"`{_promising(facts)}` returned."
    )


def _no_flush(facts: Facts) -> str:
    if (ack := facts.promised_at) is None:
        return ""
    lost = _lost_by(facts, ack)
    last = max(lost, key=lambda w: w.completed, default=None)
    if last is None or last.completed > ack or any(_flushed_since(facts, w) for w in lost):
        return ""
    to = f" to {facts.device(last.entry)}" if facts.devices else ""
    return (
        f"No flush was sent{to} between the completion of entry {last.entry} (event {last.completed}) and "
        f"the return of `{_promising(facts)}` (event {ack})."
    )


def _lost_by(facts: Facts, ack: int) -> list[TimedWrite]:
    """The lost writes that were sent before the promise was given. What was sent only then is no part of it,
    though it may have to be lost too. Then what was sent before may be data of others, which has to be lost
    as well, and not what was promised: none.
    """
    lost = [w for e in facts.lost if (w := facts.writes[e]).submitted < ack]
    if len(lost) < len(facts.lost) and facts.promise is not None and not facts.was_asked_for(ack, lost):
        return []
    return lost


def _not_waited(facts: Facts) -> str:
    """The promise was given while a lost write was in flight."""
    if (ack := facts.promised_at) is None:
        return ""
    flying = [w for w in _lost_by(facts, ack) if w.completed > ack]
    if not flying:
        return ""
    return (
        f"`{_promising(facts)}` returned at event {ack}, while entry {flying[0].entry} was still in flight "
        f"(it completed at {flying[0].completed}): nobody had waited for it."
    )


def _flushed_since(facts: Facts, write: TimedWrite) -> bool:
    return any(f.submitted > write.completed for f in _sent(facts, write))


def _early_ack(facts: Facts) -> str:
    lost, ack = facts.writes[facts.lost[0]], facts.promised_at
    after = [f for f in _sent(facts, lost) if f.submitted > lost.completed]
    if ack is None or not after or any(f.completed < ack for f in after):
        return ""
    return (
        f"`{_promising(facts)}` returned at event {ack}, before the flush that covers entry {lost.entry} "
        f"(entry {after[0].entry}) had completed (event {after[0].completed})."
    )


def _promising(facts: Facts) -> str:
    if facts.promise is None and facts.synced is not None:
        return facts.synced.text
    return facts.operation(facts.promise or 0)


def _no_commit(facts: Facts) -> str:
    """All that is missing was sent after the promise, and a journal's record is among it."""
    ack, begin = facts.promised_at, facts.mark(f"begin {facts.promise}")
    missing = facts.lost or facts.cleared
    late = [facts.writes[e] for e in missing if e in facts.writes]
    if ack is None or begin is None or not late or min(w.submitted for w in late) < ack:
        return ""
    records = [w for w in late if Kind.RECORD in facts.kinds(w.entry)]
    meanwhile = [w for w in facts.submitted() if begin < w.submitted < ack]
    if not records or not facts.has_journal() or any(Kind.RECORD in facts.kinds(w.entry) for w in meanwhile):
        return ""
    flushed = any(begin < f.submitted < ack for f in facts.flushes)
    nothing = "no commit" if flushed else "no commit and no flush"
    ran, record = f"While `{_promising(facts)}` ran (events {begin} to {ack})", records[0]
    return (
        f"{ran}, {nothing} was sent: {facts.name(record.entry)}, was sent only at event {record.submitted}."
    )


_OF_A_LOSS: Mapping[Mechanism, Sentence] = {
    Mechanism.NO_COMMIT: _no_commit,
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
    Mechanism.NOT_WAITED: _not_waited,
}
"""In this order: the first that fits is told."""


# --- nothing was lost -----------------------------------------------------------------------------


_ALL_THERE = "Everything that was sent is on the platter, and"


def _not_sent(facts: Facts) -> str:
    if (ack := facts.promised_at) is None:
        return ""
    late = facts.data_not_sent(ack) if facts.promises_data else None
    if (late := late or _nothing_sent(facts, ack)) is None:
        return ""
    return (
        f"`{_promising(facts)}` returned at event {ack}, before {facts.name(late.entry)}, was sent "
        f"(event {late.submitted})."
    )


def _nothing_sent(facts: Facts, ack: int) -> TimedWrite | None:
    """Where nothing was sent that could have what was promised, the first write that brings it back; where
    nothing is committed, even if something was. What a journal commits later is told by its record.
    """
    records = (e for e in facts.cleared if Kind.RECORD in facts.kinds(e))
    if (facts.commits and facts.was_asked_for(ack)) or any(records):
        return None
    late = sent_later(facts)
    return None if late is None or late.submitted < ack else late


def sent_later(facts: Facts) -> TimedWrite | None:
    """The first write with which it does not fail and that had not been sent: metadata, if any is, and such
    that is called after the file concerned.
    """
    late = [e for e in facts.brings_back if facts.writes[e].submitted >= facts.at]
    metadata = [e for e in late if Kind.METADATA in facts.kinds(e)]
    of_it = [e for e in metadata if any(f"({_base(facts.subject)})" in n.text for n in facts.names[e])]
    first = next(iter([*of_it, *metadata, *late]), None)
    return None if first is None else facts.writes[first]


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _dropped(facts: Facts) -> str:
    """Not of what was never sent: then recovery had nothing to drop. Not where an earlier cut does not fail,
    or only a later record brings it back: that may be another cause. Nor where a name that nobody was
    promised may be what is missing.
    """
    ack, data = facts.promised_at, facts.data_of_subject()
    if ack is None or facts.without or _later_records(facts) or facts.may_want_names:
        return ""
    if not all(facts.on_platter(w.entry) for w in data) or not facts.was_asked_for(ack):
        return ""
    return f"{_ALL_THERE} what was promised is not there after recovery."


def _late_commit(facts: Facts) -> str:
    """Only a later record brings back what is missing: that tells nothing of who left it out before. Where
    it is not known to be needed, not if another write was sent after it: it may be that one.
    """
    later = _later_records(facts)
    if facts.promised_at is None or not later:
        return ""
    known = [e for e in later if e in facts.needed]
    record = max(known or facts.cleared, key=lambda e: facts.writes[e].submitted)
    if record not in later:
        return ""
    return (
        f"All that was sent before `{_promising(facts)}` returned is on the platter, but it takes "
        f"{facts.name(record)}, sent at event {facts.writes[record].submitted}, to bring it back: it was "
        "in no commit until then, or recovery left out what was committed last."
    )


def _later_records(facts: Facts) -> list[int]:
    return [e for e in facts.cleared if Kind.RECORD in facts.kinds(e) and not facts.on_platter(e)]


def _broken_later(facts: Facts) -> str:
    """An earlier cut, behind the promise, keeps every promise: what was promised had been durable."""
    ack = facts.promised_at
    if ack is None or not facts.without or not facts.keeps:
        return ""
    sent = [facts.writes[e].submitted for e in facts.without]
    if min(sent) < ack:
        return ""
    shown, more = first_few([facts.name(e) for e in facts.without], 2)
    also = f", and {more} more" if more else ""
    when = (
        f"it was sent at event {sent[0]}" if len(sent) == 1 else f"they were sent from event {min(sent)} on"
    )
    return (
        f"Nothing was lost. Without {'; '.join(shown)}{also}, every promise is kept: {when}, after "
        f"`{_promising(facts)}` had returned (event {ack})."
    )


@dataclass(frozen=True, slots=True)
class Reused:
    """A write that took the place of another file's data: entries."""

    entry: int
    old: int


def first_reused(facts: Facts) -> Reused | None:
    """A write that has taken the place of data of the file concerned, which was not removed yet on the
    platter: without it nothing fails, or an earlier cut that lacks it, and nothing but data of other files,
    does not fail.
    """
    only_others = all(_others_data(facts, entry) for entry in facts.without)
    asked = facts.turning or (facts.without if only_others else ())
    return next(filter(None, (_reuse(facts, entry) for entry in asked)), None)


def _others_data(facts: Facts, entry: int) -> bool:
    names = facts.names.get(entry, ())
    return bool(names) and all(n.kind is Kind.DATA and facts.owner(n) != facts.subject for n in names)


def _reuse(facts: Facts, entry: int) -> Reused | None:
    """Not by data whose file is unknown: it may be the file's own, sent once more."""
    new = next((n for n in facts.names.get(entry, ()) if n.kind in (Kind.DATA, Kind.METADATA)), None)
    if new is None or (new.kind is Kind.DATA and facts.owner(new) in ("", facts.subject)):
        return None
    old = facts.owner_before(entry)
    return None if old is None else Reused(entry, old)


def _reused(facts: Facts) -> str:
    reused = first_reused(facts)
    if reused is None:
        return ""
    sent, name = facts.writes[reused.entry].submitted, facts.name(reused.entry)
    said = (
        f"{name[:1].upper()}{name[1:]}, was sent at event {sent} to blocks of "
        f"`{facts.subject}` ({facts.name(reused.old)})"
    )
    if not facts.commits:
        return f"{said}, whose removal was not on the disk yet."
    record = facts.next_record(sent)
    still = "no commit was sent after it" if record is None else f"the next one is {facts.name(record)}"
    return f"{said}, whose removal was in no commit yet: {still}."


def _present(facts: Facts) -> str:
    """Nothing was lost, and a write turns the verdict that is none of a journal, which recovery goes by."""
    chosen = [e for e in facts.turning if facts.kinds(e) <= {Kind.DATA, Kind.METADATA}]
    if not chosen:
        return ""
    return (
        f"Nothing was lost. Without {facts.name(chosen[0])}, sent at event "
        f"{facts.writes[chosen[0]].submitted}, it does not fail."
    )


def _data_unsent(facts: Facts) -> str:
    """Data of the file concerned that an operation had written, and nobody had sent."""
    late = facts.data_not_sent(facts.at)
    if late is None or (facts.cleared and late.entry not in facts.cleared):
        return ""
    writers = [n.writer for n in facts.names[late.entry] if n.writer is not None]
    begun = facts.mark(f"begin {writers[0]}")
    if begun is None or begun > facts.at:
        return ""
    leads = [e for e in facts.turning if facts.kinds(e) & {Kind.METADATA, Kind.RECORD}]
    ahead = f"{facts.name(leads[0])}," if leads else "the metadata that leads to it"
    return (
        f"{ahead[:1].upper()}{ahead[1:]} was on the platter without {facts.name(late.entry)}, which was "
        f"sent only at event {late.submitted}."
    )


def _half_sent(facts: Facts) -> str:
    """Nothing is committed, and a write that recovery wants had not been sent."""
    late = None if facts.commits else sent_later(facts)
    if late is None:
        return ""
    return (
        f"Nothing was lost, and {facts.name(late.entry)}, had not been sent: with it, sent at event "
        f"{late.submitted}, it does not fail."
    )


_OF_RECOVERY: Mapping[Mechanism, Sentence] = {
    Mechanism.REUSED: _reused,
    Mechanism.BROKEN_LATER: _broken_later,
    Mechanism.NOT_SENT: _not_sent,
    Mechanism.NO_COMMIT: _no_commit,
    Mechanism.LATE_COMMIT: _late_commit,
    Mechanism.DROPPED: _dropped,
}
_OF_INVENTION: Mapping[Mechanism, Sentence] = {
    Mechanism.REUSED: _reused,
    Mechanism.METADATA_AHEAD: _data_unsent,
    Mechanism.PRESENT: _present,
    Mechanism.MADE_UP: lambda _: f"{_ALL_THERE} what recovery brought back was never there.",
}
_OF_REFUSAL: Mapping[Mechanism, Sentence] = {
    Mechanism.PRESENT: _half_sent,
    Mechanism.FAILED: lambda _: f"{_ALL_THERE} nothing was lost or reordered.",
}
_OF_A_COMPLAINT: Mapping[Mechanism, Sentence] = {
    Mechanism.PRESENT: _half_sent,
    Mechanism.WRONG: lambda _: f"{_ALL_THERE} nothing was reordered.",
}
