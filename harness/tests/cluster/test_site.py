"""What a worker's process keeps between cases; with what boots no guest."""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import pytest

from harness.cluster import site
from harness.cluster.blobs import keep
from harness.cluster.messages import (
    BusyWithAnotherRun,
    Job,
    Note,
    NotFitted,
    Payload,
    Requirements,
    SentSpec,
    Unfit,
)
from harness.cluster.payloads import adopt, payload_of, put_files
from harness.cluster.site import Relay, Site
from harness.errors import NeverBoots, PowercutError, StoreError, VersionsDiffer
from harness.filesystems.profiles import select_profiles
from harness.model import CaseId, CrashState
from harness.plan import Plan
from harness.store import RunStore
from harness.store.records import CaseInfo
from harness.tests.store.samples import CASE, INFO

DEADLINE_S = 60.0
KERNEL = b"a kernel"
SHA = hashlib.sha256(KERNEL).hexdigest()


def requirements(run: str, path: str = "/nowhere") -> Requirements:
    plan = Plan(configurations=["ext4/ordered"], workloads=["w"])
    spec = SentSpec("qemu", "tcg", SHA, SHA)
    return Requirements(run, plan, spec, None, {}, {}, {SHA: path}, {})


def job(run: str) -> Job:
    return Job(run, 1, CaseId("ext4", "ordered", "w"), "w")


class Fake:
    """What is kept for a run. A job waits, if it is to, until it is let go or this is closed."""

    made: ClassVar[list[Fake]]
    hold: ClassVar[threading.Event]

    def __init__(self, requirements: Requirements, places: dict[str, Path], slots: int, *_: object) -> None:
        assert places[SHA].read_bytes() == KERNEL
        self.requirements, self.slots = requirements, slots
        self.closed, self.works = threading.Event(), threading.Event()
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
def fitted(monkeypatch: pytest.MonkeyPatch, cache: Path) -> type[Fake]:
    Fake.made, Fake.hold = [], threading.Event()
    Fake.hold.set()
    monkeypatch.setattr(site, "fitted", Fake)
    return Fake


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_host_lacks_is_told_and_what_it_has_is_used(fitted: type[Fake], tmp_path: Path) -> None:
    """A file at the run's own path counts only if it holds the same."""
    mine = Site()
    other = tmp_path / "kernel"
    other.write_bytes(b"another kernel")
    assert mine.fit(requirements("a", str(other)), 2) == (SHA,)
    with pytest.raises(NotFitted):
        mine.work(job("a"), lambda note: None)
    other.write_bytes(KERNEL)
    assert Site().fit(requirements("a", str(other)), 2) == ()
    keep(SHA, KERNEL)
    assert mine.fit(requirements("a"), 2) == ()
    assert mine.work(job("a"), lambda note: None).payload == Payload()


def test_a_damaged_blob_in_the_cache_counts_as_lacking(fitted: type[Fake], tmp_path: Path) -> None:
    """It was booted: the blobs of the cache were believed by their names."""
    keep(SHA, KERNEL)
    kept = tmp_path / "cache" / "parts" / SHA
    kept.write_bytes(b"a kernal")
    mine = Site()
    assert mine.fit(requirements("a"), 2) == (SHA,)
    assert mine.fit(requirements("a"), 2) == (SHA,)
    keep(SHA, KERNEL)
    assert mine.fit(requirements("a"), 2) == ()


def test_guests_stay_from_case_to_case_until_the_run_dismisses_them(fitted: type[Fake]) -> None:
    keep(SHA, KERNEL)
    mine = Site()
    mine.fit(requirements("a"), 2)
    for _ in range(3):
        mine.work(job("a"), lambda note: None)
    (kept,) = fitted.made
    assert kept.slots == 2
    mine.dismiss("another run")
    assert not kept.closed.is_set()
    mine.dismiss("a")
    assert kept.closed.is_set()
    with pytest.raises(NotFitted):
        mine.work(job("a"), lambda note: None)


def test_it_works_for_one_run_at_a_time(fitted: type[Fake]) -> None:
    keep(SHA, KERNEL)
    mine = Site()
    mine.fit(requirements("a"), 2)
    fitted.hold.clear()
    at_work = threading.Thread(target=mine.work, args=[job("a"), lambda note: None])
    at_work.start()
    until(lambda: fitted.made and fitted.made[0].works.is_set())
    with pytest.raises(BusyWithAnotherRun, match="the run a"):
        mine.fit(requirements("b"), 2)
    assert mine.fit(requirements("a"), 2) == (), "it has its requirements"
    fitted.hold.set()
    at_work.join()
    assert mine.fit(requirements("b"), 2) == ()
    assert fitted.made[0].closed.is_set(), "the guests of a run that has nothing to do make room"
    assert mine.work(job("b"), lambda note: None).payload == Payload()


def test_what_is_at_work_ends_when_the_run_dismisses_it(fitted: type[Fake]) -> None:
    keep(SHA, KERNEL)
    mine, raised = Site(), cast(list[BaseException], [])
    mine.fit(requirements("a"), 2)
    fitted.hold.clear()

    def work() -> None:
        try:
            mine.work(job("a"), lambda note: None)
        except RuntimeError as e:
            raised.append(e)

    at_work = threading.Thread(target=work)
    at_work.start()
    until(lambda: fitted.made and fitted.made[0].works.is_set())
    mine.dismiss("a")
    at_work.join(DEADLINE_S)
    assert raised
    fitted.hold.set()
    mine.fit(requirements("b"), 2)
    mine.work(job("b"), lambda note: None)
    assert [kept.requirements.run for kept in fitted.made] == ["a", "b"], "what was dismissed is not used"


def test_guests_are_ended_once_a_killed_run_says_nothing_more(
    fitted: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "IDLE_S", 0.2)
    keep(SHA, KERNEL)
    mine = Site()
    mine.fit(requirements("a"), 2)
    mine.work(job("a"), lambda note: None)
    until(fitted.made[0].closed.is_set)


@pytest.mark.parametrize("of_run", [False, True], ids=["of a cluster", "a shard"])
@pytest.mark.parametrize("error", [NeverBoots("3 guests did not come up"), VersionsDiffer("protocol 2")])
def test_a_worker_whose_guests_cannot_be_used_is_unfit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: PowercutError, of_run: bool
) -> None:
    """Else each of its cases counts as one that lost a worker, and is UNKNOWN after three. Where no other
    would do better, the run gets the error itself.
    """

    class Ends:
        def __init__(self, *_: object, **__: object) -> None: ...

        def work(self, *_: object) -> None:
            raise error

    monkeypatch.setattr(site, "Casework", Ends)
    spec, (profile,) = SimpleNamespace(), select_profiles(["ext4/ordered"])
    name = "ace-creat.A_foo+fsync.A_foo"
    with RunStore.create(tmp_path, "cases", INFO) as store:
        kept = site.Fitted(
            requirements("a"),
            cast(Any, SimpleNamespace(recorder=spec, judge=spec)),
            {profile.name: profile},
            {profile.name: tmp_path / "base"},
            cast(Any, SimpleNamespace(path=tmp_path)),
            store,
            cast(Any, None),
            of_run=of_run,
        )
        with pytest.raises(type(error) if of_run else Unfit, match=error.what):
            kept.work(Job("a", 1, CaseId("ext4", "ordered", name), name), Relay(1, lambda note: None))
        assert not store.cases()


@pytest.mark.parametrize("files", [True, False], ids=["new", "the run has it"])
def test_what_recoveries_wrote_travels_with_their_case(tmp_path: Path, files: bool) -> None:
    """It went with the worker's copy of the case: `repro` could show no finding in a cut recovery."""
    state, case = CrashState(3), CASE
    with (
        RunStore.create(tmp_path / "there", "cases", INFO) as there,
        RunStore.create(tmp_path / "run", "t", INFO) as run,
    ):
        for store in (there, run):
            store.add_case(CaseInfo(case, generated=9, distinct=8))
        kept = there.layout.case(case)
        kept.recovery(state).parent.mkdir(parents=True)
        kept.recovery(state).write_bytes(b"what it wrote")
        for file in (kept.log, kept.history):
            file.write_bytes(b"x")
        sent = payload_of(there, case, files=files)
        adopt(run, case, sent, "worker-1")
        assert run.layout.case(case).recovery(state).read_bytes() == b"what it wrote"
        assert run.layout.case(case).history.exists() is files


def test_a_file_that_is_no_recoverys_is_not_put_into_the_run(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "t", INFO) as run:
        run.add_case(CaseInfo(CASE, generated=9, distinct=8))
        names = ("recoveries/../../x.zst", "../x.zst", "x.zst")
        put_files(run, CASE, Payload(None, dict.fromkeys(names, b"")))
        assert not [*run.layout.cases.rglob("*.zst")]


@pytest.mark.parametrize("error", [StoreError("the image is damaged"), OSError("no space left")])
def test_a_worker_that_cannot_get_ready_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Each run that asked it left a folder with the images that were unpacked by then, for as long as the
    worker's process lived.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def unpack(*_: object) -> Path:
        raise error

    monkeypatch.setattr(site, "unpack", unpack)
    monkeypatch.setattr(site, "host_pins", lambda *_: {})
    for name in ("_machine", "_spec"):
        monkeypatch.setattr(site, name, lambda *_: SimpleNamespace())
    asked = msgspec.structs.replace(requirements("a"), bases={"ext4/ordered": SHA})
    with pytest.raises(type(error)):
        site.fitted(asked, {SHA: tmp_path / "kernel"}, 1)
    assert not [*tmp_path.iterdir()]


def test_a_case_that_went_wrong_leaves_no_working_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The case may come back with the recording of another worker. Whatever is unpacked already is not
    unpacked again: that case was then judged by the log of this one.
    """
    name = "ace-creat.A_foo+fsync.A_foo"
    (profile,) = select_profiles(["ext4/ordered"])
    left = tmp_path / f"ext4-ordered.{name}.log"

    class Breaks:
        def __init__(self, *_: object, **__: object) -> None: ...

        def work(self, *_: object) -> None:
            left.write_bytes(b"a log")
            raise StoreError("the database is damaged")

    monkeypatch.setattr(site, "Casework", Breaks)
    with RunStore.create(tmp_path, "cases", INFO) as store:
        nothing, folder = cast(Any, None), cast(Any, SimpleNamespace(path=tmp_path))
        bases = {profile.name: tmp_path / "base"}
        kept = site.Fitted(requirements("a"), nothing, {profile.name: profile}, bases, folder, store, nothing)
        with pytest.raises(StoreError):
            kept.work(Job("a", 1, CaseId("ext4", "ordered", name), name), Relay(1, lambda note: None))
    assert not left.exists()


def test_a_note_tells_of_the_progress_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "NOTE_S", 0.0)
    told: list[Note] = []
    relay = Relay(7, told.append)
    relay.begin("states", 5)
    relay.advance("states", 2)
    relay.say("half way")
    relay.advance("states", 3)
    assert told == [
        Note(7, "", {"states": 5}, {"states": 2}),
        Note(7, "half way", {"states": 5}, {"states": 2}),
        Note(7, "", {"states": 5}, {"states": 5}),
    ]
    assert relay.note == told[-1]
