"""The plan of a series, read again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from harness.campaigns.journal import CampaignPlan
from harness.errors import UsageError
from harness.series.work import read_plan


@pytest.mark.parametrize(
    ("file", "content", "command"),
    [("run.json", "{}", "run"), ("plan.json", '{"argv": ["matrix"]}', "matrix")],
)
def test_the_command_that_goes_on_with_a_directory_can_be_pasted(
    file: str, content: str, command: str, tmp_path: Path
) -> None:
    """Of a path with a space in it, it named two that are not there."""
    path = tmp_path / "my runs"
    path.mkdir()
    (path / file).write_text(content)
    with pytest.raises(UsageError) as refused:
        read_plan(path, CampaignPlan, "campaign", "campaign")
    line = refused.value.next_step.removeprefix("it is a run: ")
    assert shlex.split(line) == ["powercut", command, "--resume", str(path)]
