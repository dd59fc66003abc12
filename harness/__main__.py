"""`powercut`, and `python -m harness`."""

from __future__ import annotations

import io
import sys
from pathlib import Path


def main() -> None:
    """The command line. Interrupted while its modules are loaded, it ends as it does later. Letters that the
    output's encoding does not have are escaped.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as for standard error
    try:
        Path.cwd()
    except FileNotFoundError:  # no path could be told from it
        sys.stderr.write(
            "powercut: the folder in which this was started is gone\n  next: cd to another one\n"
        )
        sys.exit(2)
    try:
        from harness.cli import main as commands  # noqa: PLC0415 - it takes the better part of a second

        commands()
    except KeyboardInterrupt:
        sys.stderr.write("powercut: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":  # the workers of `--cluster local:N` import this module, and need no commands
    main()
