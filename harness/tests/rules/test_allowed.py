"""Whether rules allow a tree, against all trees of all states."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.rules.calls import Left, Notes
from harness.rules.micro import Effect, effect_of
from harness.rules.states import Legal, Partial, Stretch
from harness.rules.trees import Maker, contents
from harness.tests.rules.allowed import Allowed
from harness.tests.rules.programs import Calls, rules

Tree = frozenset[Left]
FILE = (0o644, 0, 0)

_BRUTE_MAX = 9
_STEPS = ("new", "below", "write", "again", "durable", "size", "zero", "chmod", "rename", "over", "exchange")
_MORE = ("move", "unlink", "fsync", "fdatasync", "directory", "sync")


@st.composite
def programs(draw: st.DrawFn) -> Notes:
    """Calls on a few files of two directories, each way to change one."""
    calls = Calls().mkdir("d")
    for number in range(draw(st.integers(1, 8))):
        files = sorted(p for p, inode in calls.inodes.items() if p != "." and inode != 2)
        step = draw(st.sampled_from([*_STEPS, *_MORE] if files else _STEPS[:2]))
        one, other = (draw(st.sampled_from(files or ["."])) for _ in range(2))
        _take(draw, calls, step, (one, other), number)
    return calls.notes()


def _take(draw: st.DrawFn, calls: Calls, step: str, paths: tuple[str, str], number: int) -> None:  # noqa: C901, PLR0912 - one line a call
    path, other = paths
    top = next(p for p, inode in calls.inodes.items() if inode == 2)
    match step:
        case "new" | "below":
            calls.create(f"{number}" if step == "new" else f"{top}/{number}")
        case "write" | "again":
            where = 0 if step == "again" else draw(st.sampled_from([0, 3, 4000]))
            calls.write(path, b"%d" % (number % 3) * draw(st.sampled_from([1, 7, 4500])), where)
        case "durable":
            calls.write(path, b"x", 3, durable="dsync")
        case "size":
            calls.size(path, draw(st.sampled_from([0, 5, 4500])))
        case "zero":
            calls.zero(path, draw(st.sampled_from([0, 2])), 4096)
        case "chmod":
            calls.chmod(path, draw(st.sampled_from([0o600, 0o644])))
        case "rename":
            calls.rename(path, f"r{number}")
        case "over" if calls.inodes[path] != calls.inodes[other]:
            calls.rename(path, other)
        case "exchange":
            calls.exchange(path, other)
        case "move" if not any(p.startswith(f"{top}/") for p in calls.inodes):
            calls.rename(top, f"e{number}")
        case "directory":
            calls.fsync(draw(st.sampled_from([".", top])))
        case "sync":
            calls.sync()
        case "unlink" | "fsync" | "fdatasync":
            getattr(calls, step)(path)


def tree_of(effect: Effect, maker: Maker, state: int) -> Tree:
    """The tree of a state, as one comes back."""
    files = maker.files(Partial(state))
    found = []
    for path, entry in files.items():
        real = files[entry.first] if entry.first else entry
        held = contents(effect.notes, real.size, real.pieces)
        found.append(Left(path, real.kind, real.owner, held, real.target))
    return frozenset(found)


def _sets(stretch: Stretch, every: int) -> set[int]:
    return {s for s in range(every + 1) if not stretch.durable & ~s and not s & ~stretch.asked}


def _spoilt(tree: Tree) -> set[Tree]:
    """Trees with something that nobody did."""
    found = {tree | {Left("ghost", "file", FILE)}, tree | {Left("ghost", "directory", FILE)}}
    for left in tree:
        others = [replace(left, owner=(0o777, 0, 0)), replace(left, kind="symlink", target="t", contents=b"")]
        if left.kind == "file":
            others += [replace(left, contents=b"?" + left.contents[1:])]
            others += [replace(left, contents=left.contents + bytes(1))]
        found |= {tree - {left} | {other} for other in others}
    return found


@settings(max_examples=150, deadline=None)
@given(notes=programs())
def test_a_tree_is_allowed_where_a_state_gives_it_and_nowhere_else(notes: Notes) -> None:
    """The trees of all subsets, legal or not, and each with a byte or a name that nobody wrote."""
    effect = effect_of(notes, rules())
    if len(effect.micros) > _BRUTE_MAX:
        return
    maker, allowed = Maker(effect), Allowed(effect)
    trees = {s: tree_of(effect, maker, s) for s in range(effect.every + 1)}
    spoilt = _spoilt(trees[effect.every])
    for stretch in Legal(effect).stretches:
        legal = {trees[s] for s in _sets(stretch, effect.every)}
        for tree in {*trees.values(), *spoilt}:
            refused = allowed.refusal(tree, stretch)
            assert bool(refused) == (tree not in legal), (refused, stretch, sorted(tree, key=repr))


def synced() -> Allowed:
    """A file of two blocks that is synced, with its name, and then changed in both."""
    calls = Calls().create("f").write("f", b"a" * 8192).fsync("f").fsync(".")
    return Allowed(effect_of(calls.write("f", b"b" * 8192).notes(), rules()))


def test_what_a_sync_covers_may_be_lost_until_it_returns() -> None:
    allowed, nothing = synced(), frozenset[Left]()
    empty = frozenset({Left("f", "file", FILE)})
    assert [allowed.refusal(nothing, allowed.between(n, n + 1)) for n in (1, 2, 3)] == [""] * 3
    assert "f is not what the call 0, create(f), made (durable by fsync)" in allowed.refusal(
        nothing, allowed.between(4, 4)
    )
    assert "it has 0 bytes" in allowed.refusal(empty, allowed.between(3, 3))


def test_a_call_that_has_not_begun_left_nothing() -> None:
    allowed = synced()
    now = frozenset({Left("f", "file", FILE, b"b" * 8192)})
    assert "bytes 4096 to 8192 are not from the call 1, write(f, 8192 at 0)" in allowed.refusal(
        now, allowed.between(4, 4)
    )
    assert not allowed.refusal(now, allowed.between(4, 5))


def test_each_block_is_old_or_new_by_itself_and_as_a_whole() -> None:
    allowed = synced()
    end = allowed.between(5, 5)
    held = {first + second: first * 4096 + second * 4096 for first in "ab" for second in "ab"}
    for contents_ in held.values():
        assert not allowed.refusal([Left("f", "file", FILE, contents_.encode())], end)
    torn = b"a" * 4096 + b"b" * 512 + b"a" * 3584
    assert "its bytes 4096 to" in allowed.refusal([Left("f", "file", FILE, torn)], end)


def test_two_names_of_one_file_show_the_same() -> None:
    calls = Calls().create("f").write("f", b"new").link("f", "g")
    allowed = Allowed(effect_of(calls.notes(), rules()))
    end = allowed.between(3, 3)
    two = [Left("f", "file", FILE, b"new"), Left("g", "file", FILE, bytes(3))]
    assert allowed.refusal(two, end) == "f and g are one file, and show two"
    assert not allowed.refusal([two[0], replace(two[0], path="g")], end)


def test_rules_by_which_names_need_others_are_not_decided() -> None:
    notes = Calls().create("f").create("g").notes()
    with pytest.raises(ValueError, match="needs another"):
        Allowed(effect_of(notes, rules(order=True)))


def test_what_a_truncation_removed_does_not_come_back_where_the_file_grew_again() -> None:
    calls = Calls().create("f").write("f", b"a" * 9000).size("f", 5).size("f", 9000).fsync("f").fsync(".")
    allowed = Allowed(effect_of(calls.notes(), rules()))
    end = allowed.between(6, 6)
    assert not allowed.refusal([Left("f", "file", FILE, b"a" * 5 + bytes(8995))], end)
    old = b"a" * 5 + bytes(4091) + b"a" * 4904
    assert "its bytes 4096 to 9000" in allowed.refusal([Left("f", "file", FILE, old)], end)
    tail = b"a" * 4096 + bytes(4904)
    assert "its bytes 5 to 4096" in allowed.refusal([Left("f", "file", FILE, tail)], end)
    names = Stretch(1, end.asked, 6.0)
    assert not allowed.refusal([Left("f", "file", FILE, tail)], names), "but until its block is synced"


def test_what_was_durable_is_told_whatever_a_later_cut_did() -> None:
    """`1 would be the least`, of a cut that may not have persisted, hid which sync the old contents broke."""
    calls = Calls().create("f").write("f", b"a" * 5).fsync("f").fsync(".").size("f", 1)
    allowed = Allowed(effect_of(calls.notes(), rules()))
    refused = allowed.refusal([Left("f", "file", FILE, b"")], allowed.between(5, 5))
    assert refused == "f: it has 0 bytes, which no call left it with; 5 would be the least (durable by fsync)"
