"""Minimising over writes, and the mechanisms that the times of writes tell apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.blocks.fields import BlockName, Kind
from harness.cases.attempts import Unobserved
from harness.errors import GuestError, UsageError
from harness.explain.effects import Change, Effects, Sort, Sync, as_operations
from harness.explain.explain import (
    Explainer,
    _cause,
    _control,
    _first_two,
    _missing,
    _missing_of,
    _not_named,
    _promised,
    _written,
    has_promised,
    ladder,
    sync_of_the_lost,
)
from harness.explain.facts import Facts, Flush, NamesNow
from harness.explain.mechanism import Diagnosis, Mechanism, mechanism_of, of_program, out_of_order
from harness.explain.minimise import VISITS, OutOfVisits, Visits, always, entries_of, minimise
from harness.explain.program import (
    ANOTHER,
    Evidence,
    Gap,
    Order,
    Program,
    _differing,
    program_of,
    wanted_sync,
)
from harness.filesystems.profiles import profiles, select_profiles
from harness.model import (
    BeforeCrash,
    CaseId,
    CrashState,
    FileKind,
    History,
    HistoryStep,
    Operation,
    OperationKind,
    Outcome,
    Position,
    Tree,
    TreeEntry,
    Violation,
)
from harness.report.explanation import Explanation, Fate, Rung, mail_text
from harness.report.ladder import ladder_svg, ladder_text
from harness.states.legal import LegalStates
from harness.store.records import Finding
from harness.tests.states.recorder import Recorder, recorders
from harness.tests.there import there
from harness.workloads.load import parse_operation
from harness.writelog.calls import ProgramCall, ProgramCalls


def losing_any(legal: LegalStates, entries: set[int]) -> Callable[[CrashState], bool]:
    """A file system that fails where any of these writes is lost."""
    return lambda state: bool(entries & set(entries_of(legal, legal.lost(state))))


def three_writes() -> LegalStates:
    """Three writes, a mark, and then the flush that covers them; a fourth after it."""
    made = Recorder()
    made.mark("begin 0")
    for entry in [made.submit(n) for n in (1, 2, 3)]:
        made.complete(entry)
    made.mark("ack 0")
    made.mark("begin 1")
    made.complete(made.flush())
    made.complete(made.submit(4))
    made.mark("ack 1")
    return made.legal()


def test_the_one_write_that_matters_is_left_and_the_control_has_it() -> None:
    legal = three_writes()
    start = next(c for c in legal.cuts() if len(legal.losable(c)) == 3)
    start = legal.losing(start, legal.losable(start))
    minimal = minimise(legal, start, Visits(losing_any(legal, {2})), always)
    assert minimal.lost == (2,)
    assert minimal.complete
    assert minimal.control is not None
    assert legal.lost(minimal.control) == frozenset()
    assert minimal.control.prefix == minimal.state.prefix
    assert minimal.cleared == (2,)


def test_two_writes_that_fail_only_together_stay() -> None:
    legal = three_writes()
    cut = next(c for c in legal.cuts() if len(legal.losable(c)) == 3)
    start = legal.losing(cut, legal.losable(cut))
    visits = Visits(lambda s: {1, 3} <= set(entries_of(legal, legal.lost(s))))
    minimal = minimise(legal, start, visits, always)
    assert minimal.lost == (1, 3)
    assert len(minimal.cleared) == 1


def test_nothing_is_lost_where_that_fails_as_well_and_the_control_is_a_later_cut() -> None:
    legal = three_writes()
    cut = next(c for c in legal.cuts() if len(legal.losable(c)) == 3)
    end = legal.cuts()[-1]
    visits = Visits(lambda s: legal.event(s) < legal.event(end))
    minimal = minimise(legal, legal.losing(cut, legal.losable(cut)), visits, always)
    assert minimal.lost == ()
    assert legal.event(there(minimal.control)) == legal.event(end)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_later_control_has_no_more_than_it_takes(wanted: int) -> None:
    """Of seven writes that a later cut had besides, the first was named, which brought nothing back."""
    made = Recorder()
    made.mark("begin 0")
    made.mark("ack 0")
    made.mark("begin 1")
    late = [made.submit(n) for n in (1, 2, 3)]
    made.complete(made.submit(4, fua=True))
    legal = made.legal()

    def fails(state: CrashState) -> bool:
        shown = legal.on_disk(state)
        there = {legal.chunks[n].entry for n in set(range(shown.prefix)) - set(shown.dropped)}
        return late[wanted] not in there

    start = next(c for c in legal.cuts() if not legal.losable(c))
    minimal = minimise(legal, start, Visits(fails), always)
    assert minimal.needed == (late[wanted],)
    assert minimal.complete
    less = minimise(legal, start, Visits(fails, limit=4), always)
    assert less.needed == () or less.needed == (late[wanted],), "nothing is needed that was not visited"


def on_platter(legal: LegalStates, state: CrashState) -> set[int]:
    """Entries."""
    shown = legal.on_disk(state)
    return {legal.chunks[n].entry for n in set(range(shown.prefix)) - set(shown.dropped)}


def test_what_a_later_control_takes_is_asked_for_last() -> None:
    """It used up the visits: what the failing state has too much was not asked for, and the report said that
    the search was cut short.
    """
    made = Recorder()
    made.mark("begin 0")
    made.mark("ack 0")
    data = made.write(1)
    made.mark("begin 1")
    late = [made.submit(2 + n) for n in range(30)]
    for entry in late:
        made.complete(entry)
    made.complete(made.flush())
    legal = made.legal()

    def fails(state: CrashState) -> bool:
        return data in on_platter(legal, state) and not set(late[::3]) <= on_platter(legal, state)

    start = next(c for c in legal.cuts() if on_platter(legal, c) == {data})
    visits = Visits(fails)
    minimal = minimise(legal, start, visits, lambda c: legal.event(c) >= legal.event(start), both=True)
    assert minimal.complete
    assert minimal.turning == (data,)
    assert on_platter(legal, there(minimal.less)) == set()
    assert minimal.more == minimal.control
    assert minimal.needed == (), "that is not known"
    assert visits.made < VISITS / 2


def test_what_a_later_control_cannot_lose_may_have_been_needed_as_well() -> None:
    """A commit record that was durable by then was left out of what it takes, so that recovery was said to
    have dropped what was committed only later.
    """
    made = Recorder()
    for mark in ("begin 0", "ack 0", "begin 1"):
        made.mark(mark)
    data, first = made.write(1), made.write(3, fua=True)
    made.mark("ack 1")
    made.mark("cut")
    record = made.write(4)
    made.complete(made.flush())
    made.mark("begin 2")
    inode, other = made.submit(5), made.submit(6)
    made.complete(inode)
    made.complete(other)
    made.mark("end")
    commit = name(Kind.RECORD, "commit record")
    names = {data: DATA, first: commit, record: commit, inode: name(Kind.METADATA, "inode")}
    facts = facts_of(made, names, (), 1, at="cut")
    legal = facts.legal
    visits = Visits(lambda s: not {record, inode} <= on_platter(legal, s))
    minimal = minimise(legal, facts.state, visits, lambda c: legal.event(c) >= facts.at)
    assert minimal.needed == (inode,)
    assert minimal.cleared == (record, inode)
    facts = replace(facts, cleared=minimal.cleared, needed=minimal.needed)
    assert told(facts) is None
    assert _missing(facts, None).startswith(f"entry {inode}, inode")


def test_where_nothing_is_lost_the_control_may_be_the_cut_before() -> None:
    """A full fast-commit area: one write less, and recovery works."""
    legal = three_writes()
    cuts = legal.cuts()
    minimal = minimise(legal, cuts[-1], Visits(lambda s: legal.event(s) >= legal.event(cuts[-1])), always)
    assert minimal.lost == ()
    assert minimal.control == cuts[-2]
    assert minimal.without == (7,)


def test_a_crash_time_with_the_same_platter_is_no_control() -> None:
    """ "A later cut, with 0 writes more, keeps every promise": only what had begun was another."""
    made = Recorder()
    made.complete(made.submit(1))
    made.mark("begin 0")
    made.mark("ack 0")
    made.mark("begin 1")
    made.mark("ack 1")
    legal = made.legal()
    for failing in legal.cuts():
        minimal = minimise(legal, failing, Visits(failing.__eq__), always, both=True)
        assert minimal.control is None or minimal.cleared or minimal.without


def test_what_had_not_been_acknowledged_is_no_control_of_an_application() -> None:
    """It was "an earlier cut": nothing had been promised there, and so nobody was accused."""
    made = Recorder()
    for n in (1, 2):
        made.complete(made.submit(n))
        made.complete(made.flush())
        made.mark("app 1")
    made.complete(made.submit(3))
    legal = made.legal()
    cuts = legal.cuts()
    saved = legal.event(cuts[-1])

    def fails(state: CrashState) -> bool:
        return legal.position(state).app_acks > 0 and legal.event(state) < saved

    start = next(c for c in cuts if fails(c))
    assert minimise(legal, start, Visits(fails), always).without
    minimal = minimise(legal, start, Visits(fails), always, acknowledged=True)
    assert minimal.control == cuts[-1]
    assert minimal.cleared


def test_a_cut_before_the_promise_is_not_visited() -> None:
    """What was not promised yet is no violation, whatever comes back: its visits would be wasted."""
    legal = three_writes()
    cuts = [c for c in legal.cuts() if {1} <= set(entries_of(legal, legal.losable(c)))]
    start = legal.losing(cuts[-1], legal.losable(cuts[-1]))
    visited = []

    def ask(state: CrashState) -> bool:
        visited.append(legal.event(state))
        return losing_any(legal, {1})(state)

    promised_from = legal.event(cuts[-1])
    minimise(legal, start, Visits(ask), lambda cut: legal.event(cut) >= promised_from)
    assert min(visited) >= promised_from


@given(recorders(), st.data())
def test_what_is_left_fails_and_with_any_one_of_it_present_does_not(
    made: Recorder, data: st.DataObject
) -> None:
    """For any log, and any set of writes whose loss is fatal: 1-minimal, legal, and no more than before."""
    legal = made.legal()
    cut = data.draw(st.sampled_from(legal.cuts()))
    losable = legal.losable(cut)
    if not losable:
        return
    start = legal.losing(cut, data.draw(st.sets(st.sampled_from(sorted(losable)))))
    try:
        lost = legal.lost(start)
    except UsageError:
        return
    fatal = data.draw(st.sets(st.sampled_from(sorted(losable)))) & lost
    if not fatal:
        return

    def fails(state: CrashState) -> bool:
        return fatal <= legal.lost(state)

    minimal = minimise(legal, start, Visits(fails), always)
    assert fails(minimal.state)
    assert legal.lost(minimal.state) <= lost
    for n in legal.lost(minimal.state):
        fewer = legal.losing(minimal.state, legal.lost(minimal.state) - {n})
        try:
            legal.on_disk(fewer)
        except UsageError:
            continue
        assert legal.lost(fewer) != legal.lost(minimal.state) - {n} or not fails(fewer)


@given(recorders(), st.data())
def test_what_is_left_is_needed_where_a_write_has_to_be_there_as_well(
    made: Recorder, data: st.DataObject
) -> None:
    """A file system that fails where any of these writes is lost, or was not sent."""
    legal = made.legal()
    cut = data.draw(st.sampled_from(legal.cuts()))
    losable = sorted(legal.losable(cut))
    start = legal.losing(cut, data.draw(st.sets(st.sampled_from(losable))) if losable else ())
    needed = data.draw(st.sets(st.sampled_from(range(len(legal.chunks))))) if legal.chunks else set()

    def fails(state: CrashState) -> bool:
        shown = legal.on_disk(state)
        return not needed <= set(range(shown.prefix)) - set(shown.dropped)

    try:
        lost = legal.lost(start)
    except UsageError:
        return
    if not lost or not fails(start):
        return
    minimal = minimise(legal, start, Visits(fails), always)
    assert minimal.complete
    left = legal.lost(minimal.state)
    for n in left:
        fewer = legal.losing(minimal.state, left - {n})
        try:
            is_legal = legal.lost(fewer) == left - {n}
        except UsageError:
            continue
        assert not (is_legal and fails(fewer))


def test_what_had_to_be_lost_later_only_is_not_lost() -> None:
    """A file comes back if its data and a record are on the platter; fsync returned before the record was
    sent. The data was "lost", for want of a flush, at a time at which nothing has to be lost.
    """
    made = Recorder()
    for mark in ("begin 0", "ack 0"):
        made.mark(mark)
    made.write(1)
    made.mark("begin 1")
    record = made.write(2)
    made.complete(made.flush())
    legal = made.legal()

    def fails(state: CrashState) -> bool:
        shown = legal.on_disk(state)
        return shown.prefix < 2 or bool(shown.dropped)

    start = next(c for c in legal.cuts() if len(legal.losable(c)) == 2)
    visits = Visits(fails)
    minimal = minimise(legal, legal.losing(start, {0}), visits, lambda cut: has_promised(legal, cut, 0))
    assert minimal.lost == ()
    assert minimal.cleared == (record,)


def test_a_search_that_is_cut_short_says_so() -> None:
    legal = three_writes()
    cut = next(c for c in legal.cuts() if len(legal.losable(c)) == 3)
    start = legal.losing(cut, legal.losable(cut))
    visits = Visits(losing_any(legal, {2}), limit=1)
    minimal = minimise(legal, start, visits, always)
    assert not minimal.complete
    assert visits.made == 1
    with pytest.raises(OutOfVisits):
        visits.fails(CrashState.parse("@t3"))


# --- mechanisms -----------------------------------------------------------------------------------


def name(kind: Kind, text: str, writer: int | None = None) -> tuple[BlockName, ...]:
    return (BlockName(0, 4096, text, kind, writer=writer, offset=None if writer is None else 0),)


def facts_of(
    made: Recorder,
    names: dict[int, tuple[BlockName, ...]],
    lost: tuple[int, ...],
    promise: int | None,
    at: str | None = None,
) -> Facts:
    """Facts of the last cut, or of that at a mark, with these writes lost."""
    legal = made.legal()
    marks = {m.text: m.entry for m in made.marks}
    state = CrashState.parse(f"@t{marks[at] if at else len(made.entries)}")
    chunks = [n for n, c in enumerate(legal.chunks) if c.entry in lost]
    operations = (Operation(OperationKind.APPEND, "f", length=4096), Operation(OperationKind.FSYNC, "f"))
    history = History(tuple(HistoryStep(n, op, 0, 0) for n, op in enumerate(operations)))
    return Facts(legal.losing(state, chunks), legal, legal._times, history, names, lost, promise, "f")


def told(facts: Facts, made_up: bool = False, refused: bool = False) -> Mechanism | None:
    found = mechanism_of(facts, made_up=made_up, refused=refused)
    return found.mechanism if found else None


DATA = name(Kind.DATA, "data of f", writer=0)


@pytest.mark.parametrize(
    ("operations", "subject"),
    [
        (["append f 4096", "fsync f"], "f"),
        (["append tmp 4096", "fsync tmp", "rename tmp f"], "f"),
        (["append d/tmp 4096", "fsync d/tmp", "rename d e"], "e/tmp"),
        (["append a 4096", "fsync a", "exchange a f"], "f"),
        (["append a 4096", "fsync a", "link a f"], "f"),
    ],
)
def test_data_that_was_not_sent_is_that_of_a_file_by_any_name(operations: list[str], subject: str) -> None:
    """Of a file that had been renamed it was said that everything was sent, and that recovery dropped it."""
    made = Recorder()
    for mark in ("begin 1", "ack 1", "cut"):
        made.mark(mark)
    data = made.submit(5)
    made.complete(data)
    steps = [HistoryStep(n, parse_operation(text), 0, 0) for n, text in enumerate(operations)]
    facts = facts_of(made, {data: DATA}, (), 1, at="cut")
    assert told(replace(facts, history=History(tuple(steps)), subject=subject)) is Mechanism.NOT_SENT


def names_of(texts: Sequence[str]) -> list[tuple[Set[str], ...]]:
    """For each operation, of each file that it is about, the names that it ever has."""
    names = NamesNow()
    return [names.follow(parse_operation(text)) for text in texts]


def test_a_file_has_the_names_that_it_is_given() -> None:
    texts = ["create a", "open a @h", "rename a b", "append @h 1", "create a", "exchange a b", "unlink b"]
    names = [frozenset().union(*files) - {"\0"} for files in names_of(texts)]
    assert names[3] == {"a", "@h", "b"}
    assert names[4] == {"a", "b"}
    assert names[6] == names[4]


def test_to_rename_a_file_over_another_name_of_it_does_nothing() -> None:
    """POSIX; it was followed as a move, and what was written by the old name was another file's."""
    texts = ["create f", "link f g", "rename f g", "append f 1"]
    *_, (last,) = names_of(texts)
    assert last == {"f", "g"}


def not_sent(operations: Sequence[str], promise: int, late: int, *sent: int, subject: str = "f") -> Facts:
    """Data of the operations `sent` is sent while `promise` runs, and that of `late` once it has returned."""
    made = Recorder()
    made.mark(f"begin {promise}")
    of_it = {made.write(n): name(Kind.DATA, "data", writer=n) for n in sent}
    for mark in (f"ack {promise}", "cut"):
        made.mark(mark)
    of_it[made.write(0)] = name(Kind.DATA, "data", writer=late)
    steps = [HistoryStep(n, parse_operation(text), 0, 0) for n, text in enumerate(operations)]
    return replace(facts_of(made, of_it, (), promise, "cut"), history=History(tuple(steps)), subject=subject)


WRITTEN = ("create f", "append f 1")


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        (not_sent((*WRITTEN, "rename f g", *WRITTEN, "fsync f"), 5, 1, 4), Mechanism.DROPPED),
        (not_sent((*WRITTEN, "rename f g", *WRITTEN, "fsync f"), 5, 4), Mechanism.NOT_SENT),
        (not_sent((*WRITTEN, "rename f g", *WRITTEN, "sync"), 5, 1, 4), Mechanism.DROPPED),
        (not_sent((*WRITTEN, "create t", "append t 1", "fsync t", "rename t f"), 4, 1, 3), Mechanism.DROPPED),
        (not_sent((*WRITTEN, "create t", "append t 1", "fsync t", "rename t f"), 4, 3), Mechanism.NOT_SENT),
        (not_sent((*WRITTEN, "create t", "append t 1", "sync", "rename t f"), 4, 3, 1), Mechanism.NOT_SENT),
        (not_sent((*WRITTEN, "rename f g", "sync"), 3, 1), Mechanism.NOT_SENT),
        (not_sent((*WRITTEN, "rename f g", "sync", "create f"), 3, 1), Mechanism.NOT_SENT),
    ],
    ids=[
        "had the name before",
        "has the name",
        "had it before, and all is synced",
        "has it, and another one is synced that gets it",
        "is synced, and gets it",
        "all is synced, and it gets it",
        "had it, and none has it any more",
        "had it, and a new one is given it later",
    ],
)
def test_the_file_concerned_is_the_one_that_was_promised(facts: Facts, named: Mechanism) -> None:
    """Any file that ever had the name was meant: data of a file that nobody had synced was "not sent"."""
    assert told(facts) is named


@pytest.mark.parametrize(
    ("promising", "named"),
    [
        ("fsync f", None),
        ("append f 1 sync", None),
        ("fsync g", Mechanism.NOT_SENT),
        ("sync", Mechanism.NOT_SENT),
    ],
)
def test_the_sync_of_one_file_does_not_promise_the_data_of_another(
    promising: str, named: Mechanism | None
) -> None:
    """`append f 4096 sync` "returned before data of g was sent", which it does not promise in ext4/ordered:
    it was g's name that a journal lost.
    """
    facts = not_sent((*WRITTEN, "create g", "append g 1", promising), 4, 3, 1, subject="g")
    assert told(facts) is named
    assert told(replace(facts, commits_data=True)) is Mechanism.NOT_SENT, "any sync promises it, as below"


@pytest.mark.parametrize(
    ("mode", "does"),
    [
        ("ext4/ordered", False),  # delayed allocation: the size follows later
        ("ext3/writeback", False),
        ("ext3/ordered", True),
        ("ext4/journal", True),
        ("btrfs/flushoncommit-notreelog", True),
        ("btrfs/default", False),
        ("f2fs/strict", False),
    ],
)
def test_the_contract_says_whether_a_commit_has_the_data_of_every_file(mode: str, does: bool) -> None:
    assert profiles()[mode].contract.commits_data is does


def test_the_names_of_a_file_are_kept_once() -> None:
    """10,000 links to one file took 5 GiB: each operation had all of its names."""
    texts = ["create f", *(f"link f g{n}" for n in range(100))]
    (first,), *_, (last,) = names_of(texts)
    assert first is last
    assert len(first) == 101


def test_no_flush_at_all() -> None:
    made = Recorder()
    made.mark("begin 1")
    data = made.write(1)
    made.mark("ack 1")
    facts = facts_of(made, {data: DATA}, (data,), 1)
    assert told(facts) is Mechanism.NO_FLUSH
    assert "between the completion of entry 1 (event 2) and the return of `fsync f` (event 3)" in str(
        mechanism_of(facts, made_up=False)
    )


@pytest.mark.parametrize(("early", "named"), [(False, Mechanism.NO_FLUSH), (True, Mechanism.NOT_WAITED)])
def test_what_was_sent_after_the_promise_does_not_hide_that_no_flush_was(
    early: bool, named: Mechanism
) -> None:
    """A commit that was to be written through was lost, and the next one, in flight: no cause was named."""
    made = Recorder()
    made.mark("begin 1")
    data = made.write(1)
    other = made.submit(2) if early else -1
    made.mark("ack 1")
    other = other if early else made.submit(2)
    made.mark("cut")
    made.complete(other)
    facts = facts_of(made, {data: DATA}, (data, other), 1, at="cut")
    assert told(facts) is named


@pytest.mark.parametrize(
    ("early", "named"),
    [
        (name(Kind.DATA, "data of h", writer=0), None),
        (name(Kind.DATA, "data of f", writer=1), Mechanism.NO_FLUSH),
        (name(Kind.METADATA, "inode of f", writer=1), Mechanism.NO_FLUSH),
    ],
)
def test_the_data_of_another_file_is_not_what_no_flush_was_sent_for(
    early: tuple[BlockName, ...], named: Mechanism | None
) -> None:
    """It had to be lost too, beside what was sent after the promise: `no flush at all` was told of it."""
    made = Recorder()
    made.mark("begin 2")
    first = made.write(1)
    made.mark("ack 2")
    late = made.write(2)
    made.mark("cut")
    texts = ("append h 1", "append f 1", "fsync f")
    steps = [HistoryStep(n, parse_operation(text), 0, 0) for n, text in enumerate(texts)]
    names = {first: early, late: name(Kind.METADATA, "inode of f", writer=1)}
    facts = facts_of(made, names, (first, late), 2, at="cut")
    assert told(replace(facts, history=History(tuple(steps)))) is named


def test_a_flush_that_was_sent_while_the_write_was_in_flight() -> None:
    made = Recorder()
    data, flush = made.submit(1), made.flush()
    made.complete(data)
    made.complete(flush)
    made.mark("ack 1")
    assert told(facts_of(made, {data: DATA}, (data,), 1)) is Mechanism.IN_FLIGHT


@pytest.mark.parametrize(
    ("text", "ends", "named"),
    [
        ("fsync(f)", 5, Mechanism.IN_FLIGHT),
        ("fsync(f)", None, None),
        ("fsync(f)", 7, None),
        ("write(f, 5)", 5, None),
    ],
)
def test_what_a_sync_that_had_returned_left_in_flight_is_the_kernels(
    text: str, ends: int | None, named: Mechanism | None
) -> None:
    """A program had synced its marker; F2FS sent the flush while the marker was in flight, and no cause was
    named.
    """
    made = Recorder()
    begun = made.events
    made.mark("begin 0")
    data, flush = made.submit(1), made.flush()
    made.complete(data)
    made.complete(flush)
    made.mark("app 1")
    made.mark("cut")
    facts = facts_of(made, {data: DATA}, (data,), None, at="cut")
    call = ProgramCall(7, text, begun, None if ends is None else begun + ends, 0)
    program = Program("my-db", "1", begun + 6, known=True)
    facts = replace(facts, program=program)
    facts = replace(facts, synced=sync_of_the_lost(facts, [call]))
    assert told(facts) is named
    if named:
        assert "Then `fsync(f)` returned." in str(mechanism_of(facts, made_up=False))
    blamed = replace(program, early=None, half=Change(call, Sort.DATA, 3, "f"))
    assert sync_of_the_lost(replace(facts, program=blamed), [call]) is None, "its own call explains it"


def test_a_sync_that_failed_promises_nothing() -> None:
    """An fsync that had returned EIO was named as the one that had returned, and accused of no flush."""
    made = Recorder()
    made.mark("begin 0")
    data, flush = made.submit(1), made.flush()
    made.complete(data)
    made.complete(flush)
    made.mark("app 1")
    made.mark("cut")
    facts = facts_of(made, {data: DATA}, (data,), None, at="cut")
    failed = ProgramCall(7, "fsync(f)", 0, 5, -5)
    facts = replace(facts, program=Program("my-db", "1", 6, known=True))
    assert sync_of_the_lost(facts, [replace(failed, result=0)]) is not None
    assert sync_of_the_lost(facts, [failed]) is None
    assert program_of("my-db", ProgramCalls((failed,), 0), facts.times, facts.at).synced is None


def test_acknowledged_before_the_flush_had_completed() -> None:
    made = Recorder()
    data = made.write(1)
    flush = made.flush()
    made.mark("ack 1")
    made.mark("cut")
    made.complete(flush)
    assert told(facts_of(made, {data: DATA}, (data,), 1, at="cut")) is Mechanism.EARLY_ACK


@pytest.mark.parametrize(("flushes", "fua"), [(True, False), (False, False), (False, True)])
def test_a_write_that_nobody_waited_for_is_missing_a_wait(flushes: bool, fua: bool) -> None:
    """ "missing: a flush sent after event 5, done before event 4"; and no cause where no flush was sent."""
    made = Recorder()
    made.mark("begin 1")
    data = made.submit(1, fua=fua)
    if flushes:
        made.complete(made.flush())
    made.mark("ack 1")
    if fua:
        made.mark("cut")
    made.complete(data)
    if not fua:
        made.mark("cut")
    facts = facts_of(made, {data: DATA}, (data,), 1, at="cut")
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is (Mechanism.IN_FLIGHT if flushes else Mechanism.NOT_WAITED)
    write, ack = facts.writes[data], there(facts.promised_at)
    assert f"still in flight (it completed at {write.completed})" in found.sentence
    flush = "" if fua else ", and a flush after it"
    wanted = f"a wait for entry {data}, which completed only at event {write.completed}{flush}"
    assert _missing(facts, found.mechanism) == f"{wanted}, before event {ack}"


@given(st.lists(st.booleans(), min_size=1, max_size=6).filter(any))
def test_what_is_missing_is_a_wait_for_the_write_that_the_cause_names(flying: list[bool]) -> None:
    """ "missing: a flush sent after event 3, done before event 4" of another lost write than the cause."""
    made = Recorder()
    made.mark("begin 1")
    writes = {made.submit(n): late for n, late in enumerate(flying, 1)}
    for entry in (e for e, late in writes.items() if not late):
        made.complete(entry)
    made.mark("ack 1")
    made.mark("cut")
    for entry in (e for e, late in writes.items() if late):
        made.complete(entry)
    facts = facts_of(made, dict.fromkeys(writes, DATA), tuple(writes), 1, at="cut")
    found = there(mechanism_of(facts, made_up=False))
    named = next(entry for entry, late in writes.items() if late)
    assert f"while entry {named} was still in flight" in found.sentence
    assert _missing(facts, found.mechanism).startswith(f"a wait for entry {named}, ")


def test_a_fua_write_is_missing_no_flush() -> None:
    """ "missing: a flush sent after event 3, done before what depends on it was sent; there is none"."""
    made = Recorder()
    record = made.submit(1, fua=True)
    made.complete(made.submit(2))
    made.mark("cut")
    made.complete(record)
    facts = facts_of(made, {}, (record,), None, at="cut")
    completed = facts.writes[record].completed
    assert _missing(facts, None) == (
        f"a wait for entry {record}, which completed only at event {completed}, before what depends on it "
        "was sent"
    )


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("lost done other", "a flush sent after event 1, done before what depends on it was sent"),
        ("lost other done", "a wait for entry 0, which completed only at event {done}, and a flush after it"),
        ("lost other cut done", "a wait for entry 0, which completed only at event {done}, and a flush"),
        ("other lost done", "entry 1, sent only at event {sent}"),
        ("lost done", "entry 0, sent only at event {sent}"),
    ],
)
def test_what_is_missing_of_a_loss_without_a_cause_could_have_been(order: str, wanted: str) -> None:
    """ "A flush sent after event 5, done before what depends on it was sent": of a write that completed
    behind the power cut, or when nothing was sent any more.
    """
    made, lost = Recorder(), -1
    for step in order.split():
        match step:
            case "lost":
                lost = made.submit(1)
            case "other":
                made.write(2, fua=True)
            case "done":
                made.complete(lost)
            case "cut":
                made.mark("cut")
    if "cut" not in order:
        made.mark("cut")
    facts = facts_of(made, {}, (lost,), None, at="cut")
    write = facts.writes[lost]
    said = wanted.format(sent=write.submitted, done=write.completed)
    assert _missing(facts, None).startswith(said)


def test_a_record_ahead_of_its_blocks() -> None:
    made = Recorder()
    block, record = made.submit(1), made.submit(2, fua=True)
    made.complete(record)
    made.complete(block)
    made.mark("ack 1")
    names = {block: name(Kind.LOG, "copy"), record: name(Kind.RECORD, "commit record")}
    assert told(facts_of(made, names, (block,), 1)) is Mechanism.RECORD_AHEAD


@pytest.mark.parametrize("waits", [False, True])
def test_a_record_that_did_not_wait_for_its_blocks_is_told_so(waits: bool) -> None:
    """GFS2's header carries PREFLUSH: "before a flush" sounded as if that were missing. It is the wait."""
    made = Recorder()
    block = made.submit(1)
    if waits:
        made.complete(block)
    record = made.write(2, fua=True)
    if not waits:
        made.complete(block)
    made.mark("ack 1")
    names = {block: name(Kind.LOG, "copy"), record: name(Kind.RECORD, "commit record")}
    facts = facts_of(made, names, (block,), 1)
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is Mechanism.RECORD_AHEAD
    assert ("still in flight" in found.sentence) is not waits


def test_a_record_that_waited_for_a_flush_is_not_ahead() -> None:
    made = Recorder()
    block = made.write(1)
    made.complete(made.flush())
    late = made.write(3)
    record = made.submit(2, fua=True)
    made.complete(record)
    made.mark("ack 1")
    names = {late: DATA, record: name(Kind.RECORD, "commit record"), block: name(Kind.LOG, "copy")}
    assert told(facts_of(made, names, (late,), 1)) is Mechanism.NO_FLUSH


def test_metadata_ahead_of_its_data_and_in_place_ahead_of_its_record() -> None:
    made = Recorder()
    first, place = made.submit(1), made.submit(2)
    made.complete(first)
    made.complete(place)
    made.mark("ack 1")
    inode = name(Kind.METADATA, "inode 4")
    facts = facts_of(made, {first: DATA, place: inode}, (first,), None)
    assert told(replace(facts, turning=(place,))) is Mechanism.METADATA_AHEAD
    record = name(Kind.RECORD, "commit record")
    in_place = replace(facts, names={first: record, place: inode})
    assert told(replace(in_place, turning=(place,))) is Mechanism.IN_PLACE_AHEAD
    assert told(facts) is None
    assert told(in_place) is None


def test_what_is_ahead_is_the_write_whose_absence_is_a_control() -> None:
    """The superblock of an external journal was named, which was sent first, and not the commit record: it
    could have been lost or not.
    """
    made = Recorder(second=100)
    data = made.write(1)
    superblock, commit = made.write(100, fua=True), made.write(101, fua=True)
    names = {
        data: DATA,
        superblock: name(Kind.RECORD, "superblock of the journal"),
        commit: name(Kind.RECORD, "commit record"),
    }
    facts = replace(facts_of(made, names, (data,), None), turning=(commit,))
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is Mechanism.METADATA_AHEAD
    assert found.sentence.startswith(f"Entry {commit}, commit record, was on the platter without the data")


def two_devices() -> tuple[Recorder, int, int]:
    """The data is sent to the first device; a flush is sent to the journal's, the second."""
    made = Recorder(second=100)
    return made, made.submit(1), made.flush(device=1)


def of_two(made: Recorder, data: int, at: str | None = None) -> str:
    facts = facts_of(made, {data: DATA}, (data,), 1, at=at)
    return str(mechanism_of(replace(facts, devices={data: "first device"}), made_up=False))


def test_a_flush_of_another_device_covers_nothing_and_comes_too_late_for_nothing() -> None:
    """A flush of the journal's device was said to have been sent while data of the other one was in flight,
    and to cover that data and complete too late.
    """
    made, data, flush = two_devices()
    made.complete(data)
    made.complete(flush)
    made.mark("ack 1")
    assert of_two(made, data).startswith("No flush at all. No flush was sent to the first device between")
    made, data, flush = two_devices()
    made.complete(data)
    made.mark("ack 1")
    made.mark("cut")
    made.complete(flush)
    assert of_two(made, data, "cut").startswith("No flush at all. No flush was sent to the first device")
    made = Recorder(second=100)
    data = made.write(1)
    made.complete(made.flush(device=1))
    made.mark("ack 1")
    facts = facts_of(made, {data: DATA}, (data,), 1)
    assert facts.flush_over(data) is None
    assert of_two(made, data).startswith("No flush at all. No flush was sent to the first device")


def test_the_write_that_has_to_be_there_is_found() -> None:
    """A record ahead of its data: without either the record or the loss nothing fails."""
    made = Recorder()
    data, other, record = (made.submit(n) for n in (1, 2, 3))
    for entry in (data, other, record):
        made.complete(entry)
    made.mark("begin 0")
    legal = made.legal()
    chunk = {legal.chunks[n].entry: n for n in range(3)}

    def fails(state: CrashState) -> bool:
        lost = legal.lost(state)
        shown = legal.on_disk(state)
        there = set(range(shown.prefix)) - set(shown.dropped)
        return chunk[data] in lost and chunk[record] in there

    start = legal.losing(legal.cuts()[-1], {chunk[data], chunk[other]})
    minimal = minimise(legal, start, Visits(fails), always, both=True)
    assert (minimal.lost, minimal.turning) == ((data,), (record,))
    assert minimal.less is not None
    assert entries_of(legal, legal.lost(minimal.less)) == (data, record)
    assert minimal.more == minimal.control


def test_recovery_dropped_it_made_it_up_or_it_was_not_sent() -> None:
    made = Recorder()
    data = made.write(1)
    made.complete(made.flush())
    made.mark("ack 1")
    assert told(facts_of(made, {data: DATA}, (), 1)) is Mechanism.DROPPED
    dropped = there(mechanism_of(facts_of(made, {data: DATA}, (), 1), made_up=False))
    assert "bring it back" not in dropped.sentence, "of a truncate, recovery brought back what that removed"
    assert told(facts_of(made, {data: DATA}, (), 1), made_up=True) is Mechanism.MADE_UP
    assert told(facts_of(made, {data: DATA}, (), None), refused=True) is Mechanism.FAILED
    used = there(
        mechanism_of(facts_of(made, {data: DATA}, (), None), made_up=False, refused=True, mounted=True)
    )
    assert str(used).startswith("Wrong although nothing was lost. Everything that was sent"), "after a mount"
    late = Recorder()
    late.mark("ack 1")
    late.mark("cut")
    data = late.write(1)
    late.complete(late.flush())
    assert told(facts_of(late, {data: DATA}, (), 1, at="cut")) is Mechanism.NOT_SENT


@pytest.mark.parametrize(
    ("kind", "leaves_names", "named"),
    [
        (OperationKind.RUN, True, None),
        (OperationKind.RUN, False, Mechanism.DROPPED),
        (OperationKind.FSYNC, True, Mechanism.DROPPED),
    ],
)
def test_recovery_did_not_drop_what_a_program_was_not_promised(
    kind: OperationKind, leaves_names: bool, named: Mechanism | None
) -> None:
    """On UDF fsync of a new file writes nothing of its name, and fio, which syncs no directory, rejects what
    is left: "recovery dropped it".
    """
    made = Recorder()
    data = made.write(1)
    made.complete(made.flush())
    made.mark("ack 1")
    facts = facts_of(made, {data: DATA}, (), 1)
    steps = (facts.history.steps[0], HistoryStep(1, Operation(kind, "f"), 0, 0))
    assert told(replace(facts, history=History(steps), leaves_names=leaves_names)) is named


def names_are_back(made: Recorder, names: dict[int, tuple[BlockName, ...]]) -> Facts:
    """`create f` and `fsync .`, after which the names are not back; the power fails at the mark `cut`."""
    facts = facts_of(made, names, (), 1, at="cut")
    operations = map(parse_operation, ("create f", "fsync ."))
    return replace(facts, history=History(tuple(HistoryStep(n, op, 0, 0) for n, op in enumerate(operations))))


@pytest.mark.parametrize(
    ("sent", "named"), [((), None), ((Kind.DATA,), None), ((Kind.METADATA,), Mechanism.DROPPED)]
)
def test_recovery_did_not_drop_what_was_never_sent(sent: Sequence[Kind], named: Mechanism | None) -> None:
    """Of a name there is no data: "recovery dropped it" was said of an fsync that sent nothing."""
    made = Recorder()
    earlier = made.write(3)
    for mark in ("begin 0", "ack 0", "begin 1"):
        made.mark(mark)
    of_it = {made.write(4): name(kind, "block") for kind in sent}
    for mark in ("ack 1", "cut"):
        made.mark(mark)
    names = {earlier: name(Kind.METADATA, "FAT"), **of_it}
    assert told(names_are_back(made, names)) is named


def test_a_name_that_was_sent_too_late_was_not_sent() -> None:
    """FAT has no journal: the block of the directory, which a later sync sent, brings the name back."""
    made = Recorder()
    for mark in ("begin 0", "ack 0", "begin 1", "ack 1", "cut"):
        made.mark(mark)
    late = made.write(5)
    facts = replace(names_are_back(made, {late: name(Kind.METADATA, "directory")}), cleared=(late,))
    assert str(mechanism_of(facts, made_up=False)) == (
        "Acknowledged before it was written. `fsync .` returned at event 3, before entry 5, directory, was "
        "sent (event 5)."
    )
    record = replace(facts, names={late: name(Kind.RECORD, "commit record")})
    assert told(record) is Mechanism.LATE_COMMIT


def test_a_name_that_something_was_sent_for_was_not_sent_where_only_a_later_write_brings_it_back() -> None:
    """On FAT any block sent since counted as what was promised, and recovery was said to have dropped it."""
    made = Recorder()
    for mark in ("begin 0", "ack 0", "begin 1"):
        made.mark(mark)
    table = made.write(4)
    for mark in ("ack 1", "cut"):
        made.mark(mark)
    beside, late = made.write(6), made.write(5)
    names = {
        table: name(Kind.METADATA, "FAT"),
        beside: name(Kind.DATA, "data"),
        late: name(Kind.METADATA, "directory"),
    }
    facts = replace(names_are_back(made, names), cleared=(beside, late), commits=False)
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is Mechanism.NOT_SENT
    assert f"before entry {late}, directory, was sent" in found.sentence
    assert told(replace(facts, cleared=())) is Mechanism.DROPPED
    assert told(replace(facts, commits=True)) is Mechanism.DROPPED


def unsent_data(cut: str = "cut") -> tuple[Facts, int, int]:
    """A commit leads to blocks whose data is sent behind the cut."""
    made = Recorder()
    made.mark("begin 0")
    made.mark("ack 0")
    record = made.write(3)
    made.mark(cut)
    data = made.write(1)
    names = {record: name(Kind.RECORD, "commit record"), data: DATA}
    return facts_of(made, names, (), None, at=cut), record, data


def test_stale_data_in_place_of_what_was_not_sent_is_not_made_up_by_recovery() -> None:
    """ "Recovery made it up" was said, and that all was there."""
    facts, record, data = unsent_data()
    for cleared in ((), (data,)):
        assert told(replace(facts, cleared=cleared), made_up=True) is Mechanism.METADATA_AHEAD
    found = there(mechanism_of(replace(facts, turning=(record,)), made_up=True))
    assert f"Entry {record}, commit record, was on the platter without entry {data}," in found.sentence
    assert told(replace(facts, cleared=(record,)), made_up=True) is Mechanism.MADE_UP, "other writes matter"
    not_begun = replace(facts, names={**facts.names, data: name(Kind.DATA, "data of f", writer=1)})
    assert told(not_begun, made_up=True) is Mechanism.MADE_UP


def test_recovery_of_half_of_what_nothing_commits_does_not_fail_by_itself() -> None:
    """A new directory's entry was sent, and its block was not: nothing was said to be amiss but recovery."""
    facts, _, data = unsent_data()
    half = replace(facts, cleared=(data,), names={data: name(Kind.METADATA, "directory d")})
    found = there(mechanism_of(replace(half, commits=False), made_up=False, refused=True))
    assert found.mechanism is Mechanism.PRESENT
    assert f"entry {data}, directory d, had not been sent" in found.sentence
    assert told(half, refused=True) is Mechanism.FAILED
    assert told(replace(half, commits=False, cleared=()), refused=True) is Mechanism.FAILED


def skipped_commit(log: Kind = Kind.LOG) -> Facts:
    """fsync sends the data, and returns; the journal's commit, and the last data once more, come later."""
    made = Recorder()
    made.mark("begin 1")
    data = made.write(1)
    made.mark("ack 1")
    made.mark("cut")
    again, copy = made.write(1), made.write(2)
    record = made.write(3, fua=True, preflush=True)
    names = {
        data: DATA,
        again: DATA,
        copy: name(log, "copy of inode"),
        record: name(Kind.RECORD, "commit record"),
    }
    facts = facts_of(made, names, (), 1, at="cut")
    return replace(facts, cleared=(again, copy, record))


def test_an_fsync_that_skipped_the_commit_is_told_by_it() -> None:
    """It was said that data had not been written, which was only sent again, or that recovery dropped it."""
    found = there(mechanism_of(skipped_commit(), made_up=False))
    assert found.mechanism is Mechanism.NO_COMMIT
    assert "While `fsync f` ran (events 0 to 3), no commit and no flush was sent: entry " in found.sentence
    assert "commit record, was sent only at event 9" in found.sentence


def test_the_loss_of_a_commit_that_was_sent_too_late_is_told_by_that() -> None:
    facts = skipped_commit()
    record = facts.cleared[-1]
    made_late = replace(
        facts, state=CrashState.parse(f"@t{record}-{record}"), lost=(record,), cleared=(record,)
    )
    assert told(made_late) is Mechanism.NO_COMMIT


def test_without_a_journal_no_commit_is_missed() -> None:
    """F2FS's fsync writes no checkpoint: a later one saves the file as well, and nobody skipped it."""
    assert told(skipped_commit(Kind.METADATA)) is not Mechanism.NO_COMMIT


def test_where_only_a_later_commit_brings_it_back_recovery_is_not_accused() -> None:
    """An O_SYNC write whose size was in no commit: "recovery dropped it" was one of two possibilities."""
    made = Recorder()
    made.mark("begin 1")
    data, copy = made.write(1), made.write(2)
    record = made.write(3, fua=True)
    made.mark("ack 1")
    made.mark("cut")
    later = made.write(4, fua=True)
    record_name = name(Kind.RECORD, "commit record")
    names = {data: DATA, copy: name(Kind.LOG, "copy"), record: record_name, later: record_name}
    facts = replace(facts_of(made, names, (), 1, at="cut"), cleared=(later,))
    assert told(facts) is Mechanism.LATE_COMMIT
    assert told(replace(facts, cleared=())) is Mechanism.DROPPED
    behind = made.write(5)
    other = replace(facts_of(made, {**names, behind: name(Kind.METADATA, "inode")}, (), 1, at="cut"))
    assert told(replace(other, cleared=(later, behind))) is None, "it may be the write behind the record"
    proven = replace(other, cleared=(later, behind), needed=(later, behind))
    found = there(mechanism_of(proven, made_up=False))
    assert found.mechanism is Mechanism.LATE_COMMIT
    assert f"it takes entry {later}, commit record" in found.sentence
    assert told(replace(proven, needed=(behind,))) is None


def test_of_what_a_later_cut_has_besides_a_write_that_is_called_after_the_file_is_named() -> None:
    """ext2: the first block of an inode table was named, and the attributes of the file were not sent."""
    made = Recorder()
    for mark in ("begin 0", "ack 0", "begin 1", "ack 1", "cut"):
        made.mark(mark)
    table, attributes = made.write(5), made.write(6)
    names = {
        table: name(Kind.METADATA, "inode table of group 0: 14 (h)"),
        attributes: name(Kind.METADATA, "extended attributes of inode 13 (f)"),
    }
    facts = replace(facts_of(made, names, (), 1, at="cut"), cleared=(table, attributes), commits=False)
    assert f"before entry {attributes}, ext" in there(mechanism_of(facts, made_up=False)).sentence
    assert _missing(facts, Mechanism.NOT_SENT).startswith(f"entry {attributes}, extended attributes")
    other = there(mechanism_of(replace(facts, subject="d/h"), made_up=False))
    assert f"before entry {table}, inode table" in other.sentence


def broken_later(*, sent_before: bool = False) -> tuple[Facts, int]:
    """What fsync promised is not there with a record that is sent behind the promise."""
    made = Recorder()
    made.mark("begin 1")
    data = made.write(1)
    first = made.write(3, fua=True)
    if sent_before:
        later = made.write(4, fua=True)
    made.mark("ack 1")
    if not sent_before:
        later = made.write(4, fua=True)
    made.mark("cut")
    record = name(Kind.RECORD, "superblock")
    facts = facts_of(made, {data: DATA, first: record, later: record}, (), 1, at="cut")
    return replace(facts, without=(later,), keeps=True), later


def test_what_a_later_write_broke_was_not_dropped_by_recovery() -> None:
    """ "Recovery dropped it" was said, beside an earlier cut that kept every promise."""
    facts, later = broken_later()
    found = there(mechanism_of(facts, made_up=False))
    assert str(found) == (
        f"Broken by a later write. Nothing was lost. Without entry {later}, superblock, every promise is "
        "kept: it was sent at event 6, after `fsync f` had returned (event 5)."
    )
    several = there(mechanism_of(replace(facts, without=(later, later)), made_up=False))
    assert "every promise is kept: they were sent at event 6" not in several.sentence
    assert "they were sent from event 6 on" in several.sentence


def test_a_later_write_is_accused_only_where_an_earlier_cut_keeps_every_promise() -> None:
    facts, _ = broken_later()
    assert told(replace(facts, keeps=False)) is None, "the control may fail in another way"
    assert told(replace(facts, without=(), keeps=True)) is Mechanism.DROPPED, "the control is a later cut"
    before, _ = broken_later(sent_before=True)
    assert told(before) is None, "it was sent before the promise"


# --- applications -----------------------------------------------------------------------------------


class Application:
    """A recording of a program, call by call; each that syncs sends a commit, unless it is `idle`."""

    def __init__(self) -> None:
        self.made = Recorder()
        self.calls: list[ProgramCall] = []
        self.records: list[int] = []
        self.more = 0
        self.evidence: Evidence | None = None

    def call(self, text: str, *, idle: bool = False, returns: bool = True) -> None:
        began = self.made.events
        self.made.events += 1
        if text.startswith(("fsync", "sync")) and not idle:
            self.records.append(self.made.write(len(self.records), fua=True))
        returned = self.made.events if returns else None
        self.made.events += 1
        wrote = re.match(r"(?:p?writev?2?|copy_file_range|sendfile)\(.*, (\d+)", text)
        self.calls.append(ProgramCall(7, text, began, returned, int(wrote[1]) if wrote else 0))

    def found(self) -> Diagnosis | None:
        """The diagnosis when power fails before the last commit is on the platter."""
        return mechanism_of(self.facts(), made_up=False)

    def facts(self, *, in_order: bool = True) -> Facts:
        last = self.records[-1]
        names = {e: name(Kind.RECORD, "commit record") for e in self.records}
        facts = facts_of(self.made, names, (), None)
        state = CrashState.parse(f"@t{last}-{last}")
        records = [w.submitted for w in facts.times.writes]

        def sent(call: ProgramCall) -> bool:
            return any(call.began < at < (call.returned or 0) for at in records)

        program = program_of(
            "my-db",
            ProgramCalls(tuple(self.calls), self.more),
            facts.times,
            facts.legal.event(CrashState.parse(f"@t{last}")),
            in_order=in_order,
            commits=sent,
            sent=sent,
            evidence=self.evidence,
        )
        return replace(facts, state=state, lost=(last,), program=program)


def test_a_program_that_acknowledges_without_fsync_is_told_so() -> None:
    """The journal was accused: "a flush that was missing"."""
    app = Application()
    app.call("write(new, 5)")
    app.call("fsync(new)")
    app.call("rename(new, value)")
    app.made.mark("app 1")
    app.call("fsync(value)")
    found = there(app.found())
    assert found.mechanism is Mechanism.PROGRAM_NEVER
    assert (
        "my-db acknowledged `1` at event 8 without having called fsync of the directory `.`, or the like, "
        "for rename(new, value) (event 6)" in found.sentence
    )


def test_a_program_that_acknowledges_while_fsync_runs_is_told_so() -> None:
    app = Application()
    app.call("write(f, 5)")
    began = app.made.events
    app.made.events += 1
    app.made.mark("app 1")
    app.records.append(app.made.write(0, fua=True))
    app.calls.append(ProgramCall(7, "fsync(f)", began, app.made.events))
    found = there(app.found())
    assert found.mechanism is Mechanism.PROGRAM_EARLY
    assert (
        "while fsync(f), called at event 2, was still under way: it returned only at event 6"
        in found.sentence
    )


def forgetful(*calls: str, idle: bool = False, more: int = 0) -> Application:
    """These calls, an acknowledgement, and an fsync too late."""
    app = Application()
    app.more = more
    for text in calls:
        app.call(text, idle=idle)
    app.made.mark("app 1")
    app.call("fsync(f)")
    return app


@pytest.mark.parametrize(
    "app",
    [
        forgetful("write(f, 5)", "fsync(f)"),
        forgetful("write(f, 5)", "sync()"),
        forgetful("write(f, 5)", "rename(f, g)", "fsync(g)"),
        forgetful("openat(f, create|dsync)", "write(f, 5)"),
        forgetful("write(b/x, 5)", "renameat2 exchange(a, b)", "fsync(a/x)", "fsync(a)", "fsync(.)"),
        forgetful("write(f, 5)", "io_uring_enter(1 requests)"),
        forgetful("write(f, 5)", more=3),
        forgetful("write(g, 5)", "fsync(g)", "write(log, 5)", idle=True),
    ],
    ids=[
        "fsync",
        "sync",
        "renamed",
        "O_DSYNC",
        "exchanged",
        "io_uring",
        "not noted",
        "an fsync that sent nothing",
    ],
)
def test_a_program_is_not_accused_of_what_its_calls_do_not_show(app: Application) -> None:
    assert app.found() is None


def test_a_file_that_is_opened_again_was_not_created_again() -> None:
    """A shell's `>>` opens with O_CREAT each time: calls that change nothing were held against it."""
    again = ("openat(f, create)", "write(f, 1)")
    found = there(forgetful(*again, *again).found())
    assert found.sentence.endswith(
        "for openat(f, create) (event 0) and write(f, 1) (event 2) and write(f, 1) (event 6). "
        "fsync(f), called at event 9, comes behind that."
    ), "of one that is left, its own words are no longer than to say so"
    many = there(forgetful(*again, *again, *again).found())
    assert "(event 6) and write(f, 1) (event 10), and 2 more calls before." in many.sentence


@pytest.mark.parametrize(
    ("calls", "behind"),
    [
        (("fsync(value)",), "fsync(value)"),
        (("fsync(.)",), "fsync(.)"),
        (("openat(log, create)", "fsync(.)"), "fsync(.)"),
        (("openat(new, create)", "write(new, 5)", "fsync(new)"), ""),
        (("openat(log, create)", "write(log, 5)", "fsync(log)"), ""),
        (("rename(value, old)", "fsync(.)"), ""),
        (("rename(value, old)", "sync()"), ""),
    ],
)
def test_the_sync_of_the_next_round_is_none_that_came_too_late(calls: Sequence[str], behind: str) -> None:
    """Of a loop of write, fsync and rename: "fsync(new) comes behind that", which was of the next file."""
    app = Application()
    for text in ("openat(new, create)", "write(new, 5)", "fsync(new)", "rename(new, value)"):
        app.call(text)
    app.made.mark("app 1")
    for text in calls:
        app.call(text)
    found = there(app.found())
    assert found.mechanism is Mechanism.PROGRAM_NEVER
    assert ("comes behind that." in found.sentence) is bool(behind)
    assert not behind or f" {behind}, called at event" in found.sentence


def test_of_a_file_that_was_emptied_since_no_sync_came_too_late() -> None:
    app = Application()
    for text in ("openat(f, create)", "fsync(f)", "write(f, 5)"):
        app.call(text)
    app.made.mark("app 1")
    for text in ("openat(f, create|truncate)", "write(f, 5)", "fsync(f)"):
        app.call(text)
    found = there(app.found())
    assert found.mechanism is Mechanism.PROGRAM_NEVER
    assert "comes behind that" not in found.sentence


def with_all_there(app: Application, names: dict[int, tuple[BlockName, ...]] | None = None) -> Facts:
    """The power fails when all that was sent is on the platter, and no state near it keeps the promise."""
    facts = app.facts()
    state = CrashState.parse(f"@t{app.records[-1]}")
    return replace(facts, state=state, lost=(), cleared=(), names={**facts.names, **(names or {})})


@pytest.mark.parametrize(
    ("calls", "named"),
    [
        (["write(f, 5)"], "write(f, 5)"),
        (["openat(f, create)", "write(f, 5)", "rename(f, g)", "fsync(.)"], "write(f, 5)"),
    ],
    ids=["nothing synced", "the directory synced and not the file"],
)
def test_a_program_is_told_of_what_was_never_sent(calls: list[str], named: str) -> None:
    """Nothing was lost, and no later state brings it back: "missing: no write", and no cause."""
    found = there(mechanism_of(with_all_there(forgetful(*calls)), made_up=False))
    assert found.mechanism is Mechanism.PROGRAM_NEVER
    assert f"without having called fsync of `f`, or the like, for {named} (event" in found.sentence


@pytest.mark.parametrize(
    "calls",
    [
        ["write(f, 5)", "fsync(f)"],
        ["write(log, 5)", "write(f, 5)", "fsync(f)"],
        ["openat(f, create|dsync)", "write(f, 5)", "write(log, 5)"],
    ],
    ids=["synced", "synced beside a log that is not", "O_DSYNC beside a log"],
)
def test_a_program_that_synced_a_part_is_not_accused_of_the_rest(calls: list[str]) -> None:
    """What recovery dropped may be what was synced."""
    assert told(with_all_there(forgetful(*calls))) is None


@pytest.mark.parametrize("seen", [DATA, ()], ids=["data", "a block without a name"])
def test_a_program_is_not_accused_where_what_it_wrote_was_sent(seen: tuple[BlockName, ...]) -> None:
    app = Application()
    app.call("write(f, 5)")
    app.made.mark("app 1")
    sent = app.made.write(4)
    app.call("fsync(f)")
    assert told(with_all_there(app, {sent: seen})) is None


def test_what_was_changed_before_the_last_acknowledgement_is_not_the_latest() -> None:
    """A log that is never synced was written before, and what was acknowledged last had changed nothing."""
    app = Application()
    app.call("write(log, 5)")
    app.made.mark("app 1")
    app.made.mark("app 2")
    app.call("fsync(f)")
    assert told(with_all_there(app)) is None


@given(st.lists(st.sampled_from(["write(f, 1)", "write(g, 1)", "rename(f, g)", "fsync(f)", "unlink(g)"])))
def test_a_program_that_syncs_all_before_it_acknowledges_is_never_accused(texts: list[str]) -> None:
    assert forgetful(*texts, "sync()").found() is None


COMPACTS = ("write(db.tmp, 21)", "rename(db.tmp, db)", "fsync(.)", "ftruncate(wal, 0)", "fsync(wal)")


def compacting(*calls: str) -> Application:
    """A log is synced and acknowledged; these calls make it a table; then another line is acknowledged."""
    app = Application()
    for text in ("write(wal, 11)", "fsync(wal)"):
        app.call(text)
    app.made.mark("app 1")
    for text in calls:
        app.call(text)
    app.call("write(wal, 11)")
    app.call("fsync(wal)")
    return app


def test_a_program_that_empties_its_log_before_the_table_is_synced_is_told_so() -> None:
    """It gave no cause, and "missing: a flush sent after" the journal's last commit."""
    app = compacting(*COMPACTS)
    late = app.made.write(9)
    names = {late: (BlockName(0, 4096, "data of inode 13 (db), block 0", Kind.DATA, sure=False),)}
    facts = app.facts()
    facts = replace(facts, names={**facts.names, **names})
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is Mechanism.PROGRAM_REPLACED
    assert (
        "my-db called ftruncate(wal, 0) at event 15, which takes away what had been durable, without "
        "having called fsync of `db.tmp`, or the like, for write(db.tmp, 21) (event 7)." in found.sentence
    )
    assert _missing_of(facts.program, found.mechanism) == (
        "an fsync of `db.tmp`, or the like, called after event 8 and done before event 15, ftruncate(wal, 0) "
        "(a guess: no state in which that is durable was seen)"
    )
    assert f"entry {late}, data of inode 13 (db), block 0 (?): sent only after the cut, at event" in _written(
        facts, found.mechanism
    )
    shown = {r.text for r in ladder(facts, app.calls) if r.kind == "call" and r.accent}
    assert {text.partition(" =")[0] for text in shown} == {"write(db.tmp, 21)", "ftruncate(wal, 0)"}


@pytest.mark.parametrize(
    "calls",
    [
        ("write(db.tmp, 21)", "fsync(db.tmp)", *COMPACTS[1:]),
        ("write(db.tmp, 21)", "rename(db.tmp, db)", "fsync(db)", *COMPACTS[2:]),
        ("write(db.tmp, 21)", "rename(db.tmp, db)", "sync()", *COMPACTS[3:]),
        ("openat(db.tmp, create|dsync)", *COMPACTS),
        ("ftruncate(wal, 0)", "fsync(wal)"),
        ("unlink(other)", "fsync(.)"),
    ],
    ids=["synced", "synced by its new name", "sync", "O_DSYNC", "nothing replaces it", "never acknowledged"],
)
def test_a_program_that_syncs_first_what_replaces_its_log_is_not_accused(calls: Sequence[str]) -> None:
    assert compacting(*calls).found() is None


@pytest.mark.parametrize("fate", ["persisted", "lost"])
def test_a_table_whose_data_is_on_the_platter_is_not_what_is_missing(fate: str) -> None:
    """The kernel had written it back by itself: then somebody else lost what is gone."""
    app = compacting()
    for text in COMPACTS[:2]:
        app.call(text)
    data = app.made.write(9)
    for text in COMPACTS[2:]:
        app.call(text)
    names = {data: (BlockName(0, 4096, "data of inode 13 (db), block 0", Kind.DATA, sure=False),)}
    facts = app.facts()
    facts = replace(facts, names={**facts.names, **names})
    if fate == "lost":
        facts = replace(facts, lost=(*facts.lost, data))
    found = told(facts)
    assert (found is Mechanism.PROGRAM_REPLACED) is (fate == "lost")


def test_what_was_lost_from_before_the_log_was_emptied_is_the_kernels() -> None:
    """barrier=0 loses what was synced: the program is not accused of it, whatever it forgot later."""
    app = compacting(*COMPACTS)
    facts = app.facts()
    assert told(facts) is Mechanism.PROGRAM_REPLACED
    assert told(replace(facts, lost=(app.records[0], *facts.lost))) is not Mechanism.PROGRAM_REPLACED


RENAMES = ("write(db.tmp, 21)", "fsync(db.tmp)", "rename(db.tmp, db)", "ftruncate(wal, 0)", "fsync(wal)")


def test_a_rename_that_is_not_synced_before_the_log_is_emptied_is_told_so() -> None:
    """Where fsync of one file does not make another's name durable, as on btrfs and F2FS."""
    facts = compacting(*RENAMES).facts(in_order=False)
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is Mechanism.PROGRAM_REPLACED
    assert (
        "without having called fsync of the directory `.`, or the like, for rename(db.tmp, db) (event"
        in found.sentence
    )
    assert _missing_of(facts.program, found.mechanism).startswith("an fsync of the directory `.`, or the")


@pytest.mark.parametrize(
    ("calls", "in_order"),
    [
        (RENAMES, True),
        ((*RENAMES[:3], "fsync(.)", *RENAMES[3:]), False),
        ((*RENAMES[:3], "fsync(db)", *RENAMES[3:]), False),
    ],
    ids=["a journal has it", "its directory", "the file itself"],
)
def test_a_rename_that_a_mode_makes_durable_is_no_cause(calls: Sequence[str], in_order: bool) -> None:
    assert told(compacting(*calls).facts(in_order=in_order)) is not Mechanism.PROGRAM_REPLACED


def test_a_rename_that_is_acknowledged_wants_its_directory_synced_and_no_other_file() -> None:
    """An fsync of the log counted as one of the rename, which btrfs promises nowhere."""
    app = Application()
    for text in ("write(new, 5)", "fsync(new)", "rename(new, value)", "write(log, 5)", "fsync(log)"):
        app.call(text)
    app.made.mark("app 1")
    app.call("fsync(.)")
    assert told(app.facts()) is None
    found = there(mechanism_of(app.facts(in_order=False), made_up=False))
    assert found.mechanism is Mechanism.PROGRAM_NEVER
    assert "fsync of the directory `.`, or the like, for rename(new, value)" in found.sentence


@given(
    st.lists(
        st.sampled_from(["write(f, 1)", "write(g, 1)", "rename(f, g)", "fsync(f)", "unlink(g)", "fsync(.)"])
    ),
    st.booleans(),
)
def test_a_program_that_syncs_all_before_it_takes_anything_away_is_never_accused(
    texts: list[str], in_order: bool
) -> None:
    app = Application()
    app.call("write(g, 1)")
    app.call("sync()")
    app.made.mark("app 0")
    for text in texts:
        app.call("sync()")
        app.call(text)
    app.call("sync()")
    app.made.mark("app 1")
    app.call("fsync(f)")
    assert told(app.facts(in_order=in_order)) is None


# --- what came back beside what would have been accepted ------------------------------------------------


def files(**contents: str) -> Tree:
    """A tree of files in the root, or below `d_`, each with contents."""
    entries = {}
    for name, text in contents.items():
        path = name.replace("__", "/")
        entries[path] = TreeEntry(path, FileKind.FILE, 9, 0o644, 1, 0, 0, len(text), 0, digest=text)
    return entries


def cause(
    calls: Sequence[str],
    found: Tree,
    more: Tree | None = None,
    less: Tree | None = None,
    *,
    idle: Sequence[str] = (),
    in_order: bool = True,
) -> str:
    """What is said of calls, among which `ack` acknowledges; at last, `fsync(later)` commits all."""
    app = Application()
    app.evidence = Evidence(found, more, less)
    for text in calls:
        if text == "ack":
            app.made.mark("app 1")
        else:
            app.call(text, idle=text in idle)
    app.call("fsync(later)")
    found_ = mechanism_of(app.facts(in_order=in_order), made_up=False)
    return "" if found_ is None else str(found_)


def cause_of_all_there(calls: Sequence[str], found: Tree, *, less: Tree, more: Tree | None = None) -> str:
    """What is said of calls where all that was sent is on the platter."""
    app = Application()
    app.evidence = Evidence(found, more, less)
    for text in calls:
        app.made.mark("app 1") if text == "ack" else app.call(text)
    found_ = mechanism_of(with_all_there(app), made_up=False)
    return "" if found_ is None else str(found_)


def test_an_fsync_of_a_directory_that_had_nothing_left_to_do_hides_no_cause() -> None:
    """No cause was given as soon as any fsync sent nothing: the commonest shape there is."""
    calls = ["openat(f, create)", "write(f, 4)", "fsync(f)", "fsync(.)", "ack", "write(f, 4)", "ack"]
    said = cause(calls, files(f="one"), files(f="one two"), idle=("fsync(.)",))
    assert "without having called fsync of `f`, or the like, for write(f, 4) (event 11)" in said
    app = Application()
    for text in calls:
        app.made.mark("app 1") if text == "ack" else app.call(text, idle=text == "fsync(.)")
    app.call("fsync(later)")
    assert told(with_all_there(app)) is Mechanism.PROGRAM_NEVER, "in a log that never has it"


@pytest.mark.parametrize(
    ("call", "directory", "found", "more"),
    [
        ("unlink(cache/data)", "cache", files(cache__data="x"), files()),
        ("mkdir(a/b)", "a", files(), files(a__b="")),
        ("symlink(a/b)", "a", files(), files(a__b="")),
        ("rename(a/t, a/b)", "a", files(a__t="x"), files(a__b="x")),
        ("linkat(f, a/b)", "a", files(f="x"), files(f="x", a__b="x")),
    ],
    ids=["unlink", "mkdir", "symlink", "rename", "link"],
)
def test_a_name_wants_the_fsync_of_its_own_directory(
    call: str, directory: str, found: Tree, more: Tree
) -> None:
    """The working directory was named for all but renames."""
    said = cause(["sync()", call, "ack"], found, more)
    assert f"without having called fsync of the directory `{directory}`, or the like, for {call}" in said


def test_an_fsync_of_another_directory_that_commits_nothing_covers_no_name() -> None:
    """A file behind a link was replaced, and the link's directory synced: any fsync counted as covering."""
    calls = ["write(real/t, 5)", "fsync(real/t)", "rename(real/t, real/c)", "fsync(etc)", "ack"]
    found, more = files(real__t="new", real__c="old"), files(real__c="new")
    said = cause(calls, found, more, idle=("fsync(etc)",))
    assert "fsync of the directory `real`, or the like, for rename(real/t, real/c)" in said
    assert cause(calls, found, more) == "", "what a commit has taken along is the kernel's"
    assert "directory `real`" in cause(calls, found, more, in_order=False)


def test_a_log_that_is_cut_before_its_pages_are_durable_is_told_by_the_cut() -> None:
    """No cause was given: one of the pages had reached the platter."""
    calls = ["write(wal, 9)", "fsync(wal)", "ack", "pwrite(db, 9 at 0)", "ftruncate(wal, 0)", "fsync(wal)"]
    said = cause(calls, files(wal="", db="old"), files(wal="", db="new"))
    assert said.startswith("The program removed the old before the new was durable. my-db called ftruncate")
    assert "fsync of `db`, or the like, for pwrite(db, 9 at 0)" in said


def test_of_several_removals_the_one_that_took_effect_is_named() -> None:
    """An unlink was blamed that had not reached the disk; and two files that had one name were one."""
    calls = ["write(m.tmp, 1)", "fsync(m.tmp)", "rename(m.tmp, m)", "write(t0, 9)", "fsync(t0)", "ack"]
    calls += ["write(t1, 9)", "openat(m.tmp, create|truncate)", "write(m.tmp, 1)", "fsync(m.tmp)"]
    calls += ["rename(m.tmp, m)", "fsync(.)", "unlink(t0)"]
    found, more = files(m="t1", t0="0", t1=""), files(m="t1", t0="0", t1="1")
    said = cause(calls, found, more)
    assert "called rename(m.tmp, m) at event" in said
    assert "fsync of `t1`, or the like, for write(t1, 9)" in said


def test_a_file_that_is_emptied_before_it_is_written_anew_is_told_by_that() -> None:
    """The write was said to be ahead of the truncation."""
    calls = ["openat(c, create)", "write(c, 9)", "fsync(c)", "ack", "openat(c, truncate)", "write(c, 9)"]
    said = cause(calls, files(c=""), files(c="new"), files(c="old"))
    assert "called openat(c, truncate) at event" in said
    assert "before what replaces it was durable: write(c, 9)" in said


def test_a_name_that_held_nothing_before_takes_nothing_away() -> None:
    """A rename to a new name was said to take away what the program had acknowledged."""
    calls = ["write(log, 1)", "fsync(log)", "ack", "write(t, 5)", "rename(t, fresh)"]
    said = cause(calls, files(log="1", fresh=""), files(log="1", fresh="x"))
    assert "takes away" not in said


def links(**targets: str) -> Tree:
    """A tree of symbolic links in the root."""
    return {
        name: TreeEntry(name, FileKind.SYMLINK, 9, 0o777, 1, 0, 0, len(target), 0, target=target.encode())
        for name, target in targets.items()
    }


def of_inode(inode: int, tree: Tree) -> Tree:
    """A tree in which every file is that inode."""
    return {path: replace(entry, inode=inode) for path, entry in tree.items()}


@pytest.mark.parametrize("in_order", [True, False])
def test_a_link_that_still_has_its_old_target_was_not_renamed_over(in_order: bool) -> None:
    """No cause was given: the rename was taken for one that had come back."""
    calls = ["symlink(current)", "fsync(.)", "ack", "symlink(new)", "rename(new, current)", "ack"]
    said = cause(calls, links(current="r1"), links(current="r2"), in_order=in_order)
    assert said.startswith("The program acknowledged without fsync.")
    assert "fsync of the directory `.`, or the like, for rename(new, current)" in said


REPLACES = ["openat(c, create)", "write(c, 3)", "fsync(c)", "ack"]
REPLACES += ["openat(t, create)", "write(t, 9)", "rename(t, c)", "ack"]


def test_a_file_that_a_rename_did_not_replace_was_not_taken_away() -> None:
    """The old file was there as it had been, and the rename was said to have taken it away; with the fsync
    that was named, before the rename, it would still be lost.
    """
    old, new = of_inode(12, files(c="old")), of_inode(13, files(c="123456789"))
    said = cause(REPLACES, old, new)
    assert said.startswith("The program acknowledged without fsync.")
    assert "called fsync of `t` and fsync of the directory `.`, or the like, for write(t, 9)" in said


@pytest.mark.parametrize(
    "found",
    [of_inode(13, files(c="")), of_inode(12, files(c="")), of_inode(13, files(c="\0" * 3))],
    ids=["the new, empty", "the old, empty", "the new, as long as the old"],
)
def test_a_file_that_is_not_the_old_one_was_taken_away(found: Tree) -> None:
    said = cause(REPLACES, found, of_inode(13, files(c="123456789")))
    assert said.startswith("The program removed the old before the new was durable.")
    assert "called rename(t, c) at event" in said


def test_what_a_program_had_synced_is_the_kernels() -> None:
    """The program was blamed for a kernel's bug, with a remedy that did not help: a file without a name is
    synced, linked and renamed, its directory synced, and it comes back empty.
    """
    calls = ["write(etc/#7 (deleted), 9)", "fsync(etc/#7 (deleted))", "linkat(etc/#7 (deleted), etc/t)"]
    calls += ["rename(etc/t, etc/c)", "fsync(etc)", "ack"]
    assert cause(calls, files(etc__c=""), files(etc__c="new"), in_order=False) == ""
    assert cause([*calls, "write(log, 1)", "ack"], files(etc__c=""), files(etc__c="new", log="1")) == ""


def test_a_file_that_is_there_before_its_contents_is_told_before_any_acknowledgement() -> None:
    """Before the first acknowledgement nothing was said."""
    calls = ["openat(db, create)", "write(other, 1)", "fsync(other)", "pwrite(db, 16384 at 0)"]
    said = cause(calls, files(db="", other="1"), files(db="pages", other="1"), files())
    assert said.startswith("The file had its name before its contents were durable. my-db gave the name `db`")


LOG = ["openat(journal, create)", "write(journal, 8)", "fsync(journal)", "fsync(.)", "ack"]
RECORD = ["write(journal, 4)", "fsync(other)"]


def test_what_is_appended_to_a_file_that_has_its_name_long_since_is_not_early() -> None:
    """A journal took half a record for a whole one. Its name, synced with all that was in it, was said to
    have come before its contents, and another name for it mended nothing.
    """
    head, half, whole = files(journal="HEADHEAD"), files(journal="HEADHEADREC1"), files(journal="x" * 112)
    calls = [*LOG, *RECORD, "write(journal, 100)"]
    assert cause(calls, half, whole, head) == ""
    renamed = ["openat(new, create)", "write(new, 8)", "fsync(new)", "rename(new, journal)", "fsync(.)"]
    assert cause([*renamed, "ack", *RECORD, "write(journal, 100)"], half, whole, head) == ""


def test_a_name_that_was_given_to_synced_contents_is_not_early() -> None:
    """The rename is there, and without it all is accepted: what is missing was written later."""
    calls = ["openat(t, create)", "write(t, 9)", "fsync(t)", "rename(t, c)", "fsync(.)", "write(c, 9)"]
    assert "had its name" not in cause(calls, files(c="123456789"), files(c="1" * 18), files())
    unsynced = [call for call in calls if call != "fsync(t)"]
    assert "had its name" in cause(unsynced, files(c=""), files(c="1" * 18), files())


@pytest.mark.parametrize(("size", "is_half"), [(8, False), (9, True), (4096, True), (6012, False)])
def test_a_part_of_one_write_shows_in_the_size_of_its_file(size: int, is_half: bool) -> None:
    """The commit that brought the size was lost, no block of data: "the file had its name ..." was said."""
    calls = [*LOG, "write(journal, 6004)", "fsync(other)"]
    said = cause(calls, files(journal="x" * size), files(journal="x" * 6012), files(journal="y" * 8))
    assert said.startswith("Half of one write is there. Of write(journal, 6004)") is is_half
    calls[-1:] = ["write(other, 3)", "fsync(later)"]
    more, less = files(journal="x" * 6012, other="123"), files(journal="y" * 8, other="123")
    found = files(journal="x" * size, other="")
    assert cause(calls, found, more, less).startswith("Half of one write") is is_half, "whatever else is open"


@pytest.mark.parametrize(
    ("path", "swapped", "guess"),
    [
        ("journal", False, "a checksum in the record"),
        ("b", False, "one rename that brings both"),
        ("b", True, "another order of these calls, or one rename"),
    ],
)
def test_what_lies_between_two_writes_of_one_record_wants_a_checksum(
    path: str, swapped: bool, guess: str
) -> None:
    app = Application()
    for text in ("write(journal, 4)", f"write({path}, 100)", "fsync(later)"):
        app.call(text)
    program = there(app.facts().program)
    made = Change(app.calls[1], Sort.DATA, 3, path)
    program = replace(program, gap=Gap(app.calls[0], None, made, swapped=swapped), shown=True)
    found = of_program(app.facts(), program)
    assert found is not None, "a commit record was lost, and the calls tell all the same"
    assert found.mechanism is Mechanism.PROGRAM_BETWEEN
    assert _missing_of(program, found.mechanism).startswith(guess)
    synced = replace(program, gap=Gap(app.calls[0], app.calls[2], made), order=None)
    assert of_program(app.facts(), synced) is None, "a state that lacks something else"


def test_the_data_of_the_program_beside_it_is_not_what_was_written() -> None:
    """`written:` named a block of another file, which had no name, sent by an fsync of another program."""
    app = Application()
    app.call("openat(f, create)")
    app.call("write(f, 5)")
    app.call("fsync(later)")
    late = app.made.write(9)
    facts = app.facts()
    nameless = BlockName(0, 4096, "data of inode 13, block 0", Kind.DATA, sure=False)
    change = Change(app.calls[1], Sort.DATA, 2, "f")
    taken = Order(app.calls[2], (change,), taken=True, paths=frozenset({"f"}))
    program = replace(facts.program, taken=taken) if facts.program else None
    facts = replace(facts, names={**facts.names, late: (nameless,)}, program=program)
    at = next(w.submitted for w in facts.times.writes if w.entry == late)
    beside = ProgramCall(ANOTHER, "another program: fsync of its own file", at - 1, at + 1, 0)
    assert f"entry {late}" in _written(facts, Mechanism.PROGRAM_REPLACED, app.calls)
    said = _written(facts, Mechanism.PROGRAM_REPLACED, [*app.calls, beside])
    assert said == f"write(f, 5), at event {change.began}: no write of it is known"


def test_a_control_says_how_many_writes_it_has_besides() -> None:
    """Two were named, and six differed."""
    assert _first_two(["entry 1", "entry 2"]) == "entry 1, entry 2"
    assert _first_two([f"entry {n}" for n in range(8)]) == "entry 0, entry 1, and 6 more"


def test_contents_that_were_written_before_a_rename_want_an_fsync_before_it() -> None:
    """ "Another name until the contents are durable, then a rename": the program does just that."""
    app = Application()
    for call in ("openat(t, create)", "write(t, 9)", "rename(t, c)", "fsync(.)", "fsync(later)"):
        app.call(call)
    app.evidence = Evidence(files(c=""), files(c="123456789"), files())
    facts = app.facts()
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is Mechanism.PROGRAM_NAMED
    assert _missing_of(facts.program, found.mechanism) == (
        "an fsync of `t`, or the like, called after event 3 and done before event 4, rename(t, c)"
    )


@pytest.mark.parametrize("call", ["pwritev2(f, 9 at 0)", "ficlone(f)", "copy_file_range(f, 9)"])
def test_a_write_of_any_kind_is_known(call: str) -> None:
    """pwritev2, which os.pwritev calls, and FICLONE were no writes."""
    said = cause(["sync()", call, "ack"], files(f="old"), files(f="new"))
    assert f"fsync of `f`, or the like, for {call}" in said
    assert cause(["sync()", "pwritev2(f, 9 at 0, dsync)", "ack"], files(f="old"), files(f="new")) == ""


def test_a_write_that_is_there_in_part_wants_a_checksum() -> None:
    app = Application()
    app.call("openat(log, create)")
    app.call("fsync(log)")
    app.call("pwrite(log, 8192 at 0)")
    app.evidence = Evidence(files(log="half"), files(log="whole"))
    one, other = app.made.write(7), app.made.write(8)
    app.call("fsync(log)")
    data = {e: name(Kind.DATA, f"data of inode 13 (log), block {e}") for e in (one, other)}
    facts = app.facts()
    facts = replace(facts, names={**facts.names, **data}, lost=(one, *facts.lost), cleared=(one,))
    found = mechanism_of(facts, made_up=False)
    assert found is not None, "the commit is lost as well, but it turns nothing"
    assert found.mechanism is Mechanism.PROGRAM_HALF
    assert "Of pwrite(log, 8192 at 0), called at event 6, a part came back" in found.sentence
    assert "checksum" in _missing_of(facts.program, found.mechanism)


def test_a_page_that_is_ahead_of_its_log_is_told_by_both() -> None:
    """A page is written in place before the log that has it is durable: nothing was removed."""
    calls = ["pwrite(db, 9 at 0)", "sync()", "ack", "write(wal, 9)", "pwrite(db, 9 at 0)"]
    found = files(db="new", wal="")
    said = cause(calls, found, files(db="new", wal="frame"), files(db="old", wal=""))
    assert said.startswith("The program's later call took effect without an earlier one.")
    assert "called pwrite(db, 9 at 0) at event" in said
    assert "fsync of `wal`, or the like, for write(wal, 9)" in said


EMPTIED = ["openat(f, create)", "write(f, 9)", "fsync(f)", "ack", "openat(f, truncate)"]
CALLS_OF_A_SWAP = ["symlink(current)", "fsync(.)", "ack", "unlink(current)", "fsync(.)"]


def test_what_a_program_takes_away_for_good_before_it_has_the_new_is_told_by_the_gap() -> None:
    """No cause was given where nothing had been lost: a link was removed, that was synced, then made anew."""
    app = files(app="r2")
    calls = [*CALLS_OF_A_SWAP, "symlink(current)"]
    said = cause_of_all_there(calls, app, less=files(app="r2", current="r1"))
    assert said.startswith("The program removed the old before it made the new. my-db called unlink(current)")
    assert "made that durable by fsync(.)" in said
    assert "before it called symlink(current)" in said
    calls = ["openat(doc, create)", "write(doc, 20)", "fsync(doc)", "link(doc, bak)", "fsync(.)", "ack"]
    calls += ["openat(doc, truncate)", "write(doc, 8)", "fsync(doc)", "write(doc, 8)"]
    old = "twenty bytes of text"
    half, whole = files(doc="12345678", bak="12345678"), files(doc=old, bak=old)
    said = cause_of_all_there(calls, half, less=whole)
    assert "called openat(doc, truncate) at event" in said
    assert "(`bak` names the same file)" in said


@pytest.mark.parametrize(
    ("calls", "found", "less"),
    [
        ([*CALLS_OF_A_SWAP, "symlink(current)", "fsync(.)", "fsync(g)"], files(), files(current="r1")),
        (["symlink(t)", *CALLS_OF_A_SWAP[:3], "rename(t, current)"], files(), files(current="r1")),
        (
            [*EMPTIED, "write(f, 9)", "fsync(f)", "write(f, 1)", "fsync(g)"],
            files(f=""),
            files(f="nine byte"),
        ),
    ],
    ids=["the new is durable", "renamed over", "what was synced is gone"],
)
def test_a_gap_that_the_calls_do_not_leave_is_the_kernels(calls: list[str], found: Tree, less: Tree) -> None:
    assert "removed the old before it made the new" not in cause_of_all_there(calls, found, less=less)


def test_of_several_names_that_came_too_early_the_last_is_told_too() -> None:
    """A marker was made after four files, none of them synced: the second file was said to rely on the first.
    And a copy that ended with a call which copied nothing was told as two.
    """
    calls = ["mkdir(p)", "openat(p/a, create)", "sendfile(p/a, 6)", "sendfile(p/a, 0)"]
    calls += ["openat(p/b, create)", "sendfile(p/b, 6)", "openat(p/done, create)", "fsync(p/done)"]
    whole = files(p__a="123456", p__b="123456", p__done="")
    said = cause_of_all_there(calls, files(p__a="", p__b="", p__done=""), less=files(), more=whole)
    assert "called openat(p/b, create) at event" in said
    assert "and later calls up to openat(p/done, create) at event" in said
    assert "fsync of `p/a`, or the like, for sendfile(p/a, 6) (event 4)." in said
    assert said.endswith("The states compared do not tell which of these calls relies on that.")


def test_a_remedy_of_which_no_state_was_seen_is_called_a_guess() -> None:
    app = forgetful("write(f, 5)")
    facts = with_all_there(app)
    found = there(mechanism_of(facts, made_up=False))
    assert _missing_of(facts.program, found.mechanism).endswith(
        "(a guess: no state in which that is durable was seen)"
    )
    app.evidence = Evidence(files(), files(f="x"))
    facts = app.facts()
    found = there(mechanism_of(facts, made_up=False))
    assert "guess" not in _missing_of(facts.program, found.mechanism)


@pytest.mark.parametrize(
    ("calls", "weak"),
    [
        (["write(f, 5)", "sync_file_range(f, 5 at 0)"], "sync_file_range(f, 5 at 0), called at event"),
        (["fchmod(f)", "fdatasync(f)"], "fdatasync(f), called at event"),
        (["write(f, 5)", "msync(f, 5 at 0, async)"], "msync(f, 5 at 0, async), called at event"),
        (["write(f, 5)", "msync(f, 0 at 0)"], "msync(f, 0 at 0), called at event"),
        (["pwrite(f, 5 at 4096)", "msync(f, 5 at 0)"], "msync(f, 5 at 0), called at event"),
        (["sync_file_range(f, 5 at 0)", "write(f, 5)"], ""),
        (["write(f, 5)", "sync_file_range(g, 5 at 0)"], ""),
    ],
)
def test_a_call_that_promises_less_than_an_fsync_is_told_to_be_too_weak(calls: list[str], weak: str) -> None:
    """`without having called fsync of f` was all that was said to somebody who had called fdatasync(f).
    And an msync(2) that waits for nothing, or is of other pages, was taken for a sync of the file: no cause
    was named.
    """
    start = ["openat(f, create)", "openat(g, create)", "sync()"]
    less, more = files(f=""), files(f="12345")
    if "fchmod(f)" in calls:
        less, more = files(f="1"), {p: replace(e, mode=0o600) for p, e in files(f="1").items()}
    said = cause([*start, *calls, "ack"], {**less, **files(g="")}, {**more, **files(g="")}, in_order=False)
    assert said.startswith("The program acknowledged without fsync.")
    assert weak in said
    assert ("does not make that durable." in said) is bool(weak)


def test_a_sync_that_came_too_late_is_not_too_weak() -> None:
    """`fdatasync(ring), called at event 43, does not make that durable` was false: it was called too late."""
    app = Application()
    for text in ("write(f, 5)", "write(g, 5)", "fdatasync(f)", "sync_file_range(f, 5 at 0)"):
        app.call(text)
    program = there(app.facts().program)
    missing = Change(app.calls[0], Sort.DATA, 2, "f")
    weak = tuple(Sync(call, 2) for call in app.calls[2:])
    order = Order(app.calls[1], (missing,))
    assert "does not make" not in out_of_order(replace(program, weak=weak), order)
    late = replace(order, ahead=replace(app.calls[1], began=10_000))
    assert "sync_file_range(f, 5 at 0), called at event" in out_of_order(replace(program, weak=weak), late)


@pytest.mark.parametrize("mechanism", [Mechanism.PROGRAM_NEVER, Mechanism.PROGRAM_ORDER])
def test_no_acknowledgement_is_broken_by_a_wrong_order(mechanism: Mechanism) -> None:
    """`opened` was marked as broken where half of a transfer came back that had not been acknowledged."""
    facts = forgetful("write(f, 5)").facts()
    said = _promised(facts, mechanism)
    broken = [r for r in ladder(facts, (), mechanism) if r.kind == "mark" and r.accent]
    assert bool(broken) is (mechanism is Mechanism.PROGRAM_NEVER)
    assert said.startswith("by the acknowledgement `1` of my-db, at event") is bool(broken)
    assert ("own check; the last before the power failed was the acknowledgement `1`" in said) is not bool(
        broken
    )


@pytest.mark.parametrize("synced", [True, False])
def test_a_manifest_that_is_there_before_its_image_removed_nothing(synced: bool) -> None:
    """ "Removed the old before the new was durable" was said of a manifest that was replaced by the book, and
    lists an image that was not.
    """
    start = ["openat(man, create)", "write(man, 3)", "fsync(man)", "fsync(.)", "ack"]
    start += ["openat(img, create)", *(["write(img, 9)"] if synced else []), "openat(tmp, create)"]
    calls = [*start, "write(tmp, 6)", *(["fsync(tmp)"] if synced else []), "rename(tmp, man)", "fsync(.)"]
    less, found = files(man="old", img=""), files(man="newest" if synced else "", img="")
    more = files(man="newest", img="123456789" if synced else "")
    said = cause(calls, found, more, less, in_order=False)
    assert said.startswith("The program's later call took effect") is synced
    assert said.startswith("The program removed the old before the new was durable") is not synced


def test_of_files_that_no_state_tells_apart_one_sync_is_wanted() -> None:
    """ "An fsync of `a` and fsync of `b`" was said where one of these was a scratch file."""
    app = Application()
    app.call("write(a, 5)")
    app.call("write(b, 5)")
    changes = [
        Change(call, Sort.DATA, n, path) for n, (call, path) in enumerate(zip(app.calls, "ab", strict=True))
    ]
    assert (
        wanted_sync(changes)
        == "fsync of `a` or fsync of `b` (the states compared do not tell which), or the like"
    )
    assert wanted_sync(changes, tried=True) == "fsync of `a` and fsync of `b`, or the like"
    assert wanted_sync(changes[:1]) == "fsync of `a`, or the like"


def test_a_file_that_came_back_with_its_old_owner_lacks_the_chown() -> None:
    """Permissions were compared, and owners were not: no cause was named."""
    start = ["openat(f, create)", "sync()", "chown(f)", "ack"]
    found = files(f="1")
    more = {p: replace(e, uid=1000) for p, e in found.items()}
    said = cause(start, found, more)
    assert "for chown(f) (event" in said


def test_what_was_synced_behind_its_acknowledgement_is_not_what_is_missing() -> None:
    """The check named the first night, whose rename was durable by then: it was blamed for the second."""
    app = Application()
    app.call("write(f, 5)")
    app.made.mark("app night 1")
    app.call("fsync(f)")
    app.call("write(f, 3)")
    app.made.mark("app night 2")
    app.call("fsync(later)")
    app.evidence = Evidence(files(f="12345"), files(f="12345678"), None, "the newest is of night 1, not of 2")
    program = there(app.facts().program)
    assert (program.text, [c.call.text for c in program.unsynced]) == ("night 2", ["write(f, 3)"])


def test_an_empty_file_that_is_emptied_loses_nothing() -> None:
    """A synced file of no bytes was opened to be emptied, and that had "taken away what had been durable"."""
    calls = ["openat(t, create)", "fsync(t)", "write(log, 5)", "openat(t, create|truncate)", "ack"]
    said = cause(calls, files(t="", log=""), files(t="", log="entry"))
    assert said.startswith("The program acknowledged without fsync.")
    assert "for write(log, 5)" in said


def test_contents_have_to_be_durable_before_the_file_has_another_name() -> None:
    """Any time up to the acknowledgement was named: then, the name is another file's."""
    app = forgetful("openat(t, create)", "write(t, 9)", "rename(t, c)", "fsync(.)")
    facts = app.facts()
    assert facts.program is not None
    said = _missing_of(facts.program, Mechanism.PROGRAM_NEVER)
    assert "fsync of `t`, or the like, called after event 3 and done before event 4, rename(t, c)" in said


def test_a_file_that_nobody_ever_syncs_comes_after_one_that_is_synced() -> None:
    """A scratch file that was unsynced in the same window was named in place of the journal, or as if both
    were needed.
    """
    start = ["openat(j, create)", "write(j, 1)", "fsync(j)", "fsync(.)", "ack"]
    calls = [*start, "openat(tmp, create)", "write(tmp, 6)", "write(j, 8)", "ack"]
    said = cause(calls, files(j="1"), files(j="1........", tmp="......"))
    assert re.search(
        r"at event \d+\. No sync had covered write\(j, 8\) \(event \d+\) and write\(tmp, 6\)", said
    )
    assert said.endswith("do not tell which of these matters.")
    alone = cause(calls, files(j="1", tmp=""), files(j="1", tmp="......"))
    assert "fsync of `tmp`, or the like, for write(tmp, 6)" in alone, "if nothing else is missing"


def test_what_a_rename_brings_is_the_cause_before_what_lies_beside_it() -> None:
    start = ["openat(log, create)", "write(log, 3)", "fsync(log)", "fsync(.)", "ack"]
    calls = [*start, "write(stats, 4)", "openat(new, create)", "write(new, 3)", "rename(new, log)"]
    less = files(log="old")
    said = cause([*calls, "fsync(.)"], files(log="", stats=""), files(log="new", stats="...."), less)
    assert "called rename(new, log) at event" in said
    assert re.search(r"No sync had covered write\(new, 3\) \(event \d+\) and write\(stats, 4\)", said)


def test_a_rename_that_brings_what_is_durable_takes_nothing_away() -> None:
    """A package's list was never synced, and the proper replacement of the status file was blamed for it."""
    start = ["openat(status, create)", "write(status, 3)", "fsync(status)", "fsync(.)"]
    calls = [*start, "openat(list, create)", "write(list, 9)", "openat(new, create)", "write(new, 3)"]
    done = ["fsync(new)", "rename(new, status)", "fsync(.)", "ack"]
    said = cause([*calls, *done], files(status="new", list=""), files(status="new", list="123456789"))
    assert "acknowledged `1` at event" in said
    assert "without having called fsync of `list`, or the like, for write(list, 9)" in said


@pytest.mark.parametrize("beside", [[], ["write(access, 1)"]])
def test_a_name_that_is_missing_is_the_cause_before_a_scratch_file(beside: list[str]) -> None:
    """Contents came before names: write(access) was named, and the rename after it was not."""
    start = ["mkdir(pub)", "openat(a, create)", "write(a, 1)", "openat(man, create)", "sync()", "fsync(a)"]
    calls = [*start, "ack", *beside, "rename(a, pub/a)", "write(man, 2)", "fsync(man)"]
    found, less = files(a="1", man=".."), files(a="1", man="")
    more = {**files(pub__a="1", man=".."), **(files(access=".") if beside else {})}
    said = cause(calls, found, more, less, in_order=False)
    assert "called write(man, 2) at event" in said
    wanted = (
        "No sync had covered"
        if beside
        else "without having called fsync of the directory `pub`, or the like, for"
    )
    assert f"{wanted} rename(a, pub/a) (event" in said
    assert ("do not tell which of these matters" in said) is bool(beside)


def test_a_removal_that_no_sync_covers_is_a_cause() -> None:
    """The acknowledgement before was blamed: only names that are given were looked at."""
    start = ["openat(key, create)", "write(key, 3)", "write(tomb, 3)", "sync()", "fsync(tomb)", "ack"]
    calls = [*start, "unlink(key)", "ftruncate(tomb, 0)", "fsync(tomb)"]
    said = cause(
        calls, files(key="key", tomb=""), files(tomb=""), files(key="key", tomb="key"), in_order=False
    )
    assert "called ftruncate(tomb, 0) at event" in said
    assert "fsync of the directory `.`, or the like, for unlink(key) (event" in said


@pytest.mark.parametrize(
    ("text", "said", "named"),
    [
        ("line ", "line 1 is gone", "line 1"),
        ("line ", "line 1 and line 2 are gone", "line 1"),
        ("line ", "line 11 is gone", "line 3"),
        ("line ", "1 is gone", "line 3"),
        ("line ", "line 0 is gone", "line 3"),
        ("", "3 were acknowledged, and 1 is there", "3"),
    ],
)
def test_the_acknowledgement_that_the_check_names_is_the_one_that_is_blamed(
    text: str, said: str, named: str
) -> None:
    """The last one was: with an fsync where it was wanted, the next run blamed the one before."""
    app = Application()
    app.made.mark("app line 0")
    for line in (1, 2, 3):
        app.call(f"write(log, {line})")
        app.made.mark(f"app {text}{line}")
    app.call("fsync(log)")
    app.evidence = Evidence(files(log=""), files(log="122333"), None, said)
    program = there(app.facts().program)
    assert program.text == named


_COMPACTS = ("openat(new, create)", "write(new, 5)", "fsync(new)", "rename(new, index)")


def test_a_loss_that_later_calls_made_up_for_is_the_programs() -> None:
    """ "No write: all that was sent is there", and no cause: the later state was accepted for a log that had
    been compacted, and lacks the same writes.
    """
    calls = ["write(log, 5)", "ack", *_COMPACTS]
    said = cause(calls, files(log="", new="12345"), files(log="", index="12345"))
    assert "without having called fsync of `log`, or the like, for write(log, 5) (event 0)" in said
    came = cause(calls, files(log="12345", new="12345"), files(log="12345", index="12345"))
    assert came == "", "all of it is there"


@pytest.mark.parametrize(
    ("before", "found"),
    [
        (["write(log, 5)", "write(also, 5)"], {"log": "", "also": ""}),
        (["write(db, 5)", "fsync(db)", "write(log, 5)"], {"log": "", "db": ""}),
        (["write(db, 5)", "fsync(db)", "write(log, 5)"], {"log": ""}),
        (["write(log, 5)", "ftruncate(log, 0)"], {"log": ""}),
        (["write(log, 5)", "fsync(log)"], {"log": ""}),
    ],
    ids=["of two files, which?", "what was synced is short", "what was synced is gone", "cut", "synced"],
)
def test_a_loss_that_was_made_up_for_accuses_nobody_where_it_may_be_another(
    before: list[str], found: dict[str, str]
) -> None:
    calls = [*before, "ack", *_COMPACTS]
    assert cause(calls, files(**found, new="12345"), files(**found, index="12345")) == ""


def test_a_state_that_another_of_its_own_checks_words_refuses_is_no_control() -> None:
    """The control of "apple was acknowledged" was a state in which pear was gone instead."""
    legal = three_writes()
    cut = next(c for c in legal.cuts() if len(legal.losable(c)) == 3)
    start = legal.losing(cut, legal.losable(cut))
    end = legal.cuts()[-1]
    visits = Visits(losing_any(legal, {1, 2}))
    assert minimise(legal, start, visits, always).control != end
    assert minimise(legal, start, visits, always, keeps=lambda c: c == end).control == end


def test_what_had_not_been_sent_need_not_be_lost() -> None:
    """The state of a program's finding had lost a commit that was sent long after the promise was broken."""
    made = Recorder()
    made.mark("begin 0")
    made.complete(made.submit(1))
    made.mark("ack 0")
    made.mark("begin 1")
    late = made.write(2)
    legal = made.legal()
    end = legal.cuts()[-1]
    chunks = [n for n, c in enumerate(legal.chunks) if c.entry == late]

    def fails(state: CrashState) -> bool:
        shown = legal.on_disk(state)
        there = set(range(shown.prefix)) - set(shown.dropped)
        return legal.position(state).acked > 0 and there.isdisjoint(chunks)

    minimal = minimise(legal, legal.losing(end, chunks), Visits(fails), always)
    assert minimal.lost == ()
    assert legal.event(minimal.state) <= legal.submitted(late)


def test_the_ladder_of_an_application_has_its_calls() -> None:
    app = forgetful("write(f, 5)")
    rungs = [r for r in ladder(app.facts(), app.calls) if r.kind in ("call", "mark")]
    assert [(r.text, r.accent) for r in rungs] == [
        ("write(f, 5) = 5, done at 1", True),
        ("acknowledged: 1", True),
        ("fsync(f) = 0, done at 6", False),
    ]
    drawn = Explanation("0" * 12, "", "", {}, tuple(rungs), "X")
    assert "     0    write(f, 5) = 5, done at 1" in ladder_text(drawn)
    assert "write(f, 5) = 5" in str(ladder_svg(drawn))


def test_where_only_rules_decide_the_ladder_is_of_calls() -> None:
    """It had the columns of a write log, empty, and said that a call is a moment of the block layer."""
    rungs = (
        Rung("call", "0 creat(f)", event=0, fate=Fate.PERSISTED),
        Rung("call", "1 write(f, 5)", event=1, fate=Fate.LOST, accent=True),
        Rung("call", "2 fsync(.)", event=2),
    )
    text = ladder_text(Explanation("0" * 12, "", "", {}, rungs, "X"))
    rows = [line.split() for line in text.splitlines()[1:4]]
    assert rows == [
        ["0", "creat(f)", "there"],
        ["1", "write(f,", "5)", "not", "there", "<--", "matters"],
        ["2", "fsync(.)"],
    ]
    assert "micro-operation: " in text
    assert "block layer" not in text


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_torn_write(in_flight: bool) -> None:
    """Of a superblock's sectors some are there: its checksum is wrong, and no flush would have helped. Of one
    that had completed, it was said that it was in flight.
    """
    made = Recorder()
    superblock = made.submit(0) if in_flight else made.write(0)
    made.mark("cut")
    if in_flight:
        made.complete(superblock)
    legal = made.legal(1)
    (cut,) = (m.entry for m in made.marks)
    state = legal.losing(CrashState.parse(f"@t{cut}"), {0})
    names = {superblock: name(Kind.RECORD, "superblock")}
    facts = Facts(state, legal, legal._times, History(()), names, (superblock,), None, "mount")
    found = there(mechanism_of(facts, made_up=False))
    assert found.mechanism is Mechanism.TORN
    assert ("was in flight when" in found.sentence) is in_flight
    assert ("was in the cache (it completed at event 1) when" in found.sentence) is not in_flight
    assert facts.part(superblock) == "1 of 8 sectors of "


def test_where_the_times_do_not_tell_nothing_is_said() -> None:
    """Data of one file lost, that of another kept, and no promise: no mechanism is named."""
    made = Recorder()
    first, second = made.submit(1), made.submit(2)
    made.complete(first)
    made.complete(second)
    made.mark("ack 0")
    assert told(facts_of(made, {first: DATA, second: DATA}, (first,), None)) is None


def test_a_promise_of_an_earlier_life_has_no_events() -> None:
    """Its marks are in no log: it is told by the life, and the second life's by its own marks."""
    made = Recorder()
    made.mark("begin 1")
    made.complete(made.submit(1))
    made.mark("ack 1")
    made.complete(made.flush())
    facts = facts_of(made, {}, (), 0)
    lived = replace(facts, history=replace(facts.history, earlier=BeforeCrash(1, 1, "@t7=")))
    assert _promised(lived) == (f"by what the part before the crash left: {BeforeCrash(1, 1, '@t7=').text}")
    own = _promised(replace(lived, promise=1))
    assert own.startswith("by `fsync f`, operation 1: begun at event 0 (entry 0), returned at event 3 ")


# --- ladder and text ------------------------------------------------------------------------------


def explanation() -> Explanation:
    made = Recorder()
    made.mark("begin 1")
    data = made.write(1)
    made.mark("ack 1")
    made.mark("cut")
    made.complete(made.flush())
    facts = facts_of(made, {data: DATA}, (data,), 1, at="cut")
    lines = {
        "promised": "by `fsync f`",
        "missing": "a flush\nreproduce: rm -rf /",
        "reproduce": "powercut repro X",
    }
    return Explanation("0" * 12, "ext4/x: lost <b>", "No flush.", lines, tuple(ladder(facts)), "X")


def test_the_ladder_shows_the_lost_write_the_broken_promise_and_the_cut_in_order() -> None:
    drawn = explanation()
    assert [r.kind for r in drawn.ladder] == ["mark", "write", "mark", "cut", "mark", "flush"]
    lost = drawn.ladder[1]
    assert (lost.fate, lost.covered, lost.accent) == (Fate.LOST, 4, True)
    text = ladder_text(drawn).splitlines()
    assert text[2].split()[-2:] == ["4", "LOST"]
    assert text[3].endswith("<-- broken")
    assert "the power fails" in text[4]


def test_no_text_ends_a_line_or_is_markup() -> None:
    """Names come from images, which come from anywhere."""
    drawn = explanation()
    assert mail_text(drawn, "X").splitlines()[-1] == "reproduce:  powercut repro X"
    assert len([line for line in mail_text(drawn, "X").splitlines() if line.startswith("reproduce")]) == 1
    svg = str(ladder_svg(drawn))
    assert "<b>" not in svg
    assert "&lt;b&gt;" in svg
    assert svg.startswith("<svg")


def test_the_name_of_a_write_ends_in_front_of_the_column_of_flushes() -> None:
    """The word "none" was drawn over the end of a long name."""
    long = Rung("write", "w" * 200, event=1, completed=2, entry=3, fate=Fate.LOST)
    svg = str(ladder_svg(Explanation("0" * 12, "", "", {}, (long,), "X")))
    x, shown = next(
        (int(x), text) for x, text in re.findall(r'x="(\d+)" y="\d+"><title>[^<]*</title>([^<]*)<', svg)
    )
    none = next(int(x) for x in re.findall(r'x="(\d+)" y="\d+">none<', svg))
    assert x + len(shown) * 7.3 < none


def test_a_state_that_could_not_be_observed_is_not_said_to_be_fine() -> None:
    """An agent of another version: "does not show it again", said show, of a bug that is there every time."""
    legal = three_writes()
    state = legal.losing(legal.cuts()[0], ())
    explainer = object.__new__(Explainer)
    explainer.legal = legal
    explainer._signature = None
    explainer._outcomes = {state: Unobserved("the agent speaks protocol 5")}
    violation = Violation("durability", "f", "f: missing", "", "", "f: missing")
    finding = Finding(CaseId("ext4", "x", "y"), "durability", "f: missing", state, (violation,), 1)
    with pytest.raises(GuestError, match="could not be observed: the agent speaks protocol 5"):
        explainer.start(finding)


def test_of_several_devices_each_write_says_which_one_it_is_of() -> None:
    """`powercut show` named entries of two devices as if they were of one, whose flush said nothing of the
    other.
    """
    made = Recorder(second=100)
    data, commit = made.write(0), made.write(101, fua=True)
    facts = facts_of(made, {data: DATA}, (data,), None)
    assert facts.name(data) == f"entry {data}, data of f"
    facts = replace(facts, devices={data: "second device", commit: "first device"})
    assert facts.name(data) == f"entry {data} of the second device, data of f"
    assert facts.name(commit) == f"entry {commit} of the first device"
    assert replace(facts, devices={data: "member 2"}).name(data).startswith("entry 0 of member 2,")


def reused(*, subject: str = "f") -> tuple[Facts, int, int]:
    """Data of g takes the place of data of f, whose removal is committed later."""
    made = Recorder()
    old = made.write(1)
    made.complete(made.flush())
    new = made.write(1)
    made.mark("cut")
    record = made.write(5, fua=True)
    names = {
        old: name(Kind.DATA, "data of f", writer=0),
        new: name(Kind.DATA, "data of g", writer=1),
        record: name(Kind.RECORD, "commit record"),
    }
    facts = facts_of(made, names, (), None, at="cut")
    operations = (
        Operation(OperationKind.APPEND, "f", length=4096),
        Operation(OperationKind.APPEND, "g", length=4096),
    )
    history = History(tuple(HistoryStep(n, op, 0, 0) for n, op in enumerate(operations)))
    return replace(facts, history=history, subject=subject), new, record


def test_blocks_that_are_written_before_they_are_free_are_not_recoverys_invention() -> None:
    """ "Recovery made it up" was said of data that had been written over a file whose removal was in no
    commit yet.
    """
    facts, new, record = reused()
    found = there(mechanism_of(replace(facts, turning=(new,)), made_up=True))
    assert found.mechanism is Mechanism.REUSED
    assert (
        f"Entry {new}, data of g, was sent at event 4 to blocks of `f` (entry 0, data of f)" in found.sentence
    )
    assert f"the next one is entry {record}, commit record" in found.sentence
    assert told(replace(facts, turning=(new,))) is Mechanism.REUSED, "of contents that were promised"


def test_contents_that_two_writes_replaced_are_not_dropped_by_recovery() -> None:
    """Of a file in two requests "recovery dropped it" was said: to leave out one of the writes over it
    changes nothing, and only the earlier cut without both keeps the promise.
    """
    facts, new, record = reused()
    assert told(replace(facts, without=(new,))) is Mechanism.REUSED
    assert told(replace(facts, without=(new, record))) is not Mechanism.REUSED, "it may have been the record"
    assert told(replace(facts, without=())) is not Mechanism.REUSED


def test_a_block_belongs_to_the_file_that_wrote_it_last() -> None:
    made = Recorder()
    old, between, new = made.write(1), made.write(1), made.write(1)
    names = {entry: name(Kind.DATA, "data", writer=n) for n, entry in enumerate((old, between, new))}
    operations = [Operation(OperationKind.APPEND, path, length=4096) for path in "fhg"]
    history = History(tuple(HistoryStep(n, op, 0, 0) for n, op in enumerate(operations)))
    facts = replace(facts_of(made, names, (), None), history=history)
    assert replace(facts, subject="h").owner_before(new) == between
    assert replace(facts, subject="f").owner_before(new) is None


def test_blocks_that_a_directory_took_too_early_are_named_as_well() -> None:
    """Of what a block map or a directory had been written over, "recovery made it up" was said."""
    facts, new, _ = reused()
    directory = {**facts.names, new: name(Kind.METADATA, "directory d, block 0")}
    found = there(mechanism_of(replace(facts, names=directory, turning=(new,)), made_up=True))
    assert found.mechanism is Mechanism.REUSED
    assert f"Entry {new}, directory d, block 0, was sent at event 4 to blocks of `f`" in found.sentence


def test_data_of_an_unknown_file_takes_no_blocks_from_anybody() -> None:
    facts, new, _ = reused()
    unknown = {**facts.names, new: name(Kind.DATA, "data of inode 12")}
    assert told(replace(facts, names=unknown, turning=(new,)), made_up=True) is Mechanism.PRESENT


def test_a_file_system_without_commits_is_not_told_to_wait_for_one() -> None:
    facts, new, _ = reused()
    found = there(mechanism_of(replace(facts, turning=(new,), commits=False), made_up=True))
    assert found.sentence.endswith("whose removal was not on the disk yet.")


def test_where_a_write_turns_it_recovery_made_nothing_up() -> None:
    facts, new, record = reused(subject="h")
    assert told(replace(facts, turning=(new,)), made_up=True) is Mechanism.PRESENT
    assert told(replace(facts, turning=()), made_up=True) is Mechanism.MADE_UP
    assert told(replace(facts, turning=(record,)), made_up=True) is Mechanism.MADE_UP


def test_of_writes_that_each_suffice_one_is_found() -> None:
    """Any block that was given away too early fails: to leave out one of them changes nothing."""
    made = Recorder()
    entries = [made.submit(n) for n in (1, 2, 3)]
    for entry in entries:
        made.complete(entry)
    made.mark("begin 0")
    legal = made.legal()

    def fails(state: CrashState) -> bool:
        return len(legal.lost(state)) < 3 and legal.event(state) > 5

    minimal = minimise(legal, legal.losing(legal.cuts()[-1], ()), Visits(fails), always, both=True)
    assert minimal.lost == ()
    assert len(minimal.turning) == 1


@pytest.mark.parametrize(
    ("needed", "there"), [(2, "1 of 2 blocks of entry 1 on"), (1, "entry 1 on")], ids=["one block", "both"]
)
def test_a_control_that_has_a_part_of_a_write_says_so(needed: int, there: str) -> None:
    """ "The same cut with entry 1 on the platter" was said where one block of it is, and the other lost."""
    made = Recorder()
    made.mark("begin 0")
    write = made.submit(1, 2)
    made.complete(write)
    made.mark("ack 0")
    legal = made.legal()
    cut = next(c for c in legal.cuts() if len(legal.losable(c)) == 2)
    visits = Visits(lambda s: len(legal.lost(s)) >= needed)
    minimal = minimise(legal, legal.losing(cut, legal.losable(cut)), visits, always)
    facts = facts_of(made, {}, minimal.lost, 0)
    facts = replace(facts, state=minimal.state, legal=legal, cleared=minimal.cleared)
    explainer = SimpleNamespace(legal=legal, outcome=lambda _: None, violations=lambda *_: ())
    assert _control(cast(Any, explainer), facts, minimal) == (
        f"{minimal.control}: the same cut with {there} the platter keeps every promise"
    )


def test_a_promise_holds_from_the_return_of_its_operation_on() -> None:
    """A cut before the return was taken for one after it: a state that nobody had promised was explained."""
    legal = three_writes()
    acked = {legal.event(cut): legal.position(cut).acked for cut in legal.cuts()}
    for cut in legal.cuts():
        assert has_promised(legal, cut, 0) is (acked[legal.event(cut)] >= 1)
        assert has_promised(legal, cut, 1) is (acked[legal.event(cut)] >= 2)
        assert has_promised(legal, cut, None)
    assert {has_promised(legal, cut, 0) for cut in legal.cuts()} == {False, True}


@given(recorders(), st.data())
def test_no_state_is_visited_that_no_disk_can_be_in(made: Recorder, data: st.DataObject) -> None:
    """A write behind a flush, there without what the flush makes durable, was explained."""
    legal = made.legal()
    crash_time = data.draw(st.sampled_from(legal.crash_times))
    start = legal.name(crash_time, [*crash_time.choices.absent, *crash_time.choices.volatile])

    def ask(state: CrashState) -> bool:
        legal.on_disk(state)  # raises for one that is not legal
        return data.draw(st.booleans()) or state == start

    minimise(legal, start, Visits(ask), always, both=True)


def test_a_write_behind_a_flush_is_not_kept_without_what_is_ahead_of_it() -> None:
    made = Recorder()
    data = made.write(1)
    record = made.submit(2, preflush=True, fua=True)
    made.mark("begin 0")
    made.complete(record)
    legal = made.legal()
    cut = next(c for c in legal.cuts() if len(legal.losable(c)) == 2)
    asked: list[frozenset[int]] = []

    def ask(state: CrashState) -> bool:
        asked.append(frozenset(entries_of(legal, legal.lost(state))))
        return data in asked[-1]

    minimal = minimise(legal, legal.losing(cut, legal.losable(cut)), Visits(ask), always, both=True)
    assert frozenset({data}) not in asked
    assert minimal.lost == (data, record)


def test_a_file_that_was_removed_stays_the_file_that_it_was() -> None:
    """Two files that had one name, one after the other, were one file for good."""
    app = Application()
    for text in ("openat(f, create)", "write(f, 1)", "unlink(f)", "fsync(f (deleted))", "openat(f, create)"):
        app.call(text)
    app.call("write(f, 1)")
    effects = Effects(app.calls, False, lambda _: True)
    first, second = (c for c in effects.changes if c.sort is Sort.DATA)
    assert first.inode != second.inode
    assert effects.covered(first, app.made.events)
    assert not effects.covered(second, app.made.events)
    assert effects.names_of(second.inode, app.made.events) == {"f"}


def test_msync_makes_the_pages_of_its_range_durable() -> None:
    """It was a sync of the whole file, and a write beside the range no cause."""
    app = Application()
    for text in ("openat(f, create)", "pwrite(f, 10 at 4090)", "pwrite(f, 9 at 0)", "pwrite(f, 9 at 8192)"):
        app.call(text)
    for text in ("msync(f, 8192 at 0, async)", "msync(f, 0 at 0)", "msync(f, 4097 at 0)"):
        app.call(text)
    effects = Effects(app.calls, False, lambda _: True)
    msync = app.calls[-1].began + 2
    written = [effects.covered(c, msync) for c in effects.changes if c.sort is Sort.DATA]
    assert written == [True, True, False]
    assert not any(effects.covered(c, msync - 1) for c in effects.changes)


def test_of_thousands_of_files_that_are_synced_in_turn_each_asks_for_its_own_syncs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each change was held against each sync: 4,000 calls took seconds."""
    app, count = Application(), 200
    for n in range(count):
        for text in (f"openat(f{n}, create)", f"write(f{n}, 5)", f"fsync(f{n})", f"unlink(f{n})"):
            app.call(text)
    covers, asked = Effects.covers, list[Sync]()

    def counted(self: Effects, sync: Sync, change: Change) -> bool:
        asked.append(sync)
        return covers(self, sync, change)

    monkeypatch.setattr(Effects, "covers", counted)
    effects = Effects(app.calls, True, lambda _: True)
    open_ = [c.call.text for c in effects.changes if not effects.covered(c, app.made.events)]
    assert open_ == [f"unlink(f{count - 1})"]
    assert len(asked) <= 2 * len(effects.changes)


def test_calls_are_told_as_the_operations_of_a_workload() -> None:
    app = Application()
    for text in (
        *("openat(., tmpfile)", "write(#257 (deleted), 5000)", "fsync(#257 (deleted))"),
        *("linkat(#257 (deleted), f)", "openat(g, create|truncate)", "openat(g, truncate)", "creat(d/h)"),
        *("pwrite(g, 10 at 5)", "ftruncate(g, 0)", "renameat2 exchange(f, g)", "renameat(g, d/g)"),
        *(
            "symlinkat(l)",
            "mkdirat(e)",
            "unlinkat(l)",
            "fchmod(f)",
            "fdatasync(f)",
            "fsync(.)",
            "sync()",
            "store",
        ),
    ):
        app.call(text)
    assert as_operations(app.calls) == [
        *("open-tmpfile . @257", "write @257 5000", "fsync @257", "link @257 f", "create g", "create d/h"),
        *("write g 10 at 5", "truncate g 0", "exchange f g", "rename g d/g", "symlink l ?", "mkdir e"),
        *("unlink l", "chmod f", "fdatasync f", "fsync .", "sync"),
    ]


def told_cause(facts: Facts, mechanism: Mechanism | None, *bugs: str) -> str:
    """The line `cause` in btrfs/default, of which there are these known bugs."""
    asked = list[str]()

    def known_bugs(cause: str, until: int) -> list[object]:
        assert until == facts.at
        asked.append(cause)
        return [SimpleNamespace(name=name) for name in bugs]

    recording = SimpleNamespace(profile=select_profiles(["btrfs/default"])[0])
    explainer = cast(Any, SimpleNamespace(known_bugs=known_bugs, recording=recording))
    told = _cause(explainer, facts, CrashState(4), mechanism)
    assert asked in ([], [mechanism.value if mechanism else ""])
    return told


def test_of_a_program_whose_calls_explain_nothing_the_known_bugs_that_may_are_told() -> None:
    """The author of a correct program was sent to a run of rules, which passes, and left there."""
    right = forgetful("write(f, 5)", "fsync(f)").facts()
    told = told_cause(right, None, "btrfs-nameless-fsync", "btrfs-fsync-exchanged")
    assert (
        "powercut run -c any/posix with my-db tries each order of its calls: where none fails, they" in told
    )
    assert told.endswith(
        "; perhaps one of the known bugs of btrfs/default: btrfs-nameless-fsync, btrfs-fsync-exchanged "
        "(powercut known NAME)"
    )
    one = "perhaps the known bug btrfs-a of btrfs/default (powercut known btrfs-a)"
    assert told_cause(right, Mechanism.IN_FLIGHT, "btrfs-a") == one
    assert told_cause(right, Mechanism.IN_FLIGHT) == ""


def test_of_a_program_that_forgot_an_fsync_no_bug_of_the_kernel_is_told() -> None:
    app = Application()
    app.call("write(f, 5)")
    app.call("fsync(g)")
    app.made.mark("app 1")
    app.call("fsync(f)")
    assert there(app.found()).mechanism is Mechanism.PROGRAM_NEVER
    assert told_cause(app.facts(), Mechanism.PROGRAM_NEVER, "btrfs-a") == ""
    ours = replace(app.facts(), program=None)
    assert told_cause(ours, Mechanism.IN_FLIGHT, "btrfs-a") == "", "match compares what an oracle says"


def test_where_a_control_tells_the_writes_no_line_says_that_nothing_does() -> None:
    """ "No state tells which write" stood two lines above a state that does."""
    none = cast(Any, SimpleNamespace(program=None, may_want_names=False))
    assert "no state tells" in _not_named(none, none, None)
    assert "no state tells" not in _not_named(none, none, CrashState(4))
    assert "the control tells" in _not_named(none, none, CrashState(4))


def test_where_fsync_leaves_names_the_cause_says_so() -> None:
    names = cast(Any, SimpleNamespace(program=None, may_want_names=True))
    assert "promises nothing of its name" in _not_named(names, names, None)


@pytest.mark.parametrize(("broken_from", "promise"), [(0, None), (1, 0), (98, 97), (100, 99)])
def test_what_holds_at_any_time_is_judged_once_for_all_operations(
    broken_from: int, promise: int | None
) -> None:
    """Of what fsck finds, no return makes the promise: each operation that had returned was judged, twice."""
    asked: list[int] = []

    def violations(_: object, position: Position) -> list[str]:
        asked.append(position.acked)
        return ["it"] if position.acked >= broken_from else []

    explainer: Any = SimpleNamespace(
        outcome=lambda _: None,
        legal=SimpleNamespace(position=lambda _: Position(100, 100)),
        violations=violations,
        _like=lambda _, found: next(iter(found), None),
    )
    assert Explainer.promise(explainer, cast(Any, None), CrashState(1)) == promise
    assert len(asked) <= 1 + (100 - broken_from + 1 if broken_from else 0)


def test_a_program_of_many_calls_is_not_looked_at_once_for_each_pair_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,200 calls took 21 seconds, and the agent notes 4,000: a sync was held against a change, and tree
    against tree, each time that it was asked.
    """
    app, count = Application(), 30
    for n in range(count):
        for text in (f"openat(f{n}, create)", f"write(f{n}, 5)", "fsync(log)"):
            app.call(text)
    app.made.mark("app 1")
    app.call("fsync(log)")
    names = [f"f{n}" for n in range(count)]
    app.evidence = Evidence(files(**dict.fromkeys(names, "")), files(**dict.fromkeys(names, "5")), files())
    covers, asked = Effects.covers, list[str]()

    def counted_covers(self: Effects, sync: Sync, change: Change) -> bool:
        asked.append("sync")
        return covers(self, sync, change)

    def counted_compared(one: Tree, other: Tree | None) -> set[str]:
        asked.append("tree")
        return _differing(one, other)

    monkeypatch.setattr(Effects, "covers", counted_covers)
    monkeypatch.setattr("harness.explain.program._differing", counted_compared)
    found = app.facts(in_order=False).program
    assert found is not None
    assert len(found.unsynced) == count
    assert asked.count("tree") == 2
    assert asked.count("sync") <= 4 * (count + 1) * count


def test_the_flushes_are_listed_once_for_all_writes_of_a_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write of a log of 2,000 listed all flushes anew: the ladder took seconds."""
    made = Recorder()
    for _ in range(20):
        made.write(1)
        made.complete(made.flush())
    facts = facts_of(made, {}, (), None)
    listed: list[Flush] = []

    def in_order(flushes: Sequence[Flush], **key: Any) -> list[Flush]:
        listed.extend(flushes)
        return sorted(flushes, **key)

    monkeypatch.setattr("harness.explain.facts.sorted", in_order, raising=False)
    assert [r.covered for r in ladder(facts) if r.kind == "write"] == [f.entry for f in made.flushes][-6:]
    assert len(listed) == 20


def test_a_state_that_shows_another_finding_of_one_symptom_does_not_fail_the_same_way() -> None:
    """`create g is undone` was explained by a state in which f was, since both are names undone."""
    explainer = object.__new__(Explainer)
    explainer._paths = ("f", "g")
    other = Violation("durability", "f", "f: other", "", "", "names undone after 2")
    mine = Violation("durability", "g", "g: mine", "", "", "names undone after 8")
    state = three_writes().cuts()[0]
    case, symptom = CaseId("ext4", "x", "y"), "names undone after N"
    finding = Finding(case, "durability", mine.signature, state, (mine,), 1, what=symptom)
    explainer._signature = None
    assert explainer._like(finding, [other]) is other, "a run of another version: the symptom"
    explainer._signature = mine.oracle, mine.signature
    assert explainer._like(finding, [other]) is None
    assert explainer._like(finding, [other, mine]) is mine


def test_only_a_state_that_was_seen_to_break_nothing_keeps_every_promise() -> None:
    legal = three_writes()
    kept, broken, unseen = legal.cuts()[:3]
    explainer = object.__new__(Explainer)
    explainer.legal = legal
    explainer._outcomes = {kept: Outcome(), broken: Outcome(kernel_log=("x",)), unseen: Unobserved("why")}
    judged = Violation("size", "f", "f: other", "", "", "size")
    explainer._judge = cast(
        Any,
        SimpleNamespace(
            judge=lambda _, outcome: SimpleNamespace(violations=(judged,) if outcome.kernel_log else ())
        ),
    )
    assert [explainer.keeps_all(state) for state in (kept, broken, unseen)] == [True, False, False]
