"""Recoveries on a faulty disk, with everything real but the guest (`toy_kernel`)."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.blocks.fields import BlockName
from harness.blocks.fields import Kind as BlockKind
from harness.cases.attempts import NotAskedFor, Unobserved
from harness.cases.examine import Examiner, Observation
from harness.cases.faulty_disk import PER_CELL, FaultyDisk, lined_up
from harness.cases.requests_seen import FaultTarget, RequestsSeen, class_of, other_place
from harness.guests import wire
from harness.model import (
    DISK_FAULTS,
    CrashState,
    DiskFault,
    FaultKind,
    Judgement,
    Outcome,
    RequestKind,
    Verdict,
)
from harness.oracles.honesty import NOT_ASKED, UNDECIDED, Seen
from harness.plan import Budget
from harness.report.faulty_disk import OUTCOMES, faulty_disk_tables, faulty_disk_words
from harness.report.html import report_html
from harness.store.records import DiskCell, FaultyDiskResult, How, state_order
from harness.summary import summarise
from harness.tests.cases.toy_kernel import Bench, Kernel, Kind, OnError, a_bench, bench_in, toy_worker

UNUSED = 15 * 8
"""A sector that no toy asks for."""


bench = a_bench


def erred(bench: Bench) -> FaultyDiskResult:
    (case,) = bench.store.cases()
    assert case.info.disk is not None, case.reason
    return case.info.disk


def seen(bench: Bench) -> dict[str, set[str]]:
    """What was seen of each kind of fault."""
    found: dict[str, set[str]] = {}
    for cell in erred(bench).cells:
        found.setdefault(cell.fault, set()).update(cell.counts)
    return found


def findings(bench: Bench) -> set[str]:
    return {f.signature for f in bench.store.findings()}


def test_a_kernel_that_reports_every_error_passes(bench: Bench) -> None:
    bench.run(Kernel(journal=True), "prefix", disk=("errors",))
    assert not findings(bench)
    found = seen(bench)
    assert found["write fails"] == {Seen.REPORTED}
    assert found["flush fails"] == {Seen.REPORTED}
    assert Seen.REPORTED in found["read fails for good"]
    assert {v.verdict for v in bench.store.iter_verdicts(bench.case)} == {Verdict.PASS}


def test_an_error_that_is_swallowed_while_the_journal_is_emptied_has_destroyed_more(bench: Bench) -> None:
    """The write of the block at home failed, and the journal that still had it was cleared."""
    bench.run(Kernel(journal=True, on_error=OnError.IGNORES), "prefix", disk=("errors",))
    assert "destroyed more: write fails, unnamed block" in findings(bench)
    assert "silently wrong: read fails, unnamed block" in findings(bench)
    (worst,) = [f for f in bench.store.findings() if f.signature.startswith("destroyed more: write fails, ")]
    assert worst.oracle == "honesty"
    assert worst.state.fault is not None
    assert worst.state.fault.sector == 7 * 8


@pytest.mark.parametrize("kind", [Kind.UNREADABLE, Kind.COMPLAINS])
def test_what_fails_without_a_fault_is_not_disturbed(bench: Bench, kind: Kind) -> None:
    """A fault would have been blamed for what was wrong already."""
    bench.run(Kernel(kind, journal=True), "prefix", disk=("errors",))
    verdicts = {v.state: v.verdict for v in bench.store.iter_verdicts(bench.case)}
    failed = {state for state, verdict in verdicts.items() if verdict is Verdict.FAIL}
    disturbed = {state.without_fault for state in verdicts if state.fault is not None}
    assert failed
    assert disturbed
    assert not failed & disturbed
    assert not any(state.fault for state in failed)
    assert erred(bench).left_out == len(failed)


def test_a_kernel_that_dies_of_an_error_fails(bench: Bench) -> None:
    bench.run(Kernel(journal=True, on_error=OnError.DIES), "prefix", disk=("errors",))
    assert any(f.startswith("kernel died: write fails") for f in findings(bench))
    assert Seen.DIED in seen(bench)["flush fails"]


def test_a_guest_that_was_lost_is_no_refusal(bench: Bench) -> None:
    kernel = Kernel(journal=True, on_error=OnError.HANGS)
    bench.run(kernel, "prefix", disk=("errors",))
    assert not findings(bench)
    assert seen(bench)["write fails"] == {"undecided"}
    unknown = [v for v in bench.store.iter_verdicts(bench.case) if v.verdict is Verdict.UNKNOWN]
    assert unknown
    assert all(v.state.fault for v in unknown)
    # XFS tries a write again for as long as it fails: such a guest takes two minutes, and three say no more
    assert kernel.boots <= 1 + len(unknown)


@pytest.mark.parametrize("checked", [False, True])
def test_silence_about_bit_rot_fails_only_where_there_is_a_checksum(bench: Bench, checked: bool) -> None:
    contract = replace(bench.profile.contract, checksums=("unnamed block",) if checked else ())
    bench.profile = replace(bench.profile, contract=contract)
    bench.run(Kernel(journal=True), "prefix", disk=("bit-rot",))
    worst = {Seen.SILENT, Seen.DESTROYED} & set(seen(bench)["bit rot"])
    assert worst, "the toy looks at every byte of block 7"
    assert bool(findings(bench)) == checked
    assert {cell.checked for cell in erred(bench).cells} == {checked}


def test_a_kernel_with_checksums_refuses_bit_rot(bench: Bench) -> None:
    contract = replace(bench.profile.contract, checksums=("unnamed block",))
    bench.profile = replace(bench.profile, contract=contract)
    bench.run(Kernel(journal=True, checksums=True), "prefix", disk=("bit-rot",))
    assert not findings(bench)
    assert seen(bench)["bit rot"] == {Seen.REPORTED}


def test_a_write_that_vanished_or_strayed_is_told_and_fails_only_what_dies(bench: Bench) -> None:
    """The journal was cleared, and what it held is not there: nobody could know."""
    bench.run(Kernel(journal=True), "prefix", disk=("loses-one", "misdirects"))
    assert not findings(bench)
    assert Seen.DESTROYED in seen(bench)["write is lost"]
    assert Seen.DESTROYED in seen(bench)["write strays"]
    assert Seen.INTACT in seen(bench)["write is lost"], "block 5 matters to nobody"


def test_a_stray_write_lands_where_another_one_was_going(bench: Bench) -> None:
    bench.run(Kernel(journal=True), "prefix", disk=("misdirects",))
    faults = {v.state.fault for v in bench.store.iter_verdicts(bench.case) if v.state.fault}
    assert {f.kind for f in faults} == {FaultKind.STRAY_WRITE}
    assert {f.sector for f in faults} >= {0, 7 * 8}
    assert all(f.to in (0, 5 * 8, 7 * 8) and f.to != f.sector for f in faults)


def test_a_stray_write_lands_where_one_of_its_own_length_was_going_the_next_one_first() -> None:
    """All writes of the toy have one length: a write of a page that landed on half of another is no rule."""
    read, write = RequestKind.READ, RequestKind.WRITE
    asked_for = [
        wire.Requested(write, 0, 8),
        wire.Requested(write, 80, 16),
        wire.Requested(write, 8, 8),
        wire.Requested(read, 16, 16),
        wire.Requested(write, 8, 8),
        wire.Requested(write, 24, 8),
    ]
    writes = [number for number, one in enumerate(asked_for) if one.kind is write]
    assert [other_place(number, asked_for, ()) for number in writes] == [8, None, 24, 24, 0]


def test_no_disk_puts_a_write_on_another_disk() -> None:
    """A write to the external journal landed in the file system, and what that destroyed was a finding."""
    asked_for = [wire.Requested(RequestKind.WRITE, sector, 8) for sector in (80, 1000, 160, 1080, 2000)]
    places = [other_place(number, asked_for, (1000 * 512, 2000 * 512)) for number in range(5)]
    assert places == [160, 1080, 80, 1000, None]


def test_what_is_aimed_at_and_never_asked_for_is_unknown(bench: Bench) -> None:
    """A fault that befell nothing says nothing: neither intact nor reported."""
    kernel = Kernel(journal=True)
    bench.run(kernel, "prefix")
    examiner = Examiner(bench.recording("prefix"), faulty_disk=True)
    with toy_worker(kernel, bench.folder / "again") as session:
        state = CrashState(4)
        sound = examiner.visit(session, [state], threading.Event())
        assert sound.requests_seen is not None
        examiner.adopt_requests(sound.requests_seen, sound)
        missed = state.with_fault(DiskFault(FaultKind.EIO_READ, UNUSED))
        nothing = examiner.visit(session, [missed], threading.Event())
        assert isinstance(nothing.outcome, Unobserved)
        assert examiner.judge(missed, nothing).verdict is Verdict.UNKNOWN
        hit = state.with_fault(DiskFault(FaultKind.EIO_READ, 0))
        assert examiner.judge(hit, examiner.visit(session, [hit], threading.Event())).verdict is Verdict.PASS
    examiner.close()


def test_without_the_undisturbed_recovery_nothing_is_judged(bench: Bench) -> None:
    kernel = Kernel(journal=True)
    bench.run(kernel, "prefix")
    examiner = Examiner(bench.recording("prefix"), faulty_disk=True)
    with toy_worker(kernel, bench.folder / "again") as session:
        hit = CrashState(4).with_fault(DiskFault(FaultKind.EIO_READ, 0))
        observation = examiner.visit(session, [hit], threading.Event())
        assert examiner.judge(hit, observation).verdict is Verdict.UNKNOWN
    examiner.close()


def test_the_memo_answers_for_no_fault_and_learns_from_none(bench: Bench) -> None:
    bench.run(Kernel(journal=True, on_error=OnError.IGNORES), "exhaustive", disk=("errors", "bit-rot"))
    rows = [v for v in bench.store.iter_verdicts(bench.case) if v.state.fault]
    assert len(rows) == erred(bench).tried > PER_CELL
    assert {v.how for v in rows} == {How.JUDGED}
    (case,) = bench.store.cases()
    assert not case.mismatch


def test_workers_in_processes_come_to_the_same(tmp_path: Path) -> None:
    found = []
    for jobs, apart in ((1, False), (2, True)):
        folder = tmp_path / f"{jobs}"
        with bench_in(folder) as bench:
            kernel = Kernel(journal=True, on_error=OnError.IGNORES)
            bench.run(kernel, "prefix", jobs=jobs, apart=apart, disk=("errors", "bit-rot"))
            found.append((erred(bench).cells, findings(bench)))
    assert found[0] == found[1]


def test_the_disk_is_faulty_in_cut_recoveries_as_well(bench: Bench) -> None:
    """With both asked for, only the recoveries of the first power cut had met a faulty disk."""
    kernel = Kernel(journal=True, on_error=OnError.IGNORES)
    bench.run(kernel, "exhaustive", again=1, disk=("errors",), budget=Budget(visits=1000))
    (case,) = bench.store.cases()
    assert case.info.again[0].recoveries, "recoveries were cut"
    rows = [v for v in bench.store.iter_verdicts(bench.case) if v.state.fault]
    assert len(rows) == erred(bench).tried == erred(bench).faults
    both = [v for v in rows if v.state.again]
    assert {v.verdict for v in both} == {Verdict.PASS, Verdict.FAIL}
    assert (
        erred(bench).recoveries
        == len({v.state.without_fault for v in rows})
        > len({v.state.first for v in both})
    )


def test_a_budget_bounds_the_faults(bench: Bench) -> None:
    bench.run(Kernel(journal=True), "prefix", disk=("errors",), budget=Budget(visits=7))
    assert erred(bench).tried == 7 < erred(bench).faults


# --- which faults, in which order -------------------------------------------------------------


def asked(number: int, work: int, sectors: tuple[int, ...]) -> RequestsSeen:
    faults = [DiskFault(kind, s) for s in sectors for kind in (FaultKind.EIO_READ, FaultKind.ROT)]
    return RequestsSeen(
        CrashState(number),
        tuple(FaultTarget(f, "superblock" if f.sector < 8 else "data") for f in faults),
        work,
    )


def test_the_recovery_that_did_most_is_first_and_every_kind_of_block_has_its_turn() -> None:
    lazy, busy = asked(1, 2, (0, 8)), asked(2, 9, (0, 8, 16, 24, 32, 40))
    injections, usual = lined_up([lazy, busy], DISK_FAULTS["errors"])
    names = [str(t.state) for t in injections]
    assert set(names[:2]) == {"@2+eio-read0", "@2+eio-read8"}, "one of each kind of block"
    assert names[2:] == [
        *["@2+eio-read16", "@2+eio-read24", "@2+eio-read32", "@2+eio-read40"],
        *["@1+eio-read0", "@1+eio-read8"],
    ]
    assert usual == 1 + PER_CELL
    assert {t.of for t in injections[:usual]} == {busy.of}
    assert len(injections) == 8


def test_writes_that_fail_do_not_wait_for_all_kinds_of_blocks_that_are_read() -> None:
    """A budget of seconds went to reads alone: of five recoveries of NILFS2, none had a write fail."""
    kinds = ("superblock", "inode", "directory", "bitmap")
    reads = [FaultTarget(DiskFault(FaultKind.EIO_READ, n), where) for n, where in enumerate(kinds)]
    writes = [FaultTarget(DiskFault(FaultKind.EIO_WRITE, 8), kinds[0])]
    flushes = [FaultTarget(DiskFault(FaultKind.EIO_FLUSH, nth=1))]
    seen = RequestsSeen(CrashState(1), (*reads, *writes, *flushes), 1)
    injections, _ = lined_up([seen], DISK_FAULTS["errors"])
    assert [i.target for i in injections[:3]] == [reads[0], *writes, *flushes]
    assert [i.target for i in injections[3:]] == reads[1:]


def test_a_trial_that_did_not_reach_the_store_is_not_counted_as_tried() -> None:
    """The report would have had one more fault that came to nothing than verdicts."""

    def full(_: object) -> None:
        raise OSError("no space left")

    examiner = SimpleNamespace(
        visit=lambda *_: Observation(Unobserved("lost")),
        judge=lambda *_: Judgement(unknown=("lost",)),
        undisturbed=lambda _: None,
    )
    before = SimpleNamespace(requests_seen=[asked(1, 1, (8,))], unasked=0)
    faulty_disk = FaultyDisk(
        cast("Any", examiner), [cast("Any", before)], ["errors"], list(FaultKind), Budget(), Event(), full
    )
    with pytest.raises(OSError, match="no space left"):
        faulty_disk.work(cast("Any", None))
    with pytest.raises(RuntimeError, match="1 faults were tried, 0 of them reported"):
        faulty_disk.erred()


def tried(before: Sequence[Any], judgement: Judgement, budget: Budget | None = None) -> FaultyDiskResult:
    """What injections come to of which each was observed, and judged so."""
    outcome = Outcome(after_fault=Outcome())
    examiner: Any = SimpleNamespace(
        visit=lambda *_: Observation(outcome),
        judge=lambda *_: judgement,
        undisturbed=lambda _: outcome,
        recording=SimpleNamespace(profile=SimpleNamespace(contract=SimpleNamespace(has_checksum=bool))),
    )
    faulty_disk = FaultyDisk(
        examiner, before, ["errors"], list(FaultKind), budget or Budget(), Event(), lambda _: None
    )
    faulty_disk.work(cast("Any", None))
    return faulty_disk.erred()


def test_recoveries_that_were_left_out_are_told_of_every_generation() -> None:
    """With `--again`, only those of the last generation were."""
    before = [
        SimpleNamespace(requests_seen=[asked(1, 1, (8,))], unasked=1),
        SimpleNamespace(requests_seen=[], unasked=2),
    ]
    assert tried(before, Judgement()).left_out == 3


def test_a_trial_that_is_undecided_did_not_come_to_what_was_seen() -> None:
    """In the table it was one more that stayed intact."""
    before = [SimpleNamespace(requests_seen=[asked(1, 1, (8,))], unasked=0)]
    (rotten, fails) = tried(before, Judgement()).cells
    assert UNDECIDED not in rotten.counts.keys() | fails.counts.keys()
    for cell in tried(before, Judgement(unknown=("part of the kernel's log was lost",))).cells:
        assert cell.counts == {UNDECIDED: 1}


def test_a_fault_that_the_kernel_did_not_ask_for_again_leaves_its_case_decided() -> None:
    """The block layer makes one flush of two that wait. A case was UNKNOWN, now and then, since a fault was
    aimed at the second of them, although others of its kind had befallen something.
    """
    before = [SimpleNamespace(requests_seen=[asked(1, 1, (8, 16))], unasked=0)]
    once, told = tried_with_misses(before, lambda fault: fault.sector == 16)
    assert [dict(cell.counts) for cell in once] == [{NOT_ASKED: 1, Seen.INTACT: 1}] * 2
    assert {fault.sector for fault in told} == {8}
    always, told = tried_with_misses(before, lambda _: True)
    assert [dict(cell.counts) for cell in always] == [{UNDECIDED: 2}] * 2
    assert len(told) == 4


def tried_with_misses(
    before: Sequence[Any], misses: Callable[[DiskFault], bool]
) -> tuple[Sequence[DiskCell], list[DiskFault]]:
    """What injections come to some of which befall nothing, and which of them were reported."""
    sound = Outcome(after_fault=Outcome())
    told: list[DiskFault] = []

    def visit(_: object, states: Sequence[CrashState], __: object) -> Observation:
        (state,) = states
        missed = state.fault is not None and misses(state.fault)
        return Observation(NotAskedFor("nothing was asked for") if missed else sound)

    examiner: Any = SimpleNamespace(
        visit=visit,
        judge=lambda _, seen: Judgement(unknown=() if seen.outcome is sound else ("nothing was asked for",)),
        undisturbed=lambda _: sound,
        recording=SimpleNamespace(profile=SimpleNamespace(contract=SimpleNamespace(has_checksum=bool))),
    )
    faulty_disk = FaultyDisk(
        examiner,
        before,
        ["errors"],
        list(FaultKind),
        Budget(),
        Event(),
        lambda groups: told.extend(
            one.state.fault for group in groups for one in group.judged if one.state.fault
        ),
    )
    faulty_disk.work(cast("Any", None))
    return faulty_disk.erred().cells, told


def test_a_budget_of_time_bounds_the_faults() -> None:
    before = [SimpleNamespace(requests_seen=[asked(1, 1, (8,))], unasked=0)]
    assert tried(before, Judgement(), Budget(seconds=3600)).tried == 2
    found = tried(before, Judgement(), Budget(seconds=0))
    assert (found.tried, found.faults) == (0, 2)


def test_faults_that_wait_for_a_worker_spend_none_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [SimpleNamespace(requests_seen=[asked(1, 1, (8,))], unasked=0)]
    clock = itertools.count(0, 100)  # each look at it is a hundred seconds later
    monkeypatch.setattr("harness.cases.faulty_disk.time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert tried(before, Judgement(), Budget(seconds=150)).tried == 2


@pytest.mark.parametrize(
    ("text", "kind", "where"),
    [
        ("inode table of group 0, inodes 1 to 16: 12 (a)", BlockKind.METADATA, "inode table"),
        ("journal: commit record of transaction 7", BlockKind.RECORD, "journal: commit record"),
        (
            "journal: copy of block bitmap of group 1, transaction 3",
            BlockKind.LOG,
            "journal: copy of block bitmap",
        ),
        ("journal superblock: empty, next sequence 4", BlockKind.RECORD, "journal superblock"),
        ("directory 2 (the root directory), block 0", BlockKind.METADATA, "directory"),
        ("extent tree of inode 12", BlockKind.METADATA, "extent tree"),
        ("log tree, level 0, generation 9: inode 257", BlockKind.METADATA, "log tree"),
        ("checkpoint pack 1: head, version 12", BlockKind.RECORD, "checkpoint"),
        ("inode 5 (a), checkpoint 3, fsync mark", BlockKind.METADATA, "inode"),
        ("free space by block, group 2, level 0", BlockKind.METADATA, "free space by block"),
        ("SSA: summary of segment 3", BlockKind.METADATA, "SSA: summary"),
        ("journal block 7, not in use", BlockKind.LOG, "journal block"),
        ("free space header (AGF) of group 2", BlockKind.METADATA, "free space header"),
        ("data of inode 12 (a), block 3", BlockKind.DATA, "data"),
        ("", BlockKind.UNKNOWN, "unnamed block"),
    ],
)
def test_what_a_block_is_for_has_no_numbers(text: str, kind: BlockKind, where: str) -> None:
    assert class_of(BlockName(0, 4096, text, kind)) == where


# --- what people see --------------------------------------------------------------------------


def test_the_report_has_a_row_for_each_kind_of_block_and_a_command(bench: Bench) -> None:
    bench.run(Kernel(journal=True, on_error=OnError.IGNORES), "prefix", disk=("errors",))
    summary = summarise(bench.store)
    ((_, _, told),) = faulty_disk_tables([c.info for c in summary.cases], "RUN")
    rows = {(row.where, row.fault): row for row in told}
    row = rows["unnamed block", "write fails"]
    assert row.failed
    intact = row.cells[OUTCOMES.index(Seen.INTACT)]
    assert (row.worst, intact != "") == (Seen.DESTROYED, True), "some writes did not matter"
    assert re.search(r"powercut repro '?ext4-ordered/w@\S*\+eio-write56\b", row.shown), row.shown
    page = report_html(summary, bench.store, "RUN")
    assert "A faulty disk: ext4/ordered" in page
    assert row.shown.partition("@")[2].split("'")[0] in page
    assert "destroyed more" in faulty_disk_words([c.info for c in summary.cases])


@given(
    st.builds(
        DiskFault,
        st.sampled_from([FaultKind.EIO_READ, FaultKind.EIO_WRITE]),
        st.integers(0, 1 << 40),
        st.integers(1, 99),
        st.booleans(),
    )
    | st.builds(DiskFault, st.just(FaultKind.EIO_FLUSH), nth=st.integers(1, 99), stays=st.booleans())
    | st.builds(DiskFault, st.just(FaultKind.LOST_WRITE), st.integers(0, 99), st.integers(1, 99))
    | st.builds(
        DiskFault,
        st.just(FaultKind.STRAY_WRITE),
        st.integers(0, 99),
        st.integers(1, 99),
        to=st.integers(0, 99),
    )
    | st.builds(DiskFault, st.just(FaultKind.ROT), st.integers(0, 1 << 40), bit=st.integers(0, 4095)),
    st.sampled_from(["@417", "@417-402/t3", "@t417-402@t12-3"]),
)
def test_a_name_with_a_fault_pastes(fault: DiskFault, sound: str) -> None:
    state = CrashState.parse(sound).with_fault(fault)
    assert CrashState.parse(str(state)) == state
    assert state.without_fault == CrashState.parse(sound)
    assert state_order(state) > state_order(state.without_fault)
