"""What a check said of one tree, and which other trees that holds for."""

from __future__ import annotations

from dataclasses import replace

from harness.model import CheckResult
from harness.rules.answers import Answers, Tried
from harness.rules.micro import effect_of
from harness.rules.states import Partial
from harness.rules.trees import Files, Maker
from harness.tests.rules.programs import Calls, rules

SAID = CheckResult(0, 0, "")


def trees() -> tuple[Files, Files]:
    """A tree of two files, and one with other contents of the first."""
    calls = Calls().create("journal").write("journal", b"old").create("other")
    effect = effect_of(calls.notes(), rules())
    files = Maker(effect).files(Partial(effect.every))
    return files, {**files, "journal": replace(files["journal"], digest=b"another")}


def test_an_answer_holds_where_what_was_opened_is_the_same() -> None:
    files, other = trees()
    answers = Answers()
    answers.add(files, 0, Tried(SAID, frozenset({"other"})))
    assert answers.find(other, 0) == SAID
    answers = Answers()
    answers.add(files, 0, Tried(SAID, frozenset({"journal"})))
    assert answers.find(other, 0) is None


def test_files_that_the_check_made_for_itself_do_not_count() -> None:
    """What it moved or linked, the agent tells by the name that it had."""
    files, other = trees()
    answers = Answers()
    answers.add(files, 0, Tried(SAID, frozenset({"other", "temporary"})))
    assert answers.find(other, 0) == SAID
    answers = Answers()
    answers.add(files, 0, Tried(SAID, None))
    assert answers.find(other, 0) is None
