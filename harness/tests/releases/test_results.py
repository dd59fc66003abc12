"""When a finding came and went, and how a sweep is shown."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.model import CaseId
from harness.plan import Plan
from harness.releases.page import headline, page_of, strip_of
from harness.releases.results import Answer, OnKernel, Seen, Sweep, SweepPlan, answer_of, story
from harness.store.records import CaseInfo, CaseStatus, Counts, Coverage, NestedCrashes
from harness.summary import CaseSummary, CaseVerdict, summarise
from harness.tests.report.demo import demo_run

CASE = CaseId("ext4", "fast_commit", "fio-randwrite")
LETTERS = {"+": CaseVerdict.FAIL, ".": CaseVerdict.PASS, "?": CaseVerdict.UNKNOWN, "-": CaseVerdict.NOT_RUN}


def on(kernel: str, letter: str) -> OnKernel:
    """`+`: the finding is there; `.`: it is not; `?`: undecided; `-`: not run; `!`: the kernel was not."""
    if letter == "!":
        return OnKernel(item=kernel, failed="the archive does not have the whole kernel")
    found = (Seen("mountable", "it cannot be mounted", f"{CASE}@41", 3),) if letter == "+" else ()
    reason = "no module" if letter in "?-" else ""
    answer = Answer("ext4/fast_commit", "fio-randwrite", LETTERS[letter], 91, 3 * len(found), found, reason)
    return OnKernel(
        item=kernel,
        name=f"{kernel}.9",
        release="release",
        machine="QEMU",
        run=f"runs/{kernel}",
        answers=(answer,),
    )


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


def test_a_history_follows_the_symptom_of_its_finding() -> None:
    """Another symptom of the oracle was told as the finding that was followed."""
    kept = (("6.1", "NAME: missing"), ("6.12", ""), ("7.3", "NAME: size"))
    shown = [
        OnKernel(
            item=name,
            name=name,
            answers=(
                Answer(
                    CASE.configuration, CASE.workload, CaseVerdict.FAIL, 40, 3,
                    (Seen("durability", f"of {name}", f"{CASE}@7", 3, symptom=symptom),),
                ),
            ),
        )
        for name, symptom in kept
    ]  # fmt: skip
    plan = SweepPlan(
        title="t", kernels=[], plan=Plan(configurations=[], workloads=[]),
        oracle="durability", symptom="NAME: missing",
    )  # fmt: skip
    followed = Sweep(plan, tuple(shown))
    assert headline(followed).endswith("there in 6.1; gone in 7.3 (last seen in 6.12)")
    assert "of 6.12" in page_of(followed).text()
    assert "all of the 3 kernels" in story(shown, CASE, "durability")


def test_what_was_looked_at_in_part_is_said_to_be() -> None:
    """A finding was gone in a kernel of which the budget had left out most crash states, without a word."""
    first, last = kernels("+.")
    part = msgspec.structs.replace(last.answers[0], in_part=True)
    both = first, msgspec.structs.replace(last, answers=(part,))
    left_out = ", where some crash states were left out"
    assert story(both, CASE, "mountable") == f"there in k1.9; gone in k2.9{left_out} (last seen in k1.9)"
    early = msgspec.structs.replace(first.answers[0], in_part=True, verdict=CaseVerdict.PASS, findings=())
    came = msgspec.structs.replace(first, answers=(early,)), kernels("++")[1]
    assert story(came, CASE, "mountable").startswith(f"came after k1.9{left_out}, first seen in k2.9")
    assert story(both, CASE, "fsck") == f"none of the 2 kernels from k1.9 to k2.9 shows it{left_out}"
    assert story(both[1:], CASE, "fsck") == f"k2.9 does not show it{left_out}"
    plan = SweepPlan(title="t", kernels=["k1", "k2"], plan=Plan(configurations=[], workloads=[]))
    page = page_of(Sweep(plan, both))
    assert "91 kept, in part" in page.text()
    assert "in part: the budget left out some" in page.html()


def test_a_kernel_that_left_states_undecided_does_not_show_that_a_finding_is_gone() -> None:
    """Another oracle's finding made the case FAIL, and nine of ten states had not been decided."""
    first, last = kernels("+.")
    fsck = (Seen("fsck", "two names", f"{CASE}@9", 1),)
    reason = "9 of 10 states could not be decided"
    broken = msgspec.structs.replace(last.answers[0], verdict=CaseVerdict.FAIL, findings=fsck, reason=reason)
    last = msgspec.structs.replace(last, answers=(broken,))
    assert broken.undecided
    assert not last.decided
    assert story((first, last), CASE, "mountable") == "k1.9 shows it"
    assert story((first, last), CASE, "fsck").startswith("came after k1.9, first seen in k2.9")


def test_another_oracles_finding_is_not_this_one() -> None:
    assert story(kernels("++"), CASE, "durability") == "none of the 2 kernels from k1.9 to k2.9 shows it"


def test_what_is_shown_says_why_there_is_no_answer() -> None:
    plan = SweepPlan(title="a <sweep>", kernels=["k1"], plan=Plan(configurations=[], workloads=[]))
    sweep = Sweep(plan, kernels(".+-!"), Path("/s"))
    text = page_of(sweep).text()
    shown = [re.split(r"  +", line) for line in text.splitlines() if re.match(r"k\d", line)][:4]
    assert [row[1] for row in shown] == ["91 kept", "3 of 91 broken", "not run", "not run"]
    assert "k4: not run: the archive does not have the whole kernel" in text
    assert "no module (k3.9 ext4-fast_commit/fio-randwrite)" in text
    assert f"reproduce: powercut repro {CASE}@41 --from /s/runs/k2" in text
    page = page_of(sweep).html()
    assert "a &lt;sweep&gt;" in page
    assert '<td class="fail">3 of 91 broken</td><td class="">mountable: it cannot be mounted</td>' in page
    assert not sweep.decided
    assert Sweep(plan, kernels("+-")).decided


def test_a_sweep_that_looked_at_nothing_is_not_green() -> None:
    """With mkfs gone from the host, a matrix was green, and its exit code 0; --resume ran nothing."""
    plan = SweepPlan(title="t", kernels=["k1"], plan=Plan(configurations=[], workloads=[]))
    (on_kernel,) = kernels("-")
    lacking = msgspec.structs.replace(on_kernel.answers[0], states=0, lacks=True)
    for left_out in (lacking, msgspec.structs.replace(lacking, lacks=False)):
        of = msgspec.structs.replace(on_kernel, answers=(left_out,))
        sweep = Sweep(plan, (of,), Path("/s"))
        assert not sweep.decided
        assert of.decided is not left_out.lacks
        assert '<header class="unknown">' in page_of(sweep).html()


@pytest.mark.parametrize("required", [True, False])
def test_a_mode_that_was_named_and_cannot_be_run_is_no_pass(*, required: bool) -> None:
    """Of two modes one was kept and the other had no mkfs: the matrix was green."""
    (kept,) = kernels(".")
    lacking = msgspec.structs.replace(on("k1", "-").answers[0], workload="other", states=0, lacks=True)
    both = msgspec.structs.replace(kept, answers=(*kept.answers, lacking))
    asked = Plan(configurations=[], workloads=[], require_all=required)
    sweep = Sweep(SweepPlan(title="t", kernels=["k1"], plan=asked), (both,), Path("/s"))
    assert sweep.decided is not required
    assert page_of(sweep).kind == ("unknown" if required else "pass")


def test_a_history_becomes_the_strip_of_its_finding_and_a_matrix_does_not() -> None:
    plan = SweepPlan(
        title="t",
        kernels=[],
        plan=Plan(configurations=[], workloads=[]),
        oracle="mountable",
        of_run="/runs/r",
        finding="0123456789ab",
    )
    strip = strip_of(Sweep(plan, kernels(".+!")))
    assert strip is not None
    assert [(c.kernel, c.verdict.value, c.words) for c in strip.cells] == [
        ("k1.9", "pass", "91 kept"),
        ("k2.9", "fail", "3 of 91 broken"),
        ("k3", "not-run", "not run"),
    ]
    assert strip.story == "came after k1.9, first seen in k2.9; still there in k2.9"
    assert strip.cells[2].why == "the archive does not have the whole kernel"
    assert strip_of(Sweep(SweepPlan(title="t", kernels=[], plan=plan.plan), kernels(".+"))) is None


@pytest.mark.parametrize(
    ("letters", "told"),
    [
        (".+", "2 cases on 2 kernels: 1 broke a promise on some kernels only; 1 kept every promise on both"),
        (
            "++?",
            "1 broke a promise where decided; 1 kept every promise where decided; 1 of them not decided on",
        ),
        ("?-", "1 without an answer; 1 kept every promise on both"),
        ("+!", "2 cases on 1 kernel: 1 broke a promise; 1 kept every promise; k2 was not run"),
    ],
)
def test_a_matrix_says_how_many_cases_broke_where(letters: str, told: str) -> None:
    other = Answer("xfs/default", "append-fsync", CaseVerdict.PASS, 5)
    both = tuple(
        k if k.failed else msgspec.structs.replace(k, answers=(*k.answers, other)) for k in kernels(letters)
    )
    plan = SweepPlan(title="t", kernels=[], plan=Plan(configurations=[], workloads=[]))
    assert told in headline(Sweep(plan, both))


def matrix(*cases: tuple[str, CaseVerdict, CaseVerdict]) -> Sweep:
    """A matrix of two kernels, and what each workload showed on them."""
    seen = (Seen("fsck", "`f` is lost", f"{CASE}@41", 3),)
    both = [
        tuple(
            Answer(
                "ext4/ordered",
                name,
                v,
                5,
                findings=seen if v in (CaseVerdict.FAIL, CaseVerdict.XFAIL) else (),
            )
            for name, v in answers
        )
        for answers in ([(name, one) for name, one, _ in cases], [(name, two) for name, _, two in cases])
    ]
    on_both = tuple(OnKernel(item=f"k{n}", name=f"k{n}.9", run="r", answers=a) for n, a in enumerate(both, 1))
    plan = SweepPlan(title="t", kernels=[], plan=Plan(configurations=[], workloads=[]))
    return Sweep(plan, on_both, Path("/s"))


def test_the_page_begins_with_what_changed_and_folds_what_was_kept() -> None:
    """17 cases of 510 that changed were among hundreds of rows that said `kept`; what was found could only be
    seen by hovering, and there was no command.
    """
    kept, fail = CaseVerdict.PASS, CaseVerdict.FAIL
    sweep = matrix(*((f"w{n}", kept, kept) for n in range(13)), ("last", kept, fail))
    page = page_of(sweep).html()
    changed = page.index("1 case broke a promise on some kernels only")
    assert changed < page.index("ext4-ordered/last") < page.index("13 cases kept every promise on both")
    assert page.index('<details class="group">') < page.index("ext4-ordered/w0")
    assert "<code>f</code> is lost" in page
    assert f"reproduce: powercut repro {CASE}@41 --from /s/r" in page


KNOWN = Seen("durability", "f: missing", f"{CASE}@4", 3, known="xfs-sync-no-flush")
LOSS = Seen("durability", "f: missing", f"{CASE}@5", 3, loss="known loss of ext4/fast_commit")
NEW = Seen("size", "f: 0 bytes", f"{CASE}@6", 2)


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [
        ((KNOWN,), (KNOWN,), "durability: f: missing (k1.9 and k2.9; known: xfs-sync-no-flush)"),
        ((LOSS,), (LOSS,), "durability: f: missing (k1.9 and k2.9; known loss of ext4/fast_commit)"),
        ((NEW,), (NEW,), "size: f: 0 bytes (k1.9 and k2.9)"),
        ((KNOWN,), (KNOWN, NEW), "size: f: 0 bytes (k1.9 and k2.9)"),
        ((LOSS, NEW), (KNOWN,), "size: f: 0 bytes (k1.9 and k2.9)"),
    ],
)
def test_behind_what_was_found_stands_what_is_known_of_it(
    first: tuple[Seen, ...], last: tuple[Seen, ...], told: str
) -> None:
    """A matrix of ext4/nobarrier and F2FS told known losses, known bugs and new findings alike."""
    both = [
        msgspec.structs.replace(k, answers=(msgspec.structs.replace(k.answers[0], findings=found),))
        for k, found in zip(kernels("++"), (first, last), strict=True)
    ]
    plan = SweepPlan(title="t", kernels=["k1", "k2"], plan=Plan(configurations=[], workloads=[]))
    page = page_of(Sweep(plan, tuple(both))).text()
    assert f"   {told}\nreproduce: " in page
    on_kernel = "k1" if NEW in first and NEW not in last else "k2"
    assert re.search(rf"powercut repro \S+ --from \S*/runs/{on_kernel}$", page, re.MULTILINE)


def test_a_known_loss_of_a_run_is_one_of_a_sweep(tmp_path: Path) -> None:
    with demo_run(tmp_path) as store:
        (case,) = (c for c in summarise(store).cases if str(c.case) == "ext4-nobarrier/append-fsync")
    lost = [replace(f, expectation=None, loss="it sends no flush") for f in case.findings]
    assert [f.loss for f in answer_of(replace(case, findings=tuple(lost))).findings] == [
        "known loss of ext4/nobarrier"
    ]


@pytest.mark.parametrize(
    ("verdicts", "colour"),
    [
        ((CaseVerdict.PASS, CaseVerdict.PASS), "pass"),
        ((CaseVerdict.XFAIL, CaseVerdict.XFAIL), "pass"),
        ((CaseVerdict.FAIL, CaseVerdict.FAIL), "fail"),
        ((CaseVerdict.FAIL, CaseVerdict.UNKNOWN), "fail"),
        ((CaseVerdict.PASS, CaseVerdict.UNKNOWN), "unknown"),
    ],
)
def test_the_page_has_the_colour_of_the_worst_answer(
    verdicts: tuple[CaseVerdict, CaseVerdict], colour: str
) -> None:
    """A matrix in which a mode was broken on every kernel was green."""
    assert f'<header class="{colour}">' in page_of(matrix(("w", *verdicts))).html()


def test_a_kernel_that_was_interrupted_is_shown_as_not_finished() -> None:
    """Its column looked as if it had not been reached, or were undecided."""
    plan = SweepPlan(title="t", kernels=["k1", "k2"], plan=Plan(configurations=[], workloads=[]))
    first, second = kernels("+?")
    sweep = Sweep(plan, (first, msgspec.structs.replace(second, interrupted=True)), interrupted=True)
    text, page = page_of(sweep).text(), page_of(sweep).html()
    shown = [re.split(r"  +", line) for line in text.splitlines() if re.match(r"k\d\.", line)]
    assert [row[1] for row in shown] == ["3 of 91 broken", "not yet"]
    for there in (text, page):
        assert there.count("not finished") == 2, "in the notice, and of k2"
    assert "k2: release, QEMU; not finished (" in text


@pytest.mark.parametrize(
    ("status", "lacks"),
    [(CaseStatus.NOT_RUN, True), (CaseStatus.NOT_RECORDED, True), (CaseStatus.NOT_SUPPORTED, False)],
)
def test_only_what_the_file_system_does_not_have_is_no_question(status: CaseStatus, lacks: bool) -> None:
    case = CaseSummary(CaseInfo(CaseId("xfs", "default", "a")), status, "why", 0, Counts(), (), (), {})
    answer = answer_of(case)
    assert (answer.verdict, answer.reason, answer.lacks) == (CaseVerdict.NOT_RUN, "why", lacks)


def test_what_the_budget_left_out_of_cut_recoveries_makes_an_answer_one_in_part() -> None:
    """A deep verdict called a case whole of which 7,312 choices in recoveries were never looked at."""
    whole = Coverage(90, None, 0, 90)
    for left, in_part in ((7312, True), (0, False)):
        cut = NestedCrashes(1, 90, 0, Coverage(4000, 0, left, 910, "the budget of 1,000 states"))
        info = CaseInfo(CASE, coverage=whole, again=(cut,))
        done = CaseSummary(info, CaseStatus.DONE, "", 1.0, Counts(90, 90, 90, 0, 0, 90), (), (), {})
        assert answer_of(done).in_part is in_part


def test_an_answer_says_that_less_was_looked_at_than_was_asked() -> None:
    """A kernel that keeps no times turns legal states into those of the log's order."""
    no_times = Coverage(0, -1, 0, 0, "recorded without times")
    cut_short = Coverage(0, -1, 7, 9, "the budget of 9 states")
    for coverage, why in ((no_times, "recorded without times"), (cut_short, ""), (None, "")):
        info = CaseInfo(CASE, coverage=coverage)
        done = CaseSummary(info, CaseStatus.DONE, "", 1.0, Counts(90, 90, 90, 0, 0, 90), (), (), {})
        assert answer_of(done).in_order == why


def test_each_kernel_that_shows_a_finding_is_named_beside_it() -> None:
    """A history of which both kernels showed the finding named the last one alone."""
    plan = SweepPlan(title="t", kernels=["k1", "k2"], plan=Plan(configurations=[], workloads=[]))
    text = page_of(Sweep(plan, kernels("++"))).text()
    assert "k1.9 and k2.9" in text


def test_a_page_of_twice_as_many_cases_takes_twice_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell looked for its answer among all of them: 2,000 cases took minutes, after every kernel."""
    made, of = [0], Answer.case.fget  # type: ignore[attr-defined]  # mypy sees no property

    def counted(answer: Answer) -> CaseId:
        made[0] += 1
        case = of(answer)
        assert isinstance(case, CaseId)
        return case

    monkeypatch.setattr(Answer, "case", property(counted))

    def names_made(count: int) -> int:
        made[0] = 0
        page_of(matrix(*((f"w{n}", CaseVerdict.PASS, CaseVerdict.FAIL) for n in range(count))))
        return made[0]

    assert names_made(60) < 3 * names_made(30)


def test_an_answer_that_is_broken_and_not_all_decided_says_both() -> None:
    """`3 of 91 broken` stood for a case with expected findings and 40 undecided states, and nothing for what
    was seen where a reason stood.
    """
    seen = Seen("durability", "f: missing", f"{CASE}@4", 3, expected="it sends no flush")
    reason = "40 of 91 states could not be decided"
    open_ = Answer("ext4/fast_commit", "fio-randwrite", CaseVerdict.UNKNOWN, 91, 3, (seen,), reason)
    on_kernel = msgspec.structs.replace(on("k1", "+"), answers=(open_,))
    plan = SweepPlan(title="t", kernels=["k1"], plan=Plan(configurations=[], workloads=[]), finding="ab" * 6)
    strip = strip_of(Sweep(plan, (on_kernel,)))
    assert strip is not None
    (told,) = strip.cells
    assert told.words == "3 of 91 broken, expected; not all decided"
    assert told.why == f"durability: f: missing; {reason}"
