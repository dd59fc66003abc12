"""What a series says of the time that is left."""

from __future__ import annotations

from typing import Any

import pytest

from harness.series.work import Work


@pytest.mark.parametrize(("up", "said"), [(False, "; about 2 minutes left"), (True, "")])
def test_no_time_is_left_once_it_is_up(monkeypatch: pytest.MonkeyPatch, said: str, *, up: bool) -> None:
    """ "the time given is up" was followed by "about 1 minute left"."""
    work: Work[Any] = object.__new__(Work)
    work._took = [60.0]
    monkeypatch.setattr(Work, "time_is_up", up)
    assert work._left(2) == said
