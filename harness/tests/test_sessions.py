"""Sessions of the documents that need no guest: each command runs, and prints what the document has."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tests.markdown import documents, sessions
from harness.tests.shell import carry_out

PLAIN = [p for p in documents() if any(s.kind == "plain" for s in sessions(p))]


@pytest.mark.parametrize("path", PLAIN, ids=lambda p: p.name)
def test_a_session_runs_as_it_is_written(path: Path, tmp_path: Path) -> None:
    """Examples in documents were of versions before: nobody could get them again."""
    carry_out([s for s in sessions(path) if s.kind == "plain"], tmp_path)
