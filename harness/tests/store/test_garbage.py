"""What can be deleted, and what stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness.store import RunStore
from harness.store.garbage import DAY_S, Kept, delete, kept_cache, kept_runs, old
from harness.store.layout import LOCK
from harness.store.lock import locked
from harness.tests.cli.runner import powercut
from harness.tests.store.samples import INFO


def aged(path: Path, days: float) -> Path:
    """Make everything below `path` look unused for so long."""
    when = time.time() - days * DAY_S
    for each in (path, *path.rglob("*")):
        os.utime(each, (when, when), follow_symlinks=False)
    return path


def run(reports: Path, name: str, days: float) -> Path:
    with RunStore.create(reports, name, INFO) as store:
        path = store.path
    return aged(path, days)


def test_old_runs_are_deleted_and_the_latest_stays(tmp_path: Path) -> None:
    first, second = run(tmp_path, "a", 30), run(tmp_path, "b", 20)
    latest = run(tmp_path, "c", 40)
    kept = kept_runs(tmp_path)
    assert [k.path for k in kept] == [latest, first, second]
    assert old(kept, 25) == [kept[1]]
    assert delete(old(kept, 25)) > 0
    assert [p.exists() for p in (first, second, latest)] == [False, True, True]


def test_a_run_that_is_being_written_stays(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "busy", INFO) as store:
        run(tmp_path, "later", 0)
        with store.lock("powercut run"):
            aged(store.path, 30)
            (busy, _) = kept_runs(tmp_path)
            assert "is being written by" in busy.stays
            assert old([busy], 1) == []
        unlocked = kept_runs(tmp_path)[0]
        with store.lock("powercut run"):  # begun between the question and the answer
            assert delete([unlocked]) == 0
        assert store.path.exists()


def test_what_is_no_run_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert kept_runs(tmp_path) == []


def test_what_is_no_single_run_is_counted_and_stays_while_it_is_written(tmp_path: Path) -> None:
    """Campaigns, studies and measurements have no run.json: gc did not see them, however large."""
    for name, file in (("campaign", "plan.json"), ("measure", "measurements.json")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / file).write_text("{}")
    campaign = tmp_path / "runs" / "campaign"
    assert {k.path.name for k in kept_runs(tmp_path)} == {"campaign", "measure"}
    with locked(campaign / LOCK, campaign, "powercut campaign"):
        (stays,) = (k for k in kept_runs(tmp_path) if k.stays)
        delete([Kept(campaign, 0, 0)])
    assert stays.path == campaign
    assert campaign.is_dir()


def test_each_part_of_the_cache_has_its_own_age(tmp_path: Path) -> None:
    for name, days in (("kernels/old", 100), ("kernels/new", 1), ("rootfs/root", 50), ("loose.log", 3)):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        if place.suffix:
            place.write_bytes(b"x")
        else:
            place.mkdir()
            (place / "image").write_bytes(bytes(10_000))
        aged(place, days)
    kept = kept_cache(tmp_path)
    assert [k.path.name for k in kept] == ["old", "root", "loose.log", "new"]
    assert [k.path.name for k in old(kept, 40)] == ["old", "root"]
    assert kept[0].size_bytes >= 10_000


def test_gc_says_sizes_and_deletes_nothing_unasked(tmp_path: Path) -> None:
    path = run(tmp_path, "a", 30)
    run(tmp_path, "b", 30)
    done = powercut("gc", "--out", tmp_path)
    assert done.exit_code == 0
    assert "2 in all" in done.stdout
    assert path.exists()
    asked = powercut("gc", "--runs", "7d", "--out", tmp_path)
    assert asked.exit_code == 2
    assert "add --yes" in asked.stderr
    assert path.exists()
    assert powercut("gc", "--runs", "7d", "--yes", "--out", tmp_path).exit_code == 0
    assert not path.exists()


def test_gc_wants_an_age_it_can_read(tmp_path: Path) -> None:
    done = powercut("gc", "--runs", "old", "--out", tmp_path)
    assert done.exit_code == 2
    assert "14d" in done.stderr
