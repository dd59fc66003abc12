"""Progress for tests: keeps what was said, and how much of the work is left."""

from __future__ import annotations

from harness.host.progress import Quiet


class Said(Quiet):
    """Shows nothing. `lines`: the messages, in order; `left`: units that were begun and not done."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.left: dict[str, int] = {}

    def say(self, text: str) -> None:
        self.lines.append(text)

    def begin(self, what: str, total: int) -> None:
        self.left[what] = self.left.get(what, 0) + total

    def advance(self, what: str, count: int) -> None:
        super().advance(what, count)
        self.left[what] = self.left.get(what, 0) - count
