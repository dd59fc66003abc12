"""Which of several files it is: the program's check is run on trees that lack what one of them lacked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.explain.checked_trees import ANY_ORDER, CheckedTrees
from harness.explain.effects import Change, Effects, Sort
from harness.explain.explain import _not_tried, _settled
from harness.explain.mechanism import Mechanism, of_program, out_of_order
from harness.explain.program import Evidence, Gap, Order, Program
from harness.model import CheckResult, FileKind, TreeEntry
from harness.ruled.judging import Judging, NotJudged
from harness.rules.answers import Tried
from harness.rules.calls import Left, NotedCall, Notes
from harness.rules.trees import Files, contents
from harness.tests.rules.programs import OWNER, Calls
from harness.tests.there import there
from harness.writelog.calls import ProgramCall
from harness.writelog.times import TimedMark

Held = dict[str, bytes]
Says = Callable[[Held, int], str]
"""What a check says of files, given so many acknowledgements: nothing if all is well."""


class Tries:
    """A program, as it was recorded and as it was noted when it ran once more; its check is a function."""

    def __init__(self, made: Calls, left: Held, says: Says, recorded: Calls | None = None) -> None:
        notes = replace(made.notes([Left(p, "file", OWNER, c) for p, c in left.items()]), exit_code=0)
        self.calls = [recorded_as(call, n) for n, call in enumerate((recorded or made).made)]
        self.marks = [TimedMark(a.calls, 10 * a.calls - 5, f"app {a.text}") for a in (recorded or made).acks]
        self.trees = CheckedTrees(judging_of(notes, says), self.calls)

    def changes(self, *texts: str) -> tuple[Change, ...]:
        return tuple(c for c in self.trees.changes if c.call.text in texts)

    def call(self, text: str) -> ProgramCall:
        return next(c for c in self.calls if c.text == text)

    def program(self, *unsynced: str, at: int = 1, **fields: object) -> Program:
        """It had not synced these when it gave acknowledgement `at`."""
        found = Program("my-db", self.marks[at - 1].text, self.marks[at - 1].at, known=True, shown=True)
        return replace(found, unsynced=self.changes(*unsynced) if unsynced else (), **fields)  # type: ignore[arg-type]  # its fields


def recorded_as(call: NotedCall, number: int) -> ProgramCall:
    words = {"create": f"openat({call.path}, create)"}
    text = words.get(call.word, call.text)
    return ProgramCall(7, text, 10 * number, 10 * number + 3, call.length)


def judging_of(notes: Notes, says: Says) -> Judging:
    texts = {f"create({c.path})": f"openat({c.path}, create)" for c in notes.calls}
    calls = tuple(replace(c, text=texts.get(c.text, c.text)) for c in notes.calls)
    notes = replace(notes, calls=calls)

    def run(asked: Sequence[tuple[Files, int]]) -> list[Tried]:
        return [Tried(answer(files, acks), None) for files, acks in asked]

    def answer(files: Files, acks: int) -> CheckResult:
        held = {p: contents(notes, e.size, e.pieces) for p, e in files.items() if e.kind == "file"}
        said = says(held, acks) if held or acks else ""
        return CheckResult(0, 1 if said else 0, said, acks)

    return Judging(notes, ANY_ORDER, run)


def two_files() -> Calls:
    calls = Calls().create("tmp").write("tmp", b"scratch").create("log").write("log", b"entry")
    return calls.ack("1").fsync("log")


BOTH = ("write(tmp, 7 at 0)", "write(log, 5 at 0)")
LEFT = {"tmp": b"scratch", "log": b"entry"}


@pytest.mark.parametrize(
    ("needed", "named"), [(["log"], ["log"]), (["tmp"], ["tmp"]), (["tmp", "log"], ["tmp", "log"])]
)
def test_of_several_files_those_are_named_without_which_the_check_says_no(
    needed: list[str], named: list[str]
) -> None:
    """A scratch file that was not synced either was named beside the journal: no state tells them apart."""
    tries = Tries(two_files(), LEFT, lambda held, acks: says_if(acks, any(not held.get(f) for f in needed)))
    program = tries.program(*BOTH)
    found = tries.trees.settled(program, 1, 100)
    assert (found.tried, [c.path for c in found.blamed]) == (True, named)


def says_if(acks: int, broken: bool) -> str:
    return "it is gone" if acks and broken else ""


def test_where_the_check_accepts_each_loss_nothing_is_settled() -> None:
    tries = Tries(two_files(), LEFT, lambda held, acks: says_if(acks, not any(held.values())))
    program = tries.program(*BOTH)
    assert tries.trees.settled(program, 1, 100) == program


def test_a_program_that_does_something_else_the_second_time_settles_nothing() -> None:
    """Its temporary file has another name each time: what is lost in one run is nothing of the other."""
    calls = Calls().create("tmp.77").write("tmp.77", b"scratch").create("log.8").write("log.8", b"entry")
    again = calls.ack("1").fsync("log.8")
    left = {"tmp.77": b"scratch", "log.8": b"entry"}
    tries = Tries(again, left, lambda held, acks: says_if(acks, not all(held.values())), two_files())
    program = tries.program(*BOTH)
    assert tries.trees.settled(program, 1, 100) == program


def test_a_file_that_came_back_as_zeros_is_tried_so() -> None:
    """The check accepts an empty log, as a new one, and not one of zeros."""
    tries = Tries(two_files(), LEFT, lambda held, acks: says_if(acks, b"\0" in held.get("log", b"")))
    assert [c.path for c in tries.trees.settled(tries.program(*BOTH), 1, 100).blamed] == ["log"]


def test_a_rename_that_the_check_accepts_is_not_blamed_for_what_was_acknowledged() -> None:
    """The rename of a cursor "took away what had been durable": the segment beside it was never synced."""
    calls = Calls().create("seg").create("cursor").create("new").write("new", b"1").write("seg", b"entry")
    calls.rename("new", "cursor").ack("1")
    left = {"seg": b"entry", "cursor": b"1"}
    tries = Tries(calls, left, lambda held, acks: says_if(acks, not held.get("seg")))
    missing = tries.changes("write(new, 1 at 0)", "write(seg, 5 at 0)")
    order = Order(tries.call("rename(new, cursor)"), missing, taken=True)
    found = tries.trees.settled(tries.program("write(seg, 5 at 0)", taken=order), 1, 100)
    assert found.taken is None
    assert [c.path for c in found.blamed] == ["seg"]


def test_of_several_calls_the_first_with_which_the_check_says_no_relies_on_it() -> None:
    calls = Calls().create("a").write("a", b"text").create("b").create("done").ack("1")
    left = {"a": b"text", "b": b"", "done": b""}
    tries = Tries(calls, left, lambda held, _: "a is empty" if "done" in held and not held["a"] else "")
    later = tries.changes("openat(done, create)")
    order = Order(tries.call("openat(b, create)"), tries.changes("write(a, 4 at 0)"), later=later)
    found = there(tries.trees.settled(tries.program(order=order), 1, 100).order)
    assert (found.ahead.text, found.until, found.tried) == ("openat(done, create)", None, True)


def test_the_first_call_that_relies_on_it_is_named_however_many_follow() -> None:
    """The last forty calls were tried, and the first of these was named, too late for an fsync to help."""
    calls = Calls().create("a").write("a", b"text").create("b")
    for number in range(100):
        calls.write("log", b"%02d" % (number % 100), 2 * number) if number else calls.create("log")
    left = {"a": b"text", "b": b"", "log": b"\0\0" + b"".join(b"%02d" % n for n in range(1, 100))}
    tries = Tries(calls.ack("1"), left, lambda held, _: "a is gone" if "b" in held and not held["a"] else "")
    order = Order(tries.call("write(log, 2 at 198)"), tries.changes("write(a, 4 at 0)"))
    found = there(tries.trees.settled(tries.program(order=order), 1, 10_000).order)
    assert found.ahead.text == "openat(b, create)"


def test_two_writes_to_one_file_have_an_order_as_well() -> None:
    """The header of a queue counted a record that was not there, and no cause was named."""
    calls = Calls().create("q").write("q", b"\0" * 8192).fsync("q").write("q", b"job", 4096).write("q", b"1")
    left = {"q": b"1" + b"\0" * 4095 + b"job" + b"\0" * 4093}

    def says(held: Held, _: int) -> str:
        q = held.get("q", b"")
        return "no record" if q[:1] == b"1" and q[4096:4099] != b"job" else ""

    tries = Tries(calls.ack("1"), left, says)
    program = tries.program(uncovered=tries.changes("write(q, 3 at 4096)", "write(q, 1 at 0)"))
    assert not program.is_explained
    found = there(tries.trees.settled(program, 1, 100).order)
    assert (found.ahead.text, [c.call.text for c in found.missing]) == (
        "write(q, 1 at 0)",
        ["write(q, 3 at 4096)"],
    )
    assert "without having called fsync of `q`" in out_of_order(program, found)
    late = tries.trees.settled(program, 1, tries.call("write(q, 1 at 0)").began)
    assert late.order is None, "the power failed before it was called"


def test_what_the_check_accepts_is_no_cause_also_where_another_loss_cannot_be_tried() -> None:
    """A notebook that no check reads was named beside a link, of which the text was another one each time; an
    fsync of the notebook mended nothing.
    """
    made = Calls().create("a").write("a", b"1").create("log").write("log", b"x").ack("1")
    recorded = Calls().create("a").write("a", b"2" * 7).create("log").write("log", b"x").ack("1")
    tries = Tries(
        made, {"a": b"1", "log": b"x"}, lambda held, acks: says_if(acks, held.get("a") != b"1"), recorded
    )
    program = tries.program("write(a, 7 at 0)", "write(log, 1 at 0)")
    settled = tries.trees.settled(program, 1, 100)
    assert [c.call.text for c in settled.unsynced] == ["write(a, 7 at 0)"]
    assert not settled.tried, "it was not seen"
    none = tries.trees.settled(tries.program("write(log, 1 at 0)"), 1, 100)
    assert not none.unsynced, "the check accepts what is left without it"


def test_a_file_that_never_had_a_name_is_the_same_file_in_another_run() -> None:
    """A log that no check reads was named beside `linkat(items/#14 (deleted), ...)`: in the next run, the
    file had another number.
    """
    made = Calls().create("#4 (deleted)").rename("#4 (deleted)", "a").create("log").ack("1")
    recorded = Calls().create("#14 (deleted)").rename("#14 (deleted)", "a").create("log").ack("1")
    left = {"a": b"", "log": b""}
    tries = Tries(made, left, lambda held, acks: says_if(acks, "a" not in held), recorded)
    settled = tries.trees.settled(tries.program("rename(#14 (deleted), a)", "openat(log, create)"), 1, 100)
    assert ({c.call.text for c in settled.unsynced}, settled.tried) == ({"rename(#14 (deleted), a)"}, True)


@pytest.mark.parametrize("read", [False, True])
def test_a_file_that_was_emptied_is_the_cause_only_if_the_check_reads_it(read: bool) -> None:
    """A scratch file was cut and written anew, and that had "taken away what had been durable"."""
    calls = Calls().create("t").write("t", b"old").fsync("t").create("log").ack("1")
    calls.size("t", 0).write("t", b"new").fsync("t").write("log", b"x").ack("2")
    tries = Tries(
        calls,
        {"t": b"new", "log": b"x"},
        lambda held, acks: says_if(acks, read and held.get("t") not in (b"old", b"new")),
    )
    taken = Order(tries.call("ftruncate(t, 0)"), tries.changes("write(t, 3 at 0)")[1:], taken=True)
    assert taken.is_in_place
    settled = tries.trees.settled(replace(tries.program(), taken=taken), 1, 1000)
    assert (settled.taken is not None) is read


@pytest.mark.parametrize("differing", [{"a", "b"}, {"a", "b", "log"}])
def test_an_order_that_cannot_be_tried_is_told_only_of_all_that_differs(differing: set[str]) -> None:
    """Where the check could not be asked, a scratch file was blamed although others differed as well."""
    made = Calls().create("a").write("a", b"1").create("b").ack("1").size("a", 0)
    recorded = Calls().create("a").write("a", b"2" * 7).create("b").ack("1").size("a", 3).write("a", b"45")
    tries = Tries(made, {"a": b"", "b": b""}, lambda held, acks: "", recorded)
    alone = "log" not in differing
    order = Order(tries.call("openat(b, create)"), tries.changes("write(a, 7 at 0)"))
    assert (tries.trees.settled(tries.program(order=order), 1, 100, differing).order is not None) is alone
    emptied = Order(tries.call("ftruncate(a, 3)"), tries.changes("write(a, 2 at 0)"), paths=frozenset("b"))
    assert emptied.is_in_place
    assert (tries.trees.settled(tries.program(taken=emptied), 1, 100, differing).taken is not None) is alone


def test_a_write_to_a_file_has_an_order_with_its_new_name() -> None:
    """A plan that had been exchanged for a draft was written over before the exchange was durable, and no
    cause was named. Names themselves have an order where the file system keeps one.
    """
    calls = Calls().create("live").write("live", b"good").fsync("live").ack("1")
    calls.rename("live", "old").create("log").write("old", b"junk")
    tries = Tries(
        calls, {"old": b"junk", "log": b""}, lambda held, _: says_if(1, held.get("live", b"good") != b"good")
    )
    program = tries.program(uncovered=tries.changes("rename(live, old)"))
    found = there(tries.trees.settled(program, 1, 100).order)
    assert (found.ahead.text, {c.call.text for c in found.missing}) == (
        "write(old, 4 at 0)",
        {"rename(live, old)"},
    )
    assert "without having called fsync of the directory `.`" in out_of_order(program, found)
    anew = Tries(
        calls, {"old": b"junk", "log": b""}, lambda held, _: says_if(1, {"live", "log"} <= held.keys())
    )
    program = anew.program(uncovered=anew.changes("rename(live, old)"))
    found = there(anew.trees.settled(program, 1, 100).order)
    assert found.ahead.text == "write(old, 4 at 0)", "no name is durable before an earlier one"


@pytest.mark.parametrize("refuses_both", [False, True])
def test_another_order_is_proposed_only_if_the_check_accepts_it(refuses_both: bool) -> None:
    """Money was lost between two writes, and would be made in the other order."""
    calls = Calls().create("a").write("a", b"5").create("b").write("b", b"0").fsync("a").fsync("b").ack("1")
    calls.write("a", b"4").fsync("a").write("b", b"1").fsync("b").ack("2")

    def says(held: Held, acks: int) -> str:
        total = sum(int(held.get(name, b"").strip(b"\0") or b"0") for name in "ab")
        return says_if(acks, total < 5 or (refuses_both and total > 5))

    tries = Tries(calls, {"a": b"4", "b": b"1"}, says)
    program = tries.program(shown=False, uncovered=())
    cut = next(c for c in reversed(tries.calls) if c.text == "write(b, 1 at 0)").began
    gap = there(tries.trees.settled(program, 1, cut).gap)
    assert (gap.ahead.text, gap.swapped) == ("write(a, 1 at 0)", not refuses_both)


@pytest.mark.parametrize("kept", [True, False])
def test_what_the_check_accepts_between_two_calls_is_no_gap(kept: bool) -> None:
    """An inbox was emptied behind a ledger that had not been synced. "A power cut in between leaves neither
    the old nor the new, and no fsync helps" was said of the emptied inbox.
    """
    calls = Calls().create("in").write("in", b"order").create("out").fsync("in").fsync("out").ack("1")
    if kept:
        calls.write("out", b"order")
    calls.size("in", 0).fsync("in").write("in", b"other")
    left = {"in": b"other", "out": b"order" if kept else b""}

    def says(held: Held, acks: int) -> str:
        return says_if(acks, not any(held.get(name, b"").strip(b"\0") for name in ("in", "out")))

    tries = Tries(calls, left, says)
    made = tries.changes("write(in, 5 at 0)")[-1]
    gap = Gap(tries.call("ftruncate(in, 0)"), tries.call("fsync(in)"), made)
    program = tries.program(gap=gap, uncovered=tries.changes("write(out, 5 at 0)"))
    settled = tries.trees.settled(program, 1, 1000)
    assert (settled.gap is None) is kept
    if kept:
        assert settled.order is not None
        assert settled.order.ahead.text == "ftruncate(in, 0)"
        assert [c.call.text for c in settled.order.missing] == ["write(out, 5 at 0)"]


@pytest.mark.parametrize("read", [True, False])
def test_half_of_a_write_is_the_cause_only_if_the_check_refuses_a_part(read: bool) -> None:
    """Of a write to a log that no check reads a part came back as well."""
    record = bytes([7]) * 6000
    calls = Calls().create("f").write("f", record).create("b").ack("1")
    tries = Tries(
        calls,
        {"f": record, "b": b""},
        lambda held, _: "half a record" if read and held.get("f", b"") not in (b"", record) else "",
    )
    program = tries.program(half=tries.changes("write(f, 6000 at 0)")[0])
    settled = tries.trees.settled(program, 1, 100)
    assert settled.in_part is read
    assert settled.is_explained is read
    facts = cast("Any", SimpleNamespace(lost=(), cleared=(), at=100))
    found = of_program(facts, settled)
    assert (found is not None and found.mechanism is Mechanism.PROGRAM_HALF) is read


@pytest.mark.parametrize("given", [True, False])
def test_no_sync_is_wanted_that_leaves_what_the_check_refuses(given: bool) -> None:
    """Two blocks had one version each; an fsync between their writes was wanted, and left two versions."""
    calls = Calls().create("f").write("f", b"1").create("g").write("g", b"1").fsync("f").fsync("g").ack("1")
    calls.write("f", b"2").write("g", b"2")

    def says(held: Held, acks: int) -> str:
        found = {held.get(name, b"").strip(b"\0") for name in "fg"}
        return says_if(acks, len(found) > 1)

    tries = Tries(calls, {"f": b"2", "g": b"2"}, says)
    first, last = tries.changes("write(f, 1 at 0)")[-1:], tries.changes("write(g, 1 at 0)")[-1]
    order = Order(last.call, first)
    program = tries.program(uncovered=(*first, last), shown=False, order=order if given else None)
    settled = tries.trees.settled(program, 1, last.began + 5)
    assert settled.order is None
    assert settled.gap is not None
    assert (settled.gap.ahead.text, settled.gap.made.call) == ("write(f, 1 at 0)", last.call)


@pytest.mark.parametrize("said", ["bin and lib differ", "something else", ""])
def test_all_that_a_call_relies_on_is_named(said: str) -> None:
    """A rollback was removed before two files were durable. An fsync of the one that was lost was wanted, and
    with it the loss of the other one failed in the same way.
    """
    calls = Calls().create("bin").write("bin", b"1").create("lib").write("lib", b"1").create("back")
    calls.create("log").sync().ack("1").write("bin", b"2").write("lib", b"2").write("log", b"x")
    calls.unlink("back")

    def says(held: Held, acks: int) -> str:
        differ = held.get("bin", b"").strip(b"\0") != held.get("lib", b"").strip(b"\0")
        return "bin and lib differ" if acks and differ and "back" not in held else ""

    tries = Tries(calls, {"bin": b"2", "lib": b"2", "log": b"x"}, says)
    bins, libs = tries.changes("write(bin, 1 at 0)")[-1:], tries.changes("write(lib, 1 at 0)")[-1:]
    order = Order(tries.call("unlink(back)"), libs)
    program = tries.program(order=order, open=(*bins, *libs, *tries.changes("write(log, 1 at 0)")))
    found = there(tries.trees.settled(program, 1, 10_000, said=said).order)
    told = {c.path for c in found.missing}
    assert told == ({"bin", "lib"} if said == "bin and lib differ" else {"lib"})


def test_no_call_relies_on_what_is_refused_before_it() -> None:
    """The only index of an archive was written over, and a write of a file that no check reads was said to
    rely on the new one.
    """
    calls = Calls().create("arc").write("arc", b"index").create("log").fsync("arc").fsync("log").ack("1")
    calls.write("arc", b"photo").write("arc", b"index", 5).write("log", b"1").fsync("arc")
    tries = Tries(
        calls,
        {"arc": b"photoindex", "log": b"1"},
        lambda held, acks: says_if(acks, b"index" not in held.get("arc", b"")),
    )
    program = tries.program(uncovered=tries.changes("write(arc, 5 at 5)"), shown=False)
    settled = tries.trees.settled(program, 1, tries.call("write(log, 1 at 0)").began + 5)
    assert settled.order is None
    assert settled.gap is not None
    assert settled.gap.made.call.text == "write(arc, 5 at 5)"


@pytest.mark.parametrize("said", ["the sum is 9", "the sum is 11", "b is gone", ""])
def test_what_the_check_says_alike_is_a_cause_that_no_state_shows(said: str) -> None:
    """An undo record came behind what it was to undo: of the states that were accepted, each lacked it as
    well, and no cause was named.
    """
    calls = Calls().create("u").create("a").write("a", b"5").create("b").write("b", b"5").ack("1")
    calls.write("u", b"55").write("a", b"4").write("b", b"6").ack("2")

    def says(held: Held, acks: int) -> str:
        sums = int(held.get("a", b"0")) + int(held.get("b", b"0")) if acks else 10
        return f"the sum is {sums}" if sums != 10 and not held.get("u") else ""

    tries = Tries(calls, {"u": b"55", "a": b"4", "b": b"6"}, says)
    program = tries.program(open=tries.changes("write(u, 2 at 0)"), shown=False)
    found = tries.trees.settled(program, 1, 1000, said=said).order
    if said.startswith("the sum is"):  # of each half there is another one
        assert found is not None
        assert (found.ahead.text, [c.call.text for c in found.missing]) == (
            "write(a, 1 at 0)",
            ["write(u, 2 at 0)"],
        )
    else:
        assert found is None, "it says something else of what is lost"


@pytest.mark.parametrize("scratch", [False, True])
def test_what_a_program_leaves_between_its_calls_is_told_though_nothing_is_lost(scratch: bool) -> None:
    """An editor renamed its only copy away before it wrote the new one, and no cause was named. A lock file
    that nobody reads, the only one that had not been synced, silenced it again.
    """
    calls = (
        Calls()
        .create("lock")
        .write("lock", b"1")
        .create("notes")
        .write("notes", b"one")
        .fsync("notes")
        .ack("1")
        .rename("notes", "notes~")
    )
    calls.create("notes").write("notes", b"two")
    left = {"notes": b"two", "notes~": b"one", "lock": b"1"}
    tries = Tries(calls, left, lambda held, acks: says_if(acks, held.get("notes") not in (b"one", b"two")))
    program = tries.program(*(["write(lock, 1 at 0)"] if scratch else []), shown=False)
    absent = tries.changes("write(notes, 3 at 0)")[-1:]
    durable, program = program, replace(program, uncovered=(*program.unsynced, *absent))
    assert tries.trees.settled(durable, 1, 100).gap is None, "what it wrote was synced: the kernel lost it"
    gap = there(tries.trees.settled(program, 1, 100).gap)
    assert (gap.ahead.text, gap.sync, gap.made.call.text) == (
        "rename(notes, notes~)",
        None,
        "write(notes, 3 at 0)",
    )
    assert gap.swapped, "the new before the rename, and nothing is wrong in between"
    assert tries.trees.settled(program, 1, 50).gap is None, "the power failed before"
    facts = cast("Any", SimpleNamespace(lost=(), cleared=()))
    found = there(of_program(facts, replace(program, gap=gap)))
    assert found.mechanism is Mechanism.PROGRAM_BETWEEN


def release() -> Calls:
    """A link is switched to a release of which a file was not synced; nobody reads the build's log."""
    calls = Calls().create("VERSION").write("VERSION", b"one").create("build.log")
    calls = calls.write("build.log", b"built").create("switched").create("deploy.log")
    return calls.write("deploy.log", b"done").fsync("deploy.log").ack("deployed")


RELEASED = {"VERSION": b"one", "build.log": b"built", "switched": b"", "deploy.log": b"done"}


def needs_version(held: Held, acks: int) -> str:
    return says_if(1, "switched" in held and not held.get("VERSION"))


def test_a_name_came_too_early_only_if_the_check_refuses_it_without_its_contents() -> None:
    """The log of a build, which no check opens, was named, and the file that was missing was not."""
    tries = Tries(release(), RELEASED, needs_version)
    (named,) = tries.changes("openat(build.log, create)")
    program = replace(tries.program(), early=named, uncovered=tries.changes("write(VERSION, 3 at 0)"))
    settled = tries.trees.settled(program, 0, 100)
    assert settled.early is None
    assert settled.order is not None
    assert settled.order.ahead.text == "openat(switched, create)"
    assert [c.path for c in settled.order.missing] == ["VERSION"]
    assert settled.order.tried


@pytest.mark.parametrize("contents", [True, False])
def test_a_name_that_the_check_refuses_without_its_contents_came_too_early(contents: bool) -> None:
    """Contents that were written before the name was given, or are written behind it."""
    calls = Calls().create("log").write("log", b"1").create("t")
    calls = calls.write("t", b"new").rename("t", "c") if contents else calls.create("c").write("c", b"new")
    calls = calls.ack("there")
    left = {"log": b"1", "c": b"new"} | ({} if contents else {"t": b""})
    tries = Tries(calls, left, lambda held, acks: says_if(1, held.get("c", b"new") != b"new"))
    named = tries.changes("rename(t, c)" if contents else "openat(c, create)")[-1]
    program = replace(tries.program(), early=named)
    assert tries.trees.settled(program, 0, 100).early == named
    unread = Tries(calls, left, lambda held, acks: says_if(1, held.get("log", b"1") != b"1"))
    assert unread.trees.settled(program, 0, 100).early is None
    broken = Tries(calls, left, lambda held, acks: says_if(1, not acks and "log" in held))
    assert broken.trees.settled(program, 0, 100).early is None, "refused before the name was given"


def test_a_file_that_the_check_never_reads_is_not_what_a_call_relies_on() -> None:
    """The log of an import, written just before the index and not synced either, was named, with an fsync of
    it as the remedy. With that, the program failed as before.
    """
    calls = Calls().create("log").write("log", b"imported").create("t").write("t", b"index")
    calls = calls.rename("t", "index").ack("1")
    left = {"log": b"imported", "index": b"index"}
    tries = Tries(calls, left, lambda held, acks: says_if(1, held.get("index", b"index") != b"index"))
    later = tries.changes("rename(t, index)")
    order = Order(tries.call("write(t, 5 at 0)"), tries.changes("write(log, 8 at 0)"), later=later[-1:])
    program = replace(tries.program(), order=order, uncovered=tries.changes("write(t, 5 at 0)"))
    settled = there(tries.trees.settled(program, 0, 100).order)
    assert (settled.ahead.text, [c.path for c in settled.missing]) == ("rename(t, index)", ["t"])
    other = Calls().create("log").write("log", b"imported").create("t").write("t", b"index")
    again = Tries(other.rename("t", "index").ack("1"), left, lambda *_: "", recorded=calls.fsync("index"))
    assert again.trees.settled(program, 0, 100).order is None
    unlike = Calls().create("l").write("l", b"imported").create("t").write("t", b"index").rename("t", "index")
    unknown = Tries(unlike.ack("1"), {"l": b"imported", "index": b"index"}, lambda *_: "", recorded=calls)
    assert unknown.trees.settled(program, 0, 100).order == order, "of the call it is not known"


def test_what_the_check_confirms_is_told_before_what_it_could_not_be_asked() -> None:
    """The rename has another name when the program runs once more: nothing is known of a tree that ends
    there. What was acknowledged without a sync is known to be refused.
    """

    def calls(number: int) -> Calls:
        made = Calls().create("log").write("log", b"entry").create(f"t{number}").rename(f"t{number}", "c")
        return made.ack("1")

    left = {"log": b"entry", "c": b""}
    tries = Tries(calls(2), left, lambda held, acks: says_if(acks, not held.get("log")))
    tries.trees = CheckedTrees(tries.trees.judging, Tries(calls(1), left, lambda *_: "").calls)
    taken = Order(tries.trees.changes[-1].call, tries.changes("write(log, 5 at 0)"), taken=True)
    program = replace(tries.program("write(log, 5 at 0)"), taken=taken)
    settled = tries.trees.settled(program, 1, 100)
    assert (settled.tried, settled.taken) == (True, None)
    without = replace(tries.program(), taken=taken)
    assert tries.trees.settled(without, 1, 100).taken == taken, "all that is known"


def test_what_is_refused_whatever_was_called_later_has_no_later_call() -> None:
    """Half a record was taken for a whole one, and the write of a log behind it, which no check reads, was
    said to rely on it.
    """
    calls = Calls().create("log").create("f").write("f", b"HEAD").write("f", b"body", 4).write("log", b"ok")
    left = {"log": b"ok", "f": b"HEADbody"}
    tries = Tries(
        calls.ack("1"), left, lambda held, acks: says_if(1, held.get("f", b"") not in (b"", left["f"]))
    )
    order = Order(tries.call("write(log, 2 at 0)"), tries.changes("write(f, 4 at 4)"))
    settled = tries.trees.settled(replace(tries.program(), order=order), 0, 100)
    assert settled.order is None


def test_of_two_names_of_one_file_the_one_that_matters_is_named() -> None:
    """A link and the removal of the old name are of one file: the check was said to refuse either loss."""
    calls = Calls().create("d").fsync("d").link("d", "p").unlink("d").ack("1")
    tries = Tries(calls, {"p": b""}, lambda held, acks: says_if(acks, "d" in held))
    settled = tries.trees.settled(tries.program("link(d, p)", "unlink(d)"), 1, 100)
    assert (settled.tried, [c.call.text for c in settled.unsynced]) == (True, ["unlink(d)"])


def test_of_two_writes_to_one_file_the_one_that_matters_is_named() -> None:
    """A chunk that nothing was promised of was named beside the one that was acknowledged."""
    calls = Calls().create("c").write("c", b"P").write("c", b"Q", 4096).ack("P")
    whole = b"P" + b"\0" * 4095 + b"Q"
    tries = Tries(calls, {"c": whole}, lambda held, acks: says_if(acks, held.get("c", b"")[:1] != b"P"))
    program = tries.program("write(c, 1 at 0)", "write(c, 1 at 4096)")
    settled = tries.trees.settled(program, 1, 100)
    assert (settled.tried, [c.call.text for c in settled.unsynced]) == (True, ["write(c, 1 at 0)"])


def test_what_removes_a_scratch_file_does_not_take_away_what_was_durable() -> None:
    """`unlink(.unpack)` was said to remove the old before the new was durable; what relied on the library was
    the rename before it.
    """
    calls = Calls().create("scratch").write("scratch", b"x").create("lib").write("lib", b"code")
    calls = calls.create("t").write("t", b"lib").fsync("t").rename("t", "status").unlink("scratch").ack("1")
    left = {"lib": b"code", "status": b"lib"}
    tries = Tries(calls, left, lambda held, acks: says_if(1, "status" in held and not held.get("lib")))
    taken = Order(tries.call("unlink(scratch)"), tries.changes("write(lib, 4 at 0)"), taken=True)
    program = replace(tries.program(), taken=taken)
    settled = tries.trees.settled(program, 0, 100)
    assert settled.taken is None
    assert settled.order is not None
    assert (settled.order.ahead.text, settled.order.taken) == ("rename(t, status)", False)
    needed = Tries(calls, left, lambda held, acks: says_if(1, "scratch" not in held and not held.get("lib")))
    start = replace(program, taken=replace(taken, missing=needed.changes("write(lib, 4 at 0)")))
    found = needed.trees.settled(start, 0, 100).taken
    assert found is not None, "the check needs the scratch file as long as there is no library"
    assert (found.ahead.text, found.taken, found.tried) == ("unlink(scratch)", True, True)


def test_of_calls_that_may_rely_on_it_the_first_is_tried_as_well() -> None:
    """A log that was opened behind the switch was named as what relies on the file: an fsync before that,
    and behind the switch, is too late.
    """
    tries = Tries(release(), RELEASED, needs_version)
    later = tries.changes("openat(deploy.log, create)")
    missing = tries.changes("write(VERSION, 3 at 0)")
    order = Order(tries.call("openat(switched, create)"), missing, later=later)
    settled = tries.trees.settled(replace(tries.program(), order=order), 0, 100)
    assert settled.order is not None
    assert settled.order.ahead.text == "openat(switched, create)"
    assert settled.order.until is None


def test_where_no_tree_could_be_tried_a_name_is_early_only_if_no_other_file_is_ahead() -> None:
    class Refusing:
        def checked_trees(self) -> None:
            raise NotJudged("a call is not followed", "")

    tries = Tries(release(), RELEASED, needs_version)
    (named,) = tries.changes("openat(build.log, create)")
    found = replace(tries.program(), early=named)
    for others, early in (((), named), (("switched",), None)):
        tree = {path: entry_of(path) for path in ("build.log", *others)}
        evidence = Evidence(tree, None, {}, "")
        settled = _settled(cast(Any, Refusing()), found, evidence, lambda _: found, 10)
        assert (settled.early, settled.untried) == (early, "a call is not followed")


def entry_of(path: str) -> TreeEntry:
    return TreeEntry(path, FileKind.FILE, 9, 0o644, 1, 0, 0, 0, 0)


def test_an_acknowledgement_of_which_two_calls_may_be_the_cause_is_not_guessed() -> None:
    """The check says the same of each loss."""
    calls = Calls().create("a").write("a", b"1").ack("one").create("b").write("b", b"2").ack("two").fsync("b")

    def says(held: Held, acks: int) -> str:
        return says_if(acks, not all(held.get(name) for name in "ab"[:acks]))

    tries = Tries(calls, {"a": b"1", "b": b"2"}, says)
    program = tries.program("write(a, 1 at 0)", "write(b, 1 at 0)", at=2)
    assert tries.trees.broken(program, "it is gone", tries.marks) is None


def test_a_check_that_refuses_what_lacks_nothing_decides_nothing() -> None:
    calls = two_files().create("lock").write("log", b"more", 5).ack("2").fsync("log")
    left = {**LEFT, "log": b"entrymore", "lock": b""}
    tries = Tries(calls, left, lambda held, acks: "" if acks in (0, 2) else "locked")
    program = tries.program(*BOTH)
    assert tries.trees.settled(program, 1, 100) == program


@pytest.mark.parametrize(
    ("said", "broken"), [("page 0 is old", "app 0"), ("page 1 is old", "app 1"), ("?", None)]
)
def test_the_acknowledgement_is_found_by_what_the_check_says_of_each_loss(
    said: str, broken: str | None
) -> None:
    """Page 0 was lost, and the last page was named: it, too, was not synced."""
    calls = Calls().create("db").write("db", b"\0" * 8192).fsync("db").fsync(".")
    calls.write("db", b"a").ack("0").write("db", b"b", 4096).ack("1").fsync("db")
    left = {"db": b"a" + b"\0" * 4095 + b"b" + b"\0" * 4095}

    def says(held: Held, acks: int) -> str:
        wrong = [n for n in range(acks) if held["db"][4096 * n : 4096 * n + 1] != b"ab"[n : n + 1]]
        return f"page {wrong[0]} is old" if wrong else ""

    tries = Tries(calls, left, says)
    program = tries.program("write(db, 1 at 0)", "write(db, 1 at 4096)", at=2)
    program = replace(program, latest=program.unsynced[1:])
    found = tries.trees.broken(program, said, tries.marks)
    assert (found and found.text) == broken


def test_fdatasync_leaves_attributes_open() -> None:
    """A mail was marked as seen by its permissions, and the loss of that had no cause."""
    texts = ["openat(m, create)", "write(m, 4)", "fsync(m)", "fchmod(m)", "fdatasync(m)", "fsync(m)"]
    calls = [ProgramCall(7, t, 10 * n, 10 * n + 3, 0) for n, t in enumerate(texts)]
    effects = Effects(calls, in_order=True, commits=lambda _: False)
    (seen,) = [c for c in effects.changes if c.sort is Sort.ATTRIBUTES]
    assert [effects.covers(s, seen) for s in effects.syncs] == [False, False, True]
    assert seen.wanted == "fsync of `m`"


def test_a_check_that_could_not_be_run_on_trees_is_told_with_the_reason() -> None:
    """The answer fell back to what the calls allow, and nothing said so."""

    class Refusing:
        def checked_trees(self) -> None:
            raise NotJudged("`openat` with O_TMPFILE is not followed", "")

    found = Program("p", "1", 9)
    evidence = Evidence({}, None, None, "a is missing")
    settled = _settled(cast(Any, Refusing()), found, evidence, lambda _: found, 10)
    assert settled == replace(found, untried="`openat` with O_TMPFILE is not followed")
    assert _not_tried(settled) == (
        "the check of p on trees that lack what one call did: `openat` with O_TMPFILE is not followed"
    )
    assert not _not_tried(found)
    assert not _not_tried(None)
