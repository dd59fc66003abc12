"""Where a campaign's workloads come from: the names of the next batch of each generator.

A name spells the whole workload out, and no name comes twice. Two generators take no notice of what was
seen: `ace2` goes through all sequences of two, in parts that are spread over the whole set; `random` counts
its seeds up without end. Two take what reached something new, the corpus: `grown` makes it longer, and
`scheduled` records it again, with other threads that meet and writes that complete in another order. A
schedule that reached something new is in the corpus itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence

from harness.campaigns.journal import CampaignPlan, KnownBatches
from harness.errors import UsageError
from harness.model.schedules import ScheduleName, under_schedule, without_schedule
from harness.workloads.generate import chance, generate, names_of, sequences

GROWN = "grown"
SCHEDULED = "scheduled"
GENERATORS: Mapping[str, str] = {
    "ace2": "all sequences of two operations, each with every way to make it durable",
    "random": "random operations, from one seed after another",
    GROWN: "what reached something new, made longer: a random workload goes on, a sequence gets a step",
    SCHEDULED: "what reached something new, recorded under further schedules",
}
OF_CORPUS = {GROWN, SCHEDULED}
MAX_GROWN = 160
"""Operations of a random workload that has grown. A longer one is recorded, and shrunk, for minutes."""
MAX_STEPS = 4
STEPS_EACH = 3
"""Sequences that one sequence of the corpus is made into."""
SCHEDULES_EACH = 3
_LONG = 2
"""How many workloads of a sequence's batch one random workload stands for: it takes that much longer."""


def next_batch(plan: CampaignPlan, ledger: KnownBatches) -> tuple[str, tuple[str, ...]] | None:
    """The generator that worked least so far, and its next workloads; None if there are none any more. A
    batch of the corpus that would be less than half full waits while others have work.
    """
    spent = dict.fromkeys(plan.generators, 0.0)
    for number, done in ledger.done.items():
        if (begun := ledger.chosen.get(number)) and begun.generator in spent:
            spent[begun.generator] += done.seconds
    left = {g: names for g in plan.generators if (names := _names(g, plan, ledger))}
    ready = [g for g in left if g not in OF_CORPUS or len(left[g]) * 2 >= size_of(g, plan)] or list(left)
    chosen = min(ready, key=lambda g: spent[g], default=None)
    return None if chosen is None else (chosen, left[chosen])


def size_of(generator: str, plan: CampaignPlan) -> int:
    """How many workloads a batch of that generator has."""
    return plan.batch if generator == "ace2" else max(1, plan.batch // _LONG)


def _names(generator: str, plan: CampaignPlan, ledger: KnownBatches) -> tuple[str, ...]:
    before = [b for b in ledger.chosen.values() if b.generator == generator]
    size = size_of(generator, plan)
    known = {name for b in before for name in b.workloads}
    if generator == "ace2":
        names = every_two()
        parts = -(-len(names) // size)
        # not by their number: of a batch whose line is damaged, it is not known whether it was one of these
        return next((names[n::parts] for n in range(parts) if names[n] not in known), ())
    if generator == "random":
        first = plan.seed + sum(len(b.workloads) for b in before) + size * ledger.damaged_batches
        return tuple(chance.name_of(seed, plan.length) for seed in range(first, first + size))
    corpus = list(dict.fromkeys(r.workload for _, r in ledger.corpus))
    drawn = grown(corpus) if generator == GROWN else scheduled(corpus)
    return tuple(itertools.islice((n for n in drawn if n not in known), size))


@functools.cache
def every_two() -> tuple[str, ...]:
    """The names of `ace2`, made once: that takes seconds."""
    return tuple(names_of("ace2"))


def scheduled(corpus: Sequence[str]) -> Iterator[str]:
    """Each workload of the corpus under the schedules that follow its own."""
    for plain, (number, _) in map(without_schedule, corpus):
        for further in range(number + 1, number + 1 + SCHEDULES_EACH):
            yield under_schedule(plain, ScheduleName(further))


def grown(corpus: Sequence[str]) -> Iterator[str]:
    """Longer workloads from those of the corpus, each under its schedule. A random one of the same seed and
    twice the length begins with the same operations; a sequence gets a step that another one of the corpus
    ended in.
    """
    split = list(map(without_schedule, corpus))
    steps = [n.rpartition(sequences.BETWEEN)[2] for n, _ in split if n.startswith(sequences.PREFIX)]
    steps = list(dict.fromkeys(step.removeprefix(sequences.PREFIX) for step in steps))
    for number, (name, schedule) in enumerate(split):
        if chance.NAME.fullmatch(name):
            if longer := chance.longer(name, MAX_GROWN):
                yield under_schedule(longer, schedule)
        elif name.count(sequences.BETWEEN) + 1 < MAX_STEPS:
            turned = steps[number % len(steps) :] + steps[: number % len(steps)]
            for longer in itertools.islice(_longer(name, turned), STEPS_EACH):
                yield under_schedule(longer, schedule)


def _longer(name: str, steps: Sequence[str]) -> Iterator[str]:
    for step in steps:
        longer = f"{name}{sequences.BETWEEN}{step}"
        try:
            generate(longer)
        except UsageError:  # that step is not possible there
            continue
        yield longer
