"""Where commands write: `console` for results, `errors` for errors."""

from __future__ import annotations

from harness.host.console import SafeConsole

console = SafeConsole(soft_wrap=True, markup=False, emoji=False)  # paths are printed as they are
errors = SafeConsole(stderr=True, soft_wrap=True, markup=False, emoji=False)
