"""What tests of campaigns share: a short list of sequences, and no look for a kernel."""

from __future__ import annotations

import pytest

from harness.campaigns import generators
from harness.campaigns import work as work_module
from harness.workloads.generate import names_of


@pytest.fixture(autouse=True)
def a_short_list_of_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sequences of two are made in seconds, which is too long for each test process."""
    names = tuple(names_of("ace1"))
    monkeypatch.setattr(generators, "every_two", lambda: names)
    monkeypatch.setattr(work_module, "look_up_chosen", lambda choice: None)
    monkeypatch.setattr("harness.run.look_up_chosen", lambda choice: None)
