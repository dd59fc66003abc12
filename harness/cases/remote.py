"""A worker's process, as the run sees it: guest and disk, fsck, and all that reads what they say, are there.

One interpreter runs one thread at a time. A visit takes milliseconds of it, so workers that were threads of
one got no further than one core. What decides stays with the run: exploration, memo, oracles, the store. The
process (`harness.cases.worker`) attempts one crash state after the other and answers with what came of it.

Both ends are this very program, over a socket pair that nobody else has: so messages are pickled. A pickler
names what it has sent before: a recording is sent once, and entries of trees are shared here as they are
there (`harness.guests.outcomes.KnownEntries`).
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

import harness
from harness.cases.answers import Key, Messages, SharedMessages
from harness.cases.attempts import ATTEMPTS, Unobserved, Visited, reason_of
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import Recording
from harness.cases.recoveries import RecoveryLog
from harness.errors import NeverBoots, PowercutError, VersionsDiffer
from harness.guests.boots import BootMessage
from harness.guests.disk import FOLDER_PREFIX
from harness.guests.session import PLAIN, Ask, GuestSpec, Session, Target
from harness.host.folders import sweep
from harness.host.processes import die_with_parent
from harness.model import Check, CheckResult, CrashState, Operation, Said, Schedule, Tree

BEAT_S = 5.0
"""How often a worker's process says that it is there, whatever it waits for."""
SILENT_S = 60.0
"""After so much silence it counts as lost: it was stopped."""
END_S = 3.0
"""How long it may take to end its guests. One that was stopped takes as long, and is killed: so are they."""
SHARED_BYTES = 8 << 20
"""Of messages whose parts the next ones may name: both ends keep them."""

Sessions = Mapping[str, Session]
"""The sessions of a worker, by what they do: `recorder` and `judge`."""


class WorkerLost(PowercutError):
    """A worker's process has gone, or says nothing."""


class Gone(Exception):
    """The other end of a stream has gone, or says nothing. Its text says how."""


# --- messages ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record:
    """Record operations; see `Session.record`. Answered by Recorded."""

    target: Target
    operations: tuple[Operation, ...]
    schedule: Schedule
    first: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """See `Session`."""

    events: str
    log: Path
    directory: Path
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class BootGuest:
    """Show a target, and boot a guest on it."""

    target: Target


@dataclass(frozen=True, slots=True)
class Attempt:
    """Observe a state; see `Attempts`. `recoveries`: that it needs. `checks`: the run has some to ask.
    `recalls`: of the memo. `messages`, `answers`: of other workers, on this recording, and on all of this
    key; the session adds them. Answered by Observed.
    """

    recording: Recording
    recoveries: tuple[RecoveryLog, ...]
    again: int
    faulty_disk: bool
    sample_rate: float
    state: CrashState
    checks: bool
    recalls: bool
    messages: tuple[bytes, ...] = ()
    key: Key = ("", "", 0)
    answers: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """`mismatch`: an answer was not the one that was known. `recalls`: of the memo. `note`, `answers`: for
    others.
    """

    visited: Visited
    mismatch: bool
    recalls: bool
    note: bytes
    answers: bytes


@dataclass(frozen=True, slots=True)
class Request:
    """`session`: by name. `given_up`: why no further guest may be booted, if that is known."""

    session: str
    what: Record | BootGuest | Attempt
    given_up: NeverBoots | VersionsDiffer | None


@dataclass(frozen=True, slots=True)
class Advanced:
    """So many more operations were done."""

    count: int


@dataclass(frozen=True, slots=True)
class AskChecks:
    """While the tree is mounted: the run answers with Checked or Raised, and before that with RunCheck."""

    tree: Tree


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Answered by a CheckResult or Raised."""

    check: Check
    acknowledged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks of a tree say."""

    results: tuple[CheckResult, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception in place of an answer."""

    error: PowercutError


@dataclass(frozen=True, slots=True)
class Answer:
    """The last message about a request. `boots`: guests that came up, or did not, meanwhile."""

    value: Recorded | Observed | Raised | None
    boots: tuple[BootMessage, ...]


class Stream:
    """Messages over a socket. One thread sends and receives; any may `beat`."""

    def __init__(self, own: socket.socket) -> None:
        self._socket = own
        self._sending = threading.Lock()
        self._file = own.makefile("rb")
        self._source, self._sink = io.BytesIO(), io.BytesIO()
        self._unpickler = pickle.Unpickler(self._source)  # noqa: S301 - see the module
        self._pickler: pickle.Pickler | None = None
        self._sent = 0

    def send(self, message: object, *, anew: bool = False) -> None:
        """Raises Gone. `anew`: name nothing that was sent before."""
        renewed = anew or self._pickler is None or self._sent > SHARED_BYTES
        if self._pickler is None or renewed:
            self._sink, self._sent = io.BytesIO(), 0
            self._pickler = pickle.Pickler(self._sink, pickle.HIGHEST_PROTOCOL)
        self._sink.seek(0)
        self._sink.truncate()
        try:
            self._pickler.dump(message)
        except BaseException:
            self._pickler = None  # it names what was not sent
            raise
        data = self._sink.getvalue()
        self._sent += len(data)
        self._put(_HEADER.pack(renewed, len(data)) + data)

    def beat(self) -> None:
        """Say that this end is there. Raises Gone."""
        self._put(_HEADER.pack(False, 0))

    def _put(self, data: bytes) -> None:
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as e:
            raise Gone(str(e)) from e

    def receive(self) -> object:
        """Raises Gone."""
        length = 0
        while not length:
            renewed, length = _HEADER.unpack(self._read(_HEADER.size))
        data = self._read(length)
        if renewed:
            self._source = io.BytesIO()
            self._unpickler = pickle.Unpickler(self._source)  # noqa: S301 - see the module
        self._source.seek(0)
        self._source.truncate()
        self._source.write(data)
        self._source.seek(0)
        return self._unpickler.load()

    def _read(self, length: int) -> bytes:
        try:
            data = self._file.read(length)
        except (OSError, ValueError) as e:  # ValueError: closed by another thread
            raise Gone(str(e)) from e
        if len(data) != length:
            raise Gone("its end of the channel is closed")
        return data

    def hear_no_more(self) -> None:
        """From any thread: `receive` raises Gone from now on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """The other end sees that."""
        self._file.close()
        self._socket.close()


_HEADER = struct.Struct(">?Q")


# --- the process ------------------------------------------------------------------------------


class WorkerProcess:
    """Started when it is needed, by the thread that uses it, with which it ends. `make`: makes its sessions,
    there. `directory`: for what it prints.

    Any thread may call `stop`, for good: guests and disks are ended, and the owner's request ends soon.
    """

    def __init__(self, make: Callable[[], Sessions], directory: Path) -> None:
        self._make, self._directory = make, directory
        self._lock = threading.Lock()
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: Stream | None = None
        self._about: Recording | None = None
        self._received: WeakKeyDictionary[Messages, int] = WeakKeyDictionary()

    def messages_for(self, messages: Messages) -> tuple[bytes, ...]:
        """Of all that workers noted for one another, what this process has not heard."""
        if self._stream is None:
            self._received.clear()
        new, self._received[messages] = messages.since(self._received.get(messages, 0), self._stream)
        return new

    @property
    def identity(self) -> object:
        """Of the process that runs now: another one knows nothing of what this one does."""
        return self._stream

    def ask(
        self, request: Request, answer: Callable[[Stream, object], None], meanwhile: Callable[[], None]
    ) -> Answer:
        """Send a request; `answer` takes what it says before the last message. `meanwhile` is called once it
        is sent. Raises WorkerLost.
        """
        try:
            stream = self._running()
            about = request.what.recording if isinstance(request.what, Attempt) else self._about
            stream.send(request, anew=about is not self._about)
            self._about = about
            meanwhile()
            while not isinstance(message := stream.receive(), Answer):
                answer(stream, message)
            return message
        except (Gone, OSError, pickle.UnpicklingError) as e:
            raise WorkerLost(f"a worker's process is lost ({e}){self._end()}") from e
        except BaseException:  # interrupted: it is in the middle of something
            self.kill()
            self._end()
            raise

    def _running(self) -> Stream:
        """Raises WorkerLost once it was stopped."""
        if self._stream is not None:
            return self._stream
        ours, theirs = socket.socketpair()
        ours.settimeout(SILENT_S)
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._lock, theirs, self._said.open("wb") as said:
            if self._stopped:
                ours.close()
                raise WorkerLost("the run was stopped")
            self._process = subprocess.Popen(
                # -P: no module is taken from the current folder, which may be one from elsewhere.
                die_with_parent([sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())]),
                stdin=subprocess.PIPE,  # it ends its guests when this is closed
                stdout=said,
                stderr=said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the run, which stops it
            )
        self._stream, self._about = Stream(ours), None
        self._stream.send(self._make)
        return self._stream

    @property
    def _said(self) -> Path:
        return self._directory / "worker.txt"

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()

    def kill(self) -> None:
        """At once; its guests and disks end with it."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End it, with its guests. Another request starts another one."""
        self._end()

    def _end(self) -> str:
        """Returns what it printed, for a message."""
        process, stream = self._process, self._stream
        self._process = self._stream = self._about = None
        if stream is not None:
            stream.close()
        if process is None:
            return ""
        with contextlib.suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        sweep(FOLDER_PREFIX)  # of its disks, if it was killed
        with contextlib.suppress(OSError):
            printed = self._said.read_bytes()[-_SAID_BYTES:].decode(errors="replace").strip()
            return f": it ended with {process.returncode} and said {printed}" if printed else ""
        return ""


_PROGRAM = (
    f"import sys; sys.path.insert(0, {os.fspath(Path(harness.__file__).parent.parent)!r}); "
    "from harness.cases.worker import serve; serve(int(sys.argv[1]))"
)
_SAID_BYTES = 600


def nothing() -> None:
    """Nothing is to be done meanwhile."""


class RemoteSession:
    """A session in a worker's process. As `Session`, for what a run asks of one. Owned by one thread.
    `meanwhile`: what that thread does while the process carries out the next request.
    """

    def __init__(self, process: WorkerProcess, name: str, spec: GuestSpec) -> None:
        self._process, self._name, self._spec = process, name, spec
        self.directory = self.log = Path()
        self.said: tuple[Said, ...] = ()
        self.meanwhile: Callable[[], None] = nothing

    @property
    def machine_name(self) -> str:
        """The kind of guest."""
        return self._spec.machine.name

    def refuse_if_given_up(self) -> None:
        self._spec.boots.refuse_if_given_up()

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        """From another thread: end the process at once, so that the owner's request fails."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and with it the worker's other session."""
        self._process.close()

    def boot(self, target: Target) -> None:
        self._request(BootGuest(target))

    def record(
        self,
        target: Target,
        operations: Sequence[Operation],
        on_progress: Callable[[int], None] = lambda _: None,
        schedule: Schedule = PLAIN,
        first: int = 0,
    ) -> str:
        """See `Session`. Raises WorkerLost as well."""

        def answer(_: Stream, message: object) -> None:
            assert isinstance(message, Advanced)  # noqa: S101 - see `Record`; tells mypy
            on_progress(message.count)

        recorded = self._request(Record(target, tuple(operations), schedule, first), answer)
        assert isinstance(recorded, Recorded)  # noqa: S101 - see `Record`; tells mypy
        self.directory, self.log, self.said = recorded.directory, recorded.log, recorded.said
        return recorded.events

    def attempt(self, asked: Attempt, ask: Ask | None, of_case: Messages, answers: Messages) -> Observed:
        """Attempts on a state of this recording, with what all workers noted that work on it, and answers
        also of those that work on others; those of this one are added. Raises WorkerLost, and what `ask`
        raises that is no PowercutError.
        """

        def answer(stream: Stream, message: object) -> None:
            assert isinstance(message, AskChecks)  # noqa: S101 - see `Attempt`; tells mypy
            assert ask is not None  # noqa: S101 - see `Attempt`; tells mypy
            stream.send(_checked(stream, ask, message.tree))

        what = replace(
            asked,
            messages=self._process.messages_for(of_case),
            key=answers.key,
            answers=self._process.messages_for(answers),
        )
        observed = self._request(what, answer)
        assert isinstance(observed, Observed)  # noqa: S101 - see `Attempt`; tells mypy
        of_case.add(self._process.identity, observed.note)
        answers.add(self._process.identity, observed.answers)
        return observed

    def _request(
        self,
        what: Record | BootGuest | Attempt,
        answer: Callable[[Stream, object], None] = lambda _, __: None,
    ) -> Recorded | Observed | None:
        boots = self._spec.boots
        meanwhile, self.meanwhile = self.meanwhile, nothing
        answered = self._process.ask(Request(self._name, what, boots.given_up), answer, meanwhile)
        for told in answered.boots:
            boots.receive(told)
        if isinstance(answered.value, Raised):
            raise answered.value.error
        return answered.value


AnySession = Session | RemoteSession
"""Here, or in a worker's process."""


class RemoteAttempts:
    """`Attempts`, in the processes of workers. What one of them learned of fsck, of writing and of how the
    kernel ends, the others are told. Thread-safe.

    Invariants: those of `Attempts`. A process that is lost counts as a lost guest: another one tries again,
    ATTEMPTS in all. That the memo was wrong, or may recall nothing more, is known here before `observe`
    returns.
    """

    def __init__(
        self,
        recording: Recording,
        memo: OutcomeMemo,
        again: int = 0,
        *,
        faulty_disk: bool = False,
    ) -> None:
        """As `Attempts`."""
        self._recording, self._memo, self._again, self._faulty_disk = recording, memo, again, faulty_disk
        self._messages = Messages()
        self._answers = SharedMessages().of(recording)

    def share(self, answers: SharedMessages) -> None:
        """Share what is learned of fsck and of writing with other recordings."""
        self._answers = answers.of(self._recording)

    def observe(
        self, session: RemoteSession, state: CrashState, ask: Ask | None, stop: threading.Event
    ) -> Visited:
        """As `Attempts.observe`."""
        why = "stopped"
        for _ in range(ATTEMPTS):
            if stop.is_set():
                return Visited(Unobserved("stopped"))
            try:
                asked = Attempt(
                    self._recording,
                    (self._recording.recoveries[state.recovered],) if state.again else (),
                    self._again,
                    self._faulty_disk,
                    self._memo.sample_rate,
                    state,
                    ask is not None,
                    self._memo.recalls,
                )
                seen = session.attempt(asked, ask, self._messages, self._answers)
            except WorkerLost as e:
                why = e.what
                continue
            except VersionsDiffer:
                raise
            except Exception as e:  # as in `Attempts`
                session.close()
                return Visited(Unobserved(reason_of(e)))
            if seen.mismatch:
                self._answers.mismatched = True
                self._memo.give_up(state)
            elif not seen.recalls:
                self._memo.turn_off()
            return seen.visited
        return Visited(Unobserved(why))


def _checked(stream: Stream, ask: Ask, tree: Tree) -> Checked | Raised:
    def run(check: Check, acknowledged: Sequence[str]) -> CheckResult:
        stream.send(RunCheck(check, tuple(acknowledged)))
        result = stream.receive()
        if isinstance(result, Raised):
            raise result.error
        assert isinstance(result, CheckResult)  # noqa: S101 - see `RunCheck`; tells mypy
        return result

    try:
        return Checked(ask(tree, run))
    except PowercutError as e:
        return Raised(e)
