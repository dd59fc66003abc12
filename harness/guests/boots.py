"""Whether a spec's guests boot at all: a kernel that never does costs a few timeouts, not one per state."""

from __future__ import annotations

import threading

from harness.errors import GuestLost, NeverBoots, VersionsDiffer

BOOTS_IN_A_ROW = 3
"""How many guests of one guest spec may fail to boot in a row before no further one is tried."""
_CONSOLE_BYTES = 600


class Boots:
    """Counts consecutive boot failures of one spec's guests; thread-safe. A successful boot resets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed = 0
        self._error: NeverBoots | VersionsDiffer | None = None

    def require_hope(self) -> None:
        """Raises NeverBoots once BOOTS_IN_A_ROW guests have failed to come up, VersionsDiffer once one was of
        another version.
        """
        with self._lock:
            if self._error is not None:
                raise self._error

    def succeeded(self) -> None:
        with self._lock:
            self._failed = 0

    def differs(self, error: VersionsDiffer) -> None:
        """A guest is of another version: all are, since they have one initramfs."""
        with self._lock:
            self._error = error

    def failed(self, described: str, lost: GuestLost) -> None:
        """Count a failure. Raises NeverBoots at the limit; `described`: machine and kernel."""
        with self._lock:
            self._failed += 1
            if self._failed < BOOTS_IN_A_ROW:
                return
            end = lost.console.strip()[-_CONSOLE_BYTES:]
            self._error = NeverBoots(
                f"{self._failed} guests in a row did not come up ({described}), so no further one is tried; "
                f"the last: {lost.what}"
                + (f"; its console ends: {end}" if end else "; its console is empty"),
                "try the kernel by itself; powercut doctor looks for what guests need",
            )
            raise self._error from lost
