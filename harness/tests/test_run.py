"""The parts of a run that need no guest."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.casework import group_by_content
from harness.errors import EnvironmentLacks, StoreError, UsageError
from harness.filesystems import select_profiles
from harness.model import CrashState
from harness.plan import Plan, load_plan
from harness.run import create_run, need_space
from harness.store import RunStore

Usage = namedtuple("Usage", "total used free")


@given(hashes=st.lists(st.sampled_from("abc"), max_size=20))
def test_states_of_equal_content_stand_together(hashes: list[str]) -> None:
    states = [CrashState(i) for i in range(len(hashes))]
    groups = group_by_content(states, hashes)
    assert sorted(s.prefix for g in groups for s in g.states) == list(range(len(hashes)))
    assert len(groups) == len(set(hashes))
    for group in groups:
        assert {hashes[s.prefix] for s in group.states} == {group.content_hash}
        assert list(group.states) == sorted(group.states, key=lambda s: s.prefix)


def test_a_full_disk_is_told_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 10 << 20))
    with pytest.raises(EnvironmentLacks) as caught:
        need_space(tmp_path, select_profiles(["ext4/ordered"]), jobs=2)
    assert "10 MiB free" in str(caught.value)
    assert "--out" in str(caught.value)


def test_enough_space_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 10 << 30))
    need_space(tmp_path, select_profiles(["ext4/ordered"]), jobs=2)


def test_a_plan_is_kept_and_loaded(tmp_path: Path) -> None:
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"], jobs=3, memo=False)
    with create_run(plan, tmp_path, "test") as store:
        assert load_plan(store) == plan
        path = store.path
    (path / "plan.json").write_bytes(msgspec.json.encode({"configurations": [], "gone": 1}))
    with RunStore.open(path) as store, pytest.raises(StoreError):
        load_plan(store)


def test_a_typing_error_leaves_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        create_run(Plan(configurations=["ext4/orderd"], workloads=["append-fsync"]), tmp_path, "test")
    assert not list(tmp_path.iterdir())
