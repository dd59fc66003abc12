"""The command line of `powercut campaign`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.campaigns.journal import Batch, BatchBegun, CampaignPlan, KnownBatches
from harness.campaigns.work import create, load_plan
from harness.cli import campaign as module
from harness.errors import ExitCode
from harness.plan import Plan
from harness.series.journal import Journal
from harness.tests.cli.runner import powercut, printed, refused


@pytest.fixture(autouse=True)
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.campaigns.work.look_up_chosen", lambda choice: None)


def campaign(tmp_path: Path, *, hours: float | None = None, worked_s: float = 0) -> Path:
    """The directory of a campaign that has done one batch."""
    plan = CampaignPlan(
        run=Plan(configurations=["ext4/ordered"], workloads=[]), generators=("random",), hours=hours
    )
    path = create(plan, tmp_path, "campaign")
    journal = Journal(path, KnownBatches())
    journal.put(BatchBegun(item="1", at=0, generator="random", workloads=("random1-1-20",)))
    journal.put(Batch(item="1", at=worked_s, seconds=worked_s, cases=1, states=7))
    return path


def until(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> float | None:
    """Until when a campaign would work, by this command line."""
    seen: list[float | None] = []

    def carry_out(plan: CampaignPlan, path: Path, until_s: float | None) -> ExitCode:
        seen.append(until_s)
        return ExitCode.CONSISTENT

    monkeypatch.setattr(module, "_carry_out", carry_out)
    printed("campaign", *arguments)
    return seen[0]


def test_a_resumed_campaign_works_for_what_is_left_of_its_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start would have had all of them: a campaign killed every hour would never end."""
    path = campaign(tmp_path, hours=2, worked_s=3600)
    assert until(monkeypatch, "--resume", path) == 7200


def test_hours_beside_resume_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = campaign(tmp_path, hours=1, worked_s=3600)
    assert until(monkeypatch, "--resume", path, "--hours", "0.5") == 5400


def test_a_campaign_whose_hours_are_over_says_so(tmp_path: Path) -> None:
    done = powercut("campaign", "--resume", campaign(tmp_path, hours=1, worked_s=3600))
    assert done.exit_code == ExitCode.USAGE
    assert "--hours" in done.output


def test_a_resumed_campaign_refuses_what_it_cannot_follow(tmp_path: Path) -> None:
    done = powercut("campaign", "--resume", campaign(tmp_path), "--seed", "7", "-c", "xfs")
    assert done.exit_code == ExitCode.USAGE
    assert "--config" in done.output and "--seed" in done.output


def test_a_campaign_does_not_go_on_with_a_module_that_was_rebuilt(tmp_path: Path) -> None:
    """Its batches would have been of two builds, and its causes of neither."""
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"now")
    run = Plan(configurations=["ext4/ordered"], workloads=[], replaced=[str(module)])
    plan = CampaignPlan(run=run, generators=("random",), modules={str(module): "ab" * 32})
    path = create(plan, tmp_path, "campaign")
    assert "sha256 ext4.ko abababababab then" in refused("campaign", "--resume", path, "--module", module)


@pytest.mark.parametrize(
    "arguments", [["-g", "ace3"], ["-c", "ext5/ordered"], ["--states", "all"], ["--hours", "0"]]
)
def test_a_name_that_does_not_exist_leaves_no_directory(tmp_path: Path, arguments: list[str]) -> None:
    refused("campaign", "--out", tmp_path, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_new_campaign_keeps_what_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["-c", "xfs/default", "-g", "grown,random", "--states", "exhaustive", "--budget", "9"]
    assert until(monkeypatch, "--out", tmp_path, "--hours", "1.5", "--seed", "70", *asked) == 5400
    (path,) = (tmp_path / "runs").iterdir()
    plan = load_plan(path)
    assert (plan.generators, plan.seed, plan.hours) == (("grown", "random"), 70, 1.5)
    assert (plan.run.fault_models, plan.run.budget.visits) == (("exhaustive",), 9)


def test_a_new_campaign_keeps_the_known_bugs_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other command that judges had --known and --new-only."""
    bugs = tmp_path / "bugs.toml"
    bugs.write_text(
        '[[bug]]\nname = "ours"\ntitle = "t"\n'
        '[bug.record]\nseverity = "cosmetic"\nmechanism = "m"\nfirst = "6.1"\n'
    )
    until(monkeypatch, "--out", tmp_path, "--known", bugs, "--new-only")
    (path,) = (tmp_path / "runs").iterdir()
    known = load_plan(path).known
    assert ([bug.name for bug in known.bug], known.new_only) == (["ours"], True)
    done = powercut("campaign", "--resume", path, "--new-only")  # its batches were judged without
    assert done.exit_code == ExitCode.USAGE and "--new-only" in done.output


def test_a_campaign_has_the_name_that_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def keep(plan: CampaignPlan, path: Path, until_s: float | None) -> ExitCode:
        made.append(path)
        return ExitCode.CONSISTENT

    monkeypatch.setattr(module, "_carry_out", keep)
    assert powercut("campaign", "--out", tmp_path, "--name", "night").exit_code == ExitCode.CONSISTENT
    assert made[0].name.endswith("-night")
    assert "cannot name a run" in refused("campaign", "--out", tmp_path, "--name", "../night")


@pytest.fixture
def builds(tmp_path: Path) -> list[str]:
    """A kernel and a folder of modules that the user built, as a command line names them."""
    image, module = tmp_path / "bzImage", tmp_path / "m" / "kernel" / "fs" / "ext4.ko"
    image.write_bytes(b"one build")
    module.parent.mkdir(parents=True)
    module.write_bytes(b"one build")
    return ["--kernel", str(image), "--modules", str(tmp_path / "m")]


@pytest.mark.parametrize("file", ["bzImage", "m/kernel/fs/ext4.ko"])
def test_a_campaign_does_not_go_on_with_another_build(
    file: str, builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only modules named one by one were compared: verdicts on two kernels stood beside each other."""
    made: list[Path] = []

    def keep(plan: CampaignPlan, path: Path, until_s: float | None) -> ExitCode:
        made.append(path)
        return ExitCode.CONSISTENT

    monkeypatch.setattr(module, "_carry_out", keep)
    printed("campaign", "--out", tmp_path / "out", *builds)
    again = ["campaign", "--resume", made[0], *builds]
    printed(*again)
    (tmp_path / file).write_bytes(b"another")
    said = refused(*again)
    where = tmp_path / file.partition("/")[0]
    assert f"{where} is another build than this was begun with: sha256 " in said
    assert "begin anew with this one" in said
    plan = load_plan(made[0])
    old = msgspec.structs.replace(plan, image="", modules_folder="")  # as an older version wrote it
    (made[0] / "plan.json").write_bytes(msgspec.json.encode(old))
    printed(*again)
