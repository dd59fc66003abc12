"""A state of a mode that is only rules, written to a folder."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.findings import by_rules
from harness.rules.trees import Entry

OWNER = (0o640, 0, 0)


def test_the_attributes_of_users_are_written_and_the_others_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None was written, and nothing said so: a check that reads one failed there for another reason."""
    xattrs = (("user.key", b"v"), ("security.capability", b"c"), ("user.refused", b"r"))
    files = {
        "d": Entry("directory", (0o500, 0, 0), xattrs=(("user.of_d", b"d"),)),
        "d/f": Entry("file", OWNER, xattrs=xattrs),
        "g": Entry("link", OWNER, first="d/f", xattrs=xattrs),
    }
    notes = SimpleNamespace(acks=[])
    legal = SimpleNamespace(acks=lambda _: 0)
    judging = cast(Any, SimpleNamespace(notes=notes, legal=legal, files=lambda _: files))
    done: dict[tuple[str, str], bytes] = {}

    def setxattr(place: Path, name: str, value: bytes, *, follow_symlinks: bool) -> None:
        if name == "user.refused":
            raise OSError(95, "Operation not supported")
        done[place.name, name] = value

    monkeypatch.setattr(os, "setxattr", setxattr)
    left_out = by_rules._write(judging, cast(Any, None), tmp_path / "out")
    assert done == {("f", "user.key"): b"v", ("d", "user.of_d"): b"d"}
    assert left_out == ["security.capability of d/f", "user.refused of d/f"]
