"""Built parts of Powercut that run on the host of a guest, by the variables that name others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from harness.guests.disk import find_binary
from harness.guests.uml import find_shim

BUILT_PARTS: Mapping[str, Callable[[], Path]] = MappingProxyType(
    {"POWERCUT_DISK": find_binary, "POWERCUT_UMLSHIM": find_shim}
)
"""Each raises EnvironmentLacks where it is missing. The agent is not here: it is in the initramfs."""
