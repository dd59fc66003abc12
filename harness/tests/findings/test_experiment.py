"""What candidates are tried on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cases import first_mount
from harness.errors import WriteLogError
from harness.filesystems.profiles import profiles
from harness.findings import experiment
from harness.guests.disk import find_binary
from harness.model import CaseId, Workload
from harness.plan import Plan
from harness.store.layout import RunLayout
from harness.tests.cases.toy_kernel import (
    BASE,
    BLOCKS,
    LOG_BYTES,
    Kernel,
    OnError,
    Put,
    toy_profile,
    toy_worker,
)
from harness.tests.needs import needed
from harness.trust import Named
from harness.workloads.load import parse_operation


class Idle:
    """A session that never boots."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("mode", ["xfs/default", "ext4/ordered"])
@pytest.mark.parametrize("kept", [True, False])
def test_a_base_image_made_anew_is_mounted_once_as_that_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, kept: bool
) -> None:
    """Candidates of an XFS run whose base image was gone were recorded on an image that had never been
    mounted: 513 blocks of its log that a cut may lose, and the run had none of them. And that image was put
    into the run directory as the run's own.
    """
    profile, layout = profiles()[mode], RunLayout(tmp_path / "run")
    theirs = layout.base(profile.filesystem, profile.mode)
    if kept:
        theirs.parent.mkdir(parents=True)
        theirs.write_bytes(b"as the run had it")
    mounted: list[Path] = []

    def made(_: object, at: Path, scratch: Path) -> Path:
        if not at.exists():
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(b"new")
        return scratch / "image"

    monkeypatch.setattr(experiment, "make_base", made)
    monkeypatch.setattr(
        first_mount, "mount_once", lambda _session, _profile, base, _kept: mounted.append(base)
    )
    monkeypatch.setattr(experiment, "chosen_kernel", lambda *_: None)
    monkeypatch.setattr(experiment, "make_specs", lambda *_: SimpleNamespace(judge=1, recorder=2))
    monkeypatch.setattr(experiment, "Session", Idle)
    store = SimpleNamespace(layout=layout, info=SimpleNamespace(kernel=SimpleNamespace(name="debian-6.12")))
    plan, nothing = Plan(configurations=[mode], workloads=[]), Workload("candidate", "", ())
    with experiment.open_equipment(plan, cast(Any, store), profile, nothing, Named()) as equipment:
        assert mounted == ([equipment.base] if mode == "xfs/default" and not kept else [])
    assert theirs.exists() is kept


BREAKS = (Put(7, 7, 1), None, Put(0, 7, 0), Put(7, 7, 3), None)
"""A recovery that is not idempotent: only a cut in it shows that."""


@pytest.mark.parametrize(
    ("kernel", "looks", "oracle"),
    [
        (Kernel(program=BREAKS), {"again": 1}, "confluence"),
        (Kernel(journal=True, on_error=OnError.IGNORES), {"disk": ("errors",)}, "honesty"),
    ],
    ids=["again", "disk"],
)
@pytest.mark.parametrize("looking", [True, False])
def test_what_only_a_cut_recovery_or_an_faulty_disk_disk_shows_is_shown_by_a_candidate(
    tmp_path: Path, kernel: Kernel, looks: dict[str, Any], oracle: str, looking: bool
) -> None:
    """`shrink` and `triage` looked at plain crash states alone: "a new recording does not show it" of each
    finding of --again and --disk, for which the report had offered them.
    """
    with needed():
        find_binary()
    profile, base = toy_profile(), tmp_path / "base.img"
    base.write_bytes(BASE * BLOCKS)
    plan = Plan(
        configurations=[profile.name], workloads=["w"], log_bytes=LOG_BYTES, **(looks if looking else {})
    )
    with toy_worker(kernel, tmp_path) as session:
        equipment = experiment.Equipment(plan, session, session, base, tmp_path)
        operations = (parse_operation("sync"), parse_operation("sync"))
        case = CaseId(profile.filesystem, profile.mode, "w")
        found = experiment.violations(
            equipment, profile, case, "c", operations, lambda _r, _s, v: v.oracle == oracle
        )
    assert any(v.oracle == oracle for _, v in found) is looking
    assert not [*tmp_path.glob("**/*recover*.log")]


def test_a_candidate_leaves_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one with a crash in it left what the crash had left, until the last candidate was tried; and its
    log too, if that could not be taken for a recording.
    """
    profile = profiles()["ext4/ordered"]
    own = [tmp_path / "ext4-ordered.c.log", tmp_path / "ext4-ordered.c.second.base.img"]

    def record(*_: object) -> None:
        for file in own:
            file.write_bytes(b"a disk")
        raise WriteLogError("no log")

    monkeypatch.setattr(experiment, "record", record)
    plan = Plan(configurations=[profile.name], workloads=["w"])
    equipment = experiment.Equipment(plan, cast(Any, None), cast(Any, None), tmp_path / "base", tmp_path)
    case = CaseId(profile.filesystem, profile.mode, "w")
    with pytest.raises(WriteLogError):
        experiment.violations(equipment, profile, case, "c", (parse_operation("sync"),), lambda *_: True)
    assert not [*tmp_path.iterdir()]
