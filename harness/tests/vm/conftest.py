"""What tests with real guests share: a check that guests can be had, and one recorded run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from harness.guests import qemu
from harness.guests.disk import find_binary
from harness.guests.guest_specs import built_kernel
from harness.guests.machine import flavour_of
from harness.guests.session import find_agent
from harness.guests.uml import has_driver
from harness.host.progress import Lines
from harness.kernels.build import build
from harness.kernels.find import find_kernel
from harness.kernels.variants import kept_tree
from harness.plan import Plan
from harness.run import create_run, execute
from harness.store import RunStore
from harness.summary import Summary
from harness.tests.needs import needed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.vm)


@pytest.fixture(scope="session", autouse=True)
def guests_can_be_had() -> None:
    """Skip with the reason where a guest cannot be booted; fail where that must not be."""
    with needed():
        qemu.version()
        find_binary()
        find_agent()
        find_kernel("debian-6.12")


@pytest.fixture(scope="session")
def uml_kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A UML kernel of the source of debian-6.12 with today's disk driver; built where it is not in the cache,
    which takes minutes.
    """
    found = built_kernel("uml", find_kernel("debian-6.12").package_version)
    if found and has_driver(found.image):
        return found.image
    flavour = flavour_of("uml")
    log = tmp_path_factory.mktemp("kernel") / "build.log"
    how = ("linux-source-6.12", "uml", flavour, os.cpu_count() or 1)
    with needed():
        with kept_tree(*how, print):
            pass  # the kernels of other tests are built from it, and this one is its own
        image, _ = build(*how, log, print)
    return image


def run_plan(plan: Plan, reports: Path) -> tuple[Summary, Path]:
    """Execute a plan in a new run directory; where it is, and what it came to."""
    with create_run(plan, reports, "test") as store:
        return execute(plan, store, Lines(Console(quiet=True))), store.path


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Summary, Path]]:
    """ext4 as it should be and without barriers, under one small workload."""
    plan = Plan(configurations=["ext4/ordered", "ext4/nobarrier"], workloads=["append-fsync"], jobs=2)
    yield run_plan(plan, tmp_path_factory.mktemp("compared"))


@pytest.fixture
def compared_store(compared: tuple[Summary, Path]) -> Iterator[RunStore]:
    with RunStore.open(compared[1]) as store:
        yield store


def in_shell(words: list[str], typed: bytes) -> tuple[str, str]:
    """Type into the shell in a guest that a command opens: what came before its prompt, and after."""
    command = [sys.executable, "-m", "harness", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as console:
        assert console.stdin is not None
        assert console.stdout is not None
        limit = threading.Timer(300, console.kill)
        limit.start()
        try:
            said = b""
            while b"powercut# " not in said and (more := os.read(console.stdout.fileno(), 4096)):
                said += more
            console.stdin.write(typed)  # before the prompt nobody reads it
            console.stdin.flush()
            answer = console.stdout.read()
        finally:
            limit.cancel()
            console.kill()
    return said.decode(errors="replace"), answer.decode(errors="replace")
