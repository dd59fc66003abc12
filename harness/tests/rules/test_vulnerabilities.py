"""Which order a program relies on, and which fsync would give it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from harness.rules.calls import STORE, NotedCall, Notes
from harness.rules.micro import Sort, effect_of
from harness.rules.remedies import Remedy
from harness.rules.search import Search
from harness.rules.states import Legal, Partial
from harness.rules.trees import Maker, contents
from harness.rules.vulnerabilities import Reducer, Vulnerability
from harness.rules.words import Words, text_of
from harness.tests.rules.programs import ROOT, Calls, rules

Held = dict[str, bytes]
Says = Callable[[Held, int], bool]


@dataclass(frozen=True)
class FunctionCheck:
    """A check that is a function of files and acknowledgements."""

    notes: Notes
    maker: Maker
    says: Says
    tells: Callable[[Held, int], str] = lambda held, acks: ""
    is_late: bool = False
    is_over: bool = False
    at_once: int = 64

    def passes(self, state: Partial, acks: int) -> bool:
        return self.says(self._held(state), acks)

    def said(self, state: Partial, acks: int) -> str:
        return self.tells(self._held(state), acks)

    def _held(self, state: Partial) -> Held:
        files = self.maker.files(state)
        return {p: contents(self.notes, e.size, e.pieces) for p, e in files.items() if e.kind == "file"}

    def ask(self, states: Iterable[tuple[Partial, int]]) -> None:
        """It answers at once."""


def search(
    notes: Notes,
    says: Says,
    *,
    names: bool = False,
    order: bool = False,
    tells: Callable[[Held, int], str] = lambda held, acks: "",
) -> Search:
    """All vulnerabilities of a program whose check is a function of its files and the acknowledgements."""
    effect = effect_of(notes, rules(names=names, order=order))
    legal, check = Legal(effect), FunctionCheck(notes, Maker(effect), says, tells)
    made = Search(legal, check)
    made.look([s for s in legal.listed() if not check.passes(s, legal.acks(s))])
    return made


def many_names(count: int) -> tuple[Legal, Notes]:
    """Names that no sync covers."""
    calls = Calls().sync()
    for number in range(count):
        calls.create(f"f{number}")
    notes = calls.ack("done").notes()
    return Legal(effect_of(notes, rules())), notes


def test_a_cause_among_thousands_of_calls_takes_few_checks() -> None:
    """Each call was put back and taken away by itself: of a server's 5,000, at a second each."""
    legal, notes = many_names(2000)
    asked: list[Partial] = []

    def passes(state: Partial, acks: int) -> bool:
        asked.append(state)
        return not acks or bool(state.persisted >> 1234 & 1)

    found = Reducer(legal, passes).reduced(Partial(0), len(notes.acks))
    assert (found.missing, found.present, found.acks) == (1 << 1234, 0, 1)
    assert len(asked) < 60


def test_the_first_cause_has_an_end_where_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of two minutes would have been asked on, for as many states as it took."""
    legal, notes = many_names(200)
    check = FunctionCheck(
        notes, Maker(legal.effect), lambda held, acks: not acks or "f123" in held, is_late=True
    )
    looked = Search(legal, check)
    assert looked.look([Partial(0)]), "few are asked, late or not"
    monkeypatch.setattr("harness.rules.search.LATE_MAX", 4)
    looked = Search(legal, check)
    assert not looked.look([Partial(0)])
    assert looked.rest == [Partial(0)]


def as_store(call: NotedCall, path: str) -> NotedCall:
    """A write as it is noted of a store into a mapping."""
    return replace(call, text=f"{STORE} of {path} ({call.length} at {call.offset})")


def headlines(looked: Search) -> list[str]:
    return [kind.headline for kind in looked.kinds.values()]


def replaced(*, sync_file: bool, sync_directory: bool) -> Notes:
    """A configuration that is replaced as libraries for atomic writes do it."""
    calls = Calls().create("c").write("c", b"old").fsync("c").fsync(".").ack("0")
    calls.create("t").write("t", b"new")
    if sync_file:
        calls.fsync("t")
    calls.rename("t", "c")
    if sync_directory:
        calls.fsync(".")
    return calls.ack("1").notes()


def is_whole(held: Held, acks: int) -> bool:
    """The configuration is the old one, or the new one; the new one if that was acknowledged."""
    return acks == 0 or held.get("c") in ([b"new"] if acks > 1 else [b"old", b"new"])


def test_a_program_that_syncs_in_the_right_order_has_no_vulnerability() -> None:
    """A finding that is none would send an author to change what is right."""
    assert not search(replaced(sync_file=True, sync_directory=True), is_whole).kinds


def test_a_rename_before_its_data_is_told_with_the_fsync_that_helps() -> None:
    """ext4 hid it by a flush at rename(2): nothing said that the program relies on it."""
    looked = search(replaced(sync_file=False, sync_directory=True), is_whole)
    assert (
        "the data of `write(t, 3 at 0)` must persist before the change of names by `rename(t, c)`"
        in headlines(looked)
    )
    told = "fsync of `t` after call 5, `write(t, 3 at 0)`"  # "of `c`", said the old one: its later name
    assert looked.words.remedies(looked.remedies) == told
    least = looked.smallest()
    assert (len(least), looked.failing_with(least)[0]) == (1, 0)


def test_what_an_acknowledgement_wants_was_called_before_it() -> None:
    """Of a page that was stored to once more, the store behind the acknowledgement was named as well."""
    calls = Calls().create("t").write("t", b"a").ack("row 1").write("t", b"b", 1).ack("row 2")
    calls.made = [as_store(c, "t") if c.word == "write" else c for c in calls.made]
    effect = effect_of(calls.notes([]), rules())
    stored = effect.every & ~effect.issued(0)
    said = [Words(effect).headline(Vulnerability(Partial(1), n, stored, 0, 1)) for n in (1, 2)]
    assert said == [
        "the data of `a store into a mapping of t (1 at 0)` must persist before `row 1` is acknowledged",
        "the data of `a store into a mapping of t (1 at 0)` and the data of `a store into a mapping of t "
        "(1 at 1)` must persist before `row 2` is acknowledged",
    ]


def test_a_directory_that_is_not_synced_is_told_by_what_was_acknowledged() -> None:
    """The rename itself has to persist before the program says so."""
    looked = search(replaced(sync_file=True, sync_directory=False), is_whole)
    assert headlines(looked) == [
        "the change of names by `rename(t, c)` must persist before `1` is acknowledged"
    ]
    words = looked.words.remedies(looked.remedies)
    assert words == "fsync of the directory `.` after call 7, `rename(t, c)`"
    assert looked.failing_with(looked.remedies)[0] == 0


def test_a_rename_into_another_directory_wants_that_directory_synced() -> None:
    """The directory that the file had left was named. By the rules, either helps."""
    calls = (
        Calls().mkdir("tmp").mkdir("new").fsync(".").create("tmp/1").write("tmp/1", b"mail").fsync("tmp/1")
    )
    notes = calls.rename("tmp/1", "new/1").fsync(".").ack("1").notes()
    looked = search(notes, lambda held, acks: not acks or held.get("new/1") == b"mail")
    assert {(r.after, r.inode) for r in looked.remedies} == {(6, calls.inodes["new"])}


def test_the_rules_of_linux_make_a_synced_file_keep_its_name() -> None:
    """A new log whose file alone is synced is right on a journaling file system, not by the standard."""
    notes = Calls().create("log").write("log", b"one").fsync("log").ack("one").notes()

    def there(held: Held, acks: int) -> bool:
        return not acks or held.get("log") == b"one"

    assert search(notes, there).kinds
    assert not search(notes, there, names=True, order=True).kinds


def _made() -> Calls:
    """A file `t` that is durable, with its name."""
    return Calls().create("t").write("t", b"12345").fsync("t").fsync(".")


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        (_made().rename("t", "f").fdatasync("f"), False),
        (_made().rename("t", "f").fsync("f"), True),
        (_made().rename("t", "f").msync("f", 0, 4096), False),
        (_made().link("t", "f").write("f", b"67", durable="dsync"), False),
        (_made().link("t", "f").write("f", b"67", durable="sync"), True),
        (_made().rename("t", "f").write("f", b"6", 5).fdatasync("f"), True),
        (_made().rename("t", "f").write("f", b"6", 5, durable="dsync"), True),
        (_made().rename("t", "f").fdatasync("."), True),
        (Calls().create("f").fdatasync("f"), True),
        (Calls().create("t").rename("t", "f").fdatasync("f"), False),
        (Calls()._make("tmpfile", "t").link("t", "f").fdatasync("f"), False),
    ],
    ids=[
        *("fdatasync", "fsync", "msync", "O_DSYNC", "O_SYNC", "grown", "grown O_DSYNC", "directory"),
        *("new", "new renamed", "O_TMPFILE"),
    ],
)
def test_a_sync_has_the_names_up_to_the_last_change_that_it_waits_for(calls: Calls, right: bool) -> None:
    """fdatasync, O_DSYNC and msync made a rename durable, so programs without an fsync behind it passed. And
    fdatasync of a new, empty file did not make its name durable, as every journaling file system does.
    """
    looked = search(
        calls.ack("f").notes(), lambda held, acks: not acks or "f" in held, names=True, order=True
    )
    assert bool(looked.kinds) is not right


@pytest.mark.parametrize("changed", [False, True])
def test_a_sync_of_a_file_that_has_not_changed_says_nothing_of_its_directory(changed: bool) -> None:
    calls = Calls().mkdir("stage").create("stage/f").sync().rename("stage", "live")
    calls.inodes["live/f"] = calls.inodes["stage/f"]
    calls = calls.write("live/f", b"x").fsync("live/f") if changed else calls.fsync("live/f")
    says = lambda held, acks: not acks or "live/f" in held  # noqa: E731 - a check in a line
    assert bool(search(calls.ack("live").notes(), says, names=True, order=True).kinds) is not changed


def test_a_durable_write_has_the_size_that_it_needs() -> None:
    """A log that was made long by ftruncate and then written with O_DSYNC came back empty, and an fsync was
    to help. A size that the write does not need may still be lost.
    """
    calls = Calls().create("log").fsync(".").size("log", 8192)
    notes = calls.size("log", 4096).write("log", b"record", durable="dsync").ack("record").notes()

    def is_there(held: Held, acks: int) -> bool:
        return not acks or held.get("log", b"")[:6] == b"record"

    assert not search(notes, is_there).kinds
    assert search(notes, lambda held, acks: not acks or len(held["log"]) == 4096).kinds


def test_what_was_acknowledged_before_a_call_does_not_promise_it() -> None:
    """Behind a replacement that was durable and broken, a later one was told by what came before it."""
    calls = Calls().create("c").write("c", b"0").fsync("c").fsync(".").ack("0")
    for text in (b"1", b"2"):
        calls.create("t").write("t", text).rename("t", "c").fsync(".").ack(text.decode())

    def is_some(held: Held, acks: int) -> bool:
        return not acks or held.get("c", b"")[:1] in (b"0", b"1", b"2")

    looked = search(calls.notes(), is_some)
    assert all(
        h.endswith("must persist before the change of names by `rename(t, c)`") for h in headlines(looked)
    )


def journaled(held: Held, acks: int) -> bool:
    """A journal that is there rolls back; without it, the database has to be whole."""
    whole = (b"a" * 8192, b"b" * 8192)
    return not acks or held.get("journal") == b"a" * 8192 or held.get("db") in whole


@pytest.mark.parametrize("names", [True, False])
def test_a_journal_that_the_state_lacks_is_synced(names: bool) -> None:
    """Mercurial and git remove it in the end: it was not among what is lost, and no fsync of it was tried."""
    calls = Calls().create("db").write("db", b"a" * 8192).sync().ack("0").create("journal")
    calls.write("journal", b"a" * 8192).write("db", b"b" * 8192).unlink("journal").sync().ack("1")
    looked = search(calls.notes(), journaled, names=names)
    assert looked.kinds
    assert looked.failing_with(looked.remedies)[0] == 0
    told = looked.words.remedies(looked.smallest())
    assert "fsync of `journal` after call 4, `write(journal, 8192 at 0)`" in told
    assert ("fsync of the directory `.` after call 4" in told) is not names
    assert told.endswith("fsync of `db` after call 5, `write(db, 8192 at 0)`")


@pytest.mark.parametrize("names", [True, False])
def test_a_journal_of_full_size_whose_data_is_lost_is_synced(names: bool) -> None:
    """A rollback journal that is not synced: "nothing that was tried helps", of a torn page. Only files that
    were gone or shorter were tried, and what is lost was not tried where a block is torn.
    """
    old, new = b"a" * 1024, b"b" * 1024
    calls = Calls().create("db").write("db", old).sync().ack("0").create("journal").write("journal", old)
    calls.write("db", new).fsync("db").unlink("journal").fsync(".").ack("1")

    def says(held: Held, acks: int) -> bool:
        return not acks or old in (held.get("journal"), held.get("db")) or held.get("db") == new

    looked = search(calls.notes(), says, names=names)
    assert all(kind.remedies for kind in looked.kinds.values()), headlines(looked)
    least = looked.smallest()
    told = looked.words.remedies(least)
    assert "fsync of `journal` after call 4, `write(journal, 1024 at 0)`" in told
    assert ("fsync of the directory `.` after call 4" in told) is not names
    assert looked.failing_with(least)[0] == 0


def test_files_with_other_contents_do_not_hide_a_journal_that_is_gone() -> None:
    """Of four files that are tried, all were some that had been overwritten in place behind the journal."""
    old, new, many = b"a" * 8192, b"b" * 8192, range(4)
    calls = Calls().create("db").write("db", old).mkdir("D")
    for i in many:
        calls.create(f"x{i}").write(f"x{i}", b"0000")
    calls.sync().ack("0").create("D/journal").write("D/journal", old)
    for i in many:
        calls.write(f"x{i}", b"1111")
    calls.write("db", new).unlink("D/journal").sync().ack("1")

    def says(held: Held, acks: int) -> bool:
        return not acks or held.get("D/journal") == old or held.get("db") in (old, new)

    looked = search(calls.notes(), says)
    assert all(kind.remedies for kind in looked.kinds.values()), headlines(looked)
    told = looked.words.remedies(looked.smallest())
    assert "fsync of `D/journal`" in told and "`x" not in told


def test_a_journal_that_helps_nobody_is_not_synced() -> None:
    """Its fsync is tried, and the check says no all the same."""
    calls = Calls().create("db").write("db", b"a" * 8192).sync().ack("0").create("journal")
    calls.write("journal", b"a" * 8192).write("db", b"b" * 8192).unlink("journal").sync().ack("1")
    whole = (b"a" * 8192, b"b" * 8192)
    looked = search(calls.notes(), lambda held, acks: not acks or held.get("db") in whole)
    assert looked.kinds
    assert looked.remedies == ()


def test_what_is_called_behind_an_acknowledgement_is_not_what_it_promised() -> None:
    """Of a rename that is not synced and a later write of the same file, the write's fsync was not told, and
    of the rename "nothing that was tried helps": the removal, which has to be lost too, was among the cause.
    """
    calls = Calls().create("c").write("c", b"1").fsync("c").fsync(".").ack("1")
    calls.create("t").write("t", b"2").fsync("t").rename("t", "c").ack("2").write("c", b"3").ack("3")
    calls.unlink("c").fsync(".").ack("-")

    def newest(held: Held, acks: int) -> bool:
        return not acks or "c" not in held or (acks < 4 and held["c"] in (b"1", b"2", b"3")[acks - 1 :])

    looked = search(calls.notes(), newest)
    assert all(kind.remedies for kind in looked.kinds.values()), headlines(looked)
    assert {h.rpartition(" must")[0] for h in headlines(looked)} == {
        "the change of names by `rename(t, c)`",
        "the data of `write(c, 1 at 0)`",
    }
    assert looked.failing_with(looked.smallest())[0] == 0


def test_where_no_fsync_helps_none_is_named() -> None:
    """A remedy that does not help was printed: a write in place has no order that would save it."""
    calls = Calls().create("f").write("f", b"a" * 8192).fsync("f").fsync(".").ack("0").write("f", b"b" * 8192)
    notes = calls.fsync("f").ack("1").notes()

    def even(held: Held, acks: int) -> bool:
        return not acks or held["f"] in ([b"b" * 8192] if acks > 1 else [b"a" * 8192, b"b" * 8192])

    looked = search(notes, even)
    assert looked.kinds
    assert all("must not be torn" in headline for headline in headlines(looked))
    assert looked.remedies == ()


@pytest.mark.parametrize("order", [False, True])
def test_the_sync_that_keeps_a_block_from_being_torn_is_among_those_for_all(order: bool) -> None:
    """With another file durable behind it, no state tore the block, and its fsync was left out of the set."""
    calls = Calls().create("f").write("f", b"a" * 1024).fsync("f").fsync(".").ack("old")
    notes = calls.write("f", b"b" * 1024).create("g").write("g", b"1").ack("done").notes()

    def tells(held: Held, acks: int) -> str:
        whole = held.get("f") in (b"a" * 1024, b"b" * 1024)
        return "" if acks < 2 or (whole and held.get("g") == b"1") else "g is gone" if whole else "f is torn"

    looked = search(notes, lambda held, acks: not tells(held, acks), names=order, order=order, tells=tells)
    least = looked.smallest()
    assert calls.inodes["f"] in {r.inode for r in least}
    assert looked.failing_with(least)[0] == 0
    assert looked.lists_all(least)


def test_a_block_whose_end_alone_is_there_is_told_as_torn() -> None:
    """A record whose last byte says that it is whole passed: a torn block had its first sectors, always."""
    record = b"r" * 1023 + b"M"
    calls = Calls().create("f").write("f", bytes(1024)).sync().write("f", record).ack("done")

    def says(held: Held, acks: int) -> bool:
        return "f" not in held or held["f"][-1:] != b"M" or held["f"] == record

    assert headlines(search(calls.notes(), says)) == ["`write(f, 1024 at 0)` must not be torn"]


def test_what_a_log_lacks_is_told_once_and_mended_behind_each_write() -> None:
    """A log of 100 unsynced lines had twelve findings, and 976 states that none of them explained."""
    calls = Calls().create("log").fsync(".").sync()
    for number in range(20):
        calls.write("log", b"%02d\n" % number, 3 * number).ack(f"line {number}")

    def lines(held: Held, acks: int) -> bool:
        return held.get("log", b"")[: 3 * acks] == b"".join(b"%02d\n" % n for n in range(acks))

    looked = search(calls.notes(), lines)
    (told,) = headlines(looked)
    assert told.startswith("the data of `write(log, 3 at ")
    assert told.endswith(" is acknowledged")
    assert looked.rest == []
    words = looked.words.remedies(looked.remedies)
    after = "after call 3, `write(log, 3 at 0)`, and after calls like it: 4, 5, 6, 7, 8, 9 and 13 more"
    assert words == f"fsync of `log` {after}"
    assert looked.failing_with(looked.remedies)[0] == 0


def test_one_sync_is_enough_for_writes_that_are_acknowledged_together() -> None:
    """What helps is put behind each call like it only where something relies on it."""
    calls = Calls().create("log").fsync(".").sync()
    for number in range(6):
        calls.write("log", b"%02d\n" % number, 3 * number)
    notes = calls.ack("all").notes()

    def whole(held: Held, acks: int) -> bool:
        return not acks or held.get("log") == b"".join(b"%02d\n" % n for n in range(6))

    looked = search(notes, whole)
    assert len(looked.smallest()) == 1
    assert looked.failing_with(looked.smallest())[0] == 0


def test_what_had_to_come_later_is_told_although_a_sync_made_it_durable() -> None:
    """A checkpoint that cut its log before it synced the pages was told as a tear of these pages."""
    calls = Calls().create("db").write("db", b"0").create("log").write("log", b"1").sync().ack("begun")
    notes = calls.write("db", b"1").size("log", 0).fsync("log").fsync("db").ack("done").notes()

    def newest(held: Held, acks: int) -> bool:
        return not acks or b"1" in (held["log"], held["db"])

    looked = search(notes, newest)
    assert headlines(looked) == [
        "the data of `write(db, 1 at 0)` must persist before the size of log after `ftruncate(log, 0)`"
    ]
    assert looked.words.remedies(looked.remedies) == "fsync of `db` after call 5, `write(db, 1 at 0)`"


def test_a_complete_state_that_is_refused_is_told_as_that() -> None:
    """All that was asked for is durable, and the check says no: "nothing must persist" was told."""
    calls = Calls().create("f").write("f", b"half").fsync("f").fsync(".").ack("1")
    calls.create("g").fsync(".").write("f", b"whole").fsync("f")

    def says(held: Held, acks: int) -> bool:
        return acks == 0 or held.get("f") == b"whole"

    found = headlines(search(calls.notes(), says))
    assert found == ["what is durable is refused, although nothing is lost"]


def test_a_program_that_leaves_nothing_between_two_calls_is_told_by_these_calls() -> None:
    """A write to a swap file was named beside the rename that took the only copy away."""
    calls = Calls().create("n").write("n", b"one").fsync("n").fsync(".").create("swp").ack("1")
    calls.write("swp", b"cursor").rename("n", "n~").fsync(".").create("n").write("n", b"two")

    def says(held: Held, acks: int) -> bool:
        return acks == 0 or held.get("n") in (b"one", b"two")

    (first, *_) = headlines(search(calls.fsync("n").notes(), says))
    assert first == (
        "a power cut after the change of names by `rename(n, n~)` and before `write(n, 3 at 0)` is refused, "
        "although nothing is lost"
    )


@pytest.mark.parametrize("swapped", [False, True])
def test_another_order_is_guessed_only_where_the_check_accepts_it(swapped: bool) -> None:
    """Money was lost between two writes, and would be made in the other order."""
    calls = Calls().create("a").write("a", b"5").create("b").write("b", b"0").fsync("a").fsync("b").fsync(".")
    calls.ack("0").write("a", b"4").fsync("a").write("b", b"1").fsync("b").ack("1")

    def says(held: Held, acks: int) -> bool:
        total = sum(int((held.get(name) or b"0").strip(b"\0") or b"0") for name in "ab")
        return acks == 0 or total == 5 or (swapped and total > 5)

    (kind, *_) = search(calls.notes(), says, names=True).kinds.values()
    assert kind.headline.startswith("a power cut after the data of `write(a, 1 at 0)` and before `write(b, 1")
    assert kind.found.swapped is swapped


def test_what_need_not_be_there_is_not_named() -> None:
    """A second write to the database was named beside the cut of its log."""
    calls = Calls().create("db").create("wal").write("wal", b"x").fsync("wal").fsync(".").ack("1")
    calls.write("db", b"x").write("db", b"y", 4096).size("wal", 0).fsync("db").fsync("wal")

    def says(held: Held, acks: int) -> bool:
        db = held.get("db", b"")
        whole = db[:1] == b"x" and db[4096:] in (b"", b"y") and b"\0" not in db[4096:]
        return acks == 0 or held.get("wal") == b"x" or (whole and len(db) == 4097)

    found = headlines(search(calls.notes(), says, names=True))
    assert found == [
        "the data of `write(db, 1 at 4096)` must persist before the size of wal after `ftruncate(wal, 0)`"
    ]


def test_of_what_was_called_before_and_behind_only_the_first_came_too_late() -> None:
    """An undo record "and" the second half of a transfer "must persist before" the first half."""
    calls = Calls().create("u").create("a").create("b").write("a", b"5").write("b", b"5").sync().ack("0")
    calls.write("u", b"5").write("a", b"4").write("b", b"6").fsync("u").fsync("a").fsync("b").ack("1")

    def says(held: Held, acks: int) -> bool:
        whole = (held.get("a"), held.get("b")) in ((b"5", b"5"), (b"4", b"6"))
        return acks == 0 or held.get("u") == b"5" or whole

    looked = search(calls.notes(), says, names=True)
    told = {h for h in headlines(looked) if "before the data of `write(a, 1 at 0)`" in h}
    assert told == {"the data of `write(u, 1 at 0)` must persist before the data of `write(a, 1 at 0)`"}


def test_two_calls_of_one_text_are_told_apart() -> None:
    calls = Calls().create("f").fsync("f").fsync(".").ack("0")
    calls.write("f", b"a").create("g").write("f", b"b").unlink("g")
    calls.write("f", b"c").ack("1").fsync("f")

    def says(held: Held, acks: int) -> bool:
        return True

    looked = search(calls.notes(), says, names=True)
    writes = [m.bit for m in looked.effect.micros if m.sort is Sort.DATA]
    found = Vulnerability(Partial(looked.effect.every), 0, writes[0], writes[1], 0)
    later = looked.words.headline(found)
    assert later == "the data of `write(f, 1 at 0)` must persist before that of a later call like it"
    earlier = looked.words.headline(replace(found, missing=writes[1], present=writes[0]))
    assert earlier.endswith("must persist before that of an earlier call like it")


def test_a_name_that_is_there_only_since_a_later_one_is_says_nothing() -> None:
    """Names of one directory are in order: each earlier one was named beside the rename."""
    calls = Calls().create("c").write("c", b"old").fsync("c").fsync(".").ack("0")
    calls.create("c.bak").create("t").write("t", b"new").rename("t", "c").ack("1")
    (first, *_) = headlines(search(calls.notes(), is_whole, order=True))
    assert first == "the data of `write(t, 3 at 0)` must persist before the change of names by `rename(t, c)`"


def test_a_file_without_a_name_is_told_by_the_call_that_made_it() -> None:
    """The remedy was "fsync of `d`", the directory in which the file had been made."""
    calls = Calls().mkdir("d").fsync(".")._make("tmpfile", "d")
    calls.inodes["o"] = calls.inodes.pop("d")
    calls = calls.write("o", b"x" * 5000)
    calls.made.append(
        NotedCall("link", 7, inode=calls.inodes["o"], path="d", other="d/o", text="linkat(d/o)")
    )
    calls.inodes["d"] = 2
    calls = calls.fsync("d").ack("o")
    looked = search(calls.notes(), lambda held, acks: not acks or len(held.get("d/o", b"")) == 5000)
    assert looked.remedies
    words = looked.words.remedies([Remedy(3, calls.inodes["o"])])
    assert words.startswith("fsync of the file without a name that call 2 made after call 3")
    assert "fsync of `d/o`" in looked.words.remedies([Remedy(4, calls.inodes["o"])])


def test_of_several_names_a_file_is_told_by_the_one_that_the_call_used() -> None:
    """What was written through `a` was to be synced as `b`, a name that it was given before."""
    calls = Calls().create("a").fsync("a").link("a", "b").fsync(".").write("a", b"x" * 4096).ack("1")
    looked = search(calls.notes(), lambda held, acks: not acks or len(held.get("b", b"")) == 4096)
    written = looked.words.remedies([Remedy(4, calls.inodes["b"])])
    assert written == "fsync of `a` after call 4, `write(a, 4096 at 0)`"
    linked = looked.words.remedies([Remedy(2, calls.inodes["b"])])
    assert linked == "fsync of `b` after call 2, `link(a, b)`"


def test_the_directory_is_no_file_without_a_name() -> None:
    """Where the first call of all was the O_TMPFILE, `.` was told as the file that it made."""
    calls = Calls()._make("tmpfile", ".")
    calls.inodes["."] = ROOT
    looked = search(calls.ack("o").notes(), lambda held, acks: True)
    assert looked.words.remedies([Remedy(0, ROOT)]).startswith("fsync of the directory `.` after call 0")


def test_a_cause_is_of_the_reason_that_the_check_gave() -> None:
    """A version is switched to by rename, which no sync covers, and the old one is removed: "`rename` must
    persist before" the making of its source was told for "the old version is back".
    """
    calls = Calls().create("one").create("live").write("live", b"one").sync().ack("1")
    calls.create("two").fsync("two").create("t").write("t", b"two").fsync("t").fsync(".")
    calls.rename("t", "live").ack("2").unlink("one")

    def tells(held: Held, acks: int) -> str:
        if not acks:
            return ""
        version = held.get("live", b"").decode()
        if version not in held:
            return "the current version cannot be read"
        return "the old version is back" if acks == 2 and version != "two" else ""

    looked = search(calls.notes(), lambda held, acks: not tells(held, acks), tells=tells)
    rename = "the change of names by `rename(t, live)` must persist before"
    said = {kind.headline: tells_of(looked, kind.found, tells) for kind in looked.kinds.values()}
    assert said == {
        f"{rename} `2` is acknowledged": "the old version is back",
        f"{rename} the change of names by `unlink(one)`": "the current version cannot be read",
    }


def tells_of(looked: Search, found: Vulnerability, tells: Callable[[Held, int], str]) -> str:
    """What the check says of what is told as a cause."""
    notes = looked.effect.notes
    return FunctionCheck(notes, Maker(looked.effect), lambda *_: True, tells).said(found.state, found.acks)


def test_of_a_write_that_is_there_in_part_what_was_lost_before_it_is_told() -> None:
    """Of two slots that are written in turn, the one that was lost "must not be torn"."""
    calls = Calls().create("s").write("s", bytes(16384)).sync()
    calls.write("s", b"\1" * 6000, 8192).write("s", b"\2" * 6000).fdatasync("s").ack("2")
    calls.write("s", b"\3" * 6000, 8192).write("s", b"\4" * 6000).fdatasync("s").ack("4")

    def newest(held: Held) -> int:
        slots = [held.get("s", b"")[at : at + 6000] for at in (0, 8192)]
        return max([ord(slot[:1]) for slot in slots if len(slot) == 6000 and len(set(slot)) == 1] or [0])

    looked = search(calls.notes(), lambda held, acks: newest(held) >= 2 * acks)
    assert headlines(looked) == [
        "the data of `write(s, 6000 at 8192)` must persist before the data of `write(s, 6000 at 0)`"
    ]


def test_of_a_write_that_is_there_in_part_what_came_behind_it_is_told() -> None:
    """A payload whose header is durable, and so its size, "must not be torn"."""
    calls = Calls().create("log").sync().ack("0")
    calls.write("log", b"p" * 5000, 16).write("log", b"h" * 16, durable="dsync").ack("1")

    def says(held: Held, acks: int) -> bool:
        log = held.get("log", b"")
        return log[:16] != b"h" * 16 or log[16:] == b"p" * 5000

    looked = search(calls.notes(), says)
    assert headlines(looked) == [
        "the data of `write(log, 5000 at 16)` must persist before the data of `write(log, 16 at 0)`"
    ]


def test_no_sync_is_named_of_what_the_program_has_synced_in_time() -> None:
    """Of a version that a sync had made durable long ago, an fsync was named beside that of the new one."""
    calls = Calls().mkdir("v1").create("v1/data").write("v1/data", b"v1").create("live").sync().ack("v1")
    calls.mkdir("v2").create("v2/data").write("v2/data", b"v2").fsync("v2/data").fsync(".")
    calls.create("t").write("t", b"v2").fsync("t").rename("t", "live").ack("v2").fsync(".")

    def says(held: Held, acks: int) -> bool:
        return held.get("live") != b"v2" or "v2/data" in held

    looked = search(calls.notes(), says)
    directory = calls.inodes["v2"]
    assert [(r.inode, r.after) for r in looked.remedies] == [(directory, 6)]


def test_two_calls_of_one_text_are_told_apart_beside_others() -> None:
    """ "The data of write(t) must persist before the data of write(t) and the change of names by ..."."""
    calls = Calls().create("f").write("f", b"a").write("f", b"b").rename("f", "g")
    looked = search(calls.ack("1").notes(), lambda held, acks: True)
    _, first, second, renamed = (1, *[m.bit for m in looked.effect.micros if m.sort is not Sort.SIZE][1:])
    found = Vulnerability(Partial(looked.effect.every), 0, first, second | renamed, 0)
    assert looked.words.headline(found) == (
        "the data of `write(f, 1 at 0)` must persist before that of a later call like it"
        " and the change of names by `rename(f, g)`"
    )


def test_what_was_stored_into_a_mapping_is_told_with_its_place() -> None:
    """ "A store into a mapping must persist before that of an earlier call like it"."""
    calls = Calls().create("f").write("f", b"0" * 8192).sync()
    calls.write("f", b"1" * 4096, 4096).write("f", b"1" * 4096)
    calls.made[-2:] = [as_store(call, "f") for call in calls.made[-2:]]
    looked = search(calls.ack("1").notes(), lambda held, acks: True)
    page, header = [m.bit for m in looked.effect.micros if m.stored]
    told = looked.words.headline(Vulnerability(Partial(looked.effect.every), 0, page, header, 0))
    store = "the data of `a store into a mapping of f (4096 at"
    assert told == f"{store} 4096)` must persist before {store} 0)`"


def kept_line(held: Held, acks: int) -> bool:
    """Each acknowledged line is in the log, or in what it was put into."""
    there = (held.get("d/log", b"") + b"\n" + held.get("snap", b"")).split(b"\n")
    return all(str(n).encode() in there for n in range(acks))


def compacted(*, first: bool = False, second: bool = False, at_once: bool = False) -> Notes:
    """A log that is put into a file and emptied. Neither the name of the log nor the rename is synced, but
    for those given. `at_once`: with no sync from the first acknowledgement until the log is empty.
    """
    calls, new = Calls().mkdir("d").fsync("."), ("new", b"0\n")
    calls = calls.create("new").write(*new).fsync("new").fsync(".") if at_once else calls
    calls = calls.create("d/log").write("d/log", b"0\n").fsync("d/log")
    calls = (calls.fsync("d") if first else calls).ack("0")
    calls = calls if at_once else calls.create("new").write(*new).fsync("new")
    calls = calls.rename("new", "snap")
    calls = (calls.fsync(".") if second else calls).size("d/log", 0)
    return calls.fsync("d/log").write("d/log", b"1\n").fsync("d/log").ack("1").notes()


def test_what_was_called_before_what_is_lost_does_not_hide_what_came_too_late() -> None:
    """ "unlink(b) must persist before link(a, b)", which is called before it, and "nothing that was tried
    helps": on the way to the cause the loss of the first name had taken its place.
    """
    notes = Calls().create("a").link("a", "b").unlink("b").unlink("a").ack("done").notes()

    def says(held: Held, acks: int) -> bool:
        return not (held if acks else "b" in held and "a" not in held)

    looked = search(notes, says)
    assert headlines(looked)[1:] == [
        "the change of names by `unlink(b)` must persist before the change of names by `unlink(a)`",
        "the change of names by `create(a)` must persist before the change of names by `link(a, b)`",
    ]
    assert looked.smallest() == tuple(Remedy(after, ROOT) for after in (0, 2, 3))
    assert looked.failing_with(looked.smallest())[0] == 0


@pytest.mark.parametrize("at_once", [False, True])
def test_a_second_fsync_that_lacks_does_not_hide_behind_the_first(at_once: bool) -> None:
    """Of a program that lacks two, "nothing that was tried helps" was told of one: on the way to a cause the
    reason of the other had taken its place.
    """
    assert not search(compacted(first=True, second=True, at_once=at_once), kept_line).kinds
    looked = search(compacted(at_once=at_once), kept_line)
    assert sorted(headlines(looked)) == [
        f"the change of names by `create(d/log)` must persist before `{int(at_once)}` is acknowledged",
        "the change of names by `rename(new, snap)` must persist before the size of d/log after "
        "`ftruncate(d/log, 0)`",
    ]
    assert all(kind.remedies for kind in looked.kinds.values())
    assert looked.failing_with(looked.smallest())[0] == 0


def test_a_set_beyond_those_that_are_tried_is_made_of_all_that_may_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where more sets may help than are tried, "nothing that was tried helps" was told."""
    monkeypatch.setattr("harness.rules.search.TRIED_MAX", 1)
    test_a_journal_that_the_state_lacks_is_synced(names=False)


def test_a_thread_is_told_only_where_there_are_several() -> None:
    """Of a program of one thread "call 6 of thread 40" was told, which is a number of the guest."""
    notes = replaced(sync_file=False, sync_directory=True)
    several = replace(notes, calls=(*notes.calls[:-1], replace(notes.calls[-1], thread=8)))
    for some, says in (
        (notes, "call 5: write(t, 3 at 0)"),
        (several, "call 5 of thread 7: write(t, 3 at 0)"),
    ):
        looked = search(some, is_whole)
        assert says in looked.words.named(next(iter(looked.kinds.values())).found)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sendfile(d/b, 8388608)", "sendfile(d/b, 100)"),
        ("copy_file_range(b, 8388608)", "copy_file_range(b, 100)"),
        ("write(a, 5, 9000)", "write(a, 5, 100)"),
        ("pwritev2(f, 9000 at 4096, dsync)", "pwritev2(f, 100 at 4096, dsync)"),
        (STORE, STORE),
    ],
)
def test_a_call_is_told_with_the_bytes_that_it_wrote(text: str, told: str) -> None:
    """A copy of 100 bytes was told as the 8 MiB that it had been asked for."""
    assert text_of(NotedCall("write", length=100, text=text)) == told
    assert text_of(NotedCall("size", length=100, text="ftruncate(f, 7)")) == "ftruncate(f, 7)"


def merged(*, names_synced: bool, file_synced: bool = False, listed: bool = False) -> Notes:
    """Three tables, the name of each in a list, which says what there is. `listed`: the list is synced."""
    calls = Calls().create("list").write("list", b"\n").fsync("list").fsync(".").ack("init")
    at = 1
    for n in (1, 2, 3):
        calls.create(f"{n}.sst").write(f"{n}.sst", b"data%d" % n)
        calls = calls.fsync(f"{n}.sst") if file_synced else calls
        calls = calls.fsync(".") if names_synced else calls
        calls.write("list", b"%d.sst\n" % n, at)
        calls = (calls.fdatasync("list") if listed else calls).ack(f"sst {n}")
        at += 6
    return calls.notes()


def unlisted(held: Held, acks: int) -> str:
    """What is wrong with such tables."""
    lines = held.get("list", b"").split(b"\n")
    names = [line.decode() for line in lines[:-1] if line.strip(b"\0")] if acks else []
    if any(name not in held for name in names):
        return "sst missing"
    if any(held[name] != b"data" + name[:1].encode() for name in names):
        return "sst corrupt"
    return "acked sst not in list" if acks > len(names) + 1 else ""


def assert_true(looked: Search, found: Vulnerability) -> None:
    """That an order is what a state fails for: with what is lost, or without what is there, it does not."""
    whole, effect, check = found.state.persisted, looked.effect, looked.check
    assert not check.passes(found.state, found.acks)
    others = [effect.with_needs(whole | found.missing)]
    others += [effect.without(whole, found.present)] if found.present else []
    said = check.said(found.state, found.acks)
    for other in map(Partial, others):
        alike = not check.passes(other, found.acks) and check.said(other, found.acks) == said
        assert not alike, looked.words.headline(found)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("synced", [False, True])
def test_of_several_faults_the_order_of_each_is_true(synced: bool, order: bool) -> None:
    """With the fsync of the list in place for one fault, the list was durable for the next: "`write(3.sst)`
    must persist before `write(2.sst)`", "before the change of names by `create(3.sst)`", and "the check
    refuses what is durable already", where the program syncs nothing.
    """
    notes = merged(names_synced=synced)
    looked = search(notes, lambda *a: not unlisted(*a), names=order, order=order, tells=unlisted)
    told = headlines(looked)
    for kind in looked.kinds.values():
        assert_true(looked, kind.found)
    assert any(h.startswith("the data of `write(list, 6 at ") and h.endswith(" acknowledged") for h in told)
    data = [h for h in told if re.match(r"the data of `write\(\d.sst, 5 at 0\)` must persist before", h)]
    assert all("before the data of `write(list, 6 at" in h for h in data), told
    assert len(data) == 1
    assert looked.failing_with(looked.smallest())[0] == 0


def test_of_one_fault_the_order_is_told_as_of_several() -> None:
    """What was right where the list is synced."""
    looked = search(
        merged(names_synced=True, listed=True), lambda *a: not unlisted(*a), order=True, tells=unlisted
    )
    (told,) = headlines(looked)
    assert re.match(
        r"the data of `write\(\d.sst, 5 at 0\)` must persist before the data of `write\(list", told
    )
    assert not search(
        merged(names_synced=True, listed=True, file_synced=True), lambda *a: not unlisted(*a), order=True
    ).kinds


def test_what_is_there_but_does_not_matter_is_not_what_came_too_early() -> None:
    """The last of what is there was always named, even if the check says no without it as well."""
    notes = Calls().create("f").create("g").sync().ack("0").write("g", b"1").write("f", b"1").ack("1").notes()
    effect = effect_of(notes, rules())
    check = FunctionCheck(notes, Maker(effect), lambda held, acks: not acks or held.get("f") == b"1")
    data = [m.bit for m in effect.micros if m.sort is Sort.DATA]
    state = Partial(effect.every & ~data[1])
    assert Reducer(Legal(effect), check.passes)._relied_on(state, data[0], 1) == 0


def test_what_is_durable_by_the_syncs_of_others_is_told_with_them() -> None:
    """ "What is durable already", of what no sync of the program covers."""
    looked = search(replaced(sync_file=False, sync_directory=True), is_whole)
    (kind, *_) = looked.kinds.values()
    alone = replace(kind.found, present=0, acks=0)
    said = (
        "the check refuses what is durable already, unless the data of `write(t, 3 at 0)` has persisted too"
    )
    assert looked.words.headline(alone) == said
    others = looked.words.headline(replace(alone, mended=True))
    assert others == f"{said}, with the syncs of the other findings in place"


def counted(page: int, count: int, *, msync: bool = False) -> Notes:
    """A page is stored, then the number of pages, and both are synced. Stores that are seen at once are noted
    by address.
    """
    calls = Calls().create("m").size("m", 3 * 4096).fsync("m").fsync(".").ack("init")
    stores = {page: b"p" * 4096, count: b"1".ljust(4096, b"\0")}
    for at in (page, count) if msync else sorted(stores):
        calls.write("m", stores[at], at)
        calls.made[-1] = as_store(calls.made[-1], "m")
        calls = calls.msync("m", at, 4096) if msync else calls
    return (calls if msync else calls.msync("m", 0, 3 * 4096)).ack("page").notes()


@pytest.mark.parametrize(("page", "count"), [(4096, 0), (0, 4096), (8192, 0)])
def test_the_order_of_stores_that_are_seen_at_once_is_not_that_of_addresses(page: int, count: int) -> None:
    """ "A power cut after the store at 0 and before a store is refused, although nothing is lost": the other
    page was stored first. An fsync between the two was tried as if their order were known.
    """

    def says(held: Held, acks: int) -> bool:
        pages, data = held.get("m", b"")[count : count + 1], held.get("m", b"")[page : page + 4096]
        return not acks or ((acks < 2 or pages == b"1") and (pages != b"1" or data == b"p" * 4096))

    looked = search(counted(page, count), says, tells=lambda held, acks: "page bad")
    lost, there = (f"the data of `a store into a mapping of m (4096 at {at})`" for at in (page, count))
    assert headlines(looked) == [f"{lost} must persist before {there}"]
    (kind,) = looked.kinds.values()
    assert_true(looked, kind.found)
    assert not kind.remedies
    assert not search(counted(page, count, msync=True), says).kinds


def test_stores_on_both_sides_of_an_acknowledgement_have_an_order() -> None:
    calls = Calls().create("m").write("m", b"a").write("m", b"b", 4096).ack("1").write("m", b"c", 8192)
    calls.made[1:] = [as_store(call, "m") for call in calls.made[1:]]
    calls = calls.write("m", b"d", 12288).write("m", b"e", 16384)
    calls.made[-1] = as_store(calls.made[-1], "m")
    effect = effect_of(calls.notes(), rules())
    assert [effect.together(n) for n in range(6)] == [
        range(1), range(1, 3), range(1, 3), range(3, 4), range(4, 5), range(5, 6)
    ]  # fmt: skip


def test_what_is_like_a_cause_later_in_the_program_does_not_take_its_place() -> None:
    """Of objects that a reference names in turn, the first was told as "the check refuses what is durable
    already": without the syncs of others, the last one took its place.
    """
    calls = Calls().create("ref").fsync("ref").fsync(".").ack("init")
    for name in ("a", "b", "c"):
        calls.create(name).write(name, name.encode()).create("lock").write("lock", name.encode())
        calls.rename("lock", "ref").ack(name)

    def tells(held: Held, acks: int) -> str:
        name = held.get("ref", b"").decode().strip("\0")
        if not acks or not name:
            return "lost" if acks > 1 else ""
        if name not in held:
            return "object missing"
        return "object bad" if held[name] != name.encode() else "lost" if ord(name) - 95 < acks else ""

    looked = search(calls.notes(), lambda *a: not tells(*a), tells=tells)
    for kind in looked.kinds.values():
        assert_true(looked, kind.found)
    made = [h for h in headlines(looked) if "create(" in h]
    assert sorted(made) == [
        f"the change of names by `create({name})` must persist before the data of `write(lock, 1 at 0)` and "
        "the change of names by `rename(lock, ref)`"
        for name in "abc"
    ]
