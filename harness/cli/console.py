"""Where commands write: `console` for results, `errors` for errors.

Text may come from a guest or from somebody else's run directory, so both escape control characters, and
`say` escapes newlines too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from harness.host.text import one_line, printable


class OutputClosed(Exception):
    """The reader of standard output is gone: `powercut ... | head`."""


class SafeConsole(Console):
    """A console whose text cannot contain terminal controls; only rich's own colours and cursor movements
    reach the terminal.
    """

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(printable(o) if isinstance(o, str) else o for o in objects), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def say(self, text: str, style: str | None = None) -> None:
        """Print one line verbatim: no markup, no highlighting, newlines escaped."""
        self.print(one_line(text), style=style, highlight=False, markup=False)

    def on_broken_pipe(self) -> None:
        """rich would exit with 1, which means "inconsistent" here."""
        raise OutputClosed


console = SafeConsole(soft_wrap=True, markup=False, emoji=False)  # paths are printed as they are
errors = SafeConsole(stderr=True, soft_wrap=True, markup=False, emoji=False)
