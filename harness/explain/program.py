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
_SHRINKS = ("ftruncate", "truncate", "unlink", "unlinkat")
_RENAMES = ("rename", "renameat", "renameat2")
_ACK = "app "


@dataclass(frozen=True, slots=True)
class Replacement:
    """What an application had acknowledged was taken away by `removal`: a file was cut, removed, or replaced
    by a rename. `unsynced`: calls that made what is there instead, which no fsync or the like had covered
    when the power failed. `paths`: of the files with those contents; empty if they only changed names.
    `elsewhere`: each fsync of another file.
    """

    removal: ProgramCall
    unsynced: tuple[ProgramCall, ...]
    paths: frozenset[str] = frozenset()
    elsewhere: tuple[ProgramCall, ...] = ()


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
    replacement: Replacement | None = None
    known: bool = False

    @property
    def unsynced_data(self) -> bool:
        """Whether contents or sizes are among what was not synced, beside names."""
        return any(map(changes_contents, self.unsynced))


def program_of(
    name: str, noted: ProgramCalls, times: Times, cut: int, *, in_order: bool = True
) -> Program | None:
    """The application `name` when the power fails just before the event `cut`; None if it had acknowledged
    nothing. `in_order`: names become durable in their order, so that each fsync covers all names before it;
    else it covers one inode and the name used, or the names in a directory.
    """
    ack = last_ack(times, cut)
    if ack is None:
        return None
    before = [call for call in noted.calls if call.began < ack.at]
    known = noted.more == 0 and not any(_word(call) in _UNREAD for call in noted.calls)
    if not known:
        return Program(name, ack.text.removeprefix(_ACK), ack.at)
    files = _Files(noted.calls, in_order)
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
        replacement=_replacement([c for c in noted.calls if c.began < cut], files, ack.at, cut),
        known=True,
    )


def _replacement(calls: Sequence[ProgramCall], files: _Files, ack: int, cut: int) -> Replacement | None:
    """The first call that took away what had been acknowledged, with something that replaces it and is not
    durable when the power fails: contents of another file or, where these do not become durable in their
    order, names that were changed since what is gone was changed last.
    """
    done = [call for call in calls if _syncs(call) and _is_done(call, cut)]
    for removal in calls:
        victim = _taken_away(removal)
        own = [c for c in calls if c.began < removal.began and _is_of(c, victim) and _alters(c, files)]
        if not victim or not any(_was_kept(c, done, ack, files) for c in own):
            continue
        made = [
            c
            for c in calls
            if own[-1].began < c.began < removal.began
            and not _is_of(c, victim)
            and _changes(c, files)
            and not any(_covers(s, c, files) for s in done)
        ]
        contents = [c for c in made if changes_contents(c)]
        renames = [c for c in made if _word(c) in _PAIRS and not files.in_order]
        if contents or renames:
            paths = {name for c in contents for name in files.called(_paths(c)[0])} - {victim}
            elsewhere = [s for s in done if _word(s) in _FILE and _paths(s)[0] not in paths]
            return Replacement(removal, tuple(contents or renames), frozenset(paths), tuple(elsewhere))
    return None


def _was_kept(call: ProgramCall, done: Sequence[ProgramCall], ack: int, files: _Files) -> bool:
    """Whether what a call changed was durable when the program acknowledged something."""
    by_then = (s for s in done if s.returned is not None and s.returned < ack)
    return call.began < ack and (not _changes(call, files) or any(_covers(s, call, files) for s in by_then))


def _taken_away(call: ProgramCall) -> str:
    """The path whose contents or name a call took away; empty if it did nothing of that kind."""
    word, (path, rest) = _word(call), _paths(call)
    if call.returned is None or call.result < 0:
        return ""
    if word in _RENAMES and "exchange" not in call.text:
        return rest
    return path if word in _SHRINKS or (word in _OPENS and "truncate" in rest) else ""


def _is_of(call: ProgramCall, path: str) -> bool:
    """Whether a call was made to that path, or gave a file that name."""
    first, rest = _paths(call)
    return path in ((first, rest) if _word(call) in _PAIRS else (first,))


def last_ack(times: Times, cut: int) -> TimedMark | None:
    """The last acknowledgement of an application before an event."""
    return next((m for m in reversed(times.marks) if m.text.startswith(_ACK) and m.at < cut), None)


class _Files:
    """Which paths may be of one file: a call names it as it was called then. `durable`: those that were
    opened so that each write is durable when it returns. `first`: when a path was first named: what an open
    finds there later it does not create. `in_order`: see `program_of`.
    """

    def __init__(self, calls: Sequence[ProgramCall], in_order: bool) -> None:
        self.in_order = in_order
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
    """Whether a sync, begun after a call had returned, may make it durable: of contents, one of that file; of
    a name, any where names become durable in their order, else one of that file or of its directory.
    """
    if call.returned is None or sync.began < call.returned:
        return False
    if _word(sync) in _ALL:
        return True
    if not changes_contents(call) and files.in_order:
        return True
    first, rest = _paths(call)
    named = [first, rest] if _word(call) in _PAIRS else [first]
    covered = set[str]().union(*map(files.called, named))
    if not changes_contents(call):
        covered.update(directory_of(name) for name in named)
    return not files.called(_paths(sync)[0]).isdisjoint(covered)


def directory_of(path: str) -> str:
    """The directory of a name, as a call names it."""
    return path.rpartition("/")[0] or "."


def changes_names(call: ProgramCall) -> bool:
    """Whether a call changed a name that was there or is now, and no contents."""
    return _word(call) in _NAMES


def renamed_to(call: ProgramCall) -> str:
    """The name that a call gave; empty for one that gave none."""
    return _paths(call)[1] if _word(call) in _PAIRS else ""


def shown_calls(
    program: Program, calls: Sequence[ProgramCall], cut: int
) -> Iterator[tuple[ProgramCall, bool]]:
    """The calls for a ladder: those that change or sync something, up to the first sync after the power has
    failed. With whether it is one that matters.
    """
    matter = {*program.unsynced[-3:], *([program.pending] if program.pending else [])}
    if (gone := program.replacement) is not None:
        matter = {*gone.unsynced[-3:], gone.removal}
    late = next((c.began for c in calls if _syncs(c) and c.began >= cut), cut)
    for call in calls:
        if call.began <= late and (_syncs(call) or _word(call) in (*_DATA, *_SIZE, *_NAMES, *_UNREAD)):
            yield call, call in matter
