"""A disk that says yes to a flush, or to FUA, and does nothing: a kernel that asks is then one that does not.

The law of the model: what may be left of a kernel that sends flushes on a disk that ignores them is, state by
state and promise by promise, what may be left of one that sends none (`barrier=0`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from harness.model import EntryFlag, Position
from harness.states.legal import LegalStates
from harness.tests.states.recorder import Recorder, recorders
from harness.tests.states.test_legal import Shown, told_by
from harness.writelog import WriteLog
from harness.writelog.times import Times

Told = dict[Shown, set[Position]]


def ignoring(times: Times, *, flush: bool, fua: bool) -> Times:
    """As a disk takes them that ignores flushes, or FUA."""
    writes = [replace(w, fua=w.fua and not fua, preflush=w.preflush and not flush) for w in times.writes]
    return replace(times, writes=tuple(writes), flushes=() if flush else times.flushes)


def on_lying_disk(made: Recorder, *, flush: bool, fua: bool) -> Told:
    log = WriteLog(Path("log"), 512, tuple(made.entries), 0)
    return told_by(LegalStates(log, ignoring(made.times, flush=flush, fua=fua)))


def of_kernel_without(made: Recorder, *, flush: bool, fua: bool) -> Told:
    """What may be left if the kernel had not sent them: they are not in its log, nor do they happen."""
    times = made.times
    sent = [e for e in made.entries if not (flush and e.flags & EntryFlag.FLUSH)]
    number = {entry.index: n for n, entry in enumerate(sent)}
    writes = tuple(
        replace(w, entry=number[w.entry], fua=w.fua and not fua, preflush=w.preflush and not flush)
        for w in times.writes
    )
    flushes = () if flush else tuple(replace(f, entry=number[f.entry]) for f in times.flushes)
    marks = tuple(replace(m, entry=number[m.entry]) for m in times.marks)
    log = WriteLog(Path("log"), 512, tuple(replace(e, index=number[e.index]) for e in sent), 0)
    told = told_by(LegalStates(log, Times(writes, flushes, marks, times.events)))
    return {tuple((at, sent[entry].index) for at, entry in shown): told[shown] for shown in told}


@pytest.mark.parametrize(("flush", "fua"), [(True, False), (False, True), (True, True)])
@given(made=recorders() | recorders(devices=2))
def test_what_is_left_is_what_a_kernel_leaves_that_does_not_ask(
    made: Recorder, flush: bool, fua: bool
) -> None:
    assert on_lying_disk(made, flush=flush, fua=fua) == of_kernel_without(made, flush=flush, fua=fua)


@given(recorders())
def test_such_a_disk_leaves_all_that_an_honest_one_does(made: Recorder) -> None:
    """More states, of which each is held against the same promises or stronger ones: none is excused."""
    honest, lying = told_by(made.legal()), on_lying_disk(made, flush=True, fua=True)
    assert set(honest) <= set(lying)
    for shown, positions in honest.items():
        for one in positions:
            assert any(p.begun == one.begun and p.acked >= one.acked for p in lying[shown])


def acknowledged(**how: bool) -> Recorder:
    """A write, then what makes it durable, then the acknowledgement."""
    made = Recorder()
    made.mark("begin 0")
    made.write(10, **how)
    if not how:
        made.complete(made.flush())
    made.mark("ack 0")
    return made


@pytest.mark.parametrize("how", [{}, {"fua": True}], ids=["flush", "fua"])
def test_what_was_acknowledged_is_lost_on_it_and_not_on_an_honest_one(how: dict[str, bool]) -> None:
    made, lost = acknowledged(**how), ()
    acked = Position(begun=1, acked=1)
    assert acked not in told_by(made.legal()).get(lost, set())
    assert acked in on_lying_disk(made, flush=True, fua=True)[lost]
    other = on_lying_disk(made, flush=bool(how), fua=not how)  # ignores what was not asked for
    assert acked not in other.get(lost, set())
