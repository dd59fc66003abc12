"""What visits of a run came to, by the content that they were made to.

The cases of one mode begin alike: mkfs's image, the first mount, often the same first operation. So the first
states of a case have, byte for byte, the contents of states of an earlier one, and recovery knows nothing
else.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from harness.cases.examine import Examiner, Group, Observation
from harness.cases.recording import Recording
from harness.cases.remote import AnySession
from harness.guests.disk import BlockReads
from harness.model import CaseId, Outcome

ENTRIES_MAX = 100_000
"""Names and lines of kernel logs in all outcomes that are kept: some 100 MiB. The contents that were asked
for least recently go first.
"""
_BLOCKS_AN_ENTRY = 16


@dataclass(frozen=True, slots=True)
class KnownContent:
    """The outcome that a guest showed, and the blocks that it read for that."""

    outcome: Outcome
    reads: BlockReads

    @property
    def entries(self) -> int:
        """See ENTRIES_MAX; so many blocks that were read take as much room as one entry."""
        blocks = len(self.reads.blocks) + len(self.reads.data)
        return 1 + len(self.outcome.tree) + len(self.outcome.kernel_log) + blocks // _BLOCKS_AN_ENTRY


class KnownContents:
    """Of one run: one kernel, one kind of guest that visits. Not for runs that cut recoveries or let disks
    err. Thread-safe. Only what a guest showed itself is put in, and only what the memo may learn.

    A content that does not come to the same in a second guest casts doubt on all cases of its mode that took
    something from here, also on those that are DONE.
    """

    def __init__(
        self,
        entries_max: int | None = None,
        on_case_mismatch: Callable[[CaseId, str], None] = lambda case, why: None,
    ) -> None:
        """`entries_max`: ENTRIES_MAX, if None. `on_case_mismatch` is told of each case that took something,
        and why that is in doubt now; it is called before the visit that found it returns.
        """
        self._on_case_mismatch = on_case_mismatch
        self._took: defaultdict[str, set[CaseId]] = defaultdict(set)
        self._entries_max = ENTRIES_MAX if entries_max is None else entries_max
        self._entries = 0
        self._known: OrderedDict[tuple[object, ...], KnownContent] = OrderedDict()
        self._mismatched: set[str] = set()
        """Modes in which something did not repeat itself: their cases share nothing more."""
        self._lock = threading.Lock()

    def visit(
        self, examiner: Examiner, session: AnySession, group: Group, stop: threading.Event
    ) -> Observation:
        """As `Examiner.visit`, unless a case of this run had the same content. A share of these is visited
        all the same, as with the memo, and compared. The workload's checks look at more than the content.
        """
        state, recording, memo = group.states[0], examiner.recording, examiner.memo
        if memo.mismatch:
            self._mismatched.add(recording.profile.name)
        if not group.content_hash or not memo.recalls or recording.workload.checks:
            return examiner.visit(session, group.states, stop)
        known = self.of(recording, group.content_hash)
        if known is not None and not memo.sampled(state) and self._take(recording):
            return Observation(
                known.outcome, number=memo.keep(known.outcome), reads=known.reads, elsewhere=True
            )
        seen = examiner.visit(session, group.states, stop)
        if isinstance(seen.outcome, Outcome):
            if known is not None:
                memo.compare(state, known.outcome, seen.outcome)
                if memo.mismatch:
                    self._doubt(recording, memo.mismatch)
            if seen.reads is not None:
                self.put(recording, group.content_hash, KnownContent(seen.outcome, seen.reads))
        return seen

    def _take(self, recording: Recording) -> bool:
        """Note that a case takes something; False where that is in doubt by now."""
        mode = recording.profile.name
        with self._lock:
            if mode not in self._mismatched:
                self._took[mode].add(recording.case)
        return mode not in self._mismatched

    def _doubt(self, recording: Recording, mismatch: str) -> None:
        """Nothing more is taken in this mode, and what was taken is in doubt."""
        with self._lock:
            self._mismatched.add(recording.profile.name)
            took = sorted(self._took.pop(recording.profile.name, ()), key=str)
        for case in took:
            if case != recording.case:
                self._on_case_mismatch(case, f"it shares contents with {recording.case}: {mismatch}")

    def of(self, recording: Recording, content_hash: str) -> KnownContent | None:
        """What visits of this content came to, in this mode. `content_hash`: tells contents apart that were
        written over the same image.
        """
        key = _key(recording, content_hash)
        if recording.profile.name in self._mismatched:
            return None
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, recording: Recording, content_hash: str, content: KnownContent) -> None:
        """Keep what a visit came to; the first visit of a content counts."""
        key = _key(recording, content_hash)
        with self._lock:
            if key in self._known:
                return
            self._known[key] = content
            self._entries += content.entries
            while self._entries > self._entries_max:
                _, gone = self._known.popitem(last=False)
                self._entries -= gone.entries


def _key(recording: Recording, content_hash: str) -> tuple[object, ...]:
    return recording.profile.name, recording.target.base, content_hash
