"""The states that rules leave possible, against a brute force over all subsets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from harness.model import CrashState
from harness.rules.calls import Notes
from harness.rules.micro import ZEROS, Effect, Micro, Sort, effect_of, unsynced
from harness.rules.states import EVERY_MAX, LISTED_MAX, TORN_MAX, Legal, Partial, Tear
from harness.rules.trees import Maker, contents, key_of
from harness.tests.rules.programs import ROOT, Calls, rules

_BRUTE_MAX = 14


_STEPS = (
    *("new", "below", "write", "durable", "size", "rename", "unlink", "xattr"),
    *("fsync", "fdatasync", "directory"),
)


@st.composite
def programs(draw: st.DrawFn) -> Notes:
    """Calls on a few files of two directories, with syncs and acknowledgements between them."""
    calls = Calls()
    calls.mkdir("d")
    for number in range(draw(st.integers(1, 9))):
        files = sorted(p for p in calls.inodes if p not in (".", "d"))
        step = draw(st.sampled_from([*_STEPS, "sync", "ack"] if files else _STEPS[:2]))
        _take(draw, calls, step, draw(st.sampled_from(files)) if files else "", number)
    return calls.notes()


def _take(draw: st.DrawFn, calls: Calls, step: str, path: str, number: int) -> None:
    match step:
        case "new" | "below":
            calls.create(f"{number}" if step == "new" else f"d/{number}")
        case "write":
            calls.write(path, b"%d" % number * draw(st.sampled_from([10, 700, 5000])))
        case "durable":
            calls.write(path, b"x", 3, durable=draw(st.sampled_from(["dsync", "sync"])))
        case "size":
            calls.size(path, draw(st.sampled_from([0, 5, 9000])))
        case "xattr":
            value = draw(st.sampled_from([None, b"", b"one", b"two"]))
            calls.xattr(path, draw(st.sampled_from(["user.a", "user.b"])), value)
        case "rename":
            calls.rename(path, f"d/r{number}")
        case "directory":
            calls.fsync(draw(st.sampled_from([".", "d"])))
        case "sync":
            calls.sync()
        case "ack":
            calls.ack(str(number))
        case _:
            getattr(calls, step)(path)


def _times(effect: Effect, state: int, *, names: bool, order: bool) -> set[int]:
    """When a set may have persisted: said anew, call by call, without what `states` does."""
    calls, found = effect.notes.calls, set[int]()
    never = sum(m.bit for m in effect.micros if order and _is_half_done(effect, m))
    if (order and not _in_order(effect, state)) or state & never:
        return found
    for time in range(len(calls) + 1):
        if any(state & m.bit and m.call > time for m in effect.micros):
            continue
        durable = 0
        for number, call in enumerate(calls[:time]):
            if call.is_sync or call.durable:
                durable |= _covered_again(effect, number, names=names)
        if order:
            durable = effect.with_needs(durable)
        if not durable & ~never & ~state:
            found.add(time)
    return found


def _is_half_done(effect: Effect, m: Micro) -> bool:
    """Whether it is of a truncation, and neither its size nor zeros in the block of the new end."""
    call = effect.notes.calls[m.call]
    if call.word != "size":
        return False
    return m.size != call.length if m.sort is Sort.SIZE else m.offset % 4096 == 0


def _in_order(effect: Effect, state: int) -> bool:
    for m in effect.micros:
        for n in effect.micros[: m.number]:
            shared = {d for d, _, _ in m.names} & {d for d, _, _ in n.names}
            if shared and state & m.bit and not state & n.bit:
                return False
    return True


def _last_again(effect: Effect, number: int) -> int:
    """The last call up to this sync that changed what is synced, as a journal sees it."""
    call, last = effect.notes.calls[number], -1
    little = (call.word == "fdatasync" or call.durable == "dsync") and call.inode not in (
        i for i, made in effect.made.items() if made.kind == "directory"
    )
    for m in effect.micros:
        of_name = {m.inode, *(d for d, _, _ in m.names), *(held for _, _, held in m.names)}
        if m.sort is Sort.NAME:
            made = effect.notes.calls[m.call].word == "create" and m.inode == call.inode
            counts = made or (not little and call.inode in of_name)
        else:
            counts = m.inode == call.inode and (
                m.sort is Sort.SIZE or (m.sort is not Sort.DATA and not little)
            )
        last = max(last, m.call) if counts and m.call <= number else last
    return last


def _covered_again(effect: Effect, number: int, *, names: bool) -> int:
    call, found = effect.notes.calls[number], 0
    last, leading = _last_again(effect, number), {call.inode}
    for _ in effect.micros:
        leading |= {d for m in effect.micros if m.call <= last for d, _, held in m.names if held in leading}
    size_for = None
    for m in effect.micros:
        if m.sort is Sort.SIZE and m.inode == call.inode and m.call < number:
            size_for = None if m.size < call.offset + call.length else size_for or m
    for m in effect.micros:
        before = m.call < number
        own = m.inode == call.inode and m.sort is not Sort.NAME
        if call.durable and call.word == "write":
            is_owner = m.sort is Sort.ATTRIBUTES
            covered = (m.call == number and not is_owner) or m is size_for
            covered |= own and is_owner and call.durable == "sync" and m.call <= number
        elif call.word == "sync":
            covered = before
        else:
            own = own and (call.word == "fsync" or m.sort is not Sort.ATTRIBUTES)
            covered = before and (own or call.inode in [d for d, _, _ in m.names])
        given = before and m.call <= last and any(held in leading for _, _, held in m.names)
        if names and call.word != "sync" and given:
            covered = True
        found |= m.bit if covered else 0
    return found


@pytest.mark.parametrize(("names", "order"), [(False, False), (True, False), (True, True)])
@settings(max_examples=15)
@given(notes=programs())
def test_states_are_those_of_a_brute_force(notes: Notes, names: bool, order: bool) -> None:
    """Each subset of up to 14 micro-operations that may be left at some time is visited, and no other is: of
    those that leave the same tree, the one with all that shows no more. Blocks are torn in each.
    """
    effect = effect_of(notes, rules(names=names, order=order))
    if len(effect.micros) > _BRUTE_MAX:
        return
    legal, maker = Legal(effect), Maker(effect)
    listed = legal.listed()
    times = {s: _times(effect, s, names=names, order=order) for s in range(effect.every + 1)}
    expected = {s for s in times if times[s]}
    visited = {s.persisted for s in listed if s.torn is None}
    left = {s for s in range(effect.every + 1) if legal.has(Partial(s))}
    assert visited <= left <= expected
    trees = {s: key_of(maker.files(Partial(s))) for s in expected}
    assert all(effect.with_needs(s) in left and trees[effect.with_needs(s)] == trees[s] for s in expected)
    assert all(legal.has(s) for s in listed)
    assert not any(
        legal.has(replace(s, torn=Tear(m.number, cut, end)))
        for s in listed
        for m in effect.micros
        for cut, end in itertools.product((0, 1 << 20), (False, True))
    )
    if listed.every_set:
        assert visited == left
    _are_all_tears(legal, times, left, {s for s in listed if s.torn is not None})


def _are_all_tears(legal: Legal, times: Mapping[int, Set[int]], left: Set[int], listed: Set[Partial]) -> None:
    """Each block is torn that may be there and may be lost at one time, unless nothing shows of it."""
    maker, every = Maker(legal.effect), set[Partial]()
    for whole in left:
        for m in legal.effect.of(whole):
            if m.sort is Sort.DATA and times[whole] & times[whole & ~m.bit]:
                torn = set(_torn_again(whole, m))
                every |= torn if whole & ~m.bit in left else set()
                shown = {key_of(maker.files(s)) for s in torn if whole & ~m.bit not in left}
                assert shown <= {key_of(maker.files(Partial(whole)))}
    assert all(legal.has(s) for s in every)
    assert listed <= every
    assert len(every) - len(listed) <= legal.listed().torn_left or not legal.listed().every_set
    for stretch in legal.stretches:
        here = {s for s in every if not stretch.durable & ~s.whole and not s.persisted & ~stretch.asked}
        few, every_set = (stretch.open.bit_count() <= most for most in (TORN_MAX, EVERY_MAX))
        assert {
            s for s in here if few or (s.persisted == stretch.asked and (every_set or _is_at_few_cuts(s)))
        } <= listed


def _is_at_few_cuts(state: Partial) -> bool:
    """Whether a block is torn behind its first sector or in its middle: only there, where sets are many."""
    return state.torn is not None and state.torn.cut in (512, 4 * 512)


def _torn_again(state: int, micro: Micro) -> Iterator[Partial]:
    """A block torn between any two of its sectors: those before that are there, or the others."""
    first, end = micro.offset // 512, micro.offset + micro.length
    for cut in range(1, -(-end // 512) - first):
        yield from (Partial(state, Tear(micro.number, 512 * cut, end)) for end in (False, True))


@given(notes=programs())
def test_a_state_is_named_and_found_by_its_name(notes: Notes) -> None:
    """A crash point is pasted from one run into another."""
    effect = effect_of(notes, rules())
    for state in tuple(Legal(effect).listed())[:200]:
        text = str(state.named(effect))
        assert Partial.of(CrashState.parse(text), effect) == state


@given(notes=programs())
def test_the_state_of_all_calls_is_what_they_left(notes: Notes) -> None:
    """Trees made of micro-operations are those that the calls made, byte for byte."""
    effect = effect_of(notes, rules())
    files: dict[int, bytearray] = {}
    names: dict[str, int] = {}
    for call in notes.calls:
        if call.word in ("create", "mkdir"):
            names[call.path] = call.inode
            files[call.inode] = bytearray()
        elif call.word == "rename":
            names[call.other] = names.pop(call.path)
        elif call.word == "unlink":
            del names[call.path]
        elif call.word == "size":
            held = files[call.inode]
            held[call.length :] = bytes(max(0, call.length - len(held)))
        elif call.word == "write":
            held = files[call.inode]
            held[len(held) :] = bytes(max(0, call.offset + call.length - len(held)))
            held[call.offset : call.offset + call.length] = notes.data[call.at : call.at + call.length]
    made = Maker(effect).files(Partial(effect.every))
    assert set(made) == set(names)
    for path, entry in made.items():
        assert dict(entry.xattrs) == _xattrs_again(notes, names[path])
        if entry.kind == "file":
            assert contents(notes, entry.size, entry.pieces) == bytes(files[names[path]])


def _xattrs_again(notes: Notes, inode: int) -> dict[str, bytes]:
    found = dict[str, bytes]()
    for call in (call for call in notes.calls if call.inode == inode and call.word.endswith("xattr")):
        found.pop(call.other, None)
        if call.word == "setxattr":
            found[call.other] = notes.data[call.at : call.at + call.length]
    return found


@given(notes=programs(), data=st.data())
def test_a_file_is_made_in_parts_as_it_would_be_from_its_first_write(
    notes: Notes, data: st.DataObject
) -> None:
    """Of a long log, each state had every byte that was ever written to it: 24,627 states took half a minute.
    With blocks of 512 bytes, these files have up to three parts.
    """
    effect = effect_of(notes, structs.replace(rules(), block_bytes=512))
    maker, shown = Maker(effect), dict[bytes, bytes]()
    for _ in range(8):
        state = data.draw(st.integers(0, effect.every))
        for inode, made in maker.by_inode(Partial(state)).items():
            disk, size = bytearray(1 << 16), 0
            for m in (m for m in effect.of(state) if m.inode == inode):
                if m.sort is Sort.SIZE:
                    size = m.size if m.exact else max(size, m.size)
                    end = m.size - m.size % -512
                    disk[end:] = disk[end:] if not m.exact else bytes(len(disk) - end)
                elif m.sort is Sort.DATA:
                    there = bytes(m.length) if m.at == ZEROS else notes.data[m.at : m.at + m.length]
                    disk[m.offset : m.offset + m.length] = there
            held = bytes(disk[:size])
            assert contents(notes, made.size, made.pieces) == held
            if made.kind == "file":
                assert shown.setdefault(made.digest, held) == held
    assert len(set(shown.values())) == len(shown)


def test_many_open_calls_are_covered_by_kinds_and_said_so() -> None:
    """A program that syncs nothing has more sets than anybody visits: those with one loss are all there."""
    calls = Calls()
    for number in range(EVERY_MAX + 5):
        calls.create(f"f{number}")
    effect = effect_of(calls.notes(), rules())
    listed = Legal(effect).listed()
    assert not listed.exhaustive
    visited = {s.persisted for s in listed}
    for m in effect.micros:
        assert effect.every & ~m.bit in visited
        assert m.bit in visited
        assert (1 << m.number) - 1 in visited
        for other in effect.micros[m.number + 1 :]:
            assert effect.every & ~m.bit & ~other.bit in visited


@pytest.mark.parametrize("order", [False, True])
def test_of_very_many_open_calls_only_as_many_sets_are_made_as_are_visited(
    monkeypatch: pytest.MonkeyPatch, order: bool
) -> None:
    """A database that makes its first file of thousands of pages in one go has millions of pairs of them. Of
    names in order, all were made, and each was the state of one loss: a minute for 3,000 names, in which
    nobody looked at the budget.
    """
    made = 0

    def counted(effect: Effect, state: int, lost: int) -> int:
        nonlocal made
        made += 1
        return without(effect, state, lost)

    without = Effect.without
    monkeypatch.setattr(Effect, "without", counted)
    calls = Calls()
    for number in range(LISTED_MAX // 10):
        calls.create(f"f{number}")
    listed = Legal(effect_of(calls.notes(), rules(order=order))).listed()
    prefixes = LISTED_MAX // 10 + 1
    assert len(list(listed)) - prefixes <= LISTED_MAX
    assert made < 3 * LISTED_MAX  # there are 79,800 pairs


def test_states_that_nobody_visits_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """360,000 states of a server were listed before the first was visited, and again for each fsync tried."""
    monkeypatch.setattr("harness.rules.states.torn_at", None)
    monkeypatch.setattr(Effect, "without", None)
    calls = Calls().create("f")
    for number in range(40):
        calls.write("f", b"x", number).fsync("f").create(f"{number}")
    legal = Legal(effect_of(calls.notes(), rules()))
    listed = legal.listed()
    assert list(itertools.islice(listed, len(listed.ends))) == list(listed.ends)
    assert len(legal.stretches) > 40
    assert not listed.exhaustive


@pytest.mark.parametrize(("open_", "singles"), [(LISTED_MAX // 2, True), (LISTED_MAX // 2 + 1, False)])
def test_each_loss_alone_is_covered_only_where_there_is_room_for_all(open_: int, singles: bool) -> None:
    """Of 9,000 open micro-operations 4,000 were lost alone, and the report said each."""
    calls = Calls()
    for number in range(open_):
        calls.create(f"f{number}")
    effect = effect_of(calls.notes(), rules())
    listed = Legal(effect).listed()
    assert listed.singles == singles
    sets = {s.persisted for s in listed}
    alone = {m.bit for m in effect.micros} | {effect.every & ~m.bit for m in effect.micros}
    assert (alone <= sets) == singles
    assert len(sets) <= listed.at_most


def test_a_write_over_a_sector_is_torn_at_one() -> None:
    """A block of 4 KiB persists in part where a disk writes sectors."""
    calls = Calls().create("f").write("f", b"a" * 4096).fsync("f").fsync(".").write("f", b"b" * 4096)
    effect = effect_of(calls.notes(), rules())
    torn = [s for s in Legal(effect).listed() if s.torn is not None and s.last == len(effect.micros) - 1]
    assert [s.torn.cut for s in torn if s.torn and not s.torn.end] == [*range(512, 4096, 512)]
    held = {contents(effect.notes, e.size, e.pieces) for s in torn for e in Maker(effect).files(s).values()}
    begins = {b"b" * n + b"a" * (4096 - n) for n in range(512, 4096, 512)}
    assert held == begins | {b"a" * n + b"b" * (4096 - n) for n in range(512, 4096, 512)}


@pytest.mark.parametrize("at_once", [False, True])
def test_a_block_that_no_sync_covers_is_torn_whatever_is_durable_behind_it(at_once: bool) -> None:
    """Once a later file was synced, it was there whole or not at all, and that was said to be all states."""
    calls = Calls().create("f").write("f", b"a" * 1024).fsync("f").fsync(".").write("f", b"b" * 1024)
    calls = calls.create("g").write("g", b"1").fsync("g").fsync(".").ack("done")
    halves = {b"b" * 512 + b"a" * 512, b"a" * 512 + b"b" * 512}
    assert shown(calls, at_once=at_once) == {b"a" * 1024, b"b" * 1024} | halves


@pytest.mark.parametrize("count", [1, 8, 20, 200])
def test_each_block_that_is_the_only_loss_is_torn_instead(count: int) -> None:
    """Of a few, each behind each later one; of any number, each where all else is there. Nothing but the last
    block was torn.
    """
    calls = Calls().create("f").write("f", bytes(4096 * count)).sync().ack("0")
    for n in range(count):
        calls.write("f", b"x" * 4096, 4096 * n)
    effect = effect_of(calls.notes(), rules())
    legal = Legal(effect)
    listed = legal.listed()
    states, last = set(listed), legal.stretches[-1]
    torn = {(s.persisted, s.last) for s in states if s.torn}
    assert {(last.asked, m.number) for m in effect.of(last.open)} <= torn
    ends = itertools.accumulate((m.bit for m in effect.of(last.open)), int.__or__, initial=last.durable)
    assert count > 20 or {(e, m.number) for e in ends for m in effect.of(e & last.open)} <= torn
    assert len(states) <= listed.at_most


@pytest.mark.parametrize("sync", [Calls.fsync, Calls.fdatasync])
def test_the_names_in_a_directory_are_its_data(sync: Callable[[Calls, str], Calls]) -> None:
    """ext4, XFS and btrfs keep a name whose directory saw fdatasync; SQLite and LevelDB rely on that."""
    notes = sync(Calls().create("f"), ".").ack("f").notes()
    legal = Legal(effect_of(notes, rules()))
    assert {state.persisted for state in legal.listed() if legal.acks(state)} == {1}


def test_msync_makes_the_pages_of_its_range_durable_and_no_others() -> None:
    """It was taken for the whole file: a queue that synced its header page alone passed in all states."""
    calls = Calls().create("q").write("q", b"\0" * 8192).fsync("q").fsync(".")
    calls.write("q", b"job", 4096).write("q", b"1", 7).msync("q", 0, 8).ack("1")
    effect = effect_of(calls.notes(), rules())
    job, header = (m.bit for m in effect.micros[-2:])
    legal = Legal(effect)
    acknowledged = [s.whole for s in legal.listed() if legal.acks(s)]
    assert all(s & header for s in acknowledged)
    assert any(not s & job for s in acknowledged)


def test_what_a_truncation_cuts_off_may_be_zeros_in_a_file_of_the_old_size() -> None:
    """ext4 and XFS write the block with the new end before they commit the size."""
    calls = Calls().create("f").write("f", b"a" * 9000).fsync("f").fsync(".").size("f", 5000)
    effect = effect_of(calls.notes(), rules())
    made = Maker(effect)
    held = set()
    for state in Legal(effect).listed():
        if (file := made.files(state).get("f")) and len(file.pieces) > 1:
            held.add(contents(effect.notes, file.size, file.pieces))
    assert b"a" * 5000 + bytes(3192) + b"a" * 808 in held


def shown(calls: Calls, *, at_once: bool = False) -> set[bytes]:
    """All that the file `f` may hold behind the acknowledgement, which follows the first sync of its name."""
    effect = effect_of(calls.notes(), rules(order=at_once))
    legal, maker, found = Legal(effect), Maker(effect), set[bytes]()
    for state in legal.listed():
        if legal.acks(state):
            file = maker.files(state)["f"]
            found.add(contents(effect.notes, file.size, file.pieces))
    return found


def test_a_large_write_gives_a_file_each_size_that_it_passes_through() -> None:
    """A record that is read to the end of its file was there as a whole, or with zeros: never cut short."""
    held = shown(Calls().create("f").write("f", b"a" * 100).sync().ack("0").write("f", b"b" * 9000, 100))
    assert {len(file) for file in held} == {100, 4096, 8192, 9100}
    assert b"a" * 100 + b"b" * 3996 in held
    gap = shown(Calls().create("f").write("f", b"a" * 100).sync().ack("0").write("f", b"b", 9000))
    assert {len(file) for file in gap} == {100, 4096, 9001}


def test_what_a_later_size_of_the_same_call_outdoes_goes_with_it() -> None:
    """Each record of three blocks had 256 states instead of 80: a log of 100 of them was gone through in half
    a minute.
    """
    made = Calls().create("f").sync()
    grown = _last_stretch(made.write("f", b"a" * 12_000, 300))
    assert len(grown) == 2**4 * 5, "any of four blocks, with none or one of four sizes"
    cut = _last_stretch(made.sync().size("f", 0))
    assert len(cut) == 16 + 16 + 8 + 4 + 2, "zeros in any block that no later size cuts off"


def _last_stretch(calls: Calls) -> set[int]:
    legal = Legal(effect_of(calls.notes(), rules()))
    states = (s for s in legal.listed() if s.torn is None)
    return {s.persisted for s in states if legal.stretches[-1].allows(s)}


def test_a_truncation_may_be_half_done_where_nothing_says_that_it_is_not() -> None:
    """btrfs and JFS cut a large file off in several transactions: a log was there as a whole, or gone."""
    calls = Calls().create("f").write("f", b"a" * 9000).sync().ack("0").size("f", 100)
    held, at_once = shown(calls), shown(calls, at_once=True)
    assert b"a" * 8192 in held
    assert b"a" * 4096 in held
    assert b"a" * 4096 + bytes(4096) + b"a" * 808 in held
    edge = b"a" * 100 + bytes(3996) + b"a" * 4904
    assert {b"a" * 9000, edge} <= at_once
    assert {len(file) for file in at_once} == {100, 9000}
    assert all(b"a" * 4904 in file for file in at_once if len(file) > 100), "but for a torn edge"


def test_what_was_cut_off_is_shown_again_where_the_file_grew_before_the_zeros_persisted() -> None:
    """ext4 with data=writeback shows the old end of a block. What was behind that block is gone."""
    calls = Calls().create("f").write("f", b"a" * 9000).sync().ack("0").size("f", 100).size("f", 8192)
    held = shown(calls, at_once=True)
    assert b"a" * 4096 + bytes(4096) in held
    assert b"a" * 100 + bytes(8092) in held
    assert not any(file[4096:] not in (bytes(4096), b"a" * 4904, b"a" * 4096, b"") for file in held)


def test_states_in_which_a_program_sees_the_same_fold() -> None:
    """A size that a later one outdid, and a file without a name, show nowhere."""
    calls = Calls().create("f").write("f", b"a").write("f", b"b", 1)
    effect = effect_of(calls.notes(), rules())
    made = Maker(effect)
    name, first_size, _, second_size, _ = (m.bit for m in effect.micros)
    without_size = key_of(made.files(Partial(name | second_size)))
    assert without_size == key_of(made.files(Partial(name | first_size | second_size)))
    assert key_of(made.files(Partial(0))) == key_of(made.files(Partial(first_size)))


def test_what_no_sync_covered_is_told_by_file() -> None:
    """No crash is needed to see it."""
    calls = (
        Calls().create("f").write("f", b"a" * 10).fsync("f").write("f", b"b" * 5, 10).create("g").ack("done")
    )
    effect = effect_of(calls.notes(), rules())
    told = dict(unsynced(effect, len(effect.notes.calls)))
    assert told == {"f": "bytes 10 to 15, its size, its name f", "g": "its name g"}
    assert effect.notes.root == ROOT


def test_a_budget_leaves_no_stretch_out_and_those_without_a_promise_to_the_end() -> None:
    """600 writes ahead of the first sync took the budget, and a rename of what nobody had synced was kept in
    each of 1,280 states.
    """
    calls = Calls().create("f")
    for n in range(40):
        calls.write("f", b"x" * 4096, 4096 * n)
    calls.fsync("f").fsync(".").ack("0").create("t").write("t", b"new").create("u").fsync(".").ack("1")
    legal = Legal(effect_of(calls.notes(), rules()))
    listed = legal.listed()
    behind = list(listed)[len(listed.ends) :]
    acked = [legal.acks(state) > 0 for state in behind]
    assert sum(acked) < len(acked), "there are more of those before"
    assert acked == sorted(acked, reverse=True)
    assert len(set(behind)) == len(behind)


def test_what_is_below_a_directory_has_the_name_that_the_directory_got() -> None:
    """What no sync covered was told by a name that a rename of its directory had taken away."""
    calls = Calls().mkdir("next").create("next/a").sync().write("next/a", b"x").rename("next", "current")
    effect = effect_of(calls.notes(), rules())
    assert dict(unsynced(effect, 5)) == {
        "current": "its name current in place of next",
        "current/a": "bytes 0 to 1, its size",
    }
    assert dict(unsynced(effect, 3.5)) == {"next/a": "bytes 0 to 1, its size"}


def test_directories_that_change_places_take_along_what_is_below_them() -> None:
    calls = Calls().mkdir("a").create("a/f").mkdir("b").create("b/f").sync().exchange("a", "b")
    effect = effect_of(calls.notes(), rules())
    paths = {effect.path(inode, 4): effect.path(inode, 5) for inode in effect.paths}
    assert paths == {".": ".", "a": "b", "a/f": "b/f", "b": "a", "b/f": "a/f"}


def test_a_file_that_has_no_name_is_not_told_as_its_directory() -> None:
    calls = Calls()._make("tmpfile", "d").write("d", b"x")
    effect = effect_of(calls.notes(), rules())
    assert dict(unsynced(effect, 2)) == {"a file without a name": "bytes 0 to 1, its size"}


def test_a_directory_has_the_last_name_that_a_state_gives_it() -> None:
    """It was shown at whichever of two names came first in the alphabet, and a durable one was lost."""
    for first, then, last in itertools.permutations(("a", "b", "c")):
        calls = Calls().mkdir("a").mkdir("b").mkdir("c").fsync(".").mkdir(f"{first}/d").fsync(first)
        calls.rename(f"{first}/d", f"{then}/d").rename(f"{then}/d", f"{last}/d").fsync(last).ack("moved")
        effect = effect_of(calls.notes(), rules())
        legal, maker = Legal(effect), Maker(effect)
        shown = {frozenset(maker.files(s)) for s in legal.listed() if legal.acks(s)}
        assert shown == {frozenset(("a", "b", "c", f"{last}/d"))}


@st.composite
def hierarchies(draw: st.DrawFn) -> Notes:
    """Directories that are moved into each other."""
    calls, made = Calls(), [""]
    for number in range(draw(st.integers(2, 4))):
        made.append(f"{draw(st.sampled_from(made))}/{number}".lstrip("/"))
        calls.mkdir(made[-1])
    for number in range(draw(st.integers(1, 4))):
        paths = sorted(calls.inodes)[1:]
        old = draw(st.sampled_from(paths))
        above = draw(st.sampled_from(["", *(p for p in paths if not f"{p}/".startswith(f"{old}/"))]))
        calls.rename(old, f"{above}/m{number}".lstrip("/"))
        moved = {p: calls.inodes.pop(p) for p in paths if p.startswith(f"{old}/")}
        below = calls.made[-1].other
        calls.inodes |= {below + p.removeprefix(old): inode for p, inode in moved.items()}
    return calls.notes()


@pytest.mark.parametrize("order", [False, True])
@given(notes=hierarchies())
def test_no_directory_that_has_a_name_is_below_itself(notes: Notes, order: bool) -> None:
    """`mv a/b b; mv a b/a` behind a sync: with the second alone, each was in the other, and all was gone."""
    effect = effect_of(notes, rules(order=order))
    legal, maker = Legal(effect), Maker(effect)
    for state in filter(legal.has, map(Partial, range(effect.every + 1))):
        above = {held: d for m in effect.of(state.persisted) for d, _, held in m.names if held is not None}
        shown = maker.by_inode(state)
        for inode in above:
            way = [inode]
            while way[-1] in above:
                assert above[way[-1]] not in way
                way.append(above[way[-1]])
            assert (way[-1] == ROOT) == (inode in shown)
