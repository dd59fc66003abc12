"""Workers as processes: the real process and the real engine, with toy guests in it."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from harness.cases import remote
from harness.cases.answers import MESSAGES_MAX, SharedMessages
from harness.cases.attempts import Attempts, Unobserved, Visited
from harness.cases.block_answers import Hashes
from harness.cases.fsck_reads import FsckReads
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.pool import Interrupted
from harness.cases.remote import Observed, RemoteAttempts, RemoteSession, Stream, WorkerLost
from harness.errors import GuestLost, NeverBoots, PowercutError, VersionsDiffer
from harness.filesystems.tools import Tool
from harness.guests.boots import BOOTS_IN_A_ROW, Boots
from harness.guests.session import RunCheck
from harness.model import Check, CheckResult, FsckClass, FsckResult, Outcome, Tree, Verdict
from harness.tests.cases.toy_kernel import Bench, Kernel, Kind, Put, a_bench, bench_in, remote_session

DEADLINE_S = 120.0


bench = a_bench


# --- what happens in a worker's process, in whose folder is a file for each visit ------------


def nothing(_: str) -> None: ...


def note(folder: Path) -> int:
    """Note a visit of this process; returns how many there were in all."""
    marks = folder / "visits"
    marks.mkdir(exist_ok=True)
    number = len(list(marks.iterdir()))
    (marks / f"{os.getpid()}-{number}-{time.monotonic_ns()}").touch()
    return number + 1


def processes(folder: Path) -> set[int]:
    """Those that have visited."""
    return {int(mark.name.split("-")[0]) for mark in (folder / "visits").glob("*")}


def wait_for_another(folder: Path) -> None:
    """With the third visit: by then, two states are wanted at once."""
    deadline = time.monotonic() + DEADLINE_S
    if note(folder) == 3:
        while len(processes(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)


def end_once(folder: Path, how: int, word: str) -> None:
    """The first time that this word is read, the process gets a signal."""
    if word == "110" and not (folder / "ended").exists():
        (folder / "ended").write_text(f"{os.getpid()}")
        os.kill(os.getpid(), how)


def end_always(word: str) -> None:
    if word == "110":
        os.kill(os.getpid(), signal.SIGKILL)


# --- the engine -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.FINE, Kind.NOT_MOUNTED, Kind.DIES, Kind.HANGS])
def test_two_processes_on_one_case_store_what_one_thread_does(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """All workers were threads of one interpreter: a large case took as long with two as with one."""
    monkeypatch.setattr("harness.cases.casework.WORTH_HELP", 1)
    kernel = Kernel(kind, on_visit=nothing, meanwhile=functools.partial(wait_for_another, tmp_path))
    bench.run(kernel, "exhaustive", jobs=2, apart=True)
    assert len(processes(tmp_path)) >= 2
    assert os.getpid() not in processes(tmp_path)
    with bench_in(tmp_path / "alone") as alone:
        alone.run(Kernel(kind), "exhaustive")
        assert list(bench.store.iter_verdicts(bench.case)) == list(alone.store.iter_verdicts(bench.case))
        (one,), (two,) = alone.store.cases(), bench.store.cases()
        assert (two.status, two.info.coverage) == (one.status, one.info.coverage)


def test_what_a_recovery_wrote_is_cut_again_in_another_process(bench: Bench, tmp_path: Path) -> None:
    """A process knows of a recovery only what it is told, if another one has noted it."""
    program = (Put(0, 1, 1), None, Put(1, 0, 2))
    bench.run(Kernel(program=program, on_visit=nothing), "exhaustive", jobs=2, apart=True, again=1)
    with bench_in(tmp_path / "alone") as alone:
        alone.run(Kernel(program=program), "exhaustive", again=1)
        rows = list(alone.store.iter_verdicts(bench.case))
        assert any(row.state.again for row in rows)
        assert list(bench.store.iter_verdicts(bench.case)) == rows


@pytest.mark.parametrize("kind", [Kind.WAVERS, Kind.DISK_ENDS, Kind.NO_TREE])
def test_a_process_says_what_a_thread_does_where_a_visit_goes_wrong(
    bench: Bench, tmp_path: Path, kind: Kind
) -> None:
    at = "111" if kind is Kind.WAVERS else "110"
    kernel = Kernel(kind, at=at, on_visit=nothing)
    bench.run(kernel, "exhaustive", apart=True, sample_rate=1.0)
    with bench_in(tmp_path / "alone") as alone:
        alone.run(Kernel(kind, at=at), "exhaustive", sample_rate=1.0)
        assert list(bench.store.iter_verdicts(bench.case)) == list(alone.store.iter_verdicts(bench.case))
        (one,), (two,) = alone.store.cases(), bench.store.cases()
        assert (two.status, two.mismatch, two.reason) == (one.status, one.mismatch, one.reason)


def test_a_process_that_is_killed_costs_no_verdict(bench: Bench, tmp_path: Path) -> None:
    """As a guest that is lost: another one tries."""
    bench.run(
        Kernel(on_visit=functools.partial(end_once, tmp_path, signal.SIGKILL)), "exhaustive", apart=True
    )
    assert (tmp_path / "ended").exists()
    found = bench.verdicts("exhaustive")
    assert set(found) >= {"110", "111"}
    assert all(verdicts == {Verdict.PASS} for verdicts in found.values())


def test_a_state_whose_processes_are_all_lost_is_unknown(bench: Bench) -> None:
    bench.run(Kernel(on_visit=end_always), "exhaustive", apart=True)
    found = bench.verdicts("exhaustive")
    assert found.pop("110") == {Verdict.UNKNOWN}
    assert all(verdicts == {Verdict.PASS} for verdicts in found.values())
    reasons = [r for row in bench.store.iter_verdicts(bench.case) for r in row.unknown]
    assert reasons
    assert all("a worker's process is lost" in reason for reason in reasons)


def test_a_process_that_is_stopped_counts_as_lost(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing any more, and its end of the channel is still there."""
    monkeypatch.setattr(remote, "SILENT_S", 4 * remote.BEAT_S)
    monkeypatch.setattr(remote, "END_S", 0.1)
    killed = []

    def kill() -> None:
        pid = int((tmp_path / "ended").read_text())
        killed.append(pid)
        os.kill(pid, signal.SIGKILL)

    waited_for = threading.Timer(DEADLINE_S, kill)  # a run that waits for ever
    waited_for.start()
    bench.run(
        Kernel(on_visit=functools.partial(end_once, tmp_path, signal.SIGSTOP)), "exhaustive", apart=True
    )
    waited_for.cancel()
    assert not killed
    found = bench.verdicts("exhaustive")
    assert found["110"] == {Verdict.PASS}


def test_a_run_that_is_stopped_ends_its_processes(bench: Bench, tmp_path: Path) -> None:
    kernel = Kernel(on_visit=nothing, meanwhile=functools.partial(sleep_once, tmp_path))

    def stop() -> None:
        until(lambda: bool(processes(tmp_path)))
        bench.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Interrupted):
        bench.run(kernel, "exhaustive", apart=True)
    stopper.join()
    assert all(gone(pid) for pid in processes(tmp_path))


def sleep_once(folder: Path) -> None:
    """The guest hangs."""
    if note(folder) == 1:
        time.sleep(DEADLINE_S * 10)


def test_a_run_that_is_killed_takes_its_processes_along(tmp_path: Path) -> None:
    """Also one that is stopped, and reads nothing."""
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from harness.cases.remote import WorkerProcess\n"
        "from harness.tests.cases import test_worker as t\n"
        "process = WorkerProcess(t.make_nothing, Path(sys.argv[1]))\n"
        "process._running()\n"
        "print(process._process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    line = [sys.executable, "-c", script, os.fspath(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        program = Path(
            f"/proc/{pid}/cmdline"
        )  # it asks for the signal at its parent's end before it is Python
        assert until(lambda: program.read_bytes().startswith(os.fsencode(sys.executable)))
        os.kill(pid, signal.SIGSTOP)
        run.kill()
    assert until(lambda: gone(pid))


def test_a_process_runs_no_code_of_the_folder_in_which_the_run_was_started(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -c` looks for modules there first: the folder may be one from elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("socket", "pickle", "msgspec", "click"):
        (elsewhere / f"{name}.py").write_text(f"open({os.fspath(tmp_path / 'ran')!r}, 'w').close()")
    monkeypatch.chdir(elsewhere)
    bench.run(Kernel(on_visit=nothing), "prefix", apart=True)
    assert not (tmp_path / "ran").exists()
    assert set.union(*bench.verdicts("prefix").values()) == {Verdict.PASS}


def make_nothing() -> dict[str, Any]:
    return {}


def until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.02)
    return False


def gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


# --- a workload's checks, which the run asks ---------------------------------------------------


def attempted(
    bench: Bench, session: RemoteSession, ask: Callable[[Tree, RunCheck], tuple[CheckResult, ...]]
) -> Outcome | Unobserved:
    recording = bench.recording("prefix")
    memo = OutcomeMemo(recording, sample_rate=0.0, mismatch="", on_mismatch=lambda _: None)
    return RemoteAttempts(recording, memo).observe(session, recording.end, ask, threading.Event()).outcome


@pytest.fixture
def session(bench: Bench, tmp_path: Path) -> Iterator[RemoteSession]:
    bench.run(Kernel(), "prefix")
    one = remote_session(Kernel(on_visit=nothing), tmp_path / "apart")
    yield one
    one.close()


CHECK = Check(0, ("true",), reads=())


def test_the_run_asks_the_checks_and_the_process_has_them_run_in_its_guest(
    bench: Bench, session: RemoteSession
) -> None:
    def ask(tree: Tree, run: RunCheck) -> tuple[CheckResult, ...]:
        assert list(tree) == [""]
        return (run(CHECK, ()), CheckResult(1, 0, "known"))

    seen = attempted(bench, session, ask)
    assert isinstance(seen, Outcome)
    assert [result.output for result in seen.checks] == ["toy: true", "known"]


@pytest.mark.parametrize(
    ("error", "said"), [(PowercutError("no"), "no"), (ZeroDivisionError("x"), "unforeseen ZeroDivisionError")]
)
def test_a_check_that_cannot_be_asked_leaves_the_state_unobserved(
    bench: Bench, session: RemoteSession, error: Exception, said: str
) -> None:
    def ask(tree: Tree, run: RunCheck) -> Sequence[Any]:
        raise error

    seen = attempted(bench, session, ask)  # type: ignore[arg-type]  # it never returns
    assert isinstance(seen, Unobserved)
    assert said in seen.reason
    again = attempted(bench, session, lambda tree, run: ())
    assert isinstance(again, Outcome), "the next one is not disturbed"


def test_a_part_of_another_version_is_no_answer(bench: Bench, session: RemoteSession) -> None:
    """The process's own disk may be the one that differs."""

    def ask(tree: Tree, run: RunCheck) -> Sequence[Any]:
        raise VersionsDiffer("the disk speaks protocol 2")

    with pytest.raises(VersionsDiffer):
        attempted(bench, session, ask)  # type: ignore[arg-type]  # it never returns


# --- what a process found out, and what others are told -----------------------------------------


@dataclass
class Message:
    """A session whose process answers so."""

    answers: list[Observed | WorkerLost]

    def attempt(self, *given: object) -> Observed:
        answer = self.answers.pop(0)
        if isinstance(answer, WorkerLost):
            raise answer
        return answer


SEEN = Visited(Unobserved("toy"))


@pytest.mark.parametrize("mismatch", [True, False])
def test_what_a_process_says_of_the_memo_is_known_before_its_answer_is_used(
    bench: Bench, mismatch: bool
) -> None:
    """fsck's answer was another one there, or its reads could not be followed: and the run recalled on."""
    bench.run(Kernel(), "prefix")
    recording, stored = bench.recording("prefix"), list[str]()
    memo = OutcomeMemo(recording, sample_rate=0.0, mismatch="", on_mismatch=stored.append)
    told = Message([WorkerLost("killed"), Observed(SEEN, mismatch, False, b"", b"")])
    attempts = RemoteAttempts(recording, memo)
    assert attempts.observe(cast(Any, told), recording.end, None, threading.Event()) is SEEN
    assert not memo.recalls
    assert bool(memo.mismatch) is bool(stored) is mismatch


@dataclass
class Fscks:
    """Workers' processes, of whose fsck each run says something else."""

    bench: Bench
    folder: Path
    sessions: list[RemoteSession] = field(default_factory=list)

    def __post_init__(self) -> None:
        another_each_time = "/proc/sys/kernel/random/uuid"
        fsck = Tool("head", "coreutils", ["--bytes=4096", another_each_time])
        self.bench.profile = replace(self.bench.profile, fsck=fsck)
        self.bench.run(Kernel(), "prefix")
        self.recording = self.bench.recording("prefix")
        self.memo = OutcomeMemo(self.recording, sample_rate=0.0, mismatch="", on_mismatch=nothing)
        self.attempts = RemoteAttempts(self.recording, self.memo)
        self.shared = SharedMessages()
        self.attempts.share(self.shared)

    def another_case(self, mode: str = "") -> None:
        """From now on; `mode`: of another one."""
        profile = replace(self.bench.profile, mode=mode or self.bench.profile.mode)
        self.recording = replace(self.recording, profile=profile)
        self.attempts = RemoteAttempts(self.recording, self.memo)
        self.attempts.share(self.shared)

    def said(self, process: int) -> str:
        """What fsck says of the last state, in this process."""
        while len(self.sessions) <= process:
            folder = self.folder / f"{len(self.sessions)}"
            self.sessions.append(remote_session(Kernel(on_visit=nothing), folder))
        session, state = self.sessions[process], self.recording.end
        outcome = self.attempts.observe(session, state, None, threading.Event()).outcome
        assert isinstance(outcome, Outcome)
        assert outcome.fsck is not None
        return outcome.fsck.output


@pytest.fixture
def fscks(bench: Bench, tmp_path: Path) -> Iterator[Fscks]:
    them = Fscks(bench, tmp_path)
    yield them
    for session in them.sessions:
        session.close()


@pytest.mark.parametrize("recalls", [True, False])
def test_a_process_recalls_fsck_only_while_the_run_does(fscks: Fscks, recalls: bool) -> None:
    """After a mismatch that another worker found, and without a memo, it would go on to recall."""
    first = fscks.said(0)
    if not recalls:
        fscks.memo.turn_off()
    assert (fscks.said(0) == first) is recalls


def test_an_answer_of_one_process_is_recalled_in_another(fscks: Fscks) -> None:
    """Each of 64 would run fsck on what the others have checked."""
    first = fscks.said(0)
    assert fscks.said(1) == first


@pytest.mark.parametrize("process", [0, 1])
def test_an_answer_of_one_case_is_recalled_in_another(fscks: Fscks, process: int) -> None:
    """Of 1,517 runs of fsck in 207 cases, 907 had the answer of another one."""
    first = fscks.said(0)
    fscks.another_case()
    assert fscks.said(process) == first


def test_an_answer_of_one_mode_is_recalled_in_no_other(fscks: Fscks) -> None:
    first = fscks.said(0)
    fscks.another_case("other")
    assert fscks.said(0) != first


def test_answers_are_shared_no_more_once_one_was_not_repeated(bench: Bench) -> None:
    """What does not depend on its blocks alone says nothing of another case."""
    bench.run(Kernel(), "prefix")
    recording, shared = bench.recording("prefix"), SharedMessages()
    memo = OutcomeMemo(recording, sample_rate=0.0, mismatch="", on_mismatch=nothing)
    attempts = RemoteAttempts(recording, memo)
    attempts.share(shared)
    before = shared.of(recording)
    assert shared.of(recording) is before
    told = Message([Observed(SEEN, True, False, b"", b"")])
    attempts.observe(cast(Any, told), recording.end, None, threading.Event())
    later = [shared.of(recording) for _ in range(3)]
    assert len({notes.key for notes in (before, *later)}) == 4


def test_what_workers_noted_begins_anew_when_it_is_much(bench: Bench) -> None:
    """The notes of a long campaign would fill the memory of each of its workers."""
    bench.run(Kernel(), "prefix")
    shared, recording = SharedMessages(), bench.recording("prefix")
    notes = shared.of(recording)
    for _ in range(MESSAGES_MAX):
        assert shared.of(recording) is notes
        notes.add(None, b"note")
    assert shared.of(recording).key != notes.key


def test_a_process_boots_nothing_once_no_guest_boots(bench: Bench, tmp_path: Path) -> None:
    """Each of 64 would wait for guests that never come up."""
    bench.run(Kernel(), "prefix")
    recording = bench.recording("prefix")
    memo = OutcomeMemo(recording, sample_rate=0.0, mismatch="", on_mismatch=nothing)
    session = remote_session(Kernel(on_visit=functools.partial(visited, tmp_path)), tmp_path)
    session._spec.boots.give_up(NeverBoots("3 guests did not come up"))
    try:
        seen = RemoteAttempts(recording, memo).observe(session, recording.end, None, threading.Event())
    finally:
        session.close()
    assert seen.outcome == Unobserved("3 guests did not come up")
    assert not processes(tmp_path)


def test_what_a_process_counts_of_boots_the_run_knows(bench: Bench, tmp_path: Path) -> None:
    """A kernel that never boots was tried for each case."""
    bench.run(Kernel(), "prefix")
    session = remote_session(Kernel(comes_up=False), tmp_path)
    for _ in range(BOOTS_IN_A_ROW):
        session.refuse_if_given_up()
        with pytest.raises((GuestLost, NeverBoots)):
            session.boot(bench.recording("prefix").target)
    with pytest.raises(NeverBoots):
        session.refuse_if_given_up()
    session.close()


def visited(folder: Path, _: str) -> None:
    note(folder)


def test_nobody_tries_again_once_the_run_is_stopped(bench: Bench) -> None:
    bench.run(Kernel(), "prefix")
    recording, stop = bench.recording("prefix"), threading.Event()
    memo = OutcomeMemo(recording, sample_rate=0.0, mismatch="", on_mismatch=lambda _: None)
    stop.set()
    seen = RemoteAttempts(recording, memo).observe(cast(Any, Message([])), recording.end, None, stop)
    assert seen.outcome == Unobserved("stopped")


class Blocks:
    """A disk all of whose blocks are equal."""

    def block_hashes(self, blocks: Sequence[int]) -> list[bytes]:
        return [b"h" for _ in blocks]


def test_an_answer_of_one_worker_is_recalled_by_another(bench: Bench) -> None:
    """Each of 64 workers would run fsck on what the others have checked."""
    bench.run(Kernel(), "prefix")
    recording, disk = bench.recording("prefix"), cast(Any, Blocks())
    memo = OutcomeMemo(recording, sample_rate=0.0, mismatch="", on_mismatch=lambda _: None)
    one, other = Attempts(recording, memo), Attempts(recording, memo)
    answer = FsckReads(FsckResult(FsckClass.CLEAN, 0, ""), (3, 1))
    one.answers.fsck.remember(Hashes(disk), answer)
    other.answers.receive(one.answers.message())
    assert other.answers.fsck.recall(Hashes(disk)) == answer
    assert (one.answers.message(), other.answers.message()) == (b"", b""), "what was told is told once"


# --- messages ---------------------------------------------------------------------------------


def test_what_messages_share_is_shared_where_they_arrive() -> None:
    """Trees of thousands of names, most of whose entries stay as they are, would fill the run's memory."""
    ours, theirs = socket.socketpair()
    sender, receiver = Stream(ours), Stream(theirs)
    entry = ("an entry", 1)
    received = []
    for anew in (False, False, True):
        sender.send([entry], anew=anew)
        sender.beat()
        received.append(receiver.receive())
    first, second, third = received
    assert first == second == third == [entry]
    assert first[0] is second[0]
    assert third[0] is not first[0]
    sender.close()
    with pytest.raises(remote.Gone):
        receiver.receive()
    receiver.close()


def test_what_was_sent_can_be_forgotten_once_much_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends kept every message for as long as a worker lived: memory grew, and no test saw it."""
    monkeypatch.setattr(remote, "SHARED_BYTES", 100)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, receiver = Stream(ours), Stream(theirs)
        sent = {"x" * 200}
        held = [weakref.ref(sent)]
        sender.send(sent)
        held.append(weakref.ref(cast("set[str]", receiver.receive())))
        del sent
        assert all(ref() is not None for ref in held), "the next message may name it"
        sender.send("more")
        assert receiver.receive() == "more"
        assert [ref() for ref in held] == [None, None]


# --- boots ------------------------------------------------------------------------------------


def test_what_processes_count_of_boots_is_counted_together() -> None:
    """Each would try a kernel that never boots BOOTS_IN_A_ROW times."""
    import pickle  # noqa: PLC0415 - of this test alone

    boots = Boots()
    there = [pickle.loads(pickle.dumps(boots)) for _ in range(BOOTS_IN_A_ROW)]  # noqa: S301 - just made
    for one in there:
        one.failed("toy", GuestLost("no greeting"))
        for told in one.messages():
            boots.receive(told)
    assert isinstance(boots.given_up, NeverBoots)
    with pytest.raises(NeverBoots):
        boots.refuse_if_given_up()
    assert all(one.messages() == () for one in there)
    other = Boots()
    one = pickle.loads(pickle.dumps(other))  # noqa: S301 - just made
    one.differs(VersionsDiffer("protocol 0"))
    for told in one.messages():
        other.receive(told)
    assert isinstance(other.given_up, VersionsDiffer)
