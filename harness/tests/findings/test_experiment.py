"""What candidates are tried on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cases import first_mount
from harness.filesystems.profiles import profiles
from harness.findings import experiment
from harness.model import Workload
from harness.plan import Plan
from harness.store.layout import RunLayout
from harness.trust import Named


class Idle:
    """A session that never boots."""

    def __init__(self, *_: object) -> None:
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
