"""How a kernel ended, by what it said last: it died, or it hangs.

A kernel says so in several lines, of which one tells the reason. Two ends are alike if that line is, and the
function in which it happened. Numbers and addresses differ each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_TIMESTAMP = re.compile(r"^(<\d+>)?\s*\[\s*[\d.]+\](\[\s*\w+\])?\s*")
_NUMBER = re.compile(r"\b(0x)?[0-9a-fA-F]*\d[0-9a-fA-F]*\b")
# Lines with which a kernel gives up (kernel/panic.c, lib/bug.c, arch/x86/mm/fault.c), the reason before what
# follows from it. Guests are started with `oops=panic`, so each of them ends the kernel.
_DIES = re.compile(
    r"kernel BUG at |BUG: (unable to handle|kernel NULL pointer)|\bOops\b|general protection fault[:,]|"
    r"Kernel panic - not syncing"
)
# kernel/watchdog.c, kernel/hung_task.c, and the agent: vms/agent/src/watch.rs.
_HANGS = re.compile(
    r"BUG: soft lockup|detected hard LOCKUP|(hung_task|softlockup): \w+ tasks|powercut-agent: .* hangs"
)
# Of a kernel that goes on: something took long. A slow host causes these as well.
_STALLS = re.compile(
    r"INFO: task .+:\d+ blocked.* for more than \d+ seconds|INFO: rcu\S* (self-)?detected .*stall|"
    r"BUG: (soft lockup|workqueue lockup)|detected hard LOCKUP"
)
# lib/ratelimit.c: `_btrfs_printk: 12 callbacks suppressed`
_SUPPRESSED = re.compile(r"\b\d+ callbacks suppressed\b")
_SECONDS = re.compile(r"\d+(?=s!)")
_FUNCTION = re.compile(r"\bRIP: \S+?:(?:\[<\w+>\] )?([A-Za-z_][\w.]*)\+0x")


@dataclass(frozen=True, slots=True)
class Ending:
    """`line`: the one that tells the reason. `signature`: the same for ends that are alike. `hangs`: nothing
    in the kernel failed, but something never returned.
    """

    line: str
    signature: str
    hangs: bool


def ending(console: str) -> Ending | None:
    """How the kernel ended that printed this; None if it does not say so."""
    lines = console.splitlines()
    for i, line in enumerate(lines):
        hangs = bool(_HANGS.search(line))
        if hangs or _DIES.search(line):
            functions = (found[1] for text in lines[i + 1 :] if (found := _FUNCTION.search(text)))
            where = next(functions, "")
            signature = _SECONDS.sub("N", folded(line)) + (f" in {where}" if where else "")
            return Ending(without_time(line).strip(), signature, hangs)
    return None


def stalled(log: Iterable[str]) -> str:
    """The first line that says that something took long, of a kernel that went on; empty if there is none."""
    return next((without_time(line) for line in log if _STALLS.search(line)), "")


def suppressed(log: Iterable[str]) -> str:
    """The first line that says that the kernel kept something back; empty if there is none."""
    return next((without_time(line) for line in log if _SUPPRESSED.search(line)), "")


def complaints(errors: re.Pattern[str] | None, log: Iterable[str]) -> dict[str, str]:
    """Of the lines that `errors` matches the first of each kind, without its time stamp, by that kind."""
    found: dict[str, str] = {}
    for line in log:
        if errors is not None and errors.search(line):
            found.setdefault(folded(line), without_time(line))
    return found


def any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One pattern for all of them; None if there are none. Raises re.error."""
    return re.compile("|".join(f"(?:{p})" for p in patterns)) if patterns else None


def without_time(line: str) -> str:
    """A kernel message without its time stamp."""
    return _TIMESTAMP.sub("", line)


def folded(line: str) -> str:
    """A kernel message without the parts that vary between crash states: time stamps and numbers."""
    return _NUMBER.sub("N", without_time(line)).strip()
