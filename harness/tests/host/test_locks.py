"""One process at a time, and the others are told."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from harness.host.locks import exclusive


def _hold(path: Path, has: str, told: str) -> None:
    """Let go once the other has been told, or after a minute."""
    with exclusive(path, "it", lambda _: None):
        Path(has).touch()
        end = time.monotonic() + 60
        while not Path(told).exists() and time.monotonic() < end:
            time.sleep(0.01)


def test_the_second_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    """Two test processes each built the same kernel, for minutes."""
    has, told = tmp_path / "has", tmp_path / "told"
    other = multiprocessing.get_context("spawn").Process(
        target=_hold, args=(tmp_path / "lock", str(has), str(told))
    )
    other.start()
    while not has.exists() and other.is_alive():
        time.sleep(0.01)

    def say(text: str) -> None:
        (tmp_path / "part").write_text(text)
        (tmp_path / "part").rename(told)

    with exclusive(tmp_path / "lock", "the kernel", say):
        pass
    other.join(60)
    assert told.read_text() == "another process is using the kernel: waiting for it"


def test_nobody_is_told_of_a_lock_that_is_free(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        with exclusive(tmp_path / "lock", "the kernel", said.append):
            pass
    assert said == []
