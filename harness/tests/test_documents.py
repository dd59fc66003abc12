"""The documents: lines that can be read in a terminal, and paths that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import harness

ROOT = Path(harness.__file__).parent.parent
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
WIDTH = 120
# A path from the top of the checkout, without a part in capitals or made when something runs.
PATH = re.compile(r"`((?:harness|vms|kernels|workloads|reports)/[\w./-]*)`")
MADE = ("reports/latest", "reports/runs")


def prose(text: str) -> list[str]:
    """Lines outside of code and tables."""
    return [
        line
        for line in re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
        if not line.startswith(("|", "!["))
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_prose_wraps_at_120_columns(name: str) -> None:
    text = (ROOT / name).read_text()
    assert [line for line in prose(text) if len(line) > WIDTH] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_path_that_is_named_is_there(name: str) -> None:
    """ARCHITECTURE named modules by the places that they had had before they moved."""
    named = set(PATH.findall((ROOT / name).read_text()))
    wanted = [p for p in named if not p.startswith(MADE) and not re.search(r"(?<![a-zA-Z.])[A-Z]{2,}", p)]
    assert wanted or name == "README.md"
    assert sorted(p for p in wanted if not (ROOT / p).exists()) == []


# Rooms whose nouns have names of their own in the whole package; others are to follow. Programs that run in
# guests are by themselves.
ROOMS = {"bench", "host", "measurements", "tracing", "tools_image"}
GUEST_PROGRAMS = {"guest", "in_guest"}


def test_one_noun_has_one_name() -> None:
    """There were three `Plan`, three `Progress`, two `Spread`: a reader had to ask each time which one."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted((ROOT / "harness").rglob("*.py")):
        parts = path.relative_to(ROOT / "harness").parts
        if parts[0] == "tests" or GUEST_PROGRAMS & set(parts):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(parts)
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {name: places for name, places in twice.items() if ROOMS & {p[0] for p in places}} == {}


def test_readme_tells_of_planted_faults_what_the_table_does() -> None:
    """README said 51 of 56, and the table that it links 47 of 55: they were of two campaigns."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    table = (ROOT / "reports/examples/faults/summary.txt").read_text()
    told = re.search(r"Found (\d+ of \d+) planted faults \((\d+) %\): (\d+) missed", table)
    states = re.search(r"the unmodified kernel: (\d+) cases, ([\d,]+) states", table)
    assert told and states
    assert f"**{told[1]} planted faults that matter, {told[2]} %**" in readme
    assert f"In {states[1]} cases and {states[2]} states the unmodified kernel" in readme


def test_the_headers_for_a_module_are_found_on_both_releases_of_debian() -> None:
    """README named those of Debian 12, and the kernel in the image is Debian 13's."""
    found = re.search(r"apt-cache search --names-only '(.*?)'", (ROOT / "README.md").read_text())
    assert found is not None
    for name, fits in (
        ("linux-headers-6.12.117+deb12-amd64", True),
        ("linux-headers-6.12.107+deb13-amd64", True),
        ("linux-headers-6.12.117+deb12-rt-amd64", False),
        ("linux-headers-6.12.117+deb12-common", False),
        ("linux-headers-6.1.0-56-amd64", False),
    ):
        assert bool(re.search(found[1], name)) is fits, name
