"""Files replaced atomically, and JSON of text that is not UTF-8."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.host.files import (
    json_bytes,
    json_text,
    refuses,
    remembered,
    toml_string,
    valid_text,
    write_atomically,
)
from harness.host.text import one_line
from harness.tests.another_user import not_entered

SURROGATES = range(0xDC80, 0xDD00)  # what bytes that are no UTF-8 become in a str
FOREIGN = st.text(st.one_of(st.characters(), st.sampled_from(SURROGATES).map(chr)))


@dataclass(frozen=True)
class Named:
    """A record with a text that a guest may have given."""

    name: str
    notes: dict[str, str]


@pytest.mark.parametrize("content", [b"\xff\x00", "caf\u00e9"])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path, content: bytes | str) -> None:
    file = tmp_path / "f"
    file.write_text("what was there before, and longer")
    write_atomically(file, content, mode=0o755)
    assert file.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert file.stat().st_mode & 0o777 == 0o755
    assert list(tmp_path.iterdir()) == [file]


def test_a_write_that_fails_leaves_the_old_contents(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("old")
    (tmp_path / f".f.{os.getpid()}.tmp").mkdir()
    with pytest.raises(OSError, match="tmp"):
        write_atomically(file, "new")
    assert file.read_text() == "old"


def test_a_full_disk_leaves_nothing_of_what_was_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed beside the file, and took the room that the next attempt needed."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "f", "new")
    assert not list(tmp_path.iterdir())


@given(FOREIGN)
def test_text_becomes_valid_and_valid_text_stays(text: str) -> None:
    made = valid_text(text)
    assert made.encode().decode() == made
    assert valid_text(made) == made
    assert made == text or any(ord(c) in SURROGATES for c in text)


@given(FOREIGN)
def test_a_string_of_toml_holds_every_text_on_one_line(text: str) -> None:
    """JSON's have pairs of surrogates, with which a shrunk workload with an emoji could not be read again."""
    line = f"told = {toml_string(text)}"
    assert one_line(line) == line
    assert tomllib.loads(line) == {"told": valid_text(text)}


@given(FOREIGN, FOREIGN)
def test_json_holds_every_text_at_any_depth(name: str, note: str) -> None:
    told = {"name": valid_text(name), "notes": {valid_text(note): valid_text(note)}}
    for value in (Named(name, {note: note}), [Named(name, {note: note})]):
        wanted = [told] if isinstance(value, list) else told
        assert json.loads(json_bytes(value)) == wanted
        assert json.loads(json_text(value)) == wanted


def test_a_file_is_asked_again_once_it_has_changed(tmp_path: Path) -> None:
    asked = []

    @remembered
    def first_byte(path: Path) -> bytes:
        asked.append(path)
        return path.read_bytes()[:1]

    file, other = tmp_path / "file", tmp_path / "other"
    file.write_bytes(b"a")
    other.write_bytes(b"b")
    assert [first_byte(file), first_byte(other), first_byte(file)] == [b"a", b"b", b"a"]
    assert asked == [file, other]
    file.write_bytes(b"longer")
    assert first_byte(file) == b"l"
    file.unlink()
    with pytest.raises(FileNotFoundError):
        first_byte(file)


def test_a_path_below_a_folder_that_may_not_be_entered_is_refused_in_words() -> None:
    """A traceback, and exit code 1, which accuses a file system."""
    denied = "cannot be made: Permission denied"
    with not_entered() as folder:
        (folder / "nowhere").symlink_to(folder / "gone")
        said = [refuses(folder / name) for name in ("private/inside/x", "link/x", "nowhere/x", "new/x")]
    assert said == [
        f"{folder}/private/inside/x {denied} ({folder}/private)",
        f"{folder}/link/x {denied} ({folder}/link)",
        f"{folder}/nowhere/x cannot be made: {folder}/nowhere is a link that leads nowhere",
        "",
    ]
