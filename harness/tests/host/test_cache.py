"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.host.cache import cache_dir


@pytest.mark.parametrize("variable", ["POWERCUT_CACHE", "XDG_CACHE_HOME"])
def test_a_cache_named_from_here_is_the_same_elsewhere(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt, which runs in another folder, did not find its configuration in it."""
    monkeypatch.delenv("POWERCUT_CACHE", raising=False)
    monkeypatch.setenv(variable, "cache")
    monkeypatch.chdir(tmp_path)
    made = cache_dir("archive")
    assert made.is_absolute()
    assert made.is_relative_to(tmp_path / "cache")
