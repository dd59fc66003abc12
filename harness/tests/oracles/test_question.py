"""The question of a litmus program: where it is put, and what answers it."""

from __future__ import annotations

import errno

import pytest

from harness.litmus.promises import tree_of
from harness.model import Call, CallError, Extent, ExtentKind, Outcome, Position, Tree
from harness.model.questions import Bytes, Look, PlantedEntry, Question
from harness.oracles import BY_DEFAULT, ORACLES, Judge, chosen_oracles
from harness.oracles.question import why_not
from harness.tests.oracles.cases import CLEAN, ORDERED, file, history, tree, written, zeros

OPERATIONS = ["create f", "append f 4K", "sync", "append f 4K", "fsync f"]
WHOLE = Look(sizes=[8192], bytes=[Bytes(end=4096, of=[1]), Bytes(start=4096, of=[3])])
ASKED = Question(group="g", asks="Is it whole?", setup=3, after=5, holds=[{"f": WHOLE}], kept=[], broken=[])
GOOD = tree(file("f", written(1, 0, 4096), written(3, 4096, 4096)))
SHORT = tree(file("f", written(1, 0, 4096)))


def asked(question: Question, outcome: Outcome, begun: int = 5, acked: int = 5) -> tuple[list[str], bool]:
    """What the oracle found, and whether something was undecided."""
    only = {"question": ORACLES["question"]}
    judge = Judge(ORDERED, history(OPERATIONS), error_patterns=(), oracles=only, question=question)
    found = judge.judge(Position(begun, acked), outcome)
    return [v.found for v in found.violations], bool(found.unknown)


def test_a_question_is_answered_by_what_came_back() -> None:
    assert asked(ASKED, Outcome(tree=GOOD)) == ([], False)
    assert asked(ASKED, Outcome(tree=SHORT)) == (["f has 4096 bytes"], False)


def test_bytes_that_nobody_looked_at_answer_nothing() -> None:
    """Of bytes that nobody wrote the first 64 are kept; what is behind these was taken for what was asked."""
    foreign = Extent(ExtentKind.FOREIGN, 0, 8192, data=b"\xde\xad" * 32)
    assert asked(ASKED, Outcome(tree=tree(file("f", foreign))))[0]
    behind = Question(
        group="g",
        asks="?",
        holds=[{"f": Look(bytes=[Bytes(start=4096, end=8192, of=[1])])}],
        kept=[],
        broken=[],
    )
    assert why_not(behind, tree(file("f", foreign)))


def test_a_question_judges_only_where_it_is_named() -> None:
    """A question that is answered with no breaks no promise: a run of litmus programs would be red."""
    assert "question" not in BY_DEFAULT
    assert "question" not in chosen_oracles(())
    assert list(chosen_oracles(["question"])) == ["question"]


@pytest.mark.parametrize(
    ("begun", "acked", "put"), [(3, 3, False), (4, 4, False), (5, 4, False), (5, 5, True)]
)
def test_a_question_is_put_once_its_operations_have_returned(begun: int, acked: int, put: bool) -> None:
    assert bool(asked(ASKED, Outcome(tree=SHORT), begun, acked)[0]) == put


def test_a_question_is_not_put_once_more_has_begun_than_it_says() -> None:
    early = Question(group="g", asks="?", setup=3, until=4, holds=[{"f": WHOLE}], kept=[], broken=[])
    assert asked(early, Outcome(tree=SHORT), 4, 3)[0]
    assert not asked(early, Outcome(tree=SHORT), 5, 4)[0]


def test_positions_at_which_a_question_is_put_are_not_folded() -> None:
    """Operations that persist nothing share a promise set; one of them may be what the question waits for."""
    plain = Judge(ORDERED, history(["create f", "create g"]), error_patterns=())
    one = Judge(ORDERED, history(["create f", "create g"]), error_patterns=(), question=ASKED)
    assert plain.promise_set(Position(1, 1)) == plain.promise_set(Position(2, 2))
    assert one.promise_set(Position(1, 1)) != one.promise_set(Position(2, 2))


def test_what_does_not_mount_answers_no() -> None:
    (unmounted,), _ = asked(ASKED, Outcome(mount_errno=errno.EUCLEAN))
    assert unmounted == "nothing comes back: the file system does not mount"
    (died,), _ = asked(ASKED, Outcome(lost="Kernel panic - not syncing"))
    assert died == "nothing comes back: the kernel did not survive it", "as if mount(2) had failed"


def test_what_could_not_be_looked_at_answers_nothing() -> None:
    """A name below a directory that cannot be read would count as gone."""
    unread = CallError(Call.GETDENTS, "d", errno.EIO)
    for outcome in (
        Outcome(mount_errno=errno.ENOMEM),
        Outcome(not_started="mdadm: no such array", mount_errno=errno.ENOENT),
        Outcome(tree=SHORT, walk_errors=(unread,)),
    ):
        assert asked(ASKED, outcome) == ([], True)


def answer(look: Look, recovered: Tree) -> str:
    return why_not(Question(group="g", asks="?", holds=[{"f": look}], kept=[], broken=[]), recovered)


@pytest.mark.parametrize(
    ("look", "yes", "no"),
    [
        (Look(), {"f": PlantedEntry()}, {}),
        (Look(there=False), {}, {"f": PlantedEntry()}),
        (Look(kind="symlink"), {"f": PlantedEntry(kind="symlink")}, {"f": PlantedEntry()}),
        (Look(sizes=[0, 8]), {"f": PlantedEntry(contents=[(8, 1)])}, {"f": PlantedEntry(contents=[(16, 1)])}),
        (Look(mode=0o600), {"f": PlantedEntry(mode=0o600)}, {"f": PlantedEntry()}),
        (Look(owner=(1, 2)), {"f": PlantedEntry(owner=(1, 2))}, {"f": PlantedEntry(owner=(1, 3))}),
        (Look(links=2), {"f": PlantedEntry(inode=1), "g": PlantedEntry(inode=1)}, {"f": PlantedEntry()}),
        (
            Look(same_as="g"),
            {"f": PlantedEntry(inode=1), "g": PlantedEntry(inode=1)},
            {"f": PlantedEntry(), "g": PlantedEntry()},
        ),
        (Look(same_as="g"), {"f": PlantedEntry(inode=1), "g": PlantedEntry(inode=1)}, {"f": PlantedEntry()}),
        (Look(xattrs={"user.a": "1"}), {"f": PlantedEntry(xattrs={"user.a": "1"})}, {"f": PlantedEntry()}),
        (Look(lacks_xattrs=["user.a"]), {"f": PlantedEntry()}, {"f": PlantedEntry(xattrs={"user.a": "1"})}),
        (
            Look(target="t"),
            {"f": PlantedEntry(kind="symlink", target="t")},
            {"f": PlantedEntry(kind="symlink", target="x")},
        ),
        (Look(allocated=4096), {"f": PlantedEntry(allocated=4096)}, {"f": PlantedEntry(allocated=512)}),
    ],
)
def test_each_look_tells_yes_from_no(
    look: Look, yes: dict[str, PlantedEntry], no: dict[str, PlantedEntry]
) -> None:
    assert not answer(look, tree_of(yes))
    assert answer(look, tree_of(no))


def test_bytes_are_told_by_who_wrote_them() -> None:
    both = tree(file("f", written(1, 0, 512), written(3, 512, 512)))
    assert not answer(Look(bytes=[Bytes(of=[1, 3])]), both)
    assert not answer(Look(bytes=[Bytes(of=[1, 3], unit=512)]), both)
    assert answer(Look(bytes=[Bytes(of=[1, 3], unit=1024)]), both), "torn within a unit"
    assert answer(Look(bytes=[Bytes(of=[1])]), both)
    assert answer(Look(bytes=[Bytes(end=2048, of=[1, 3])]), both), "the file ends before"


def test_zeros_are_no_data_unless_the_question_says_so() -> None:
    hole = tree(file("f", written(1, 0, 512), zeros(512, 512)))
    assert answer(Look(bytes=[Bytes(of=[1])]), hole)
    assert not answer(Look(bytes=[Bytes(of=[1], zeros=True)]), hole)
    garbage = tree(file("f", Extent(ExtentKind.FOREIGN, 0, 64, 0, data=b"\x17" * 64)))
    assert answer(Look(bytes=[Bytes(of=[1], zeros=True)]), garbage)


def test_of_several_alternatives_one_has_to_fit_as_a_whole() -> None:
    question = Question(
        group="g",
        asks="?",
        holds=[{"f": Look(), "g": Look(there=False)}, {"f": Look(there=False), "g": Look()}],
        kept=[],
        broken=[],
    )
    assert not why_not(question, tree(file("f")))
    assert not why_not(question, tree(file("g")))
    assert why_not(question, tree(file("f"), file("g")))
    assert why_not(question, tree())


def test_an_answer_no_names_what_is_wrong_with_each_alternative_that_comes_close() -> None:
    """Of a file with the new size and zeros, the answer said only that its size is not the old one."""
    either = [{"f": Look(sizes=[4096])}, {"f": WHOLE}]
    question = Question(group="g", asks="?", holds=either, kept=[], broken=[])
    torn = tree(file("f", written(1, 0, 4096), zeros(4096, 4096)))
    assert why_not(question, torn) == "f has 8192 bytes and f has bytes 4096 to 8192 from zeros"


def test_a_question_beside_the_other_oracles_takes_nothing_from_them() -> None:
    judge = Judge(ORDERED, history(OPERATIONS), error_patterns=(), question=ASKED)
    found = judge.judge(Position(5, 5), Outcome(tree=SHORT, fsck=CLEAN))
    assert {v.oracle for v in found.violations} == {"durability", "question"}
