"""The process of a worker: see `harness.cases.remote` for the run's side."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NoReturn

from harness.cases.answers import Answers, Key
from harness.cases.attempts import Attempts, reason_of
from harness.cases.outcome_memo import OutcomeMemo
from harness.cases.recording import Recording
from harness.cases.remote import (
    BEAT_S,
    Advanced,
    Answer,
    AskChecks,
    Attempt,
    BootGuest,
    Checked,
    Gone,
    Observed,
    Raised,
    Record,
    Recorded,
    Request,
    RunCheck,
    Sessions,
    Stream,
)
from harness.errors import PowercutError
from harness.guests.session import RunCheck as Run
from harness.guests.session import Session
from harness.model import CheckResult, Tree

KEYS_MAX = 8
"""Kinds of file systems whose answers a process keeps."""


def serve(descriptor: int) -> None:
    """Answer requests until the run has gone, or wants no more of them."""
    stream = Stream(socket.socket(fileno=descriptor))
    make = stream.receive()
    assert callable(make)  # noqa: S101 - the run's first message; tells mypy
    _Served(stream, make).work()


class _Served:
    """`make`: makes the sessions."""

    def __init__(self, stream: Stream, make: Callable[[], Sessions]) -> None:
        self._stream = stream
        self._sessions = make()
        self._stop = threading.Event()
        self._recording: Recording | None = None
        self._memo: OutcomeMemo | None = None
        self._attempts: Attempts | None = None
        self._answers: OrderedDict[Key, Answers] = OrderedDict()
        for helper in (self._beat, self._await_stop):
            threading.Thread(target=helper, daemon=True).start()

    def work(self) -> None:
        try:
            while True:
                request = self._stream.receive()
                assert isinstance(request, Request)  # noqa: S101 - what the run sends; tells mypy
                recording, value = self._recording, self._value(request)
                boots = self._sessions[request.session].boots.messages()
                self._stream.send(Answer(value, boots), anew=recording is not self._recording)
        except Gone:
            pass
        finally:
            for session in self._sessions.values():
                session.close()

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT_S)
            try:
                self._stream.beat()
            except Gone:
                return

    def _await_stop(self) -> None:
        """The run closes this process's standard input; or it was killed, which ends the process."""
        while os.read(0, 1):
            pass
        self._stop.set()
        for session in self._sessions.values():
            session.stop()
        self._stream.hear_no_more()

    def _value(self, request: Request) -> Recorded | Observed | Raised | None:
        session = self._sessions[request.session]
        if request.given_up is not None:
            session.boots.give_up(request.given_up)
        try:
            match request.what:
                case Record(target, operations, schedule, first):
                    events = session.record(
                        target, operations, lambda n: self._stream.send(Advanced(n)), schedule, first
                    )
                    return Recorded(events, session.log, session.directory, session.said)
                case BootGuest(target):
                    session.boot(target)
                    return None
                case Attempt():
                    return self._observed(session, request.what)
        except PowercutError as e:
            return Raised(e)
        except Gone:
            raise
        except Exception as e:  # it costs this request and no other
            session.close()
            return Raised(PowercutError(reason_of(e)))

    def _observed(self, session: Session, asked: Attempt) -> Observed:
        if self._attempts is None or self._memo is None or self._recording is not asked.recording:
            self._recording = recording = asked.recording
            self._memo = OutcomeMemo(
                recording, sample_rate=asked.sample_rate, mismatch="", on_mismatch=lambda _: None
            )
            answers = self._answers_of(asked.key)
            self._attempts = Attempts(
                recording, self._memo, asked.again, faulty_disk=asked.faulty_disk, answers=answers,
                machine=self._sessions["judge"].machine_name,
            )  # fmt: skip
        memo, attempts = self._memo, self._attempts
        if not asked.recalls:
            memo.turn_off()
        for recovery in asked.recoveries:
            asked.recording.recoveries[recovery.of] = recovery
        for note in asked.messages:
            attempts.receive(note)
        for note in asked.answers:
            attempts.answers.receive(note)
        visited = attempts.observe(session, asked.state, self._ask if asked.checks else None, self._stop)
        return Observed(
            visited, bool(memo.mismatch), memo.recalls, attempts.message(), attempts.answers.message()
        )

    def _answers_of(self, key: Key) -> Answers:
        """Of all recordings with this key; those of keys that were not asked for lately are forgotten."""
        answers = self._answers.setdefault(key, Answers())
        self._answers.move_to_end(key)
        while len(self._answers) > KEYS_MAX:
            self._answers.popitem(last=False)
        return answers

    def _ask(self, tree: Tree, run: Run) -> tuple[CheckResult, ...]:
        """Have the run ask its checks; it may have some of them run in the guest."""
        self._stream.send(AskChecks(tree))
        while True:
            match self._stream.receive():
                case RunCheck(check, acknowledged):
                    try:
                        self._stream.send(run(check, acknowledged))
                    except PowercutError as e:
                        self._stream.send(Raised(e))
                case Checked(results):
                    return results
                case Raised(error):
                    raise error
                case other:
                    _refuse(other)


def _refuse(message: object) -> NoReturn:
    raise PowercutError(f"a worker takes no {type(message).__name__} now")
