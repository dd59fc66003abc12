"""How a command ends: what went wrong is said, with a code, and a traceback is for defects alone."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable

import pytest

from harness.cli.guard import agreed, code_of, guarded
from harness.errors import ExitCode, KernelError, UsageError
from harness.host.console import OutputClosed, SafeConsole
from harness.model import Verdict


def ended(command: Callable[[], ExitCode | None]) -> int:
    with pytest.raises(SystemExit) as caught:
        guarded(command)()
    return int(caught.value.code or 0)


def raises(error: BaseException) -> Callable[[], ExitCode | None]:
    def command() -> ExitCode | None:
        raise error

    return command


def test_a_code_is_passed_on_and_none_is_good() -> None:
    assert ended(lambda: ExitCode.INCONSISTENT) == 1
    assert ended(lambda: None) == 0


def test_a_word_that_is_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run -- ./my-test $'\\xff'` was a traceback, and so was a run directory of such a name."""
    monkeypatch.setattr(sys, "argv", ["powercut", "run", os.fsdecode(b"\xff")])
    assert ended(lambda: ExitCode.CONSISTENT) == ExitCode.USAGE
    assert "is no text in UTF-8" in capsys.readouterr().err


def test_what_a_message_quotes_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """`root:x:0` became a red cross: rich's names of emoji."""
    assert ended(raises(UsageError("root:x:0 [bold] :warning:", "look"))) == ExitCode.USAGE
    assert capsys.readouterr().err == "powercut: root:x:0 [bold] :warning:\n  next: look\n"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOENT, errno.EISDIR, errno.ENOTDIR])
def test_a_file_that_the_host_refuses_is_named(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(raises(OSError(number, os.strerror(number), "/a/[b]"))) == ExitCode.UNDECIDED
    said = capsys.readouterr().err
    assert said.startswith(f"powercut: /a/[b]: {os.strerror(number)}\n  next: ")


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left"), sqlite3.OperationalError("database or disk is full")],
)
def test_a_full_disk_says_how_to_go_on(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """It was told to go on with a run where none was left, and where none was made: `list >/dev/full`."""
    assert ended(raises(error)) == ExitCode.UNDECIDED
    assert capsys.readouterr().err.endswith("\n  next: free some space, then try again\n")
    error.add_note("powercut run --resume /r")
    assert ended(raises(error)) == ExitCode.UNDECIDED
    assert capsys.readouterr().err.endswith("\n  next: free some space, then powercut run --resume /r\n")


def test_a_program_of_the_host_that_was_killed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """`qemu --version`, killed by a host without memory, was a traceback and called our defect."""

    def command() -> None:
        subprocess.run(
            ["sh", "-c", "echo 'no\x1b[2J memory' >&2; kill -9 $$"], check=True, capture_output=True
        )

    assert ended(command) == ExitCode.UNDECIDED
    first, quoted, step, *_ = capsys.readouterr().err.split("\n")
    assert first.startswith("powercut: sh -c ")
    assert first.endswith(" was killed by signal 9")
    assert quoted == "  | no\\x1b[2J memory"
    assert step == "  next: powercut doctor checks what a run needs"
    assert ended(raises(subprocess.CalledProcessError(2, ["tar", "x y"]))) == ExitCode.UNDECIDED
    assert capsys.readouterr().err.startswith("powercut: tar 'x y' exited with 2\n  next: ")


@pytest.mark.parametrize("error", [OSError("closed"), ValueError("x"), sqlite3.OperationalError("no table")])
def test_a_defect_of_ours_shows_its_traceback_and_accuses_no_file_system(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code for it is 1, which is ours for inconsistent."""
    assert ended(raises(error)) == ExitCode.UNDECIDED
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert str(error) in said


def test_a_message_cannot_steer_the_terminal_or_give_advice(capsys: pytest.CaptureFixture[str]) -> None:
    """The end of a guest's console stands in errors: it could clear the screen, or add a next step."""
    ended(raises(KernelError("no answer: \x1b[2J\n  next: run this", "look at the console")))
    assert capsys.readouterr().err == (
        "powercut: no answer: \\x1b[2J\n  |   next: run this\n  next: look at the console\n"
    )


def test_a_traceback_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ended(raises(ValueError("\x1b[2J")))
    assert "\x1b" not in capsys.readouterr().err


def test_an_output_that_nobody_reads_ends_as_shells_expect() -> None:
    """rich would exit with 1, which is ours for inconsistent."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        closed = SafeConsole(file=pipe)
        assert ended(lambda: closed.say("all is well")) == 128 + signal.SIGPIPE
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def test_a_run_that_ends_with_its_output_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    """`powercut run | head -1` said nothing; standard error is still read."""
    closed = OutputClosed()
    assert ended(raises(closed)) == ExitCode.OUTPUT_CLOSED
    assert capsys.readouterr().err == ""
    closed.add_note("powercut run --resume /r")
    assert ended(raises(closed)) == ExitCode.OUTPUT_CLOSED
    assert capsys.readouterr().err.endswith("\n  next: powercut run --resume /r\n")


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([Verdict.PASS], ExitCode.CONSISTENT),
        ([Verdict.PASS, Verdict.UNKNOWN], ExitCode.UNDECIDED),
        ([Verdict.UNKNOWN, Verdict.FAIL, Verdict.PASS], ExitCode.INCONSISTENT),
        ([], ExitCode.NOTHING_RUN),
    ],
)
def test_a_broken_promise_counts_before_what_could_not_be_decided(
    verdicts: list[Verdict], code: ExitCode
) -> None:
    """powercut try took the highest code: a variant that could not be judged hid that another was broken."""
    assert code_of(*verdicts) is code


def test_of_two_commands_that_go_on_the_first_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> ExitCode:
        e = KeyboardInterrupt()
        e.add_note("powercut one")
        e.add_note("powercut two")
        raise e

    with pytest.raises(SystemExit):
        guarded(interrupted)()
    assert capsys.readouterr().err == "powercut: interrupted; continue with: powercut one\n"


@pytest.mark.parametrize(
    ("answered", "code"), [(KeyboardInterrupt, ExitCode.INTERRUPTED), (EOFError, ExitCode.USAGE)]
)
def test_a_question_that_is_interrupted_is_not_one_that_nobody_could_be_asked(
    answered: type[BaseException], code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at "delete them?" ended with 2, and said "there is nobody to ask"."""

    def prompt(_: str) -> str:
        raise answered

    monkeypatch.setattr("click.termui.visible_prompt_func", prompt)
    assert ended(lambda: ExitCode.CONSISTENT if agreed("delete them?") else ExitCode.UNDECIDED) == code
