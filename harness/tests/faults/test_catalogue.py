"""The planted faults of `kernels/faults`: every file is whole; which of them a command names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.faults import catalogue
from harness.faults.campaign import baseline_runs, chosen_faults
from harness.faults.catalogue import PlantedFault, faults, select_faults
from harness.faults.results import FaultsPlan
from harness.filesystems.profiles import profiles, select_profiles
from harness.workloads.load import select_workloads

ALL = faults()
FILE = """
summary = "x"
modes = ["{mode}"]
oracles = ["{oracle}"]
[[edits]]
file = "fs/x.c"
function = "f"
pattern = "1"
replacement = "2"
"""


def names(chosen: list[PlantedFault]) -> list[str]:
    return [f.name for f in chosen]


def test_there_are_more_than_forty() -> None:
    assert len(ALL) > 40


@pytest.mark.parametrize("fault", ALL.values(), ids=list(ALL))
def test_a_fault_is_whole(fault: PlantedFault) -> None:
    assert select_workloads(fault.asked_workloads)
    assert fault.oracles
    for edit in fault.edits:
        assert edit.pattern.strip()
        assert edit.pattern != edit.replacement
        assert Path(edit.file).suffix in (".c", ".h")
    assert not (fault.gap and fault.equivalent)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (FILE.format(mode="ext4/orderd", oracle="fsck"), "no mode 'ext4/orderd'"),
        (FILE.format(mode="ext4/ordered", oracle="fsk"), "no oracle 'fsk'"),
        ('summary = "x"\nmodes = ["ext4/ordered"]\noracles = []\nedits = []', "has edits and modes"),
        ('summary = "x"', "missing required field"),
        ("\x00", "x.toml"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.toml").write_text(text)
    monkeypatch.setattr(catalogue, "resource", lambda *_: tmp_path)
    with pytest.raises(UsageError, match=says):
        faults()


def test_a_fault_of_several_devices_is_held_against_one_cache_or_says_why_it_shows_there_too() -> None:
    """A list in the Makefile and prose said which faults are missed with one cache; one of them is not."""
    (held,) = re.findall(r"^CACHES = (.+)$", Path("Makefile").read_text(), re.MULTILINE)
    several = {
        name for name, fault in ALL.items() if any(p.parts for p in select_profiles(list(fault.modes)))
    }
    assert {name for name in several if not ALL[name].one_cache} == set(held.split())
    assert {name for name, fault in ALL.items() if fault.one_cache} <= several


def test_all_are_meant_where_none_is_named() -> None:
    assert len(select_faults([], [], ALL.values())) == len(ALL)


def test_modes_leave_out_faults_that_matter_elsewhere() -> None:
    chosen = select_faults([], ["xfs/default"], ALL.values())
    assert "iclog-no-preflush" in names(chosen)
    assert {f.modes for f in chosen} == {("xfs/default",)}


def test_a_named_fault_runs_in_each_mode_that_is_asked_for() -> None:
    (fault,) = select_faults(["commit-no-fua"], ["ext3/ordered", "ext4/ordered"], ALL.values())
    assert fault.modes == ("ext3/ordered", "ext4/ordered")


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        select_faults(["comit-no-fua"], [], ALL.values())
    assert "commit-no-fua" in caught.value.next_step


def test_modes_without_a_fault_are_refused() -> None:
    with pytest.raises(UsageError, match="no fault is planted in minix/default"):
        select_faults([], ["minix/default"], ALL.values())


def test_workloads_that_are_named_replace_those_of_the_files() -> None:
    chosen = chosen_faults(FaultsPlan(machine="toy", workloads=["quick"], modes=["ext4"]))
    assert {f.asked_workloads for f in chosen} == {("quick",)}
    with pytest.raises(UsageError, match=r"fault .*: no workload 'quik'"):
        chosen_faults(FaultsPlan(machine="toy", workloads=["quik"]))


def test_a_fault_in_code_that_one_source_alone_has_is_left_out_of_campaigns_on_others() -> None:
    """`powercut faults` ended before it began: the edit found no place in 6.12."""
    only = {name for name, fault in ALL.items() if fault.source == "linux-source-7.3"}
    plan = FaultsPlan(machine="toy")
    assert {"ntfs-fsync-no-flush", "ntfs-sync-no-flush"} <= only
    assert set(names(chosen_faults(plan))) == set(ALL) - only
    newer = FaultsPlan(machine="toy", source="linux-source-7.3", names=["ntfs-sync-no-flush"])
    assert names(chosen_faults(newer)) == newer.names
    with pytest.raises(UsageError, match=r"ntfs-sync-no-flush .* linux-source-6.12 lacks") as refused:
        chosen_faults(FaultsPlan(machine="toy", names=newer.names))
    assert refused.value.next_step == "add --source linux-source-7.3"


def test_the_baseline_runs_every_case_of_every_fault() -> None:
    chosen = list(ALL.values())
    runs = baseline_runs(chosen)
    covered = {
        (mode, w.name, asked.disk, asked.again)
        for asked in runs
        for mode in asked.modes
        for w in select_workloads(asked.workloads)
    }
    wanted = {
        (m, w.name, f.disk, f.again)
        for f in chosen
        for m in f.modes
        for w in select_workloads(f.asked_workloads)
    }
    assert wanted == covered
    modes = [(mode, asked.disk, asked.again) for asked in runs for mode in asked.modes]
    assert len(modes) == len(set(modes)), "a mode runs once in each way"
    assert {mode.partition("@")[0] for mode, *_ in modes} <= profiles().keys()
