"""Where the order that a program relies on is promised, by the contracts; and which real file systems of the
same run failed the same check.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import msgspec

from harness.filesystems.profile import Profile
from harness.filesystems.profiles import profiles, ruled_modes, ruled_name
from harness.model import CaseId
from harness.oracles.contract import Contract
from harness.report.explanation import Explanation, read_explanation, write_explanation
from harness.report.words import number, plural
from harness.ruled.hides import Seen, by_what
from harness.ruled.judging import ORACLE, Judging
from harness.rules.micro import Effect
from harness.rules.promised import effect_under
from harness.rules.rules import Rules
from harness.rules.states import Legal, Partial, Stretch
from harness.rules.vulnerabilities import Vulnerability
from harness.store import RunStore
from harness.store.records import CaseStatus

_BESIDE = {"": "", "-neighbour": " beside another program", "-pressure": " under memory pressure"}
"""What runs beside a workload, by the ending of its name (`harness.workloads.applications`)."""
_TRIED = 6
"""Of what must not be lost, so much is lost alone."""
_CALLS_MAX = 1000
"""Of a program with more calls, to make the rules of all contracts takes minutes."""


class Says(enum.StrEnum):
    """What a mode's rules say of an order. PARTLY: they leave a state possible that breaks it, and the check
    says yes to those that were tried. UNDECIDED: to none of them no, and of one it says nothing.
    """

    PROMISED = "promised by"
    PARTLY = "in part by"
    NOT = "not by"
    UNDECIDED = "undecided for"


def modes() -> dict[str, Rules]:
    """A mode of each set of rules: those of `any`, and one for each contract of each file system, the usual
    mode if it has that.
    """
    ruled, known = ruled_modes(), profiles()
    found = {name: p.rules for name, p in ruled.items() if p.is_of_any and p.rules}
    for name in sorted(known, key=lambda name: _last_resort(known[name])):
        profile = ruled.get(ruled_name(known[name]))
        if profile and profile.rules and not _alike(profile.rules, known[name].filesystem, found):
            found[name] = profile.rules
    return found


@cache
def not_asked() -> tuple[str, ...]:
    """The modes whose contracts cannot be put into rules: a file system by its name where none of its can."""
    ruled, known = ruled_modes(), profiles().values()
    some = {p.filesystem for p in known if ruled_name(p) in ruled}
    left: dict[tuple[str, Contract], str] = {}
    for p in sorted(known, key=_last_resort):
        if ruled_name(p) not in ruled:
            left.setdefault((p.filesystem, p.contract), p.name if p.filesystem in some else p.filesystem)
    return tuple(dict.fromkeys(left.values()))


def _alike(rules: Rules, filesystem: str, known: Mapping[str, Rules]) -> str:
    """The known mode of a file system that has the same contract; empty if there is none."""
    mine = (name for name in known if name.partition("/")[0] == filesystem)
    return next((name for name in mine if known[name].contract == rules.contract), "")


def _last_resort(profile: Profile) -> tuple[str, bool, bool, int]:
    return profile.filesystem, not profile.usual, profile.on_request, len(profile.name)


@dataclass(slots=True)
class Where:
    """Of one program."""

    judging: Judging
    _effects: dict[str, Effect] = field(default_factory=dict)

    def of(self, found: Vulnerability) -> dict[str, Says]:
        """What each mode says of what a vulnerability relies on; nothing if no order would be enough, if the
        program is too large, or if the time for causes is up before each mode was asked.
        """
        calls = len(self.judging.notes.calls)
        if (not found.missing and found.state.torn is None) or calls > _CALLS_MAX:
            return {}
        says: dict[str, Says] = {}
        for name, rules in modes().items():
            if self.judging.is_late:
                return {}
            if name not in self._effects:
                self._effects[name] = effect_under(self.judging.notes, rules)
            says[name] = self._says(self._effects[name], found)
        return _with_contained(says)

    def _says(self, effect: Effect, found: Vulnerability) -> Says:
        said = Says.PROMISED
        for state in _broken(effect, found):
            code = self.judging.result(state, found.acks).exit_code
            if code == 1:
                return Says.NOT
            said = Says.UNDECIDED if code or code is None or said is Says.UNDECIDED else Says.PARTLY
        return said


def _with_contained(says: Mapping[str, Says]) -> dict[str, Says]:
    """What modes say, where no mode says more than one whose states are among its own: a few are tried of
    each, and what breaks the order there may be none of them.
    """
    known = modes()
    broken = [known[name] for name, said in says.items() if said is Says.NOT]
    return {
        name: Says.NOT if any(_contains(known[name], other) for other in broken) else said
        for name, said in says.items()
    }


def _contains(rules: Rules, other: Rules) -> bool:
    """Whether all states that `other` allows are known to be allowed. A contract leaves of the states without
    any rule those that it does not forbid.
    """
    holds = [
        (mine.holds, its.holds)
        for mine, its in (
            (rules.fsync_names, other.fsync_names),
            (rules.names_in_order, other.names_in_order),
            (rules.truncates_at_once, other.truncates_at_once),
        )
    ]
    if rules.contract or (other.contract and any(mine for mine, _ in holds)):
        return False
    finer = rules.block_bytes <= other.block_bytes and rules.torn_bytes <= other.torn_bytes
    return finer and all(its or not mine for mine, its in holds)


def _broken(effect: Effect, found: Vulnerability) -> Iterator[Partial]:
    """States that the rules allow in which the missing micro-operations are lost and the present ones are
    there, with what has to be durable besides by the syncs of others.
    """
    legal = Legal(effect)
    there = found.present | (found.base if found.mended else 0)
    missing, present = effect.done(found.missing), effect.done(there)
    for stretch in legal.stretches:
        if effect.acks(stretch.end) < found.acks or present & ~stretch.asked:
            continue
        if found.state.torn is not None:
            yield from (state for state in _torn(effect, found, stretch) if legal.has(state))
            continue
        least = effect.with_needs(stretch.durable | present)
        lost = list(effect.of(missing & stretch.asked & ~least))
        if lost:
            yield Partial(least)
            yield Partial(effect.without(stretch.asked, missing & ~least))
            yield from (Partial(effect.without(stretch.asked, m.bit)) for m in lost[:_TRIED])


def _torn(effect: Effect, found: Vulnerability, stretch: Stretch) -> Iterator[Partial]:
    """The same block torn: beside what is durable, beside what is there in the state that fails, and beside
    all else.
    """
    there = effect.done(found.state.persisted) & stretch.asked
    for beside in dict.fromkeys((effect.done(found.present), there, stretch.asked)):
        yield Partial(effect.with_needs(stretch.durable | beside), found.state.torn)


def words_of(says: Mapping[str, Says]) -> str:
    """In a line: a file system by its name alone where all its contracts that were asked agree."""
    parts = []
    for answer in Says:
        names = dict.fromkeys(_shown(name, says) for name, said in says.items() if said is answer)
        if names:
            parts.append(f"{answer} {', '.join(names)}")
    if says and Says.PROMISED not in says.values():
        parts.insert(0, "promised by none of the contracts that were asked")
        parts.append(f"not asked: {', '.join(not_asked())}")
    return "; ".join(parts)


def _shown(name: str, says: Mapping[str, Says]) -> str:
    filesystem = name.partition("/")[0]
    alike = {said for other, said in says.items() if other.partition("/")[0] == filesystem}
    if len(alike) > 1 or filesystem == "any":
        return name
    is_part = any(other.partition("/")[0] == filesystem for other in not_asked())
    return f"{filesystem} as far as asked" if is_part else filesystem


def tell_where_seen(store: RunStore) -> None:
    """Add to the explanation of each finding by rules what the same check said on real file systems of the
    run. Again, if it was told before.
    """
    real = [c for c in store.cases() if c.status is CaseStatus.DONE and c.case.filesystem != "any"]
    for finding in store.findings():
        told = read_explanation(store.layout, finding.id) if finding.case.filesystem == "any" else None
        alone = finding.case.workload
        same = {
            beside: [c.case for c in real if c.case.workload == f"{alone}{ending}"]
            for ending, beside in _BESIDE.items()
        }
        if told is not None and any(same.values()):
            parts = (part for beside, cases in same.items() for part in seen(store, cases, told, beside))
            lines = {**told.lines, "seen": "; ".join(parts)}
            write_explanation(store.layout, msgspec.structs.replace(told, lines=lines))


def seen(store: RunStore, cases: Sequence[CaseId], told: Explanation, beside: str = "") -> list[str]:
    """What a check said on real file systems, in words, and by what one hides a loss that its contract does
    not exclude. A state that fails there need not fail for the same reason. `beside`: what runs beside it.
    """
    parts, known, ruled_by = [], modes(), ruled_modes()
    found = {case.configuration: _seen(store, case) for case in cases}
    for case in cases:
        name = case.configuration
        failed, states = found[name].failed, found[name].states
        if failed:
            parts.append(f"{name}{beside}: {number(failed)} of {plural(states, 'state')} fail the same check")
            continue
        ruled = ruled_by.get(f"any/{case.filesystem}-{case.mode}")
        said = (
            told.promises.get(_alike(ruled.rules, case.filesystem, known)) if ruled and ruled.rules else None
        )
        also = ", though its contract does not promise this order" if said == Says.NOT else ""
        by = by_what(name, told.orders, found, promised=said == Says.PROMISED)
        parts.append(f"{name}{beside}: none of {plural(states, 'state')} fails it{also}{by and f': {by}'}")
    return parts


def _seen(store: RunStore, case: CaseId) -> Seen:
    violated = store.violated(case).values()
    failed = sum(any(oracle == ORACLE for oracle, _ in kinds) for kinds in violated)
    counts = store.counts(case)
    return Seen(failed, counts.passed + counts.failed)
