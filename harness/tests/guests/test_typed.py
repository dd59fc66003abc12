"""A guest's console that is fed from a pipe. In place of the machine: a program that throws away what comes
before its prompt, as a serial port does that nobody has opened.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.guests.typed import PROMPT, run_typed

MACHINE = """
import os, select, sys
while select.select([0], [], [], 0.2)[0] and os.read(0, 4096):
    pass
os.write(1, b"booted\\n" + PROMPT[:4])
os.write(1, PROMPT[4:])
got = b""
while b"exit\\n" not in got:
    got += os.read(0, 4096)
os.write(1, repr(got).encode())
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("given", "got"),
    [
        (b"mount /dev/vda /mnt\nexit\n", rb"mount /dev/vda /mnt\nexit\n"),
        (b"dmesg\n", rb"dmesg\n\nexit\n"),
        (b"", rb"\nexit\n"),
    ],
)
def test_what_a_pipe_says_waits_for_the_prompt(given: bytes, got: bytes, tmp_path: Path) -> None:
    """`echo 'mount ...' | powercut repro --shell` lost its first characters; at the end of its input the
    guest waited for ever.
    """
    source, sink = tmp_path / "in", tmp_path / "out"
    source.write_bytes(given)
    with source.open("rb") as typed, sink.open("wb") as said:
        code = run_typed(
            [sys.executable, "-c", f"PROMPT = {PROMPT!r}\n{MACHINE}"], typed.fileno(), said.fileno()
        )
    assert code == 7
    assert sink.read_bytes().startswith(b"booted\n" + PROMPT)
    assert got in sink.read_bytes()


def test_a_machine_that_ends_before_its_prompt_reads_nothing() -> None:
    source, typed = os.pipe()
    try:
        assert (
            run_typed(["sh", "-c", "exit 3"], source, sys.__stderr__.fileno() if sys.__stderr__ else 2) == 3
        )
    finally:
        os.close(source)
        os.close(typed)
