"""Programs that are recorded on a real file system while their calls are noted: the trees that its crash
states come back with, each with how many of the calls had begun and returned when the power failed.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import gzip
import io
import itertools
import os
import random
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from harness.cases.first_mount import finish_base
from harness.cases.recording import UNTOUCHED, Recording, by_times, make_base, recording_of, take
from harness.cases.repair import repaired
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import make_specs
from harness.guests.made_trees import MadeTrees
from harness.guests.session import RunCheck, Session, Target
from harness.kernels.find import Kernel
from harness.model import CaseId, Check, CheckResult, CrashState, FileKind, Tree, TreeEntry, Workload
from harness.plan import LOG_BYTES, GuestChoice
from harness.ruled.judging import check_of
from harness.rules.calls import Left, Notes, notes_of
from harness.states import CrashTime, LegalStates
from harness.states.legal import BLOCK_SECTORS
from harness.tests.there import there

_DUMP = 'd=/tmp/powercut-dump; tar cf - "$@" | gzip >$d; wc -c <$d; head -c 47000 $d | base64'
"""Files in one archive: its size, and as much of it as fits a program's output, of which 64 KiB are kept.
What has another name than `powercut-` is removed from /tmp before the next program.
"""
_REST = "tail -c +$1 /tmp/powercut-dump | head -c 47000 | base64"
_SLICE = 47_000
_FEW = 4
_EVERY = 6
"""Blocks that may be lost at a crash time of which every set is visited."""
_DRAWN = 8
_AT_ONCE = 200
"""States that are asked about together."""

Files = frozenset[Left]
T = TypeVar("T")
NO_MOUNT = "it does not mount"
_LINES = 8
"""Lines of the kernel, the first ones, that say why it did not mount: the last only says that it did not."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A UML kernel, and where its guests may write."""

    kernel: Kernel
    scratch: Path

    @property
    def choice(self) -> GuestChoice:
        """Guests that record and judge."""
        return GuestChoice("uml", "auto", LOG_BYTES)


@dataclass(frozen=True, slots=True)
class NotMounted:
    """A state whose file system did not mount: the error, and what a step before it and the kernel said."""

    error: str
    said: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        return f"{NO_MOUNT}: {': '.join([self.error, ' | '.join(self.said)]) if self.said else self.error}"


@dataclass(frozen=True, slots=True)
class Back:
    """What came back in a state: the tree, or why there is none; and how many of the noted calls had
    returned and had begun.
    """

    state: CrashState
    files: Files | NotMounted
    returned: int
    begun: int


@contextlib.contextmanager
def noted(machine: Machine, workload: Workload, *, apart: bool) -> Iterator[tuple[MadeTrees, Notes]]:
    """The program's calls, on a file system that is only rules, and what makes trees of them."""
    (profile,) = select_profiles(["any/posix"])
    check = there(check_of(workload.checks))
    base = machine.scratch / "any.img"
    base.write_bytes(bytes(profile.size_bytes))
    specs = make_specs(machine.choice, machine.kernel, [profile], [workload], base, machine.scratch)
    with (
        Session(specs.judge, machine.scratch / "noting", LOG_BYTES) as session,
        MadeTrees(session, Target(profile.fstype, "", base, None), apart) as trees,
    ):
        yield trees, trees.note(workload.operations[check.operation].argv)


def note(machine: Machine, workload: Workload) -> Notes:
    """The program's calls."""
    with noted(machine, workload, apart=False) as (_, notes):
        return notes


@dataclass(slots=True)
class Recorded:
    """A program on a real file system, with its calls noted in the same run. `session` recovers its states.
    `every`: all legal states were among the states; of `contents` as many differ as were recovered.
    """

    session: Session
    recording: Recording
    notes: Notes
    contents: int = 0
    every: bool = False

    def come_back(self, most: int) -> Iterator[Back]:
        """The states of a recording, until there would be more contents than that; the end comes first, and
        the others are spread over the recording. Each content is recovered once; it comes back for each
        number of calls that may have been made.
        """
        known: dict[str, Files | NotMounted] = {}
        done: set[tuple[Files | NotMounted, int, int]] = set()
        times = call_times(self.notes, self.recording)
        made_at = functools.cache(lambda at: made_before(times, lambda event: event < at))
        recovering = Recovering(self.session, self.recording)
        left_out = False
        for state, content in self._contents():
            returned, begun = made_at(self.legal.event(state))
            if content not in known and len(known) >= most:
                left_out = True
                break
            if content not in known:
                known[content] = recovering.files(state)
            if (seen := (known[content], returned, begun)) not in done:
                done.add(seen)
                yield Back(state, known[content], returned, begun)
        self.contents = len(known)
        self.every = not left_out and lists_all(self.legal)

    @property
    def legal(self) -> LegalStates:
        assert self.recording.legal is not None
        return self.recording.legal

    def _contents(self) -> Iterator[tuple[CrashState, str]]:
        """The states, each with what tells its contents from others."""
        legal = self.legal
        states = itertools.chain([self.recording.end], spread(legal.cuts()), _states(legal))
        while some := list(itertools.islice(states, _AT_ONCE)):
            self.session.show(self.recording.target)
            asked = [self.recording.on_disk(state) for state in some]
            yield from zip(some, self.session.disk.hashes(asked), strict=True)


def record(machine: Machine, profile: Profile, workload: Workload, *, whole: bool = True) -> Recorded:
    """The program on a real file system. `whole`: its calls are noted; what it left comes from the
    recording's end. The session is the caller's to close.
    """
    profile = profile.sized(workload.image_mib)
    scratch = machine.scratch / f"{profile.filesystem}-{profile.mode}-{workload.name}"
    scratch.mkdir(parents=True)
    base = make_base(profile, scratch / "base.packed", scratch)
    specs = make_specs(machine.choice, machine.kernel, [profile], [workload], base, scratch)
    session = Session(specs.judge, scratch / "guest", LOG_BYTES)
    session.whole = whole
    try:
        finish_base(session, profile, base, scratch / "base.packed")
        case = CaseId(profile.filesystem, profile.mode, workload.name)
        made = recording_of(take(session, profile, workload, case, base, scratch))
        recording, why = by_times(made, BLOCK_SECTORS)
        assert not why, why
        return Recorded(session, recording, _with_left(session, recording) if whole else _NONE)
    except BaseException:
        session.close()
        raise


_NONE = Notes(0, (0, 0, 0), (), (), (), b"")


def _with_left(session: Session, recording: Recording) -> Notes:
    left = Recovering(session, recording).files(recording.end)
    assert not isinstance(left, NotMounted), f"even after a clean unmount, {left.why}"
    return replace(notes_of(session.noted), left=tuple(sorted(left, key=lambda found: found.path)))


@dataclass(slots=True)
class Recovering:
    """Recovers states. Files of which the walk has seen the contents before are not read again."""

    session: Session
    recording: Recording
    _held: dict[str, bytes] = field(default_factory=dict)

    def files(self, state: CrashState) -> Files | NotMounted:
        """The tree that comes back, without what mkfs makes. A file that cannot be read is of the kind
        `unreadable`.
        """
        seen: list[Files] = []

        def ask(tree: Tree, run: RunCheck) -> tuple[CheckResult, ...]:
            own = [e for p, e in tree.items() if p and p.split("/")[0] not in self._made_by_mkfs]
            wanted = {e.digest: e for e in own if e.digest and e.size and e.digest not in self._held}
            for path, data in _contents_of(list(wanted.values()), run).items() if wanted else ():
                self._held[tree[path].digest] = data
            seen.append(frozenset(self._left(entry) for entry in own))
            return ()

        target, shown = self.recording.target, self.recording.on_disk(state)
        if self.recording.profile.repair is not None:
            target, shown = repaired(self.session, target, shown, self.recording.profile.repair), UNTOUCHED
        outcome = self.session.recover(target, shown, ask).outcome
        if seen:
            return seen[0]
        said = outcome.not_started.splitlines() + [one for one in outcome.kernel_log if "nmount" not in one]
        return NotMounted(errno.errorcode.get(outcome.mount_errno, "no error"), tuple(said[:_LINES]))

    @property
    def _made_by_mkfs(self) -> tuple[str, ...]:
        return "lost+found", *self.recording.profile.contract.made_by_mkfs

    def _left(self, entry: TreeEntry) -> Left:
        owner = entry.mode & 0o7777, entry.uid, entry.gid
        kind, held = _KINDS.get(entry.kind, "special"), b""
        if entry.kind is FileKind.FILE and entry.size:
            if not entry.digest:
                return Left(entry.path, "unreadable", owner)
            held = self._held[entry.digest]
            assert len(held) == entry.size, f"{entry.path} was not read whole"
        return Left(entry.path, kind, owner, held, os.fsdecode(entry.target))


_KINDS = {FileKind.FILE: "file", FileKind.DIRECTORY: "directory", FileKind.SYMLINK: "symlink"}


def _contents_of(entries: Sequence[TreeEntry], run: RunCheck) -> Mapping[str, bytes]:
    """What these files hold. A few small ones are printed one by one: that takes one program each, and an
    archive takes six.
    """

    def printed(*argv: str) -> str:
        done = run(Check(0, argv, ()), ())
        assert done.exit_code == 0, done.output[-200:]
        return done.output

    paths = [f"./{entry.path}" for entry in entries]
    if len(entries) <= _FEW and all(entry.size <= _SLICE for entry in entries):
        return {e.path: base64.b64decode(printed("base64", p)) for e, p in zip(entries, paths, strict=True)}
    size, _, first = printed("sh", "-c", _DUMP, "sh", *paths).partition("\n")
    parts = [base64.b64decode(first)]
    for at in range(_SLICE, int(size), _SLICE):
        parts.append(base64.b64decode(printed("sh", "-c", _REST, "sh", str(at + 1))))
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(b"".join(parts)))) as archive:
        for one in archive:
            file = there(archive.extractfile(one))
            found[one.name.removeprefix("./")] = file.read()
    return found


def lists_all(legal: LegalStates) -> bool:
    """Whether every legal state is visited, as far as the events tell."""
    return not legal.ambiguous and all(len(t.choices.volatile) <= _EVERY for t in legal.crash_times)


def spread(times: Sequence[T]) -> list[T]:
    """In an order of which the first of any number are spread over all: the numbers' bits are reversed."""
    width = len(times).bit_length()
    return [times[n] for n in sorted(range(len(times)), key=lambda n: f"{n:0{width}b}"[::-1])]


def _states(legal: LegalStates) -> Iterator[CrashState]:
    """Of each crash time, in turn, every state where few blocks may be lost; else those that lose or keep all
    but one at most, and some that are drawn.
    """
    of_each = [_states_at(legal, crash_time) for crash_time in spread(legal.crash_times)]
    for states in itertools.zip_longest(*of_each):
        yield from dict.fromkeys(state for state in states if state is not None)


def _states_at(legal: LegalStates, crash_time: CrashTime) -> Iterator[CrashState]:
    drawing = random.Random(crash_time.at)  # noqa: S311 - which are drawn is no secret, and has to be the same again
    return (legal.name(crash_time, lost) for lost in _losses(crash_time, drawing))


def _losses(crash_time: CrashTime, drawing: random.Random) -> Iterator[Sequence[int]]:
    absent, volatile = crash_time.choices.absent, crash_time.choices.volatile
    if len(volatile) <= _EVERY:
        sets = itertools.chain.from_iterable(itertools.combinations(volatile, n) for n in range(_EVERY + 1))
        yield from ((*absent, *lost) for lost in sets)
        return
    yield absent
    yield (*absent, *volatile)
    for one in volatile:
        yield (*absent, one)
        yield (*absent, *(n for n in volatile if n != one))
    for _ in range(_DRAWN):
        yield (*absent, *(n for n in volatile if drawing.random() < 0.5))


Times = Sequence[tuple[int, int]]
"""Of each noted call, the events with which it began and returned."""


def call_times(notes: Notes, recording: Recording) -> Times:
    """When the calls were made. A store into a mapping was made once the call before it had begun, and no
    sooner: what was there by then has been noted.
    """
    found: list[tuple[int, int]] = []
    for call in notes.calls:
        if call.is_store:
            began = found[-1][0] if found else 0
            found.append((began, began))
            continue
        made = recording.calls.calls[call.number]
        assert (made.text, made.thread) == (call.text, call.thread), (made, call)
        assert made.returned is not None, call
        found.append((made.began, made.returned))
    return found


def made_before(times: Times, before: Callable[[int], bool]) -> tuple[int, int]:
    """How many calls, the first, had returned before the power failed, and how many had begun."""
    returned = sum(1 for _ in itertools.takewhile(lambda t: before(t[1]), times))
    begun = max((n for n, t in enumerate(times, 1) if before(t[0])), default=0)
    return returned, begun
