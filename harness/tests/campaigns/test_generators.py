"""Where a campaign's workloads come from."""

from __future__ import annotations

import pytest

from harness.campaigns.generators import GROWN, MAX_GROWN, SCHEDULED, grown, next_batch, scheduled, size_of
from harness.campaigns.journal import Batch, BatchBegun, CampaignPlan, KnownBatches, Reached
from harness.plan import Plan
from harness.workloads.generate import generate


def plan_of(*names: str) -> CampaignPlan:
    return CampaignPlan(run=Plan(configurations=["ext4/ordered"], workloads=[]), generators=names, batch=6)


def batches(plan: CampaignPlan, count: int, took: dict[str, float] | None = None) -> list[BatchBegun]:
    """The first batches of a campaign in which every workload reaches something new."""
    ledger, found = KnownBatches(), []
    for number in range(1, count + 1):
        chosen = next_batch(plan, ledger)
        assert chosen is not None
        generator, names = chosen
        begun = BatchBegun(item=str(number), at=0, generator=generator, workloads=names)
        reached = tuple(Reached("ext4/ordered", name, (name,)) for name in names)
        ledger.add(begun)
        ledger.add(Batch(item=str(number), at=0, seconds=(took or {}).get(generator, 1.0), reached=reached))
        found.append(begun)
    return found


def test_no_workload_comes_twice() -> None:
    names = [n for b in batches(plan_of("ace2", "random", GROWN, SCHEDULED), 40) for n in b.workloads]
    assert len(names) == len(set(names))
    for name in names:
        assert generate(name).operations


@pytest.mark.parametrize("lost", [*range(1, 7)])
@pytest.mark.parametrize("done", [True, False])
def test_a_damaged_line_takes_no_names_away_and_gives_none_twice(lost: int, done: bool) -> None:
    """The next batch had the number or the names of one that was there, and that was judged."""
    plan, whole, ledger = plan_of("ace2", "random"), KnownBatches(), KnownBatches()
    for number, begun in enumerate(batches(plan, 6), 1):
        for line in (begun, Batch(item=begun.item, at=0, seconds=1.0)):
            whole.add(line)
            if number != lost or (done and isinstance(line, Batch)):
                ledger.add(line)
    there = {name for begun in ledger.chosen.values() for name in begun.workloads}
    for _ in range(6):
        generator, names = next_batch(plan, ledger) or ("", ())
        assert names
        assert there.isdisjoint(names)
        assert str(ledger.last + 1) not in {*ledger.chosen, *ledger.done}
        there.update(names)
        ledger.add(BatchBegun(item=str(ledger.last + 1), at=0, generator=generator, workloads=names))
        ledger.add(Batch(item=str(ledger.last), at=0, seconds=1.0))
    of_sequences = {n for b in whole.chosen.values() if b.generator == "ace2" for n in b.workloads}
    assert of_sequences <= there  # all of them are covered


def test_generators_get_the_same_time() -> None:
    """Not the same number of workloads: random ones take several times as long."""
    begun = batches(plan_of("ace2", "random"), 22, {"ace2": 1.0, "random": 10.0})
    assert sum(b.generator == "random" for b in begun) == 2


def test_parts_of_a_set_are_spread_over_it() -> None:
    """In order, the first hours would see nothing but sequences that begin with `creat`."""
    (first,) = batches(plan_of("ace2"), 1)
    assert len({name.partition(".")[0] for name in first.workloads}) > 3


def test_a_grown_random_workload_begins_with_the_same_operations() -> None:
    (longer,) = grown(["random1-17-20"])
    before, after = generate("random1-17-20").operations, generate(longer).operations
    assert len(after) == 40
    assert after[:20] == before


def test_a_grown_sequence_begins_with_the_same_steps() -> None:
    parent = "ace-creat.A_foo+none--link.A_foo.A_bar+fsync.A_bar"
    other = "ace-creat.A_foo+none--unlink.A_foo+sync"
    longer = [name for name in grown([parent, other]) if name.startswith(parent)]
    assert f"{parent}--unlink.A_foo+sync" in longer
    assert all(generate(name).operations for name in longer)


def test_growth_ends() -> None:
    assert list(grown([f"random1-17-{MAX_GROWN}"])) == []


def test_a_small_grown_batch_waits_for_more() -> None:
    plan, ledger = plan_of("random", GROWN), KnownBatches()
    ledger.add(BatchBegun(item="1", at=0, generator="random", workloads=("random1-1-20",)))
    ledger.add(Batch(item="1", at=0, seconds=9, reached=(Reached("m", "random1-1-20", ("t",)),)))
    assert size_of(GROWN, plan) > 2
    chosen = next_batch(plan, ledger)
    assert chosen is not None and chosen[0] == "random"
    alone = next_batch(plan_of(GROWN), ledger)
    assert alone == (GROWN, ("random1-1-40",))


def test_what_reached_something_new_is_recorded_under_further_schedules() -> None:
    """One that did so under a schedule goes on from there, so the corpus keeps schedules."""
    assert list(scheduled(["random1-17-20"])) == [f"random1-17-20.s{n}" for n in (1, 2, 3)]
    assert list(scheduled(["random1-17-20.s3"])) == [f"random1-17-20.s{n}" for n in (4, 5, 6)]
    begun = batches(plan_of("random", SCHEDULED), 4)
    drawn = [n for b in begun for n in b.workloads if b.generator == SCHEDULED]
    assert {n.rpartition(".")[2] for n in drawn} == {"s1", "s2", "s3"}


def test_what_grows_keeps_its_schedule() -> None:
    assert list(grown(["random1-17-20.s3"])) == ["random1-17-40.s3"]
    parent = "ace-creat.A_foo+none--link.A_foo.A_bar+fsync.A_bar.s2"
    other = "ace-creat.A_foo+none--unlink.A_foo+sync"
    longer = [name for name in grown([parent, other]) if name.endswith(".s2")]
    assert f"{parent.removesuffix('.s2')}--unlink.A_foo+sync.s2" in longer
    assert all(generate(name).operations for name in longer)
