"""`powercut rootfs`: the image's path, and what is said where it cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import rootfs as command
from harness.errors import EnvironmentLacks
from harness.host.progress import Progress
from harness.tests.cli.runner import powercut


@pytest.mark.parametrize("words", [[], ["--again"]])
def test_the_path_of_the_image_is_printed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def root_image(progress: Progress, *, again: bool) -> Path:
        asked.append(again)
        return Path("/cache/root.erofs")

    monkeypatch.setattr(command, "root_image", root_image)
    done = powercut("rootfs", *words)
    assert (done.exit_code, done.stdout) == (0, "/cache/root.erofs\n")
    assert asked == [bool(words)]


def test_what_is_missing_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m harness.tools_image.rootfs` was a command line of its own, with imports that pointed up."""

    def root_image(progress: Progress, *, again: bool) -> Path:
        raise EnvironmentLacks("no mmdebstrap", "run: apt-get install mmdebstrap")

    monkeypatch.setattr(command, "root_image", root_image)
    done = powercut("rootfs")
    assert done.exit_code == 3
    assert "no mmdebstrap" in done.stderr
    assert "Traceback" not in done.stderr
