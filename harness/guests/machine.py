"""What every machine is: a way to boot a kernel with the agent in it and a disk beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.guests.guest import Guest


@dataclass(frozen=True, slots=True)
class Boot:
    """What a guest is started with. `disk_socket`: the vhost-user socket of its disk; `log`: the
    file behind its log device; `directory`: for its console. `shell_mount`: not empty, `FSTYPE:OPTIONS`:
    instead of answering, the agent opens a shell on the terminal and shows this as the mount to try.
    `shell_second`: byte of the disk at which its second device begins, 0 where it has none.
    """

    kernel_image: Path
    initramfs: Path
    disk_socket: Path
    log: Path
    directory: Path
    shell_mount: str = ""
    shell_second: int = 0


class Machine(Protocol):
    """A way to run a kernel. `data_device` is the crashed disk as the guest sees it, `log_device`
    where dm-log-writes logs to; `modules` are needed to be reached at all.
    """

    @property
    def name(self) -> str: ...
    @property
    def accel(self) -> str: ...
    @property
    def data_device(self) -> str: ...
    @property
    def log_device(self) -> str: ...
    @property
    def modules(self) -> tuple[str, ...]: ...

    def start(self, boot: Boot) -> Guest:
        """Boot and wait for the agent. Raises GuestLost where it does not come up in time."""
        ...


def die_with_parent(line: list[str]) -> list[str]:
    """`line`, ended by the kernel when the thread that started it ends (PR_SET_PDEATHSIG, prctl(2)):
    a killed orchestrator leaves no guest behind.
    """
    return ["setpriv", "--pdeathsig", "KILL", "--", *line]
