"""Machines whose guests are short Python programs of this host: what a machine may do to whoever waits."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.guests import guest
from harness.guests.guest import Guest
from harness.guests.machine import Accelerator, Boot, Machine, MachineProfile

GREETS = """
import os, struct, sys, time
from harness.guests import wire
body = wire.encode(wire.Hello(wire.PROTOCOL_VERSION, "6.0-fake", "#1", [], ["log-writes"]))
os.write(int(sys.argv[1]), struct.pack("<I", len(body)) + body)
"""
SLEEPS = "import time; time.sleep(120)"


class Scripted(Machine):
    """Runs a Python program for a guest; its first argument is the channel's descriptor."""

    def __init__(self, script: str, boot_timeout_s: float = 60.0) -> None:
        self.script = script
        self.accel = "native"
        self.launched = 0
        self.profile = MachineProfile(
            name="scripted",
            title="Scripted",
            summary="",
            accelerators={"native": Accelerator(boot_timeout_s=boot_timeout_s)},
            memory_mib=0,
            modules=[],
            data_device="/dev/vda",
            log_device="/dev/vdb",
            channel="",
            command_line=[],
        )

    def line(self, channel_fd: int) -> list[str]:
        return [sys.executable, "-c", self.script, str(channel_fd)]

    def launch(self, boot: Boot) -> Guest:
        self.launched += 1
        return self.launch_in(boot.directory)

    def launch_in(self, directory: Path) -> Guest:
        return guest.launch(self.line, directory)

    def preview(self, boot: Boot) -> str:
        return " ".join(self.line(3))
