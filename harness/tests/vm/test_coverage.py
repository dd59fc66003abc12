"""Which lines of recovery real crash states run, on a UML kernel that notes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.filesystems.profiles import recovery_files
from harness.findings.compare import compare
from harness.guests.machine import flavour_of
from harness.kernels.find import find_kernel
from harness.kernels.instrumented import instrument, instrumented_kernel
from harness.kernels.variants import kept_tree
from harness.plan import Plan
from harness.store import RunStore
from harness.store.recovery_code import read_recovery_code
from harness.tests.needs import needed
from harness.tests.vm.conftest import run_plan

CASE = {"configurations": ["ext4/fast_commit"], "workloads": ["append-fsync"], "machine": "uml"}


@pytest.fixture(scope="session")
def noting_kernel() -> Path:
    """One of the source of debian-6.12; built where it is not in the cache, which takes minutes."""
    flavour = flavour_of("uml")
    version = find_kernel("debian-6.12").package_version
    if found := instrumented_kernel("uml", flavour, version, recovery_files()):
        return found
    with needed(), kept_tree("linux-source-6.12", "uml", flavour, os.cpu_count() or 1, print) as tree:
        return instrument(tree, recovery_files())


def test_noting_what_runs_changes_no_verdict_and_names_the_functions_of_recovery(
    tmp_path: Path, uml_kernel: Path, noting_kernel: Path
) -> None:
    _, plain = run_plan(Plan(**CASE), tmp_path / "plain")  # type: ignore[arg-type]  # fields of Plan
    plan = Plan(**CASE, coverage=True, recordings=str(plain))  # type: ignore[arg-type]  # fields of Plan
    _, noting = run_plan(plan, tmp_path / "noting")
    with RunStore.open(plain) as one, RunStore.open(noting) as two:
        found = compare(one, two)
        code = read_recovery_code(two.layout)
        assert read_recovery_code(one.layout) is None
    assert (found.states > 50, [str(d) for d in found.differences]) == (True, [])
    assert code is not None
    ran = {line.function for line in code.lines if line.first}
    assert {"jbd2_journal_recover", "do_one_pass", "ext4_fc_replay_scan", "ext4_fc_replay_inode"} <= ran
    assert ("fs/ext4/fast_commit.c", "ext4_fc_replay_unlink") in code.unreached, "it unlinks nothing"
    assert not [line for line in code.lines if line.function == "ext4_fc_commit"], "it is no recovery"
