"""Workloads to start from: they load as they are, and nothing that exists is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks, UsageError
from harness.tests.needs import need_program
from harness.workloads.load import select_workloads
from harness.workloads.start import KINDS, make_workload

COMPILED = {"c": "run.c", "go": "run.go", "rust": "run.rs"}


@pytest.fixture(autouse=True)
def compilers(request: pytest.FixtureRequest) -> None:
    """A host without a compiler cannot make its kind."""
    kind = getattr(getattr(request.node, "callspec", None), "params", {}).get("kind")
    if program := {"go": "go", "rust": "rustc"}.get(str(kind)):
        need_program(program)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_is_a_workload(tmp_path: Path, kind: str) -> None:
    place = make_workload(tmp_path / "deep" / "my-db", kind)
    workload, *others = select_workloads([str(place)])
    assert workload.name == ("my-db" if kind == "operations" else "my-db-synced")
    assert [w.name for w in others] == ([] if kind == "operations" else ["my-db-forgets"])
    assert bool(workload.checks) == (kind != "operations")
    assert workload.runtime == ("python" if kind == "python" else "")


@pytest.mark.parametrize("kind", COMPILED)
def test_a_call_of_what_is_compiled_has_a_line(tmp_path: Path, kind: str) -> None:
    """Of a program in C, only the address of the call that makes the gap was told."""
    place = make_workload(tmp_path / "my-db", kind)
    assert b".debug_line" in (place / "run").read_bytes() or b".zdebug_line" in (place / "run").read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_there_is_replaced(tmp_path: Path, kind: str) -> None:
    place = make_workload(tmp_path / "my-db", kind)
    before = sorted((p, p.read_bytes()) for p in [place, *place.rglob("*")] if p.is_file())
    with pytest.raises(UsageError, match="is there already"):
        make_workload(tmp_path / "my-db", kind)
    assert sorted((p, p.read_bytes()) for p in [place, *place.rglob("*")] if p.is_file()) == before


def test_a_link_that_leads_nowhere_counts_as_there(tmp_path: Path) -> None:
    (tmp_path / "my-db").symlink_to("nowhere")
    with pytest.raises(UsageError, match="is there already"):
        make_workload(tmp_path / "my-db", "shell")


@pytest.mark.parametrize("name", ["a b", "-x", ".hidden", "ü"])
def test_a_name_that_no_workload_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be named"):
        make_workload(tmp_path / name, "shell")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file/my-db cannot be made: Not a directory"):
        make_workload(tmp_path / "file" / "my-db", "shell")


@pytest.mark.parametrize("kind", ["shell", "python", *COMPILED])
def test_the_programs_keep_their_own_promise_and_notice_a_broken_one(tmp_path: Path, kind: str) -> None:
    """As the guest runs them, with a `powercut-ack` that writes down what it is told."""
    place = make_workload(tmp_path / "my-db", kind)
    tools, mount = tmp_path / "bin", tmp_path / "mnt"
    tools.mkdir()
    mount.mkdir()
    (tools / "powercut-ack").write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/told\n')
    (tools / "powercut-ack").chmod(0o755)
    (tools / "python3").symlink_to(sys.executable)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}

    def ended(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(w) for w in words], cwd=mount, env=environment, capture_output=True, text=True, check=False
        )

    (tmp_path / "nothing").touch()
    assert ended(place / "check", tmp_path / "nothing").returncode == 0
    assert ended(place / "run", "synced").returncode == 0
    assert (tmp_path / "told").read_text().splitlines() == [f"line {i}" for i in range(1, 6)]
    assert ended(place / "check", tmp_path / "told").returncode == 0
    (mount / "lines").write_text("line 1\nline 2\n")
    refused = ended(place / "check", tmp_path / "told")
    assert (refused.returncode, refused.stdout) == (1, "line 3 was acknowledged and is gone\n")


@pytest.mark.parametrize(
    ("kind", "syncs"),
    [
        ("shell", "sync lines"),
        ("python", "os.fsync(lines"),
        ("c", "fsync(lines)"),
        ("go", "lines.Sync()"),
        ("rust", "lines.sync_all()"),
    ],
)
def test_one_variant_has_to_fail_and_says_so(tmp_path: Path, kind: str, syncs: str) -> None:
    """A check that nobody has seen fail may be one that cannot: `new` brings what it has to find."""
    place = make_workload(tmp_path / "my-db", kind)
    run = (place / COMPILED.get(kind, "run")).read_text()
    assert "forget" in run.partition(syncs)[0].splitlines()[-1] + run.partition(syncs)[0].splitlines()[-2]
    forgets = select_workloads([str(place)])[1]
    assert forgets.operations[0].argv[-1] == "forget"


@pytest.mark.parametrize(
    ("kind", "lacks"), [("c", "cc and make"), ("go", "go and make"), ("rust", "rustc, cc and make")]
)
def test_without_a_compiler_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lacks: str
) -> None:
    """A directory without its program is no workload, and would be in the way of the next attempt."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentLacks, match=f"needs {lacks}"):
        make_workload(tmp_path / "my-db", kind)
    assert not list(tmp_path.iterdir())
