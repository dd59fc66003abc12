"""Shards: what a run with many workers has on its own host, each a process with an interpreter, a site and
workers of its own.

Exploration, memo, oracles and store take a millisecond or two of an interpreter for each visit, and one
interpreter uses one processor. From some number of workers on (`PER_SHARD`) they wait for it. A run with more
has several shards, and `harness.cluster.dispatch` gives them cases as it gives them to a cluster.
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import functools
import itertools
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

import harness
from harness.cases.pool import MakePool, pool_of
from harness.cluster import blobs, site
from harness.cluster.messages import ClusterWorker, Done, HostFull, Job, Note
from harness.errors import PowercutError
from harness.host.files import is_full
from harness.host.processes import die_with_parent, processors_for

T = TypeVar("T")
PER_SHARD = 16
"""Workers that one interpreter serves: a visit takes some 25 ms of a guest, and 1 to 3 ms of the interpreter.
Not fewer, since in a shard no case takes a content from another one (`harness.cases.contents`).
"""
ANSWER_S = 3600.0
_SAID = "shard.txt"
END_S = 20.0
"""How long shards may take to end their guests."""


def shard_sizes(jobs: int, cases: int) -> list[int]:
    """How many workers each shard of a run has; one shard where several would not be faster. A case belongs
    to one shard, and a shard needs a processor.
    """
    count = max(1, min(-(-jobs // PER_SHARD), cases, len(os.sched_getaffinity(0))))
    return [jobs // count + (number < jobs % count) for number in range(count)]


class ShardLost(PowercutError):
    """The process of a shard has ended."""


@dataclass(frozen=True, slots=True)
class _Question:
    number: int
    ask: Callable[..., object]
    given: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    """`error`: what was raised in place of an answer."""

    number: int
    value: object = None
    error: Exception | None = None


class Shards:
    """The shards as `harness.cluster.dispatch` sees them: see `DaskPool`. To be made, asked for `workers` and
    closed by one thread, with which they end.
    """

    def __init__(self, run: str, sizes: Sequence[int], scratch: Path, make_pool: MakePool = pool_of) -> None:
        """`sizes`: the workers of each. `make_pool`: makes these; it is pickled."""
        self._run, self._scratch, self._make_pool = run, scratch, make_pool
        self._names = itertools.count(1)
        self._last_words: dict[str, str] = {}  # of shards that were lost, by name
        self._on_note: Callable[[Note], None] = lambda note: None
        self._shards: dict[str, _Shard] = {}
        processors = iter(processors_for(sum(sizes)))  # as one process would share them out among all workers
        for size in sizes:
            self._begin([*itertools.islice(processors, size)])

    def _begin(self, processors: Sequence[int | None]) -> None:
        """`processors`: that of each worker."""
        name = f"shard-{next(self._names)}"
        known = ClusterWorker(name, name, len(processors))
        self._shards[name] = _Shard(known, self._scratch / name, self._make_pool, processors, self._told)

    def _told(self, note: Note) -> None:
        self._on_note(note)

    @property
    def description(self) -> str:
        """For people."""
        sizes = [shard.known.slots for shard in self._shards.values()]
        return f"{sum(sizes)} at once in {len(sizes)} processes"

    def workers(self) -> dict[str, ClusterWorker]:
        """The shards that are there, by name. Another one comes for one that was lost, unless it had never
        answered: the next would end as well.
        """
        for name, shard in list(self._shards.items()):
            if shard.is_lost and shard.has_answered:
                del self._shards[name]
                self._last_words[name] = shard.end()
                self._begin(shard.processors)
        return {name: shard.known for name, shard in self._shards.items()}

    def last_words(self, address: str) -> str:
        """What a shard that was lost printed last; empty for nothing."""
        return self._last_words.get(address, "")

    def listen(self, on_note: Callable[[Note], None]) -> None:
        """Have what shards tell while they work passed on, in other threads."""
        self._on_note = on_note

    def ask(self, address: str, question: Callable[..., T], *given: object) -> T:
        """The answer of a shard. Raises what it raises, ShardLost, and CancelledError after `forget`."""
        return cast(T, self._shards[address].ask(question, *given).result(timeout=ANSWER_S))

    def give(self, address: str, sha256: str, blob: Path) -> None:
        """Have a shard keep a blob, which it found nowhere: the file was changed. Raises PowercutError."""
        self.ask(address, blobs.keep, sha256, blob.read_bytes())

    def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
        """Ask for `site.work`. `on_end` is told what came of it, in another thread, unless the shard is lost
        or forgotten.
        """

        def ended(future: cf.Future[Any]) -> None:
            if not future.cancelled() and not isinstance(error := future.exception(), ShardLost):
                on_end(error or future.result())

        self._shards[address].ask(site.work, job).add_done_callback(ended)

    def forget(self, address: str) -> None:
        """Do without what a shard was asked for."""
        if address in self._shards:
            self._shards[address].forget()

    def stop(self, address: str) -> None:
        """Have the shard answer with what it knows; does not wait."""
        if address in self._shards:
            self._shards[address].ask(site.stop, self._run)

    def dismiss(self, address: str) -> None:
        """Have the shard end all it does; does not wait."""
        if address in self._shards:
            self._shards[address].ask(site.dismiss, self._run)

    def close(self) -> None:
        """End all shards, with their guests."""
        for shard in self._shards.values():
            shard.hear_no_more()
        for shard in self._shards.values():
            shard.end()


class _Shard:
    """The process of a shard. `known`: as the dispatch knows it. `processors`: that of each worker."""

    def __init__(
        self,
        known: ClusterWorker,
        folder: Path,
        make_pool: MakePool,
        processors: Sequence[int | None],
        on_note: Callable[[Note], None],
    ) -> None:
        self.known, self.processors, self._folder = known, processors, folder
        self.has_answered = self.is_lost = False
        self._on_note = on_note
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, cf.Future[Any]] = {}
        folder.mkdir(parents=True)
        ours, theirs = socket.socketpair()
        with theirs, (folder / _SAID).open("wb") as said:
            self._process = subprocess.Popen(
                # -P: no module is taken from the current folder, which may be one from elsewhere.
                die_with_parent([sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())]),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the run, which closes it
            )
        self._socket = ours
        self._channel = Connection(os.dup(ours.fileno()))
        self._channel.send((functools.partial(make_pool, processors=processors), folder))
        threading.Thread(target=self._receive, daemon=True).start()

    def ask(self, question: Callable[..., object], *given: object) -> cf.Future[Any]:
        """The answer fails with ShardLost if the process ends first."""
        number, future = next(self._numbers), cf.Future[Any]()
        with self._lock:
            self._waiting[number] = future
            try:
                if self.is_lost:
                    raise BrokenPipeError
                self._channel.send(_Question(number, question, given))
            except OSError:
                del self._waiting[number]
                future.set_exception(self._lost())
        return future

    def forget(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.cancel()

    def _receive(self) -> None:
        """In a thread of its own, until the process has ended."""
        try:
            with contextlib.suppress(Exception):  # its end, or what nobody can read: it is of no more use
                while True:
                    match self._channel.recv():
                        case Note() as note:
                            self._on_note(note)
                        case _Answer() as answer:
                            self.has_answered = True
                            self._take(answer)
        finally:
            with self._lock:
                self.is_lost = True
                waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                future.set_exception(self._lost())

    def _lost(self) -> ShardLost:
        said = self._last_words()
        return ShardLost(f"{self.known.name} has ended" + (f": {said}" if said else ""))

    def _last_words(self) -> str:
        """The last line that the process printed; empty for none."""
        said = ""
        with contextlib.suppress(OSError):  # somebody deleted the run
            said = (self._folder / _SAID).read_text(errors="replace")
        return next((line.strip() for line in reversed(said.split("\n")) if line.strip()), "")

    def _take(self, answer: _Answer) -> None:
        with self._lock:
            future = self._waiting.pop(answer.number, None)
        if future is None:
            return
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)

    def hear_no_more(self) -> None:
        """The process ends its guests, then itself."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> str:
        """Wait until the process has ended; kill it if it takes long: its guests end with it. Its folder goes
        too: one that was killed left images there. Returns the last line that it printed.
        """
        self.hear_no_more()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._socket.close()
        said = self._last_words()
        shutil.rmtree(self._folder, ignore_errors=True)
        return said


_PROGRAM = (
    f"import sys; sys.path.insert(0, {os.fspath(Path(harness.__file__).parent.parent)!r}); "
    "from harness.cluster.shards import serve; serve(int(sys.argv[1]))"
)


# --- in the shard's process ------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Answer questions, each in a thread of its own, until the run closes its end, or has gone."""
    channel, sending = Connection(descriptor), threading.Lock()

    def tell(message: Note | _Answer) -> None:
        with sending, contextlib.suppress(OSError):  # the run has gone: it needs no answer
            channel.send(message)

    def answer(asked: _Question) -> None:
        given = (*asked.given, tell) if asked.ask is site.work else asked.given
        try:
            told = _Answer(asked.number, asked.ask(*given))
        except Exception as e:  # the run says what it means for the case
            told = _Answer(asked.number, error=_sendable(e))
        try:
            tell(told)
        except Exception as e:  # it cannot be pickled: who asked would wait for it
            tell(_Answer(asked.number, error=_sendable(e)))

    site.SITE.make_pool, site.SITE.folder = channel.recv()
    with contextlib.suppress(EOFError, OSError):
        while True:
            threading.Thread(target=answer, args=[channel.recv()], daemon=True).start()
    site.SITE.close()


def _sendable(error: Exception) -> PowercutError:
    """What was raised, as an error that the run can read: a foreign one may not come through a pickle."""
    line = error.line if isinstance(error, PowercutError) else f"{type(error).__name__}: {error}"
    if is_full(error):
        return HostFull(line)
    return error if isinstance(error, PowercutError) else PowercutError(line)
