"""Where the commands write to. Errors go to `harness.cli.guard.errors`."""

from __future__ import annotations

from rich.console import Console

console = Console(soft_wrap=True, markup=False, emoji=False)  # paths are printed as they are
