"""The run directory of a measurement, and the file in it that says what was measured.

`<out>/runs/<date>-<name>/`, beside those of `powercut run`. `<out>/latest` stays with the last *run*: it
names what `powercut repro` and `powercut report` read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.errors import StoreError
from harness.host.files import write_atomically
from harness.host.trees import need_plain
from harness.measurements.results import Measurement

FILE_NAME = "measurements.json"
"""Of the file that holds a list of `Measurement`."""


def write_measurements(run: Path, measurements: Sequence[Measurement]) -> None:
    """Replace the measurements that a run directory holds."""
    write_atomically(run / FILE_NAME, msgspec.json.format(msgspec.json.encode(measurements), indent=1))


def read_measurements(run: Path) -> list[Measurement]:
    """Those of a run directory; an empty list where it holds none. Raises StoreError for a file that cannot
    be read.
    """
    need_plain(run)
    path = run / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Measurement]) if path.exists() else []
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise StoreError(f"{path} cannot be read: {e}", "measure again: it is written anew") from e
