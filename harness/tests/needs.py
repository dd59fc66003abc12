"""What a test needs of this host."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest

from harness.errors import PowercutError

_REQUIRED = "POWERCUT_REQUIRE_VM"


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Where what is tried inside cannot be had here, the test is skipped with the reason; with
    POWERCUT_REQUIRE_VM=1, as in CI, it fails.
    """
    try:
        yield
    except PowercutError as e:
        if os.environ.get(_REQUIRED) == "1":
            raise
        pytest.skip(str(e))  # the reason is the exception's; in CI it fails


def need_program(program: str) -> None:
    """The same for a program of this host."""
    with needed():
        if not shutil.which(program):
            raise PowercutError(f"{program} is not installed", "run: make setup")
