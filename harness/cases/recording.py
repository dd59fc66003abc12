"""Recordings: a base image, the write log of a workload on it, and the history that the log's marks tell.

Kept packed in a run directory (`harness.store.layout`); worked on uncompressed, in a scratch folder. Nothing
kept is believed unseen: packed files have checksums, the store knows the hash of each, and the history has to
be the one that the marks in the log tell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from harness.cases.recoveries import RecoveryLog
from harness.errors import (
    CannotRecord,
    EventsDiffer,
    GuestLost,
    GuestSpent,
    LogDiffers,
    StoreError,
    ToolKilled,
    UsageError,
    WriteLogError,
)
from harness.filesystems.existing import copy_of
from harness.filesystems.profile import MountCounter, Profile
from harness.guests.disk import Order
from harness.guests.recorded_log import EVENTS_BYTES_MAX
from harness.guests.session import Recorder, Target
from harness.host.files import copy_atomically, file_hash, json_bytes, write_atomically
from harness.host.packed import pack, unpack
from harness.model import (
    BEFORE_THE_LOG,
    Acknowledgement,
    BeforeCrash,
    CaseId,
    CrashState,
    EntryFlag,
    History,
    HistoryStep,
    LogEntry,
    Operation,
    Persisted,
    Position,
    Said,
    Workload,
)
from harness.model.schedules import schedule_of, without_schedule
from harness.oracles.endings import stalled
from harness.oracles.pattern import poison
from harness.plan import ExistingDisk
from harness.states import LegalStates
from harness.store.layout import CaseLayout, RunLayout
from harness.writelog import WriteLog, read_log
from harness.writelog.calls import NOT_NOTED, Places, ProgramCalls, calls_of
from harness.writelog.events import no_events, times_of, why_no_events
from harness.writelog.log import copy_part
from harness.writelog.times import Times

T = TypeVar("T")

UNTOUCHED = CrashState(0)
"""The base image, with nothing of the log on it: a state of either kind."""
NOTHING_KNOWN: Mapping[str, str] = MappingProxyType({})

MKFS_ATTEMPTS = 3
ATTEMPTS = 6
"""Recordings made before one whose log does not give the disk is an error. What is no matter of chance, as a
log device that is full, is an error at once.
"""


class Recoveries(dict[CrashState, RecoveryLog]):
    """Recoveries that were noted, by the state that was recovered. It only grows, in any thread.

    Sent to another process it is empty: an attempt brings those that it needs, and one thread may note
    another one while the next thread sends.
    """

    def __reduce__(self) -> tuple[type[Recoveries], tuple[()]]:
        return Recoveries, ()


@dataclass(frozen=True, slots=True)
class Recording:
    """What a case is judged on. `base` and `log` are uncompressed working copies; `files`: SHA-256 of the
    files that are kept of it, by name. `times`: of the log's entries; where there are none, `no_times` says
    why. `legal`: with it, crash states are those by times, and the disk applies the writes in the order of
    their submission; without it, states of the log's own order. `calls`: what the workload's programs asked
    of the kernel; `said`: what that said meanwhile. `mount_counters`: what of contents does not tell states
    apart.
    """

    case: CaseId
    profile: Profile
    workload: Workload
    base: Path
    log: Path
    write_log: WriteLog
    history: History
    files: Mapping[str, str] = field(default_factory=dict)
    times: Times | None = None
    no_times: str = ""
    legal: LegalStates | None = None
    recoveries: Recoveries = field(default_factory=Recoveries)
    calls: ProgramCalls = NOT_NOTED
    mount_counters: tuple[MountCounter, ...] = ()
    said: tuple[Said, ...] = ()

    def with_events(self, events: str) -> Recording:
        """With what the text of its events says: times, or why there are none, and the program's calls.
        Raises EventsDiffer.
        """
        times, no_times = times_of(self.write_log.entries, events), why_no_events(events)
        return replace(self, times=times, no_times=no_times, calls=calls_of(events))

    @property
    def end(self) -> CrashState:
        """The state after the workload's end and a clean unmount."""
        persisted = None if self.legal is None else Persisted()
        return CrashState(len(self.write_log.entries), persisted=persisted)

    def position(self, state: CrashState) -> Position:
        """Where in the history the power fails. Raises UsageError for a state of the other kind."""
        state = state.first
        if self.legal is None or state == UNTOUCHED:
            return self.history.position(state.prefix)
        return self.legal.position(state)

    def cut_before(self, state: CrashState) -> Callable[[int], bool]:
        """Whether an event comes before the power failure of a state: by the time of the crash or, for a
        state of the log's own order, by the entries that it has. Where there are no times, none does.
        """
        state = state.first
        if self.times is None:
            return lambda event: False
        if self.legal is not None and state != UNTOUCHED:
            at = self.legal.event(state)
            return lambda event: event < at
        places = Places(self.write_log.entries, self.times)
        return lambda event: places.is_within(event, state.prefix)

    def shown(self, state: CrashState) -> tuple[Target, CrashState]:
        """What a disk shows, and the state as it takes it; see `on_disk`. Raises UsageError for a cut in a
        recovery that was not noted.
        """
        state = state.without_fault
        if not state.again:
            return self.target, self.on_disk(state)
        recovery = self.recoveries.get(state.recovered)
        if recovery is None:
            raise UsageError(f"{state}: what the recovery of {state.recovered} wrote is not known")
        return recovery.target, recovery.on_disk(state.again[-1])

    def on_disk(self, state: CrashState) -> CrashState:
        """A state without a cut in a recovery, as the disk takes it; see `LegalStates.on_disk`. Raises
        UsageError for one that cannot be.
        """
        if self.legal is not None and state != UNTOUCHED:
            return self.legal.on_disk(state)
        if state.persisted is not None:
            raise UsageError(
                f"{state} is a state by times, and this recording is looked at in the log's order",
                "name a state such as @417",
            )
        return state

    def digest(self) -> str:
        """Of the write log: verdicts belong to one recording."""
        with self.log.open("rb") as f:
            return hashlib.file_digest(f, "blake2b").hexdigest()

    @property
    def target(self) -> Target:
        """What a session shows to recover states of this recording."""
        target = replace(target_of(self.profile, self.base, self.log), mount_counters=self.mount_counters)
        if self.legal is None:
            return target
        return replace(target, order=Order(self.legal.order, self.legal.unit_sectors))


def by_times(recording: Recording, unit_sectors: int) -> tuple[Recording, str]:
    """The recording with its legal states, which follow from its times; or as it is, and why it has none. A
    disk with larger physical sectors than `unit_sectors` writes those as a whole.
    """
    if recording.times is None:
        why = f"recorded without times ({recording.no_times}): only prefixes of the log were covered"
        return recording, why
    unit = max(unit_sectors, recording.profile.disk.physical_sectors)
    legal = LegalStates(recording.write_log, recording.times, unit, recording.history.given)
    return replace(recording, legal=legal), ""


def target_of(profile: Profile, base: Path, log: Path | None) -> Target:
    """What is put on the disk for a mode."""
    layer = profile.layer
    return Target(
        layer.fstype if layer else profile.fstype,
        ",".join(layer.mount_options) if layer else profile.mount_options,
        base,
        log,
        profile.parts,
        read_only_first=profile.read_only_first,
        stacked=profile.stacked,
        disk=profile.disk,
        first=profile.first.script if profile.first else "",
        layer=layer,
        errors=tuple(profile.console.errors),
    )


def make_base(
    profile: Profile, kept: Path, scratch: Path, of: str = "", existing: ExistingDisk | None = None
) -> Path:
    """The image that recording begins with: poison everywhere, then mkfs; or a copy of the disk that somebody
    has. Kept compressed as `kept`. `of`: the workload to which it belongs, unless it is shared. On a stack,
    mkfs is for a guest to run: see `harness.cases.first_mount`.

    Poison, so that a block which no one has written shows when it turns up in a file. A mkfs that is killed
    is tried again, MKFS_ATTEMPTS in all. Raises ToolKilled, EnvironmentLacks where mkfs refuses; as
    `copy_of`.
    """
    image = scratch / image_name(profile, of)
    if image.exists() or kept.exists():
        return unpack(kept, image, profile.base_bytes_max)
    part = image.with_suffix(".part")
    if existing is None:
        _make_new(profile, part)
    else:
        copy_of(existing, part)
    pack(part, kept)
    part.rename(image)
    return image


def _make_new(profile: Profile, part: Path) -> None:
    for attempts_left in reversed(range(MKFS_ATTEMPTS)):
        with part.open("wb") as f:
            for chunk in poison(profile.size_bytes):
                f.write(chunk)
        try:
            if not profile.stacked:
                profile.make_filesystem(part)
            return
        except ToolKilled:
            if not attempts_left:
                raise


def image_name(profile: Profile, of: str) -> str:
    """Of a working copy of a base image; `of`: as in `make_base`."""
    return ".".join(filter(None, [f"{profile.filesystem}-{profile.mode}", of, "base", "img"]))


def log_name(case: CaseId) -> str:
    """Of a working copy of a write log."""
    return f"{case.filesystem}-{case.mode}.{case.workload}.log"


@dataclass(frozen=True, slots=True)
class Taken:
    """What a guest left of a workload that it carried out: `keep_taken` makes a recording of it. `log`: a
    working copy, which ends with its last entry. `said`: by the kernel, also in the part before the crash.
    `earlier`: what was done before it begins.
    """

    case: CaseId
    profile: Profile
    workload: Workload
    base: Path
    log: Path
    events: str
    console: bytes
    said: tuple[Said, ...] = ()
    earlier: BeforeCrash | None = None


def take(
    session: Recorder,
    profile: Profile,
    workload: Workload,
    case: CaseId,
    base: Path,
    scratch: Path,
    on_progress: Callable[[int], None] = lambda _: None,
    earlier: BeforeCrash | None = None,
) -> Taken:
    """Run the workload in the session's guest, but for what the part before the crash did. `on_progress` is
    told of operations that were done, of each once, however many recordings it takes. The schedule is that of
    the case's name, whatever the workload's is.

    Raises WriteLogError where the log cannot be trusted, CannotRecord where the same event is amiss twice,
    GuestLost where the kernel said each time that something took long; see also `Session.record`.
    """
    target = target_of(profile, base, None)
    given = earlier.operations if earlier else 0
    operations = workload.operations[given:]
    schedule = schedule_of(without_schedule(case.workload)[1], len(operations))
    done, told = 0, 0

    def advance(count: int) -> None:
        nonlocal done, told
        done += count
        if done > told:
            on_progress(done - told)
            told = done

    differed = ""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            done = 0
            events = session.record(target, operations, advance, schedule, given)
            slow = stalled(line for part in session.said for line in part.lines)
            if not slow:
                break
            if attempt == ATTEMPTS:
                raise GuestLost(f"the kernel says that something took long, as on a slow host: {slow}")
        except (LogDiffers, EventsDiffer, GuestSpent) as e:
            # Without a journal a page may change while it is being written; equal writes may be in flight
            # together: by chance. The same event is not amiss twice by chance.
            if isinstance(e, EventsDiffer) and e.what == differed:
                raise CannotRecord(e.what, e.next_step) from e
            differed = e.what
            if attempt == ATTEMPTS:
                raise
    log = scratch / log_name(replace(case, workload=workload.name))
    with session.log.open("rb") as source, log.open("wb") as copy:
        copy_part(source, copy, read_log(session.log).used_bytes, "its last entry")
    console = (session.directory / "console.txt").read_bytes()
    return Taken(case, profile, workload, base, log, events, console, session.said, earlier)


def keep_taken(taken: Taken, kept: CaseLayout, scratch: Path) -> Recording:
    """Keep what a guest left as `kept`, durably. Needs no guest. Raises WriteLogError where the log does not
    tell the workload's history.
    """
    made = recording_of(taken)
    pack(taken.log, kept.log)
    events = scratch / f"{taken.log.name}.events"
    events.write_text(taken.events)
    pack(events, kept.events)
    events.unlink()
    write_atomically(kept.console, taken.console)
    write_atomically(kept.said, json_bytes(taken.said))
    write_atomically(kept.history, json_bytes(made.history))  # last: it says that the rest is there
    return replace(made, files=hashes_of(kept))


def recording_of(taken: Taken) -> Recording:
    """The recording, of which nothing is kept. Raises as `keep_taken`."""
    written = read_log(taken.log)
    history = history_of(written.entries, taken.workload.operations, taken.earlier)
    made = Recording(
        taken.case, taken.profile, taken.workload, taken.base, taken.log, written, history, said=taken.said
    )
    return made.with_events(taken.events)


def read_events_of(kept: CaseLayout, scratch: Path) -> str:
    """The text of a recording's events. Raises StoreError for a damaged file, OSError."""
    if not kept.events.exists():
        return no_events("it was recorded by a version that kept none")
    plain = unpack(kept.events, scratch, EVENTS_BYTES_MAX)
    try:
        return plain.read_text(errors="backslashreplace")
    finally:
        plain.unlink()


def load_recording(
    case: CaseId,
    profile: Profile,
    workload: Workload,
    run: RunLayout,
    scratch: Path,
    log_bytes: int,
    known: Mapping[str, str] = NOTHING_KNOWN,
) -> Recording:
    """One that the run directory keeps. `log_bytes`: the size of the device that it was recorded on; `known`:
    the hashes that its files had, where the store has them.

    Raises StoreError for one that is not there, is damaged or was changed, WriteLogError for a log that is
    none.
    """
    kept, profile = run.case(case), profile.sized(workload.image_mib)
    own = workload.name if kept.base == kept.own_base else ""
    try:
        files = hashes_of(kept)
        need_unchanged(kept, files, known)
        history = read_history(kept.history)
        base = unpack(kept.base, scratch / image_name(profile, own), profile.base_bytes_max)
        log = unpack(kept.log, scratch / log_name(case), log_bytes)
        events = read_events_of(kept, scratch / f"{log_name(case)}.events")
        said = read_said(kept.said)
    except OSError as e:
        raise StoreError(
            f"the recording of {case} in {kept.folder} cannot be read: {e}", "record the case again"
        ) from e
    written = read_log(log)
    told = history_of(written.entries, workload.operations, history.earlier)
    _need_history(kept.history, history, told)
    recording = Recording(case, profile, workload, base, log, written, history, files, said=said)
    return recording.with_events(events)


def read_said(file: Path) -> tuple[Said, ...]:
    """The kernel's messages during a recording, as a run directory keeps them. Raises StoreError for a
    damaged file, OSError.
    """
    return _decoded(file, tuple[Said, ...]) if file.exists() else ()


def read_history(file: Path) -> History:
    """The history that a run directory keeps. Raises StoreError for a damaged file."""
    return _decoded(file, History)


def _decoded(file: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(f"{file} is damaged: {e}", "record the case again") from e


def _need_history(file: Path, history: History, told: History) -> None:
    """Raises StoreError where the history is not the one that the log's marks tell: with acknowledgements
    taken out of it a recording that shows a fault would be judged to have promised nothing.
    """
    if history == told:
        return
    pairs = zip(history.steps, told.steps, strict=False)
    number = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(history.steps), len(told.steps)))
    what = f"operation {number}" if history.steps != told.steps else "what applications acknowledged"
    raise StoreError(
        f"{file} is not the history that the marks in the log tell: it differs in {what}",
        "the history or the workload was changed: record the case again",
    )


def hashes_of(kept: CaseLayout) -> dict[str, str]:
    """SHA-256 of the files that verdicts depend on, by name. Raises OSError."""
    files = [kept.base, kept.log, kept.history, *(f for f in (kept.events, kept.said) if f.exists())]
    return {file.name: file_hash(file) for file in files}


def need_unchanged(kept: CaseLayout, files: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raises StoreError for a file that is another than when the case was recorded: its verdicts are about
    that one.
    """
    for file in (kept.base, kept.log, kept.history, kept.events, kept.said):
        then, now = known.get(file.name, ""), files.get(file.name, "")
        if then and not now:
            raise StoreError(
                f"{file} is missing: the case was recorded with it",
                "the verdicts that are kept are about the recording as it was: start a new run",
            )
        if then not in ("", now):
            raise StoreError(
                f"{file} was changed since the case was recorded: sha256 {then} then, {now} now",
                "the verdicts that are kept are about the file as it was: start a new run",
            )


def copy_base(profile: Profile, source: RunLayout, run: RunLayout) -> None:
    """Take over the base image of another run's recordings of this mode, if it has any: logs are worth
    nothing on any other base. Raises StoreError where the image is missing.
    """
    kept = source.base(profile.filesystem, profile.mode)
    own = run.base(profile.filesystem, profile.mode)
    if own.exists():
        return
    if kept.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        copy_atomically(kept, own)
    elif recorded := source.recordings(profile.filesystem, profile.mode):
        raise StoreError(
            f"{kept} is missing: {len(recorded)} recordings of {profile.name} are worth nothing without it",
            "name a run whose base images are there",
        )


def copy_recording(case: CaseId, source: RunLayout, run: RunLayout) -> None:
    """Take over another run's recording of this case; its base image must have been taken over before.

    Raises StoreError where that run has none.
    """
    if not is_kept(case, source):
        raise StoreError(f"{source.path} has no recording of {case}", "name a run that recorded this case")
    kept, own = source.case(case), run.case(case)
    if not own.base.exists():
        raise StoreError(f"{own.base} is missing: {case} was recorded on it", "start a new run")
    own.folder.mkdir(parents=True, exist_ok=True)
    for file, copy in zip(kept.files, own.files, strict=True):  # the last says that the rest is there
        if file not in (kept.events, kept.said, kept.own_base) or file.exists():
            copy_atomically(file, copy)


def is_kept(case: CaseId, run: RunLayout) -> bool:
    """Whether the run directory holds a whole recording of this case."""
    return run.case(case).history.exists()


def history_of(
    entries: Sequence[LogEntry], operations: Sequence[Operation], earlier: BeforeCrash | None = None
) -> History:
    """The history that the marks `begin N`, `ack N` and, from applications, `app TEXT` tell. The operations
    of the part before the crash have no marks.

    Raises WriteLogError where a mark is missing, doubled or out of order: positions would be wrong.
    """
    marks = [(e.index, e.mark) for e in entries if e.flags & EntryFlag.MARK]
    told = [(index, m) for index, text in marks if (m := re.fullmatch(r"(begin|ack) (\d+)", text))]
    given = earlier.operations if earlier else 0
    expected = [(word, number) for number in range(given, len(operations)) for word in ("begin", "ack")]
    found = [(m[1], int(m[2])) for _, m in told]
    if found != expected:
        first = next((i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), len(found))
        raise WriteLogError(
            f"the log's marks do not tell the history: {len(found)} marks for {len(operations)} operations, "
            f"the first difference at mark {first}",
            "the log is incomplete, or from another workload: record again",
        )
    positions = [BEFORE_THE_LOG] * (2 * given) + [index for index, _ in told]
    return History(
        tuple(
            HistoryStep(i, op, begin=positions[2 * i], ack=positions[2 * i + 1])
            for i, op in enumerate(operations)
        ),
        _acknowledgements(marks),
        earlier,
    )


def _acknowledgements(marks: Sequence[tuple[int, str]]) -> tuple[Acknowledgement, ...]:
    """Each belongs to the operation that was begun last."""
    found: list[Acknowledgement] = []
    operation = -1
    for index, text in marks:
        word, _, rest = text.partition(" ")
        if word == "begin":
            operation += 1
        elif word == "app":
            found.append(Acknowledgement(operation, rest, index))
    return tuple(found)
