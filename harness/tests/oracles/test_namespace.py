"""The namespace as changes, compared with one that copies all names after every operation; and what thousands
of names cost, counted instead of timed.
"""

from __future__ import annotations

import copy
import tracemalloc
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import Operation, OperationKind, Outcome, Position, Tree, Verdict
from harness.oracles import Judge
from harness.oracles.contract import Contract
from harness.oracles.names import LISTED
from harness.oracles.namespace import ABSENT, ROOT, Name, Recovered, Shape, attributes_fingerprint
from harness.oracles.replay import replay
from harness.oracles.timeline import Entry, ModelTimeline
from harness.tests.oracles.cases import (
    CLEAN,
    EACH,
    ORDERED,
    calls_of,
    directory,
    file,
    history,
    judged,
    tree,
    variant,
)

K = OperationKind
PATHS = ["a", "b", "f", "a/b", "a/f", "b/f", "b/a", "a/b/f", "a/b/g"]


class Plain:
    """The names as a dictionary, all of them copied after every operation."""

    def __init__(self) -> None:
        self.inodes = {"": ROOT}
        self.nodes: dict[int, list[object]] = {ROOT: ["directory", 0o755, b""]}
        self.xattrs: dict[int, dict[str, bytes]] = defaultdict(dict)
        self.operations: list[Operation] = []
        self.versions = [self.copy()]

    def copy(self) -> tuple[dict[str, Name], dict[str, int], dict[Entry, int]]:
        names = {}
        for path, inode in self.inodes.items():
            kind, mode, target, *owner = self.nodes[inode]
            group = (
                () if kind == "directory" else tuple(sorted(p for p, i in self.inodes.items() if i == inode))
            )
            xattrs = tuple(sorted(self.xattrs[inode].items()))
            if path:
                names[path] = Name(kind, group, len(group), mode, target, xattrs, *owner)  # type: ignore[arg-type]  # of `nodes`
        entries = {
            (self.inodes[p.rpartition("/")[0]], p.rpartition("/")[2]): i for p, i in self.inodes.items() if p
        }
        return names, dict(self.inodes), entries

    def kind(self, path: str) -> object:
        return self.nodes[self.inodes[path]][0] if path in self.inodes else None

    def below(self, path: str) -> list[str]:
        return [p for p in self.inodes if p.startswith(f"{path}/")]

    def can(self, op: Operation) -> bool:
        new = op.target if op.kind in (K.LINK, K.RENAME) else op.path
        if self.kind(new.rpartition("/")[0]) != "directory":
            return False
        if op.kind in (K.CREATE, K.MKDIR, K.SYMLINK):
            return self.kind(op.path) is None
        if self.kind(op.path) is None or op.path == op.target:
            return False
        isdir = self.kind(op.path) == "directory"
        if op.kind is K.LINK:
            return not isdir and self.kind(op.target) is None
        if op.kind in (K.UNLINK, K.RMDIR):
            return isdir == (op.kind is K.RMDIR) and not self.below(op.path)
        if op.kind is K.RENAME:
            over = self.kind(op.target)
            into = f"{op.target}/".startswith(f"{op.path}/") or op.path.startswith(f"{op.target}/")
            return not into and not self.below(op.target) and over in (None, self.kind(op.path))
        if op.kind is K.REMOVEXATTR:
            return op.name in self.xattrs[self.inodes[op.path]]
        return self.kind(op.path) != "symlink"

    def do(self, op: Operation) -> None:
        i = len(self.operations)
        inode = self.inodes.get(op.path, i)
        if op.kind in (K.CREATE, K.MKDIR, K.SYMLINK):
            kind, mode = {K.CREATE: ("file", 0o644), K.MKDIR: ("directory", 0o755)}.get(
                op.kind, ("symlink", 0)
            )
            self.nodes[i] = [kind, mode, op.target.encode()]
            self.inodes[op.path] = i
        elif op.kind is K.LINK:
            self.inodes[op.target] = inode
        elif op.kind in (K.UNLINK, K.RMDIR):
            del self.inodes[op.path]
        elif op.kind is K.RENAME and self.inodes.get(op.target) != inode:
            for path in (op.path, *self.below(op.path)):
                self.inodes[op.target + path.removeprefix(op.path)] = self.inodes.pop(path)
        elif op.kind is K.CHMOD:
            self.nodes[inode][1] = op.length
        elif op.kind is K.SETXATTR:
            self.xattrs[inode][op.name] = op.value
        elif op.kind is K.REMOVEXATTR:
            del self.xattrs[inode][op.name]
        self.operations.append(op)
        self.versions.append(copy.deepcopy(self.copy()))


@st.composite
def plain(draw: st.DrawFn) -> Plain:
    made = Plain()
    kinds = [*K.__members__.values()]
    names = [K.CREATE, K.MKDIR, K.SYMLINK, K.LINK, K.RENAME, K.RENAME, K.UNLINK, K.RMDIR, K.SETXATTR, K.CHMOD]
    assert set(names) < set(kinds)
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from([*names, K.REMOVEXATTR]))
        op = Operation(kind, draw(st.sampled_from(PATHS)))
        if kind in (K.LINK, K.RENAME, K.SYMLINK):
            op = Operation(kind, op.path, draw(st.sampled_from(PATHS)))
        elif kind in (K.SETXATTR, K.REMOVEXATTR):
            value = draw(st.sampled_from([b"", b"x", b"y"])) if kind is K.SETXATTR else b""
            op = Operation(kind, op.path, name=draw(st.sampled_from(["user.a", "user.b"])), value=value)
        elif kind is K.CHMOD:
            op = Operation(kind, op.path, length=draw(st.sampled_from([0o644, 0o755, 0o600])))
        if made.can(op):
            made.do(op)
    return made


@st.composite
def altered(draw: st.DrawFn, names: dict[str, Name]) -> dict[str, Name]:
    """Names as they may be recovered: those of no version, and names of one inode that differ."""
    found = dict(names)
    for path in draw(st.lists(st.sampled_from(PATHS), max_size=2)):
        if path not in found:
            found[path] = Name("file", (path,), 1, 0o644, b"", ())
        elif draw(st.booleans()):
            found[path] = found[path]._replace(mode=draw(st.sampled_from([0, 0o644, 0o700])))
        elif len(found[path].group) < 2:
            del found[path]
    return found


@settings(max_examples=100, deadline=None)
@given(plain(), st.data())
def test_what_is_kept_as_changes_is_what_copies_hold(made: Plain, data: st.DataObject) -> None:
    names = replay(ORDERED, history(made.operations)).names
    copies = [copied for copied, _, _ in made.versions]
    for j, (copied, inodes, _) in enumerate(made.versions):
        assert names.names(j) == copied
        assert {p: names.inode(p, j) for p in ["", *PATHS]} == {
            p: inodes.get(p, ABSENT) for p in ["", *PATHS]
        }
        assert list(names.matching(Recovered(copied))) == [k for k, c in enumerate(copies) if c == copied]
        if j:
            assert names.changed(j - 1) == (copied != copies[j - 1])
    last = len(copies) - 1
    since = data.draw(st.integers(0, last))
    until = data.draw(st.integers(since, last))
    wanted = data.draw(altered(copies[data.draw(st.integers(0, last))]))
    found = Recovered(wanted)
    assert list(names.matching(found)) == [k for k, c in enumerate(copies) if c == wanted]
    differences = {j: len(wanted.items() ^ copies[j].items()) for j in range(since, until + 1)}
    assert names.nearest(found, since, until) == min(differences, key=lambda j: (differences[j], -j))
    for path in PATHS:
        been = [copies[j].get(path) for j in range(since, until + 1)]
        told = list(names.fingerprints(path, since, until))
        assert len(set(told)) == len(set(been))
        number = found.of_path.get(path, 0)
        older = [c.get(path) for c in copies[:since]]
        assert names.had(path, number, since) == (wanted.get(path) in older)
        if len(set(been)) == 1 and any(name != been[0] for name in older):
            changed = max(j for j, name in enumerate(older) if name != been[0])
            assert names.last_other(path, told[0], since) == changed


@settings(max_examples=100, deadline=None)
@given(plain(), st.data())
def test_entries_and_inodes_have_been_what_the_copies_say(made: Plain, data: st.DataObject) -> None:
    timeline = replay(EACH, history(made.operations))
    since = data.draw(st.integers(0, len(made.operations)))
    until = data.draw(st.integers(since, len(made.operations)))
    window = made.versions[since : until + 1]
    every = {
        e: p for _, inodes, entries in made.versions for e, p in zip(entries, list(inodes)[1:], strict=True)
    }
    assert set(timeline.entries.paths) == set(every)
    for entry in every:
        been = list(dict.fromkeys(entries.get(entry, ABSENT) for _, _, entries in reversed(window)))
        assert list(timeline.entries.been(entry, since, until)) == been
    for inode in timeline.kinds.keys() - {ROOT}:
        held = [{e for e, i in entries.items() if i == inode} for _, _, entries in window]
        assert timeline.entries.named(inode, since, until) == all(held)
        assert timeline.entries.names(inode, since, until) == frozenset[Entry]().union(*held)
        shown = [names[p] for names, inodes, _ in window for p, i in inodes.items() if i == inode]
        shapes = {Shape(n.kind, n.mode, n.target, attributes_fingerprint(n.xattrs), n.owner) for n in shown}
        assert timeline.names.shapes(inode, since, until) == shapes
        plainly = {(n.kind, n.mode, n.owner, n.target, n.xattrs) for n in shown}
        assert set(timeline.names.shown(inode, since, until, 1000)) == plainly


def test_an_equal_fingerprint_alone_is_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    names = replay(ORDERED, history(["create f"])).names
    found = Recovered({"g": Name("file", ("g",), 1, 0o644, b"", ())})
    real = Recovered({"f": Name("file", ("f",), 1, 0o644, b"", ())})
    assert list(names.matching(real)) == [1]
    monkeypatch.setattr(found, "fingerprint", real.fingerprint)
    assert not names.matching(found)


@settings(max_examples=50, deadline=None)
@pytest.mark.parametrize(
    "contract",
    [ORDERED, EACH, variant(namespace="synced", persists="inode"), variant(persists="operations")],
    ids=["ordered", "each", "synced", "wsync"],
)
@given(made=plain(), data=st.data())
def test_what_passes_goes_on_to_pass_while_operations_are_quiet(
    contract: Contract, made: Plain, data: st.DataObject
) -> None:
    """So that a content that lasts over thousands of operations is judged once, not once for each of them."""
    operations = list(made.operations)
    for _ in range(data.draw(st.integers(0, 3))):
        operations.insert(data.draw(st.integers(0, len(operations))), Operation(K.SYNC))
    judge = Judge(contract, history(operations), error_patterns=())
    seen = Outcome(tree=tree_of(judge.timeline, data.draw(st.integers(0, len(operations)))), fsck=CLEAN)
    passed = set()
    for begun in range(len(operations) + 1):
        for acked in (begun - 1, begun):
            if acked >= 0:
                position = Position(begun, acked)
                verdict = judge.judge(position, seen).verdict
                assert verdict is Verdict.PASS or judge.promise_set(position) not in passed, position
                if verdict is Verdict.PASS:
                    passed.add(judge.promise_set(position))


def test_what_was_made_after_the_last_sync_was_not_synced_by_it() -> None:
    """An empty file counted as unchanged since the sync, though it was made later: its attributes were
    judged, and the same outcome passed at one crash point and failed at the next one.
    """
    contract = variant(namespace="synced", persists="inode")
    judge = Judge(contract, history(["sync", "create f", "chmod f 600"]), error_patterns=())
    recovered = tree_of(judge.timeline, 3)
    for position in (Position(2, 1), Position(2, 2), Position(3, 2), Position(3, 3)):
        assert judge.judge(position, Outcome(tree=recovered, fsck=CLEAN)).verdict is Verdict.PASS, position


# --- thousands of names ---

MANY = 1000


def many(*lines: str) -> list[str]:
    """A file in a directory, then these lines for every number, and an fsync."""
    numbered = [line.format(n=n) for n in range(MANY) for line in lines]
    return ["mkdir d", "create d/file", "sync", *numbered, "fsync d/file"]


SHAPES = {
    "files": many("create d/{n}"),
    "links": many("link d/file d/{n}"),
    "attributes": many("setxattr d/file user.{n} x"),
    "removed": [*many("symlink d/{n} target"), *(f"unlink d/{n}" for n in range(MANY))],
    "renamed": many("rename d/file d/{n}", "rename d/{n} d/file"),
}


def tree_of(timeline: ModelTimeline, version: int) -> Tree:
    """What is recovered if the names are those of this version; files are empty."""
    entries = []
    for path, name in timeline.names.names(version).items():
        inode = 2000 + timeline.names.inode(path, version)
        if name.kind == "directory":
            entries.append(directory(path, name.mode))
        else:
            made = file(path, inode=inode, links=name.links, mode=name.mode, xattrs=dict(name.xattrs))
            entries.append(made)
    return tree(*entries)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("contract", [ORDERED, EACH], ids=["prefix", "each"])
def test_the_model_of_thousands_of_names_grows_with_their_number(contract: Contract, name: str) -> None:
    """Copies of all names for each operation took gigabytes for 3,000 links."""
    told = history(SHAPES[name])
    tracemalloc.start()
    timeline = replay(contract, told)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert timeline.names.changes <= 4 * len(told.steps)
    assert peak < 8000 * len(told.steps)
    assert calls_of(lambda: replay(contract, told)) < 200 * len(told.steps)


@pytest.mark.parametrize("name", ["files", "links", "attributes"])
@pytest.mark.parametrize("contract", [ORDERED, EACH], ids=["prefix", "each"])
def test_a_state_with_thousands_of_names_is_judged_in_steps_that_grow_with_their_number(
    contract: Contract, name: str
) -> None:
    """Each name of a file with 3,000 links had all of them beside it, and was compared with all of them."""
    operations = history(SHAPES[name])
    judge = Judge(contract, operations, error_patterns=())
    last = len(operations.steps)
    outcome = Outcome(tree=tree_of(judge.timeline, last), fsck=CLEAN)
    verdicts = []
    calls = calls_of(lambda: verdicts.append(judge.judge(Position(last, last), outcome).verdict))
    assert verdicts == [Verdict.PASS]
    assert calls < 300 * MANY


def test_a_message_lists_some_of_thousands_of_names() -> None:
    """It listed all names of a file beside each of them: 9 million names for 3,000 links."""
    operations = SHAPES["links"]
    timeline = replay(ORDERED, history(operations))
    recovered = dict(tree_of(timeline, len(operations)))
    del recovered["d/7"]
    judgement = judged(operations, recovered)
    assert judgement.verdict is Verdict.FAIL
    for v in judgement.violations:
        assert len(v.summary + v.expected + v.found + v.signature) < 100 * LISTED
    assert f"({MANY + 1} in all)" in judgement.violations[0].expected
