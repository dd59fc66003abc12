"""What an application had asked of the kernel when the power failed, and which of its calls explains what
came back. Pure.

A call is named only where states show it: what came back lacks its effect, a state next to it has the effect
and is accepted, and no sync that the program had called covers it. What calls cannot show is left open:
requests of io_submit and io_uring_enter, stores into mappings, calls that were not noted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from harness.explain.effects import (
    EVERY,
    REMOVES,
    SHOWN,
    UNREAD,
    Change,
    Effects,
    Sort,
    Sync,
    Taking,
    distinct,
    is_done,
    paths_of,
    syncs,
    word_of,
)
from harness.grouping import by_key
from harness.host.text import first_few
from harness.model import FileKind, Tree, TreeEntry
from harness.writelog.calls import ProgramCall, ProgramCalls
from harness.writelog.times import TimedMark, Times

ACK = "app "
ANOTHER = 0
"""The thread of a call that is not the program's: vms/agent/src/neighbour.rs."""


@dataclass(frozen=True)
class Evidence:
    """Trees: of the failing state (`found`), of an accepted state that has something which it lacks (`more`),
    and of one that lacks something which it has (`less`). `said`: by the check, which may name what had been
    acknowledged. `broken`: the acknowledgement that is broken, if that is known.
    """

    found: Tree
    more: Tree | None = None
    less: Tree | None = None
    said: str = ""
    broken: TimedMark | None = None

    @cached_property
    def lacking(self) -> set[str]:
        """The paths of which the failing state lacks something."""
        return _differing(self.found, self.more)

    @cached_property
    def ahead(self) -> set[str]:
        """The paths of which it has something that was not accepted."""
        return _differing(self.found, self.less)

    @property
    def differing(self) -> set[str]:
        """The paths of both."""
        return self.lacking | self.ahead


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap in the program's own order of calls. `ahead` took away contents that `sync` had made durable,
    before the call of `made`, which replaces them, had begun. `also`: other names of the same file.

    No `sync`: the check refuses the tree that the calls leave up to `ahead`, and accepts it with `made`.
    `swapped`: the check also accepts the tree with `made` and without `ahead`.
    """

    ahead: ProgramCall
    sync: ProgramCall | None
    made: Change
    also: tuple[str, ...] = ()
    swapped: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """The effect of `ahead` came back without that of `missing`, which no sync had covered when `ahead` was
    called; or `missing` is what was to replace it. `taken`: what it took away had been durable. `paths`: the
    names of what is missing; empty if only names were changed. `elsewhere`: each fsync of another file.
    `later`: names of other files that came back as well. `tried`: see `Program`.
    """

    ahead: ProgramCall
    missing: tuple[Change, ...]
    taken: bool = False
    paths: frozenset[str] = frozenset()
    elsewhere: tuple[ProgramCall, ...] = ()
    later: tuple[Change, ...] = ()
    tried: bool = False

    @property
    def is_in_place(self) -> bool:
        """Whether what is missing was called later: no sync before could have helped."""
        return self.missing[0].began > self.ahead.began

    def is_all_of(self, differing: Collection[str]) -> bool:
        """Whether each of these paths belongs to a missing change or to `ahead`, so that no other file may be
        the cause.
        """
        own = {*self.paths, *(c.path for c in self.missing), *paths_of(self.ahead)}
        return own.issuperset(differing)

    @property
    def until(self) -> ProgramCall | None:
        """The last of several calls, where it is not known which of them relies on what is missing."""
        return self.later[-1].call if self.later else None


@dataclass(frozen=True, slots=True)
class Program:
    """An application at the last acknowledgement before the power failed. `text`: what was acknowledged;
    `at`: the event; -1 if nothing was. `unsynced`: changes that explain what is missing, and that no sync
    had covered when it acknowledged. `pending`: the first sync that covers one of them and had not
    returned; `behind`: the first of their files and directories that began later, see `_Inquiry.behind`.
    `synced`: the last sync that had returned by then. `latest`: of `unsynced`, what was changed since the
    acknowledgement before. `kept`: what else was changed since, and had been made durable. `taken`,
    `order`: what came back in a wrong order. `gap`: what it left between two calls of its own. `early`:
    the call that gave a name to a file which has not all of its contents; `bare`: what of them had been
    written and not synced when it did. `half`: the call of which a part came back; `in_part`: whether the
    check may refuse that. `open`: what no sync had covered when the power failed; `uncovered`: what of it
    may be missing. `known`: whether its calls tell all that it asked for. `shown`: whether trees of
    accepted states were compared. `idle`: whether a sync that had something to make durable sent nothing.
    `tried`: the loss of each file of `unsynced` alone was refused. `renamed`: the first name that a file
    of `unsynced` was given behind its contents: from then on, its old name is another file's. `weak`:
    calls that look like a sync of a file, and do not make all of it durable. `untried`: why its check
    could not be run on trees that lack what one call did; empty if it was, or there was nothing to try.
    """

    name: str
    text: str
    at: int
    unsynced: tuple[Change, ...] = ()
    pending: ProgramCall | None = None
    behind: ProgramCall | None = None
    synced: ProgramCall | None = None
    latest: tuple[Change, ...] = ()
    kept: tuple[Change, ...] = ()
    taken: Order | None = None
    order: Order | None = None
    gap: Gap | None = None
    early: Change | None = None
    bare: tuple[Change, ...] = ()
    half: Change | None = None
    in_part: bool = True
    uncovered: tuple[Change, ...] = ()
    open: tuple[Change, ...] = ()
    known: bool = False
    shown: bool = False
    idle: bool = False
    tried: bool = False
    renamed: Change | None = None
    weak: tuple[Sync, ...] = ()
    untried: str = ""

    @property
    def blamed(self) -> tuple[Change, ...]:
        """Of `unsynced`, what was changed since the acknowledgement before, if anything was."""
        return tuple(c for c in self.unsynced if c in self.latest) or self.unsynced

    @property
    def whole(self) -> Change | None:
        """The one call that wrote what is missing, where it is the contents of one file."""
        contents = [c for c in self.uncovered if c.sort is Sort.DATA]
        return contents[0] if len(contents) == 1 else None

    @property
    def is_explained(self) -> bool:
        """Whether states, or its check, show that its calls explain what came back."""
        unsynced = self.unsynced if self.shown or self.tried else ()
        return any(
            (unsynced, self.taken, self.order, self.gap, self.early, self.half if self.in_part else None)
        )

    @property
    def unsynced_data(self) -> bool:
        """Whether contents or sizes are among what was not synced, beside names."""
        return any(c.sort is Sort.DATA for c in self.unsynced)


def program_of(
    name: str,
    noted: ProgramCalls,
    times: Times,
    cut: int,
    *,
    in_order: bool = True,
    commits: Callable[[ProgramCall], bool] = lambda _: True,
    sent: Callable[[ProgramCall], bool] = lambda _: True,
    evidence: Evidence | None = None,
) -> Program:
    """The application `name` when the power fails just before the event `cut`. `in_order`: names become
    durable in their order. `commits`: whether a record was written while a sync ran; `sent`: whether anything
    became durable.
    """
    ack = last_ack(times, cut)
    text, at = (ack.text.removeprefix(ACK), ack.at) if ack is not None else ("", -1)
    if noted.more != 0 or any(word_of(call) in UNREAD for call in noted.calls):
        return Program(name, text, at)
    effects = Effects(noted.calls, in_order, commits)
    named = None if evidence is None else evidence.broken or _named_ack(times, cut, evidence.said)
    if named is not None and _Inquiry(effects, named.at, cut, evidence).unsynced():
        text, at = named.text.removeprefix(ACK), named.at
    asked = _Inquiry(effects, at, cut, evidence)
    done = [call for call in noted.calls if syncs(call) and is_done(call, at)]
    found = Program(name, text, at, synced=done[-1] if done else None, known=True)
    if evidence is not None and evidence.more is not None and not asked.explains_all():
        return found
    unsynced, made_up_for = asked.unsynced(), []
    if not unsynced:
        unsynced = made_up_for = asked.made_up_for()
    earlier = last_ack(times, at)
    early, uncovered = asked.early(), asked.uncovered()
    since = [c for c in asked.before(at) if earlier is None or c.began > earlier.at]
    open_ = {c for c in since if not asked.effects.covered(c, at)}
    return Program(
        name,
        text,
        at,
        tuple(unsynced),
        asked.pending(unsynced),
        asked.behind(unsynced),
        found.synced,
        latest=tuple(c for c in since if c in open_),
        kept=tuple(c for c in since if c not in open_),
        taken=asked.taken(),
        order=asked.order() or asked.listed(),
        gap=asked.gap(),
        early=early,
        bare=asked.bare(early),
        half=asked.half(uncovered) if early is None else None,
        uncovered=uncovered,
        open=asked.open(),
        known=True,
        shown=evidence is not None and evidence.more is not None and not made_up_for,
        idle=asked.effects.idle(at, sent),
        renamed=asked.renamed(unsynced),
        weak=asked.weak(),
    )


def _named_ack(times: Times, cut: int, said: str) -> TimedMark | None:
    """The first acknowledgement before an event that a check names in what it says: `line 1 is gone` after
    three lines is the loss of the first. One without a letter may be any number.
    """
    for mark in times.marks:
        text = mark.text.removeprefix(ACK)
        if mark.at >= cut or text == mark.text or not re.search("[a-zA-Z]", text):
            continue
        if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", said):
            return mark
    return None


def last_ack(times: Times, cut: int) -> TimedMark | None:
    """The last acknowledgement of an application before an event."""
    return next((m for m in reversed(times.marks) if m.text.startswith(ACK) and m.at < cut), None)


@dataclass(slots=True)
class _Inquiry:
    """What was asked for when the program acknowledged (`at`), and when the power failed (`cut`)."""

    effects: Effects
    at: int
    cut: int
    evidence: Evidence | None
    _missing: dict[Change, bool] = field(default_factory=dict)

    def before(self, event: int) -> list[Change]:
        return [c for c in self.effects.changes if c.began < event]

    def explains_all(self) -> bool:
        """Whether each path of which something is missing was changed by a call that nothing had covered."""
        assert self.evidence is not None  # noqa: S101 - it is asked where there is some
        changes = self.effects.changes
        open_ = [c for c in changes if c.began >= self.cut or not self.effects.covered(c, self.cut)]
        lacking = self.evidence.lacking
        return lacking == {p for c in open_ for p in self._own(c, lacking) if self._may_lack(c, p)}

    def unsynced(self) -> list[Change]:
        """The changes that no sync had covered, neither at the acknowledgement nor since. Where trees tell,
        only those that are missing.
        """
        open_ = [c for c in self.before(self.at) if not self.effects.covered(c, self.cut)]
        return self._in_turn([c for c in open_ if self._is_missing(c)])

    def made_up_for(self) -> list[Change]:
        """Contents of one file that had been written and not synced at the acknowledgement, and did not come
        back, where the accepted state lacks them as well: later calls made up for them, such as those that
        compact a log. Of several such files, no state tells which one it is; and if synced contents did not
        come back, it may be these.
        """
        evidence = self.evidence
        if evidence is None or evidence.more is None or self.at < 0:
            return []
        asked = self.before(self.at)
        if any(self._own(c, evidence.lacking) for c in asked):
            return []
        gone = [c for c in asked if c.sort is Sort.DATA and self._is_absent(c)]
        is_open = not any(self.effects.covered(c, self.at) for c in gone)
        return gone if is_open and len({c.inode for c in gone}) == 1 else []

    def _is_absent(self, change: Change) -> bool:
        """Whether a file came back shorter than a write had made it, under each name that is there, and no
        call had cut it.
        """
        assert self.evidence is not None  # noqa: S101 - it is asked where there is some
        if any(t.inode == change.inode and t.left is not None for t in self.effects.takings):
            return False
        size = max((s for _, s in self.effects.sizes(change.inode, -1, self.at)), default=0)
        names = self.effects.names_of(change.inode, self.cut)
        there = [e for name in names if (e := self.evidence.found.get(name)) is not None]
        return bool(names) and all(e.kind is FileKind.FILE and e.size < size for e in there)

    def pending(self, unsynced: Sequence[Change]) -> ProgramCall | None:
        flying = (
            s
            for s in self.effects.syncs
            if s.call.began < self.at and s.call.returned is not None and s.call.returned > self.at
        )
        return next((s.call for s in flying if any(self.effects.covers(s, c) for c in unsynced)), None)

    def behind(self, unsynced: Sequence[Change]) -> ProgramCall | None:
        """Of these files or their directories: in order, the fsync of any file makes names durable, and that
        may be the one of the next round.
        """
        for sync in (s for s in self.effects.syncs if s.call.began >= self.at):
            own = [c for c in unsynced if sync.inode in (EVERY, c.inode, c.directory)]
            if any(self.effects.covers(sync, c) for c in own):
                return None if self._again(own, sync.call.began) else sync.call
        return None

    def _again(self, changes: Sequence[Change], by: int) -> bool:
        """Whether a name of these was given or taken, or contents emptied, since the acknowledgement."""
        since = [c for c in self.before(by) if c.began >= self.at and not c.is_of_file]
        taken = {t.inode for t in self.effects.takings if self.at <= t.call.began < by}
        anew = {c.path for c in since}
        return any(c.inode in taken if c.is_of_file else c.path in anew for c in changes)

    def weak(self) -> tuple[Sync, ...]:
        """Calls before the power failed that write contents back, and promise less than an fsync."""
        less = (s for s in self.effects.syncs if word_of(s.call) in ("fdatasync", "msync"))
        return tuple(s for s in (*self.effects.ranges, *less) if s.call.began < self.cut)

    def renamed(self, unsynced: Sequence[Change]) -> Change | None:
        """The first rename of a file behind its unsynced contents, before the acknowledgement."""
        wrote = {c.inode: c.began for c in unsynced if c.sort is Sort.DATA}
        given = (c for c in self.before(self.at) if c.sort is Sort.GIVEN and c.inode in wrote)
        return next((c for c in given if c.began > wrote[c.inode]), None)

    def taken(self) -> Order | None:
        """The first call that took durable contents away while their replacement was not durable."""
        for taking in self._effective():
            if self._brings_durable(taking.call):
                continue  # what replaces the old is there
            if (found := self._replaced(taking)) is not None:
                return replace(found, taken=True)
            if (found := self._in_place(taking)) is not None:
                return found
        return None

    def listed(self) -> Order | None:
        """The first rename of a durable file over another, while what was made before it was not durable."""
        renames = (t for t in self._effective() if self._brings_durable(t.call))
        return next(filter(None, map(self._replaced, renames)), None)

    def _effective(self) -> Iterator[Taking]:
        """The calls that took durable contents away, and whose effect came back."""
        for taking in self.effects.takings:
            if taking.call.began < self.cut and self.effects.was_kept(taking) and self._came(taking):
                yield taking

    def _replaced(self, taking: Taking) -> Order | None:
        own = [c.began for c in self.effects.changes if c.inode == taking.inode]
        last = max(at for at in own if at < taking.call.began)
        return self._order(taking.call, taking.inode, last)

    def _brings_durable(self, call: ProgramCall) -> bool:
        """Whether a rename gave the name to a file whose contents were durable by then."""
        given = {c.inode for c in self.effects.changes if c.call == call and c.sort is Sort.GIVEN}
        own = [c for c in self.before(call.began) if c.inode in given and c.sort is Sort.DATA]
        return bool(own) and all(self.effects.covered(c, call.began) for c in own)

    def _in_place(self, taking: Taking) -> Order | None:
        """The order for a file that was emptied to be written anew: the later writes are the replacement."""
        evidence = self.evidence
        if taking.left is None or evidence is None or taking.path not in evidence.lacking:
            return None
        if evidence.less is not None and taking.path not in evidence.ahead:
            return None
        own = (c for c in self.effects.changes if c.inode == taking.inode and c.sort is Sort.DATA)
        later = [c for c in own if c.began > taking.call.began and not self.effects.covered(c, self.cut)]
        return Order(taking.call, (later[0],), taken=True, paths=frozenset({taking.path})) if later else None

    def order(self) -> Order | None:
        """A call whose effect has to be absent, or that of an earlier one there."""
        if self.evidence is None or self.evidence.more is None or self.evidence.less is None:
            return None
        ahead = self.evidence.ahead
        for change in self.before(self.cut):
            if self._own(change, ahead):
                found = self._order(change.call, change.inode, -1)
                if found is not None:
                    return replace(found, later=self._later(found))
        return None

    def _later(self, order: Order) -> tuple[Change, ...]:
        """The names that came back as well and belong to neither the missing files nor those of `ahead`."""
        assert self.evidence is not None  # noqa: S101 - there is no order without
        missing = {c.inode for c in order.missing}
        names = [c for c in self.before(self.cut) if c.sort is Sort.GIVEN and c.path in self.evidence.ahead]
        later = [c for c in names if c.began > order.ahead.began and c.inode not in missing]
        return tuple(c for c in later if not any(self.effects.covered(m, c.began) for m in order.missing))

    def gap(self) -> Gap | None:
        """Where an accepted state still has what the program had taken away for good, without a successor."""
        if self.evidence is None or self.evidence.less is None:
            return None
        for taking in self.effects.takings:
            if taking.call.began >= self.cut or taking.path not in self.evidence.ahead:
                continue
            if not self.effects.was_kept(taking) or (made := self._made(taking)) is None:
                continue
            names = self.effects.names_of(taking.inode, taking.call.began) - {taking.path}
            return Gap(taking.call, made[0], made[1], tuple(sorted(names)))
        return None

    def _made(self, taking: Taking) -> tuple[ProgramCall, Change] | None:
        """The first call that replaces it and is not durable, if one sync before that call covers the taking;
        and that sync.
        """
        taken = self.effects.change_of(taking)
        for change in self.effects.changes:
            if change.began <= taking.call.began or not _replaces(change, taking):
                continue
            if self.effects.covered(change, self.cut):
                continue
            for sync in self.effects.syncs:
                done = sync.call.returned is not None and sync.call.returned <= change.began
                if done and self.effects.covers(sync, taken) and self._is_left(taking, change):
                    return sync.call, change
        return None

    def _is_left(self, taking: Taking, made: Change) -> bool:
        """Whether the tree that came back is one that the calls before `made` leave. If not, the kernel is
        the cause.
        """
        assert self.evidence is not None  # noqa: S101 - it is asked where there is some
        found = self.evidence.found.get(taking.path)
        if taking.left is None or found is None:
            return found is None and taking.left is None
        sizes = self.effects.sizes(taking.inode, taking.call.began, made.began)
        own = [c for c in self.effects.changes if c.inode == taking.inode and c.sort is Sort.DATA]
        durable = {c.began for c in own if self.effects.covered(c, self.cut)}
        least = max((size for began, size in sizes if began in durable), default=taking.left)
        return least <= found.size <= max((size for _, size in sizes), default=taking.left)

    def _order(self, ahead: ProgramCall, inode: int, since: int) -> Order | None:
        """The missing changes of other files that were made after `since` and before `ahead`."""
        made = [
            c
            for c in self.before(ahead.began)
            if since < c.began and c.call != ahead and c.inode != inode
            if not self.effects.covered(c, ahead.began) and not self.effects.covered(c, self.cut)
            if self._is_missing(c)
        ]
        chosen = self._in_turn([c for c in made if c.sort is Sort.DATA or self._is_name(c)], ahead)
        if not chosen:
            return None
        contents = [c for c in chosen if c.sort is Sort.DATA]
        files = {c.inode for c in contents}
        paths = {name for i in files for name in self.effects.names_of(i, self.cut)}
        paths |= {c.path for c in contents}
        elsewhere = (s.call for s in self.effects.syncs if s.inode not in files)
        return Order(ahead, tuple(chosen), paths=frozenset(paths), elsewhere=tuple(elsewhere))

    def _is_name(self, change: Change) -> bool:
        """Whether it is a name that is given, or taken for good, where names have no order."""
        taken = change.sort is Sort.TAKEN and word_of(change.call) in REMOVES
        return (change.sort is Sort.GIVEN or taken) and not self.effects.in_order

    def _in_turn(self, changes: list[Change], ahead: ProgramCall | None = None) -> list[Change]:
        """Changes that no state tells apart: first those of the file that `ahead` gives a name, then those of
        files that the program syncs at some time.
        """
        given = {c.inode for c in self.effects.changes if c.call == ahead and c.sort is Sort.GIVEN}
        return sorted(changes, key=lambda c: (c.inode not in given, c.inode not in self._synced))

    @property
    def _synced(self) -> set[int]:
        return {s.inode for s in self.effects.syncs if not s.names_only}

    def early(self) -> Change | None:
        """What gave a name that came back to a file whose contents did not; without it, all is accepted.
        Nothing where several files are like that.
        """
        evidence = self.evidence
        if evidence is None or evidence.less is None:
            return None
        found = [c for c in self.before(self.cut) if c.sort is Sort.GIVEN and self._is_early(c, evidence)]
        return found[0] if len({c.path for c in found}) == 1 else None

    def bare(self, early: Change | None) -> tuple[Change, ...]:
        """The contents of a file that no sync had covered when `early` gave it its name."""
        if early is None:
            return ()
        written = (c for c in self.before(early.began) if c.sort is Sort.DATA and c.inode == early.inode)
        return tuple(c for c in written if not self.effects.covered(c, early.began))

    def _is_early(self, change: Change, evidence: Evidence) -> bool:
        """Whether it is the name that makes the difference, not what was written to a file that has it."""
        path, entry = change.path, evidence.found.get(change.path)
        if entry is None or entry.kind is not FileKind.FILE or path not in evidence.ahead:
            return False
        if evidence.more is not None and path not in evidence.lacking:
            return False
        accepted = evidence.less.get(path) if evidence.less is not None else None
        if accepted is not None and accepted.inode == entry.inode:
            return False
        before = [c for c in self.before(change.began) if (c.sort, c.inode) == (Sort.DATA, change.inode)]
        if before and all(self.effects.covered(c, change.began) for c in before):
            return False
        return entry.size < self.effects.first_size(change.inode, self.cut)

    def half(self, uncovered: Sequence[Change]) -> Change | None:
        """The one call that wrote something of what is missing, of which the file's size shows a part."""
        found = [c for c in uncovered if c.sort is Sort.DATA and self._is_in_part(c)]
        return found[0] if len(found) == 1 else None

    def _is_in_part(self, change: Change) -> bool:
        assert self.evidence is not None  # noqa: S101 - nothing is uncovered without
        sizes = self.effects.sizes(change.inode, -1, self.cut)
        before = max((size for began, size in sizes if began < change.began), default=0)
        after = next((size for began, size in sizes if began == change.began), 0)
        names = self.effects.names_of(change.inode, self.cut)
        there = (e for name in names if (e := self.evidence.found.get(name)) is not None)
        return any(before < e.size < after for e in there)

    def open(self) -> tuple[Change, ...]:
        """What no sync had covered when the power failed."""
        return tuple(c for c in self.before(self.cut) if not self.effects.covered(c, self.cut))

    def uncovered(self) -> tuple[Change, ...]:
        """Those of the open changes that are missing, where trees tell."""
        return () if self.evidence is None else tuple(c for c in self.open() if self._is_missing(c))

    def _came(self, taking: Taking) -> bool:
        """Whether what came back shows that something was taken away."""
        if self.evidence is None:
            return True
        found = self.evidence.found.get(taking.path)
        if taking.left is not None:
            return found is None or found.size <= max(taking.left, 0)
        if word_of(taking.call).startswith("rename"):
            given = [c for c in self.effects.changes if c.call == taking.call and c.sort is Sort.TAKEN]
            return not self._is_old(taking) and all(c.path not in self.evidence.found for c in given)
        return found is None

    def _is_old(self, taking: Taking) -> bool:
        """Whether a name still has what a rename was to replace: a link with another target than in the
        accepted state, or another file, as long as the old one was.
        """
        if self.evidence is None or self.evidence.more is None:
            return False
        found, more = self.evidence.found.get(taking.path), self.evidence.more.get(taking.path)
        if found is None or more is None or FileKind.DIRECTORY in (found.kind, more.kind):
            return False
        if found.kind is FileKind.SYMLINK:
            return found.target != more.target
        size = self.effects.first_size(taking.inode, taking.call.began)
        return found.inode != more.inode and 0 < found.size == size

    def _is_missing(self, change: Change) -> bool:
        """Whether the effect of a change is what is missing, as far as trees tell."""
        if change not in self._missing:
            self._missing[change] = self._lacks(change)
        return self._missing[change]

    def _lacks(self, change: Change) -> bool:
        evidence = self.evidence
        if evidence is None or evidence.more is None:
            return True
        lacking = evidence.lacking
        if change.is_of_file:
            return any(self._may_lack(change, path) for path in self._own(change, lacking))
        mine = {p for p in lacking if p == change.path or p.startswith(f"{change.path}/")}
        if change.sort is Sort.TAKEN:
            return any(p in evidence.found and p not in evidence.more for p in mine)
        old = [c.path for c in self.effects.changes if c.call == change.call and c.sort is Sort.TAKEN]
        back = any(path in evidence.found for path in old)
        back = back or any(t.call == change.call and self._is_old(t) for t in self.effects.takings)
        return any(p in evidence.more and (back or p not in evidence.found) for p in mine)

    def _may_lack(self, change: Change, path: str) -> bool:
        """Whether it may be what a path lacks: of a change of attributes, not where contents alone differ."""
        if change.sort is not Sort.ATTRIBUTES or self.evidence is None or self.evidence.more is None:
            return True
        found, more = self.evidence.found.get(path), self.evidence.more.get(path)
        return found is None or more is None or _attributes(found) != _attributes(more)

    def _own(self, change: Change, paths: set[str]) -> set[str]:
        """Of some paths, those that name the file that a change is of, or are the name."""
        below = f"{change.path}/"
        own = {path for path in paths if path == change.path or path.startswith(below)}
        if change.is_of_file:
            own |= paths & self.effects.names_of(change.inode, self.at)
            own |= paths & self.effects.names_of(change.inode, self.cut)
        return own


def _replaces(change: Change, taking: Taking) -> bool:
    """Whether a change gives the name again that was taken, or writes the file that was emptied."""
    if taking.left is None:
        return change.sort is Sort.GIVEN and change.path == taking.path
    return change.sort is Sort.DATA and change.inode == taking.inode


def _differing(one: Tree, other: Tree | None) -> set[str]:
    """The paths that only one tree has, or whose kind, contents, target or attributes differ."""
    if other is None:
        return set()
    paths = {*one, *other} - {""}
    return {path for path in paths if _essence(one.get(path)) != _essence(other.get(path))}


def _essence(entry: TreeEntry | None) -> object:
    if entry is None:
        return None
    contents = (entry.size, entry.digest) if entry.kind is FileKind.FILE else ()
    return entry.kind, contents, entry.target, _attributes(entry), sorted(entry.xattrs.items())


def _attributes(entry: TreeEntry) -> tuple[int, int, int]:
    return entry.mode, entry.uid, entry.gid


def wanted_sync(changes: Sequence[Change], *, tried: bool = False) -> str:
    """The syncs that these changes want: of one file all of them; of several files each, if that was `tried`,
    and else one.
    """
    if not tried and not is_told(changes):
        shown, left_out = first_few(list(dict.fromkeys(own[0] for own in _wanted_of_each(changes))), 3)
        more = f" or {left_out} more" if left_out else ""
        return f"{' or '.join(shown)}{more} (the states compared do not tell which), or the like"
    return f"{' and '.join(dict.fromkeys(w for own in _wanted_of_each(changes) for w in own))}, or the like"


def is_told(changes: Sequence[Change]) -> bool:
    """Whether these changes want one sync: which file it is need not be tried."""
    return len({own[0] for own in _wanted_of_each(changes)}) == 1


def _wanted_of_each(changes: Sequence[Change]) -> list[list[str]]:
    return [*map(_wanted, by_key((c.inode, c) for c in changes).values())]


def _wanted(changes: Sequence[Change]) -> list[str]:
    """The syncs that the changes of one file want. One behind its last write takes the names along that it
    was given before; of a rename, the new name has to be synced.
    """
    wrote = max((c.began for c in changes if c.is_of_file), default=-1)
    changes = [c for c in changes if c.sort is not Sort.GIVEN or c.began > wrote]
    given = {c.call for c in changes if c.sort is Sort.GIVEN}
    kept = (c for c in changes if c.sort is not Sort.TAKEN or c.call not in given)
    return list(dict.fromkeys(c.wanted for c in sorted(kept, key=lambda c: not c.is_of_file)))


def told_calls(changes: Sequence[Change]) -> tuple[list[ProgramCall], int]:
    """The calls to name of changes, and how many others there are: the last two; of several files, the last
    one of each.
    """
    calls, last = list(distinct(changes)), {c.inode: c.call for c in changes}
    if len(last) > 1:
        chosen = list(dict.fromkeys(last.values()))[:3]
    else:
        chosen = list(first_few(calls[::-1], 2)[0])[::-1]
    return chosen, len(calls) - len(chosen)


def shown_calls(
    program: Program, calls: Sequence[ProgramCall], cut: int
) -> Iterator[tuple[ProgramCall, bool]]:
    """The calls for a ladder: those that change or sync something, and commits of another program, up to the
    first sync after the power has failed. With whether it is one that matters.
    """
    matter = {c.call for c in program.blamed[:3]} | ({program.pending} if program.pending else set())
    for found in (program.taken, program.order):
        if found is not None:
            matter = {*(c.call for c in found.missing[:3]), found.ahead}
            break
    else:
        if (gap := program.gap) is not None:
            matter |= {gap.ahead, gap.made.call, *([gap.sync] if gap.sync else [])}
    late = next((c.began for c in calls if syncs(c) and c.began >= cut), cut)
    for call in calls:
        shown = syncs(call) or word_of(call) in SHOWN or call in matter or call.thread == ANOTHER
        if call.began <= late and shown:
            yield call, call in matter
