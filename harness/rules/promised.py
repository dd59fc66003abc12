"""What the contract of a mode promises of a program's calls, as rules: which micro-operations need which, and
what a sync covers besides what it covers under `any/posix`. Pure.

The states are those of `any/posix`, less those that the contract forbids. Where rules of this kind cannot say
so exactly, they leave more states: see docs/explanation/contracts-as-rules.md. What each field of a contract
means, with its evidence, is in vms/filesystems/CONTRACTS.md; its sections are named here.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from harness.errors import UsageError
from harness.oracles.contract import Contract
from harness.rules.calls import NotedCall, Notes
from harness.rules.entries import KeptNames
from harness.rules.micro import ZEROS, Effect, Micro, Sort, cut, effect_of
from harness.rules.rules import Rule, Rules

_OF_PROGRAMS = frozenset(
    {
        *("overwrites-commit", "zeroed-edges-lag", "data-at-end", "extension-zeroes"),
        *("reused-name-loses", "exchange-leaves-inodes", "rename-commits"),
    }
)
"""The rules of contracts that say more or less of a program's files than `any/posix`."""


def why_no_rules(contract: Contract) -> str:
    """Why a contract cannot be put into rules; empty if it can."""
    if contract.namespace in ("prefix", "each"):
        is_more = "writes-at-once" in contract.rules
        return "writes-at-once makes each write a sync, which no rule of programs says" if is_more else ""
    return (
        f"namespace = {contract.namespace!r} promises nothing of what has changed since it was synced: a "
        "file that was written to, or a name that was replaced, may be lost whole"
    )


def rules_of(contract: Contract, name: str) -> Rules:
    """The rules that a contract gives. Raises UsageError for one that cannot be put into rules."""
    if why := why_no_rules(contract):
        raise UsageError(
            f"the contract of {name} cannot be put into rules: {why}",
            f"run with {name} itself, or with any/posix",
        )
    rules = tuple(rule for rule in contract.rules if rule in _OF_PROGRAMS)
    contract = replace(contract, fsck_clean=True, rules=rules, made_by_mkfs=(), checksums=())
    source = f"the contract of {name}, vms/filesystems/CONTRACTS.md"
    in_order = contract.namespace == "prefix"
    at_once = Rule(holds=True, source=source)
    return Rules(Rule(holds=True, source=source), Rule(in_order, source), at_once, contract=contract)


def effect_under(notes: Notes, rules: Rules) -> Effect:
    """The micro-operations of a program's calls, by these rules. Raises NotFollowed."""
    if rules.contract is None:
        return effect_of(notes, rules)
    effect = cut(notes, rules)
    promised = ByContract(effect, rules.contract)
    effect.promised = promised.covered
    effect.set_needs(promised.needs())
    if rules.contract.persists == "operations":
        names = dict.fromkeys(m.call for m in effect.micros if m.sort is Sort.NAME)
        effect.syncs += [effect.covering(n, promised.committed(n)) for n in names]
        effect.syncs.sort(key=lambda sync: sync.time)
    return effect


@dataclass(slots=True)
class ByContract:
    """What a contract says of a program."""

    effect: Effect
    contract: Contract
    _needs: list[int] = field(default_factory=list)
    _files: dict[int, tuple[list[int], list[int], list[int]]] = field(default_factory=dict)
    _calls: dict[int, list[int]] = field(default_factory=dict)
    _all_synced: list[int] = field(default_factory=list)
    _entries: KeptNames = field(init=False)
    _committed: list[int] = field(init=False)
    _attributes: dict[int, list[Micro]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._entries = KeptNames(self.effect)
        for number, call in enumerate(self.effect.notes.calls):
            self._calls.setdefault(call.inode, []).append(number)
            if call.word == "sync":
                self._all_synced.append(number)
        journaled = self.contract.data == "journal"
        bits = (
            m.bit if journaled or self._is_in_order(m) or self._is_tied(m) else 0 for m in self.effect.micros
        )
        self._committed = list(itertools.accumulate(bits, int.__or__, initial=0))
        for m in self.effect.micros:
            if m.sort is Sort.ATTRIBUTES:
                self._attributes.setdefault(m.inode, []).append(m)

    # --- which need which ---

    def needs(self) -> list[int]:
        """Of each micro-operation, all without which it does not persist."""
        self._needs = [0] * len(self.effect.micros)
        if self.contract.data == "journal":
            self._follow_each_other()
            return self._needs
        before: dict[tuple[int, Sort | None], int] = {}
        last: dict[tuple[int, Sort, str], int] = {}
        for _, group in itertools.groupby(self.effect.micros, lambda m: m.call):
            own = list(group)
            for m in own:
                if m.sort is not Sort.DATA:
                    # One that changes nothing is there only if that is there which left nothing to change.
                    alike = last.get((m.inode, m.sort, m.xattr), 0)
                    self._needs[m.number] = before.get(self._scope(m), 0) if m.changes else alike
                    self._needs[m.number] |= self._with_needs(self._besides(m, own))
                    last[m.inode, m.sort, m.xattr] = m.bit | self._needs[m.number]
            for m in own:
                if self._is_in_order(m) or self._is_tied(m):
                    before[self._scope(m)] = before.get(self._scope(m), 0) | m.bit | self._needs[m.number]
        if self.contract.namespace == "each":
            for m, kept in self._entries.kept(reused_loses="reused-name-loses" in self.contract.rules):
                self._needs[m.number] |= self._with_needs(kept)
        return self._needs

    def _with_needs(self, wanted: int) -> int:
        for m in self.effect.of(wanted):
            wanted |= self._needs[m.number]
        return wanted

    def _scope(self, m: Micro) -> tuple[int, Sort | None]:
        """What keeps an order: the whole, or with `each` the sizes of each file, and its attributes."""
        if self.contract.namespace == "prefix":
            return 0, None
        if m.sort is Sort.NAME:
            return m.number, Sort.NAME
        return m.inode, Sort.ATTRIBUTES if m.sort is Sort.ATTRIBUTES else Sort.SIZE

    def _is_in_order(self, m: Micro) -> bool:
        """Whether later changes persist only after this one. A size that a write sets may lag (`size_lags`);
        it is then never ahead of an earlier change.
        """
        if m.sort is Sort.SIZE and not m.exact:
            return not self.contract.size_lags
        return m.sort is not Sort.DATA and bool(m.changes)

    def _is_tied(self, m: Micro) -> bool:
        """Whether data is there once what is called later is. Bytes, 2 and 3: zeroing whole blocks is
        metadata, and parts of one are data, in order where a truncation zeroes them; 5: new blocks in ordered
        mode, but those of a mapping.
        """
        ordered = self.contract.data == "ordered"
        if m.sort is not Sort.DATA:
            return False
        if m.at == ZEROS:
            edges = ordered and (not m.changes or "zeroed-edges-lag" not in self.contract.rules)
            return edges or m.length == self.effect.rules.block_bytes
        return ordered and m.fresh and not m.stored and not self.contract.zeros_in_new_blocks

    def _besides(self, m: Micro, own: Iterable[Micro]) -> int:
        """`data-at-end`: of a size, the data of the same write in the last block. `extension-zeroes`: of a
        larger size that a truncation sets, the zeros behind the old one. `replace_is_safe`: of a rename over
        a file, the sizes that writes have given the new one.
        """
        block = self.effect.rules.block_bytes
        if m.sort is Sort.SIZE and not m.exact and "data-at-end" in self.contract.rules:
            last = (m.size - 1) // block
            data = (n.bit for n in own if n.sort is Sort.DATA and n.offset // block == last)
            return 0 if self._is_cut(m) else sum(data)
        if m.exact and m.size > m.offset and "extension-zeroes" in self.contract.rules:
            behind = self._until(m, m.inode, m.offset // block)
            return sum(n.bit for n in behind if _cuts_off(n))
        if m.replaced and self.contract.replace_is_safe:
            return sum(n.bit for n in self._until(m, m.inode, Sort.SIZE))
        return 0

    def _until(self, m: Micro, inode: int, what: Sort | int) -> Iterator[Micro]:
        """Those before a micro-operation that are about a place."""
        numbers = self.effect.at(inode, what)
        return (self.effect.micros[n] for n in numbers[: bisect.bisect_left(numbers, m.number)])

    def _is_cut(self, size: Micro) -> bool:
        """Whether anything cuts, zeroes or extends the file between the syncs of it before and after; or
        makes durable what a write put there, which needs the size no further than it reaches.
        """
        syncs, cuts, durable = self._of_file(size.inode)
        place = bisect.bisect(syncs, size.call)
        first = syncs[place - 1] if place else -1
        end = syncs[place] if place < len(syncs) else len(self.effect.notes.calls)
        ends = (self.effect.notes.calls[n] for n in durable if size.call < n < end)
        return any(first < n < end for n in cuts) or any(
            size.offset < call.offset + call.length < size.size for call in ends
        )

    def _of_file(self, inode: int) -> tuple[list[int], list[int], list[int]]:
        """The calls that sync a file whole; that cut, zero or extend it; that write to it durably."""
        if (known := self._files.get(inode)) is None:
            calls = self.effect.notes.calls
            own = self._calls.get(inode, [])
            of_file = (*self.effect.at(inode, Sort.SIZE), *self.effect.at(inode, Sort.DATA))
            known = self._files[inode] = (
                sorted({*self._all_synced, *(n for n in own if calls[n].is_sync and not calls[n].length)}),
                [m.call for m in (self.effect.micros[n] for n in of_file) if _cuts(m)],
                [n for n in own if calls[n].durable],
            )
        return known

    def _follow_each_other(self) -> None:
        """Bytes with data=journal: whole operations in their order; of the last one, the first pages of a
        write, or any part of what zeroes blocks or was stored into a mapping.
        """
        before = 0
        micros = self.effect.micros  # what was stored into mappings between two calls is one operation
        for _, own in itertools.groupby(micros, lambda m: self.effect.together(m.call).start):
            group, written = list(own), 0
            for m in group:
                is_page = m.sort is Sort.DATA and m.at != ZEROS and not m.stored
                self._needs[m.number] = before | written
                written |= m.bit if is_page else 0
            for m in group:
                if m.sort is Sort.SIZE and not m.exact:  # each page has its own size with it
                    self._needs[m.number] |= written
            before |= sum(m.bit for m in group)

    # --- which sync covers which ---

    def covered(self, sync: NotedCall, time: float) -> int:
        """What a call that syncs covers besides. Raises nothing: `sync` covers all in any case."""
        if sync.word == "sync":
            return 0
        if sync.is_sync and sync.length and self.contract.data != "journal":
            return 0  # msync of a range: its data alone
        last = self._last_change(sync, time)
        if self.contract.persists != "inode":
            return self.committed(last)
        found = self._entries.used(sync.inode, last)
        found |= sum(m.bit for m in self._attributes.get(sync.inode, ()) if m.call <= last)
        if "rename-commits" in self.contract.rules:
            renamed = self._entries.rename_before(sync.inode, last)
            before = itertools.takewhile(lambda m: m.call <= renamed, self.effect.micros)
            found |= sum(m.bit for m in before if m.sort in (Sort.NAME, Sort.ATTRIBUTES))
        return found

    def committed(self, last: int) -> int:
        """What is committed with a call, in the order of calls."""
        place = bisect.bisect_right(self.effect.micros, last, key=lambda m: m.call)
        return self._committed[place]

    def _last_change(self, sync: NotedCall, time: float) -> int:
        """The last call that changed the file for certain: "When an inode counts as changed". The names in a
        directory count as its data, as under `any/posix`.
        """
        end = bisect.bisect_right(self.effect.micros, time, key=lambda m: m.call)
        begun = (self.effect.micros[n] for n in reversed(range(end)))
        changes = (m.call for m in begun if self._changes(m, sync))
        return next(changes, self.effect.born(sync.inode, time))

    def _changes(self, m: Micro, sync: NotedCall) -> bool:
        inode, data_only = sync.inode, sync.word == "fdatasync" or sync.durable == "dsync"
        if m.sort is Sort.DATA:
            return m.inode == inode and self._changes_blocks(m, sync)
        if inode not in m.changes:
            return False
        if m.sort is Sort.NAME:
            directories = self.effect.directories_of(m)
            is_exchange = all(held is not None for _, _, held in m.names) and len(m.names) > 1
            if is_exchange and "exchange-leaves-inodes" in self.contract.rules:
                return inode in directories
            return inode in directories or not data_only
        if m.sort is Sort.ATTRIBUTES:
            return not data_only
        lags = sync.durable and self.contract.size_lags and not m.exact  # Names, 6
        return not lags or m.offset < sync.offset + sync.length

    def _changes_blocks(self, m: Micro, sync: NotedCall) -> bool:
        overwrites = self.contract.data == "journal" or "overwrites-commit" in self.contract.rules
        if m.at == ZEROS:
            return bool(m.changes)
        within = m.offset < sync.offset + sync.length and sync.offset < m.offset + m.length
        return (m.fresh or overwrites) and (not sync.durable or not self.contract.size_lags or within)


def _cuts_off(m: Micro) -> bool:
    """Whether it is the zeros that a truncation writes."""
    return m.sort is Sort.DATA and m.at == ZEROS and not m.changes


def _cuts(m: Micro) -> bool:
    return (m.exact and bool(m.changes)) or (m.sort is Sort.DATA and m.at == ZEROS)
