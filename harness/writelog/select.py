"""Select a range of a log's entries; parameters are named after the options of replay-log (xfstests,
src/log-writes).
"""

from __future__ import annotations

from harness.errors import UsageError
from harness.model import EntryFlag, LogEntry
from harness.writelog.log import WriteLog


def select(
    log: WriteLog,
    *,
    start_entry: int = 0,
    limit: int | None = None,
    next_flush: bool = False,
    next_fua: bool = False,
    start_mark: str | None = None,
    end_mark: str | None = None,
) -> tuple[LogEntry, ...]:
    """The entries from the start to whichever end comes first; to the end of the log where none does.

    The start is the entry after the mark `start_mark`, else entry `start_entry`. The ends, each inclusive:
    `limit` entries, the first flush (`next_flush`), the first FUA write (`next_fua`), the first mark
    `end_mark`. Raises UsageError for a start beyond the log and for a mark that the log does not have there.
    """
    first = start_entry if start_mark is None else _find_mark(log, start_mark, 0) + 1
    if not 0 <= first <= log.entry_count:
        raise UsageError(f"entry {first} does not exist, {log.path} has {log.entry_count}")
    stop = log.entry_count
    if limit is not None:
        stop = min(stop, first + limit)
    if end_mark is not None:
        stop = min(stop, _find_mark(log, end_mark, first) + 1)
    wanted = (EntryFlag.FLUSH if next_flush else 0) | (EntryFlag.FUA if next_fua else 0)
    for entry in log.entries[first:stop]:
        if entry.flags & wanted:
            stop = entry.index + 1
            break
    return log.entries[first:stop]


def _find_mark(log: WriteLog, text: str, start: int) -> int:
    for mark in log.marks:
        if mark.index >= start and mark.mark == text:
            return mark.index
    known = ", ".join(repr(mark.mark) for mark in log.marks[:5])
    more = f" and {len(log.marks) - 5} more" if len(log.marks) > 5 else ""
    raise UsageError(
        f"{log.path} has no mark {text!r} from entry {start} on",
        f"its marks are {known}{more}" if known else "it has no marks at all",
    )
