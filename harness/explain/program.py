"""What an application had asked of the kernel when it acknowledged: from its system calls. Pure.

It says of a program that it acknowledged too early only where its calls show that. What they cannot show, it
leaves open: requests of io_submit and io_uring_enter, stores into mappings, calls that were not noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.writelog.calls import ProgramCall, ProgramCalls
from harness.writelog.times import TimedMark, Times

_CALL = re.compile(r"(\w+)(?: exchange)?\((.*)\)", re.DOTALL)
_FILE = ("fsync", "fdatasync", "msync")
_ALL = ("sync", "syncfs")
_DATA = ("write", "pwrite", "writev", "pwritev", "sendfile", "copy_file_range")
_SIZE = ("ftruncate", "truncate", "fallocate")
_PAIRS = ("rename", "renameat", "renameat2", "link", "linkat")
_NAMES = (*_PAIRS, "creat", "symlink", "symlinkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir")
_OPENS = ("open", "openat", "openat2")
_UNREAD = ("io_submit", "io_uring_enter")
_ACK = "app "


@dataclass(frozen=True, slots=True)
class Program:
    """An application at the last acknowledgement before the power failed. `text`: what was acknowledged;
    `at`: the event. `unsynced`: its calls that changed something and that no fsync or the like, begun later,
    had covered when it acknowledged. `pending`: the first fsync or the like that had begun after these and
    had not returned. `synced`: such calls that had returned, each with something to make durable. `latest`:
    of `unsynced`, what was changed since the acknowledgement before. `kept`: what else was changed since, and
    had been made durable. `known`: whether its calls tell all that it asked for.
    """

    name: str
    text: str
    at: int
    unsynced: tuple[ProgramCall, ...] = ()
    pending: ProgramCall | None = None
    synced: tuple[ProgramCall, ...] = ()
    latest: tuple[ProgramCall, ...] = ()
    kept: tuple[ProgramCall, ...] = ()
    known: bool = False

    @property
    def unsynced_data(self) -> bool:
        """Whether contents or sizes are among what was not synced, beside names."""
        return any(map(changes_contents, self.unsynced))


def program_of(name: str, noted: ProgramCalls, times: Times, cut: int) -> Program | None:
    """The application `name` when the power fails just before the event `cut`; None if it had acknowledged
    nothing.
    """
    ack = last_ack(times, cut)
    if ack is None:
        return None
    before = [call for call in noted.calls if call.began < ack.at]
    known = noted.more == 0 and not any(_word(call) in _UNREAD for call in noted.calls)
    if not known:
        return Program(name, ack.text.removeprefix(_ACK), ack.at)
    files = _Files(noted.calls)
    changes = [call for call in before if _changes(call, files)]
    done = [call for call in before if _syncs(call) and _is_done(call, ack.at)]
    unsynced = [call for call in changes if not any(_covers(s, call, files) for s in done)]
    flying = [call for call in before if _syncs(call) and (call.returned is None or call.returned > ack.at)]
    pending = next((s for s in flying if any(_covers(s, call, files) for call in unsynced)), None)
    synced = [s for s in done if any(_covers(s, c, files) for c in changes)]
    earlier = last_ack(times, ack.at)
    since = [c for c in before if _alters(c, files) and (earlier is None or c.began > earlier.at)]
    return Program(
        name,
        ack.text.removeprefix(_ACK),
        ack.at,
        tuple(unsynced),
        pending,
        tuple(synced),
        latest=tuple(c for c in since if c in unsynced),
        kept=tuple(c for c in since if c not in unsynced),
        known=True,
    )


def last_ack(times: Times, cut: int) -> TimedMark | None:
    """The last acknowledgement of an application before an event."""
    return next((m for m in reversed(times.marks) if m.text.startswith(_ACK) and m.at < cut), None)


class _Files:
    """Which paths may be of one file: a call names it as it was called then. `durable`: those that were
    opened so that each write is durable when it returns. `first`: when a path was first named: what an open
    finds there later it does not create.
    """

    def __init__(self, calls: Sequence[ProgramCall]) -> None:
        self._same: dict[str, set[str]] = {}
        self.durable: set[str] = set()
        self.first: dict[str, int] = {}
        for call in calls:
            first, second = _paths(call)
            self.first.setdefault(first, call.began)
            if _word(call) in _PAIRS:
                both = self.called(first) | self.called(second)
                self._same |= dict.fromkeys(both, both)
            if _word(call) in _OPENS and "sync" in second:
                self.durable.add(first)

    def called(self, path: str) -> set[str]:
        return self._same.get(path, {path})


def _word(call: ProgramCall) -> str:
    found = _CALL.fullmatch(call.text)
    return found[1] if found else ""


def _paths(call: ProgramCall) -> tuple[str, str]:
    """The first two arguments; a path with a comma in it is cut off, and then covers nothing less."""
    found = _CALL.fullmatch(call.text)
    first, _, rest = (found[2] if found else "").partition(", ")
    return first, rest


def changes_contents(call: ProgramCall) -> bool:
    """Whether a call changed what is in a file, or its size."""
    return _word(call) in (*_DATA, *_SIZE)


def _changes(call: ProgramCall, files: _Files) -> bool:
    """Whether a call changed a file or a name, and is not durable by itself."""
    return _alters(call, files) and files.called(_paths(call)[0]).isdisjoint(files.durable)


def _alters(call: ProgramCall, files: _Files) -> bool:
    """Whether a call changed a file or a name."""
    word, (path, how) = _word(call), _paths(call)
    if call.returned is None or call.result < 0:
        return False
    if word in _OPENS:
        return "truncate" in how or ("create" in how and files.first[path] == call.began)
    return word in (*_DATA, *_SIZE, *_NAMES)


def _syncs(call: ProgramCall) -> bool:
    return _word(call) in (*_FILE, *_ALL)


def _is_done(call: ProgramCall, by: int) -> bool:
    """Whether a call had returned by then, without an error."""
    return call.returned is not None and call.returned < by and call.result >= 0


def _covers(sync: ProgramCall, call: ProgramCall, files: _Files) -> bool:
    """Whether a sync, begun after a call had returned, may make it durable: of a name, any sync may, since
    journals commit as a whole; of contents, one of that file.
    """
    if call.returned is None or sync.began < call.returned:
        return False
    if _word(sync) in _ALL or not changes_contents(call):
        return True
    return not files.called(_paths(sync)[0]).isdisjoint(files.called(_paths(call)[0]))


def shown_calls(
    program: Program, calls: Sequence[ProgramCall], cut: int
) -> Iterator[tuple[ProgramCall, bool]]:
    """The calls for a ladder: those that change or sync something, up to the first sync after the power has
    failed. With whether it is one that matters.
    """
    matter = {*program.unsynced[-3:], *([program.pending] if program.pending else [])}
    late = next((c.began for c in calls if _syncs(c) and c.began >= cut), cut)
    for call in calls:
        if call.began <= late and (_syncs(call) or _word(call) in (*_DATA, *_SIZE, *_NAMES, *_UNREAD)):
            yield call, call in matter
