"""The workers of a cluster, as `harness.cluster.dispatch` sees them: their addresses, what they are asked."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from harness.cluster.messages import Done, Job, Note
from harness.errors import EnvironmentLacks, UsageError

_LOCAL = re.compile(r"local:([1-9]\d{0,2})(\+dashboard)?")
_REMOTE = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+:\d+")
_ENCRYPTED = ("tls", "wss")
T = TypeVar("T")


def need_cluster(address: str) -> None:
    """Raises UsageError for text that names no cluster, EnvironmentLacks where none can be used."""
    if not _LOCAL.fullmatch(address) and not _REMOTE.fullmatch(address):
        raise UsageError(
            f"{address!r} names no cluster", "tcp://HOST:8786, or local:4 for worker processes on this host"
        )
    needed = ["distributed", *(["cryptography"] if local_workers(address) else [])]  # makes certificates
    if missing := [package for package in needed if importlib.util.find_spec(package) is None]:
        raise EnvironmentLacks(
            f"a cluster needs the Python package {missing[0]}", "run: pip install 'powercut[cluster]'"
        )


def local_workers(address: str) -> int:
    """How many worker processes an address asks for on this host; 0: it is that of a scheduler."""
    found = _LOCAL.fullmatch(address)
    return int(found[1]) if found else 0


def wants_dashboard(address: str) -> bool:
    """Whether an address asks for a dashboard on this host, which every user of the host can look at."""
    found = _LOCAL.fullmatch(address)
    return bool(found and found[2])


def is_encrypted(address: str) -> bool:
    """Whether both sides of a scheduler's address show certificates (TLS)."""
    return address.partition("://")[0] in _ENCRYPTED


def warning_of(address: str) -> str:
    """What a user has to know of an address before it is used; empty for nothing."""
    if not _REMOTE.fullmatch(address) or is_encrypted(address):
        return ""
    return (
        f"{address} is neither encrypted nor authenticated: whoever reaches the scheduler or a worker runs "
        "programs as their users, and as you; tls:// is (SECURITY.md)"
    )


@dataclass(frozen=True, slots=True)
class ClusterWorker:
    """A worker's process. `name`: for people. `slots`: how many cases it takes at once."""

    address: str
    name: str
    slots: int


class WorkerPool(Protocol):
    """`ask` and `give` block, each in whatever thread; the others do not, and are of one thread."""

    @property
    def description(self) -> str:
        """For people: the address, and where its dashboard is."""

    def listen(self, on_note: Callable[[Note], None]) -> None:
        """Have what workers tell while they work passed on, in another thread."""

    def workers(self) -> dict[str, ClusterWorker]:
        """The workers that are there now, by address. Raises ClusterGone."""

    def ask(self, address: str, question: Callable[..., T], *given: object) -> T:
        """What a worker answers. Raises what it raised, and CancelledError after `forget`."""

    def give(self, address: str, sha256: str, blob: Path) -> None:
        """Have a worker keep a blob (`blobs.keep`)."""

    def work(self, address: str, job: Job, on_end: Callable[[Done | BaseException], None]) -> None:
        """Ask for `site.work`. `on_end` is told what came of it, in another thread."""

    def forget(self, address: str) -> None:
        """Do without what a worker was asked for."""

    def dismiss(self, address: str) -> None:
        """Have the worker end all it does for the run, guests as well; does not wait."""

    def close(self) -> None:
        """Have every worker end what it does for the run, and leave."""
