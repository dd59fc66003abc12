"""What a run reports while it is in progress."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.host.progress import Bars, Lines


@pytest.mark.parametrize("kind", [Bars, Lines])
def test_the_end_of_a_guests_console_cannot_pass_for_a_line_of_ours(kind: type[Bars] | type[Lines]) -> None:
    out = io.StringIO()
    with kind(Console(file=out, width=80)) as progress:
        progress.say("ext4-ordered/w: guest lost: \nPassed all 3 cases")
    assert "ext4-ordered/w: guest lost: \n    Passed all 3 cases\n" in out.getvalue()
