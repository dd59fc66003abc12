"""What is claimed of a program, and of which programs nothing is."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases.checks import MUST_PASS_EMPTY
from harness.errors import NotSupported
from harness.model import Check, CheckResult, CrashState, Verdict
from harness.plan import Budget
from harness.ruled.judging import (
    Judging,
    NotJudged,
    RunCheck,
    Told,
    _no_remedy,
    answer,
    followed,
    judgement_of,
    state_of,
    unsynced_lines,
)
from harness.ruled.work import promised, remedy_lines
from harness.rules.answers import Answers, Tried
from harness.rules.calls import STORE, Left, Notes, UnreadableNotes, drawn_names, notes_of, told
from harness.rules.micro import Sort, effect_of
from harness.rules.rules import Rules
from harness.rules.search import Kind, Search
from harness.rules.states import Legal, Partial, Tear
from harness.rules.trees import Files, Maker, contents
from harness.rules.vulnerabilities import Vulnerability
from harness.tests.rules.programs import OWNER, Calls, rules
from harness.tests.rules.test_states import programs

RULES: Rules = rules()


def of_one_file(*, synced: bool) -> Notes:
    calls = Calls().create("f").write("f", b"text")
    if synced:
        calls.fsync("f").fsync(".")
    return replace(calls.ack("done").notes([Left("f", "file", OWNER, b"text")]), exit_code=0)


def test_what_was_promised_is_what_was_acknowledged() -> None:
    """It was the summary of the workload, such as `nothing is synced`."""
    notes = replace(Calls().create("f").ack("one").write("f", b"text").ack("two").notes([]), exit_code=0)
    assert (
        promised(notes, 2)
        == "by the acknowledgement `two`, after 2 calls, and by 1 acknowledgement before it"
    )
    assert promised(notes, 1) == "by the acknowledgement `one`, after 1 call"
    assert promised(notes, 0).startswith("nothing had been acknowledged")
    assert promised(notes, 0, 2) == (
        "the check refuses what is there even if nothing was acknowledged; `two` may have been"
    )


@pytest.mark.parametrize(
    ("left", "says"),
    [
        ([], "f is not what the program left there; the last call about it was fsync"),
        ([Left("f", "file", OWNER, b"tent")], "f has other contents, from byte 2 on"),
        ([Left("f", "file", OWNER, b"tex")], "f has other contents: 4 bytes, and it had 3"),
        (
            [Left("f", "file", (0o600, 0, 0), b"text")],
            "f has other permissions or another owner: mode 0644, user 0, group 0, and it was mode 0600",
        ),
        (
            [Left("f", "file", OWNER, b"text"), Left("s", "file", OWNER)],
            "s is not there; no call was about it",
        ),
        ([Left("f", "directory", OWNER)], "f is a file, and was a directory"),
    ],
)
def test_a_program_whose_calls_do_not_give_what_it_left_is_not_judged(left: list[Left], says: str) -> None:
    """A store into a mapping that nobody saw would have been taken for something that was lost."""
    with pytest.raises(NotJudged, match=says):
        followed(replace(of_one_file(synced=True), left=tuple(left)), RULES)


@pytest.mark.parametrize("owner", [(0o755, 0, 0), (0o777, 5, 0)])
def test_permissions_that_no_call_gave_are_told(owner: tuple[int, int, int]) -> None:
    calls = Calls().create("f").chmod("f", 0o6777).write("f", b"text").fsync("f").fsync(".").ack("done")
    notes = replace(calls.notes([Left("f", "file", owner, b"text")]), exit_code=0)
    with pytest.raises(NotJudged, match="mode 6777, user 0, group 0, and it was mode 0"):
        followed(notes, RULES)


def test_extended_attributes_that_no_call_gave_are_told() -> None:
    """The law held of names, permissions and contents alone."""
    calls = Calls().create("f").xattr("f", "user.a", b"1").xattr("f", "user.b", b"2").fsync("f").fsync(".")
    left = Left("f", "file", OWNER, xattrs=(("user.a", b"1"), ("user.b", b"2")))
    notes = replace(calls.ack("done").notes([left]), exit_code=0)
    followed(notes, RULES)
    for xattrs, said in (((*left.xattrs[:1], ("user.b", b"3")), "user.b"), (left.xattrs[1:], "user.a")):
        with pytest.raises(NotJudged, match=f"f has other extended attributes: {said};"):
            followed(replace(notes, left=(replace(left, xattrs=xattrs),)), RULES)


@pytest.mark.parametrize("mode", [0o777, 0o2777])
def test_set_id_bits_that_no_noted_call_cleared_are_told_as_that(mode: int) -> None:
    """A write that fails, as of memory that cannot be read, clears them. "It has other permissions" led
    nobody there.
    """
    calls = Calls().create("f").fsync("f").fsync(".").chmod("f", 0o6777).ack("done")
    notes = replace(calls.notes([Left("f", "file", (mode, 0, 0))]), exit_code=0)
    says = f"f was to have mode 6777, and had {mode:04o}: a write or truncation that fails may clear"
    with pytest.raises(NotJudged, match=says):
        followed(notes, RULES)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"unseen": ("io_uring_setup()",)}, "io_uring_setup"),
        ({"cut": True}, "20,000 calls"),
        ({"exit_code": 3}, "ended with 3: it printed only what was acknowledged, last: done$"),
        ({"exit_code": 3, "output": "no space\n"}, "ended with 3: no space$"),
        ({"exit_code": 134, "acks": ()}, r"ended with 134 \(SIGABRT\): it printed nothing$"),
        ({"exit_code": None}, "did not end in time"),
        ({"acks": ()}, "acknowledged nothing"),
    ],
)
def test_nothing_is_claimed_of_a_program_that_was_not_seen_whole(
    changed: dict[str, object], says: str
) -> None:
    """Without its writes by io_uring a program would have passed, since nothing of it could be lost. One that
    printed acknowledgements alone "printed nothing".
    """
    with pytest.raises(NotJudged) as said:
        followed(replace(of_one_file(synced=True), **changed), RULES)  # type: ignore[arg-type]  # its fields
    assert re.search(says, said.value.what)
    assert said.value.next_step, "what to do about it was not said"


def test_a_program_that_failed_as_a_call_was_refused_is_not_said_to_be_at_fault() -> None:
    """ "Correct the program", of a fallocate(2) that ext4, XFS and btrfs have, and tmpfs has not."""
    zeroed = ("fallocate(f, zero-range, 4096 at 0)",)
    with pytest.raises(NotJudged) as said:
        followed(replace(of_one_file(synced=True), exit_code=3, refused=zeroed * 2), RULES)
    assert said.value.next_step.count(zeroed[0]) == 1
    assert "correct the program" not in said.value.next_step
    assert followed(replace(of_one_file(synced=True), refused=zeroed), RULES), "it went on without"


def test_a_program_that_cannot_do_its_work_here_is_left_out() -> None:
    """Exit code 77 was undecided under rules, and not run on a real file system."""
    with pytest.raises(NotSupported, match="lacks what the program needs: no RWF_ATOMIC"):
        followed(replace(of_one_file(synced=True), exit_code=77, output="no RWF_ATOMIC\n"), RULES)


def judging(notes: Notes) -> Judging:
    def says(files: Files, acks: int) -> Tried:
        held = {p: contents(notes, e.size, e.pieces) for p, e in files.items()}
        right = not acks or held.get("f") == b"text"
        return Tried(CheckResult(0, 0 if right else 1, "" if right else "f is gone", acks))

    return Judging(notes, RULES, lambda trees: [says(*tree) for tree in trees])


def test_of_stores_an_msync_between_them_is_guessed() -> None:
    """ "Another order of these calls, or one rename that brings both": the program has the right order, and
    an msync between the two mends it.
    """
    calls = Calls().create("m").size("m", 8192).fsync("m").fsync(".").ack("init")
    calls.write("m", b"1", 0).write("m", b"p", 4096)
    calls.made[-2:] = [replace(call, text=STORE) for call in calls.made[-2:]]
    left = Left("m", "file", OWNER, b"1" + bytes(4095) + b"p" + bytes(4095))
    notes = replace(calls.msync("m", 0, 8192).ack("page").notes([left]), exit_code=0)

    def says(files: Files, acks: int) -> Tried:
        held = contents(notes, files["m"].size, files["m"].pieces) if "m" in files else b""
        right = not acks or held[:1] != b"1" or held[4096:4097] == b"p"
        return Tried(CheckResult(0, 0 if right else 1, "" if right else "page bad", acks))

    made = Judging(notes, RULES, lambda trees: [says(*tree) for tree in trees])
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    (told,) = answer(made, failed).told
    assert told.remedy.endswith(
        "A guess: an msync of `m`, 1 at 4096, before the store into `m` at 0: nobody saw the order of these "
        "stores"
    )


def test_an_unsynced_file_is_told_with_the_smallest_set_of_syncs() -> None:
    """One fsync of the file leaves its name behind, and was printed as the remedy."""
    made = judging(of_one_file(synced=False))
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    found = answer(made, failed)
    assert not found.rest
    assert "fsync of the directory `.`" in found.together
    assert "fsync of `f`" in found.together
    assert found.together.endswith("none of 5 states fails")
    assert unsynced_lines(made.effect)[0] == "acknowledged `done`: f: bytes 0 to 4, its size, its name f"


def test_what_is_unsynced_at_acknowledgements_in_a_row_is_told_once() -> None:
    """`try` of a store printed the same name behind each key."""
    calls = Calls().create("f").ack("0").ack("1").fsync(".").ack("2").write("f", b"x").ack("3")
    assert unsynced_lines(effect_of(calls.notes(), RULES)) == [
        "acknowledged `0` to `1`: f: its name f",
        "acknowledged `2`: nothing",
        "acknowledged `3`: f: bytes 0 to 1, its size",
        "at the end: f: bytes 0 to 1, its size",
    ]


def test_files_of_which_the_same_is_unsynced_as_before_are_counted() -> None:
    """Of a repository, each acknowledgement had a line of 900 characters, in whose end was what was new."""
    calls = Calls()
    for name in "abc":
        calls.create(name)
    told = [f"{name}: its name {name}" for name in "abc"]
    assert unsynced_lines(effect_of(calls.ack("1").create("d").ack("2").notes(), RULES)) == [
        f"acknowledged `1`: {'; '.join(told)}",
        "acknowledged `2`: the same of 3 files as before; d: its name d",
        "at the end: the same of 4 files as before",
    ]


def test_files_of_one_name_of_which_the_same_is_unsynced_are_told_once() -> None:
    """A program that wrote and removed `job` twenty times had a line of 1,316 characters."""
    calls = Calls()
    for turn in range(3):
        calls.create("job").write("job", b"x" * (1 + turn // 2)).unlink("job")
    (*_, end) = unsynced_lines(effect_of(calls.notes(), RULES))
    assert end == (
        "at the end: job (2 files): bytes 0 to 1, its size, its name job, that job was removed; "
        "job: bytes 0 to 2, its size, its name job, that job was removed"
    )


def test_one_remedy_is_told_once() -> None:
    """The control line said the same fsync twice: as what was tried, and "for all that was found"."""
    made = judging(of_one_file(synced=False))
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    found = answer(made, failed)
    told = found.told[0]
    together = f"{told.remedy}. With it, none of 5 states fails"
    assert remedy_lines(told, together) == {"missing": together}
    assert remedy_lines(told, "") == {"missing": told.remedy}
    assert remedy_lines(told, "fsync of `g`. With it, ...") == {
        "missing": told.remedy,
        "control": "for all findings of the program together: fsync of `g`. With it, ...",
    }


def test_a_remedy_has_no_sync_that_is_not_needed() -> None:
    """ "And after each of 4 more like it" began with a call that was synced already."""
    calls = Calls().create("f").write("f", b"0").fsync("f").create("s").write("s", b"0").fsync("s").fsync(".")
    calls.ack("0").write("f", b"1").write("s", b"1").fsync("s").fsync("f").ack("1")
    left = [Left("f", "file", OWNER, b"1"), Left("s", "file", OWNER, b"1")]
    notes = replace(calls.notes(left), exit_code=0)

    def says(files: Files, acks: int) -> Tried:
        held = {p: contents(notes, e.size, e.pieces) for p, e in files.items()}
        wrong = held.get("s") == b"1" and held.get("f") != b"1"
        return Tried(CheckResult(0, int(wrong), "f is old" if wrong else "", acks))

    made = Judging(notes, RULES, lambda trees: [says(*tree) for tree in trees])
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    remedies = [told.remedy for told in answer(made, failed).told]
    assert remedies == ["fsync of `f` after call 7, `write(f, 1 at 0)`"]


def many_writes() -> Notes:
    """Twenty writes that no sync covers: more states than one look at the budget."""
    calls = Calls().create("f").sync()
    for number in range(20):
        calls.write("f", b"%d" % (number % 10) * 5000, number * 5000)
    text = b"".join(b"%d" % (number % 10) * 5000 for number in range(20))
    return replace(calls.ack("done").notes([Left("f", "file", OWNER, text)]), exit_code=0)


def test_a_spent_budget_ends_the_visits_behind_the_ends_of_each_stretch() -> None:
    """`--budget 400,2m` was printed, and a slow check went on for as long as it took."""
    made = Judging(many_writes(), RULES, always_yes, budget=Budget(visits=1))
    listed = made.legal.listed()
    visited = [state for state, _ in made.visited(listed)]
    assert len(listed.ends) == len(visited) < len(list(listed))
    assert not made.all_visited
    assert visited == list(listed)[: len(visited)]
    first = {s.persisted for s in listed.ends}
    ends = [stretch.asked for stretch in made.legal.stretches]
    assert {*ends, *(stretch.durable for stretch in made.legal.stretches)} <= first
    whole = Judging(many_writes(), RULES, always_yes)
    assert len(list(whole.visited(listed))) == len(list(listed))
    assert whole.all_visited


def test_the_time_of_the_run_ends_the_visits_anywhere() -> None:
    """`--minutes 10` was printed, and the ends of a server's stretches alone took longer."""
    made = Judging(many_writes(), RULES, always_yes, deadline=0.0)
    assert not list(made.visited(made.legal.listed()))
    assert not made.all_visited
    assert made.is_late


@pytest.mark.parametrize(
    ("deadline", "says"),
    [(None, "for it was up (--budget gives more)"), (0.0, "of the run was up (--resume")],
)
def test_whose_time_left_a_remedy_open_is_told(deadline: float | None, says: str) -> None:
    """A run of two minutes said that a budget gives more, which had been left as it is."""
    made = Judging(many_writes(), RULES, always_yes, deadline=deadline)
    untried = Kind(Vulnerability(Partial(0), 0, 0, 0, 0), "", is_tried=False)
    assert says in _no_remedy(Search(made.legal, made), [untried])


def test_a_slow_check_is_asked_about_few_states_before_the_next_look_at_the_time() -> None:
    """64 checks of a second each came between two looks at a budget of five."""
    made = Judging(many_writes(), RULES, always_yes)
    made.asked, made._running_s = 10, 10.0
    assert made.at_once == 64, "nobody waits"
    made.budget = Budget(seconds=5)
    assert made.at_once == 2
    made._running_s = 0.01
    assert made.at_once == 64
    made.budget, made.deadline, made._running_s = Budget(), 1e9, 1000.0
    assert made.at_once == 1


def always_yes(trees: Sequence[tuple[Files, int]]) -> list[Tried]:
    return [Tried(CheckResult(0, 0, "", acks)) for _, acks in trees]


def test_what_was_not_tried_is_not_said_to_help_nothing() -> None:
    """ "Nothing that was tried helps: no fsync prevents this" is no answer where the time was up."""
    calls = Calls().create("f").sync().write("f", b"a" * 8192).fsync("f").ack("done")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"a" * 8192)]), exit_code=0)

    def whole(trees: Sequence[tuple[Files, int]]) -> list[Tried]:
        """All or nothing, which no sync can give."""
        held = [sum(n for e in files.values() for *_, n in e.pieces) for files, _ in trees]
        codes = (int(n not in (0, 8192)) for n in held)
        return [Tried(CheckResult(0, c, "", acks)) for c, (_, acks) in zip(codes, trees, strict=True)]

    made = Judging(notes, RULES, whole)
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    says = {}
    for seconds in (None, 0):
        made.budget = Budget(seconds=seconds)
        found = answer(made, failed)
        says[seconds] = [*(told.remedy for told in found.told), found.together, found.why_not]
    assert "nothing that was tried helps" in says[None][0]
    assert "synced, and then a rename" in says[None][0]
    twice = [remedy_lines(told, answer(made, failed).together) for told in answer(made, failed).told]
    assert all(list(lines) == ["missing"] for lines in twice)
    assert all("time" in said for said in says[0])


def test_a_cause_is_that_of_what_the_check_says() -> None:
    """ "the data of write(index.tmp) must persist ...: there is no index": the words were of a state that had
    lost more, and so `--baseline` excused what the base had never shown.
    """
    calls = Calls().create("tmp").write("tmp", b"new").rename("tmp", "index").ack("done")
    notes = replace(calls.notes([Left("index", "file", OWNER, b"new")]), exit_code=0)

    def says(files: Files, acks: int) -> str:
        if not acks or (
            "index" in files and contents(notes, files["index"].size, files["index"].pieces) == b"new"
        ):
            return ""
        return "the index is empty" if "index" in files else "there is no index"

    def check(trees: Sequence[tuple[Files, int]]) -> list[Tried]:
        told = [says(*tree) for tree in trees]
        return [
            Tried(CheckResult(0, int(bool(t)), t, acks)) for t, (_, acks) in zip(told, trees, strict=True)
        ]

    made = Judging(notes, RULES, check)
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    found = answer(made, failed)
    assert not found.rest
    said = {t.headline: {made.said(s, made.legal.acks(s)) for s in t.states} for t in found.told}
    assert said == {
        "the data of `write(tmp, 3 at 0)` must persist before `done` is acknowledged": {"the index is empty"},
        "the change of names by `rename(tmp, index)` must persist before `done` is acknowledged": {
            "there is no index"
        },
    }


def test_a_synced_file_has_nothing_to_tell() -> None:
    """The answer for a right program is empty."""
    made = judging(of_one_file(synced=True))
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    assert (failed, answer(made, failed).told) == ([], ())
    assert unsynced_lines(made.effect)[-1] == "at the end: nothing"


def test_a_calls_place_stands_behind_it() -> None:
    """A call was told by its file and size alone, and its author had to look for it."""
    plain = of_one_file(synced=False)
    calls = tuple(
        replace(c, place=f"store.c:{n}") if c.word == "write" else c for n, c in enumerate(plain.calls)
    )
    told: list[Told] = []
    for notes in (plain, replace(plain, calls=calls)):
        made = judging(notes)
        failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
        told += [t for t in answer(made, failed).told if "write(" in t.headline]
    without, placed = told
    assert without.headline == placed.headline, "a finding keeps its number when lines move"
    assert (without.places, placed.places) == ("", "`write(f, 4 at 0)` at store.c:1")
    assert placed.calls == without.calls.replace("write(f, 4 at 0)", "write(f, 4 at 0) (store.c:1)")
    assert placed.remedy == without.remedy.replace("`write(f, 4 at 0)`", "`write(f, 4 at 0)` (store.c:1)")
    assert "(store.c:1)" in placed.remedy
    no = CheckResult(0, 1, "lost")
    (violation,) = judgement_of(no, Check(0, ("c",), ("*",)), placed.headline, placed.places).violations
    assert violation.summary == f"{placed.headline} ({placed.places}): lost"
    assert violation.signature == without.headline


def test_where_a_call_was_made_is_read_from_its_notes() -> None:
    start = ["start", "0", "0", "1", "0", "0", "0", "493", "0", "0", "", "", "", "", ""]
    call = [
        "fsync",
        "7",
        "0",
        "2",
        "0",
        "0",
        "0",
        "420",
        "0",
        "0",
        "",
        "f",
        "",
        "fsync(f)",
        r"a\tb.c:3 in \xc3\xa4",
    ]
    (found,) = notes_of(noted([start, call])).calls
    assert (found.text, found.place) == ("fsync(f)", "a\tb.c:3 in ä")


def test_a_check_that_refuses_an_empty_directory_is_no_judge() -> None:
    """All states of a right program would have failed."""
    with pytest.raises(NotJudged, match=f"(?s)an empty directory.*next: {MUST_PASS_EMPTY}"):
        Judging(
            of_one_file(synced=True),
            RULES,
            lambda trees: [Tried(CheckResult(0, 0 if acks else 1, "")) for _, acks in trees],
        )


def test_a_check_that_says_yes_to_nothing_at_all_is_told() -> None:
    assert Judging(of_one_file(synced=True), RULES, always_yes).doubt
    assert not judging(of_one_file(synced=True)).doubt


def test_only_exit_code_1_says_no() -> None:
    """A check that broke down had judged nothing."""
    check = Check(0, ("check",), ("*",), application=True)
    verdicts = [judgement_of(CheckResult(0, code, "x"), check, "").verdict for code in (0, 1, 2, None)]
    assert verdicts == [Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN, Verdict.UNKNOWN]


@pytest.mark.parametrize("raw", [b"", b"\xff\xff\xff\xff", b"\x01\0\0\0x", b"\x04\0\0\0\x80\x81\x82\x83"])
def test_what_are_no_notes_is_refused(raw: bytes) -> None:
    """A guest under test may send anything."""
    with pytest.raises(UnreadableNotes):
        notes_of(raw)


@pytest.mark.parametrize("name", ["..", ".", "", "d/..", "a\0b"])
def test_a_name_that_no_file_has_is_not_followed(name: str) -> None:
    """`repro --export` makes files of these names on the host."""
    calls = Calls().mkdir("d")
    notes = replace(calls.create(name).ack("done").notes([]), exit_code=0)
    with pytest.raises(NotJudged, match="no name of a file"):
        followed(notes, RULES)


def test_a_file_too_large_to_make_is_not_followed() -> None:
    """A sparse file of a terabyte is one call; its contents would have been made in memory, in each state."""
    notes = replace(Calls().create("f").size("f", 1 << 40).ack("done").notes([]), exit_code=0)
    with pytest.raises(NotJudged, match="1,099,511,627,776 bytes"):
        followed(notes, RULES)


@pytest.mark.parametrize("field", ["2", "3", "4", "5", "6"])
def test_a_number_of_a_call_is_not_negative(field: str) -> None:
    """The number of a field of a line: the call's own, inode, offset, length, place."""
    fields = ["size", "7", "0", "2", "0", "0", "0", "420", "0", "0", "", "f", "", "ftruncate", ""]
    start = ["start", "0", "0", "1", "0", "0", "0", "493", "0", "0", "", "", "", "", ""]
    assert notes_of(noted([start, fields])).calls
    fields[int(field)] = "-1"
    with pytest.raises(UnreadableNotes, match="negative"):
        notes_of(noted([start, fields]))


def test_a_file_that_has_the_inode_of_a_removed_one_is_another_file() -> None:
    """ext4 gives the inode to the next file: what the first had written seemed to be in the second."""

    def line(word: str, *, path: str = "", length: str = "0") -> list[str]:
        return [word, "7", "0", "12", "0", length, "0", "420", "0", "0", "", path, "", word, ""]

    start = ["start", "0", "0", "1", "0", "0", "0", "493", "0", "0", "", "", "", "", ""]
    first = [line("create", path="f"), line("size", length="5"), line("unlink", path="f")]
    again = [line("create", path="g"), line("size", length="7")]
    notes = notes_of(noted([start, *first, *again]))
    effect = effect_of(notes, RULES)
    files = Maker(effect).files(Partial(effect.every))
    assert {path: entry.size for path, entry in files.items()} == {"g": 7}
    first_file, second_file = notes.calls[0].inode, notes.calls[3].inode
    assert [call.inode for call in notes.calls] == [first_file] * 3 + [second_file] * 2
    assert first_file != second_file


def noted(lines: list[list[str]]) -> bytes:
    """As a guest sends them."""
    told = "".join("\t".join(fields) + "\n" for fields in lines).encode()
    return struct.pack("<I", len(told)) + told


def reading(notes: Notes) -> RunCheck:
    """A check that opens one file after the other, and goes on only as what it has read lets it."""

    def says(files: Files, acks: int) -> Tried:
        opened: list[str] = []
        code = sum(e.size for e in files.values())
        for path in sorted(p for p, e in files.items() if e.kind == "file"):
            opened.append(path)
            held = contents(notes, files[path].size, files[path].pieces)
            code = (code + sum(held) + acks) % 3
            if code == 0:
                break
        return Tried(CheckResult(0, code, " ".join(opened), acks), frozenset(opened))

    return lambda trees: [says(*tree) for tree in trees]


@settings(max_examples=15)
@given(notes=programs(), data=st.data())
def test_folding_by_what_the_check_opened_changes_no_answer(notes: Notes, data: st.DataObject) -> None:
    """A tree in which a file differs that the check reads would have got the answer of another tree."""
    effect = effect_of(notes, RULES)
    legal, maker = Legal(effect), Maker(effect)
    states = [(s, data.draw(st.integers(0, 2))) for s in tuple(legal.listed())[:80]]
    files = [(maker.files(s), acks) for s, acks in states]
    run, known = reading(notes), Answers()
    for tree in files:
        (direct,) = run([tree])
        if (found := known.find(*tree)) is None:
            known.add(*tree, direct)
        else:
            assert found == direct.result


def test_a_file_that_the_check_does_not_open_asks_for_no_other_check() -> None:
    """Each loss in a file that nobody reads was a check of its own."""
    calls = Calls().create("f").create("unread").sync().write("f", b"text").fsync("f").ack("done")
    for number in range(4):
        calls.write("unread", b"%d" % number * 9)
    left = [Left("f", "file", OWNER, b"text"), Left("unread", "file", OWNER, b"3" * 9)]
    notes = replace(calls.notes(left), exit_code=0)

    def run(trees: Sequence[tuple[Files, int]]) -> list[Tried]:
        return [Tried(CheckResult(0, 0, "", acks), frozenset({"f"})) for _, acks in trees]

    asked = {}
    for fold in (False, True):
        made = Judging(notes, RULES, run, fold=fold)
        made.ask((s, 1) for s in made.legal.listed())
        asked[fold] = made.asked
    assert asked[True] < asked[False]


def told_of(notes: Notes) -> list[Told]:
    made = judging(notes)
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    return list(answer(made, failed).told)


def test_a_sync_behind_the_acknowledgement_is_told() -> None:
    """`missing: fsync of f`, of a program that calls it, a line later."""
    calls = Calls().create("f").fsync(".").write("f", b"text").ack("done").fsync("f")
    notes = replace(calls.notes([Left("f", "file", OWNER, b"text")]), exit_code=0)
    (told,) = told_of(notes)
    assert told.too_late == "Call 3, `fsync(f)`, comes behind that acknowledgement: acknowledge after it"
    assert remedy_lines(told, "")["missing"].endswith(f". {told.too_late}")
    assert not any(told.too_late for told in told_of(of_one_file(synced=False)))
    half = Calls().create("f").write("f", b"text").ack("done").fsync("f")
    notes = replace(half.notes([Left("f", "file", OWNER, b"text")]), exit_code=0)
    (directory, *_) = [told for told in told_of(notes) if "directory" in told.remedy]
    assert not directory.too_late, "one of two that are needed is no remedy"


@pytest.mark.parametrize(("offset", "told"), [(0, ""), (2, ""), (4096, "Call 5, `fsync(f)`")])
def test_the_sync_of_the_next_contents_is_none_that_came_too_late(offset: int, told: str) -> None:
    """`acknowledge after it`: of a value that was overwritten before that sync. Only names were compared."""

    def says(files: Files, acks: int) -> Tried:
        is_lost = acks > 1 and contents(notes, files["f"].size, files["f"].pieces)[:4] == bytes(4)
        return Tried(CheckResult(0, int(is_lost), "lost"))

    calls = Calls().create("f").write("f", bytes(8192)).sync().ack("0").write("f", b"text").ack("1")
    calls.write("f", b"next", offset).fsync("f").ack("2")
    left = bytearray(8192)
    left[:4], left[offset : offset + 4] = b"text", b"next"
    notes = replace(calls.notes([Left("f", "file", OWNER, bytes(left))]), exit_code=0)
    made = Judging(notes, RULES, lambda trees: [says(*tree) for tree in trees])
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    (found, *_) = answer(made, failed).told
    assert "fsync of `f` after call 3" in found.remedy
    assert found.too_late.partition(", comes")[0] == told


def too_late(calls: Calls, left: Sequence[Left], holds: Callable[[dict[str, bytes]], bool]) -> str:
    """What is told of the sync that came too late for the acknowledgement `1`, of which the check asks for
    files that hold this.
    """
    notes = replace(calls.notes(list(left)), exit_code=0)

    def says(files: Files, acks: int) -> Tried:
        held = {p: contents(notes, e.size, e.pieces) for p, e in files.items() if e.kind == "file"}
        return Tried(CheckResult(0, int(acks > 1 and not holds(held)), "lost"))

    made = Judging(notes, RULES, lambda trees: [says(*tree) for tree in trees])
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    found = [t for t in answer(made, failed).told if t.headline.endswith("before `1` is acknowledged")]
    return found[0].too_late.partition(", comes")[0]


OLD, TEXT, NEXT = b"old0", b"text", b"next"


@pytest.mark.parametrize(
    ("then", "left", "told"),
    [
        (lambda c: c.create("t").write("t", NEXT).fsync("t").rename("t", "f").fsync("."), {"f": NEXT}, ""),
        (lambda c: c.create("t").write("t", NEXT).rename("t", "f").sync(), {"f": NEXT}, ""),
        (lambda c: c.unlink("f").sync(), {}, ""),
        (lambda c: c.rename("f", "g").sync(), {"g": TEXT}, "Call 5, `sync()`"),
        (lambda c: c.create("g").sync(), {"f": TEXT, "g": b""}, "Call 5, `sync()`"),
    ],
    ids=["replaced", "replaced, then sync", "removed", "renamed", "beside it"],
)
def test_a_sync_behind_which_the_file_is_gone_is_none_that_came_too_late(
    then: Callable[[Calls], Calls], left: dict[str, bytes], told: str
) -> None:
    """`acknowledge after it`: of a file that another one replaced before that sync, which covers it still."""
    calls = Calls().create("f").write("f", OLD).sync().ack("0").write("f", TEXT).ack("1")
    entries = [Left(path, "file", OWNER, holds) for path, holds in left.items()]
    is_lost = too_late(then(calls).ack("2"), entries, lambda held: OLD not in held.values())
    assert is_lost == told


@pytest.mark.parametrize("record", [4, 4096], ids=["in one block", "in blocks"])
def test_one_sync_of_several_records_of_a_log_comes_too_late_for_the_first(record: int) -> None:
    """Nothing was told: each record sets the size of the log, and may be in a block with the one before."""
    calls = Calls().create("log").sync().ack("0").write("log", b"r" * record).ack("1")
    calls.write("log", b"s" * record, record).fsync("log").ack("2")
    left = [Left("log", "file", OWNER, b"r" * record + b"s" * record)]
    told = too_late(calls, left, lambda held: held.get("log", b"")[:record] == b"r" * record)
    assert told == "Call 4, `fsync(log)`"


def test_the_sync_of_the_next_size_is_none_that_came_too_late() -> None:
    """Of a log, a size that grows is no other one; of sizes alone it is."""
    calls = Calls().create("f").sync().ack("0").size("f", 100).ack("1").size("f", 200).fsync("f").ack("2")
    left = [Left("f", "file", OWNER, bytes(200))]
    assert not too_late(calls, left, lambda held: len(held["f"]) >= 100)


@pytest.mark.parametrize(
    ("words", "told"), [(("fdatasync",), ""), (("fdatasync", "fsync"), "Call 5, `fsync(f)`")]
)
def test_a_sync_behind_the_acknowledgement_is_told_if_it_covers_what_is_lost(
    words: Sequence[str], told: str
) -> None:
    """fdatasync was, of a file whose permissions were lost: to acknowledge after it helped nothing."""

    def run(trees: Sequence[tuple[Files, int]]) -> list[Tried]:
        lost = [acks > 0 and ("f" not in files or files["f"].owner[0] != 0o600) for files, acks in trees]
        return [Tried(CheckResult(0, int(is_lost), "not private")) for is_lost in lost]

    calls = Calls().create("f").fsync("f").fsync(".").chmod("f", 0o600).ack("private")
    for word in words:
        getattr(calls, word)("f")
    notes = replace(calls.notes([Left("f", "file", (0o600, 0, 0))]), exit_code=0)
    made = Judging(notes, RULES, run)
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    (found,) = answer(made, failed).told
    assert "fsync of `f`" in found.remedy
    assert found.too_late.partition(", comes")[0] == told


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        (["."], "Call 4, `fsync(.)`, comes behind that acknowledgement: acknowledge after it"),
        ([".", "."], "Call 4, `fsync(.)`, comes behind that acknowledgement: acknowledge after it"),
        ([".", ""], ""),
        (["jnl"], ""),
        (["", ""], ""),
    ],
)
def test_the_sync_of_the_next_change_is_none_that_came_too_late(behind: Sequence[str], told: str) -> None:
    """`fsync(store.jnl) comes behind that acknowledgement: acknowledge after it`: it was the sync of the next
    journal, and the last acknowledgement had none behind it.
    """
    calls, left = Calls(), []
    for turn, synced in enumerate(behind):
        calls.create("jnl").write("jnl", b"old%d" % turn).fsync("jnl").unlink("jnl").ack(f"{turn}")
        if synced == "jnl":
            calls.create("jnl").write("jnl", b"next").fsync("jnl")
            left = [Left("jnl", "file", OWNER, b"next")]
        elif synced:
            calls.fsync(synced)
    notes = replace(calls.notes(left), exit_code=0)

    def undone(files: Files, acks: int) -> Tried:
        there = files.get("jnl")
        held = contents(notes, there.size, there.pieces) if there else b""
        return Tried(CheckResult(0, int(acks > 0 and held == b"old%d" % (acks - 1)), "undone", acks))

    made = Judging(notes, rules(names=True, order=True), lambda trees: [undone(*tree) for tree in trees])
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    (found,) = answer(made, failed).told
    assert found.remedy.startswith("fsync of the directory `.` after call 3, `unlink(jnl)`")
    assert found.too_late == told


def replaced_by(names: Sequence[str]) -> Notes:
    """Files that are written under names drawn at random, and renamed without a sync."""
    calls, left = Calls(), []
    for number, name in enumerate(names):
        calls.create(name).write(name, b"new").rename(name, f"f{number}").fsync(".").ack(f"{number}")
        left.append(Left(f"f{number}", "file", OWNER, b"new"))
    return replace(calls.notes(left), exit_code=0)


def findings_of(names: Sequence[str], again: Sequence[str]) -> list[tuple[str, str]]:
    """Headlines and remedies, of a check that refuses an empty file."""
    notes = replaced_by(names)

    def says(files: Files, acks: int) -> Tried:
        wrong = any(not e.pieces for p, e in files.items() if p.startswith("f"))
        return Tried(CheckResult(0, int(wrong), "a file is empty" if wrong else "", acks))

    made = Judging(notes, RULES, lambda trees: [says(*tree) for tree in trees])
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    made.name_drawn(replaced_by(again))
    return sorted((told.headline, told.remedy) for told in answer(made, failed).told)


def test_names_that_are_drawn_at_random_make_one_finding() -> None:
    """`sed -i` of three files had three findings, with other ids in each run."""
    one = findings_of(["d.sedab", "d.sedcd", "d.sedef"], ["d.sedgh", "d.sedij", "d.sedkl"])
    assert one == [
        (
            "the data of `write(d.XXXXXX, 3 at 0)` must persist before the change of names by "
            "`rename(d.XXXXXX, f0)`",
            "fsync of `d.XXXXXX` after call 1, `write(d.XXXXXX, 3 at 0)`, and after calls like it: 5, 9",
        )
    ]
    assert findings_of(["d.sedmn", "d.sedop", "d.sedqr"], ["d.sedst", "d.seduv", "d.sedwx"]) == one
    same = ["d.sedab", "d.sedcd", "d.sedef"]
    assert len(findings_of(same, same)) == 3, "names that a program chose are told apart"


def test_only_a_name_that_neither_run_shares_was_drawn() -> None:
    """Two threads that had made their files in another order would have had one name for both."""
    first = Calls().create("a").create("b").mkdir("log-Xy1.d").create("log-Xy1.d/c").notes([])
    other = Calls().create("b").create("a").mkdir("log-Q8z.d").create("log-Q8z.d/c").notes([])
    assert drawn_names(first, other) == {"log-Xy1.d": "log-XXXXXX.d"}
    assert told("rename(log-Xy1.d/c, c)", {"log-Xy1.d": "log-XXXXXX.d"}) == "rename(log-XXXXXX.d/c, c)"
    gone = Calls().mkdir("b").create("n").notes([])
    assert drawn_names(Calls().create("a").create("m").notes([]), gone) == {}


def test_no_other_name_is_advised_where_names_alone_are_lost() -> None:
    """Of two renames in the wrong order: "the new under another name, and then a rename", as it does."""
    notes = of_one_file(synced=False)
    search = Search(Legal(effect_of(notes, RULES)), judging(notes))
    first, *_ = search.effect.micros
    assert first.sort is Sort.NAME
    found = Vulnerability(Partial(0), 0, first.bit, 0, 0)
    assert _no_remedy(search, [Kind(found, "")]).endswith("A guess: another order of these calls")
    data = next(m for m in search.effect.micros if m.sort is Sort.DATA)
    of_data = replace(found, missing=data.bit)
    assert "under another name" in _no_remedy(search, [Kind(of_data, "")])


@pytest.mark.parametrize(
    ("made_by", "guess"),
    [
        ("f", "write the file under a temporary name, sync it, and then rename it"),
        ("g", "another order of these calls, with an fsync between them"),
    ],
)
def test_a_file_has_to_be_made_before_its_data(made_by: str, guess: str) -> None:
    """ "Another order of these calls", of open(f, O_CREAT) and the write to it: there is none."""
    calls = Calls().create("g").create("f").write("f", b"text").ack("done")
    left = [Left("g", "file", OWNER), Left("f", "file", OWNER, b"text")]
    notes = replace(calls.notes(left), exit_code=0)
    search = Search(Legal(effect_of(notes, RULES)), judging(notes))
    (there,) = (m.bit for m in search.effect.micros if any(name == made_by for _, name, _ in m.names))
    late = sum(m.bit for m in search.effect.micros if m.sort is not Sort.NAME)
    found = Vulnerability(Partial(there), 0, late, there, 0)
    assert _no_remedy(search, [Kind(found, "")]).endswith(f"A guess: {guess}")


@pytest.mark.parametrize(
    ("cut", "guess"),
    [
        (0, "write the file under a temporary name, sync it, and then rename it"),
        (8, "another order of these calls, with an fsync between them"),
    ],
)
def test_a_file_has_to_be_emptied_before_it_is_written_anew(cut: int, guess: str) -> None:
    """ "Another order of these calls", of open(f, O_TRUNC) and the write to it: behind it, all would be cut
    off.
    """
    calls = Calls().create("f").write("f", b"f" * 5000).sync().ack("old").size("f", cut).write("f", b"new!")
    left = [Left("f", "file", OWNER, b"new!" + b"f" * max(0, cut - 4))]
    made = Judging(replace(calls.notes(left), exit_code=0), RULES, always_yes)
    search = Search(made.legal, made)
    there = next(m.bit for m in search.effect.micros if m.exact and not m.on_the_way)
    late = sum(m.bit for m in search.effect.micros if m.call == 4)
    found = Vulnerability(Partial(there), 1, late, there, 0)
    assert _no_remedy(search, [Kind(found, "")]).endswith(f"A guess: {guess}")


def test_a_state_that_an_earlier_version_named_stands_for_the_one_in_which_a_program_sees_the_same() -> None:
    """`repro` refused it with "the rules do not leave it possible": it left out a size that a later one of
    the same call hides, and said so nowhere.
    """
    data = b"a" * 9_000
    calls = Calls().create("f").write("f", data).ack("done")
    notes = replace(calls.notes([Left("f", "file", OWNER, data)]), exit_code=0)
    judging = Judging(notes, RULES, lambda trees: [Tried(CheckResult(0, 0, ""))] * len(trees))
    every = judging.effect.every
    sizes = [m for m in judging.effect.micros if m.sort is Sort.SIZE]
    hidden, last = sizes[0].bit, sizes[-1].bit
    assert len(sizes) > 1
    without = Partial(every & ~hidden)
    assert not judging.legal.has(without)
    assert state_of(judging, without.named(judging.effect)) == (Partial(every), "")
    for state in judging.legal.listed():
        assert state_of(judging, state.named(judging.effect)) == (state, "")
    assert state_of(judging, Partial(every & ~last).named(judging.effect))[1] == ""


def test_why_the_rules_leave_a_state_not_possible_is_said() -> None:
    """It named no reason, and nothing to do."""
    ordered = rules(order=True)
    calls = Calls().create("f").create("g").fsync(".").create("h").ack("done")
    left = [Left(name, "file", OWNER) for name in "fgh"]
    notes = replace(calls.notes(left), exit_code=0)
    for its_rules, state, why in (
        (ordered, 0b110, "the change of names by `create(h)` is there"),
        (RULES, 0b100, "was durable before all that is there was asked for"),
        (RULES, 0b1111, "it counts 4 micro-operations, and the program made 3"),
    ):
        judging = Judging(notes, its_rules, lambda trees: [Tried(CheckResult(0, 0, ""))] * len(trees))
        assert why in state_of(judging, Partial(state).named(judging.effect))[1]


@pytest.mark.parametrize(
    ("name", "torn"),
    [
        ("@5/t3", Tear(4, 1536)),
        ("@5-3/t3", Tear(4, 1536)),
        ("@t5-4/0,4/1,4/2", Tear(4, 1536, end=True)),
        ("@t5-2/3,2/4,2/5,2/6,2/7", Tear(2, 1536)),
        ("@t5-2/0,2/1,2/2,3", Tear(2, 1536, end=True)),
        ("@0/t3", None),
        ("@2/t3", None),
        ("@t5-2/1", None),
        ("@t5-2/0,4/0", None),
        ("@t5-9/0", None),
        ("@t5-2.0", None),
        ("@t5=2", None),
        ("@t5-2,2/0", None),
        ("@t5-2/0,2/1,2/2,2/3,2/4,2/5,2/6,2/7", None),
    ],
)
def test_a_torn_block_has_a_name_of_its_own(name: str, torn: Tear | None) -> None:
    """Names of before tear the last micro-operation after its first sectors. Others tell what sectors are
    lost of which; one that no state has is refused.
    """
    data = b"a" * 4096
    calls = Calls().create("f").write("f", data).write("f", data).write("f", data).ack("done")
    notes = replace(calls.notes([Left("f", "file", OWNER, data)]), exit_code=0)
    judging = Judging(notes, RULES, lambda trees: [Tried(CheckResult(0, 0, ""))] * len(trees))
    state, why_not = state_of(judging, CrashState.parse(name))
    assert bool(why_not) == (torn is None)
    if torn:
        assert (str(state.named(judging.effect)), state.torn) == (name, torn)
        assert state.persisted == 0b11111 & ~(0b1000 if state.persisted.bit_count() < 5 else 0)


def test_permissions_that_come_too_late_are_advised_at_once() -> None:
    """Of a key that everybody may read: "the new under another name"."""
    calls = Calls().create("f").write("f", b"text").chmod("f", 0o600).ack("done")
    left = [Left("f", "file", (0o600, 0, 0), b"text")]
    notes = replace(calls.notes(left), exit_code=0)
    search = Search(Legal(effect_of(notes, RULES)), judging(notes))
    late = next(m.bit for m in search.effect.micros if m.sort is Sort.ATTRIBUTES)
    advice = _no_remedy(search, [Kind(Vulnerability(Partial(0), 0, late, 0, 0), "")])
    assert advice.endswith("A guess: a file that is made with these permissions, or has them before its data")


def test_a_sync_that_mends_all_is_told_of_each() -> None:
    """Where fsync of a file covers its names, that of the directory was told of one finding, and then that
    the file's is enough for all.
    """
    calls = Calls().mkdir("d").create("d/f").write("d/f", b"text").create("t").rename("t", "done").ack("done")
    left = [Left("d", "directory", OWNER), Left("d/f", "file", OWNER, b"text"), Left("done", "file", OWNER)]
    notes = replace(calls.notes(left), exit_code=0)

    def says(files: Files, acks: int) -> Tried:
        there = files.get("d/f")
        held = contents(notes, there.size, there.pieces) if there else b""
        said = "" if "done" not in files or held == b"text" else "damaged" if there else "gone"
        return Tried(CheckResult(0, int(bool(said)), said, acks))

    made = Judging(notes, rules(names=True, order=True), lambda trees: [says(*tree) for tree in trees])
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    found = answer(made, failed)
    assert len(found.told) > 1
    assert {told.remedy for told in found.told} == {"fsync of `d/f` after call 2, `write(d/f, 4 at 0)`"}
