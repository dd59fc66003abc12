"""Addresses of clusters: what each is, and what a user has to know of it."""

from __future__ import annotations

import importlib.util
import re

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
