"""Probes in a guest with tools: records of what the kernel does, from its tracepoints.

`bcc` where the kernel's headers are there: a program of our own (`in_guest/`, and the pieces in the folder of
each file system), which combines events in the kernel. `tracefs` elsewhere: the kernel prints each event, and
`harness.tracing.tracefs` combines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from harness.errors import GuestError
from harness.filesystems.tracepoints import Tracepoints
from harness.tools_image.guest import ToolsGuest
from harness.tracing.records import Record, decode_lines
from harness.tracing.tracefs import parse_trace

IN_GUEST = Path(__file__).parent / "in_guest"
_FOLDER = "/run/trace"
_TRACEFS = "/sys/kernel/tracing"
_RING_KIB = 16_384
_LOAD_TIMEOUT_S = 300.0
_COMMAND_TIMEOUT_S = 120.0


FSYNC = Tracepoints(
    "fsync",
    "fsync",
    (str(IN_GUEST / "fsync.c"),),
    tuple(f"syscalls/sys_{way}_{call}" for call in ("fsync", "fdatasync") for way in ("enter", "exit")),
)
"""For file systems that do not time fsync by events of their own."""
_KINDS = ("commit", "checkpoint", "fsync")
"""Kinds of records that `in_guest/common.c` knows; each file system adds its own."""


class Probes(Protocol):
    """Probes in a guest, attached from the start. `source`: bcc or tracefs; `reason`: why not bcc."""

    source: str
    reason: str

    def attach(self) -> None:
        """Start recording."""

    def detach(self) -> None:
        """Stop recording: the workload runs without probes."""

    def collect(self) -> list[Record]:
        """The records since the last call."""

    def cost_ns(self) -> int | None:
        """Time that the kernel has spent in the probes since the first call; None: it does not count that.
        Does not include the way to a probe and back.
        """


def start_probes(tools: ToolsGuest, families: Sequence[Tracepoints | None], disk: str = "vdb") -> Probes:
    """Load and attach probes for one disk of the guest. The modules of the file systems have to be loaded.

    bcc takes some ten seconds under emulation. Raises GuestError if neither bcc nor tracefs works.
    """
    wanted = wanted_families(families)
    if tools.headers:
        return TracefsProbes(tools, wanted, disk, tools.headers)
    try:
        return BccProbes(tools, wanted, disk)
    except GuestError as e:
        return TracefsProbes(tools, wanted, disk, f"bcc failed: {e.what.splitlines()[-1][:300]}")


def wanted_families(families: Sequence[Tracepoints | None]) -> tuple[Tracepoints, ...]:
    """Each once. None: a file system without tracepoints. If one of them does not time fsync, the system
    calls are traced too; an fsync that both see counts once, by the file system's own events.
    """
    known = dict.fromkeys(f for f in families if f)
    if all(f and f.times_fsync for f in families):
        return tuple(known)
    return (*known, FSYNC)


def _device_number(tools: ToolsGuest, disk: str) -> tuple[int, int]:
    """MAJOR and MINOR. Raises GuestError if there is no such disk."""
    said = tools.run(["cat", f"/sys/class/block/{disk}/dev"], _COMMAND_TIMEOUT_S).output
    major, minor = map(int, said.strip().split(":"))
    return major, minor


class BccProbes:
    """See `Probes`; the other half is `in_guest/probes.py`."""

    source = "bcc"
    reason = ""

    def __init__(self, tools: ToolsGuest, families: Sequence[Tracepoints], disk: str) -> None:
        self._tools = tools
        self._done = 0
        tools.put(f"{_FOLDER}/program.c", program(families, _device_number(tools, disk), _hertz(tools)))
        tools.put(f"{_FOLDER}/probes.py", (IN_GUEST / "probes.py").read_bytes())
        # By setsid: what ends this shell does not end it.
        tools.shell(
            f"cd {_FOLDER}; rm -f control done; mkfifo control; "
            f"setsid python3 probes.py program.c . {' '.join(kinds(families))} >said 2>&1 </dev/null & "
            "while [ ! -e done ]; do kill -0 $! || { tail -n 5 said; exit 1; }; sleep 0.05; done",
            _LOAD_TIMEOUT_S,
        )
        self._done = 1

    def attach(self) -> None:
        self._command("attach")

    def detach(self) -> None:
        self._command("detach")

    def collect(self) -> list[Record]:
        return decode_lines(self._ask("collect"))

    def cost_ns(self) -> int | None:
        self._tools.shell("echo 1 >/proc/sys/kernel/bpf_stats_enabled", _COMMAND_TIMEOUT_S)
        return int(self._ask("cost"))

    def _ask(self, word: str) -> str:
        """Give a command that writes an answer; returns the answer."""
        name = f"answer-{self._done}"
        return self._command(f"{word} {name}", f"cat {name}; rm {name}")

    def _command(self, words: str, then: str = "true") -> str:
        """Give a command, wait until it is done, and run `then`; returns its output."""
        self._done += 1
        script = (
            f"cd {_FOLDER}; echo {words} >control; "
            f'while [ "$(cat done)" != {self._done} ]; do '
            "[ -e /proc/$(cat pid) ] || { tail -n 5 said; exit 1; }; sleep 0.01; done; "
            f"{then}"
        )
        return self._tools.shell(script, _COMMAND_TIMEOUT_S).output


def program(families: Sequence[Tracepoints], disk: tuple[int, int], hertz: int) -> bytes:
    """The C program for these tracepoints: the common pieces in `in_guest/` and those of each file system."""
    major, minor = disk
    head = f"#define DISK {major << 20 | minor}\n#define HERTZ {hertz}\n"  # MKDEV of linux/kdev_t.h
    head += f"enum kind {{ NONE, {', '.join(map(_in_c, kinds(families)))} }};\n"
    own = [IN_GUEST / "common.c", IN_GUEST / "span.c"]
    pieces = dict.fromkeys([*own, *(Path(name) for f in families for name in f.programs)])
    return head.encode() + b"".join(piece.read_bytes() for piece in pieces)


def kinds(families: Sequence[Tracepoints]) -> tuple[str, ...]:
    """Names of the kinds of records that the program makes, in the order of their numbers, from 1 on."""
    return tuple(dict.fromkeys([*_KINDS, *(span.what for f in families for span in f.spans)]))


def _in_c(kind: str) -> str:
    return kind.replace("-", "_").upper()


def _hertz(tools: ToolsGuest) -> int:
    """Jiffies per second."""
    said = tools.shell("cat /usr/lib/modules/*/build/include/config/auto.conf", _COMMAND_TIMEOUT_S).output
    found = [line for line in said.splitlines() if line.startswith("CONFIG_HZ=")]
    return int(found[0].partition("=")[2]) if found else 250


class TracefsProbes:
    source = "tracefs"

    def __init__(self, tools: ToolsGuest, families: Sequence[Tracepoints], disk: str, reason: str) -> None:
        self._tools = tools
        self.reason = reason
        self._disk = _device_number(tools, disk)
        self._events = [event for family in families for event in family.events]
        self._spans = [span for family in families for span in family.spans]
        there = tools.shell(
            f"[ -e {_TRACEFS}/trace ] && cd {_TRACEFS}/events && ls -d */*", 60.0, check=False
        )
        lacking = [event for event in self._events if event not in there.output.split()]
        if lacking:
            raise GuestError(f"this kernel has no tracepoint {', '.join(lacking)}")
        self._shell(f"echo mono >trace_clock; echo {_RING_KIB} >buffer_size_kb; echo >trace")
        self.attach()

    def attach(self) -> None:
        self._shell("; ".join(f"echo 1 >events/{event}/enable" for event in self._events))

    def detach(self) -> None:
        self._shell("; ".join(f"echo 0 >events/{event}/enable" for event in self._events))

    def collect(self) -> list[Record]:
        return parse_trace(self._shell("cat trace; echo >trace"), self._disk, self._spans)

    def cost_ns(self) -> int | None:
        return None

    def _shell(self, script: str) -> str:
        return self._tools.shell(f"set -e; cd {_TRACEFS}; {script}", _COMMAND_TIMEOUT_S).output
