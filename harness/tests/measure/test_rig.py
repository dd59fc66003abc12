"""What is done in the guest and what is made of its answers, with a guest that only pretends."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from harness.errors import GuestError
from harness.measure.bonnie import Bonnie
from harness.measure.comparison import Comparison, Configuration
from harness.measure.double_write import DoubleWrite
from harness.measure.large_file import LargeFile
from harness.measure.many_entries import ManyEntries
from harness.measure.read_while_writing import ReadWhileWriting
from harness.measure.rig import Rig
from harness.measure.small_files import MEDIANS_BYTES, SmallFiles
from harness.measurements.samples import Samples
from harness.tools_image.guest import MOUNT_POINT, Ran, ToolsGuest
from harness.tracing.records import Commit, Record

SAMPLES = Path(__file__).parent / "samples"
Answer = Callable[[Sequence[str]], str]


class Pretender:
    """A guest that notes what it is told to run. `answer` may raise GuestError."""

    device = "/dev/vdb"

    def __init__(self, answer: Answer = lambda _: "") -> None:
        self.ran: list[list[str]] = []
        self.put_paths: list[str] = []
        self.alive = True
        self._answer = answer

    def run(self, argv: Sequence[str], timeout_s: float, *, check: bool = True) -> Ran:
        self.ran.append(list(argv))
        return Ran(0, self._answer(argv))

    def put(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self.put_paths.append(path)

    @property
    def programs(self) -> list[str]:
        """Names of what was run, in order."""
        return [argv[0] for argv in self.ran]


class Booted:
    """A Rig of pretenders, one for each boot."""

    def __init__(self, answer: Answer = lambda _: "") -> None:
        self.guests: list[Pretender] = []

        @contextlib.contextmanager
        def boot() -> Iterator[ToolsGuest]:
            self.guests.append(Pretender(answer))
            yield cast(ToolsGuest, self.guests[-1])
            self.guests[-1].alive = False

        self.rig = Rig(boot)


class TestRig:
    def test_a_fresh_file_system_is_made_mounted_and_unmounted(self) -> None:
        booted = Booted()
        with booted.rig.fresh(Configuration.of("ext4/journal", mkfs=["-O", "^dir_index"])) as root:
            assert root == MOUNT_POINT
        (guest,) = booted.guests
        assert guest.ran == [
            [
                *("mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
                *("-O", "^dir_index", "/dev/vdb"),
            ],
            ["mkdir", "-p", MOUNT_POINT],
            ["mount", "-t", "ext4", "-o", "data=journal", "/dev/vdb", MOUNT_POINT],
            ["umount", MOUNT_POINT],
        ]

    def test_a_mode_without_options_is_mounted_without(self) -> None:
        booted = Booted()
        with booted.rig.fresh(Configuration.of("ext4/ordered", options="")):
            pass
        assert ["mount", "-t", "ext4", "/dev/vdb", MOUNT_POINT] in booted.guests[0].ran

    def test_a_guest_in_which_something_failed_is_given_up(self) -> None:
        booted = Booted()
        with pytest.raises(GuestError, match="no space"), booted.rig.fresh(Configuration.of("xfs/default")):
            raise GuestError("no space")
        assert booted.guests[0].ran[-1] == ["umount", MOUNT_POINT]
        assert not booted.rig.up
        booted.rig.run(["true"])
        assert len(booted.guests) == 2

    def test_a_mount_that_fails_is_told_with_the_kernels_words(self) -> None:
        def answer(argv: Sequence[str]) -> str:
            if argv[0] == "mount":
                raise GuestError("mount ended with 32")
            return "one\ntwo\nEXT4-fs: Mount option(s) incompatible with ext3\n" if argv[0] == "dmesg" else ""

        with (
            pytest.raises(GuestError, match=r"ended with 32.*incompatible with ext3"),
            Booted(answer).rig.fresh(Configuration.of("ext3/ordered")),
        ):
            pytest.fail("it is not mounted")

    def test_a_guest_that_died_is_replaced_with_its_programs(self) -> None:
        booted = Booted(lambda argv: '{"x": 1}' if argv[0] == "python3" else "")
        assert booted.rig.script("small_files", {}) == {"x": 1}
        booted.rig.script("small_files", {})
        assert len(booted.guests[0].put_paths) == 1  # once is enough
        booted.guests[0].alive = False
        booted.rig.script("small_files", {})
        assert len(booted.guests[1].put_paths) == 1

    @pytest.mark.parametrize("said", ["", "Traceback: it broke\n", "[1, 2]\n"])
    def test_a_program_that_does_not_answer_is_an_error(self, said: str) -> None:
        with pytest.raises(GuestError, match=r"small_files\.py printed"):
            Booted(lambda _: said).rig.script("small_files", {})


class Seen:
    """Probes that saw one commit."""

    source = "bcc"
    reason = ""

    def attach(self) -> None: ...
    def detach(self) -> None: ...
    def collect(self) -> list[Record]:
        return [
            Commit(
                at_us=1,
                transaction=2,
                starting_us=1000,
                locked_us=0,
                flushing_us=0,
                logging_us=4000,
                logged=8,
            )
        ]


def of_tools(argv: Sequence[str]) -> str:
    """What the guest's programs print, recorded or made up."""
    words = " ".join(argv)
    if argv[0] == "fio":
        return (SAMPLES / ("fio-write.json" if "--rw=write" in argv else "fio-read.json")).read_text()
    if argv[0] == "bonnie++":
        return (SAMPLES / "bonnie-jfs.csv").read_text()
    if "dd if=/dev/zero" in words:
        return (SAMPLES / "dd.txt").read_text()
    if argv[0] == "cat" and argv[1].endswith("/stat"):
        return "1 2 3 4 5 6 2048 8 9 10 11"
    return json.dumps(of_programs(argv[1], json.loads(argv[2]))) if argv[0] == "python3" else ""


def of_programs(path: str, given: dict[str, object]) -> dict[str, object]:
    if "small_files" in path:
        phases = ("create", "copy", "symlink", "read", "stat", "rename", "delete")
        return {**{f"{p}_s": 2.0 for p in phases}, "created_fragments": 1.0, "copied_fragments": 1.5}
    if "many_entries" in path:
        points = [int(str(p)) for p in cast("list[int]", given["points"])]
        return {"create_s": [p * 0.001 for p in points], "backup_s": [p * p * 1e-6 for p in points]}
    readers = cast("dict[str, str]", given["readers"])
    told: dict[str, object] = {f"{r}_{how}_s": 1.5 for r in readers for how in ("idle", "busy")}
    return {**told, "written_bytes_a_second": 3 << 20}


def taken(chosen: Comparison[Rig], monkeypatch: pytest.MonkeyPatch) -> tuple[Samples, Booted]:
    """Two rounds of every configuration, in a guest that pretends."""
    monkeypatch.setattr(Rig, "probes", lambda *_: Seen())
    booted, sizes = Booted(of_tools), chosen.sizes(1)
    samples = Samples(
        [chosen.take(booted.rig, c, sizes, number) for number in (0, 1) for c in chosen.configurations()]
    )
    return samples, booted


@pytest.mark.parametrize(
    "chosen",
    [DoubleWrite(), Bonnie(), SmallFiles(), LargeFile(), ReadWhileWriting(), ManyEntries()],
    ids=lambda c: c.name,
)
def test_every_measurement_makes_ratios_of_equal_figures_one(
    chosen: Comparison[Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, booted = taken(chosen, monkeypatch)
    told = chosen.evaluate(samples, chosen.sizes(1))
    assert told.ratios
    assert all(r.measured.median == pytest.approx(1) for r in told.ratios)
    assert all(r.measured.samples == 2 for r in told.ratios)
    assert all(r.source and r.remark for r in told.ratios if r.published)
    assert {row[0] for t in told.tables for row in t.rows} == {c.name for c in chosen.configurations()}
    assert len(booted.guests) == 1
    mounts = booted.guests[0].programs.count("mount")
    assert booted.guests[0].programs.count("umount") == mounts > 0  # nothing is left behind


def test_a_file_system_is_made_for_each_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = SmallFiles()
    samples, booted = taken(chosen, monkeypatch)
    made = [p for p in booted.guests[0].programs if p.startswith("mkfs")]
    assert len(made) == 2 * len(MEDIANS_BYTES) * len(chosen.configurations())
    assert samples.values("ext4/ordered", "10000 copied_fragments") == {0: 1.5, 1: 1.5}


def test_growth_is_1_where_time_is_in_proportion_and_12_where_it_is_a_square(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, _ = taken(ManyEntries(), monkeypatch)
    growth = samples.spread("XFS", "create growth"), samples.spread("XFS", "backup growth")
    assert growth[0] is not None
    assert growth[0].median == pytest.approx(1, rel=0.01)
    assert growth[1] is not None
    assert growth[1].median == pytest.approx(12, rel=0.01)  # (1 - 1/4) / (1/2) over (1/64) / (1/8)


def test_the_published_figures_of_double_write(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, _ = taken(DoubleWrite(), monkeypatch)
    assert samples.values("ext4/journal", "commit_ms") == {0: 5.0, 1: 5.0}
    told = DoubleWrite().evaluate(samples, DoubleWrite().sizes(1))
    assert [r.published for r in told.ratios] == [3.6, 3.2, None, None]
