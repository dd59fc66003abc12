"""A folder that may not be entered, also where the tests run as root."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534


@contextlib.contextmanager
def not_entered() -> Iterator[Path]:
    """A folder that this process, which is another user's meanwhile, can write to; with a folder `private` in
    it, which it may not enter. Not below pytest's own folder: that is private as a whole.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o777)
        private = folder / "private"
        private.mkdir()
        (private / "inside").mkdir()
        (folder / "link").symlink_to(private / "inside")
        private.chmod(0)
        own = os.geteuid()
        try:
            if own == 0:
                os.seteuid(_NOBODY)
            yield folder
        finally:
            os.seteuid(own)
            private.chmod(0o700)
