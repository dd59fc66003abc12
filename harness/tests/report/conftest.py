"""The demo run and golden files.

`POWERCUT_UPDATE_GOLDEN=1 pytest harness/tests/report` writes the golden files anew; read the difference
before committing it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.store import RunStore
from harness.summary import Summary, summarise
from harness.tests.report.demo import demo_run

SOURCE = "reports/latest"
_GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    """The demo run; tests only read it."""
    with demo_run(tmp_path_factory.mktemp("demo")) as store:
        yield store


@pytest.fixture(scope="session")
def summary(demo: RunStore) -> Summary:
    return summarise(demo)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """`golden(name, text)`: `text` is what the golden file holds."""

    def compare(name: str, text: str) -> None:
        file = _GOLDEN / name
        if os.environ.get("POWERCUT_UPDATE_GOLDEN") == "1":
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8")

    return compare
