"""Defects to plant in a process under attack: chaos must find every one of them."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from typing import Any

from harness.cli import guard
from harness.model import Judgement
from harness.store import RunStore
from harness.store.records import CaseStatus


def resume_forgets() -> None:
    """Everything judged after a resume passes."""
    create, put = RunStore.create.__func__, RunStore.put_judgements  # type: ignore[attr-defined]  # a classmethod
    fresh: list[bool] = []

    def created(cls: type[RunStore], *given: Any) -> RunStore:
        fresh.append(True)
        made: RunStore = create(cls, *given)
        return made

    def passes(self: RunStore, case: Any, batch: Any) -> None:
        import dataclasses  # noqa: PLC0415  # needed only by the plant

        put(self, case, batch if fresh else [dataclasses.replace(j, judgement=Judgement()) for j in batch])

    RunStore.create = classmethod(created)  # type: ignore[method-assign,assignment]  # a plant
    RunStore.put_judgements = passes  # type: ignore[method-assign]  # a plant


def resume_undecides() -> None:
    """A resumed run closes its cases without checking the remaining states."""
    status = RunStore.set_case_status

    def done(self: RunStore, case: Any, what: CaseStatus, reason: str = "") -> None:
        status(self, case, CaseStatus.DONE if what is CaseStatus.RECORDED else what, reason)

    RunStore.set_case_status = done  # type: ignore[method-assign,assignment]  # a plant


def leaves_things() -> None:
    """Leaves a temporary directory, and a process that outlives the run."""
    tempfile.mkdtemp(prefix="powercut-plant-")
    subprocess.Popen(["sleep", "600"], start_new_session=True)


def falls_over() -> None:
    """Raises an unexpected exception when the host refuses something."""

    def falls(_: object) -> None:
        raise ZeroDivisionError("planted")

    guard._say_refused = falls  # type: ignore[assignment]  # a plant


def no_lock() -> None:
    """Two processes work in one run directory."""
    RunStore.lock = lambda self, command: contextlib.nullcontext()  # type: ignore[method-assign]  # a plant
