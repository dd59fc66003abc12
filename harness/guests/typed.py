"""A guest's console whose input is a pipe or a file, and no terminal."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence

PROMPT = b"powercut# "
"""Of the shell that the agent opens (`vms/agent/src/shell.rs`)."""
_END = b"\nexit\n"
"""Powers off. Not Ctrl-D: typed while a program runs, it does not reach the shell."""
_READ_BYTES = 1 << 16


def run_typed(command: Sequence[str], source: int, sink: int) -> int:
    """Run a machine with a shell on its console. The file descriptor `source` is read once the shell has
    shown its prompt: what a console gets before is lost. The machine prints into `sink`. Returns its exit
    code.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as machine:
        try:
            _copy(machine, source, sink)
        except BaseException:
            machine.kill()
            raise
        return machine.wait()


def _copy(machine: subprocess.Popen[bytes], source: int, sink: int) -> None:
    assert machine.stdout is not None  # noqa: S101  # it is a pipe; tells mypy
    end, asked = b"", False
    while said := os.read(machine.stdout.fileno(), _READ_BYTES):
        _write(sink, said)
        end = (end + said)[-len(said) - len(PROMPT) :]
        if not asked and PROMPT in end:
            asked = True
            # A descriptor of its own: it may wait for more when the caller has closed the other.
            threading.Thread(target=_type, args=(machine, os.dup(source)), daemon=True).start()


def _type(machine: subprocess.Popen[bytes], source: int) -> None:
    assert machine.stdin is not None  # noqa: S101
    try:
        while typed := os.read(source, _READ_BYTES):
            _write(machine.stdin.fileno(), typed)
        _write(machine.stdin.fileno(), _END)
    except (OSError, ValueError):  # the guest was powered off before all of it was read
        return
    finally:
        os.close(source)


def _write(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]
