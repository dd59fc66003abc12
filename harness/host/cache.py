"""The cache of what can be rebuilt: kernels, and which accelerator works."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir(*parts: str) -> Path:
    """A directory below the user's cache, made on first use.

    `$POWERCUT_CACHE`, else `$XDG_CACHE_HOME/powercut`, else `~/.cache/powercut`.
    """
    configured = os.environ.get("POWERCUT_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "powercut"
    path = (Path(configured) if configured else base).joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path
