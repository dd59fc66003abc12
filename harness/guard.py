"""Errors as a command line tells them: a message and an exit code."""

from __future__ import annotations

import errno
import sqlite3
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from rich.console import Console

from harness.errors import ExitCode, PowercutError

errors = Console(stderr=True, soft_wrap=True)


def guarded(command: Callable[..., ExitCode | None]) -> Callable[..., None]:
    """Errors of the harness become a message and an exit code; only defects of ours show a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs)
        except PowercutError as e:
            errors.print(f"powercut: {e}", markup=False, highlight=False)
            code = e.exit_code
        except KeyboardInterrupt:
            errors.print("powercut: interrupted")
            code = ExitCode.INTERRUPTED
        except (OSError, sqlite3.OperationalError) as e:
            if getattr(e, "errno", None) != errno.ENOSPC and "disk is full" not in str(e):
                raise
            errors.print(
                f"powercut: the host's disk is full: {e}\n  next: free some space, then powercut run --resume"
            )
            code = ExitCode.UNDECIDED
        sys.exit(int(code or 0))

    return run
