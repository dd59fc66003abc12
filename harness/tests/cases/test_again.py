"""Recoveries that are cut again, with everything real but the guest (`toy_kernel`).

The reference is written without the engine: it runs the toy's recovery in a dict, and cuts what that wrote at
every place, in every subset that no flush forbids.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases import exploration
from harness.cases.attempts import Attempts, Unobserved
from harness.cases.casework import Casework
from harness.cases.examine import Examiner, Group, JudgedGroup, Observation
from harness.cases.exploration import Exploration, Sampling, TimeCoverage
from harness.cases.recoveries import CutOnce, Promised, RecoveryLog, times_of
from harness.errors import ExitCode, StoreError, UsageError
from harness.filesystems.disks import USUAL, DiskKind, disks
from harness.filesystems.profile import MountCounter
from harness.findings.repro import _stack
from harness.guests.disk import BlockReads
from harness.guests.session import Target
from harness.model import (
    BLOCK_BYTES,
    CrashPoint,
    CrashState,
    EntryFlag,
    LogEntry,
    Outcome,
    Usability,
    Verdict,
    Workload,
)
from harness.plan import Budget, Plan
from harness.report.words import recoveries_cut
from harness.states import LegalStates, Unclear
from harness.store.records import CaseStatus
from harness.summary import CaseVerdict, exit_code, summarise
from harness.tests.cases.toy_kernel import (
    BASE,
    COUNTER,
    VALUE_COUNT,
    VALUES,
    VERDICTS,
    Bench,
    Kernel,
    Kind,
    Program,
    Put,
    a_bench,
    bench_in,
    told,
)
from harness.workloads.load import parse_operation
from harness.writelog import Flush, Step, Write, read_log, write_log

STABLE = [kind for kind in Kind if kind is not Kind.WAVERS and "IN_USE" not in kind.name]
ADDS = (Put(7, 7, 1), None, Put(0, 7, 0), Put(7, 7, 3), None)
"""Counts one up on disk before it has noted that it did: block 7 is 1 for a while."""
WRITES_MAX = 12

Disk = dict[int, int]
"""The value of each block."""


bench = a_bench


# --- the reference ---------------------------------------------------------------------------


def crashed() -> list[Disk]:
    """What prefixes of the toy's log leave: its flags, written in order."""
    flags = [{block: block + 1 for block in range(count)} for count in range(4)]
    return [{block: values.get(block, 0) for block in VALUES} for values in flags]


def recover(program: Program, disk: Disk) -> list[Disk | None]:
    """Recover `disk`. Returns what was written, a write at a time; None: a flush."""
    log: list[Disk | None] = []
    for step in program:
        if step is None:
            log.append(None)
            continue
        value = (disk[step.of] + step.more) % VALUE_COUNT
        if disk[step.to] != value:
            log.append({step.to: value})
        disk[step.to] = value
    return log


def links(program: Program, disk: Disk) -> int:
    """What a recovery of this disk to its end comes to."""
    done = dict(disk)
    recover(program, done)
    return told([done[block] for block in VALUES])


def cuts(disk: Disk, log: Sequence[Disk | None]) -> Iterator[Disk]:
    """Every disk that a cut of this recovery may leave: what was flushed, and any part of what was not."""
    for end in range(len(log) + 1):
        before = log[:end]
        flush = max((i for i, entry in enumerate(before) if entry is None), default=-1)
        sure = [entry for entry in before[: flush + 1] if entry is not None]
        free = [entry for entry in before[flush + 1 :] if entry is not None]
        for kept in itertools.product((False, True), repeat=len(free)):
            cut = dict(disk)
            for entry in [*sure, *(e for e, keep in zip(free, kept, strict=True) if keep)]:
                cut |= entry
            yield cut


def differences(program: Program, depth: int) -> set[tuple[int, int]]:
    """What undisturbed recoveries come to, with what they come to otherwise if they are cut."""
    found: set[tuple[int, int]] = set()
    for first in crashed():
        whole, disks = links(program, first), [first]
        for _ in range(depth):
            logs = [(disk, recover(program, dict(disk))) for disk in disks]
            disks = [cut for disk, log in logs for cut in cuts(disk, log)]
            disks = [dict(one) for one in {tuple(sorted(disk.items())) for disk in disks}]
            found |= {(whole, links(program, disk)) for disk in disks}
    return {(whole, other) for whole, other in found if whole != other}


# --- against the reference -------------------------------------------------------------------


def seen(bench: Bench) -> set[tuple[int, int]]:
    """The same pairs, as the store has them."""
    rows = bench.store.rows_of(bench.case)
    return {
        (int(v.expected), int(v.found))
        for row in rows.judged
        for v in row.judgement.violations
        if v.oracle == "confluence"
    }


steps = st.one_of(
    st.none(),
    st.builds(Put, st.sampled_from(VALUES), st.sampled_from(VALUES), st.integers(0, VALUE_COUNT - 1)),
)


def connected(pairs: set[tuple[int, int]]) -> set[frozenset[int]]:
    """Outcomes that pairs connect. A node that two crashes lead to is cut once: what it then differs in is
    told of one of them, and the other differs from that.
    """
    groups: list[set[int]] = []
    for pair in pairs:
        met = [group for group in groups if group & set(pair)]
        groups = [g for g in groups if g not in met] + [set(pair).union(*met)]
    return set(map(frozenset, groups))


def hold(folder: Path, depth: int, program: Program) -> None:
    """The graph of a program against the reference."""
    with bench_in(folder) as bench:
        bench.run(Kernel(program=program), "prefix", again=depth, oracles=("confluence",))
        found, expected = seen(bench), differences(program, depth)
        (case,) = bench.store.cases()
    assert all(cut.coverage.exhaustive and not cut.not_cut for cut in case.info.again)
    assert differences(program, 1) <= found <= expected
    assert connected(found) == connected(expected)


TWELVE = (
    *(Put(to, of, 1) for to, of in ((7, 0), (2, 1), (1, 7), (0, 2))),
    None,
    *(Put(to, of, 2) for to, of in ((7, 1), (0, 7), (2, 0), (1, 2), (7, 7), (0, 0), (1, 1), (2, 2))),
)
"""Four writes, a flush, eight writes."""
IN_FLIGHT = tuple(Put(VALUES[i % 4], VALUES[(i * i + 1) % 4], 1 + i % 3) for i in range(WRITES_MAX))
"""Twelve writes, of which any part may be lost."""


@pytest.mark.parametrize("program", [TWELVE, IN_FLIGHT], ids=["flushed", "in-flight"])
def test_the_graph_has_what_every_prefix_and_every_subset_of_the_log_has(
    tmp_path: Path, program: Program
) -> None:
    hold(tmp_path, 1, program)


steps = st.one_of(
    st.none(),
    st.builds(Put, st.sampled_from(VALUES), st.sampled_from(VALUES), st.integers(0, VALUE_COUNT - 1)),
)


@pytest.mark.parametrize("depth", [1, 2])
@settings(max_examples=4, deadline=None, database=None)
@given(program=st.lists(steps, min_size=2, max_size=6).map(tuple))
def test_the_graph_of_any_recovery_is_that_of_the_reference(
    tmp_path_factory: pytest.TempPathFactory, depth: int, program: Program
) -> None:
    hold(tmp_path_factory.mktemp("again"), depth, program)


# --- one story each --------------------------------------------------------------------------


def test_a_recovery_that_is_not_idempotent_is_found_by_cutting_it(bench: Bench) -> None:
    bench.run(Kernel(program=ADDS), "exhaustive", again=1)
    case = summarise(bench.store).cases[0]
    assert {f.oracle for f in case.findings} == {"confluence"}
    assert all(f.state.again for f in case.findings)
    assert case.verdict is CaseVerdict.FAIL


def test_what_a_recovery_wrote_that_is_not_cut_is_not_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each visited state left a file with all blocks that differ from the base, until the case ended: 582 MiB
    after 26 states.
    """
    go_on = Casework._next_exploration
    logs: list[set[Path]] = []

    def counting(self: Casework, pool: Any, work: Any, one: Exploration) -> bool:
        if not logs:
            log = one._examiner.recording.log
            needed = {r.log for r in (*one.recoveries, *(left.recovery for left in one.left_out))}
            logs.extend([needed, set(log.parent.glob(f"{log.name}.again-*"))])
        return go_on(self, pool, work, one)

    monkeypatch.setattr(Casework, "_next_exploration", counting)
    bench.run(Kernel(program=ADDS, has_file=True), "exhaustive", again=1)
    needed, there = logs
    (case,) = bench.store.cases()
    assert case.info.coverage is not None
    assert 0 < len(needed) < case.info.coverage.visits
    assert there == needed


def test_and_missed_without(bench: Bench) -> None:
    bench.run(Kernel(program=ADDS), "exhaustive")
    assert summarise(bench.store).cases[0].verdict is CaseVerdict.PASS


# What is written to afterwards is alike in every generation: the word is that of a whole recovery again.
BREAKS = (Put(0, 7, 0), None, Put(0, 7, 1), None)
"""Takes flag 0 away and sets it again. The word 010 is seen only by who recovers again in between."""


@pytest.mark.parametrize("kind", STABLE, ids=lambda kind: kind.name)
def test_what_becomes_of_a_guest_in_a_second_recovery_is_reported_like_in_the_first(
    bench: Bench, kind: Kind
) -> None:
    """Lost guests, hangs and all that leaves a state undecided."""
    kernel = Kernel(kind, at="010", program=BREAKS)
    bench.run(kernel, "prefix", again=1)
    assert "010" in kernel.visits
    bench.store.finish()
    summary = summarise(bench.store)
    expected = {
        Verdict.PASS: (CaseVerdict.PASS, ExitCode.CONSISTENT),
        Verdict.FAIL: (CaseVerdict.FAIL, ExitCode.INCONSISTENT),
        Verdict.UNKNOWN: (CaseVerdict.UNKNOWN, ExitCode.UNDECIDED),
    }[VERDICTS[kind]]
    assert (summary.cases[0].verdict, exit_code(summary)) == expected
    rows = [v for v in bench.store.iter_verdicts(bench.case) if v.verdict is not Verdict.PASS]
    assert all(row.state.again for row in rows)
    assert bool(rows) == (VERDICTS[kind] is not Verdict.PASS)


@pytest.mark.parametrize("roll_forward_allocates", [False, True])
def test_one_recovery_is_cut_for_all_that_differ_in_the_bytes_of_files_alone(
    bench: Bench, roll_forward_allocates: bool
) -> None:
    """Each was cut: of `overwrite`, 80 recoveries with 25 contents of metadata. Of F2FS, one stood for others
    in which a cut shows stale bytes.
    """
    bench.profile = replace(bench.profile, roll_forward_allocates=roll_forward_allocates)
    bench.run(Kernel(program=ADDS, has_file=True), "exhaustive", again=1, oracles=("confluence",))
    (case,) = bench.store.cases()
    (cut,) = case.info.again
    assert case.info.coverage is not None
    assert (case.info.coverage.visits > cut.recoveries) is not roll_forward_allocates
    plain = seen(bench)
    assert plain


@pytest.mark.parametrize("has_file", [False, True])
@pytest.mark.parametrize("states", ["prefix", "exhaustive"])
def test_a_recovery_is_cut_anew_where_more_is_promised(bench: Bench, states: str, has_file: bool) -> None:
    """What a cut loses was judged where the recovery had first been seen: before fsync had returned. On F2FS
    a file was missing that was durable by then.
    """
    asked = (*["create file"] * has_file, "create kept", "fsync kept")
    bench.workload = Workload("w", "", tuple(map(parse_operation, asked)))
    kernel = Kernel(program=ADDS, loses=True, has_file=has_file)
    bench.run(kernel, states, again=1, oracles=("durability",))
    (finding,) = summarise(bench.store).cases[0].findings
    assert finding.oracle == "durability"
    assert finding.state.again
    assert bench.recording(states).position(finding.state).acked == len(asked)


def test_a_recovery_is_held_by_the_first_state_for_all_that_is_promised() -> None:
    early, late, acknowledged = (CrashState(n) for n in (3, 4, 5))
    promised = {early: Promised((1,), 1), late: Promised((1,), 2), acknowledged: Promised((2,), 2)}
    cuts = CutOnce(promised.get)
    number, kind = 7, cuts.kind("alike", 7)
    assert cuts.takes(kind, late)
    assert not cuts.takes(kind, late), "it came up at another crash time"
    assert cuts.are_cut(number, [late])
    assert not cuts.are_cut(number, [early]), "less had begun there, so less explains what is missing"
    cuts.hold(number, [early])
    assert cuts.takes(kind, early), "it was planned, and then seen"
    assert not cuts.are_cut(number, [late, acknowledged])
    assert not cuts.takes(kind, CrashState(6)), "not to be cut any more"
    assert cuts.are_cut(8, [acknowledged]), "it wrote nothing, or nobody visited it"
    assert cuts.are_cut(number, [CrashState(6)]), "not to be cut any more"


def test_of_two_looks_at_a_recovery_the_first_stays() -> None:
    """Where the time of day had changed, what had been visited of the first log was sought in the second:
    choices were left, 105 of them on ext4.
    """
    examiner: Any = SimpleNamespace(
        recording=SimpleNamespace(recoveries={}), note_undisturbed=lambda *_: None
    )
    looks: list[Any] = [SimpleNamespace(of=CrashState(1), look=n) for n in (1, 2)]
    for look in looks:
        Examiner.adopt(examiner, look, Observation(Unobserved("")))
    assert examiner.recording.recoveries == {CrashState(1): looks[0]}


COUNTED = {
    "nowhere": (),
    "in one place": (MountCounter(at=COUNTER * BLOCK_BYTES, size_bytes=8, fields=((1, 1),)),),
    "wherever it is marked": (MountCounter(marked=BASE[:1].hex(), size_bytes=8, fields=((1, 1),)),),
    "where it is marked, but for what is none": (
        MountCounter(marked=BASE[:1].hex(), size_bytes=8, fields=((1, 1),), zeros=((2, 1),)),
    ),
}


@pytest.mark.parametrize("where", COUNTED)
def test_a_graph_ends_where_a_file_system_says_what_it_counts(bench: Bench, where: str) -> None:
    """Each mount counts itself, so all that it left was new to the next one, without end."""
    counted = where in ("in one place", "wherever it is marked")
    bench.profile = replace(bench.profile, mount_counters=COUNTED[where])
    bench.run(Kernel(counts=True), "prefix", again=3, sample_rate=0.0)
    (case,) = bench.store.cases()
    assert (case.info.again[-1].coverage.visits == 0) == counted
    assert case.info.again[0].coverage.exhaustive
    assert (case.info.again[-1].recoveries == 0) == counted
    said = recoveries_cut([case.info])
    assert said.startswith("cut again to the end, " if counted else "cut again, 3 deep: ")
    left = replace(case.info, again=tuple(replace(cut, not_cut=1) for cut in case.info.again))
    assert "to the end" not in recoveries_cut([left])
    assert "every legal state" not in recoveries_cut([left]), "nobody saw what a cut of those leaves"


SAMPLED = Sampling(depth=2, too_many=20, drawn=200)


def test_a_cut_with_too_many_states_is_sampled_and_not_called_exhaustive(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XFS replays dozens of blocks without a flush: 730,388 choices of one workload were left after 20
    minutes.
    """
    monkeypatch.setattr(exploration, "OF_RECOVERY", SAMPLED)
    bench.run(Kernel(rewrites=True), "prefix", again=1)
    (cut,) = bench.store.cases()[0].info.again
    assert cut.coverage.sampled
    assert cut.coverage.drawn == SAMPLED.drawn * cut.coverage.sampled
    assert (cut.coverage.unexplored, cut.coverage.losses) == (0, SAMPLED.depth)
    assert "every legal state" not in recoveries_cut([bench.store.cases()[0].info])
    assert summarise(bench.store).cases[0].verdict is CaseVerdict.PASS


def test_and_what_takes_six_blocks_is_drawn_and_explored_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exploration, "OF_RECOVERY", SAMPLED)
    bench.run(Kernel(rewrites=True, breaks=True), "prefix", again=1)
    case = summarise(bench.store).cases[0]
    assert "confluence" in {f.oracle for f in case.findings}
    assert case.info.again[0].coverage.drawn < SAMPLED.drawn * case.info.again[0].recoveries


def drawn_by_recovery(
    folder: Path, patched: pytest.MonkeyPatch, jobs: int
) -> dict[tuple[str, int, int], list[tuple[int, ...]]]:
    """What a run with so many workers draws: of each crash time of a recovery, the chunks that are lost."""
    drawn, draw = dict[tuple[str, int, int], list[tuple[int, ...]]](), Exploration._draw

    def noted(self: Exploration, one: TimeCoverage) -> list[TimeCoverage]:
        states = draw(self, one)
        assert one.recovery is not None
        assert one.crash_time is not None
        key = (str(one.recovery.of), one.crash_time.entry, one.crash_time.phase)
        drawn[key] = [
            tuple(n - one.recovery.made_of for n in state.ask.dropped)
            for state in states
            if isinstance(state.ask, CrashState)
        ]
        return states

    patched.setattr(exploration, "OF_RECOVERY", SAMPLED)
    patched.setattr(Exploration, "_draw", noted)
    with bench_in(folder) as bench:
        bench.run(Kernel(rewrites=True), "exhaustive", jobs=jobs, again=1)
    return drawn


def test_each_recovery_draws_states_of_its_own_and_the_same_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each recovery drew what the first one had drawn, since entries are counted from 0 in each: 64 states of
    hundreds of recoveries were the same 64.
    """
    with monkeypatch.context() as patched:
        alone = drawn_by_recovery(tmp_path / "1", patched, 1)
    with monkeypatch.context() as patched:
        assert drawn_by_recovery(tmp_path / "3", patched, 3) == alone
    places = [key[1:] for key in alone]
    assert len(set(places)) < len(places), "or this tests nothing"
    assert len(set(map(tuple, alone.values()))) == len(alone)


def test_a_recovery_that_writes_to_a_file_is_another_for_each_of_its_contents(tmp_path: Path) -> None:
    writes: list[Step] = [Write(8, b"a" * BLOCK_BYTES), Write(16, b"b" * BLOCK_BYTES), Flush()]
    write_log(tmp_path / "log", writes)
    target = Target("ext4", "", tmp_path / "base", tmp_path / "log")
    recovery = RecoveryLog.of_log(CrashState(0), target, tmp_path / "log", 1, 8)
    assert recovery.decided_by(BlockReads((1, 2, 3, 4), data=(1, 2, 3))) == [2, 4]


BLOCKS_OF_A_STATE = (Write(8, b"a" * BLOCK_BYTES), Write(20, b"b" * BLOCK_BYTES))
"""The second one lies in two blocks."""


@pytest.mark.parametrize(
    ("unit", "disk", "chunks"),
    [(8, USUAL, 3), (1, USUAL, 16), (1, disks()["4k"], 3), (8, disks()["writethrough"], 3)],
    ids=["blocks", "sectors", "a disk of larger sectors", "no volatile cache"],
)
def test_a_recovery_is_cut_as_its_disk_would_lose_it(
    tmp_path: Path, unit: int, disk: DiskKind, chunks: int
) -> None:
    """By sectors, or on another kind of disk, the chunks of the state were miscounted, or what the recovery
    wrote was lost as from a usual disk: states that this disk can never be in.
    """
    steps: list[Step] = [*BLOCKS_OF_A_STATE, Write(40, b"c" * BLOCK_BYTES)]
    write_log(tmp_path / "log", steps)
    target = Target("ext4", "", tmp_path / "base", tmp_path / "log", disk=disk)
    recovery = RecoveryLog.of_log(CrashState(0), target, tmp_path / "log", 2, unit)
    assert recovery.made_of == chunks
    last = recovery.choices(recovery.legal.crash_times[-1])
    of_recovery = 8 if chunks == 16 else 1
    assert last.prefix == chunks + of_recovery
    losable = () if disk.write_through else tuple(range(chunks, last.prefix))
    assert last.volatile == losable
    assert recovery.target.order is not None
    assert recovery.target.order.unit_sectors == max(unit, disk.physical_sectors)


@pytest.mark.parametrize("kind", [Kind.LATE_IN_USE, Kind.NOT_UNMOUNTED_IN_USE, Kind.HANGS])
def test_what_a_visit_wrote_on_which_nobody_may_rely_is_not_cut_but_counted(bench: Bench, kind: Kind) -> None:
    """It was cut, and held against an outcome that may be another one the next time."""
    bench.run(Kernel(kind, at="110", program=ADDS), "prefix", again=1)
    words = {s: w for s, w in bench.words("prefix").items() if not s.again}
    unreliable = {state for state, word in words.items() if word == "110"}
    cut = {row.state.recovered for row in bench.store.iter_verdicts(bench.case) if row.state.again}
    assert unreliable
    assert cut
    assert not cut & unreliable
    assert bench.store.cases()[0].info.again[0].not_cut


def test_what_a_budget_leaves_out_is_said(bench: Bench) -> None:
    bench.run(Kernel(program=(*ADDS, *BREAKS)), "exhaustive", again=1, budget=Budget(visits=7))
    (case,) = bench.store.cases()
    (cut,) = case.info.again
    assert cut.coverage.unexplored
    assert "budget" in cut.coverage.why


def test_it_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    found = []
    for jobs in (1, 3):
        with bench_in(tmp_path / f"{jobs}") as bench:
            bench.run(Kernel(program=ADDS), "exhaustive", jobs=jobs, again=2)
            found.append(
                {(v.state, v.content_hash, v.verdict) for v in bench.store.iter_verdicts(bench.case)}
            )
    assert found[0] == found[1]


def test_what_a_killed_run_left_is_begun_anew(bench: Bench) -> None:
    """Of states that had been decided no recovery was there to be cut: the resumed run said all were."""
    bench.run(Kernel(program=ADDS), "prefix", stop_at=3, again=1)
    bench.run(Kernel(program=ADDS), "prefix", again=1)
    (case,) = bench.store.cases()
    assert case.info.again[0].recoveries == 8
    assert summarise(bench.store).cases[0].verdict is CaseVerdict.FAIL


def test_what_a_stopped_run_found_in_a_cut_can_be_seen_again(bench: Bench) -> None:
    """What recoveries wrote was kept when a case came to its end: `powercut repro` of what a run that was
    interrupted had found, by the line that its report gave, said that it was not kept.
    """
    bench.run(Kernel(program=ADDS), "exhaustive", stop_at=20, again=1)
    (case,) = bench.store.cases()
    assert case.status is not CaseStatus.DONE
    failed = [v.state for v in bench.store.iter_verdicts(bench.case) if v.verdict is Verdict.FAIL]
    points = [CrashPoint(bench.case, state) for state in failed if state.again]
    assert points
    recording, plan = bench.recording("exhaustive"), Plan(configurations=["ext4/ordered"], workloads=["w"])
    for point in points:
        _stack(bench.store, point, recording, plan)
    bench.run(Kernel(program=ADDS), "exhaustive", again=1)
    assert summarise(bench.store).cases[0].verdict is CaseVerdict.FAIL


def test_a_recovery_that_a_stopped_part_kept_anew_says_to_go_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that files of the run had been changed."""
    bench.store.put_plan(plan := Plan(configurations=["ext4/ordered"], workloads=["w"]))
    bench.run(Kernel(program=ADDS), "exhaustive", again=1)
    failed = [v.state for v in bench.store.iter_verdicts(bench.case) if v.verdict is Verdict.FAIL]
    monkeypatch.setattr("harness.guests.disk.Disk.hashes", lambda *_: ["of another recovery"])
    with pytest.raises(StoreError, match="is not what the run had") as refused:
        _stack(bench.store, CrashPoint(bench.case, failed[0]), bench.recording("exhaustive"), plan)
    assert refused.value.next_step.startswith("go on with the run: powercut run --resume ")


def test_cuts_in_recoveries_have_names_that_nest() -> None:
    for text in ("@417@t3", "@t417-402@t12-3", "@417-402/t3@t4=1,2.0@t0="):
        state = CrashState.parse(text)
        assert str(state) == text
        assert str(state.recovered.cut_at(state.again[-1])) == text
    assert CrashState.parse("@t417@t3").first == CrashState.parse("@t417")
    with pytest.raises(ValueError, match="a cut in a recovery is a state by times"):
        CrashState.parse("@t417@3")


def test_a_state_of_an_unknown_recovery_is_no_state(bench: Bench) -> None:
    """It was shown as if recovery had not been cut."""
    bench.run(Kernel(), "exhaustive")
    recording = bench.recording("exhaustive")
    with pytest.raises(UsageError, match="what the recovery of @t3 wrote is not known"):
        recording.shown(CrashState.parse("@t3@t1"))


def test_what_is_durable_after_a_flush_was_complete_before_it() -> None:
    entries = [LogEntry(i, 8 * i, 8 if i != 1 else 0, EntryFlag(int(i == 1)), 0) for i in range(3)]
    times = times_of(entries)
    assert [(w.entry, w.submitted, w.completed) for w in times.writes] == [(0, 0, 1), (2, 4, 5)]
    assert [(f.submitted, f.completed) for f in times.flushes] == [(2, 3)]


SECOND = 64 << 20
"""The byte of the disk at which its second device begins."""


def test_a_flush_of_a_recovery_on_two_devices_is_not_known_to_be_of_both(tmp_path: Path) -> None:
    """A flush of the one made the writes to the other durable, and the case was called exhaustive."""
    written: list[Step] = [
        Write(8, b"a" * BLOCK_BYTES),
        Write(SECOND // 512 + 8, b"j" * BLOCK_BYTES),
        Flush(),
        Write(SECOND // 512, b"s" * BLOCK_BYTES),
    ]
    write_log(tmp_path / "log", written)

    def legal_on(*parts: int) -> LegalStates:
        target = Target("ext4", "", tmp_path / "base", tmp_path / "log", parts)
        return RecoveryLog.of_log(CrashState(5), target, tmp_path / "log", 0, 8).legal

    of_one, of_two = legal_on(), legal_on(SECOND)
    assert [w.device for w in times_of(read_log(tmp_path / "log").entries, [SECOND]).writes] == [0, 1, 1]
    assert [m.choices for m in of_two.crash_times] == [m.choices for m in of_one.crash_times]
    assert [m.unclear for m in of_one.crash_times] == [(), ()]
    assert [m.unclear for m in of_two.crash_times] == [(), (Unclear.DEVICES,)]


def test_what_a_recovery_wrote_is_never_written_over(tmp_path: Path) -> None:
    """A worker that came back to a case, or that took a lost one's place, began its numbers anew: with
    `--again 2` and several cases, the second generation was cut in logs of other recoveries.
    """
    named: list[Path] = []

    def log_writes(path: Path) -> SimpleNamespace:
        path.touch(exist_ok=False)
        named.append(path)
        return SimpleNamespace(complete=len(named) < 0)

    recording = cast(Any, SimpleNamespace(log=tmp_path / "log", profile=None))
    session = cast(
        Any, SimpleNamespace(directory=tmp_path / "judge-0", disk=SimpleNamespace(log_writes=log_writes))
    )
    for _ in range(2):
        attempts = object.__new__(Attempts)
        attempts._recording = recording
        attempts._recovery_of(session, CrashState(3), cast(Any, None))
    assert len(set(named)) == 2


def test_a_recovery_that_wrote_more_than_is_kept_is_counted_as_not_cut() -> None:
    """It was neither cut nor counted: `--again` said that all recoveries had been cut."""
    seen = Observation(Outcome(usable=Usability()), recovery=None)
    counted, group = SimpleNamespace(not_cut=0, recoveries=[]), Group("", (CrashState(3),))
    Exploration._keep_recovery(cast(Any, counted), JudgedGroup(group, seen, ()), None)
    assert (counted.not_cut, counted.recoveries) == (1, [])
    failed = Observation(Outcome(), recovery=None)
    Exploration._keep_recovery(cast(Any, counted), JudgedGroup(group, failed, ()), None)
    assert counted.not_cut == 1, "what did not come back whole fails already"
