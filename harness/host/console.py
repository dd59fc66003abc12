"""A console for text that may be foreign: from a guest, or from somebody else's run directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from harness.host.text import framed, one_line, printable


class OutputClosed(Exception):
    """The reader of standard output is gone: `powercut ... | head`."""


def forget(output: TextIO) -> None:
    """Discard what is buffered for an output that nobody reads; Python would complain about it at its end."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: it has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


class SafeConsole(Console):
    """A console on which foreign text can neither control the terminal nor begin a line.

    A string or a Text that is given to `print` is one line: a newline in it is shown as `\\n`, unless
    `harness.host.text.indented` has indented what follows. `block` prints several lines. Only rich's own
    colours and cursor movements reach the terminal.
    """

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*map(_framed, objects), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def say(self, text: str, style: str | None = None) -> None:
        """Print one line verbatim: no markup, no highlighting, newlines escaped."""
        self.print(one_line(text), style=style, highlight=False, markup=False)

    def block(self, text: str) -> None:
        """Print lines verbatim. Whoever puts them together sees to it that each is a line of Powercut."""
        for line in text.split("\n"):
            self.say(line)

    def on_broken_pipe(self) -> None:
        """rich would exit with 1, which means "inconsistent" here."""
        raise OutputClosed


def _framed(shown: Any) -> Any:
    if isinstance(shown, str):
        return framed(shown)
    if isinstance(shown, Text) and framed(shown.plain) != shown.plain:
        return Text(framed(shown.plain), shown.style)
    return shown
