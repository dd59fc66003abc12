"""Novelty features: what a case showed, in few words, so that a campaign can tell whether a workload did
anything new.

A novelty feature is one of:

 - `ext4/ordered fsync: new next flush+fua next+fua`: in what order an operation wrote. `new`: a place that
   nothing in this recording had written before; `again`: one that it had; `next`: the place right behind the
   write before, as in a journal. Repeats of one word count once;
 - `ext4/ordered fsync: 8 to 15 writes`;
 - `ext4/ordered broken: durability: NAME: missing`: the symptom of a finding;
 - `ext4/ordered kernel: ...`: a line that the kernel logged where a promise was broken, without numbers;
 - `ext4/ordered undecided: ...`: why a state has no verdict;
 - `ext4/ordered recovery: FILE:FUNCTION:LINE`: a line of recovery that no case of this run had run before,
   where a campaign judges on a kernel that notes it (`--coverage`).

All of it stands in the run directory, and no file system is known. Without such a kernel, what recovery
itself does is not seen, except where it ends badly.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from harness.host.text import one_line
from harness.store import RunStore
from harness.store.records import CaseRecord, DrawnEntry, Finding, Step
from harness.store.recovery_code import CodeLine

_WORDS = 12
"""Words of an order that count; how a long one goes on is chance."""
_BLOCK_SECTORS = 8
_LINE = " recovery: "
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_PLACES = {"new": "a new place", "next": "right behind it", "again": "a place written before"}
_FLAGS = {"flush": "flush", "fua": "FUA"}
_WORD = r"(?:new|next|again|flush|fua|discard)(?:\+(?:flush|fua|discard))*"
_ORDER = re.compile(rf"(?P<kind>[\w-]+): (?P<order>{_WORD}(?: {_WORD})*)(?P<more> \.\.\.)?")


def features_of(store: RunStore, record: CaseRecord, lines: Sequence[CodeLine] = ()) -> frozenset[str]:
    """The novelty features of a case of a run. `lines`: of recovery, those that the whole run knows of."""
    case = record.case
    mode = case.configuration
    findings = store.findings_of(case)
    found = {f"{mode} {feature}" for feature in written(record.info.steps, store.timeline(case))}
    found |= {f"{mode} broken: {symptom}" for symptom in dict.fromkeys(f.symptom for f in findings)}
    found |= {f"{mode} kernel: {line}" for f in findings for line in _logged(store, f)}
    found |= {f"{mode} undecided: {numberless(u.reason)}" for u in store.unknown_reasons(case)}
    found |= {f"{mode}{_LINE}{x.file}:{x.function}:{x.line}" for x in lines if x.first == str(case)}
    return frozenset(found)


def recovery_lines(features: Iterable[str]) -> int:
    """How many of the novelty features are lines of recovery."""
    return sum(_LINE in feature for feature in features)


def in_words(feature: str) -> str:
    """A novelty feature, without its mode, for people: what `written` says of an order in whole words."""
    if not (m := _ORDER.fullmatch(feature)):
        return feature
    more = ", ..." if m["more"] else ""
    return f"{m['kind']} wrote in a new order: {', '.join(map(_in_words, m['order'].split()))}{more}"


def _in_words(word: str) -> str:
    place, *flags = word.split("+")
    said = [_FLAGS.get(flag, flag) for flag in flags]
    if place not in _PLACES:
        return f"a {' with '.join([_FLAGS.get(place, place), *said])}"
    return f"{_PLACES[place]} ({', '.join(said)})" if said else _PLACES[place]


def written(steps: Sequence[Step], timeline: Sequence[DrawnEntry]) -> Iterator[str]:
    """How each operation wrote between its begin and its ack: the order, and how many writes."""
    known: set[int] = set()
    entries = {e.index: e for e in timeline}
    for step in steps:
        if step.begin is None or step.ack is None or step.begin < 0:
            continue
        inside = [entries[i] for i in range(step.begin, step.ack) if i in entries]
        words = list(_order([e for e in inside if e.kind != "mark"], known))
        if not words:
            continue
        kind = step.text.split()[0]
        once = [word for word, _ in itertools.groupby(words)]
        yield f"{kind}: {' '.join(once[:_WORDS])}{' ...' if len(once) > _WORDS else ''}"
        low = 1 << (len(words).bit_length() - 1)
        yield f"{kind}: {low} to {2 * low - 1} writes" if low > 1 else f"{kind}: 1 write"


def _order(entries: Sequence[DrawnEntry], known: set[int]) -> Iterator[str]:
    """A word for each entry; adds the blocks that they write to `known`."""
    end = -1
    for entry in entries:
        if not entry.sectors:
            yield entry.kind
            continue
        blocks = range(entry.sector // _BLOCK_SECTORS, -(-(entry.sector + entry.sectors) // _BLOCK_SECTORS))
        place = "next" if entry.sector == end else "again" if not known.isdisjoint(blocks) else "new"
        known.update(blocks)
        end = entry.sector + entry.sectors
        yield place if entry.kind == "write" else f"{place}+{entry.kind}"


def _logged(store: RunStore, finding: Finding) -> set[str]:
    evidence = store.evidence(finding)
    return {numberless(line) for line in evidence.kernel_log.splitlines() if line} if evidence else set()


def numberless(text: str) -> str:
    """One line, each number as N."""
    return _NUMBER.sub("N", one_line(text))[:200]
