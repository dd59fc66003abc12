"""What a series says of the time that is left."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.host.progress import silent
from harness.series import work as series_work
from harness.series.work import Work, carry_out


@pytest.mark.parametrize(("up", "said"), [(False, "; about 2 minutes left"), (True, "")])
def test_no_time_is_left_once_it_is_up(monkeypatch: pytest.MonkeyPatch, said: str, *, up: bool) -> None:
    """ "the time given is up" was followed by "about 1 minute left"."""
    work: Work[Any] = object.__new__(Work)
    work._took = [60.0]
    monkeypatch.setattr(Work, "time_is_up", up)
    assert work._left(2) == said


def test_an_error_that_ends_a_series_has_the_command_that_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ended a campaign with the advice of a run."""

    class Full:
        def until_the_end(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def pause(self, end: object) -> None:
            assert end is None

    monkeypatch.setattr(series_work, "Work", lambda *_: Full())
    series = SimpleNamespace(path=tmp_path, argv=("campaign", "-c", "ext4/ordered"))
    with pytest.raises(OSError, match="No space") as caught:
        carry_out(cast(Any, series), cast(Any, SimpleNamespace(say=silent)))
    assert caught.value.__notes__ == [f"powercut campaign --resume {tmp_path}"]
