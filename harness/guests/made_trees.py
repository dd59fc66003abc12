"""A guest that notes a program's calls, and then runs a check on trees that are made of what these wrote.

Each tree is made from the one before by what differs, and one request has many trees. Where this host allows
it, the check runs in namespaces of the host instead of the guest. Where the guest is lost, so are the bytes
that were noted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.errors import GuestError, PowercutError
from harness.guests import wire
from harness.guests.contained import contained
from harness.guests.guest import Guest
from harness.guests.script import RUN_TIMEOUT_S
from harness.guests.session import ACKNOWLEDGED, PROGRAM_TIMEOUT_S, Session, Target
from harness.model import ChangeKind, Check, CheckResult
from harness.rules.answers import Tried
from harness.rules.calls import Notes, UnreadableNotes, notes_of
from harness.rules.trees import Entry, Files, wire_pieces

_NOTED = "/tmp/powercut-noted-bytes"  # noqa: S108 - in a guest: `BYTES` of vms/agent/src/whole.rs
NOTES_MAX_BYTES = wire.LIMITS["FRAME_BYTES"]
"""The most that a guest notes of a program's calls: they come in one frame."""
_MARGIN_S = 60.0
_PIECES_MAX = 20_000
"""Changes, pieces of files and extended attributes in one request; a tree that has more goes alone."""
_TEXT_BYTES_MAX = 8 << 20
"""Paths and values of extended attributes in one request, which is one frame; the same."""
_TREE_BYTES_MAX = _TEXT_BYTES_MAX + (4 << 20)
"""The most of these that one tree may have: the frame has room for its pieces beside them."""


@dataclass(slots=True)
class MadeTrees(contextlib.AbstractContextManager["MadeTrees"]):
    """See the module. `session` is shown `target`, of which nothing is read. `apart`: whether the check may
    run outside of the guest. `raw`: what the guest noted, as it sent it.
    """

    session: Session
    target: Target
    apart: bool = True
    raw: bytes = b""
    _there: Files = field(default_factory=dict)
    _apart: Guest | None = None

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._apart:
            self._apart.kill()
        self._apart = None

    def note(self, argv: Sequence[str], deadline: float | None = None) -> Notes:
        """Run a program in an empty directory, until the deadline by the monotonic clock if there is one.
        Raises GuestError for notes that cannot be read, GuestLost.
        """
        self.session.boot(self.target)
        left_s = RUN_TIMEOUT_S if deadline is None else max(1, int(deadline - time.monotonic()))
        timeout_s = min(RUN_TIMEOUT_S, left_s)
        request = wire.NoteCalls(argv=list(argv), deadline_s=timeout_s)
        done = self.session.guest().request(request, wire.ProgramDone, timeout_s + _MARGIN_S)
        self.raw = done.output
        return self._begin()

    def take(self, raw: bytes) -> Notes:
        """Have what a guest noted before, in place of `note`. Raises as that."""
        self.session.boot(self.target)
        self.raw = raw
        notes = self._begin()
        if self._apart is None:
            put = wire.PutFile(path=_NOTED, mode=0o600, data=notes.data)
            self.session.guest().request(put, wire.Done, _MARGIN_S)
        return notes

    def note_again(self, argv: Sequence[str], deadline: float | None = None) -> Notes | None:
        """The notes of another run of the program; None if it was not noted. Trees stay made of the earlier
        notes. Raises GuestLost.
        """
        before = self.raw
        try:
            return self.note(argv, deadline)
        except PowercutError:
            return None
        finally:
            self.take(before)

    def _begin(self) -> Notes:
        self._there = {}
        self._end()
        try:
            notes = notes_of(self.raw)
        except UnreadableNotes as e:
            raise GuestError(str(e)) from e
        if self.apart:
            self._apart = contained(self.session.initramfs, notes, self.session.directory / "checks")
        return notes

    def check(self, trees: Sequence[tuple[Files, int]], check: Check, acks: Sequence[str]) -> list[Tried]:
        """What an application's check says of each tree, given so many of the acknowledgements. Raises
        GuestLost.
        """
        found: list[Tried] = []
        while len(found) < len(trees):
            request = list(self._some(trees[len(found) :]))
            found += self._try(request, check, acks)
        return found

    def _some(self, trees: Sequence[tuple[Files, int]]) -> Iterator[wire.TreeToTry]:
        """As many trees as fit a request, at least one. Raises GuestError for one that fits none."""
        pieces, held = 0, 0
        for n, (files, count) in enumerate(trees):
            changes = list(differences(self._there, files))
            pieces += sum(1 + len(change.pieces) + len(change.xattrs) for change in changes)
            held += sum(map(_text_bytes, changes))
            if n and (pieces > _PIECES_MAX or held > _TEXT_BYTES_MAX):
                return
            if held > _TREE_BYTES_MAX:
                limit = f"{_TREE_BYTES_MAX >> 20} MiB"
                raise GuestError(
                    f"a tree differs from the one before in {held:,} bytes of paths and extended attributes; "
                    f"a request has room for {limit} of them"
                )
            self._there = files
            yield wire.TreeToTry(changes, count)

    def _try(self, trees: list[wire.TreeToTry], check: Check, acks: Sequence[str]) -> Iterator[Tried]:
        request = wire.TryTrees(
            trees,
            ACKNOWLEDGED,
            list(acks),
            [*check.ahead, check.argv[0], ACKNOWLEDGED, *check.argv[1:]],
            PROGRAM_TIMEOUT_S,
        )
        timeout_s = PROGRAM_TIMEOUT_S * len(trees) + _MARGIN_S
        guest = self._apart or self.session.guest()
        done = guest.request(request, wire.TreesTried, timeout_s)
        if len(done.tried) != len(trees):
            raise GuestError(f"{len(done.tried)} answers about {len(trees)} trees")
        for tree, tried in zip(trees, done.tried, strict=True):
            output = tried.output.decode(errors="replace")
            result = CheckResult(check.operation, tried.exit_code, output, tree.acknowledgements)
            opened = None if tried.opened is None else frozenset(map(os.fsdecode, tried.opened))
            yield Tried(result, opened)


def differences(there: Files, wanted: Files) -> Iterator[wire.TreeChange]:
    """The changes that make one tree of another: removals first, the deepest of them first; then new entries,
    directories before their contents and files before their other names.
    """
    made_anew = {p for p, e in wanted.items() if p in there and there[p].kind != e.kind}
    for path in sorted((p for p in there if p not in wanted or p in made_anew), reverse=True):
        yield wire.TreeChange(path=os.fsencode(path), kind=ChangeKind.REMOVE)
    changed = {p for p, e in wanted.items() if there.get(p) is None or there[p].essence != e.essence}
    changed |= {p for p in wanted if any(p.startswith(f"{top}/") for top in made_anew)}
    changed |= {p for p, e in wanted.items() if e.first and e.first in changed}
    for path in sorted(changed, key=lambda p: (wanted[p].kind == "link", p)):
        yield _made(path, wanted[path])


def _text_bytes(change: wire.TreeChange) -> int:
    values = sum(len(xattr.name) + len(xattr.value) for xattr in change.xattrs)
    return len(change.path) + len(change.target) + values


def _made(path: str, entry: Entry) -> wire.TreeChange:
    mode, uid, gid = entry.owner
    return wire.TreeChange(
        path=os.fsencode(path),
        kind=ChangeKind(entry.kind),
        mode=mode,
        uid=uid,
        gid=gid,
        size=entry.size,
        pieces=wire_pieces(entry.pieces),
        target=os.fsencode(entry.first or entry.target),
        xattrs=[] if entry.first else [wire.Xattr(name, value) for name, value in entry.xattrs],
    )
