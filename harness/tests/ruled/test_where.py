"""Where an order is promised, by the contracts, and where the same check failed in the same run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from harness.filesystems.profiles import profiles, ruled_modes
from harness.model import CaseId, CheckResult, CrashState, Judgement, Violation
from harness.report.explanation import Explanation, read_explanation, write_explanation
from harness.ruled.judging import Judging, answer
from harness.ruled.where import Says, Where, modes, not_asked, tell_where_seen, words_of
from harness.rules.answers import Tried
from harness.rules.calls import Left, NotedCall, Notes
from harness.rules.micro import Effect
from harness.rules.promised import effect_under
from harness.rules.rules import Rules
from harness.rules.trees import Files, contents
from harness.rules.vulnerabilities import Vulnerability
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, Finding, How, JudgedState
from harness.tests.rules.programs import OWNER, Calls, rules
from harness.tests.store.samples import INFO

Held = Mapping[str, bytes]


def judging_of(
    calls: Calls, left: Held, says: Callable[[Held, int], bool], under: Rules | None = None
) -> Judging:
    """A program whose check is a function of its files and the acknowledgements."""
    files = [Left(path, "file", OWNER, held) for path, held in left.items()]
    notes = replace(calls.notes(files), exit_code=0)

    def run(files: Files, acks: int) -> Tried:
        held = {p: contents(notes, e.size, e.pieces) for p, e in files.items() if e.kind == "file"}
        passed = says(held, acks)
        return Tried(CheckResult(0, int(not passed), "" if passed else "lost", acks))

    return Judging(notes, under or rules(), lambda trees: [run(*tree) for tree in trees])


def says_of(judging: Judging) -> list[dict[str, Says]]:
    """What the modes say of each vulnerability of a program."""
    failed = [s for s, result in judging.visited(judging.legal.listed()) if result.exit_code == 1]
    where = Where(judging)
    return [where.of(told.found) for told in answer(judging, failed).told]


def of_a_new_name() -> tuple[Judging, Vulnerability]:
    """Of a program whose check wants a file that it made and never synced, and what it relies on there."""
    judging = judging_of(Calls().create("f").ack("1"), {"f": b""}, lambda held, acks: not acks or "f" in held)
    failed = [s for s, result in judging.visited(judging.legal.listed()) if result.exit_code == 1]
    (told,) = answer(judging, failed).told
    return judging, told.found


def names(says: Mapping[str, Says], of: Says) -> set[str]:
    return {name for name, said in says.items() if said is of}


def replaced(judged: Callable[[Held, int], bool]) -> dict[str, Says]:
    """Of a file that is replaced by one that was not synced."""
    calls = Calls().create("c").write("c", b"old").fsync("c").fsync(".").ack("0")
    calls = calls.create("t").write("t", b"new").rename("t", "c").fsync(".").ack("1")
    (told, *_) = says_of(judging_of(calls, {"c": b"new"}, judged))
    return told


def test_the_contents_of_a_file_before_its_name_are_promised_where_data_is_in_order() -> None:
    """ext4's contract promises the size at a rename over a file, and not what is in it."""
    said = replaced(
        lambda held, acks: not acks or held.get("c") in ([b"new"] if acks > 1 else [b"old", b"new"])
    )
    kept = names(said, Says.PROMISED)
    assert {"ext4/journal", "ext3/journal", "ext3/ordered", "ext4/nodelalloc", "gfs2/default"} <= kept
    lost = names(said, Says.NOT)
    assert {"any/posix", "any/linux", "ext4/ordered", "xfs/default", "btrfs/default", "f2fs/posix"} <= lost


def test_a_check_that_reads_no_more_than_the_size_is_promised_it_by_ext4() -> None:
    """Of the data and the size, the contract has one: that the order is not promised would be wrong."""
    said = replaced(lambda held, acks: not acks or len(held.get("c", b"")) == 3)
    assert "ext4/ordered" in names(said, Says.PARTLY)
    assert {"xfs/default", "ext4/writeback", "any/linux"} <= names(said, Says.NOT)


@pytest.mark.parametrize(
    ("calls", "promised_by", "not_by"),
    [
        (
            Calls().create("f").fsync("f").ack("1"),
            {"any/linux", "btrfs/default", "xfs/default"},
            {"any/posix"},
        ),
        (Calls().create("f").ack("1"), {"xfs/wsync"}, {"any/linux", "xfs/default", "ext4/journal"}),
        (
            Calls().create("e").create("g").fsync("g").create("f").create("h").fsync("h").ack("1"),
            {"any/linux", "ext4/ordered"},
            {"btrfs/default", "f2fs/strict"},
        ),
    ],
    ids=["synced", "not synced", "another synced"],
)
def test_what_was_acknowledged_is_promised_where_a_sync_covers_it(
    calls: Calls, promised_by: set[str], not_by: set[str]
) -> None:
    left = dict.fromkeys((path for path in calls.inodes if path != "."), b"")
    (said, *_) = says_of(judging_of(calls, left, lambda held, acks: not acks or "f" in held))
    assert promised_by - {"any/linux"} <= names(said, Says.PROMISED)
    assert not_by <= names(said, Says.NOT)


def test_that_a_write_is_not_torn_is_promised_where_contents_are_in_the_journal() -> None:
    calls = Calls().create("f").write("f", b"a" * 4096).fsync("f").fsync(".").ack("0").write("f", b"b" * 4096)
    whole = (b"a" * 4096, b"b" * 4096)
    (said,) = says_of(judging_of(calls, {"f": whole[1]}, lambda held, acks: not acks or held["f"] in whole))
    kept = {name for name, r in modes().items() if r.contract and r.contract.data == "journal"}
    assert names(said, Says.PROMISED) == kept
    assert names(said, Says.NOT) == set(modes()) - kept


def test_a_torn_write_is_promised_by_nobody_where_a_later_file_is_synced() -> None:
    """It was torn in no state in which another file had been made durable, and 22 modes promised that."""
    calls = Calls().create("f").write("f", b"a" * 1024).fsync("f").fsync(".").ack("0").write("f", b"b" * 1024)
    calls = calls.create("g").write("g", b"1").fsync("g").fsync(".").ack("1")
    whole = (b"a" * 1024, b"b" * 1024)
    left = {"f": whole[1], "g": b"1"}
    says = lambda held, acks: acks < 2 or "g" not in held or held["f"] in whole  # noqa: E731 - a check in a line
    (said,) = says_of(judging_of(calls, left, says))
    kept = {name for name, r in modes().items() if r.contract and r.contract.data == "journal"}
    assert {"any/linux", "any/posix", "ext4/ordered", "xfs/default", "btrfs/default"} <= names(said, Says.NOT)
    assert names(said, Says.PROMISED) >= kept


def test_an_order_behind_a_half_done_truncation_is_asked_for_behind_the_whole_one() -> None:
    """Under any/posix a log may lose its last block first. Where a truncation cuts at once, all is lost."""
    calls = Calls().create("db").write("db", b"old").create("log").write("log", b"x" * 8192).sync().ack("0")
    calls = calls.write("db", b"new").size("log", 0).fsync("log").fsync("db").ack("1")
    judging = judging_of(
        calls,
        {"db": b"new", "log": b""},
        lambda held, acks: not acks or held["db"] == b"new" or held["log"] == b"x" * 8192,
    )
    said = says_of(judging)[0]
    assert {"any/linux", "any/posix", "ext4/ordered", "xfs/default", "btrfs/default"} <= names(said, Says.NOT)
    assert "ext4/journal" in names(said, Says.PROMISED)


def test_a_case_without_an_order_is_promised_by_nobody() -> None:
    """Nothing is lost where the program leaves nothing between two calls."""
    calls = (
        Calls().create("n").fsync("n").fsync(".").ack("1").rename("n", "m").fsync(".").create("n").fsync(".")
    )
    judging = judging_of(calls, {"n": b"", "m": b""}, lambda held, acks: not acks or "n" in held)
    assert says_of(judging) == [{}]
    assert words_of({}) == ""


def test_nothing_is_told_where_only_some_of_the_modes_were_asked_in_time() -> None:
    judging, found = of_a_new_name()
    assert Where(judging).of(found)
    judging.deadline = 0.0
    assert Where(judging).of(found) == {}


def test_rules_are_made_of_no_more_contracts_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all 26 were made before anybody looked at the time: seconds, of a program of 1,000 calls."""
    judging, found = of_a_new_name()
    made: list[str] = []

    def late(notes: Notes, rules: Rules) -> Effect:
        made.append(rules.fsync_names.source)
        judging.deadline = 0.0
        return effect_under(notes, rules)

    monkeypatch.setattr("harness.ruled.where.effect_under", late)
    assert Where(judging).of(found) == {}
    assert Where(judging).of(found) == {}
    assert len(made) == 1
    judging.deadline = None
    monkeypatch.setattr("harness.ruled.where.effect_under", effect_under)
    where = Where(judging)
    assert where.of(found)
    monkeypatch.setattr("harness.ruled.where.effect_under", None)
    assert where.of(found), "they are made once"


@pytest.mark.parametrize(
    ("code", "said"), [(0, Says.PARTLY), (1, Says.NOT), (3, Says.UNDECIDED), (None, Says.UNDECIDED)]
)
def test_a_mode_for_which_the_check_was_undecided_is_told_so(
    code: int | None, said: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that was not ended in time was told as one that had said yes: *in part by*."""
    judging, found = of_a_new_name()
    monkeypatch.setattr(Judging, "result", lambda self, state, acks: CheckResult(0, code, "", acks))
    assert set(Where(judging).of(found).values()) == {said, Says.PROMISED}


def test_a_mode_says_no_more_than_one_whose_states_are_among_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """`promised by xfs/wsync; in part by any/posix; not by any/linux`: POSIX allows what Linux does."""
    judging, found = of_a_new_name()
    for broken, others in (
        ("any/linux", {"any/posix"}),
        ("ext4/ordered", {"any/posix"}),
        ("any/posix", set()),
    ):
        rules = modes()[broken]
        monkeypatch.setattr(
            Where,
            "_says",
            lambda self, effect, _, rules=rules: Says.NOT if effect.rules == rules else Says.PARTLY,
        )
        said = Where(judging).of(found)
        assert {name for name, answer in said.items() if answer is Says.NOT} == {broken, *others}


def test_modes_for_which_the_check_was_undecided_are_told_last() -> None:
    """Their rules leave the state possible all the same."""
    says = {"any/linux": Says.UNDECIDED, "any/posix": Says.NOT}
    assert words_of(says).rpartition("; not asked: ")[0] == (
        "promised by none of the contracts that were asked; not by any/posix; undecided for any/linux"
    )


def test_a_program_of_thousands_of_calls_is_not_asked_about() -> None:
    judging, found = of_a_new_name()
    judging.notes = replace(judging.notes, calls=judging.notes.calls * 1001)
    assert Where(judging).of(found) == {}


def test_each_contract_of_a_file_system_is_asked_once() -> None:
    """A line with sixty names would not be read."""
    asked = modes()
    every = {p.rules.contract for p in ruled_modes().values() if p.rules}
    assert {r.contract for r in asked.values()} == every
    assert {"ext4/ordered", "xfs/default", "btrfs/default", "f2fs/posix"} <= asked.keys()
    assert len(asked) < len(profiles()) / 2


def test_a_file_system_whose_contracts_agree_is_told_by_its_name() -> None:
    says = {"any/linux": Says.NOT, "xfs/default": Says.NOT, "xfs/wsync": Says.NOT}
    says |= {"ext4/journal": Says.PROMISED, "ext4/ordered": Says.NOT, "ext3/ordered": Says.PARTLY}
    assert words_of(says) == (
        "promised by ext4/journal; in part by ext3; not by any/linux, xfs, ext4/ordered"
    )


def test_what_no_contract_was_asked_of_is_told_as_not_asked() -> None:
    """`promised by no contract; not by ext4`, of a write that ext4/sync makes durable before it returns: what
    cannot be put into rules was never asked.
    """
    said, _, left = words_of({"ext4/ordered": Says.NOT, "ext4/journal": Says.NOT}).rpartition("; ")
    assert said == "promised by none of the contracts that were asked; not by ext4 as far as asked"
    assert left == f"not asked: {', '.join(not_asked())}"
    assert {"ext4/sync", "ext4/no-journal", "vfat", "ext2"} <= set(not_asked())
    assert "not asked" not in words_of({"ext4/ordered": Says.PROMISED})


def _finding(
    store: RunStore, case: CaseId, states: int, failed: int, *, oracle: str = "program"
) -> Finding | None:
    store.add_case(CaseInfo(case, "", "", "", (oracle,), states, states))
    wrong = Judgement((Violation(oracle, "operation 0", "lost", "0", "1", "lost"),))
    judged = (Judgement() if n >= failed else wrong for n in range(states))
    store.put_judgements(
        case, [JudgedState(CrashState(n), f"{n:02x}", j, How.JUDGED) for n, j in enumerate(judged)]
    )
    store.set_case_status(case, CaseStatus.DONE)
    return next(iter(store.findings_of(case)), None)


def test_what_real_file_systems_of_the_run_showed_is_told_beside_what_they_promise(tmp_path: Path) -> None:
    """Only of the same workload, and only of the same check."""
    with RunStore.create(tmp_path, "t", INFO, durable=False) as store:
        finding = _finding(store, CaseId("any", "posix", "w"), 9, 3)
        assert finding is not None
        promises = {"ext4/ordered": "not by", "xfs/default": "promised by", "btrfs/default": "not by"}
        told = Explanation(finding.id, "h", "", {"promised": "p"}, (), "p", promises=promises)
        write_explanation(store.layout, told)
        tell_where_seen(store)
        assert read_explanation(store.layout, finding.id) == told, "there is no other case"
        _finding(store, CaseId("ext4", "ordered", "w"), 8, 0)
        _finding(store, CaseId("xfs", "default", "w"), 7, 2)
        _finding(store, CaseId("btrfs", "default", "another"), 7, 2)
        _finding(store, CaseId("f2fs", "posix", "w"), 6, 6, oracle="fsck")
        _finding(store, CaseId("ext4", "ordered", "w-neighbour"), 5, 4)
        tell_where_seen(store)
        tell_where_seen(store)
        found = read_explanation(store.layout, finding.id)
    assert found is not None
    assert found.lines["promised"] == "p"
    assert found.lines["seen"] == (
        "ext4/ordered: none of 8 states fails it, though its contract does not promise this order: "
        "hidden, by what is not known; "
        "xfs/default: 2 of 7 states fail the same check; "
        "f2fs/posix: none of 6 states fails it: hidden, by what is not known; "
        "ext4/ordered beside another program: 4 of 5 states fail the same check"
    )


def test_a_call_is_a_store_where_the_tracer_says_so() -> None:
    assert NotedCall("write", text="a store into a mapping").is_store
    assert not NotedCall("write", text="write(f, 3 at 0)").is_store
