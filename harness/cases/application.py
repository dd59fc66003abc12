"""What an application's author looks for beside a finding: what had been acknowledged when the power failed,
and the files that came back. Pure.
"""

from __future__ import annotations

import stat

from harness.host.text import one_line
from harness.model import FileKind, History, Outcome, Position, TreeEntry, Workload

ACKNOWLEDGED = "acknowledged before the power failed"
FILES = "files that came back"
HEADINGS = (ACKNOWLEDGED, FILES)
LAST_SHOWN = 20
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


def notes(workload: Workload, history: History, position: Position, outcome: Outcome) -> dict[str, str]:
    """Texts by their headings; none for a workload that the reference model judges, whose findings say what
    was expected of which file.
    """
    if not any(check.application for check in workload.checks):
        return {}
    return {
        ACKNOWLEDGED: "\n".join(_acknowledged(history, position)),
        FILES: "\n".join(_files(outcome)),
    }


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
    lines = [_line(e) for e in entries[:FILES_SHOWN]]
    if more := len(entries) - len(lines):
        lines.append(f"... and {more} more")
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
