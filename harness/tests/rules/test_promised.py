"""What contracts promise, as rules: against a brute force that says each rule anew, against the oracles of
operations, and one small program for each rule that breaks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.filesystems.profiles import profiles, ruled_modes, select_profiles
from harness.oracles.contract import Contract
from harness.rules.calls import Left, Notes
from harness.rules.micro import ZEROS, Effect, effect_of, unsynced
from harness.rules.promised import effect_under, rules_of
from harness.rules.states import Legal, Partial
from harness.rules.trees import Entry, Maker, contents, key_of
from harness.tests.rules.allowed import Allowed
from harness.tests.rules.judged import Judged
from harness.tests.rules.programs import OWNER, Calls, rules
from harness.tests.rules.test_vulnerabilities import FunctionCheck, Says

_BRUTE_MAX = 14
_JUDGED_MAX = 10


def contract_of(mode: str) -> Contract:
    return profiles()[mode].contract


def under(mode: str, notes: Notes) -> Effect:
    """A program under the rules of a mode's contract."""
    return effect_under(notes, rules_of(contract_of(mode), mode))


def legal_sets(effect: Effect) -> set[int]:
    """The sets that the rules leave possible, once all calls have returned."""
    durable = 0
    for sync in effect.syncs:
        durable |= sync.covers
    never = ~effect.issued(len(effect.notes.calls))
    sets = (s for s in range(effect.every + 1) if not s & never)
    return {s for s in sets if not durable & ~s and effect.with_needs(s) == s}


_STEPS = (
    "new",
    "below",
    "write",
    "durable",
    "cut",
    "long",
    "move",
    "replace",
    "unlink",
    "mode",
    "xattr",
    "zero",
    "dsync",
)
_SYNCS = ("fsync", "fdatasync", "directory", "sync")


@st.composite
def programs(draw: st.DrawFn, without: Sequence[str] = ()) -> Notes:
    """Calls on a few files of two directories, the second of which is durable."""
    calls = Calls().mkdir("d").fsync(".")
    steps = [step for step in _STEPS if step not in without]
    for number in range(draw(st.integers(1, 8))):
        files = sorted(p for p in calls.inodes if p not in (".", "d"))
        step = draw(st.sampled_from(steps if files else ("new", "below")))
        path = draw(st.sampled_from(files)) if files else ""
        offset, length = (draw(st.sampled_from(choices)) for choices in ((0, 512, 4096), (512, 4096, 8192)))
        others = [p for p in files if p != path] or [path]
        if step in ("new", "below"):
            calls.create(f"{number}" if step == "new" else f"d/{number}")
        elif step == "replace":
            calls = calls.rename(path, draw(st.sampled_from(others))) if others != [path] else calls.sync()
        else:
            _take(calls, step, path, (offset, length), number)
    return calls.notes()


def _take(calls: Calls, step: str, path: str, place: tuple[int, int], number: int) -> None:
    (offset, length), text = place, b"%d" % number
    match step:
        case "write":
            calls.write(path, text * length, offset)
        case "durable" | "dsync":
            calls.write(path, text * 512, offset, durable="sync" if step == "durable" else step)
        case "cut" | "long":
            calls.size(path, 0 if step == "cut" else 16384)
        case "zero":
            calls.zero(path, offset, 4096)
        case "move":
            calls.rename(path, f"{'d/' if path.startswith('d/') else ''}r{number}")
        case "mode":
            calls.chmod(path, 0o600 if length == 512 else 0o644)
        case "xattr":
            calls.xattr(path, f"user.{length}", b"%d" % offset)
        case "directory":
            calls.fsync("d" if length == 512 else ".")
        case "sync":
            calls.sync()
        case _:
            getattr(calls, step)(path)


def different() -> list[str]:
    """A mode of each contract that can be put into rules."""
    by_rules = {p.rules.contract: p.mode for p in reversed(ruled_modes().values()) if p.rules}
    return sorted(mode.replace("-", "/", 1) for contract, mode in by_rules.items() if contract)


def _with_way(effect: Effect, state: int) -> int:
    """With what the truncations that are there did on the way, which shows nowhere behind them."""
    done = {m.call for m in effect.of(state) if m.exact and not m.on_the_way}
    return state | sum(m.bit for m in effect.micros if m.on_the_way and m.call in done)


_CUT = Calls().create("0").write("0", b"1" * 512, 0).size("0", 0).sync().create("4").notes()


@pytest.mark.parametrize("mode", different())
@settings(max_examples=8)
@given(notes=programs())
@example(notes=_CUT)
def test_a_contract_leaves_no_state_that_the_standard_forbids(mode: str, notes: Notes) -> None:
    """A mode that promises more than another cannot lose more."""
    effect, base = under(mode, notes), effect_of(notes, rules())
    assert [(m.call, m.sort, m.names, m.at) for m in effect.micros] == [
        (m.call, m.sort, m.names, m.at) for m in base.micros
    ]
    if len(effect.micros) <= _BRUTE_MAX:
        allowed = Legal(base)
        legal = Legal(effect)
        left = [s for s in range(effect.every + 1) if legal.has(Partial(s))]
        # By itself the standard demands only that what shows no more be there, such as half a truncation.
        assert all(allowed.has(Partial(_with_way(base, base.with_needs(s)))) for s in left)
        listed = legal.listed()
        assert all(legal.has(s) for s in listed)
        if listed.exhaustive:
            visited = {s.persisted for s in listed if s.torn is None}
            assert visited == {s for s in range(effect.every + 1) if legal.has(Partial(s))}


@pytest.mark.parametrize(
    ("mode", "without"),
    [
        ("ext4/ordered", ()),
        ("ext4/journal", ()),
        ("ext4/nodelalloc", ()),
        ("ext4/writeback", ()),
        ("ext3/writeback", ()),
        ("gfs2/default", ()),
        ("nilfs2/strict", ()),
        ("xfs/default", ("durable", "dsync")),  # of what these make durable, the size is more than they need
        ("xfs/wsync", ("durable", "dsync")),
        ("btrfs/default", ()),
        ("btrfs/notreelog", ()),
        ("btrfs/flushoncommit", ()),
        ("f2fs/posix", ()),
        ("f2fs/strict", ()),
        ("ext4/fast_commit", ()),
    ],
)
@settings(max_examples=25)
@given(data=st.data())
def test_the_rules_leave_no_tree_that_the_contract_forbids(
    mode: str, without: Sequence[str], data: st.DataObject
) -> None:
    """The oracles of operations judge each tree by the contract itself, with no rule of this kind."""
    _leave_nothing_forbidden(mode, data.draw(programs(("zero", *without))))


@pytest.mark.parametrize("mode", ["btrfs/default", "f2fs/posix", "f2fs/strict", "ext4/fast_commit"])
@pytest.mark.parametrize("durable", ["dsync", "sync"])
def test_so_it_is_of_a_durable_write_after_a_rename_over_a_name(mode: str, durable: str) -> None:
    """Of such a program the law above failed, and drew one once in thousands."""
    calls = Calls().create("a").create("b").write("a", b"1" * 512).rename("a", "b")
    _leave_nothing_forbidden(mode, calls.write("b", b"2" * 512, durable=durable).notes())


def _leave_nothing_forbidden(mode: str, notes: Notes) -> None:
    effect = under(mode, notes)
    if len(effect.micros) <= _JUDGED_MAX:
        judged = Judged(effect, contract_of(mode))
        for state in legal_sets(effect):
            assert not judged.refusal(state), f"{[c.text for c in notes.calls]}: {state:b}"


_TELLS_LESS = ("zero", "cut", "long", "unlink", "replace")
"""What a contract leaves half done, or promises nothing of any more, where the rules of any mode do not."""


@pytest.mark.parametrize(
    "mode",
    [
        *("ext4/ordered", "ext4/journal", "ext4/nodelalloc", "ext4/writeback", "ext3/writeback"),
        *("gfs2/default", "nilfs2/strict", "xfs/default", "xfs/wsync", "btrfs/default", "btrfs/notreelog"),
        *("btrfs/flushoncommit", "f2fs/posix", "f2fs/strict", "ext4/fast_commit"),
    ],
)
@settings(max_examples=25)
@given(notes=programs(_TELLS_LESS))
def test_the_rules_forbid_no_tree_that_the_contract_allows(mode: str, notes: Notes) -> None:
    """Of the trees that `any/posix` leaves possible: a promise that a contract does not make would let a
    program pass that loses data.
    """
    effect, base = under(mode, notes), effect_of(notes, rules())
    if len(effect.micros) > _JUDGED_MAX:
        return
    maker, judged = Maker(effect), Judged(effect, contract_of(mode))
    trees: dict[bytes, int] = {}
    for state in legal_sets(replace(base, needs=base.needs)):
        trees.setdefault(key_of(maker.files(Partial(state))), state)
    left = {key_of(maker.files(Partial(state))) for state in legal_sets(effect)}
    for key, state in trees.items():
        assert key in left or judged.refusal(state), f"{[c.text for c in notes.calls]}: {state:b}"


_CHUNK, _BLOCK = 512, 4096
_Version = tuple[int, tuple[int, ...]]
"""Of a file: its size, and of each chunk where its bytes come from."""


def versions_of(notes: Notes) -> list[_Version]:
    """The file `f` after each call, as the program saw it."""
    size, chunks, found = 0, [ZEROS] * 64, list[_Version]()
    for call in notes.calls:
        first, last = call.offset // _CHUNK, (call.offset + call.length) // _CHUNK
        if call.word == "write":
            chunks[first:last] = [call.at + _CHUNK * n for n in range(last - first)]
            size = max(size, call.offset + call.length)
        elif call.word == "size":
            size = call.length
            chunks[size // _CHUNK :] = [ZEROS] * (64 - size // _CHUNK)
        found.append((size, tuple(chunks)))
    return found


def _on_the_way(notes: Notes, versions: Sequence[_Version], since: int) -> Iterator[int]:
    """The sizes that writes pass through: of the block that ended the file, and of those that are written."""
    for number, (call, (size, _)) in enumerate(zip(notes.calls, [(0, ()), *versions], strict=False)):
        if call.word == "write" and number > since:
            ends = range(call.offset + _BLOCK - call.offset % _BLOCK, call.offset + call.length, _BLOCK)
            yield from (end for end in ends if end > size)
            tail = size - size % -_BLOCK
            yield from (tail,) if size < tail <= call.offset else ()


def file_of(size: int, chunks: Sequence[int]) -> Entry:
    pieces = ((at, _CHUNK * n, _CHUNK) for n, at in enumerate(chunks[: size // _CHUNK]) if at != ZEROS)
    return Entry("file", OWNER, size, tuple(pieces))


@pytest.mark.parametrize("mode", [m for m in different() if not contract_of(m).stale_allowed])
@settings(max_examples=25)
@given(data=st.data())
def test_the_standard_forbids_no_contents_that_a_contract_allows(mode: str, data: st.DataObject) -> None:
    """Sizes in the middle of a large write, half of a truncation, and what was cut off and is shown again by
    an extension: programs passed under `any/posix` that ext4 and XFS may break. Each block is as the program
    saw it once, or zeros; each size is one that the file had, or passed through.
    """
    calls = Calls().create("f").fsync(".")
    for number in range(data.draw(st.integers(1, 5))):
        step = data.draw(st.sampled_from(["write", "write", "cut", "shorter", "long", "fsync"]))
        offset, length = data.draw(
            st.sampled_from([(0, 512), (512, 512), (0, 8192), (4096, 4096), (9216, 512)])
        )
        if step == "shorter":
            calls.size("f", 1024)
        else:
            _take(calls, step, "f", (offset, length), number)
    notes = calls.notes()
    versions, count = versions_of(notes), len(notes.calls)
    whole = max(n for n, call in enumerate(notes.calls) if call.word in ("create", "fsync"))
    sizes = {size for size, _ in versions[whole:]} | set(_on_the_way(notes, versions, whole))
    size = data.draw(st.sampled_from(sorted(sizes)))
    chunks: list[int] = []
    for start in range(0, size, _BLOCK):
        block = slice(start // _CHUNK, (start + _BLOCK) // _CHUNK)
        kept = sorted({held[block] for _, held in versions[whole:]} | {(ZEROS,) * 8})
        chunks += data.draw(st.sampled_from(kept))
    made = file_of(size, chunks)
    if Judged(under(mode, notes), contract_of(mode)).refusal_of({"f": made}):
        return
    allowed = Allowed(effect_of(notes, rules()))
    left = Left("f", "file", OWNER, contents(notes, made.size, made.pieces))
    refused = allowed.refusal([left], allowed.between(count, count))
    assert not refused, f"{[c.text for c in notes.calls]}: {size}, {chunks}: {refused}"


def survives(mode: str, calls: Calls, says: Says) -> bool:
    """Whether a check says yes to every state that a mode leaves; `posix`: of `any/posix`."""
    notes = calls.notes()
    effect = effect_of(notes, rules()) if mode == "posix" else under(mode, notes)
    legal, check = Legal(effect), FunctionCheck(notes, Maker(effect), says)
    return all(check.passes(state, legal.acks(state)) for state in legal.listed())


A, B, OLD = b"a" * 4096, b"b" * 4096, b"o" * 4096


def _durable(*paths: str) -> Calls:
    calls = Calls().mkdir("d")
    for path in paths:
        calls = calls.create(path).write(path, OLD)
    return calls.sync().ack("0")


@dataclass(frozen=True)
class Breaks:
    """A program that relies on a rule: the modes that have it, and those that do not."""

    rule: str
    calls: Calls
    says: Says
    kept_by: tuple[str, ...]
    broken_by: tuple[str, ...]


BREAKS = (
    Breaks(
        "namespace = prefix",
        _durable().create("a").create("d/b"),
        lambda held, _: "d/b" not in held or "a" in held,
        ("ext4/ordered", "xfs/default", "nilfs2/default", "btrfs/notreelog"),
        ("btrfs/default", "f2fs/posix", "ext4/fast_commit", "posix"),
    ),
    Breaks(
        "persists = transaction",
        _durable().create("a").create("b").fsync("b").ack("1"),
        lambda held, acks: acks < 2 or "a" in held,
        ("ext4/ordered", "xfs/default"),
        ("btrfs/default", "f2fs/strict"),
    ),
    Breaks(
        "persists = inode: the name used",
        _durable().create("a").write("a", A).fsync("a").ack("1"),
        lambda held, acks: acks < 2 or held.get("a") == A,
        ("btrfs/default", "f2fs/posix", "ext4/fast_commit"),
        ("posix",),
    ),
    Breaks(
        "persists = operations",
        _durable().create("a").ack("1"),
        lambda held, acks: acks < 2 or "a" in held,
        ("xfs/wsync",),
        ("xfs/default", "ext4/journal"),
    ),
    Breaks(
        "replace_is_safe",
        _durable("f").create("t").write("t", A).rename("t", "f"),
        lambda held, acks: not acks or len(held["f"]) == 4096,
        ("ext4/ordered", "ext4/nodelalloc"),
        ("ext4/writeback", "xfs/default", "btrfs/default"),
    ),
    Breaks(
        "data = ordered, and no zeros in new blocks",
        _durable().create("a").write("a", A).create("b"),
        lambda held, _: "b" not in held or held["a"] == A,
        ("ext4/nodelalloc", "ext3/ordered", "gfs2/default", "ext4/journal"),
        ("ext4/ordered", "ext4/writeback-nodelalloc", "xfs/default"),
    ),
    Breaks(
        "size_lags = false",
        _durable().create("a").write("a", A).create("b"),
        lambda held, _: "b" not in held or len(held["a"]) == 4096,
        ("ext4/writeback-nodelalloc", "ext3/writeback", "jfs/default"),
        ("ext4/ordered", "ext4/writeback", "xfs/default"),
    ),
    Breaks(
        "data = journal: order",
        _durable("f", "g").write("f", A).write("g", B),
        lambda held, acks: not acks or held["g"] != B or held["f"] == A,
        ("ext4/journal", "nilfs2/strict", "btrfs/flushoncommit-notreelog"),
        ("ext4/ordered", "ext3/ordered"),
    ),
    Breaks(
        "data = journal: nothing is torn",
        _durable("f").write("f", A),
        lambda held, acks: not acks or held["f"] in (OLD, A),
        ("ext4/journal",),
        ("ext4/ordered", "xfs/default"),
    ),
    Breaks(
        "data = journal: pages in their order, each with its size",
        _durable().create("f").write("f", A + B),
        lambda held, _: held.get("f") in (None, b"", A, A + B),
        ("ext4/journal",),
        ("ext3/ordered", "xfs/default"),
    ),
    Breaks(
        "data-at-end",
        _durable("f").write("f", A, 4096),
        lambda held, acks: not acks or held["f"] in (OLD, OLD + A),
        ("xfs/default", "ext4/journal"),
        ("ext4/ordered", "ext3/ordered", "btrfs/default"),
    ),
    Breaks(
        "data-at-end: not of a file that was cut",
        _durable("f").size("f", 0).write("f", A),
        lambda held, acks: not acks or held["f"] in (OLD, b"", A),
        ("ext4/journal",),
        ("xfs/default",),
    ),
    Breaks(
        "overwrites-commit",
        _durable("f").create("a").write("f", A).fdatasync("f").ack("1"),
        lambda held, acks: acks < 2 or "a" in held,
        ("btrfs/notreelog", "ext4/journal"),
        ("ext4/ordered", "xfs/default", "reiserfs/ordered"),
    ),
    Breaks(
        "whole blocks are zeroed in order",
        _durable("f").zero("f", 0, 4096).create("a"),
        lambda held, _: "a" not in held or held["f"] == bytes(4096),
        ("ext4/ordered", "xfs/default", "ext3/writeback"),
        ("btrfs/default", "posix"),
    ),
    Breaks(
        "zeroed-edges-lag",
        _durable("f").zero("f", 0, 2048).create("a"),
        lambda held, _: "a" not in held or held["f"] == bytes(2048) + OLD[2048:],
        ("gfs2/default", "nilfs2/default", "ext4/journal"),
        ("ext4/ordered", "ext3/ordered", "xfs/default"),
    ),
    Breaks(
        "extension-zeroes; what a truncation zeroes is in order",
        _durable("f").size("f", 2048).size("f", 8192),
        lambda held, acks: not acks or held["f"] != OLD + bytes(4096),
        ("xfs/default", "ext4/ordered", "ext3/ordered", "ext4/journal"),
        ("ext4/writeback", "posix"),
    ),
    Breaks(
        "sizes of a file are in order",
        _durable("f").size("f", 0).size("f", 8192),
        lambda held, acks: not acks or held["f"] in (OLD, b"", bytes(8192)),
        ("btrfs/default", "ext4/ordered"),
        ("posix",),
    ),
    Breaks(
        "exchange-leaves-inodes",
        _durable("f", "g").write("g", A).sync().exchange("f", "g").fsync("f").ack("1"),
        lambda held, acks: acks < 2 or held["f"] == A,
        ("ext4/ordered", "btrfs/default"),
        ("xfs/default", "f2fs/posix"),
    ),
    Breaks(
        "reused-name-loses",
        _durable("f").rename("f", "g").create("f").fsync("f"),
        lambda held, acks: not acks or OLD in held.values(),
        ("btrfs/default", "f2fs/strict", "ext4/ordered"),
        ("f2fs/posix", "posix"),
    ),
    Breaks(
        "rename-commits",
        _durable("f").rename("f", "d/g").create("d/new").fsync("d/new").ack("1"),
        lambda held, acks: acks < 2 or "d/g" in held,
        ("f2fs/strict", "ext4/ordered"),
        ("f2fs/posix", "btrfs/default"),
    ),
    Breaks(
        "what was synced keeps a name",
        _durable("f").link("f", "g").unlink("f"),
        lambda held, acks: not acks or OLD in held.values(),
        ("btrfs/default", "f2fs/posix"),
        ("posix",),
    ),
    Breaks(
        "what was not synced keeps none",
        _durable().create("f").rename("f", "g").create("f").fsync("f").ack("1"),
        lambda held, acks: acks < 2 or "g" in held,
        ("ext4/ordered",),
        ("btrfs/default", "f2fs/posix"),
    ),
    Breaks(
        "what was synced keeps its directory",
        _durable("f").mkdir("e").rename("f", "e/f"),
        lambda held, acks: not acks or OLD in held.values(),
        ("btrfs/default", "f2fs/posix", "ext4/ordered"),
        ("posix",),
    ),
    Breaks(
        "fsync covers attributes up to the last change of data",
        _durable().create("f").chmod("f", 0o600).write("f", A).fdatasync("f").ack("1").create("g"),
        lambda held, acks: acks < 2 or held.get("f") == A,
        ("btrfs/default", "ext4/ordered"),
        ("posix",),
    ),
)


@pytest.mark.parametrize("of", BREAKS, ids=lambda of: of.rule)
def test_each_rule_has_a_program_that_breaks_it(of: Breaks) -> None:
    """It passes where the rule holds, and fails where it does not."""
    assert {mode: survives(mode, of.calls, of.says) for mode in (*of.kept_by, *of.broken_by)} == {
        **dict.fromkeys(of.kept_by, True),
        **dict.fromkeys(of.broken_by, False),
    }


def test_a_file_has_no_more_names_than_links() -> None:
    """Of two renames, the second alone would leave the file at its first name and at its last."""
    calls = Calls().create("f").rename("f", "g").rename("g", "h")
    twice = Partial(0b101)
    assert Legal(effect_of(calls.notes(), rules())).has(twice)
    assert not Legal(under("btrfs/default", calls.notes())).has(twice)
    assert not Legal(under("ext4/ordered", calls.notes())).has(twice)


@pytest.mark.parametrize(
    ("calls", "lost"),
    [
        (Calls().create("f").fsync("f"), {"xfs/default": False, "f2fs/posix": False}),
        (Calls().create("f").link("f", "g").fsync("g"), {"xfs/default": False, "f2fs/posix": True}),
        (Calls().mkdir("d").create("d/f").fsync("d/f"), {"xfs/default": False, "f2fs/posix": False}),
        (Calls().create("f").fdatasync("f"), {"ext4/ordered": False, "btrfs/default": False}),
        (Calls().create("f").sync().chmod("f", 0o600).fdatasync("f"), {"ext4/ordered": True}),
        (Calls().create("f").sync().chmod("f", 0o600).fsync("f"), {"ext4/ordered": False}),
        (Calls().create("f").sync().rename("f", "g").fdatasync("g"), {"ext4/ordered": True}),
        (Calls().create("f").sync().rename("f", "g").fdatasync("."), {"ext4/ordered": False}),
        (Calls().create("f").sync().create("g").msync("f", 0, 8), {"xfs/default": True}),
    ],
    ids=lambda case: "-".join(call.word for call in case.made) if isinstance(case, Calls) else "",
)
def test_a_sync_covers_what_the_contract_says(calls: Calls, lost: dict[str, bool]) -> None:
    """`lost`: whether anything may be, by mode. Of two names, the notes do not tell which was used."""
    for mode, may_be_lost in lost.items():
        effect = under(mode, calls.notes())
        assert (legal_sets(effect) != {effect.every}) is may_be_lost, mode


def _fills_a_hole(before: Calls) -> dict[str, str]:
    """What may be lost once a write has filled a hole and an fsync of that file has returned."""
    before.size("f", 8192).fsync("f").fsync(".").create("new").write("f", b"A" * 4096).fsync("f")
    return dict(unsynced(under("ext4/ordered", before.notes()), len(before.made)))


def test_an_open_that_empties_an_empty_file_allocates_no_block() -> None:
    """It was taken for fallocate(2): the write changed nothing, and the fsync behind it did not commit."""
    made = Calls().create("f").chmod("f", 0o6755).fsync("f")
    assert not _fills_a_hole(made.empty("f", owner=(0o755, 0, 0)).chmod("f", 0o644))


def test_fallocate_that_keeps_the_size_may_have_allocated_any_block() -> None:
    """As the oracles say: a write to a block that is allocated is no change that fsync has to commit."""
    assert not _fills_a_hole(Calls().create("f"))
    assert _fills_a_hole(Calls().create("f").reserve("f", 8192)) == {"new": "its name new"}


def test_any_names_the_modes_of_no_file_system() -> None:
    """With one of each contract, a run of two modes would have become one of eighty."""
    assert [p.name for p in select_profiles(["any"])] == ["any/linux", "any/posix"]
    (made,) = select_profiles(["any/ext4-ordered"])
    assert made.rules == rules_of(contract_of("ext4/ordered"), "ext4/ordered")
    assert not [p.name for p in select_profiles(["all"]) if p.rules]


@pytest.mark.parametrize("mode", sorted(profiles()))
def test_each_contract_is_a_mode_or_is_refused_with_the_reason(mode: str) -> None:
    """What a contract leaves open cannot be left out: a program would pass that loses data."""
    name = f"any/{mode.replace('/', '-', 1)}"
    contract = contract_of(mode)
    if contract.namespace in ("prefix", "each") and "writes-at-once" not in contract.rules:
        (made,) = select_profiles([name])
        assert made.rules is not None
        assert mode in made.summary
    else:
        why = "writes-at-once" if contract.namespace == "prefix" else "namespace = "
        with pytest.raises(UsageError, match=f"contract of {mode} cannot be put into rules: {why}"):
            select_profiles([name])
