"""What an application's author looks for beside a finding: what had been acknowledged when the power failed,
what the program had asked of the kernel, and the files that came back. Pure.
"""

from __future__ import annotations

import bisect
import stat
from collections.abc import Callable, Sequence

from harness.host.text import first_few, one_line
from harness.model import FileKind, History, Outcome, Position, TreeEntry, Workload
from harness.workloads.applications import prints_acknowledgements
from harness.writelog.calls import ProgramCall, ProgramCalls
from harness.writelog.times import Times

ACKNOWLEDGED = "acknowledged before the power failed"
CALLS = "the program's last system calls before the power failed"
FILES = "files that came back"
HEADINGS = (ACKNOWLEDGED, CALLS, FILES)
LAST_SHOWN = 20
CALLS_SHOWN = 30
FILES_SHOWN = 200
_KINDS = {
    FileKind.FILE: stat.S_IFREG,
    FileKind.DIRECTORY: stat.S_IFDIR,
    FileKind.SYMLINK: stat.S_IFLNK,
    FileKind.FIFO: stat.S_IFIFO,
    FileKind.SOCKET: stat.S_IFSOCK,
    FileKind.BLOCK: stat.S_IFBLK,
    FileKind.CHAR: stat.S_IFCHR,
}


def notes(
    workload: Workload, history: History, position: Position, outcome: Outcome, calls: Sequence[str]
) -> dict[str, str]:
    """Texts by their headings; none for a workload that the reference model judges, whose findings say what
    was expected of which file. `calls`: from `lines`.
    """
    if not has_notes(workload):
        return {}
    return {
        ACKNOWLEDGED: "\n".join(_acknowledged(history, position)),
        CALLS: "\n".join(calls),
        FILES: "\n".join(_files(outcome)),
    }


def has_notes(workload: Workload) -> bool:
    """Whether it is an application, whose own check judges it."""
    return any(check.application for check in workload.checks)


def at_once(workload: Workload, places: Sequence[int]) -> str:
    """What to tell of a program whose printed lines are acknowledged, if nothing came between the first and
    the last: it may keep them until it ends, so that nothing is promised before. `places`: of each line, what
    the program had done by then.
    """
    if len(places) < 2 or len(set(places)) > 1 or not prints_acknowledgements(workload):
        return ""
    return (
        f"its {len(places)} lines were acknowledged at once, so that nothing is demanded before the first: "
        "does it flush each (in C: setvbuf(stdout, NULL, _IOLBF, 0))?"
    )


def calls_by_lines(noted: ProgramCalls, times: Times | None) -> list[int]:
    """How many calls had begun at each acknowledgement; none where the calls were not noted."""
    if times is None or noted.more is None:
        return []
    began = sorted(call.began for call in noted.calls)
    return [bisect.bisect_left(began, m.at) for m in times.marks if m.text.startswith("app ")]


def lines(noted: ProgramCalls, times: Times | None, before: Callable[[int], bool]) -> list[str]:
    """The last calls and acknowledgements before the power failure, in the order in which they began, and the
    next one. `before`: whether an event comes before it.
    """
    if times is None or noted.more is None:
        return ["not noted" + ": this recording has no times" * (times is None)]
    texts = [(call.began, _call(call, before)) for call in noted.calls]
    texts += [
        (m.at, m.text.replace("app ", "acknowledged: ", 1)) for m in times.marks if m.text.startswith("app ")
    ]
    texts.sort()
    done = [text for at, text in texts if before(at)]
    next_one = next((text for at, text in texts if not before(at)), "")
    shown = [f"... and {len(done) - CALLS_SHOWN} before these"] if len(done) > CALLS_SHOWN else []
    shown += done[-CALLS_SHOWN:] or ["none"]
    if next_one:
        shown.append(f"not yet: {next_one}")
    if noted.more:
        shown.append(f"{noted.more} more calls of this recording were not noted")
    return list(map(one_line, shown))


def _call(call: ProgramCall, before: Callable[[int], bool]) -> str:
    if not before(call.began):
        return call.text
    if call.returned is None or not before(call.returned):
        return f"{call.text} had not returned"
    return f"{call.text} {call.outcome}"


def _acknowledged(history: History, position: Position) -> list[str]:
    """The last acknowledgements before the cut, each with its place in the write log, and the next one."""
    before = history.acknowledgements[: position.app_acks]
    after = history.acknowledgements[position.app_acks :]
    lines = [f"... and {len(before) - LAST_SHOWN} before these"] if len(before) > LAST_SHOWN else []
    lines += [f"{a.text} (log entry {a.entry})" for a in before[-LAST_SHOWN:]]
    lines = lines or ["nothing"]
    if after:
        lines.append(f"not yet: {after[0].text} (log entry {after[0].entry})")
    return list(map(one_line, lines))


def _files(outcome: Outcome) -> list[str]:
    entries = sorted((e for path, e in outcome.tree.items() if path), key=lambda e: e.path)
    shown, left_out = first_few(entries, FILES_SHOWN)
    lines = [_line(e) for e in shown]
    if left_out:
        lines.append(f"... and {left_out} more")
    return lines or ["none"]


def _line(e: TreeEntry) -> str:
    """As `ls -ln` shows it, with the beginning of a file that no operation's pattern explains."""
    mode = stat.filemode(_KINDS.get(e.kind, 0) | stat.S_IMODE(e.mode))
    text = f"{mode} {e.links} {e.uid} {e.gid} {e.size:>9} {e.path}"
    if e.kind is FileKind.SYMLINK:
        text += f" -> {e.target.decode(errors='replace')}"
    first = e.extents[0] if e.extents else None
    if first is not None and first.data:
        text += f"  {first.data.decode('ascii', 'backslashreplace')!r}" + "..." * (first.length < e.size)
    return one_line(text)
