"""By what a real file system hides a loss: which order a program relies on, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles
from harness.ruled.hides import (
    CONTENTS,
    CONTENTS_BEFORE_NAME,
    CONTENTS_BEFORE_REPLACE,
    CONTENTS_BEHIND_TRUNCATION,
    NAMES,
    ORDERS,
    Seen,
    by_what,
    mechanisms,
    orders_of,
)
from harness.ruled.judging import Judging, answer
from harness.tests.ruled.test_where import judging_of
from harness.tests.rules.programs import Calls

LACKS = "ext4/noauto_da_alloc"


def orders(judging: Judging) -> set[tuple[str, ...]]:
    failed = [s for s, result in judging.visited(judging.legal.listed()) if result.exit_code == 1]
    assert failed
    return {orders_of(judging.effect, told.found) for told in answer(judging, failed).told}


def test_contents_before_a_rename_over_a_file_are_told_from_those_before_a_new_name() -> None:
    calls = Calls().create("c").write("c", b"old").fsync("c").fsync(".").ack("0")
    calls = calls.create("t").write("t", b"new").rename("t", "c").fsync(".").ack("1")
    judging = judging_of(calls, {"c": b"new"}, lambda held, acks: not acks or bool(held.get("c")))
    assert orders(judging) == {(CONTENTS_BEFORE_REPLACE, CONTENTS_BEFORE_NAME)}
    calls = Calls().create("t").write("t", b"new").rename("t", "n").fsync(".").ack("1")
    judging = judging_of(calls, {"n": b"new"}, lambda held, acks: "n" not in held or held["n"] == b"new")
    assert orders(judging) == {(CONTENTS_BEFORE_NAME,)}


def test_contents_behind_a_truncation_are_told_from_others_that_were_acknowledged() -> None:
    calls = Calls().create("c").write("c", b"old").fsync("c").fsync(".").ack("0")
    calls = calls.size("c", 0).write("c", b"new").ack("1")
    judging = judging_of(calls, {"c": b"new"}, lambda held, acks: acks < 2 or held["c"] == b"new")
    assert (CONTENTS_BEHIND_TRUNCATION, CONTENTS) in orders(judging)
    calls = Calls().create("c").write("c", b"old").fsync("c").fsync(".").ack("0").write("c", b"new").ack("1")
    judging = judging_of(calls, {"c": b"new"}, lambda held, acks: acks < 2 or held["c"] == b"new")
    assert orders(judging) == {(CONTENTS,)}


def test_names_are_told_and_nothing_of_a_call_that_must_not_be_torn() -> None:
    judging = judging_of(Calls().create("f").ack("1"), {"f": b""}, lambda held, acks: not acks or "f" in held)
    assert orders(judging) == {(NAMES,)}
    calls = Calls().create("f").write("f", b"a" * 4096).fsync("f").fsync(".").ack("0").write("f", b"b" * 4096)
    whole = (b"a" * 4096, b"b" * 4096)
    judging = judging_of(calls, {"f": whole[1]}, lambda held, acks: not acks or held["f"] in whole)
    assert orders(judging) == {()}


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ({LACKS: Seen(6, 36)}, "hidden by auto_da_alloc"),
        ({LACKS: Seen(0, 36)}, "hidden, by what is not known"),
        ({}, f"hidden, by what is not known (run {LACKS} as well to learn more)"),
    ],
    ids=["seen to matter", "seen not to", "not run"],
)
def test_a_mechanism_is_named_only_where_it_was_seen_to_matter(seen: Mapping[str, Seen], said: str) -> None:
    told = by_what("ext4/ordered", (CONTENTS_BEFORE_REPLACE,), seen, promised=False)
    assert told == said or (seen and seen[LACKS].failed and told.startswith(said))
    assert ("6 of 36 states fail under ext4/noauto_da_alloc" in told) == (seen == {LACKS: Seen(6, 36)})


def test_a_mechanism_is_not_named_for_an_order_that_it_does_not_give() -> None:
    told = by_what("ext4/ordered", (NAMES,), {LACKS: Seen(6, 36)}, promised=False)
    assert told == "hidden, by what is not known"


def test_what_a_contract_promises_is_kept_and_not_hidden() -> None:
    seen = {"xfs/default": Seen(4, 68)}
    assert by_what("xfs/wsync", (NAMES,), seen, promised=True).startswith("kept by wsync, ")
    assert by_what("xfs/wsync", (NAMES,), {}, promised=True) == ""


def test_a_mode_and_the_mode_without_its_mechanism_differ_in_one_option() -> None:
    """Else nobody knows which of two differences hid the loss."""
    known = profiles()
    for mechanism in mechanisms():
        assert mechanism.source
        assert {*mechanism.orders} <= {*ORDERS}
        for mode, other in mechanism.without.items():
            (made, options), (made_too, others) = made_of(known[mode]), made_of(known[other])
            assert made == made_too, mode
            assert max(len(options - others), len(others - options)) == 1, mode


def made_of(profile: Profile) -> tuple[object, set[str]]:
    """How a mode is made, and its mount options."""
    made = (profile.filesystem, profile.size_bytes, profile.mkfs, profile.mkfs_arguments)
    return made, set(filter(None, profile.mount_options.split(",")))
