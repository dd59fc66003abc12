"""When a finding came and went, and how a study is shown."""

from __future__ import annotations

import re

import msgspec
import pytest

from harness.model import CaseId
from harness.plan import Plan
from harness.releases.page import headline, strip_of, study_html, study_text
from harness.releases.results import Answer, OnKernel, Seen, Study, StudyPlan, story
from harness.summary import CaseVerdict

CASE = CaseId("ext4", "fast_commit", "fio-randwrite")
LETTERS = {"+": CaseVerdict.FAIL, ".": CaseVerdict.PASS, "?": CaseVerdict.UNKNOWN, "-": CaseVerdict.NOT_RUN}


def on(kernel: str, letter: str) -> OnKernel:
    """`+`: the finding is there; `.`: it is not; `?`: undecided; `-`: not run; `!`: the kernel was not."""
    if letter == "!":
        return OnKernel(kernel, failed="the archive does not have the whole kernel")
    found = (Seen("mountable", "it cannot be mounted", f"{CASE}@41", 3),) if letter == "+" else ()
    reason = "no module" if letter in "?-" else ""
    answer = Answer("ext4/fast_commit", "fio-randwrite", LETTERS[letter], 91, 3 * len(found), found, reason)
    return OnKernel(kernel, f"{kernel}.9", "release", "QEMU", f"/runs/{kernel}", 60, (answer,))


def kernels(letters: str) -> tuple[OnKernel, ...]:
    return tuple(on(f"k{n}", letter) for n, letter in enumerate(letters, 1))


@pytest.mark.parametrize(
    ("letters", "told"),
    [
        ("+++", "all of the 3 kernels from k1.9 to k3.9 show it"),
        ("..", "none of the 2 kernels from k1.9 to k2.9 shows it"),
        (".++", "came after k1.9, first seen in k2.9; still there in k3.9"),
        ("++.", "there in k1.9; gone in k3.9 (last seen in k2.9)"),
        (".+.", "came after k1.9, first seen in k2.9; gone in k3.9 (last seen in k2.9)"),
        (".?-!+", "came after k1.9, first seen in k5.9; still there in k5.9"),
        ("+", "k1.9 shows it"),
        ("!?-", "no kernel decided it"),
    ],
)
def test_a_story_tells_only_of_kernels_that_decided(letters: str, told: str) -> None:
    assert story(kernels(letters), CASE, "mountable") == told


def test_another_oracles_finding_is_not_this_one() -> None:
    assert story(kernels("++"), CASE, "durability") == "none of the 2 kernels from k1.9 to k2.9 shows it"


def test_what_is_shown_says_why_there_is_no_answer() -> None:
    plan = StudyPlan(title="a <study>", kernels=["k1"], plan=Plan(configurations=[], workloads=[]))
    study = Study(plan, kernels(".+-!"))
    text = study_text(study)
    row = text.splitlines()[1]
    assert re.split(r"  +", row)[1:] == ["kept", "3 of 91 broken", "not run", "not run"]
    assert "k4: the archive does not have the whole kernel" in text
    assert "no module: k3.9 ext4-fast_commit/fio-randwrite" in text
    assert f"reproduce: powercut repro {CASE}@41 --from /runs/k2" in text
    page = study_html(study)
    assert "a &lt;study&gt;" in page
    assert 'class="fail" title="mountable: it cannot be mounted"' in page
    assert not study.decided
    assert Study(plan, kernels("+-")).decided


def test_a_history_becomes_the_strip_of_its_finding_and_a_matrix_does_not() -> None:
    plan = StudyPlan(
        title="t",
        kernels=[],
        plan=Plan(configurations=[], workloads=[]),
        oracle="mountable",
        of_run="/runs/r",
        finding="0123456789ab",
    )
    strip = strip_of(Study(plan, kernels(".+!")))
    assert strip is not None
    assert [(c.kernel, c.verdict.value, c.words) for c in strip.cells] == [
        ("k1.9", "pass", "kept"),
        ("k2.9", "fail", "3 of 91 broken"),
        ("k3", "not-run", "not run"),
    ]
    assert strip.story == "came after k1.9, first seen in k2.9; still there in k2.9"
    assert strip.cells[2].why == "the archive does not have the whole kernel"
    assert strip_of(Study(StudyPlan(title="t", kernels=[], plan=plan.plan), kernels(".+"))) is None


@pytest.mark.parametrize(
    ("letters", "told"),
    [(".+", "1 does not have the same answer on all"), ("++?", "every case has the same")],
)
def test_a_matrix_says_how_many_cases_differ(letters: str, told: str) -> None:
    other = Answer("xfs/default", "append-fsync", CaseVerdict.PASS, 5)
    both = tuple(msgspec.structs.replace(k, answers=(*k.answers, other)) for k in kernels(letters))
    plan = StudyPlan(title="t", kernels=[], plan=Plan(configurations=[], workloads=[]))
    assert told in headline(Study(plan, both))
