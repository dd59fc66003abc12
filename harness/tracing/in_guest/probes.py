"""In the guest: load a program of probes by bcc, and give what it saw when asked to.

    probes.py PROGRAM.c FOLDER KIND...

KINDs are the names of the kinds of records, in the order of their numbers, from 1 on.

Reads one command a line from FOLDER/control: `attach`, `detach`, `collect NAME` (what was seen since the
last time goes to FOLDER/NAME, a JSON object a line), `cost NAME` (nanoseconds spent in the probes so far, if
kernel.bpf_stats_enabled is set), `end`. After each it writes FOLDER/done with the number
of commands that it has done, 1 when it begins to listen. Between commands the ring is emptied now and
then, so that it does not overflow, and no more often: every record costs the workload time.
"""

import json
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcc  # type: ignore[import-not-found]  # the guest has it

KINDS = ("", *sys.argv[3:])
DRAIN_S = 10.0
PREFIX = "tracepoint__"


def us(ns: int) -> int:
    return ns // 1000


def as_object(r: Any) -> dict[str, object]:
    """A record of common.c as the host reads it (harness/tracing/records.py)."""
    kind = KINDS[r.kind]
    record: dict[str, object] = {"type": "span", "what": kind, "at_us": us(r.at_ns)}
    if kind == "commit":
        record = {"type": "commit", "at_us": us(r.at_ns), "transaction": r.number}
        for name, ns in zip(("starting", "locked", "flushing", "logging"), r.took_ns, strict=True):
            record[name + "_us"] = us(ns)
        record.update(zip(("sync", "handles", "blocks", "logged"), r.counts, strict=True))
    elif kind == "checkpoint":
        record = {"type": "checkpoint", "at_us": us(r.at_ns), "transaction": r.number}
        record.update(zip(("ms", "written", "dropped", "forced"), r.counts, strict=True))
    elif r.took_ns[0]:
        record["us"] = us(r.took_ns[0])
    return record


class Probes:
    def __init__(self, program: str) -> None:
        # -w: warnings are of the kernel's own headers. Attaches every TRACEPOINT_PROBE.
        self.bpf = bcc.BPF(text=program, cflags=["-w"])
        self.attached = True
        self.seen: list[Any] = []
        self.lost = 0
        self.bpf["records"].open_ring_buffer(self.take)
        names = [f[len(PREFIX) :] for f in map(bytes.decode, self.bpf.funcs) if f.startswith(PREFIX)]
        self.points = [tuple(name.split("__", 1)) for name in names]

    def take(self, _context: Any, data: Any, _size: int) -> None:
        # Made into an object later: the workload may be running.
        r = self.bpf["records"].event(data)
        self.seen.append(type(r).from_buffer_copy(r))

    def drain(self) -> None:
        self.bpf.ring_buffer_consume()

    def attach(self) -> None:
        if self.attached:
            return
        for group, event in self.points:
            self.bpf.attach_tracepoint(tp=f"{group}:{event}", fn_name=f"{PREFIX}{group}__{event}")
        self.attached = True

    def detach(self) -> None:
        if not self.attached:
            return
        for group, event in self.points:
            self.bpf.detach_tracepoint(tp=f"{group}:{event}")
        self.attached = False

    def collect(self, path: Path) -> None:
        self.drain()
        lost = sum(v.value for v in self.bpf["lost"].values())
        with path.open("w") as f:
            for r in self.seen:
                f.write(json.dumps(as_object(r)) + "\n")
            if lost > self.lost:
                f.write(json.dumps({"type": "lost", "records": lost - self.lost}) + "\n")
        self.seen.clear()
        self.lost = lost

    def cost(self, path: Path) -> None:
        spent = 0
        for function in self.bpf.funcs.values():  # kernel/bpf/syscall.c, bpf_prog_show_fdinfo
            lines = Path(f"/proc/self/fdinfo/{function.fd}").read_text().splitlines()
            spent += sum(int(line.split()[1]) for line in lines if line.startswith("run_time_ns:"))
        path.write_text(f"{spent}\n")


def main(program: Path, folder: Path) -> None:
    (folder / "pid").write_text(str(os.getpid()))
    probes = Probes(program.read_text())
    control = os.open(folder / "control", os.O_RDWR)  # for writing too: then it never ends
    for number, line in enumerate(commands(control, probes), 1):
        word, *name = line.split()
        if word == "end":
            break
        getattr(probes, word)(*(folder / n for n in name))
        part = folder / "done.part"
        part.write_text(str(number))
        part.rename(folder / "done")


def commands(control: int, probes: Probes) -> Iterator[str]:
    """Lines of the control pipe; the ring is emptied while there are none."""
    rest = b""
    yield "drain"
    while True:
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line.decode()
        while not select.select([control], [], [], DRAIN_S)[0]:
            probes.drain()
        rest += os.read(control, 4096)


main(Path(sys.argv[1]), Path(sys.argv[2]))
