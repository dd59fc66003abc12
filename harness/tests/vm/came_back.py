"""Programs whose calls are noted, and which are recorded on a real file system: the trees that its crash
states come back with, each with what of the program's calls had begun and returned when the power failed.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import itertools
import random
import stat
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.cases.first_mount import finish_base
from harness.cases.recording import Recording, by_times, make_base, recording_of, take
from harness.filesystems.profiles import Profile, select_profiles
from harness.guests.guest_specs import make_specs
from harness.guests.made_trees import MadeTrees
from harness.guests.session import RunCheck, Session, Target
from harness.kernels.find import Kernel
from harness.model import CaseId, Check, CheckResult, CrashState, Tree, TreeEntry, Workload
from harness.plan import LOG_BYTES, GuestChoice
from harness.ruled.judging import check_of
from harness.rules.calls import Left, Notes
from harness.states import CrashTime, LegalStates
from harness.states.legal import BLOCK_SECTORS

DUMP = "tar cf - . | gzip | base64"
"""A tree on a program's standard output, of which 64 KiB are kept."""
_KINDS = {tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "symlink"}
_FEW = 6
"""Blocks that may be lost at a crash time of which every set is visited."""
_DRAWN = 8


Files = frozenset[Left]


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
class Back:
    """What came back in a state: the tree, and how many of the noted calls had returned and had begun."""

    state: CrashState
    files: Files
    returned: int
    begun: int


@contextlib.contextmanager
def noted(machine: Machine, workload: Workload, *, apart: bool) -> Iterator[tuple[MadeTrees, Notes]]:
    """The program's calls, on a file system that is only rules, and what makes trees of them."""
    (profile,) = select_profiles(["any/posix"])
    check = check_of(workload.checks)
    assert check is not None
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


def record(machine: Machine, profile: Profile, workload: Workload) -> tuple[Session, Recording]:
    """The program on a real file system. The session is the caller's to close."""
    scratch = machine.scratch / f"{profile.filesystem}-{profile.mode}-{workload.name}"
    scratch.mkdir()
    base = make_base(profile, scratch / "base.packed", scratch)
    specs = make_specs(machine.choice, machine.kernel, [profile], [workload], base, scratch)
    session = Session(specs.judge, scratch / "guest", LOG_BYTES)
    finish_base(session, profile, base, scratch / "base.packed")
    case = CaseId(profile.filesystem, profile.mode, workload.name)
    made = recording_of(take(session, profile, workload, case, base, scratch))
    recording, why = by_times(made, BLOCK_SECTORS)
    assert not why
    return session, recording


def come_back(session: Session, recording: Recording, notes: Notes, most: int) -> Iterator[Back]:
    """The states of a recording, up to so many contents; the end comes first. Each content is recovered once;
    it comes back for each number of calls that may have been made. Those that do not mount bring no tree.
    """
    legal = recording.legal
    assert legal is not None
    known: dict[str, Files | None] = {}
    done: set[tuple[str, int, int]] = set()
    times = call_times(notes, recording)
    recovering = Recovering(session, recording)
    session.show(recording.target)
    for state in (recording.end, *legal.cuts(), *_states(legal)):
        (content,) = session.disk.hashes([recording.on_disk(state)])
        returned, begun = made_before(times, recording.cut_before(state))
        if (content, returned, begun) in done or (content not in known and len(known) >= most):
            continue
        if content not in known:
            known[content] = recovering.files(state)
        done.add((content, returned, begun))
        if (files := known[content]) is not None:
            yield Back(state, files, returned, begun)


@dataclass(slots=True)
class Recovering:
    """Recovers states. A tree in which the walk sees the same as in one before is not read again."""

    session: Session
    recording: Recording
    _known: dict[frozenset[tuple[object, ...]], Files] = field(default_factory=dict)

    def files(self, state: CrashState) -> Files | None:
        """The tree that comes back, without what mkfs makes; None if it does not mount."""
        seen: list[Files] = []

        def ask(tree: Tree, run: RunCheck) -> tuple[CheckResult, ...]:
            key = frozenset(map(_seen, tree.values()))
            if key not in self._known:
                printed = run(Check(0, ("sh", "-c", DUMP), ()), ())
                assert printed.exit_code == 0, printed.output[-200:]
                self._known[key] = frozenset(f for f in tree_of(printed.output) if f.path != "lost+found")
            seen.append(self._known[key])
            return ()

        self.session.recover(self.recording.target, self.recording.on_disk(state), ask)
        return seen[0] if seen else None


def _seen(one: TreeEntry) -> tuple[object, ...]:
    return one.path, one.kind, one.mode, one.uid, one.gid, one.size, one.target, one.digest


def tree_of(dump: str) -> Iterator[Left]:
    """What DUMP printed."""
    held: dict[str, Left] = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(base64.b64decode(dump)))) as archive:
        for one in archive:
            path = one.name.removeprefix("./")
            if path in ("", "."):
                continue
            if one.islnk():
                first = held[one.linkname.removeprefix("./")]
                yield Left(path, first.kind, first.owner, first.contents)
                continue
            file = archive.extractfile(one) if one.isreg() else None
            owner = stat.S_IMODE(one.mode), one.uid, one.gid
            kind = _KINDS.get(one.type, "file")
            target = one.linkname if one.issym() else ""
            held[path] = Left(path, kind, owner, file.read() if file else b"", target)
            yield held[path]


def _states(legal: LegalStates) -> Iterator[CrashState]:
    """Of each crash time, every state where few blocks may be lost; else those that lose or keep all but one
    at most, and some that are drawn.
    """
    drawing = random.Random(0)  # noqa: S311 - which are drawn is no secret, and has to be the same again
    for crash_time in legal.crash_times:
        yield from dict.fromkeys(legal.name(crash_time, lost) for lost in _losses(crash_time, drawing))


def _losses(crash_time: CrashTime, drawing: random.Random) -> Iterator[Sequence[int]]:
    absent, volatile = crash_time.choices.absent, crash_time.choices.volatile
    if len(volatile) <= _FEW:
        sets = itertools.chain.from_iterable(itertools.combinations(volatile, n) for n in range(_FEW + 1))
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
    """When the calls that were noted were made while the program was recorded. The two are two runs of it: it
    has to make the same calls in the same order.
    """
    assert recording.calls.more == 0
    made = iter([c for c in recording.calls.calls if c.returned is not None and c.result >= 0])
    texts = {call.text for call in recording.calls.calls}
    found: list[tuple[int, int]] = []
    for call in notes.calls:
        if call.text not in texts:  # the recording notes no changes of attributes: it came behind the last
            last = found[-1][1] if found else 0
            found.append((last, last))
            continue
        same = next((c for c in made if c.text == call.text), None)
        assert same is not None, f"{call.text} was not made again"
        assert same.returned is not None
        found.append((same.began, same.returned))
    return found


def made_before(times: Times, before: Callable[[int], bool]) -> tuple[int, int]:
    """How many calls, the first, had returned before the power failed, and how many had begun."""
    returned = sum(1 for _ in itertools.takewhile(lambda t: before(t[1]), times))
    begun = max((n for n, t in enumerate(times, 1) if before(t[0])), default=0)
    return returned, begun
