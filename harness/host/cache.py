"""The cache of what can be rebuilt: kernels, and which accelerator works."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import EnvironmentLacks


def cache_dir(*parts: str) -> Path:
    """A directory below the user's cache, made on first use.

    `$POWERCUT_CACHE`, else `$XDG_CACHE_HOME/powercut`, else `~/.cache/powercut`. Raises EnvironmentLacks
    where none of them can be had: a container's user has no home directory, or one that is not writable.
    """
    configured = os.environ.get("POWERCUT_CACHE")
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "powercut"
        path = (Path(configured) if configured else base).joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as e:  # RuntimeError: Path.home() without HOME and an entry in passwd
        raise EnvironmentLacks(
            f"no directory for the cache: {e}",
            "name one that this user may write to: export POWERCUT_CACHE=DIR",
        ) from e
    return path
