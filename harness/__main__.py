"""`powercut`, and `python -m harness`."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path
from types import FrameType


def main() -> None:
    """The command line. Letters that the output's encoding does not have are escaped.

    SIGTERM and SIGHUP (a CI time limit, a closed terminal) act like Ctrl-C: guests are stopped, scratch files
    removed, and the verdicts so far are kept and reported. Interrupted while its modules are loaded, it ends
    as it does later.
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
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # an ignored signal stays ignored: nohup
                signal.signal(number, _interrupt)
        from harness.cli import main as commands  # noqa: PLC0415 - it takes the better part of a second

        commands()
    except KeyboardInterrupt:
        sys.stderr.write("powercut: interrupted\n")
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":  # the workers of `--cluster local:N` import this module, and need no commands
    main()
