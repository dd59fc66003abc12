"""Machines are named in their own room alone."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

import harness
from harness.guests import machine
from harness.host.resources import resource

PACKAGE = Path(harness.__file__).parent
MACHINES = re.compile("qemu|uml", re.IGNORECASE)


def text_lines(module: str) -> set[int]:
    """Lines of a module that hold strings: in `cli`, help texts, options and their defaults."""
    strings = [
        n for n in ast.walk(ast.parse(module)) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    return {line for n in strings for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}


def test_no_module_outside_guests_names_a_machine() -> None:
    """17 modules did, and adding a machine meant to change them. What is to be told, a machine tells."""
    named = []
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0]
        if room in ("guests", "tests"):
            continue
        text = file.read_text()
        allowed = text_lines(text) if room == "cli" else set()
        lines = enumerate(text.splitlines(), 1)
        named += [f"{file}:{n}: {line}" for n, line in lines if MACHINES.search(line) and n not in allowed]
    assert named == []


def test_a_machine_s_file_is_decoded_once_for_each_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question for a machine decoded all of its file, which takes milliseconds."""
    shutil.copytree(resource("vms", "machines"), tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(machine, "_folder", lambda: tmp_path)
    name = machine.default_name()
    before = machine.profile_of(name)
    assert machine.profile_of(name) is before
    file = tmp_path / f"{name}.toml"
    file.write_text(file.read_text().replace(f'title = "{before.title}"', 'title = "Another"'))
    assert machine.profile_of(name).title == "Another"
