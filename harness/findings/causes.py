"""Groups findings by cause: by the minimal workload that shows them, not by where they were first seen. Pure.

Two findings have one cause if, on one file system,

 1. they shrink to the same workload in the same mode, whatever the symptom; or
 2. they shrink to the same workload in different modes, with the same symptom; or
 3. they shrink to the same operations with other numbers in them, with the same symptom; or
 4. in one mode, the workload of one contains that of the other and shows all of its symptoms as well. Every
    operation in it is needed, so without the smaller workload the symptom of the larger one is gone.

The same symptom (`harness.symptoms`) alone joins nothing: different defects may leave the same trace. Rule 4
is the weakest: a second defect that needs the first one's operations, and shows only after them, is taken for
the first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from harness.host.text import one_line
from harness.model import CaseId
from harness.symptoms import Symptom

SAME_WORKLOAD = "same workload"
OTHER_MODE = "same workload and symptom, another mode"
OTHER_NUMBERS = "same operations and symptom, other numbers"
CONTAINED = "contains the smallest workload, and shows all of its symptoms"
NOT_SHRUNK = "not shrunk: joined with nothing"

_NUMBER = re.compile(r"\d+")
_PLAINER = {"sync": ("fsync", "fdatasync"), "fsync": ("fdatasync",)}
"""Operations that stand for others in a plain workload."""


class CauseMember(msgspec.Struct, frozen=True, kw_only=True):
    """A finding: the first of its symptom in a case. `run`: the run directory, as shown; `point`: the
    smallest crash state that shows it. `minimal`: the operations it was shrunk to; empty if it was not, and
    then `reason` says why. `schedule`: that under which it shows, `.s3`; empty: the default one. `shows`:
    every symptom of that workload, with an example. `standing`: which known bug it is, or `new`, or the like
    (`triage.standing_of`). `confirmed`: whether the recording machine of the run shows it, too; `untried`:
    why that is not known. `recordings`: how many were made for it.
    """

    run: str
    kernel: str
    configuration: str
    workload: str
    point: str
    finding: str
    symptom: Symptom
    summary: str
    operations: int
    minimal: tuple[str, ...] = ()
    schedule: str = ""
    shows: tuple[tuple[Symptom, str], ...] = ()
    confirmed: bool = False
    untried: str = ""
    recordings: int = 0
    reason: str = ""
    standing: str = ""

    @property
    def case(self) -> str:
        return str(CaseId.named_in(self.point))

    @property
    def why_unconfirmed(self) -> str:
        """Why only the machine that judges shows it, in words; empty where the other one does, too."""
        if self.confirmed or not self.minimal:
            return ""
        if self.untried:
            return f"could not be tried on the machine that records: {one_line(self.untried)}"
        return "only the machine that judges shows this; the one that records does not"

    @property
    def filesystem(self) -> str:
        return self.configuration.partition("/")[0]


class Cause(msgspec.Struct, frozen=True):
    """Findings with one cause, the smallest first. `rules`: why each belongs to it. `contains`: names of
    causes whose workload is contained in this one's: a hint that the causes may be one.
    """

    name: str
    members: tuple[CauseMember, ...]
    rules: tuple[str, ...]
    contains: tuple[str, ...] = ()

    @property
    def smallest(self) -> CauseMember:
        """The member with the shortest workload."""
        return self.members[0]

    @property
    def symptoms(self) -> tuple[Symptom, ...]:
        """Of all members."""
        return tuple(dict.fromkeys(m.symptom for m in self.members))


def by_cause(members: Sequence[CauseMember]) -> list[Cause]:
    """The members by cause; largest causes first."""
    ordered = sorted(members, key=lambda m: (len(m.minimal) or m.operations, m.operations, m.minimal))
    found: list[list[tuple[CauseMember, str]]] = []
    for member in ordered:
        for known in found:
            rule = next((r for other, _ in known if (r := rule_for(member, other))), "")
            if rule:
                known.append((member, rule))
                break
        else:
            found.append([(member, "" if member.minimal else NOT_SHRUNK)])
    found.sort(key=lambda g: (-len(g), len(g[0][0].minimal)))
    named = _named([g[0][0] for g in found])
    causes = [
        Cause(name, tuple(m for m, _ in g), tuple(rule for _, rule in g))
        for name, g in zip(named, found, strict=True)
    ]
    return [msgspec.structs.replace(g, contains=_inside(g, causes)) for g in causes]


def rule_for(a: CauseMember, b: CauseMember) -> str:
    """Why two findings have one cause; empty if nothing says so."""
    if not a.minimal or not b.minimal or a.filesystem != b.filesystem:
        return ""
    one_mode, alike = a.configuration == b.configuration, a.symptom == b.symptom
    rules = {
        SAME_WORKLOAD: one_mode and a.minimal == b.minimal,
        OTHER_MODE: alike and a.minimal == b.minimal,
        OTHER_NUMBERS: one_mode and alike and _numberless(a) == _numberless(b),
        CONTAINED: one_mode and _is_consequence(a, b),
    }
    return next((rule for rule, holds in rules.items() if holds), "")


def _numberless(member: CauseMember) -> list[str]:
    return [_NUMBER.sub("N", operation) for operation in member.minimal]


def _is_consequence(a: CauseMember, b: CauseMember) -> bool:
    """Whether the workload of `a` contains that of `b` and shows all that `b`'s shows."""
    shown = {symptom for symptom, _ in a.shows}
    return bool(b.shows) and shown.issuperset(s for s, _ in b.shows) and contains(a.minimal, b.minimal)


def contains(long: Sequence[str], short: Sequence[str]) -> bool:
    """Whether `long` has the operations of `short` in their order, with any numbers, after giving its names
    others. A `sync` of `short` may be the fsync of some file in `long`, and its fsync an fdatasync: what
    syncs more is plainer.
    """

    @cache  # equal operations lead to one question in many ways
    def holds(begin: int, found: int, names: frozenset[tuple[str, str]]) -> bool:
        """Of `long` from `begin` on and what is left of `short`, with the names given so far."""
        if found == len(short):
            return True
        return any(
            (more := _matched(long[i], short[found], dict(names))) is not None
            and holds(i + 1, found + 1, frozenset(more.items()))
            for i in range(begin, len(long) - len(short) + found + 1)
        )

    return holds(0, 0, frozenset())


def _matched(operation: str, other: str, names: Mapping[str, str]) -> Mapping[str, str] | None:
    """`names` with those by which one operation is the other; None if it is not."""
    words, others = operation.split(), other.split()
    if words[0] in _PLAINER.get(others[0], ()):
        words = [others[0], *words[1 : len(others)]]
    if words[0] != others[0] or len(words) != len(others):
        return None
    found = dict(names)
    for word, wanted in zip(words[1:], others[1:], strict=True):
        if word.isdigit() and wanted.isdigit():
            continue
        if found.setdefault(word, wanted) != wanted:
            return None
    return found if len(set(found.values())) == len(found) else None


def _inside(cause: Cause, causes: Sequence[Cause]) -> tuple[str, ...]:
    """Causes in the same mode whose workload is a part of this one's."""
    own = cause.smallest
    others = [(c.name, c.smallest) for c in causes if c is not cause]
    alike = [(name, m.minimal) for name, m in others if m.configuration == own.configuration]
    return tuple(
        name for name, part in alike if part and len(part) < len(own.minimal) and contains(own.minimal, part)
    )


def _named(members: Sequence[CauseMember]) -> list[str]:
    """A name for each cause: its kinds of operations, runs of one kind told once; unique."""
    names: list[str] = []
    for member in members:
        kinds = [operation.split()[0] for operation in member.minimal] or [member.workload]
        once = [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
        said = "-".join([member.configuration.replace("/", "-"), *once])
        stem = re.sub(r"[^\w.+-]", "-", said, flags=re.ASCII)[:80].rstrip("-")  # the name of a file
        numbered = [stem, *(f"{stem}.{n}" for n in range(2, len(members) + 2))]
        names.append(next(name for name in numbered if name not in names))
    return names
