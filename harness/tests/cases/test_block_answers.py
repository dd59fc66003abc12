"""Answers that are kept by the contents of blocks, and messages about them: neither grows without end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from harness.cases.answers import Messages
from harness.cases.block_answers import BlockAnswers, Hashes, _Node

ME, OTHER = "me", "other"
LARGEST = 9


@dataclass(frozen=True)
class Kept:
    blocks: tuple[int, ...] | None
    said: int


class FakeDisk:
    """Block `n` holds the content `contents[n]`."""

    def __init__(self, contents: dict[int, int]) -> None:
        self.contents = contents

    def block_hashes(self, blocks: list[int]) -> list[bytes]:
        return [b"%d" % self.contents.get(block, 0) for block in blocks]


def hashes(**contents: int) -> Hashes:
    return Hashes(cast(Any, FakeDisk({int(k[1:]): v for k, v in contents.items()})))


@given(st.lists(st.tuples(st.integers(1, LARGEST), st.integers(0, 3)), max_size=40), st.integers(1, 30))
def test_an_answer_is_that_of_equal_blocks_and_the_cache_keeps_to_its_room(
    asked: list[tuple[int, int]], blocks_max: int
) -> None:
    """The cache only grew: two processes of 1 GiB each after 3,000 states of NILFS2."""
    answers = BlockAnswers[Kept](blocks_max)
    for count, content in asked:
        there = hashes(**{f"b{n}": content for n in range(count)})
        found = answers.recall(there)
        if found is None:
            answers.remember(there, Kept(tuple(range(count)), content))
            assert count > blocks_max or answers.recall(there) is not None
        else:
            assert found.said == content
        assert sum(held(answers._root)) <= max(blocks_max, LARGEST)


def held(node: _Node[Kept], above: int = 0) -> Iterator[int]:
    """How many blocks each answer depends on."""
    if node.answer is not None:
        yield above
    for branch in node.branches:
        for child in branch.next.values():
            yield from held(child, above + len(branch.read))


BLOCKS = st.lists(st.integers(0, LARGEST), min_size=1, max_size=6, unique=True).map(tuple)
DISKS = st.lists(st.integers(0, 1), min_size=LARGEST + 1, max_size=LARGEST + 1)


@given(st.lists(st.tuples(BLOCKS, DISKS), max_size=30), st.lists(DISKS, max_size=10))
def test_the_tree_recalls_what_a_list_of_all_answers_would(
    told: list[tuple[tuple[int, ...], list[int]]], disks: list[list[int]]
) -> None:
    """In whatever order blocks were read, also where one answer's blocks are the first of another's."""
    answers = BlockAnswers[Kept]()
    kept: list[tuple[dict[int, int], Kept]] = []
    for number, (blocks, contents) in enumerate(told):
        answer = Kept(blocks, number)
        answers.remember(hashes(**{f"b{n}": v for n, v in enumerate(contents)}), answer)
        shown = {block: contents[block] for block in blocks}
        kept = [(other, of) for other, of in kept if (other, of.blocks) != (shown, blocks)]
        kept.append((shown, answer))
    for disk in [*disks, *(contents for _, contents in told)]:
        fit = [answer for shown, answer in kept if all(disk[b] == v for b, v in shown.items())]
        found = answers.recall(hashes(**{f"b{n}": v for n, v in enumerate(disk)}))
        assert found in fit if fit else found is None
    assert sorted(held(answers._root)) == sorted(len(shown) for shown, _ in kept)


def test_messages_that_would_be_too_many_are_told_to_nobody() -> None:
    """The process that owns the run kept every message, 100 KiB each, until the host had no memory left."""
    messages = Messages(bytes_max=10)
    for message in (b"1234", b"", b"123456", b"1"):
        messages.add(ME, message)
    assert messages.since(0, OTHER) == ((b"1234", b"123456"), 2)
    assert messages.since(0, ME) == ((), 2)
