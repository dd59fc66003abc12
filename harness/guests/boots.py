"""Whether a spec's guests boot at all: a kernel that never does costs a few timeouts, not one per state."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from harness.errors import GuestLost, NeverBoots, VersionsDiffer

BOOTS_IN_A_ROW = 3
"""How many guests of one guest spec may fail to boot in a row before no further one is tried."""
_CONSOLE_BYTES = 600


@dataclass(frozen=True, slots=True)
class BootMessage:
    """That a guest came up; or with `error`, that it did not. `described`: machine and kernel."""

    described: str = ""
    error: GuestLost | VersionsDiffer | None = None


class Boots:
    """Counts consecutive boot failures of one spec's guests; thread-safe. A successful boot resets it.

    Where it is sent to another process, that one counts by itself, and sends what it counted (`messages`) for
    this one to `receive`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed = 0
        self._error: NeverBoots | VersionsDiffer | None = None
        self._messages: list[BootMessage] | None = None

    def __reduce__(self) -> tuple[Callable[[], Boots], tuple[()]]:
        return _noting, ()

    def messages(self) -> tuple[BootMessage, ...]:
        """What was noted since this was asked last."""
        with self._lock:
            messages, self._messages = tuple(self._messages or ()), None if self._messages is None else []
            return messages

    def receive(self, message: BootMessage) -> None:
        """Count what another process counted."""
        if message.error is None:
            self.succeeded()
        elif isinstance(message.error, VersionsDiffer):
            self.give_up(message.error)
        else:
            with contextlib.suppress(NeverBoots):
                self.failed(message.described, message.error)

    @property
    def given_up(self) -> NeverBoots | VersionsDiffer | None:
        """What `refuse_if_given_up` raises, if anything."""
        with self._lock:
            return self._error

    def refuse_if_given_up(self) -> None:
        """Raises NeverBoots once BOOTS_IN_A_ROW guests have failed to come up, VersionsDiffer once one was of
        another version.
        """
        if (error := self.given_up) is not None:
            raise error

    def succeeded(self) -> None:
        with self._lock:
            self._failed = 0
            self._note(BootMessage())

    def differs(self, error: VersionsDiffer) -> None:
        """A guest is of another version: all are, since they have one initramfs. So it is with disks."""
        with self._lock:
            self._error = error
            self._note(BootMessage(error=error))

    def give_up(self, error: NeverBoots | VersionsDiffer) -> None:
        """Another process has given up."""
        with self._lock:
            self._error = error

    def _note(self, message: BootMessage) -> None:
        if self._messages is not None:
            self._messages.append(message)

    def failed(self, described: str, lost: GuestLost) -> None:
        """Count a failure. Raises NeverBoots at the limit; `described`: machine and kernel."""
        with self._lock:
            self._failed += 1
            self._note(BootMessage(described, lost))
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


def _noting() -> Boots:
    boots = Boots()
    boots._messages = []
    return boots
