"""The arrows of ARCHITECTURE.md: what may import what."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import harness

PACKAGE = Path(harness.__file__).parent

# Each unit and what of ours it may import; a unit is a top-level module or a folder.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "cache": set(),
    "resources": {"errors"},
    "expectations": {"errors", "model"},
    "writelog": {"errors", "model"},
    "states": {"errors", "model", "writelog"},
    "oracles": {"errors", "model"},
    "files": set(),
    "store": {"errors", "model", "expectations", "files"},
    "summary": {"errors", "model", "expectations", "store"},
    "report": {"errors", "model", "expectations", "files", "store", "summary", "resources", "measure"},
    "kernels": {"errors", "cache", "resources"},
    "guard": {"errors"},
    "rootfs": {"errors", "cache", "resources", "kernels", "guard", "progress"},
    "kernel_build": {"errors", "cache", "resources"},
    "generate": {"errors", "model"},
    "applications": {"errors", "model"},
    "workloads": {"errors", "model", "applications", "generate", "resources"},
    "second": {"errors"},
    "filesystems": {"errors", "model", "oracles", "resources", "second"},
    "machines": {"errors", "model", "cache", "resources", "kernels"},
}

UNITS = sorted(
    {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in PACKAGE.rglob("*.py")} - {"tests"}
)


def imports(unit: str) -> set[str]:
    """Units that the unit's modules import."""
    files = [PACKAGE / f"{unit}.py"] if (PACKAGE / f"{unit}.py").exists() else (PACKAGE / unit).rglob("*.py")
    found: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "harness":
                parts = node.module.split(".")
                found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
            elif isinstance(node, ast.Import):
                found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("harness.")}
    return found & set(UNITS) - {unit}


@pytest.mark.parametrize("unit", sorted(ALLOWED))
def test_a_unit_imports_only_what_it_may(unit: str) -> None:
    assert imports(unit) <= ALLOWED[unit]


def test_the_nouns_need_only_the_standard_library() -> None:
    for unit in ("model", "errors"):
        assert imports(unit) == set()


def test_nothing_below_imports_the_flow() -> None:
    flow = {"run", "cli", "pytest_plugin", "repro", "pool", "examine", "bench"}
    for unit in set(UNITS) & set(ALLOWED):
        assert not imports(unit) & flow, unit


def test_of_measuring_the_report_knows_what_it_came_to_and_nothing_else() -> None:
    imported = {
        node.module
        for path in (PACKAGE / "report").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("harness.measure")
    }
    assert imported == {"harness.measure.results"}
    own = ast.walk(ast.parse((PACKAGE / "measure" / "results.py").read_text()))
    assert not [n for n in own if isinstance(n, ast.ImportFrom) and (n.module or "").startswith("harness")]
