"""What a run reports while it is in progress."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import pytest
from rich.console import Console

from harness.host import progress as progress_module
from harness.host.console import OutputClosed
from harness.host.progress import Bars, Lines, at_work, telling, time_left


@pytest.mark.parametrize("kind", [Bars, Lines])
def test_the_end_of_a_guests_console_cannot_pass_for_a_line_of_ours(kind: type[Bars] | type[Lines]) -> None:
    out = io.StringIO()
    with kind(Console(file=out, width=80)) as progress:
        progress.say("ext4-ordered/w: guest lost: \nPassed all 3 cases")
    assert "ext4-ordered/w: guest lost: \n    Passed all 3 cases\n" in out.getvalue()


@pytest.mark.parametrize("kind", [Bars, Lines])
def test_what_was_not_begun_may_advance(kind: type[Bars] | type[Lines]) -> None:
    """That is how a case tells that work goes on."""
    with kind(Console(file=io.StringIO(), width=80)) as progress:
        progress.advance("recorded", 0)


@pytest.mark.parametrize(
    ("seconds", "share", "left"),
    [
        (200, 5 / 31, "about 17 min left"),
        (60, 1 / 2, "about 1 min left"),
        (10, 1 / 2, "less than a minute left"),
        (600, 1, ""),
        (600, 0, ""),
    ],
)
def test_the_minutes_that_are_left_follow_from_those_that_it_took(
    seconds: float, share: float, left: str
) -> None:
    """31 experiments in 200 s, and "findings 0/5"; of a triage and of a run they are told alike."""
    assert time_left(seconds, share) == left


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ({"recorded": (10, 40)}, "about 5 min left"),
        ({"recorded": (1, 40)}, ""),  # the first one waited for a guest
        ({"recorded": (1, 2)}, "about 2 min left"),
        ({"recorded": (10, 40), "operations": (1, 3000)}, "about 5 min left"),  # it said 10 days
        ({"recorded": (40, 40), "states": (500, 1000)}, "about 2 min left"),
        ({"recorded": (40, 40), "states": (1000, 1000)}, ""),
    ],
)
def test_the_time_left_follows_from_whole_units(
    work: dict[str, tuple[int, int]], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Lines(Console(file=out, width=200)) as progress:
        for what, (done, total) in work.items():
            progress.begin(what, total)
            progress.advance(what, done)
        now[0] = 100.0
    *_, line = out.getvalue().splitlines()
    assert line.endswith(said) if said else "left" not in line


def test_soon_is_not_said_for_longer_than_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "less than a minute left" stood there for two minutes."""
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Lines(Console(file=out, width=200)) as progress:
        progress.begin("recorded", 1000)
        progress.advance("recorded", 900)
        for now[0] in (100.0, 140.0, 180.0, 220.0):
            progress.advance("recorded", 1)
        told = ["left" in line for line in out.getvalue().splitlines()[-4:]]
    assert told == [True, True, False, False]


@pytest.mark.parametrize("terminal", [False, True])
def test_what_is_at_work_is_said_while_it_is(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PLAIN_INTERVAL_S", 0.01)
    heard = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            if "it [b]oots" in text:
                heard.set()
            return super().write(text)

    out = Out()
    with at_work("it [b]oots", Console(file=out, width=80, force_terminal=terminal)):
        assert heard.wait(60)
    assert ("\x1b" in out.getvalue()) is terminal, "one line that moves"


def test_a_line_comes_before_the_first_unit_is_done() -> None:
    """The first recording waits for an emulated guest: half a minute passed without a word."""
    out = io.StringIO()
    with Lines(Console(file=out, width=200)) as progress:
        progress.begin("recorded", 8)
        assert out.getvalue().strip() == "0 s  recorded 0/8"


def test_an_output_that_nobody_reads_ends_the_telling_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`run | head -1` printed that of a thread, while base images were made."""
    died, told = list[type[BaseException]](), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda of: died.append(of.exc_type))

    def unread(_: str) -> None:
        told.set()
        raise OutputClosed

    with telling(lambda: "making base images", unread, every_s=0.001):
        assert told.wait(60)
    assert not died
