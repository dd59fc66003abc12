"""What is claimed of a program, and of which programs nothing is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.model import Check, CheckResult, Verdict
from harness.ruled.judging import Judging, NotJudged, answer, followed, judgement_of, unsynced_lines
from harness.rules.calls import Left, Notes, UnreadableNotes, notes_of
from harness.rules.rules import Rules
from harness.rules.trees import Files, contents
from harness.tests.rules.programs import OWNER, Calls, rules

RULES: Rules = rules()


def of_one_file(*, synced: bool) -> Notes:
    calls = Calls().create("f").write("f", b"text")
    if synced:
        calls.fsync("f").fsync(".")
    return replace(calls.ack("done").notes([Left("f", "file", OWNER, b"text")]), exit_code=0)


@pytest.mark.parametrize(
    ("left", "says"),
    [
        ([], "f is not what the program left there; the last call about it was fsync"),
        ([Left("f", "file", OWNER, b"tent")], "f has other contents"),
        ([Left("f", "file", (0o600, 0, 0), b"text")], "f has other permissions"),
        ([Left("f", "file", OWNER, b"text"), Left("g", "file", OWNER)], "g is not there"),
        ([Left("f", "directory", OWNER)], "f is a file, and was a directory"),
    ],
)
def test_a_program_whose_calls_do_not_give_what_it_left_is_not_judged(left: list[Left], says: str) -> None:
    """A store into a mapping that nobody saw would have been taken for something that was lost."""
    with pytest.raises(NotJudged, match=says):
        followed(replace(of_one_file(synced=True), left=tuple(left)), RULES)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"unseen": ("io_uring_setup()",)}, "io_uring_setup"),
        ({"cut": True}, "20,000 calls"),
        ({"exit_code": 3}, "ended with 3"),
        ({"exit_code": None}, "did not end in time"),
        ({"acks": ()}, "never called powercut-ack"),
    ],
)
def test_nothing_is_claimed_of_a_program_that_was_not_seen_whole(
    changed: dict[str, object], says: str
) -> None:
    """Without its writes by io_uring a program would have passed, since nothing of it could be lost."""
    with pytest.raises(NotJudged, match=says):
        followed(replace(of_one_file(synced=True), **changed), RULES)  # type: ignore[arg-type]  # its fields


def judging(notes: Notes) -> Judging:
    def run(files: Files, acks: int) -> CheckResult:
        held = {p: contents(notes, e.size, e.pieces) for p, e in files.items()}
        right = not acks or held.get("f") == b"text"
        return CheckResult(0, 0 if right else 1, "" if right else "f is gone", acks)

    return Judging(notes, RULES, run)


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


def test_a_synced_file_has_nothing_to_tell() -> None:
    """The answer for a right program is empty."""
    made = judging(of_one_file(synced=True))
    failed = [s for s, r in made.visited(made.legal.listed()) if r.exit_code == 1]
    assert (failed, answer(made, failed).told) == ([], ())
    assert unsynced_lines(made.effect)[-1] == "at the end: nothing"


def test_a_check_that_refuses_an_empty_directory_is_no_judge() -> None:
    """All states of a right program would have failed."""
    with pytest.raises(NotJudged, match="an empty directory"):
        Judging(of_one_file(synced=True), RULES, lambda files, acks: CheckResult(0, 0 if acks else 1, ""))


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
