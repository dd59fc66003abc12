"""The fewest operations that show a finding, as `powercut shrink` left them in the run directory."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from harness.host.text import one_line
from harness.model import CaseId
from harness.store.layout import RunLayout
from harness.store.records import Finding


@dataclass(frozen=True, slots=True)
class ShrunkFile:
    """The file; and what its operations show: `@7 durability: f: missing`."""

    path: Path
    shown: str

    @property
    def operations(self) -> tuple[str, ...]:
        """In words; none if the file is damaged."""
        try:
            found = tomllib.loads(self.path.read_text()).get("operations")
        except (OSError, ValueError, RecursionError):  # it travels with a run directory
            return ()
        return tuple(map(str, found)) if isinstance(found, list) else ()


def head(configuration: str, summary: str, case: CaseId, finding: str) -> tuple[str, str]:
    """The first lines of such a file, which say what it was shrunk from."""
    return f"# Shows on {configuration}: {one_line(summary)}", f"# Shrunk from {case}, finding {finding}."


def shrunk_file(layout: RunLayout, finding: Finding) -> ShrunkFile | None:
    """None if there is none. A file that says it was shrunk from another finding shows that one."""
    path = layout.shrunk(finding.case.workload, finding.oracle, finding.id)
    try:
        first, second = path.read_text().splitlines()[:2]
    except (OSError, ValueError):
        return None
    _, whose = head("", "", finding.case, finding.id)
    return ShrunkFile(path, first.partition(": ")[2]) if second == whose else None
