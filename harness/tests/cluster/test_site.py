"""What a worker's process keeps between cases; with slots that boot no guest."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cluster import site
from harness.cluster.blobs import keep
from harness.cluster.messages import (
    Blob,
    BusyWithAnotherRun,
    Job,
    Lacking,
    Note,
    NotFitted,
    Payload,
    Requirements,
    SentSpec,
    Unfit,
)
from harness.cluster.site import Relay, Site
from harness.errors import NeverBoots, PowercutError, VersionsDiffer
from harness.filesystems.profiles import select_profiles
from harness.model import CaseId
from harness.plan import Plan

DEADLINE_S = 60.0
KERNEL = b"a kernel"
SHA = hashlib.sha256(KERNEL).hexdigest()


def requirements(run: str, path: str = "/nowhere") -> Requirements:
    plan = Plan(configurations=["ext4/ordered"], workloads=["w"])
    spec = SentSpec("qemu", "tcg", SHA, SHA)
    return Requirements(run, plan, spec, None, {}, {}, (Blob(SHA, "kernel", path),), {})


def job(run: str) -> Job:
    return Job(run, 1, CaseId("ext4", "ordered", "w"), "w")


class FakeSlot:
    """Waits, if it is to, until it is let go or closed."""

    made: list[FakeSlot]
    hold: threading.Event

    def __init__(self, fitted: Any, number: int) -> None:
        self.run, self.closed, self.works = fitted.requirements.run, threading.Event(), threading.Event()
        self.made.append(self)

    def work(self, job: Job, progress: Relay) -> Payload:
        self.works.set()
        while not self.hold.wait(0.01):
            if self.closed.is_set():
                raise RuntimeError("closed")
        return Payload()

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeSlot]:
    class Slot(FakeSlot):
        hold = threading.Event()

    Slot.made = []

    def fitted(asked: Requirements, places: dict[str, Path]) -> Any:
        assert places[SHA].read_bytes() == KERNEL
        return SimpleNamespace(requirements=asked, folder=SimpleNamespace(remove=lambda: None))

    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(site, "Slot", Slot)
    monkeypatch.setattr(site, "_fitted", fitted)
    Slot.hold.set()
    return Slot


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_host_lacks_is_told_and_what_it_has_is_used(slots: type[FakeSlot], tmp_path: Path) -> None:
    """A file at the run's own path counts only if it holds the same."""
    mine = Site()
    other = tmp_path / "kernel"
    other.write_bytes(b"another kernel")
    assert mine.fit(requirements("a", str(other))) == Lacking((SHA,))
    with pytest.raises(NotFitted):
        mine.work(job("a"), lambda note: None)
    other.write_bytes(KERNEL)
    assert Site().fit(requirements("a", str(other))) == Lacking()
    keep(SHA, KERNEL)
    assert mine.fit(requirements("a")) == Lacking()
    assert mine.work(job("a"), lambda note: None).payload == Payload()


def test_guests_stay_from_case_to_case_until_the_run_dismisses_them(slots: type[FakeSlot]) -> None:
    keep(SHA, KERNEL)
    mine = Site()
    mine.fit(requirements("a"))
    for _ in range(3):
        mine.work(job("a"), lambda note: None)
    (slot,) = slots.made
    mine.dismiss("another run")
    assert not slot.closed.is_set()
    mine.dismiss("a")
    assert slot.closed.is_set()
    with pytest.raises(NotFitted):
        mine.work(job("a"), lambda note: None)


def test_it_works_for_one_run_at_a_time(slots: type[FakeSlot]) -> None:
    keep(SHA, KERNEL)
    mine = Site()
    mine.fit(requirements("a"))
    slots.hold.clear()
    at_work = threading.Thread(target=mine.work, args=[job("a"), lambda note: None])
    at_work.start()
    until(lambda: slots.made and slots.made[0].works.is_set())
    with pytest.raises(BusyWithAnotherRun, match="the run a"):
        mine.fit(requirements("b"))
    assert mine.fit(requirements("a")) == Lacking(), "it has its requirements"
    slots.hold.set()
    at_work.join()
    assert mine.fit(requirements("b")) == Lacking()
    assert slots.made[0].closed.is_set(), "the guests of a run that has nothing to do make room"
    assert mine.work(job("b"), lambda note: None).payload == Payload()


def test_what_is_at_work_ends_when_the_run_dismisses_it(slots: type[FakeSlot]) -> None:
    keep(SHA, KERNEL)
    mine, raised = Site(), cast(list[BaseException], [])
    mine.fit(requirements("a"))
    slots.hold.clear()

    def work() -> None:
        try:
            mine.work(job("a"), lambda note: None)
        except RuntimeError as e:
            raised.append(e)

    at_work = threading.Thread(target=work)
    at_work.start()
    until(lambda: slots.made and slots.made[0].works.is_set())
    mine.dismiss("a")
    at_work.join(DEADLINE_S)
    assert raised
    slots.hold.set()
    mine.fit(requirements("b"))
    mine.work(job("b"), lambda note: None)
    assert [slot.run for slot in slots.made] == ["a", "b"], "a slot that was dismissed is not used again"


def test_guests_are_ended_once_a_killed_run_says_nothing_more(
    slots: type[FakeSlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "IDLE_S", 0.2)
    keep(SHA, KERNEL)
    mine = Site()
    mine.fit(requirements("a"))
    mine.work(job("a"), lambda note: None)
    until(slots.made[0].closed.is_set)


@pytest.mark.parametrize("error", [NeverBoots("3 guests did not come up"), VersionsDiffer("protocol 2")])
def test_a_worker_whose_guests_cannot_be_used_is_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: PowercutError
) -> None:
    """Else each of its cases counts as one that lost a worker, and is UNKNOWN after three."""

    class Ends:
        def __init__(self, *_: object) -> None: ...

        def work(self, *_: object) -> None:
            raise error

    monkeypatch.setattr(site, "Casework", Ends)
    spec, (profile,) = SimpleNamespace(), select_profiles(["ext4/ordered"])
    fitted = SimpleNamespace(
        folder=SimpleNamespace(path=tmp_path),
        specs=SimpleNamespace(recorder=spec, judge=spec),
        plan=requirements("a").plan,
        profiles={profile.name: profile},
        packed={profile.name: tmp_path / "packed"},
        bases={profile.name: tmp_path / "base"},
    )
    slot = site.Slot(cast(Any, fitted), 1)
    name = "ace-creat.A_foo+fsync.A_foo"
    with pytest.raises(Unfit, match=error.what):
        slot.work(Job("a", 1, CaseId("ext4", "ordered", name), name), Relay(1, lambda note: None))
    slot.close()


def test_notes_add_up_to_the_progress_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "NOTE_S", 0.0)
    told: list[Note] = []
    relay = Relay(7, told.append)
    relay.begin("states", 5)
    relay.advance("states", 2)
    relay.say("half way")
    relay.advance("states", 3)
    assert {note.number for note in told} == {7}
    assert [text for note in told for text in note.said] == ["half way"]
    assert sum(note.begun.get("states", 0) for note in told) == 5
    assert sum(note.advanced.get("states", 0) for note in told) == 5
    assert relay.totals() == ({"states": 5}, {"states": 5})
