"""One case of a mode that is only rules: from the notes of its program to what is to be told of it.

Nothing is claimed of a program whose calls, done again, do not give the tree that it left, or which made a
call that nobody saw; nor where the check does not say yes to what the program left, and to an empty
directory.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from harness.cases.checks import ACCEPTS_NOTHING, CALL_ACK, MUST_PASS_AT_END, MUST_PASS_EMPTY, SILENT
from harness.errors import NotSupported, PowercutError
from harness.guests.operations import LACKS, correct_the_program
from harness.host.text import ended_with, last_lines, one_line
from harness.model import Check, CheckResult, CrashState, Judgement, Violation
from harness.oracles.surface import telling_line
from harness.plan import Budget
from harness.rules.answers import Answers, Tried
from harness.rules.calls import Notes, drawn_names, told
from harness.rules.micro import Effect, Micro, NotFollowed, Sort, unsynced
from harness.rules.promised import effect_under
from harness.rules.remedies import Remedy
from harness.rules.rules import Rules
from harness.rules.search import Kind, Search
from harness.rules.states import Legal, Listed, Partial
from harness.rules.trees import Files, Maker, key_of, law_broken
from harness.rules.vulnerabilities import Vulnerability
from harness.rules.words import Words, in_brackets, text_of, without_numbers

RunCheck = Callable[[Sequence[tuple[Files, int]]], Sequence[Tried]]
"""Runs the check on each tree, given so many of the program's acknowledgements."""
BATCH = 32
"""Trees that are checked in one request, at most: what the check opened on one may spare others."""
_VISITS = 64
"""States between two looks at the budget, at most."""
_LOOK_S = 2.0
"""Where there is a limit of time, no more states than take so long."""
ORACLE = "program"
_UNSEEN_SHOWN = 3
_SAME_FEWEST = 3
_REPORT = "report it, with the program (docs/howto/find-the-fsync.md)"


class NotJudged(PowercutError):
    """Nothing can be said of this program, for the reason given."""


@dataclass(slots=True)
class Judging:
    """A program under rules. `asked` counts the checks that were run: of trees in which the check sees the
    same, one is checked. `fold`: whether what the check opened tells which these are. `budget`: for the
    states; the search for causes may take the same time again. `deadline`: of both, by the monotonic clock.
    `all_visited`: whether nothing ended `visited` early.
    """

    notes: Notes
    rules: Rules
    run: RunCheck
    asked: int = 0
    fold: bool = True
    budget: Budget = field(default_factory=Budget)
    deadline: float | None = None
    all_visited: bool = False
    _begun: float = field(default_factory=time.monotonic)
    _running_s: float = 0.0
    effect: Effect = field(init=False)
    legal: Legal = field(init=False)
    _maker: Maker = field(init=False)
    _answers: Answers = field(default_factory=Answers)
    _known: dict[tuple[bytes, int], CheckResult] = field(default_factory=dict)
    _keys: dict[Partial, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises NotJudged."""
        self.effect = followed(self.notes, self.rules)
        self.legal, self._maker = Legal(self.effect), Maker(self.effect)
        end, acks = Partial(self.effect.every), len(self.notes.acks)
        for state, count, when, next_step in (
            (end, acks, "what the program left", MUST_PASS_AT_END),
            (Partial(0), 0, "an empty directory", MUST_PASS_EMPTY),
        ):
            result = self.result(state, count)
            if result.exit_code != 0:
                said = last_lines(result.output) or f"it {_ended(result)} and said nothing"
                raise NotJudged(
                    f"the check does not say yes even to {when}, so it cannot do its work here: {said}",
                    next_step,
                )

    @property
    def doubt(self) -> str:
        """Why the check may find nothing, in words."""
        acks = len(self.notes.acks)
        return ACCEPTS_NOTHING if acks and self.result(Partial(0), acks).exit_code == 0 else ""

    def files(self, state: Partial) -> Files:
        """The tree of a state."""
        return self._maker.files(state)

    def key(self, state: Partial) -> bytes:
        """The same for states in which a program sees the same."""
        if (known := self._keys.get(state)) is None:
            known = self._keys[state] = key_of(self.files(state))
        return known

    def ask(self, states: Iterable[tuple[Partial, int]]) -> None:
        """Have the check look at many states, each given so many acknowledgements."""
        wanted: dict[tuple[bytes, int], Partial] = {}
        for state, acks in states:
            if (asked := (self.key(state), acks)) not in self._known:
                wanted.setdefault(asked, state)
        waiting, size = list(wanted.items()), 1
        while waiting:
            some, waiting = waiting[:size], waiting[size:]
            self._run([(key, acks, self.files(state)) for (key, acks), state in some])
            size = min(2 * size, BATCH)

    def _run(self, trees: Sequence[tuple[bytes, int, Files]]) -> None:
        """Run the check on those of which its answer is not known."""
        unknown: list[tuple[bytes, int, Files]] = []
        for key, acks, files in trees:
            answer = self._answers.find(files, acks) if self.fold else None
            if answer is None:
                unknown.append((key, acks, files))
            else:
                self._known[key, acks] = answer
        if not unknown:
            return
        begun = time.monotonic()
        answers = self.run([(files, acks) for _, acks, files in unknown])
        self.asked += len(unknown)
        self._running_s += time.monotonic() - begun
        for (key, acks, files), tried in zip(unknown, answers, strict=True):
            self._answers.add(files, acks, tried)
            self._known[key, acks] = tried.result

    def result(self, state: Partial, acks: int) -> CheckResult:
        """What the check says of a state, given so many acknowledgements."""
        asked = self.key(state), acks
        if asked not in self._known:
            self.ask([(state, acks)])
        return self._known[asked]

    def passes(self, state: Partial, acks: int) -> bool:
        """Whether the check says anything but no."""
        return self.result(state, acks).exit_code != 1

    def said(self, state: Partial, acks: int) -> str:
        """What the check says of a state, without numbers: its line that tells."""
        output = self.result(state, acks).output.strip()
        return without_numbers(telling_line(output)) if output else ""

    def visited(self, listed: Listed) -> Iterator[tuple[Partial, CheckResult]]:
        """Each state with the check's answer, given the most acknowledgements that the state may have. The
        ends of stretches come first; the budget may end the rest, the deadline everything.
        """
        self._begun = time.monotonic()
        states, done, ends = iter(listed), 0, len(listed.ends)
        while some := list(itertools.islice(states, self._next(ends - done))):
            is_spent = done >= ends and self.budget.is_spent(self.asked, self._seconds)
            if is_spent or self.is_over:
                return
            asked = [(state, self.legal.acks(state)) for state in some]
            self.ask(asked)
            done += len(some)
            for state, acks in asked:
                yield state, self.result(state, acks)
        self.all_visited = True

    def expected(self, done: int, at_most: int) -> int:
        """How many states will have been visited in the end: all, or those that the budget allows at the rate
        so far.
        """
        spent = self.budget.share(self.asked, self._seconds)
        return min(at_most, max(done, int(done / spent))) if spent else at_most

    def _next(self, ends_left: int) -> int:
        """How many states to ask about before the next look at the budget."""
        visits = self.budget.visits
        left = ends_left if ends_left > 0 else _VISITS if visits is None else visits - self.asked
        return max(1, min(left, self.at_once))

    @property
    def at_once(self) -> int:
        """How many states to ask about before the next look at the time."""
        if (self.budget.seconds is None and self.deadline is None) or not self._running_s:
            return _VISITS
        return max(1, min(_VISITS, int(_LOOK_S * self.asked / self._running_s)))

    def name_drawn(self, again: Notes) -> None:
        """Tell names that the program drew at random as one: what it did when it ran `again` has others."""
        drawn, effect = drawn_names(self.notes, again), self.effect
        calls = tuple(replace(call, text=told(call.text, drawn)) for call in self.notes.calls)
        self.notes = effect.notes = replace(self.notes, calls=calls)
        for names in effect.paths.values():
            names[:] = [(call, told(path, drawn)) for call, path in names]

    def begin_search(self) -> None:
        """The budget's time begins anew."""
        self._begun = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether the search for causes has taken the budget's time."""
        return self.is_over or self.budget.is_spent(-1, self._seconds)

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begun


def state_of(judging: Judging, named: CrashState) -> tuple[Partial, str]:
    """The state that a crash point names; and why the rules do not leave it possible, empty if they do. An
    earlier version named states also without what shows no more once a later size of the same call is there:
    such a name is that of the state with it, in which a program sees the same.
    """
    effect, state = judging.effect, Partial.of(named, judging.effect)
    words = Words(effect)
    if why_not := _not_named(effect, named, state):
        return state, why_not
    whole = replace(state, persisted=effect.with_needs(state.persisted))
    if (lacking := whole.persisted & ~state.persisted) and judging.key(whole) != judging.key(state):
        there = sum(m.bit for m in effect.of(state.persisted) if effect.needs[m.number] & lacking)
        return state, f"{words.words(there)} is there, and {words.words(lacking)}, which it needs, is not"
    if judging.legal.has(whole):
        return whole, ""
    asked = next((s for s in judging.legal.stretches if not whole.persisted & ~s.asked), None)
    if asked is None:
        return whole, "it has what these rules leave in no state"
    if lost := asked.durable & ~whole.whole:
        return whole, f"{words.words(lost)} was durable before all that is there was asked for"
    return whole, "it tears what is no block of data, or what persists whole"


def _not_named(effect: Effect, named: CrashState, state: Partial) -> str:
    """Why a name is of no state that calls may leave by any rules; empty if it is that of `state`."""
    if state.persisted & ~effect.every:
        counted = state.persisted.bit_length()
        return f"it counts {counted} micro-operations, and the program made {len(effect.micros)}"
    if named.persisted is not None and state.named(effect) != named:
        return "such parts of blocks are there in no state: the first sectors of one are, or the last ones"
    return ""


def followed(notes: Notes, rules: Rules) -> Effect:
    """The micro-operations of a program, if its notes tell all that it did. Raises NotJudged, and
    NotSupported for a program that says so.
    """
    if notes.unseen:
        named = "; ".join(list(dict.fromkeys(notes.unseen))[:_UNSEEN_SHOWN])
        raise NotJudged(
            f"the program made calls that the tracer cannot follow: {named}",
            "have the program do this by other calls, if it can",
        )
    if notes.cut:
        raise NotJudged(
            "the program made more than 20,000 calls, wrote more than 24 MiB, or left or mapped a file of "
            "more than 24 MiB",
            "have the program do less",
        )
    if notes.exit_code == LACKS:
        said = last_lines(notes.output) or "it does not say what"
        raise NotSupported(f"this file system lacks what the program needs: {said}")
    if notes.exit_code != 0:
        ended = "did not end in time" if notes.exit_code is None else ended_with(notes.exit_code)
        said = last_lines(notes.output)
        advice = _without(notes.refused) or correct_the_program(printed=bool(said))
        raise NotJudged(f"the program {ended}: {said or _acknowledged(notes)}", advice)
    if not notes.acks:
        raise NotJudged(SILENT, CALL_ACK)
    try:
        effect = effect_under(notes, rules)
    except NotFollowed as e:
        raise NotJudged(
            f"call {e.call}, {notes.calls[e.call].text}, does not fit those before it: {e}", _REPORT
        ) from e
    if broken := law_broken(effect):
        raise NotJudged(broken, _REPORT)
    return effect


def _without(refused: Collection[str]) -> str:
    """What to do where a program failed and calls of it were refused; empty if none were."""
    if not refused:
        return ""
    named = "; ".join(list(dict.fromkeys(refused))[:_UNSEEN_SHOWN])
    return (
        f"the file system in memory, on which it ran here, refuses {named}: have the program do without, or "
        "try it under a mode of a real file system"
    )


def _acknowledged(notes: Notes) -> str:
    """What a program printed that printed nothing else."""
    if not notes.acks:
        return "it printed nothing"
    return f"it printed only what was acknowledged, last: {notes.acks[-1].text}"


@dataclass(frozen=True, slots=True)
class Told:
    """A vulnerability in words. `remedy`: of it alone, or why there is none. `states`: that fail for it.
    `too_late`: that the program makes the sync itself, but behind the acknowledgement. `places`: where in
    the program its calls were made, if that is known.
    """

    found: Vulnerability
    headline: str
    calls: str
    remedy: str
    states: tuple[Partial, ...]
    too_late: str = ""
    places: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """All of a program. `together`: the smallest set of syncs that was found for all, in words, or why there
    is none; empty if there is nothing to mend. `rest`: failing states that no vulnerability explains, and
    why not.
    """

    told: tuple[Told, ...]
    together: str
    rest: tuple[Partial, ...]
    why_not: str


def answer(judging: Judging, failed: Iterable[Partial]) -> Answer:
    """What a program relies on, and what would give it that. Asks the check."""
    judging.begin_search()
    search = Search(judging.legal, judging)
    kinds = search.look(list(failed))
    least = search.smallest() if search.remedies else ()
    why_not = "its cause was not found: the time was up" if judging.is_late else "something besides"
    return Answer(
        tuple(_told(search, k, least) for k in kinds), _together(search, least), tuple(search.rest), why_not
    )


def _told(search: Search, kind: Kind, least: Collection[Remedy]) -> Told:
    """`least`: the smallest set of syncs for all kinds. The remedy is what of it mends this one, if that is
    enough.
    """
    words = search.words
    some = (tuple(r for r in kind.remedies if r in least), *((r,) for r in least))
    mending = (s for s in some if s and search.is_gone(search.legal, kind.found, s))
    needed = next(mending, kind.remedies) if kind.remedies else ()
    return Told(
        kind.found,
        kind.headline,
        words.named(kind.found),
        words.remedies(needed) or _no_remedy(search, [kind]),
        tuple(kind.states),
        _too_late(search.effect, kind.found, needed) if needed else "",
        words.places(kind.found),
    )


def _too_late(effect: Effect, found: Vulnerability, needed: Sequence[Remedy]) -> str:
    """The sync of the program's own behind which all is durable that the acknowledgement needs; empty if
    another acknowledgement that needs these remedies has none, or it is the sync of the next change.
    """
    acks = effect.notes.acks
    if found.present or not 0 < found.acks <= len(acks):
        return ""
    behind = acks[found.acks - 1].calls
    lost = found.missing | (1 << found.state.last if found.state.torn is not None else 0)
    number = _own_sync(effect, lost & effect.issued(behind - 1) or lost, behind)
    alike: dict[int, int] = {}
    for remedy in needed:
        if ack := next((ack for ack in acks if ack.calls > remedy.after), None):
            covered = sum(m.bit for m in effect.of(remedy.sync(effect).covers) if m.call == remedy.after)
            alike[ack.calls] = alike.get(ack.calls, 0) | covered
    waiting = {at: covered for at, covered in alike.items() if covered & ~effect.durable(at)}
    if number < 0 or any(_own_sync(effect, covered, at) < 0 for at, covered in waiting.items()):
        return ""
    text = text_of(effect.notes.calls[number])
    return f"Call {number}, `{text}`, comes behind that acknowledgement: acknowledge after it"


def _own_sync(effect: Effect, lost: int, behind: int) -> int:
    """The call, from call `behind` on, with which the program's own syncs have made all of this durable, if
    nothing of the same is changed again before, and no file of it loses a name; else -1.
    """
    left = lost & ~effect.durable(behind)
    for sync in (sync for sync in effect.syncs if sync.time >= behind):
        left &= ~sync.covers
        if not left:
            again = effect.issued(sync.time) & ~effect.issued(behind - 1)
            gone = _lose_a_name(effect, lost, behind - 1, sync.time) or _is_changed(effect, lost, again)
            return -1 if gone else int(sync.time)
    return -1


def _lose_a_name(effect: Effect, some: int, time: float, later: float) -> bool:
    """Whether a file with contents or attributes among these has fewer names later: it was removed or
    replaced. One that was renamed has as many.
    """
    files = {m.inode for m in effect.of(some) if m.sort is not Sort.NAME}
    return any(len([*effect.names(i, later)]) < len([*effect.names(i, time)]) for i in files)


def _is_changed(effect: Effect, some: int, again: int) -> bool:
    """Whether what these set is set again. A file that grows does so only where sizes are all that they set:
    a log holds the record before.
    """
    sizes_alone = all(m.sort is Sort.SIZE for m in effect.of(some))

    def changes(m: Micro, was: Micro) -> bool:
        if m.sort is Sort.SIZE:
            return sizes_alone or m.size < was.size
        apart = m.offset + m.length <= was.offset or was.offset + was.length <= m.offset
        return m.sort is not Sort.DATA or not apart

    at = dict[tuple[int, Sort | str, int], list[Micro]]()
    for was in effect.of(some):
        for place in _places(effect, was):
            at.setdefault(place, []).append(was)
    then = ((m, place) for m in effect.of(again) for place in _places(effect, m))
    return any(changes(m, was) for m, place in then for was in at.get(place, ()))


def _places(effect: Effect, m: Micro) -> set[tuple[int, Sort | str, int]]:
    """What it is about: names of a directory, or of a file a block, its size or its attributes."""
    if m.sort is Sort.NAME:
        return {(directory, name, 0) for directory, name, _ in m.names}
    block = m.offset // effect.rules.block_bytes if m.sort is Sort.DATA else 0
    return {(m.inode, m.xattr or m.sort, block)}


def _no_remedy(search: Search, kinds: Sequence[Kind]) -> str:
    if not all(kind.is_tried for kind in kinds):
        is_over = search.check.is_over
        time_up = "of the run was up (--resume goes on)" if is_over else "for it was up (--budget gives more)"
        return f"not every fsync was tried: the time {time_up}"
    guess = "the new under another name, synced, and then a rename; of a log, a checksum in each record"
    founds = [kind.found for kind in kinds]
    lost = {m.sort for found in founds for m in search.effect.of(found.missing)}
    if not any(found.missing or found.state.torn is not None for found in founds):  # nothing is lost
        swapped = any(found.swapped for found in founds)
        guess = f"{'another order of these calls, or ' if swapped else ''}one rename that brings both"
    elif lost == {Sort.NAME} and all(found.state.torn is None for found in founds):
        guess = "another order of these calls"
    elif all(_comes_behind(search.effect, found) and _makes_it(search.effect, found) for found in founds):
        guess = "write the file under a temporary name, sync it, and then rename it"
    elif all(_comes_behind(search.effect, found) for found in founds):
        guess = "another order of these calls, with an fsync between them"
    elif all(_are_stores(search.effect, found) for found in founds):
        guess = _msync(search.effect, founds[0])
    elif lost == {Sort.ATTRIBUTES}:
        guess = "a file that is made with these permissions, or has them before its data"
    return f"nothing that was tried helps: no fsync of what is lost prevents this. A guess: {guess}"


def _comes_behind(effect: Effect, found: Vulnerability) -> bool:
    """Whether all that is lost was called behind all that is there, so that no sync can be between."""
    there = [m.call for m in effect.of(found.present)]
    lost = list(effect.of(found.missing))
    stored = any(m.stored for m in lost)
    return bool(there and lost) and not stored and min(m.call for m in lost) > max(there)


def _makes_it(effect: Effect, found: Vulnerability) -> bool:
    """Whether what is there gives a name to a file of which something is lost, or cuts it where that was
    written: before it, nothing can be.
    """
    ends = dict[int, int]()
    for m in (m for m in effect.of(found.missing) if m.sort is not Sort.NAME):
        ends[m.inode] = max(ends.get(m.inode, 0), m.size, m.offset + m.length)
    there = list(effect.of(found.present))
    makes = any(held in ends for m in there for _, _, held in m.names)
    return makes or any(m.exact and m.size < ends.get(m.inode, 0) for m in there)


def _are_stores(effect: Effect, found: Vulnerability) -> bool:
    """Whether the data that is lost, and the data that is there, are stores into mappings."""
    sides = [[m.stored for m in effect.of(x) if m.sort is Sort.DATA] for x in (found.missing, found.present)]
    return all(side and all(side) for side in sides)


def _msync(effect: Effect, found: Vulnerability) -> str:
    """The msync between stores of which the lost one was to be there first."""
    lost, there = (next(m for m in effect.of(x) if m.stored) for x in (found.missing, found.present))
    path = effect.path(lost.inode, lost.call)
    return (
        f"an msync of `{path}`, {lost.length} at {lost.offset}, before the store into "
        f"`{effect.path(there.inode, there.call)}` at {there.offset}: nobody saw the order of these stores"
    )


def _together(search: Search, least: Sequence[Remedy]) -> str:
    kinds = list(search.kinds.values())
    if not search.remedies:
        return _no_remedy(search, kinds) if kinds else ""
    fails, of = search.failing_with(least)
    gone = f"none of {of} states fails" if not fails else f"{fails} of {of} states still fail"
    if not search.lists_all(least):
        gone += ", and there are more than were looked at"
    if search.check.is_late:
        gone = f"{gone}, and there was no time for more" if of else "there was no time to look at a state"
    return f"{search.words.remedies(least)}. With {'it' if len(least) == 1 else 'these'}, {gone}"


def unsynced_lines(effect: Effect) -> list[str]:
    """What no sync had covered at each acknowledgement, and at the end; once for those in a row at which it
    is the same, and in a few words for files of which it is the same as in the line before.
    """
    lines, before = [], tuple[str, ...]()
    acked = [(ack.text, _unsynced(effect, ack.calls - 0.25)) for ack in effect.notes.acks]
    for files, group in itertools.groupby(acked, lambda one: one[1]):
        first, *_, last = [text for text, _ in group] * 2
        until = f" to `{last}`" if first != last else ""
        lines.append(f"acknowledged `{first}`{until}: {_besides(files, before)}")
        before = files
    end = _unsynced(effect, float(len(effect.notes.calls)))
    return [*lines, f"at the end: {_besides(end, before)}"]


def _unsynced(effect: Effect, until: float) -> tuple[str, ...]:
    """Files that had one name, one after the other, are told once where the same of them is left."""
    files = Counter(unsynced(effect, until))
    return tuple(f"{path}{f' ({n} files)' * (n > 1)}: {what}" for (path, what), n in files.items())


def _besides(files: Sequence[str], before: Collection[str]) -> str:
    """`before`: what the line before told."""
    same = [one for one in files if one in before]
    if len(same) < _SAME_FEWEST:
        return "; ".join(files) or "nothing"
    return "; ".join([f"the same of {len(same)} files as before", *(one for one in files if one not in same)])


def judgement_of(result: CheckResult, check: Check, headline: str, places: str = "") -> Judgement:
    """The judgement of a check's answer. `headline`: the order that the program relies on, if it is known; it
    tells findings apart. `places`: where in the program its calls are.
    """
    said = result.output.strip() or "it does not say what is wrong"
    if result.exit_code == 0:
        return Judgement()
    if result.exit_code != 1:
        return Judgement(unknown=(f"the check {_ended(result)}: {last_lines(said)}",))
    first = telling_line(said)
    violation = Violation(
        ORACLE,
        f"operation {check.operation}",
        f"{headline}{in_brackets(places)}: {first}" if headline else first,
        "exit code 0",
        f"exit code 1: {said[-400:]}",
        one_line(headline) or first,
    )
    return Judgement((violation,))


def _ended(result: CheckResult) -> str:
    return "was not ended in time" if result.exit_code is None else ended_with(result.exit_code)


def check_of(checks: Iterable[Check]) -> Check | None:
    """The application's check, if there is one."""
    return next((c for c in checks if c.application), None)
