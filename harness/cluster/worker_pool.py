"""The workers of a cluster, as `harness.cluster.dispatch` sees them: whom there is, what they are asked,
what they answer.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.errors import EnvironmentLacks, UsageError

_LOCAL = re.compile(r"local:([1-9]\d{0,2})(\+dashboard)?")
_REMOTE = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+:\d+")
_ENCRYPTED = ("tls", "wss")


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


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a question: what the worker returned, or what it raised."""

    ticket: int
    value: object = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A note that a worker sent while it works (`harness.cluster.messages.Note`)."""

    note: bytes


Event = Answer | Said


class WorkerPool(Protocol):
    """Owned by one thread. A *ticket* numbers a question."""

    @property
    def description(self) -> str:
        """For people: the address, and where its dashboard is."""

    def workers(self) -> dict[str, ClusterWorker]:
        """The workers that are there now, by address. Raises ClusterGone."""

    def ticket(self) -> int:
        """A number that no question has had."""

    def identify(self, ticket: int, address: str) -> None:
        """Ask for `site.identity`."""

    def fit(self, ticket: int, address: str, requirements: bytes) -> None:
        """Ask for `site.fit`."""

    def give(self, ticket: int, address: str, sha256: str, blob: Path) -> None:
        """Have the worker keep a blob (`blobs.keep`)."""

    def work(self, ticket: int, address: str, job: bytes) -> None:
        """Ask for `site.work`."""

    def forget(self, ticket: int) -> None:
        """Do without an answer; what has not begun is not begun."""

    def dismiss(self, address: str) -> None:
        """Have the worker end all it does for the run, guests as well; does not wait."""

    def events(self, timeout_s: float) -> list[Event]:
        """What has arrived; waits so long for the first."""

    def close(self) -> None:
        """Have every worker end what it does for the run, and leave."""
