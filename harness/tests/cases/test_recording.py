"""Histories from marks; recordings kept, found again, taken over, and refused where they were changed."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.crash_and_continue import record
from harness.cases.recording import (
    ATTEMPTS,
    MKFS_ATTEMPTS,
    Recording,
    Recoveries,
    copy_base,
    copy_recording,
    hashes_of,
    history_of,
    is_kept,
    load_recording,
    make_base,
    read_said,
)
from harness.errors import (
    CannotRecord,
    EnvironmentLacks,
    EventsDiffer,
    GuestLost,
    GuestSpent,
    LogDiffers,
    PowercutError,
    StoreError,
    ToolKilled,
    WriteLogError,
)
from harness.filesystems import tools as tools_module
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.filesystems.tools import Tool
from harness.guests.session import Session
from harness.host.files import json_bytes
from harness.host.packed import pack
from harness.model import CaseId, EntryFlag, FsckClass, LogEntry, Said, Workload
from harness.states import LegalStates
from harness.store.layout import CaseLayout, RunLayout
from harness.workloads.load import parse_operation
from harness.writelog import WriteLog, read_log
from harness.writelog.build import MarkText, write_log
from harness.writelog.events import no_events


class Grows:
    """While it is pickled, what it belongs to grows."""

    def __init__(self, owner: dict[Any, Any]) -> None:
        self._owner = owner

    def __reduce__(self) -> tuple[type[object], tuple[()]]:
        self._owner[len(self._owner)] = None
        return object, ()


@pytest.mark.parametrize("kind", [LegalStates, WriteLog, Recoveries])
def test_what_is_sent_may_grow_in_another_thread(kind: type[Any]) -> None:
    """`dictionary changed size during iteration` left one of 3,464 states undecided: while one thread sent a
    recording to its worker, the next one noted a recovery. Properties that are computed late are the same.
    """
    sent: Any = Recoveries() if kind is Recoveries else object.__new__(kind)
    owner = sent if isinstance(sent, dict) else vars(sent)
    owner.update({str(number): Grows(owner) for number in range(3)})
    got = pickle.loads(pickle.dumps(sent))  # noqa: S301 - from this very process
    assert (len(got) if isinstance(got, dict) else len(vars(got))) == (0 if kind is Recoveries else 3)


OPERATIONS = (parse_operation("create f"), parse_operation("fsync f"))
WORKLOAD = Workload("append-fsync", "", OPERATIONS)
MARKS = ("begin 0", "ack 0", "begin 1", "ack 1")
CASE = CaseId("ext4", "ordered", "append-fsync")
SAID = (Said(None, ("mounted",)), Said(1, ("a complaint", "another one")))
LOG_BYTES = 1 << 20


def events(*marks: str) -> str:
    """The events of a log of marks."""
    return "".join(f"tracing_mark_write: powercut: {mark}\n" for mark in marks)


def entries(*marks: str) -> list[LogEntry]:
    """A write between any two marks."""
    found: list[LogEntry] = []
    for text in marks:
        found.append(LogEntry(len(found), 0, 8, EntryFlag(0), 0))
        found.append(LogEntry(len(found), 0, 0, EntryFlag.MARK, 0, text))
    return found


def test_marks_tell_the_history() -> None:
    log = entries("begin 0", "ack 0", "begin 1", "ack 1", "end", "unmounted", "dm-log-writes-end")
    history = history_of(log, OPERATIONS)
    assert [(s.begin, s.ack) for s in history.steps] == [(1, 3), (5, 7)]
    assert history.position(4) == history.position(5)
    position = history.position(6)
    assert (position.begun, position.acked) == (2, 1)


@pytest.mark.parametrize(
    "marks",
    [
        (),
        ("begin 0", "ack 0", "begin 1"),
        ("begin 0", "begin 1", "ack 0", "ack 1"),
        ("begin 0", "ack 0", "begin 0", "ack 0"),
        ("begin 0", "ack 0", "begin 1", "ack 1", "begin 2"),
    ],
)
def test_marks_that_tell_another_history_are_refused(marks: tuple[str, ...]) -> None:
    with pytest.raises(WriteLogError) as caught:
        history_of(entries(*marks), OPERATIONS)
    assert "record again" in str(caught.value)


# --- kept ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile() -> Profile:
    (found,) = select_profiles([CASE.configuration])
    return found


def keep(folder: Path) -> RunLayout:
    """A run directory with one recording."""
    run = RunLayout(folder / "run")
    kept = run.case(CASE)
    kept.folder.mkdir(parents=True)
    (folder / "plain").write_bytes(bytes(4096))
    pack(folder / "plain", kept.base)
    write_log(folder / "plain", [MarkText(m) for m in MARKS])
    pack(folder / "plain", kept.log)
    (folder / "events").write_text(events(*MARKS))
    pack(folder / "events", kept.events)
    kept.console.write_text("booted\n")
    kept.said.write_bytes(json_bytes(SAID))
    history = history_of(read_log(folder / "plain").entries, OPERATIONS)
    kept.history.write_bytes(json_bytes(history))
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    return keep(tmp_path)


def load(run: RunLayout, profile: Profile, known: dict[str, str] | None = None) -> Recording:
    scratch = run.path.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    for left in scratch.iterdir():
        left.unlink()
    return load_recording(CASE, profile, WORKLOAD, run, scratch, LOG_BYTES, known or {})


def test_a_recording_comes_back(run: RunLayout, profile: Profile) -> None:
    recording = load(run, profile, hashes_of(run.case(CASE)))
    assert recording.history == history_of(recording.write_log.entries, OPERATIONS)
    assert recording.files == hashes_of(run.case(CASE))
    assert set(recording.files) == {"base.img.zst", "log.zst", "events.zst", "kernel.json", "history.json"}
    assert recording.said == SAID
    assert recording.times is not None
    assert [(m.at, m.entry, m.text) for m in recording.times.marks] == [
        (i, i, mark) for i, mark in enumerate(MARKS)
    ]
    assert recording.no_times == ""


def test_a_recording_of_before_has_no_times_and_says_why(
    run: RunLayout, profile: Profile, tmp_path: Path
) -> None:
    run.case(CASE).events.unlink()
    recording = load(run, profile, hashes_of(run.case(CASE)))
    assert recording.times is None
    assert "a version that kept none" in recording.no_times
    own = RunLayout(tmp_path / "own")
    copy_base(profile, run, own)
    copy_recording(CASE, run, own)
    assert is_kept(CASE, own)


def test_a_recording_on_a_kernel_without_events_says_why(
    run: RunLayout, profile: Profile, tmp_path: Path
) -> None:
    (tmp_path / "events").write_text(no_events("this kernel has no tracefs"))
    pack(tmp_path / "events", run.case(CASE).events)
    recording = load(run, profile)
    assert (recording.times, recording.no_times) == (None, "this kernel has no tracefs")


def test_a_recording_whose_events_are_gone_is_refused(run: RunLayout, profile: Profile) -> None:
    """Without them it would be judged on other crash states."""
    before = hashes_of(run.case(CASE))
    run.case(CASE).events.unlink()
    with pytest.raises(StoreError, match=r"events\.zst is missing"):
        load(run, profile, before)


def test_events_of_another_recording_are_refused(run: RunLayout, profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "events").write_text(events(*MARKS[:-1]))
    pack(tmp_path / "events", run.case(CASE).events)
    with pytest.raises(EventsDiffer, match="the log has 4 marks, the events 3"):
        load(run, profile)


def test_a_recording_that_is_not_there_says_so(tmp_path: Path, profile: Profile) -> None:
    run = RunLayout(tmp_path)
    with pytest.raises(StoreError) as caught:
        load_recording(CASE, profile, WORKLOAD, run, tmp_path, LOG_BYTES)
    assert str(CASE) in str(caught.value)
    with pytest.raises(StoreError, match="has no recording of"):
        copy_recording(CASE, run, RunLayout(tmp_path / "other"))


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("change", [{"ack": None}, {"begin": None}, {"ack": 0}, {"begin": 1}])
def test_a_history_that_the_marks_do_not_tell_is_refused(
    run: RunLayout, profile: Profile, step: int, change: dict[str, int | None]
) -> None:
    """With its acknowledgements set to null in history.json a recording that failed passed."""
    file = run.case(CASE).history
    told = msgspec.json.decode(file.read_bytes())
    told["steps"][step].update(change)
    file.write_bytes(msgspec.json.encode(told))
    with pytest.raises(StoreError, match=f"not the history that the marks .* differs in operation {step}"):
        load(run, profile)


def test_a_history_of_other_operations_or_acknowledgements_is_refused(
    run: RunLayout, profile: Profile
) -> None:
    file = run.case(CASE).history
    sound = msgspec.json.decode(file.read_bytes())
    changed = {**sound, "acknowledgements": [{"operation": 0, "text": "k0", "entry": 1}]}
    file.write_bytes(msgspec.json.encode(changed))
    with pytest.raises(StoreError, match="what applications acknowledged"):
        load(run, profile)
    sound["steps"][1]["operation"]["path"] = "g"
    file.write_bytes(msgspec.json.encode(sound))
    with pytest.raises(StoreError, match="operation 1"):
        load(run, profile)
    file.write_bytes(msgspec.json.encode({**sound, "steps": sound["steps"][:1]}))
    with pytest.raises(StoreError, match="operation 1"):
        load(run, profile)


@pytest.mark.parametrize("name", ["base.img.zst", "log.zst", "events.zst", "kernel.json", "history.json"])
def test_a_file_that_was_changed_since_is_named_with_both_hashes(
    run: RunLayout, profile: Profile, name: str, tmp_path: Path
) -> None:
    """A changed log dropped its verdicts without a word, and was judged anew."""
    kept = run.case(CASE)
    before = hashes_of(kept)
    file = next(f for f in (kept.base, *kept.files) if f.name == name)
    if file in (kept.history, kept.said):
        file.write_bytes(file.read_bytes() + b" ")
    else:
        (tmp_path / "plain").write_bytes(bytes(8192))
        pack(tmp_path / "plain", file)
    now = hashes_of(kept)[name]
    with pytest.raises(StoreError) as caught:
        load(run, profile, before)
    assert f"{file} was changed" in caught.value.what
    assert f"sha256 {before[name]} then, {now} now" in caught.value.what


@pytest.mark.fuzz
@given(
    name=st.sampled_from(["base.img.zst", "log.zst", "events.zst", "kernel.json", "history.json"]),
    seed=st.integers(0, 10**6),
    cut=st.booleans(),
)
def test_a_damaged_recording_is_refused_in_one_line_or_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, cut: bool
) -> None:
    """Also without a hash to hold it against: UnicodeDecodeError, ValueError, and false passes."""
    (profile,) = select_profiles([CASE.configuration])
    run = keep(tmp_path_factory.mktemp("damaged"))
    sound = load(run, profile)
    image = sound.base.read_bytes()
    kept, chance = run.case(CASE), random.Random(seed)  # noqa: S311  # no secret
    file = next(f for f in (kept.base, *kept.files) if f.name == name)
    data = bytearray(file.read_bytes())
    at = chance.randrange(len(data))
    if cut:
        del data[at:]
    else:
        data[at] = (data[at] + chance.randrange(1, 256)) % 256
    file.write_bytes(data)
    try:
        again = load(run, profile)
    except PowercutError as e:
        assert "\n" not in e.what
        return
    assert (again.history, again.write_log, again.times) == (sound.history, sound.write_log, sound.times)
    assert again.base.read_bytes() == image


# --- taken over ------------------------------------------------------------------------------


def test_a_recording_counts_as_kept_only_when_it_is_whole(run: RunLayout, tmp_path: Path) -> None:
    own = RunLayout(tmp_path / "own")
    assert not is_kept(CASE, own)
    own.case(CASE).folder.mkdir(parents=True)
    own.case(CASE).log.write_bytes(b"")
    assert not is_kept(CASE, own)
    own.base("ext4", "ordered").write_bytes(b"")
    copy_recording(CASE, run, own)
    assert is_kept(CASE, own)
    assert hashes_of(own.case(CASE))["log.zst"] == hashes_of(run.case(CASE))["log.zst"]


def test_recordings_without_their_base_image_are_refused(
    run: RunLayout, tmp_path: Path, profile: Profile
) -> None:
    """A new base image was made, and the log replayed on it: another disk."""
    run.case(CASE).base.unlink()
    own = RunLayout(tmp_path / "own")
    with pytest.raises(StoreError, match=r"base\.img\.zst is missing: 1 recordings of ext4/ordered"):
        copy_base(profile, run, own)
    with pytest.raises(StoreError, match="is missing"):
        copy_recording(CASE, run, own)
    assert not is_kept(CASE, own)


def test_the_base_image_is_taken_over_once(run: RunLayout, tmp_path: Path, profile: Profile) -> None:
    own = RunLayout(tmp_path / "own")
    copy_base(profile, run, own)
    first = own.case(CASE).base.read_bytes()
    assert first == run.case(CASE).base.read_bytes()
    run.case(CASE).base.write_bytes(b"other")
    copy_base(profile, run, own)
    assert own.case(CASE).base.read_bytes() == first
    copy_base(profile, RunLayout(tmp_path / "nothing"), RunLayout(tmp_path / "more"))
    assert not (tmp_path / "more").exists()


def test_a_base_image_of_a_case_s_own_is_used_and_taken_over(
    run: RunLayout, profile: Profile, tmp_path: Path
) -> None:
    """A larger file system for one workload: the others of the mode keep theirs."""
    (tmp_path / "own").write_bytes(b"a larger one")
    pack(tmp_path / "own", run.case(CASE).own_base)
    assert load(run, profile).base.read_bytes() == b"a larger one"
    assert run.case(dataclasses.replace(CASE, workload="other")).base == run.base("ext4", "ordered")
    copied = RunLayout(tmp_path / "copied")
    copy_base(profile, run, copied)
    copy_recording(CASE, run, copied)
    assert copied.case(CASE).base == copied.case(CASE).own_base
    assert hashes_of(copied.case(CASE)) == hashes_of(run.case(CASE))


def test_a_copy_that_a_kill_left_half_done_is_done_again(
    run: RunLayout, tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a base image was taken for a whole one."""

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    own = RunLayout(tmp_path / "own")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("os.fsync", dies)
        copy_base(profile, run, own)
    assert not own.case(CASE).base.exists()
    copy_base(profile, run, own)
    assert own.case(CASE).base.read_bytes() == run.case(CASE).base.read_bytes()


# --- made ------------------------------------------------------------------------------------


class FakeRecorder:
    """Records in vain as often as there are errors, then well; a text is what the kernel then says."""

    def __init__(self, folder: Path, errors: Sequence[PowercutError | str]) -> None:
        self.directory, self.log = folder, folder / "log-device"
        self.said: tuple[Said, ...] = ()
        self.errors, self.tried = list(errors), 0
        (folder / "console.txt").touch()
        write_log(self.log, [MarkText("begin 0"), MarkText("ack 0")])

    def record(self, *_: object) -> str:
        self.tried += 1
        said = self.errors.pop(0) if self.errors else "mounted"
        if isinstance(said, PowercutError):
            raise said
        self.said = (Said(0, (said,)),)
        return events("begin 0", "ack 0")


def recorded(folder: Path, *errors: PowercutError | str) -> tuple[int, PowercutError | None]:
    """How many recordings were made where these errors come in turn, and the error of the last."""
    recorder = FakeRecorder(folder, errors)
    workload = Workload("w", "", (parse_operation("sync"),))
    (profile,) = select_profiles([CASE.configuration])
    (folder / "base").touch()
    session = cast(Session, cast(Any, recorder))
    try:
        record(
            session,
            profile,
            workload,
            CASE,
            folder / "base",
            CaseLayout(folder / "base", folder / "kept"),
            folder,
        )
    except PowercutError as e:
        return recorder.tried, e
    return recorder.tried, None


def test_a_log_that_gives_neither_the_disk_nor_times_is_recorded_again(tmp_path: Path) -> None:
    """By chance: a page was changed while it was being written, or equal writes were in flight together."""
    assert recorded(tmp_path, LogDiffers("byte 7"), EventsDiffer("equal writes")) == (3, None)


def test_where_the_same_event_is_amiss_twice_the_case_cannot_be_recorded(tmp_path: Path) -> None:
    """bcache reports completions of what was never sent. Recorded six times, the case was UNKNOWN, with
    the advice to record again.
    """
    error = EventsDiffer("event 25 completes what was not submitted", "put linear between")
    tried, cannot = recorded(tmp_path, error, error)
    assert (tried, type(cannot), str(cannot)) == (2, CannotRecord, str(error))
    assert recorded(tmp_path, LogDiffers("byte 7"), LogDiffers("byte 7")) == (3, None)


def test_a_recording_in_which_something_took_long_is_made_again(tmp_path: Path) -> None:
    """What the kernel said meanwhile was thrown away: a slow host is told there, too, and is no complaint."""
    slow = "rcu: INFO: rcu_sched self-detected stall on CPU"
    assert recorded(tmp_path, slow, GuestSpent("it keeps something back"), slow) == (4, None)
    kept = CaseLayout(tmp_path / "base", tmp_path / "kept")
    assert read_said(kept.said) == (Said(0, ("mounted",)),)
    tried, error = recorded(tmp_path, *[slow] * ATTEMPTS)
    assert (tried, type(error)) == (ATTEMPTS, GuestLost)
    assert "self-detected stall" in str(error)


def test_a_log_that_never_gives_the_disk_is_an_error(tmp_path: Path) -> None:
    errors = [LogDiffers(f"byte {n}") for n in range(ATTEMPTS + 1)]
    assert recorded(tmp_path, *errors) == (ATTEMPTS, errors[ATTEMPTS - 1])


@pytest.mark.parametrize("error", [WriteLogError("the log device is full"), GuestLost("gone")], ids=str)
def test_what_is_no_chance_is_not_recorded_again(tmp_path: Path, error: PowercutError) -> None:
    """A log device that was full was filled six times before anybody heard of it."""
    assert recorded(tmp_path, error) == (1, error)


def mkfs_that(folder: Path, does: str) -> Profile:
    """A mode whose mkfs counts its calls in `calls`, and then does this."""
    script = folder / "mkfs.broken"
    script.write_text(f"#!/bin/sh\necho >> {folder}/calls\n{does}\n")
    script.chmod(0o755)
    (profile,) = select_profiles(["ext4/ordered"])
    return dataclasses.replace(profile, mkfs=Tool(str(script), "none"), size_bytes=1 << 20)


def calls(folder: Path) -> int:
    """How often its mkfs was called."""
    return len((folder / "calls").read_text().splitlines())


def test_a_killed_mkfs_is_tried_again(tmp_path: Path) -> None:
    """It made the mode one that cannot be run here, and the run one that could not be gone on with."""
    profile = mkfs_that(tmp_path, f"[ $(wc -l < {tmp_path}/calls) -eq {MKFS_ATTEMPTS} ] || kill -9 $$")
    image = make_base(profile, tmp_path / "kept", tmp_path)
    assert (image.stat().st_size, calls(tmp_path)) == (profile.size_bytes, MKFS_ATTEMPTS)


def test_an_mkfs_that_is_always_killed_says_nothing_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(ToolKilled, match=r"mkfs.broken was killed by signal 9"):
        make_base(mkfs_that(tmp_path, "kill -9 $$"), tmp_path / "kept", tmp_path)
    assert calls(tmp_path) == MKFS_ATTEMPTS
    assert not (tmp_path / "kept").exists()


def test_an_mkfs_that_refuses_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacks, match="failed with 3: unknown option"):
        make_base(mkfs_that(tmp_path, "echo unknown option; exit 3"), tmp_path / "kept", tmp_path)
    assert calls(tmp_path) == 1


def test_an_mkfs_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_module, "TOOL_TIMEOUT_S", 0.1)
    with pytest.raises(ToolKilled, match=r"did not end within 0.1 s"):
        make_base(mkfs_that(tmp_path, "exec sleep 60"), tmp_path / "kept", tmp_path)


@pytest.mark.parametrize(("does", "said"), [("kill -9 $$", "signal 9"), ("exec sleep 60", "within 0.1 s")])
def test_an_fsck_that_did_not_come_to_its_end_did_not_check(
    does: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools_module, "TOOL_TIMEOUT_S", 0.1)
    broken = mkfs_that(tmp_path, does)
    checked = dataclasses.replace(broken, fsck=broken.mkfs).check_filesystem(tmp_path / "image")
    assert (checked.classified, checked.exit_code) == (FsckClass.FAILED, -1)
    assert said in checked.output
