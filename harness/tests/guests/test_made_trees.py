"""Trees that are made in a guest: what of them goes into one request."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.errors import GuestError
from harness.guests import wire
from harness.guests.made_trees import MadeTrees
from harness.guests.session import Session, Target
from harness.model import Check
from harness.rules.trees import Entry, Files

CHECK = Check(0, ("check",), ("*",), application=True)


class _Guest:
    """Says yes to each tree, and keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[wire.TryTrees] = []

    def request(self, message: wire.TryTrees, *_: Any) -> wire.TreesTried:
        assert len(wire.encode(message)) <= wire.LIMITS["STRUCTURED_FRAME_BYTES"]
        self.asked.append(message)
        return wire.TreesTried(tried=[wire.Tried(exit_code=0, output=b"", opened=[])] * len(message.trees))


@pytest.fixture
def guest() -> _Guest:
    return _Guest()


@pytest.fixture
def made(guest: _Guest) -> MadeTrees:
    session = SimpleNamespace(guest=lambda: guest)
    return MadeTrees(cast(Session, session), cast(Target, Path("none")), apart=False)


def with_value(size: int, files: int) -> Files:
    xattrs = (("user.a", bytes(size)),) if size else ()
    return {f"f{n}": Entry("file", (0o644, 0, 0), xattrs=xattrs) for n in range(files)}


def test_a_request_with_large_extended_attributes_fits_a_frame(made: MadeTrees, guest: _Guest) -> None:
    """Their values were not counted, and the guest was lost."""
    trees = [(with_value(60_000 if n % 2 else 0, 20), n) for n in range(32)]
    assert len(made.check(trees, CHECK, [])) == len(trees)
    counts = [tree.acknowledgements for asked in guest.asked for tree in asked.trees]
    assert counts == list(range(32))
    assert 1 < len(guest.asked) <= 4


def test_a_tree_that_fits_no_frame_is_told_in_words(made: MadeTrees, guest: _Guest) -> None:
    """The guest was lost with it."""
    trees = [(with_value(10, 1), 0), (with_value(60_000, 180), 1), (with_value(60_000, 400), 2)]
    with pytest.raises(GuestError, match="bytes of paths and extended attributes"):
        made.check(trees, CHECK, [])
    assert [len(asked.trees) for asked in guest.asked] == [1, 1]
