"""What can be deleted, and what stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import InUse, RunLocked, StoreError
from harness.guests.machine import default_name, machine_of
from harness.guests.session import GuestSpec
from harness.host.cache import alone, hold, let_go
from harness.host.locks import exclusive
from harness.kernels.find import find_kernel
from harness.store import RunStore
from harness.store.bundle import unbundle
from harness.store.directory import discard
from harness.store.garbage import DAY_S, Kept, delete, kept_cache, kept_runs, old
from harness.store.layout import LOCK
from harness.store.lock import locked
from harness.tests.cli.runner import powercut, printed, refused
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


def test_a_run_that_is_deleted_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was, where that began just after somebody had asked who writes to it."""
    path = run(tmp_path, "a", 30)
    run(tmp_path, "b", 0)
    with RunStore.open(path) as store:
        with store.lock("powercut run"):
            pass
        aged(path, 30)

        def meanwhile(folder: Path) -> bool:
            with pytest.raises(RunLocked, match="powercut gc"), store.lock("powercut run --resume"):
                pass
            return discard(folder)

        monkeypatch.setattr("harness.store.garbage.discard", meanwhile)
        assert delete(old(kept_runs(tmp_path), 25)) > 0
    assert not path.exists()


def test_a_run_that_somebody_looks_at_is_used(tmp_path: Path) -> None:
    """Where the file system does not note reads (noatime), runs that were looked at every day were deleted.
    Reading does not move a time that is yet to come, whatever the file system.
    """
    info = run(tmp_path, "a", 30) / "run.json"
    tomorrow, changed = time.time() + DAY_S, info.stat().st_mtime
    os.utime(info, (tomorrow, changed))
    with RunStore.open(info.parent):
        pass
    assert changed < info.stat().st_atime < tomorrow - 1
    assert info.stat().st_mtime == changed


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
    """Campaigns, sweeps and measurements have no run.json: gc did not see them, however large."""
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


def test_what_a_killed_unpacking_left_is_counted_and_goes(tmp_path: Path) -> None:
    """It stayed for ever, however large."""
    left = tmp_path / "runs" / ".unpacking-x" / "a"
    left.mkdir(parents=True)
    (left / "log.zst").write_bytes(bytes(10_000))
    aged(left.parent, 30)
    (kept,) = kept_runs(tmp_path)
    assert kept.path == left.parent
    assert delete(old([kept], 25)) >= 10_000
    assert not left.parent.exists()


def test_a_package_that_is_being_unpacked_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def unpack(packed: object, folder: Path, file: Path) -> str:
        seen.extend(kept_runs(tmp_path / "here"))
        assert delete([replace(k, stays="") for k in seen]) == 0
        assert folder.is_dir()
        raise StoreError("enough", "")

    monkeypatch.setattr("harness.store.bundle._unpack", unpack)
    (tmp_path / "run.tar.zst").write_bytes(b"never looked into")
    with pytest.raises(StoreError, match="enough"):
        unbundle(tmp_path / "run.tar.zst", tmp_path / "here")
    assert [k.stays for k in seen] == [f"in use by process {os.getpid()}"]
    assert kept_runs(tmp_path / "here") == []


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


def test_gc_says_sizes_and_deletes_nothing_unasked(tmp_path: Path, cache: Path) -> None:
    path = run(tmp_path, "a", 30)
    run(tmp_path, "b", 30)
    assert "2 in all" in printed("gc", "--out", tmp_path)
    assert path.exists()
    assert "add --yes" in refused("gc", "--runs", "7d", "--out", tmp_path)
    assert path.exists()
    assert powercut("gc", "--runs", "7d", "--yes", "--out", tmp_path).exit_code == 0
    assert not path.exists()


def test_gc_wants_an_age_it_can_read(tmp_path: Path) -> None:
    assert "14d" in refused("gc", "--runs", "old", "--out", tmp_path)


# --- what is used ------------------------------------------------------------------------------

USES = """
import pathlib, sys
from harness.host.cache import hold
hold(pathlib.Path(sys.argv[1]))
print(flush=True)
input()
"""


def cached(cache: Path, name: str, file: str = "image") -> Path:
    path = cache / name / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x7fELF" + bytes(5000))
    aged(cache, 100)
    return path


def gc(*arguments: str) -> str:
    done = powercut("gc", "--cache", "90d", "--yes", *arguments)
    return done.output.replace("\n", " ")


def test_what_a_run_uses_stays_in_the_cache(cache: Path) -> None:
    """The kernel of a campaign that had booted its guests a week before was deleted under it."""
    image, other = cached(cache, "kernels/built-a"), cached(cache, "kernels/built-b")
    with subprocess.Popen(
        [sys.executable, "-c", USES, image], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"\n"
        aged(cache, 100)
        said = gc()
        assert f"kernels/built-a (in use by process {user.pid})" in said
        assert (image.exists(), other.exists()) == (True, False)
        user.kill()
    gc()
    assert not image.exists()


def test_what_is_held_was_used(cache: Path) -> None:
    image = cached(cache, "kernels/built-a")
    (before,) = kept_cache(cache)
    hold(image)
    (after,) = kept_cache(cache)
    assert old([before], 90) == [before]
    assert old([replace(after, stays="")], 90) == []
    let_go(image.parent)


def test_what_is_used_between_the_question_and_the_answer_stays(cache: Path) -> None:
    image = cached(cache, "rootfs/root-1", "root.erofs")
    (unused,) = kept_cache(cache)
    assert unused.stays == ""
    hold(image)
    assert delete([unused]) == 0
    assert image.exists()
    let_go(image.parent)
    assert delete([unused]) > 0


@pytest.mark.parametrize("use", ["kernel", "guest"])
def test_whoever_finds_a_kernel_uses_it(cache: Path, use: str) -> None:
    image = cached(cache, "kernels/built-a")
    if use == "kernel":
        find_kernel(str(image))
    else:
        GuestSpec(machine_of(default_name()), image, image)
    (kept,) = kept_cache(cache)
    assert kept.stays.startswith("in use by process")
    let_go(image.parent)


def test_a_tree_whose_owner_builds_in_it_stays(cache: Path) -> None:
    cached(cache, "kernels/trees/uml-linux-source-6.12-x")
    lock = cache / "kernels/trees/uml-linux-source-6.12-x/lock"
    with exclusive(lock, "the tree", print):
        (kept,) = kept_cache(cache)
        assert kept.stays.startswith("in use by process")
        assert delete([replace(kept, stays="")]) == 0
    assert kept_cache(cache)[0].stays == ""


def test_lock_files_are_no_entries(cache: Path) -> None:
    """Two processes held the lock on building: one on the file that was deleted, one on the new one."""
    cache.mkdir()
    for name in ("rootfs.lock", "kernels/building.lock"):
        (cache / name).parent.mkdir(exist_ok=True)
        (cache / name).touch()
    assert kept_cache(cache) == []


def test_what_is_being_deleted_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = cached(cache, "kernels/built-a")
    monkeypatch.setattr("harness.host.cache._DELETING_S", 0.0)
    with alone(image.parent) as used:
        assert used == ""
        with pytest.raises(InUse, match="being deleted"):
            hold(image)
    assert hold(image) == image
    let_go(image.parent)


def test_what_an_interrupted_deletion_left_is_counted_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run.json went first, and no gc saw the rest any more."""
    path = run(tmp_path, "a", 30)
    run(tmp_path, "b", 30)
    unlink, gone = os.unlink, list[str]()

    def interrupted(name: str, **given: int) -> None:
        unlink(name, **given)
        gone.append(name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", interrupted)
        with pytest.raises(KeyboardInterrupt):
            delete(old(kept_runs(tmp_path), 25))
    assert gone
    assert not path.exists(), "nobody takes what is left for a run"
    (left,) = (k for k in kept_runs(tmp_path) if not k.stays)
    delete([left])
    assert [p.name for p in (tmp_path / "runs").iterdir()] == [kept_runs(tmp_path)[0].path.name]
