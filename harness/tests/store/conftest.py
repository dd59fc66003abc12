"""What the store's tests share: a run of one case."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.store import RunStore
from harness.store.records import CaseInfo
from harness.tests.store.samples import CASE, INFO


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with RunStore.create(tmp_path, "t", INFO) as made:
        made.add_case(CaseInfo(CASE, generated=9, distinct=8))
        yield made
