"""Sessions of the documents: each command runs, and prints what the document has."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tests.markdown import documents, sessions
from harness.tests.shell import carry_out

GUESTS = [p for p in documents() if (kinds := {s.kind for s in sessions(p)}) and "nightly" not in kinds]
NIGHTLY = [p for p in documents() if any(s.kind == "nightly" for s in sessions(p))]


@pytest.mark.parametrize("path", GUESTS, ids=lambda p: p.name)
def test_a_session_runs_as_it_is_written(path: Path, tmp_path: Path, uml_kernel: Path) -> None:
    carry_out(list(sessions(path)), tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("path", NIGHTLY, ids=lambda p: p.name)
def test_a_long_session_runs_as_it_is_written(path: Path, tmp_path: Path, uml_kernel: Path) -> None:
    carry_out(list(sessions(path)), tmp_path)
