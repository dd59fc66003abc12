"""The documents: their sizes, lines that can be read in a terminal, and nothing in them that is not there."""

from __future__ import annotations

import ast
import fnmatch
import functools
import importlib.util
import itertools
import re
import runpy
import tomllib
from collections.abc import Callable, Iterator
from pathlib import PurePath
from types import ModuleType

import click
import pytest
from sphinx.util.matching import compile_matchers

from harness.cli import main
from harness.filesystems.profiles import select_profiles
from harness.host.text import one_line
from harness.tests.markdown import ROOT, anchors, command_lines, documents, links, matches, plain, prose
from harness.workloads.load import workload_sets

KIB = 1024
SIZES = {
    "README.md": (0, 9),
    "ARCHITECTURE.md": (0, 16),
    "CONTRIBUTING.md": (0, 8),
    "CHANGELOG.md": (0, 2),
    "vms/filesystems/CONTRACTS.md": (0, 50),
    "docs/tutorials/*.md": (0, 6),
    "docs/howto/*.md": (2, 4),
    "docs/explanation/*.md": (3, 12),
}
"""KiB of each document, at least and at most. A page that grows beyond its kind is two pages."""
WIDTH = 120
WIDE = ("docs/reference/", "docs/results/", "vms/", "workloads/", "reports/")
"""Where lines may be longer: generated pages, tables of results."""
# A path from the top of the checkout, without a part in capitals or made when something runs.
PATH = re.compile(r"`((?:harness|vms|kernels|workloads|reports|docs)/[\w./-]*)`")
MADE = ("reports/latest", "reports/runs")
NAMES = [str(path.relative_to(ROOT)) for path in documents()]


def generator() -> ModuleType:
    """`docs/generate.py`, which is no module of the package."""
    spec = importlib.util.spec_from_file_location("powercut_docs_generate", ROOT / "docs/generate.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def made_pages() -> dict[str, str]:
    """The pages that `docs/generate.py` makes, made once."""
    return dict(generator().pages())


@pytest.mark.parametrize("pattern", SIZES)
def test_a_document_has_the_size_of_its_kind(pattern: str) -> None:
    """README had grown to 54 KB, of which 18 were scores of campaigns."""
    least, most = SIZES[pattern]
    sizes = {p.name: p.stat().st_size / KIB for p in ROOT.glob(pattern)}
    assert sizes
    assert {
        name: round(s, 1)
        for name, s in sizes.items()
        if not (s <= most and (s >= least or name == "README.md"))
    } == {}


def test_a_tutorial_for_each_kind_of_user_and_no_more() -> None:
    assert sorted(p.name for p in (ROOT / "docs/tutorials").glob("*.md")) == [
        "README.md", "first-run.md", "my-patch.md", "my-program.md",
    ]  # fmt: skip


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith(WIDE)])
def test_prose_wraps_at_120_columns(name: str) -> None:
    lines = prose((ROOT / name).read_text()).splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith(("|", "!["))] == []


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(WIDE)])
def test_one_blank_line_parts_paragraphs(name: str) -> None:
    outside = (ROOT / name).read_text().split("\n```")[::2]
    assert [text for text in outside if "\n\n\n" in text] == []


def test_the_mode_that_is_shown_is_a_part_of_its_file() -> None:
    """Its summary was of no file."""
    page = (ROOT / "docs/howto/write-a-mode.md").read_text()
    shown = re.search(r"```toml\n(.*?)```\n\n\(This is `([\w/]+)`, shortened", page, re.DOTALL)
    assert shown
    part, whole = (
        tomllib.loads(shown[1]),
        tomllib.loads((ROOT / f"vms/filesystems/{shown[2]}.toml").read_text()),
    )
    assert part.pop("contract").items() <= whole.pop("contract").items()
    assert part.items() <= whole.items()


TABLES = sorted({*NAMES, *(str(p.relative_to(ROOT)) for p in (ROOT / "reports/examples").rglob("*.md"))})


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_as_many_cells_in_each_row_as_in_its_header(name: str) -> None:
    """A pipe ends a cell, in code as well, and a line break ends the table: made pages had both."""
    columns, torn = 0, []
    for line in prose((ROOT / name).read_text()).splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        columns = (columns or cells) if cells else 0
        if cells != columns or (cells and not line.endswith("|")):
            torn.append(line)
    assert torn == []


def test_only_a_flag_that_makes_durable_is_said_to() -> None:
    """fallocate was, and sync-file-range, which "promises nothing"."""
    rows = [line.split(" | ") for line in generator()._operations() if line.startswith("| `")]
    by_a_flag = [row[0].split()[1].strip("`") for row in rows if "by a flag" in row[-1]]
    assert by_a_flag == ["write", "append", "mmap-write", "exchange-range"]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_that_is_named_is_there(name: str) -> None:
    """ARCHITECTURE named modules by the places that they had had before they moved."""
    named = set(PATH.findall((ROOT / name).read_text()))
    wanted = [p for p in named if not p.startswith(MADE) and not re.search(r"(?<![a-zA-Z.])[A-Z]{2,}", p)]
    assert sorted(p for p in wanted if not (ROOT / p).exists()) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_link_leads_somewhere(name: str) -> None:
    """A moved section left links to its old place."""
    path, broken = ROOT / name, []
    for target in links(path.read_text()):
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        if not found.is_file() or (
            anchor and found.suffix == ".md" and anchor not in anchors(found.read_text())
        ):
            broken.append(target)
    assert broken == []


def test_a_link_to_another_page_leads_to_one_of_the_site() -> None:
    """`make docs` ended with a warning, which is an error: a table of an example is no page of the site."""
    shown = runpy.run_path(str(ROOT / "docs/conf.py"))["include_patterns"]
    patterns = [re.compile(fnmatch.translate(pattern)) for pattern in shown]
    astray = []
    for name in NAMES:
        if not any(p.match(name) for p in patterns):
            continue
        for target in links((ROOT / name).read_text()):
            file = target.partition("#")[0]
            if not file.endswith(".md"):
                continue
            page = str(((ROOT / name).parent / file).resolve().relative_to(ROOT))
            if not any(p.match(page) for p in patterns):
                astray.append(f"{name}: {target}")
    assert astray == []


@pytest.mark.parametrize("folder", [".venv", ".git", "target", "dist", "reports/runs", "reports/latest"])
def test_the_site_is_made_without_a_walk_through_what_a_run_leaves(folder: str) -> None:
    """A build from nothing took ten minutes in a checkout with runs, and twelve seconds in a new one."""
    given = runpy.run_path(str(ROOT / "docs/conf.py"))
    shown, left_out = (compile_matchers(given[f"{word}_patterns"]) for word in ("include", "exclude"))
    assert any(is_left_out(folder) for is_left_out in left_out)
    above = {str(p) for n in NAMES if any(is_shown(n) for is_shown in shown) for p in PurePath(n).parents}
    assert not [p for p in above if any(is_left_out(p) for is_left_out in left_out)]


@pytest.mark.parametrize("page", sorted(made_pages()))
def test_a_generated_page_is_what_the_code_says(page: str) -> None:
    """Tables of options and fields were written by hand, and lacked those that decide soundness."""
    assert (ROOT / "docs" / page).read_text() == made_pages()[page], "run: make docs"


def test_a_mode_that_answers_otherwise_on_another_kernel_is_told_with_its_kernel() -> None:
    def column(mode: str, kernel: str, standing: str) -> dict[str, object]:
        return {"mode": mode, "kernel": kernel, "cells": [{"program": "p", "standing": standing}]}

    same = [column("a/b", "debian-6.12", "kept"), column("a/b", "debian-7.3", "kept-so-far")]
    other = [column("c/d", "debian-6.12", "broken"), column("c/d", "debian-7.3", "kept")]
    none = [column("a/no", "debian-6.12", "no"), column("c/no", "debian-6.12", "no")]
    found = generator()._standings([*same, *other, *none], "p")
    assert found["kept"] == ["a/b*", "c/d on 7.3"]
    assert (found["no"], found["broken"]) == (["a/no", "c/no"], ["c/d on 6.12"])


def test_a_file_system_stands_for_its_modes_where_each_of_them_answers_so() -> None:
    """A table of 40 modes had cells of 40 names."""
    named = generator()._by_filesystem
    known = ["a/b", "a/c", "d/e"]
    assert named(["a/b", "a/c*", "d/e"], known) == ["a*", "d"]
    assert named(["a/b*", "d/e"], known) == ["a/b*", "d"]
    assert named(["a/b on 6", "a/c on 6*", "d/e on 7"], known) == ["a on 6*", "d on 7"]
    assert named(["a/b on 6", "a/c on 7"], known) == ["a/b on 6", "a/c on 7"]
    assert named(["a/b@c*", "a/b", "d/e on 7"], ["a/b", "a/b@c", "d/e"]) == ["a/b@c*", "a", "d on 7"]


def test_what_was_written_by_hand_below_a_made_page_is_kept() -> None:
    made = generator().pages()["results/litmus.md"]
    assert "## Twelve cells by a second method\n" in made
    assert made == (ROOT / "docs/results/litmus.md").read_text()


def test_what_a_table_of_litmus_programs_lacks_is_said() -> None:
    """`Safe in every mode` stood over a table of which half the columns had not been reached."""
    cells = [{"standing": s} for s in ("kept", "not-looked-at")]
    columns = [{"name": "a", "cells": cells}, {"name": "b", "cells": cells[1:]}]
    assert generator()._not_looked_at(columns) == ["b", "1 question in a"]
    none: dict[str, list[str]] = {"kept": [], "held": [], "no": [], "broken": [], "known": []}

    def titles(**modes: list[str]) -> list[str]:
        groups = generator()._GROUPS_OF_PATTERNS
        return [title.partition(",")[0] for title, _, belongs in groups if belongs({**none, **modes})]

    assert titles(held=["a"], broken=["b"]) == titles(known=["a"]) == ["Safe in no mode"]
    assert titles(kept=["a"], known=["b"]) == ["Safe in every mode that was looked at"]
    assert titles(kept=["a"], known=["b"], no=["c"]) == ["Safe in some modes"]
    assert titles() == []


# --- command lines --------------------------------------------------------------------------------


LINES = [(str(p.relative_to(ROOT)), words) for p in documents() for words in command_lines(p.read_text())]
GENERATED = {"ace1", "ace1more", "ace2"}
HOLDS = re.compile(r"[A-Z]{2,}")
"""A word in capitals in a command line stands for the reader's own: RUN, ID, FS/MODE."""


def unknown(words: list[str]) -> str:
    """What click would refuse in a command line: an option or command that there is not; empty if nothing."""
    command: click.Command = main
    context = click.Context(main, info_name="powercut")
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.get_command(context, rest[0])
        if inner is None:
            return f"no command {rest[0]}"
        command, rest = inner, rest[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    try:
        command.make_parser(context).parse_args(list(rest))
    except click.UsageError as e:
        return one_line(e.format_message())
    return ""


@pytest.mark.parametrize(("name", "words"), LINES, ids=[f"{n}: {' '.join(w)}" for n, w in LINES])
def test_a_command_line_in_a_document_is_one(name: str, words: list[str]) -> None:
    """Documents told of options by the names that they had had, and of values that were refused."""
    assert unknown(words) == ""


def values(words: list[str], *options: str) -> Iterator[str]:
    """What follows these options, without the reader's own names and paths."""
    for option, value in itertools.pairwise(words):
        if option in options:
            yield from (v for v in value.split(",") if not HOLDS.search(v))


@functools.cache
def has_mode(mode: str) -> bool:
    return bool(select_profiles([mode]))


@functools.cache
def workloads_and_sets() -> set[str]:
    sets = workload_sets()
    return {w for members in sets.values() for w in members} | sets.keys() | GENERATED


@pytest.mark.parametrize(("name", "words"), LINES, ids=[f"{n}: {' '.join(w)}" for n, w in LINES])
def test_modes_and_workloads_that_a_document_names_are_there(name: str, words: list[str]) -> None:
    if words[1] in ("run", "campaign", "matrix", "faults", "trace"):
        for mode in values(words, "-c", "--config"):
            assert has_mode(mode)
    for workload in values(words, "-w", "--workload"):
        assert workload in workloads_and_sets() or "/" in workload, workload


def test_a_session_differs_in_numbers_alone() -> None:
    assert plain("  94 ok") == plain("1,094 ok")
    assert plain("--from /tmp/x/reports/runs/20261125-1-run") == plain("--from reports/runs/20271125-2-run")
    assert plain("  at @t19=, the smallest of 3") == plain("  at @t21-17,18.1, the smallest of 4")
    assert plain("at @t19=: why") == plain("at @t6: why")
    assert matches(["a 1", "...", "c"], ["a 2", "b", "b", "c"])
    assert matches(["...", "c"], ["c"])
    assert not matches(["a", "c"], ["a", "b", "c"])
    assert not matches(["a"], ["a", "more"])
    assert not matches(["PASS 3"], ["FAIL 3"])


# --- words ----------------------------------------------------------------------------------------

# Programs that run in guests are by themselves.
GUEST_PROGRAMS = {"guest", "in_guest"}
WIRE = "guests/wire.py"
TWO_HOMES = {
    "Answer", "Answers", "Cell", "Change", "Check", "Comparison", "Done", "Evidence", "Extent",
    "Fate", "Finding", "Found", "Kernels", "Kind", "Limits", "Line", "Listed", "Mark", "Observed",
    "Order", "Program", "Record", "Row", "Seen", "Shape", "Site", "Sort", "Standing", "Statement",
    "Sync", "Write",
}  # fmt: skip
"""Nouns that two rooms have: small ones, which no other room sees, and those of rooms with one subject
(`explain` and `rules` both speak of calls and syncs). No other may come, and one with one home has to go.
"""
CRATES_TOO = {"Bounds", "Call", "Contents", "Ended", "Found", "MountCounter", "Place"}
"""The same of the Rust crates: the agent in the guest and the disk on the host share no code."""


def nouns_of_python() -> dict[str, list[str]]:
    """The public classes of the package, with the modules that have them, but for the messages of the wire:
    most are the form in which another module's noun travels, and have its name.
    """
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "harness").rglob("*.py")):
        parts = path.relative_to(ROOT / "harness").parts
        if parts[0] == "tests" or GUEST_PROGRAMS & set(parts) or "/".join(parts) == WIRE:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append("/".join(parts))
    return found


def nouns_of_rust() -> dict[str, list[str]]:
    """The same of the public types of the crates."""
    found: dict[str, list[str]] = {}
    public = re.compile(r"^pub (?:struct|enum|trait|type) (\w+)", re.MULTILINE)
    for path in sorted((ROOT / "vms").rglob("*.rs")):
        for name in public.findall(path.read_text()):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


@pytest.mark.parametrize(
    ("nouns", "known"),
    [(nouns_of_python, TWO_HOMES), (nouns_of_rust, CRATES_TOO)],
    ids=["package", "crates"],
)
def test_one_noun_has_one_name(nouns: Callable[[], dict[str, list[str]]], known: set[str]) -> None:
    """There were three `Plan`, three `Progress`, two `Spread`: a reader had to ask each time which one."""
    twice = {name: places for name, places in nouns().items() if len(places) > 1}
    new = {name: places for name, places in twice.items() if name not in known}
    assert new == {}, "give one a name of its own, or say in TWO_HOMES that two rooms have it"
    assert sorted(known - twice.keys()) == [], "they have one home now: take them out of the list"
    assert sorted(ONE_HOME & twice.keys()) == []


ONE_HOME = {"Asked", "Cut", "Ledger", "Moment", "Profile", "Reads", "Target", "Trial"}
"""Nouns that had two to four homes."""
OLD_WORDS = {
    "harness": (
        "Moment|ExploredMoment|Leaf|leaves_max|wanted_max|Rewind|Rewound|WereAsked|Heal|Healed|CutAgain|uncut|"
        "DiskErred|Erring|erring|on_erring|Injury|EarlierLife|Elsewhere|BusyElsewhere|hopeless|require_hope|"
        "SharedNotes|BootTold|Station|stations|StationLost|traits|traits_of|Study|StudyPlan|tallies|Tally|"
        "plain_data|on_doubt|doubted|recover_healed|DISK_PROFILES"
    ),
    "vms": (
        "Moment|moments|Leaf|leaves_max|wanted_max|has_enough_wanted|landed|Fork|Rewind|rewind|Rewound|WereAsked|Heal|"
        "heal|Tally|tally|tallies|RunKind|runs_limit|NotForked|plain_data|remaps"
    ),
}
"""Words of earlier generations, by the folder in which they are gone. A shim for UML forks: so does fsck."""


@pytest.mark.parametrize("folder", OLD_WORDS)
def test_no_word_of_an_earlier_generation_is_left_in_code(folder: str) -> None:
    """The wire said moment, leaf and cut, Python crash time, known outcome, unexplored, and run.json open."""
    gone = re.compile(rf"(?<!\w)(?:{OLD_WORDS[folder]})(?!\w)")
    found = []
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix not in (".py", ".rs", ".toml", ".json") or path.name == "test_documents.py":
            continue
        if {"readtrace", "umlshim", "target", "__pycache__"} & set(path.parts):
            continue
        found += [f"{path.relative_to(ROOT)}: {word}" for word in sorted(set(gone.findall(path.read_text())))]
    assert found == []


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
    found = re.search(r"apt-cache search --names-only '(.*?)'", (ROOT / "docs/howto/module.md").read_text())
    assert found is not None
    for name, fits in (
        ("linux-headers-6.12.117+deb12-amd64", True),
        ("linux-headers-6.12.107+deb13-amd64", True),
        ("linux-headers-6.12.117+deb12-rt-amd64", False),
        ("linux-headers-6.12.117+deb12-common", False),
        ("linux-headers-6.1.0-56-amd64", False),
    ):
        assert bool(re.search(found[1], name)) is fits, name
