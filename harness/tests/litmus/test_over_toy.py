"""A question in a run: over a toy kernel, through disk, memo and store."""

from __future__ import annotations

from dataclasses import replace

from harness.litmus.results import Standing, cell_of
from harness.litmus.work import not_put
from harness.model.questions import Look, Question
from harness.oracles import ORACLES
from harness.summary import CaseVerdict, summarise
from harness.tests.cases.toy_kernel import Bench, Kernel, Kind, a_bench

NEVER_THERE = Question(
    group="g", asks="Is it there?", after=1, holds=[{"nothing": Look()}], kept=[], broken=[]
)
GONE = Question(group="g", asks="Is it gone?", holds=[{"nothing": Look(there=False)}], kept=[], broken=[])


bench = a_bench


def asking(bench: Bench, question: Question) -> Bench:
    return replace(bench, workload=replace(bench.workload, question=question))


def test_a_question_is_put_at_every_state_behind_its_operation_and_at_no_other(bench: Bench) -> None:
    """States that agree on what is read are judged by their positions: one recalled outcome is no answer
    before the operation, and one behind it.
    """
    asked = asking(bench, NEVER_THERE)
    asked.run(Kernel(), "exhaustive", oracles=tuple(ORACLES))
    recording = asked.recording("exhaustive")
    behind = [r for r in asked.store.iter_verdicts(asked.case) if recording.position(r.state).acked >= 1]
    rows = list(asked.store.iter_verdicts(asked.case))
    (case,) = summarise(asked.store).cases
    (found,) = case.findings
    assert (found.oracle, found.states) == ("question", len(behind))
    assert 0 < len(behind) < len(rows)
    cell = cell_of("w", False, [case])
    assert (cell.standing, cell.no, cell.states) == (Standing.NO, len(behind), len(rows))


def test_a_question_that_always_holds_is_an_answer_about_every_legal_state(bench: Bench) -> None:
    asked = asking(bench, GONE)
    asked.run(Kernel(), "exhaustive", oracles=tuple(ORACLES))
    (case,) = summarise(asked.store).cases
    assert cell_of("w", True, [case]).standing is Standing.KEPT
    assert cell_of("w", False, [case]).standing is Standing.LUCK


def test_a_state_that_cannot_be_read_answers_nothing(bench: Bench) -> None:
    """Another oracle fails such a state, so it was not undecided, and counted as a yes: `always`."""
    asked = asking(bench, GONE)
    asked.run(Kernel(Kind.UNREADABLE), "exhaustive", oracles=tuple(ORACLES))
    (case,) = summarise(asked.store).cases
    unread = not_put(asked.store, asked.case)
    cell = cell_of("w", True, [case], not_put=unread)
    assert 0 < unread < case.counts.checked
    assert (cell.standing, cell.states) == (Standing.KEPT_SO_FAR, case.counts.checked - unread)
    assert "could not be read" in cell.left


def test_a_usual_run_puts_no_question(bench: Bench) -> None:
    """`powercut run -w litmus` was red where a mode promised nothing."""
    asked = asking(bench, NEVER_THERE)
    asked.run(Kernel(), "exhaustive")
    (case,) = summarise(asked.store).cases
    assert case.verdict is CaseVerdict.PASS
    assert "question" not in case.info.oracles
