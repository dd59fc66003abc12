"""A disk that is started for real, and what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.guests.disk import Disk, find_binary
from harness.tests.needs import needed
from harness.tests.states.logs import BASE


@pytest.fixture(scope="module")
def shared() -> Iterator[Disk]:
    """One process and one folder for all examples; each opens its own log."""
    with needed():
        find_binary()
    with Disk() as disk:
        yield disk


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base"
    path.write_bytes(BASE)
    return path
