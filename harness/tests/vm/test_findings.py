"""The smallest finding of `reports/findings`, in the guest with tools, and its control."""

from __future__ import annotations

import pytest
from rich.console import Console

from harness.findings.bug_report import findings_folder, load
from harness.findings.rerun import rerun
from harness.host.progress import Lines
from harness.tests.needs import needed
from harness.tools_image.rootfs import root_image


@pytest.mark.parametrize(("kernel", "says"), [("debian-6.12", "BROKEN"), ("debian-6.12 CALL=fsync", "KEPT")])
def test_a_finding_and_its_control_say_what_the_folder_states(kernel: str, says: str) -> None:
    bug_report = load(findings_folder() / "xfs-sync-no-flush")
    (stated,) = [r for r in bug_report.run if r.name == kernel]
    with Lines(Console(quiet=True)) as progress:
        with needed():
            root_image(progress)
        seen = rerun(bug_report, stated, progress)
    assert (seen.said, seen.agrees) == (says, True), seen.why
