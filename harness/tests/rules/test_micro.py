"""Micro-operations, and how a program's files are told by them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given

from harness.rules.calls import Notes, UnreadableNotes, notes_of
from harness.rules.micro import Micro, Sort, Sync, effect_of, unsynced
from harness.rules.rules import Rules
from harness.rules.states import Legal, Partial
from harness.rules.trees import Maker, key_of
from harness.tests.rules.programs import Calls, rules
from harness.tests.rules.test_states import programs


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        (
            Calls()
            .create("c")
            .write("c", b"old")
            .fsync(".")
            .create("t")
            .fsync("t")
            .rename("t", "c")
            .fsync("."),
            {},
        ),
        (Calls().create("j").write("j", b"zzz").unlink("j").fsync("."), {}),
        (
            Calls()
            .mkdir("d")
            .create("d/j")
            .write("d/j", b"zzz")
            .fsync(".")
            .unlink("d/j")
            .unlink("d")
            .fsync("."),
            {},
        ),
        (Calls().create("f").write("f", b"A" * 100).fsync(".").write("f", b"B" * 100, durable="dsync"), {}),
        (
            Calls().create("f").write("f", b"A" * 100).fsync(".").write("f", b"B" * 9, 50, durable="dsync"),
            {"f": "bytes 0 to 50, bytes 59 to 100"},
        ),
        (
            Calls().create("f").fsync(".").write("f", b"A").write("f", b"BC", 1, durable="dsync"),
            {"f": "bytes 0 to 1"},
        ),
        (Calls().mkdir("d").fsync(".").create("t").rename("t", "d/f").fsync("d"), {}),
    ],
    ids=["replaced", "removed", "directory removed", "over it", "over a part", "longer", "renamed"],
)
def test_what_no_power_cut_can_take_is_not_told(calls: Calls, told: dict[str, str]) -> None:
    """The contents of what a durable rename had replaced were told as what a power cut may take."""
    effect = effect_of(calls.notes(), rules())
    assert dict(unsynced(effect, len(effect.notes.calls))) == told


@given(notes=programs())
def test_where_nothing_is_told_a_power_cut_leaves_one_tree(notes: Notes) -> None:
    effect = effect_of(notes, rules())
    end, maker = Legal(effect).stretches[-1], Maker(effect)
    if not dict(unsynced(effect, len(notes.calls))):
        trees = {key_of(maker.files(Partial(end.asked & ~m.bit))) for m in effect.of(end.open)}
        assert trees <= {key_of(maker.files(Partial(end.asked)))}


def test_a_file_is_told_by_a_name_that_it_has() -> None:
    """The newest was told, such as a hard link to the old contents that the program had removed again."""
    calls = Calls().create("db").link("db", "db.bak").unlink("db.bak").link("db", "a").link("db", "d")
    db = calls.inodes["db"]
    calls.create("b").rename("b", "d").rename("a", "e").unlink("db").unlink("e")
    effect = effect_of(calls.notes(), rules())
    told = [effect.path(db, time) for time in range(len(effect.notes.calls))]
    assert told == ["db", "db.bak", "db", "a", "d", "d", "a", "e", "e", "e"]


def test_a_directory_that_moves_takes_along_every_name_below_it() -> None:
    """Of a file with two names, the older one was told by the directory's old name."""
    calls = Calls().mkdir("d").create("d/a").link("d/a", "d/b").rename("d", "e")
    calls.inodes |= {"e/b": calls.inodes["d/a"]}
    effect = effect_of(calls.unlink("e/b").notes(), rules())
    assert [effect.path(calls.inodes["d/a"], time) for time in range(1, 5)] == ["d/a", "d/b", "e/b", "e/a"]


def test_a_file_that_changed_places_is_told_by_the_name_that_it_got() -> None:
    """The name that it had given up was told, which the other file has."""
    calls = Calls().create("a").create("b").fsync(".").exchange("a", "b")
    assert dict(unsynced(effect_of(calls.notes(), rules()), 4)) == {"b": "its name b"}


@pytest.mark.parametrize("mode", [rules(), rules(names=True, order=True)])
def test_a_write_that_is_durable_as_with_fsync_covers_attributes(mode: Rules) -> None:
    """They were told as what a power cut may take, behind a write with O_SYNC (open(2))."""
    for durable, told in (("sync", {}), ("dsync", {"f": "its attributes"})):
        calls = Calls().create("f").fsync(".").chmod("f", 0o600).write("f", b"x", durable=durable)
        assert dict(unsynced(effect_of(calls.notes(), mode), 4)) == told


@pytest.mark.parametrize("mode", [rules(), rules(names=True, order=True)], ids=["posix", "linux"])
def test_a_set_id_bit_that_a_write_cleared_is_attributes_of_that_write(mode: Rules) -> None:
    """A program that wrote to such a file was not judged: no call was noted that cleared the bit."""
    calls = Calls().create("f").chmod("f", 0o6755).fsync("f").fsync(".")
    calls.write("f", b"A", owner=(0o755, 0, 0)).chmod("f", 0o6755).size("f", 0, owner=(0o2755, 0, 0))
    calls.write("f", b"B", owner=(0o755, 5, 0))  # another owner is no write's doing
    effect = effect_of(calls.notes(), mode)
    own = [(m.call, m.owner[0]) for m in effect.micros if m.sort is Sort.ATTRIBUTES]
    assert own == [(1, 0o6755), (4, 0o755), (5, 0o6755), (6, 0o2755)]
    legal, maker = Legal(effect), Maker(effect)
    trees = [maker.files(state)["f"] for state in legal.listed() if "f" in maker.files(state)]
    assert {(entry.owner[0], entry.size) for entry in trees} >= {(0o6755, 1), (0o755, 0), (0o2755, 1)}


def test_a_write_with_o_dsync_leaves_out_the_bit_that_it_cleared() -> None:
    for durable, told in (("sync", {}), ("dsync", {"f": "its attributes"})):
        calls = Calls().create("f").chmod("f", 0o4755).fsync("f").fsync(".")
        calls.write("f", b"A", durable=durable, owner=(0o755, 0, 0))
        assert dict(unsynced(effect_of(calls.notes(), rules()), 5)) == told


def test_an_extended_attribute_persists_by_itself_and_with_an_fsync() -> None:
    """A program that set one was not judged."""
    calls = Calls().create("f").fsync("f").fsync(".").xattr("f", "user.a", b"1").chmod("f", 0o600)
    calls.xattr("f", "user.b", b"2").xattr("f", "user.a", None)
    effect = effect_of(calls.notes(), rules())
    legal, maker = Legal(effect), Maker(effect)
    trees = [maker.files(state)["f"] for state in legal.listed() if "f" in maker.files(state)]
    a, b = ("user.a", b"1"), ("user.b", b"2")
    assert {(t.xattrs, t.owner[0]) for t in trees} == {
        (xattrs, mode) for xattrs in ((), (a,), (b,), (a, b)) for mode in (0o644, 0o600)
    }
    assert len({key_of(maker.files(state)) for state in legal.listed()}) == 9  # one without `f`
    for sync, told in (("fdatasync", {"f": "its attributes"}), ("fsync", {})):
        synced = getattr(replace(calls, made=[*calls.made]), sync)("f").notes()
        assert dict(unsynced(effect_of(synced, rules()), 8)) == told


def test_notes_of_extended_attributes_are_read() -> None:
    def line(word: str, inode: int, at: int, length: int, flags: str, path: str, other: str) -> str:
        return f"{word}\t0\t0\t{inode}\t0\t{length}\t{at}\t420\t0\t0\t{flags}\t{path}\t{other}\t\t\n"

    told = [
        line("start", 1, 0, 0, "", "", ""),
        line("create", 2, 0, 0, "", "f", ""),
        line("setxattr", 2, 0, 3, "", "", "user.a"),
        line("removexattr", 2, 0, 0, "", "", "user.b"),
        line("left", 2, 3, 0, "file", "f", ""),
        line("left", 0, 3, 3, "xattr", "f", "user.a"),
    ]

    def raw(lines: list[str], data: bytes) -> bytes:
        text = "".join(lines).encode()
        return struct.pack("<I", len(text)) + text + data

    notes = notes_of(raw(told, b"oneone"))
    assert [(c.word, c.other, c.at, c.length) for c in notes.calls[1:]] == [
        ("setxattr", "user.a", 0, 3),
        ("removexattr", "user.b", 0, 0),
    ]
    assert notes.left[0].xattrs == (("user.a", b"one"),)
    assert notes.digest() != notes_of(raw(told, b"twotwo")).digest()
    for lines in (told[:4] + told[5:], told[:2] + told[2:3]):
        with pytest.raises(UnreadableNotes):
            notes_of(raw(lines, b"on"))


def test_a_store_into_a_mapping_clears_no_set_id_bit() -> None:
    """It is noted without an owner, and zeros are what is left where a mode has these bits alone."""
    calls = Calls().create("f").write("f", b"A").chmod("f", 0o6000).store("f", b"B")
    effect = effect_of(calls.notes(), rules())
    assert [(m.call, m.owner[0]) for m in effect.micros if m.sort is Sort.ATTRIBUTES] == [(2, 0o6000)]


def test_runs_that_sync_another_file_have_made_other_calls() -> None:
    """They had one digest, and were compared as runs of the same program."""
    made = [Calls().create("a").create("b").write("a", b"1").write("b", b"1").fsync(f) for f in ("a", "b")]
    assert made[0].notes().digest() != made[1].notes().digest()
    again = replace(
        made[0].notes(), calls=tuple(replace(c, inode=c.inode + 9, thread=1) for c in made[0].made)
    )
    assert again.digest() == made[0].notes().digest()


def test_a_sync_looks_at_what_it_is_about_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each went through all micro-operations before it, and each acknowledgement through all syncs: a log of
    10,000 records took a minute.
    """
    looked = 0

    def bit(micro: Micro) -> int:
        nonlocal looked
        looked += 1
        return 1 << micro.number

    class Syncs(list[Sync]):
        begun = 0

        def __iter__(self) -> Iterator[Sync]:
            self.begun += 1
            return super().__iter__()

    calls = Calls().create("log").fsync(".")
    for n in range(200):
        calls.write("log", b"record", 6 * n).fdatasync("log").ack(str(n))
    monkeypatch.setattr(Micro, "bit", property(bit))
    effect = effect_of(calls.notes(), rules(names=True, order=True))
    assert looked < 10 * len(effect.micros)
    effect.syncs = syncs = Syncs(effect.syncs)
    assert not any(dict(unsynced(effect, ack.calls - 0.5)) for ack in effect.notes.acks)
    assert syncs.begun <= 1
