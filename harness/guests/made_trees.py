"""A guest that notes a program's calls, and then runs a check on trees that are made of what these wrote.

Each tree is made from the one before by what differs. Where the guest is lost, so are the bytes that were
noted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.errors import GuestError
from harness.guests import wire
from harness.guests.session import (
    ACKNOWLEDGED,
    PROGRAM_TIMEOUT_S,
    RECOVER_TIMEOUT_S,
    RUN_TIMEOUT_S,
    Session,
    Target,
)
from harness.model import ChangeKind, Check, CheckResult
from harness.rules.calls import Notes, UnreadableNotes, notes_of
from harness.rules.trees import Entry, Files, wire_pieces

_KINDS = {
    "file": ChangeKind.FILE,
    "directory": ChangeKind.DIRECTORY,
    "symlink": ChangeKind.SYMLINK,
    "link": ChangeKind.LINK,
}
_MARGIN_S = 60.0


@dataclass(slots=True)
class MadeTrees:
    """See the module. `session` is shown `target`, of which nothing is read."""

    session: Session
    target: Target
    _there: dict[str, Entry] = field(default_factory=dict)
    _acks: tuple[str, ...] | None = None

    def note(self, argv: Sequence[str]) -> Notes:
        """Run a program in an empty directory. Raises GuestError for notes that cannot be read, GuestLost."""
        self.session.boot(self.target)
        request = wire.NoteCalls(argv=list(argv), deadline_s=RUN_TIMEOUT_S)
        done = self.session.guest().request(request, wire.ProgramDone, RUN_TIMEOUT_S + _MARGIN_S)
        self._there, self._acks = {}, None
        try:
            return notes_of(done.output)
        except UnreadableNotes as e:
            raise GuestError(str(e)) from e

    def check(self, files: Files, check: Check, acks: Sequence[str]) -> CheckResult:
        """What an application's check says of a tree, given these acknowledgements. Raises GuestLost."""
        guest = self.session.guest()
        if self._acks != tuple(acks):
            text = "".join(f"{line}\n" for line in acks).encode()
            put = wire.PutFile(path=ACKNOWLEDGED, mode=0o644, data=text)
            guest.request(put, wire.Done, RECOVER_TIMEOUT_S)
            self._acks = tuple(acks)
        as_user = ["powercut-as", check.user] if check.user else []
        argv = ["powercut-on-copy", *as_user, check.argv[0], ACKNOWLEDGED, *check.argv[1:]]
        request = wire.TryTree(
            changes=list(differences(self._there, files)), argv=argv, deadline_s=PROGRAM_TIMEOUT_S
        )
        done = guest.request(request, wire.ProgramDone, PROGRAM_TIMEOUT_S + _MARGIN_S)
        self._there = dict(files)
        output = done.output.decode(errors="replace")
        return CheckResult(check.operation, done.exit_code, output, len(acks))


def differences(there: Files, wanted: Files) -> Iterator[wire.TreeChange]:
    """What makes one tree of another: names that go, the deepest first; what is made, directories before
    what is in them, files before their other names.
    """
    made_anew = {p for p, e in wanted.items() if p in there and there[p].kind != e.kind}
    for path in sorted((p for p in there if p not in wanted or p in made_anew), reverse=True):
        yield wire.TreeChange(path=os.fsencode(path), kind=ChangeKind.REMOVE)
    changed = {p for p, e in wanted.items() if there.get(p) is None or there[p].essence != e.essence}
    changed |= {p for p in wanted if any(p.startswith(f"{top}/") for top in made_anew)}
    changed |= {p for p, e in wanted.items() if e.first and e.first in changed}
    for path in sorted(changed, key=lambda p: (wanted[p].kind == "link", p)):
        yield _made(path, wanted[path])


def _made(path: str, entry: Entry) -> wire.TreeChange:
    mode, uid, gid = entry.owner
    return wire.TreeChange(
        path=os.fsencode(path),
        kind=_KINDS[entry.kind],
        mode=mode,
        uid=uid,
        gid=gid,
        size=entry.size,
        pieces=wire_pieces(entry.pieces),
        target=os.fsencode(entry.first or entry.target),
    )
