"""A state that is opened live is judged as `powercut repro` judges it, with everything real but the guest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.blocks import named_log
from harness.explain.look import CaseNames, look
from harness.findings.repro import ReproContext, reproduce
from harness.kernels.find import Kernel as KernelFile
from harness.model import (
    Acknowledgement,
    Check,
    CrashPoint,
    CrashState,
    Operation,
    OperationKind,
    Verdict,
    Workload,
)
from harness.plan import Plan
from harness.report.live import LiveLook
from harness.summary import summarise
from harness.tests.cases.toy_kernel import VERDICTS, Bench, Kernel, Kind, Put, a_bench, toy_spec
from harness.workloads.load import parse_operation
from harness.writelog import WriteLog

KINDS = [kind for kind in Kind if kind not in (Kind.DISK_ENDS, Kind.WAVERS, Kind.DIES_ONCE)]
"""Those that come to the same in any guest. The disk's end is the guests' own, of which one is known."""
ADDS = (Put(7, 7, 1), None, Put(0, 7, 0), Put(7, 7, 3), None)
"""A recovery that is not idempotent."""


bench = a_bench


def shown(bench: Bench, kernel: Kernel, word: str) -> ReproContext:
    """A state of which a recovery reads that word, as `repro_context` makes it, with a toy for a guest."""
    words = bench.words("exhaustive")
    state = next(s for s, read in words.items() if read == word and not s.again)
    return context(bench, kernel, state)


def context(bench: Bench, kernel: Kernel, state: CrashState) -> ReproContext:
    recording = bench.recording("exhaustive")
    spec = toy_spec(kernel, bench.folder)
    point, file = CrashPoint(bench.case, state), KernelFile("toy", bench.folder / "kernel", None, "00")
    plan = Plan(configurations=[bench.profile.name], workloads=[bench.workload.name])
    made = ReproContext(point, recording, recording, bench.store, plan, file, spec, spec, bench.folder)
    return made.at(point)


def alike(found: LiveLook, again: ReproContext) -> bool:
    """Whether the page says what the command says."""
    seen = reproduce(again)
    return (found.verdict, found.violations, found.undecided) == (
        seen.judgement.verdict.value,
        seen.judgement.violations,
        seen.judgement.unknown,
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_page_says_what_repro_says(bench: Bench, kind: Kind) -> None:
    """It said "pass" of a file system that could not be written to any more, and gave up at one lost guest
    where the kernel died every time.
    """
    bench.run(Kernel(), "exhaustive")
    kernel = Kernel(kind)
    found = look(shown(bench, kernel, kernel.at), CaseNames())
    assert found.verdict == VERDICTS[kind].value
    assert alike(found, shown(bench, Kernel(kind), kernel.at))


def test_what_only_the_workloads_own_check_refuses_fails(bench: Bench) -> None:
    """The page did not ask it, and said "pass"."""
    run = Operation(OperationKind.RUN, argv=("toy",))
    bench.workload = Workload("w", "", (run, parse_operation("sync")))
    bench.run(Kernel(), "exhaustive")
    kernel = Kernel(refuses=True)
    plain = shown(bench, kernel, kernel.at)
    loaded = plain.recording
    acknowledged = (Acknowledgement(0, "1", len(loaded.write_log.entries)),)
    checked = replace(bench.workload, checks=(Check(0, ("check",), ("*",), application=True),))
    recording = replace(
        loaded, workload=checked, history=replace(loaded.history, acknowledgements=acknowledged)
    )
    again = replace(plain, recording=recording)
    found = look(again, CaseNames())
    assert found.verdict == Verdict.FAIL.value
    assert [v.oracle for v in found.violations] == ["program"]
    assert alike(found, again)


def test_what_was_read_and_written_is_shown(bench: Bench) -> None:
    bench.run(Kernel(), "exhaustive")
    found = look(shown(bench, Kernel(), "110"), CaseNames())
    assert [b.number for b in found.reads] == [0, 1, 2]
    assert found.wrote is not None
    assert [w.sector for w in found.wrote] == [40]  # recovery's, and nothing of what was tried afterwards
    assert {w.how for w in found.on_disk} == {"on the platter", "lost"}
    assert not found.lost


def test_a_lost_guest_takes_along_what_it_read(bench: Bench) -> None:
    bench.run(Kernel(), "exhaustive")
    found = look(shown(bench, Kernel(Kind.DIES_IN_USE), "110"), CaseNames())
    assert found.lost
    assert "Kernel panic - not syncing: toy" in found.use_log


def test_a_cut_in_a_recovery_is_opened_too(bench: Bench) -> None:
    """It was refused: "powercut repro shows it"."""
    bench.run(Kernel(program=ADDS), "exhaustive", again=1)
    finding = summarise(bench.store).cases[0].findings[0]
    again = context(bench, Kernel(program=ADDS), finding.state)
    found = look(again, CaseNames())
    assert [v.oracle for v in found.violations] == ["confluence"]
    assert alike(found, again)
    (wrote,) = found.cut_again
    assert {w.sector for w in wrote} <= {0, 40, 56}
    assert wrote


def test_the_names_of_a_whole_log_are_found_once_for_its_states(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each state that was opened named all that the log has twice: seconds on a long one."""
    bench.run(Kernel(), "exhaustive")
    first, second = (shown(bench, Kernel(), word) for word in ("110", "10"))
    read: list[Path] = []

    def counted(base: Path, log: WriteLog, contents: Path, **more: object) -> object:
        read.append(contents)
        return named_log(base, log, contents, **more)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr("harness.explain.look.named_log", counted)
    names = CaseNames()
    for one in (first, second):
        look(one, names)
    assert read.count(first.recording.log) == 1
