"""Progress for tests: keeps what was said."""

from __future__ import annotations

from harness.host.progress import Quiet


class Said(Quiet):
    """Shows nothing. `lines`: the messages, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)
