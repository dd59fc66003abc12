"""Turns errors into a message and an exit code."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from harness.cli.console import errors
from harness.errors import ExitCode, PowercutError, UsageError
from harness.host.console import OutputClosed, forget
from harness.host.files import is_full
from harness.host.text import indented, one_line
from harness.model import Verdict


def guarded(command: Callable[..., ExitCode | None]) -> Callable[..., None]:
    """Errors become a message and an exit code. Only our own defects show a traceback; they exit with
    UNDECIDED, since 1 would accuse a file system.
    """

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            _need_text(sys.argv)
            code = command(*args, **kwargs)
        except PowercutError as e:
            say_error(e)
            code = e.exit_code
        except OutputClosed as e:
            forget(sys.stdout)
            _say_unread(e)
            code = ExitCode.OUTPUT_CLOSED
        except KeyboardInterrupt as e:
            _say("; continue with: ".join(["interrupted", *getattr(e, "__notes__", ())[:1]]))
            code = ExitCode.INTERRUPTED
        except (OSError, sqlite3.OperationalError) as e:
            _say_refused(e)
            code = ExitCode.UNDECIDED
        except subprocess.CalledProcessError as e:
            _say_program(e)
            code = ExitCode.UNDECIDED
        except Exception:  # nothing above this sets an exit code
            _say_traceback()
            _say("this is a defect of powercut and says nothing about any file system")
            code = ExitCode.UNDECIDED
        sys.exit(int(code or 0))

    return run


def _need_text(words: Sequence[str]) -> None:
    """Raises UsageError for a word that is no text: no file that a run leaves could hold it."""
    for word in words:
        if not word.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in word):
            encoding = sys.getfilesystemencoding().upper()
            raise UsageError(f"{os.fsencode(word)!r} is no text in {encoding}", "name it otherwise")


def agreed(question: str) -> bool:
    """Whether somebody says yes. Raises UsageError where nobody can be asked."""
    try:
        return click.confirm(question)
    except click.Abort as e:
        if isinstance(e.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from e
        raise UsageError("there is nobody to ask", "add --yes") from e


def code_of(*verdicts: Verdict) -> ExitCode:
    """The exit code for some verdicts: as for a run, a broken promise counts before an undecided one."""
    codes = {
        Verdict.FAIL: ExitCode.INCONSISTENT,
        Verdict.UNKNOWN: ExitCode.UNDECIDED,
        Verdict.PASS: ExitCode.CONSISTENT,
    }
    return next((code for verdict, code in codes.items() if verdict in verdicts), ExitCode.NOTHING_RUN)


def say_error(e: PowercutError) -> None:
    """Print the error and its next step. Quoted lines of a guest's console are set off by a bar."""
    next_step = f"\n  next: {indented(e.next_step, '  | ')}" if e.next_step else ""
    _say(indented(e.what, "  | ") + next_step)


def make_harmless(e: click.ClickException) -> None:
    """click prints its own errors, and one of them may quote a file from elsewhere."""
    e.message = indented(e.message, "  ")  # type: ignore[misc]  # Final; but no other hook sees every message


def _say(text: str) -> None:
    with contextlib.suppress(OutputClosed):
        errors.block(f"powercut: {text}")


def _say_unread(e: OutputClosed) -> None:
    """Nobody reads the output, which is usual; but say how to go on with what this ended, where it did."""
    if again := next(iter(getattr(e, "__notes__", ())), ""):
        _say(f"nobody reads the output any more, which ended the run\n  next: {one_line(again)}")


def _say_traceback() -> None:
    """Print the current exception. It may quote a guest, so it goes through the escaping console."""
    with contextlib.suppress(OutputClosed):
        errors.block(traceback.format_exc())


def _say_refused(e: OSError | sqlite3.OperationalError) -> None:
    """Print an error of the host; with a traceback if it names no file, since that may be our own defect."""
    if is_full(e):
        full = f"the host's disk is full: {one_line(str(e))}"
        again = ["try again", *getattr(e, "__notes__", ())][-1]  # of a run or a series, where one is left
        _say(f"{full}\n  next: free some space, then {one_line(again)}")
    elif isinstance(e, OSError) and e.filename is not None:
        name = e.filename.decode(errors="replace") if isinstance(e.filename, bytes) else e.filename
        _say(f"{one_line(name)}: {e.strerror}\n  next: powercut doctor checks what a run needs")
    else:
        _say_traceback()
        _say(one_line(str(e)))


def _say_program(e: subprocess.CalledProcessError) -> None:
    """A program of the host failed, or was killed, that a run needs and that nobody expected to."""
    line = e.cmd if isinstance(e.cmd, str) else shlex.join(map(str, e.cmd))
    end = f"was killed by signal {-e.returncode}" if e.returncode < 0 else f"exited with {e.returncode}"
    said = e.stderr.decode(errors="replace") if isinstance(e.stderr, bytes) else e.stderr or ""
    _say(
        indented(f"{line} {end}\n{said}".strip(), "  | ")
        + "\n  next: powercut doctor checks what a run needs"
    )
