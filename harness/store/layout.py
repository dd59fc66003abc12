"""Where everything is in a run directory. No other module spells a path inside one.

```
reports/latest -> runs/...
reports/runs/<date>-<name>/
    run.json                what was run, on what, by which version
    plan.json               what was asked for
    powercut.sqlite         cases, states, violations, evidence
    lock                    who writes here now
    cases/<fs>-<mode>/base.img.zst
    cases/<fs>-<mode>/<workload>/log.zst, console.txt, history.json
    findings/<hash12>/      and the reports, written by `harness.report`
    scratch/                uncompressed images, while the run goes on
```
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.model import CaseId

RUN = "run.json"
PLAN = "plan.json"
DATABASE = "powercut.sqlite"
LOCK = "lock"


def runs(reports: Path) -> Path:
    """The folder of all runs."""
    return reports / "runs"


def latest(reports: Path) -> Path:
    """The link to the run that was begun last."""
    return reports / "latest"


@dataclass(frozen=True, slots=True)
class CaseLayout:
    """The files of one case's recording. `history` is written last: it says that the rest is there."""

    base: Path
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log.zst"

    @property
    def console(self) -> Path:
        return self.folder / "console.txt"

    @property
    def history(self) -> Path:
        return self.folder / "history.json"

    @property
    def files(self) -> tuple[Path, ...]:
        """All but the base image, which other workloads of the mode share; the history last."""
        return (self.log, self.console, self.history)


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The paths inside the run directory `path`."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / DATABASE

    @property
    def lock(self) -> Path:
        return self.path / LOCK

    @property
    def cases(self) -> Path:
        return self.path / "cases"

    @property
    def findings(self) -> Path:
        return self.path / "findings"

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    def base(self, filesystem: str, mode: str) -> Path:
        """The packed base image, which all workloads of a mode share."""
        return self.cases / f"{filesystem}-{mode}" / "base.img.zst"

    def recordings(self, filesystem: str, mode: str) -> list[Path]:
        """The folders of the whole recordings of a mode."""
        return sorted(p.parent for p in self.base(filesystem, mode).parent.glob("*/history.json"))

    def case(self, case: CaseId) -> CaseLayout:
        base = self.base(case.filesystem, case.mode)
        return CaseLayout(base, base.parent / case.workload)

    def finding(self, finding: str) -> Path:
        """What is told of the finding with this hash."""
        return self.findings / finding
