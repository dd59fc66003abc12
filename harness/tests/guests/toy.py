"""A machine that nobody else knows of: its kernel is a Python program that speaks the agent's protocol.

What it takes to add a machine: this module, and `TOML` as a file of `vms/machines`. Its file system keeps the
names of its directories in the first sector of the disk, which ext4 leaves alone, and writes them at once.
A kernel file's name is its defect: `forgetful` writes them when it is unmounted, whatever was synced;
`mortal` ends after one recording and never comes up again; `silent` never answers.
"""

from __future__ import annotations

import shlex
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.guests import guest, wire
from harness.guests.guest import Guest
from harness.guests.machine import Boot, Machine, MachineProfile, Requirement, load_profile
from harness.model import SECTOR_BYTES, FileKind
from harness.tests.guests.frontend import Frontend
from harness.writelog import Flush, MarkText, Step, Write, write_log

TOML = """
title = "Toy"
summary = "a Python program that is a kernel, with a file system of one sector"
module = "harness.tests.guests.toy"
memory_mib = 0
modules = []
data_device = "/dev/toy0"
log_device = "/dev/toy1"
channel = "toy"
command_line = []

[accelerators.imagination]
boot_timeout_s = 600
"""
RELEASE = "6.12.0-toy"
_MAGIC = b"TOY\n"


class Toy(Machine):
    """See the module."""

    def __init__(self) -> None:
        self.profile = load_profile("toy", MachineProfile)
        self.accel = "imagination"

    def version(self) -> str:
        return "1.0"

    def requirements(self) -> Sequence[Requirement]:
        return (Requirement("Toy", lambda: "always there"),)

    def launch(self, boot: Boot) -> Guest:
        return guest.launch(lambda fd: _line(boot, fd), boot.directory)

    def preview(self, boot: Boot) -> str:
        return shlex.join(_line(boot, 3))


def machine(_: str) -> Machine:
    """See `harness.guests.machine`."""
    return Toy()


def _line(boot: Boot, channel_fd: int) -> list[str]:
    kernel = [str(boot.kernel_image), str(channel_fd), str(boot.disk_socket), str(boot.log)]
    return [sys.executable, "-m", "harness.tests.guests.toy", *kernel]


class Kernel:
    """What runs in the guest. `forgetful`: writes nothing before it is unmounted."""

    def __init__(self, disk: Frontend, log: Path, *, forgetful: bool) -> None:
        self._disk = disk
        self._log = log
        self._forgetful = forgetful
        self._names: list[str] = []
        self._steps: list[Step] = []

    def answer(self, request: wire.AgentRequest) -> wire.AgentReply:
        """One request of the harness."""
        match request:
            case wire.RecordStart():
                self._names, self._steps = self._read(), []
                return wire.RecordStarted()
            case wire.RunOperations(first_index=first, operations=operations):
                for number, operation in enumerate(operations, first):
                    self._do(number, operation)
                results = [wire.OperationResult(first + i) for i in range(len(operations))]
                return wire.OperationsDone(results)
            case wire.RecordFinish():
                self._write()
                write_log(self._log, self._steps)
                return wire.RecordFinished(
                    "", False, 0, [], True, wire.RecordedEvents(lacking="a toy has no tracefs")
                )
            case wire.Recover():
                entries = [directory(name.encode(), 8) for name in ("", *sorted(self._read()))]
                return wire.Recovered(0, entries, [], 0, [], True, 1, 1, 1)
            case wire.Use():
                self._read()
                return wire.Used(0, [], True, 0, [], True)
            case _:
                return wire.AgentFailed(f"a toy cannot {type(request).__name__}", 38)

    def _do(self, number: int, operation: wire.Operation) -> None:
        self._steps.append(MarkText(f"begin {number}"))
        if operation.kind == "mkdir":
            self._names.append(operation.path)
        if not self._forgetful:
            self._write()
        self._steps.append(MarkText(f"ack {number}"))

    def _write(self) -> None:
        data = (_MAGIC + "\n".join(self._names).encode()).ljust(SECTOR_BYTES, b"\0")
        self._disk.write(0, data)
        self._steps += [Write(0, data), Flush()]

    def _read(self) -> list[str]:
        data = self._disk.read(0, 1)
        text = data.removeprefix(_MAGIC).rstrip(b"\0").decode() if data.startswith(_MAGIC) else ""
        return text.split("\n") if text else []


def directory(path: bytes, blocks: int) -> wire.TreeEntry:
    """A directory as a toy's agent lists it."""
    return wire.TreeEntry(
        path=path,
        kind=FileKind.DIRECTORY,
        inode=2,
        mode=0o755,
        links=2,
        uid=0,
        gid=0,
        size=4096,
        blocks=blocks,
        target=b"",
        xattrs=[],
        extents=[],
        digest="",
    )


def main(kernel_image: str, channel_fd: str, disk_socket: str, log: str) -> None:
    """The guest, from its boot to its end."""
    image = Path(kernel_image)
    defect = image.name
    boots = image.with_name("boots")
    with boots.open("a") as f:
        f.write(f"{defect}\n")
    if defect == "mortal" and len(boots.read_text().splitlines()) > 1:
        sys.exit("toy: nothing to boot from")
    channel = socket.socket(fileno=int(channel_fd))
    with Frontend(Path(disk_socket)) as disk:
        print("toy: up", flush=True)
        if defect == "silent":
            time.sleep(600)
        wire.send(channel, wire.Hello(wire.PROTOCOL_VERSION, RELEASE, "#1", [], ["log-writes"]))
        kernel = Kernel(disk, Path(log), forgetful=defect == "forgetful")
        while True:
            request = wire.receive(channel, wire.AgentRequest)
            wire.send(channel, kernel.answer(request))
            if defect == "mortal" and isinstance(request, wire.RecordFinish):
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
