"""Known bugs in a run: in the store, in every report, and in the exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from harness.cli import why
from harness.errors import ExitCode, StoreError
from harness.expectations import Expectation, first_match, known_losses
from harness.faults.campaign import detection_of
from harness.filesystems.profiles import profiles
from harness.known.base import KnownBug, KnownBugs, Record, Severity, Sighting
from harness.known.words import details
from harness.model import CaseId, CrashState, Judgement, Violation
from harness.oracles import ORACLES
from harness.plan import Plan
from harness.report import words
from harness.report.changes import Side, changes, changes_json, changes_text
from harness.report.explanation import Explanation, write_explanation
from harness.report.html import report_html
from harness.report.junit import junit_xml
from harness.report.markdown import summary_markdown
from harness.report.results import results
from harness.report.text import summary_text
from harness.report.words import headline, known_lines, known_or_new, where
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, DrawnEntry, Finding, JudgedState, KernelInfo, Step
from harness.summary import exit_code, summarise
from harness.symptoms import Symptom
from harness.tests.cli.runner import powercut
from harness.tests.report.demo import demo_run
from harness.tests.store.samples import INFO
from harness.trust import Named


def bug(*symptoms: str) -> KnownBug:
    """A bug that shows so in the modes whose promises the demo run breaks."""
    return KnownBug(
        name="demo-bug",
        title="it forgets",
        record=Record(
            severity=Severity.LOSES_SYNCED,
            mechanism="m",
            first="5.0",
            workaround="be careful",
            shows=(Sighting(modes=("ext4/*",), oracles=(*ORACLES, "no-stale-data"), symptoms=symptoms),),
        ),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with demo_run(tmp_path) as run:
        yield run


def known_all(store: RunStore, *, new_only: bool = False) -> None:
    symptoms = {f.symptom.what.replace("[", "[[]") for f in store.findings()}
    store.set_known(KnownBugs(bug=(bug(*symptoms),), new_only=new_only))


def test_without_a_bug_that_agrees_every_finding_is_new(store: RunStore) -> None:
    summary = summarise(store)
    assert not any(f.known for f in summary.findings)
    assert "None of these findings is a known bug." in summary_text(summary, "RUN")
    assert "known bug" not in headline(summary)


def test_a_known_bug_is_named_wherever_the_finding_is(store: RunStore) -> None:
    known_all(store)
    summary = summarise(store)
    assert all(f.known for f in summary.unexpected)
    text = summary_text(summary, "RUN")
    assert "Each of these findings is a known bug: demo-bug." in text
    assert "known: demo-bug (loses data that was synced; seen from 5.0 on, not mended)" in text
    assert "compared: symptom, mode, kernel version; the cause was not" in text
    assert "workaround: be careful" in text
    assert ", a known bug: demo-bug" in headline(summary)
    assert "[known: demo-bug]" in junit_xml(summary, "RUN")
    assert "known: demo-bug (" in summary_markdown(summary, "RUN")
    assert "Known: demo-bug (" in report_html(summary, store, "RUN")
    (found, *_) = [f for case in results(summary, "RUN")["cases"] for f in case["findings"]]
    assert found["known"]["name"] == "demo-bug"
    assert found["known"]["compared"] == ["symptom", "mode", "kernel version"]


def test_a_known_bug_fails_the_run_unless_only_new_ones_count(store: RunStore) -> None:
    known_all(store)
    assert exit_code(summarise(store)) is ExitCode.INCONSISTENT
    known_all(store, new_only=True)
    summary = summarise(store)
    assert summary.findings
    assert not summary.unexpected
    assert exit_code(summary) is not ExitCode.INCONSISTENT
    assert "expected failures (known bugs): demo-bug: it forgets" in summary_text(summary, "RUN")


@pytest.mark.parametrize("other", ["No flush at all. None was sent.", ""])
def test_a_finding_without_the_cause_of_the_known_bug_is_new(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    """Where only new findings fail a run, a fault with the symptom of a known bug let it pass; so did one
    that `show` had looked at without being able to tell its cause.
    """
    found = {f.symptom.what.replace("[", "[[]") for f in store.findings()}
    known = bug(*found)
    (shows,) = known.record.shows
    shows = msgspec.structs.replace(shows, causes=("torn write",))
    known = msgspec.structs.replace(known, record=msgspec.structs.replace(known.record, shows=(shows,)))
    store.set_known(KnownBugs(bug=(known,), new_only=True))
    assert not summarise(store).unexpected
    causes = iter(["Torn write. A half.", other])

    def find(_: RunStore, finding: Finding, *__: object) -> tuple[Explanation, str]:
        cause = next(causes, "Torn write. A half.")
        return Explanation(finding.id, finding.summary, cause, {}, (), str(finding.crash_point)), ""

    monkeypatch.setattr(why, "find_out", find)
    first, second, *_ = why.first_of_each(store)
    assert why.explain_first(store, Named(), "auto")
    assert [f.id for f in summarise(store).unexpected] == [second.id]
    assert exit_code(summarise(store)) is ExitCode.INCONSISTENT
    assert f"{second.id} is new: it was not shown to have the cause of demo-bug" in capsys.readouterr().out
    (same,) = [f for f in store.findings() if f.id == first.id]
    assert same.known
    assert same.known.compared[-1] == "cause"
    assert "the cause was not" not in "".join(details(same.known))


def test_a_new_finding_beside_a_known_one_fails_the_run_that_counts_new_ones(store: RunStore) -> None:
    some = next(f for f in store.findings() if f.expectation is None)
    store.set_known(KnownBugs(bug=(bug(some.symptom.what),), new_only=True))
    known = {f.known is not None for f in store.findings() if f.known or f.expectation is None}
    if known == {True}:
        pytest.fail("the demo run shows one symptom only: this proves nothing")
    assert exit_code(summarise(store)) is ExitCode.INCONSISTENT


def test_a_promise_that_another_bug_breaks_is_new_beside_one_that_a_known_bug_breaks(tmp_path: Path) -> None:
    """One finding: what fdatasync promised is lost without a flush, a known bug; what a later fsync promised
    is lost although it did flush. Only the smallest state was looked at, so the run passed. An expected one
    beside a known bug does not excuse that bug: it was shown in the place of a promise that fails the run.
    """
    marks = {"create f": (0, 1), "write f 0 4096": (2, 3), "fdatasync f": (4, 6), "create g": (7, 8),
             "fsync f": (9, 12)}  # fmt: skip
    case = CaseId("gfs2", "default", "w")
    steps = tuple(Step(n, text, *at) for n, (text, at) in enumerate(marks.items()))
    drawn = tuple(DrawnEntry(n, "flush+fua" if n == 10 else "write", n * 8, 8) for n in range(14))

    def judged(state: str, number: int, operation: str) -> JudgedState:
        lost = f"f: zeros instead of data of operation 1, acknowledged by `{operation}` (operation {number})"
        broken = Violation("durability", "f", lost, "a", "b", "f: data of operation 1 lost")
        return JudgedState(CrashState.parse(state), state, Judgement((broken,)))

    def finding(name: str, *states: JudgedState, expected: tuple[Expectation, ...] = ()) -> Finding:
        kernel = KernelInfo("debian-6.12", "6.12.117-1", "6.12.117")
        with RunStore.create(tmp_path, name, replace(INFO, kernel=kernel)) as store:
            count = len(states)
            store.set_expectations(expected)
            store.add_case(CaseInfo(case, generated=count, distinct=count, steps=steps, timeline=drawn))
            store.put_judgements(case, states)
            store.set_case_status(case, CaseStatus.DONE)
            (found,) = store.findings()
        return found

    known, new = judged("@8", 2, "fdatasync f"), judged("@13", 4, "fsync f")
    alone = finding("alone", known)
    assert alone.known
    assert alone.known.bug.name == "gfs2-fdatasync-no-flush"
    both = finding("both", known, new)
    assert (both.known, str(both.state), both.states) == (None, "@13", 2)
    assert both.id == alone.id
    assert where(both) == "@13, one of 2 states that show it"
    lossy = Expectation("gfs2/default", "*", "durability", "by design", "e:1", (), lost_writes=True)
    known, lost = judged("@t8", 2, "fdatasync f"), judged("@t13-5", 4, "fsync f")
    assert finding("expected", lost, expected=(lossy,)).expectation
    excused = finding("excused", known, lost, expected=(lossy,))
    assert (str(excused.state), excused.expectation) == ("@t8", None)


def test_a_loss_by_lost_writes_is_none_where_the_same_promise_breaks_with_nothing_lost(
    tmp_path: Path,
) -> None:
    """`fsync does not wait for its node block` was said of what comes back though all of it was written: the
    finding is shown at the state before, in which everything is lost.
    """
    case = CaseId("f2fs", "posix", "w")
    texts = ("create f", "fsync f", "write f 0 4096", "truncate f 0", "fsync f")
    steps = tuple(Step(n, text, 4 * n, 4 * n + 3) for n, text in enumerate(texts))
    said = "f: data instead of zeros, acknowledged by `fsync f` (operation 4)"
    broken = Judgement((Violation("durability", "f", said, "a", "b", "f: zeroing lost"),))
    for number, (states, known) in enumerate([(("@t30=",), True), (("@t30=", "@t31"), False)]):
        kernel = KernelInfo("debian-6.12", "6.12.117-1", "6.12.117")
        with RunStore.create(tmp_path, f"run{number}", replace(INFO, kernel=kernel)) as run:
            run.add_case(CaseInfo(case, generated=len(states), distinct=len(states), steps=steps))
            run.put_judgements(case, [JudgedState(CrashState.parse(s), s, broken) for s in states])
            run.set_case_status(case, CaseStatus.DONE)
            (found,) = run.findings()
            line = first_match(known_losses(), case, found.symptom, found.state)
            run.set_expectations([line] if line else [])
            (expected,) = run.findings()
        assert (str(found.state), found.known) == ("@t30=", None)
        assert bool(found.loss) is known
        assert bool(expected.expectation) is known


def test_compare_names_known_bugs(store: RunStore) -> None:
    known_all(store)
    store.put_plan(Plan(configurations=["ext4"], workloads=["all"]))
    side = Side.of(store, "RUN")
    found = changes(side, side)
    assert any("(known: demo-bug (" in line for line in changes_text(found))
    assert {f["known"] for f in changes_json(found)["findings"] if not f["expected_reason"]} == {"demo-bug"}


def test_what_a_campaign_of_planted_faults_keeps_of_a_finding_has_its_bug(store: RunStore) -> None:
    known_all(store)
    assert {detection_of(f, 9).bug for f in store.findings() if not f.expectation} == {"demo-bug"}


def test_what_is_known_of_a_kernel_whose_version_nobody_knows_is_nothing(store: RunStore) -> None:
    known_all(store)
    store.update_info(replace(store.info, kernel=replace(store.info.kernel, release="", version="")))
    assert not any(f.known for f in store.findings())


def test_a_damaged_record_is_noticed(store: RunStore) -> None:
    known_all(store)
    with RunStore.open(store.path) as again:
        assert again.known() == store.known()
    with store._database.transaction() as db:  # as a bad sector would
        db.execute("UPDATE meta SET value = replace(value, 'demo-bug', 'other') WHERE key = 'known'")
    with pytest.raises(StoreError, match="a known bug is not what was written"):
        RunStore.open(store.path)


def test_a_record_whose_type_was_damaged_is_noticed(store: RunStore) -> None:
    """One byte of the database, and every command that opened the run ended in a TypeError."""
    known_all(store)
    with store._database.transaction() as db:
        db.execute("UPDATE meta SET value = CAST(value AS BLOB) WHERE key = 'known'")
    with pytest.raises(StoreError, match="the list of digests is not what was written"):
        RunStore.open(store.path)


def test_the_sentence_counts(store: RunStore) -> None:
    known_all(store)
    kernel = store.info.kernel
    found = summarise(store).unexpected
    mixed = [replace(found[0], known=None), *found[1:]]
    assert known_or_new(mixed, kernel).endswith("; 1 is new.")
    assert known_or_new([], kernel) == ""
    assert known_or_new([replace(found[0], known=None, oracle="program")], kernel) == "", "no bug of a kernel"
    own = replace(found[0], known=None, oracle="program")
    assert known_or_new([own, found[0]], kernel) == (
        "1 finding is of a program's own check. The other: this finding is a known bug: demo-bug."
    ), "each of these was said to be a known loss"
    assert known_or_new([replace(found[0], known=None)], kernel) == "This finding is no known bug."
    assert known_or_new(found[:1], kernel) == "This finding is a known bug: demo-bug."
    kernel = replace(kernel, release="", version="")
    assert "was not compared with known bugs" in known_or_new([replace(found[0], known=None)], kernel)
    assert json.dumps(results(summarise(store), "RUN"))


def test_what_a_mode_is_known_to_lose_is_not_called_new(store: RunStore) -> None:
    """79 findings "are new" stood above a run of `ext4/nobarrier`, which sends no flush."""
    store.set_expectations([])
    summary = summarise(store)
    lost = [f for f in summary.unexpected if f.case.configuration == "ext4/nobarrier"]
    assert [f.known or f.loss.partition(":")[0] for f in lost] == ["barrier=0 sends no cache flush"]
    assert exit_code(summary) is ExitCode.INCONSISTENT
    kernel = store.info.kernel
    said = known_or_new(lost, kernel)
    assert said.startswith("This finding is a known loss of ext4/nobarrier. ")
    assert "use another mode" in said and "--expect" in said
    told = known_or_new(summary.unexpected, kernel)
    assert told.startswith(f"Of {len(summary.unexpected)} findings, 1 is a known loss of ext4/nobarrier; ")
    assert "ext4/nobarrier broke promises (durability), known losses of such a mode" in headline(summary)
    one = "known loss of ext4/nobarrier: barrier=0 sends no cache flush"
    assert one in summary_text(summary, "RUN")
    assert one in summary_markdown(summary, "RUN")
    assert one in junit_xml(summary, "RUN")
    assert f"<b>{one[0].upper()}{one[1:]}" in report_html(summary, store, "RUN")
    assert results(summary, "RUN")["cases"]


@pytest.mark.parametrize(
    ("mode", "oracle", "what", "said", "line"),
    [
        ("jfs/default", "durability", "NAME: missing", "a known fault of some kernels in jfs/default", ""),
        ("vfat/default", "durability", "NAME: missing (sync)",
         "a known fault of some kernels in vfat/default", ""),
        ("xfs/wsync", "durability", "NAME: data of operation N lost (sync)",
         "a known fault of some kernels in xfs/wsync: xfs-sync-no-flush", "xfs-sync-no-flush (loses "),
        ("ext4/no-journal", "fsck", "fsck: Inode bitmap differences:  -N",
         "a known loss of ext4/no-journal", ""),
        ("ext4/performance", "durability", "NAME: missing", "a known loss of ext4/performance", ""),
    ],
)  # fmt: skip
def test_a_loss_is_the_modes_own_only_by_its_options(
    store: RunStore, mode: str, oracle: str, what: str, said: str, line: str
) -> None:
    """No kernel mends it, use another mode: so it was said of f2fs-fsync-first-node, with a workaround."""
    filesystem, _, of_it = mode.partition("/")
    case = CaseId(filesystem, of_it, "random-7")
    loss = first_match(known_losses(), case, Symptom(oracle, what))
    assert loss is not None
    found = replace(store.findings()[0], case=case, oracle=oracle, what=what, loss=loss.reason, known=None,
                    expectation=None, state=CrashState(9, (3,)))  # fmt: skip
    told = known_or_new([found], store.info.kernel)
    of_options = said.startswith("a known loss")
    assert told.startswith(f"This finding is {said}. ")
    assert ("no kernel mends it: use another mode" in told) is of_options
    assert ("another kernel may be without it" in told) is not of_options
    assert told.endswith("What a file for --expect names fails no run.")
    first, *more = known_lines(found)
    assert first == f"{said.removeprefix('a ').partition(':')[0]}: {loss.reason}"
    assert [text.startswith(line) for text in more] == [True] * bool(line)
    summary = summarise(store)
    broken = next(c for c in summary.cases if c.counts.failed)
    alone = replace(broken, info=replace(broken.info, case=case), findings=(found,))
    head = headline(replace(summary, cases=(alone,)))
    assert head.endswith(
        ", known losses of such a mode." if of_options else ", known faults of some kernels."
    )


def test_the_files_of_modes_are_read_once_for_all_known_losses(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read for each finding, three times and for each report: 9 ms each time."""
    store.set_expectations([])
    lost = next(f for f in store.findings() if f.loss)
    read = Mock(side_effect=profiles)
    monkeypatch.setattr(words, "profiles", read)
    words.usual_modes.cache_clear()
    assert [known_lines(lost)[0].partition(":")[0] for _ in range(3)] == ["known loss of ext4/nobarrier"] * 3
    assert known_or_new([lost] * 3, store.info.kernel)
    assert read.call_count == 1


def test_what_is_new_stands_before_what_is_known(store: RunStore) -> None:
    """A new finding stood behind 48 known losses of the case before."""
    store.set_expectations([])
    symptom = next(f for f in store.findings() if not f.loss).symptom.what.replace("[", "[[]")
    store.set_known(KnownBugs(bug=(bug(symptom),)))
    newness = [f.newness for f in summarise(store).unexpected]
    assert newness == sorted(newness)
    assert set(newness) == {0, 1, 2}


def test_show_and_triage_name_what_is_known(store: RunStore) -> None:
    """`triage` said "(new)" of what barrier=0 loses, and `show` said nothing of it."""
    store.set_expectations([])
    store.put_plan(Plan(configurations=["ext4/nobarrier"], workloads=["append-fsync"]))
    lost = next(f for f in store.findings() if f.loss)
    write_explanation(store.layout, Explanation(lost.id, "lost", "", {}, (), str(lost.crash_point)))
    assert "(a known loss)" in powercut("triage", store.path, "--no-shrink").output
    told = " ".join(powercut("show", lost.id, "--from", store.path).output.split())
    assert told.startswith(f"known loss of ext4/nobarrier: {lost.loss}")


def test_a_known_bug_or_an_expected_failure_is_no_known_loss_besides(store: RunStore) -> None:
    assert not any(f.loss for f in store.findings() if f.expectation)
    known_all(store)
    assert not any(f.loss for f in store.findings() if f.known)


def test_a_report_of_what_is_new_keeps_the_known_bugs_of_the_run(store: RunStore) -> None:
    """`powercut report RUN --new-only` forgot the bugs of --known FILE, and told of them as new."""
    known_all(store)
    powercut("report", store.path, "--new-only")
    assert [b.name for b in store.known().bug] == ["demo-bug"]
    assert store.known().new_only
    assert not summarise(store).unexpected


def test_a_report_with_more_known_bugs_adds_to_those_of_the_run(store: RunStore, tmp_path: Path) -> None:
    """`powercut report RUN --known FILE` of a run with --new-only took both from it: known bugs failed it."""
    known_all(store, new_only=True)
    (more := tmp_path / "more.toml").write_text(
        '[[bug]]\nname = "other"\ntitle = "other: it forgets"\n[bug.record]\nseverity = "loses-synced"\n'
        'mechanism = "m"\nfirst = "5.0"\n'
    )
    powercut("report", store.path, "--known", more)
    assert [b.name for b in store.known().bug] == ["demo-bug", "other"]
    assert store.known().new_only
    assert not summarise(store).unexpected


@pytest.mark.parametrize(
    ("release", "package", "known"),
    [
        ("6.1.0-50-amd64", "6.1.176-1", False),
        ("6.1.0-20-amd64", "6.1.85-1", True),
        ("6.1.176", "", False),
        ("6.1.85+deb12-amd64", "6.1.85-1~deb12u1", True),
        ("", "6.1.85-1", True),
    ],
)
def test_the_version_of_a_debian_kernel_is_that_of_its_package(
    release: str, package: str, known: bool, store: RunStore
) -> None:
    """Debian calls each 6.1 `6.1.0-N`: a bug that was mended in 6.1.100 was known in all of them."""
    symptoms = {f.symptom.what.replace("[", "[[]") for f in store.findings()}
    of = bug(*symptoms)
    mended = msgspec.structs.replace(of.record, mended=("6.1.100",))
    store.set_known(KnownBugs(bug=(msgspec.structs.replace(of, record=mended),)))
    kernel = replace(store.info.kernel, release=release, version=package)
    store.update_info(replace(store.info, kernel=kernel))
    assert any(f.known for f in store.findings()) is known
