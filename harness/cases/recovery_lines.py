"""Which lines of recovery the crash states of a run have run: from the file in which guests note it, case by
case.

A state whose outcome the memo recalls was not recovered, and adds nothing: it equals a recovered one in every
block that was read, so its recovery would have run the same lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.filesystems.profile import Profile
from harness.kernels.instrumented import points_of, source_of
from harness.model import CaseId
from harness.store.layout import RunLayout
from harness.store.recovery_code import (
    CodeLine,
    RecoveryCode,
    read_recovery_code,
    united,
    write_recovery_code,
)


class RecoveryLines:
    """The lines of these modes' recovery in an instrumented kernel, and which of them have run. What a run
    noted before it was stopped counts on. One thread.
    """

    def __init__(self, image: Path, profiles: Sequence[Profile], layout: RunLayout) -> None:
        known = points_of(image)
        sources = {source for p in profiles for source in p.recovery}
        points = [p for p in known.points if any(s.holds(p.file, p.function) for s in sources)]
        self._kernel, self._layout = source_of(image), layout
        self._waiting = {p.at: CodeLine(p.file, p.function, p.line) for p in points}
        before = read_recovery_code(layout)
        self._lines = [*self._waiting.values(), *(before.lines if before else ())]

    def look(self, case: CaseId) -> None:
        """A case has come to its end: what has run since the last one did is its."""
        hits = self._layout.hits.read_bytes()
        for at in [at for at in self._waiting if hits[at]]:
            line = self._waiting.pop(at)
            self._lines.append(CodeLine(line.file, line.function, line.line, str(case)))

    def write(self) -> None:
        """Into the run directory."""
        write_recovery_code(RecoveryCode(self._kernel, united(self._lines)), self._layout)
