"""A run directory from somebody else is data: nothing that it names is executed or loaded for that alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.errors import ExitCode, UsageError
from harness.kernels.build import Built
from harness.kernels.find import Kernel
from harness.model import CaseId
from harness.plan import Plan
from harness.revisit.trust import Named, chosen_kernel, need_resumable
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, KernelInfo
from harness.tests.cli.runner import powercut
from harness.tests.report.demo import run_info

CASE = CaseId("ext4", "ordered", "append-fsync")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def elf(tmp_path: Path) -> Path:
    """A kernel that somebody's run directory names: on the host it would run as a program."""
    path = tmp_path / "theirs" / "linux"
    path.parent.mkdir()
    path.write_bytes(b"\x7fELF" + bytes(2000))
    return path


def plan_of(kernel: Path | str, modules: Path | None = None, *replaced: Path) -> Plan:
    return Plan(
        configurations=["ext4/ordered"],
        workloads=["append-fsync"],
        kernel=str(kernel),
        modules=str(modules) if modules else None,
        replaced=[str(p) for p in replaced],
        machine="uml",
    )


def theirs(tmp_path: Path, plan: Plan) -> Path:
    with RunStore.create(tmp_path / "theirs", "test", run_info()) as store:
        store.add_case(CaseInfo(CASE))
        store.set_case_status(CASE, CaseStatus.DONE)
        store.put_plan(plan)
        return store.path


def test_a_kernel_that_only_the_run_directory_names_is_refused(elf: Path) -> None:
    with pytest.raises(UsageError, match="come from somebody else") as caught:
        chosen_kernel(plan_of(elf), str(elf), Named())
    assert caught.value.next_step.endswith(f"--kernel {elf}")


def test_a_kernel_that_the_cache_holds_is_taken_from_the_cache(elf: Path, cache: Path) -> None:
    """Not from where the run directory says: that file may become another."""
    kept = cache / "kernels" / "built-x"
    kept.mkdir(parents=True)
    (kept / "image").write_bytes(elf.read_bytes())
    (kept / "built.json").write_bytes(msgspec.json.encode(Built("uml", "s", "1", "6.12", "key")))
    assert chosen_kernel(plan_of(elf), str(elf), Named()).image == kept / "image"
    need_resumable(plan_of(elf), Named())


def test_a_kernel_that_this_command_line_names_is_used(elf: Path) -> None:
    assert chosen_kernel(plan_of(elf), str(elf), Named(kernel=str(elf))).image == elf
    need_resumable(plan_of(elf), Named(kernel=str(elf)))


@pytest.mark.parametrize("option", ["--modules", "--module"])
def test_modules_that_only_the_run_directory_names_are_refused(option: str, tmp_path: Path) -> None:
    folder, module = tmp_path / "mods", tmp_path / "ext4.ko"
    plan = plan_of("debian-6.12", folder) if option == "--modules" else plan_of("debian-6.12", None, module)
    for refuses in (
        lambda: chosen_kernel(plan, "debian-6.12", Named()),
        lambda: need_resumable(plan, Named()),
    ):
        with pytest.raises(UsageError, match="come from somebody else") as caught:
            refuses()
        assert f"{option} {tmp_path}" in caught.value.next_step


def test_a_module_that_is_named_here_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "ext4.ko"
    monkeypatch.setattr(
        "harness.revisit.trust.find_kernel",
        lambda spec, modules, replaced: Kernel(spec, tmp_path, modules, "00", "1", tuple(replaced)),
    )
    plan = plan_of("debian-6.12", None, module)
    assert chosen_kernel(plan, "debian-6.12.117", Named(replaced=(module,))).replaced == (module,)
    need_resumable(plan, Named(replaced=(module,)))


@pytest.mark.parametrize(
    "named", [Named(kernel="debian-6.1"), Named(modules=Path("/m")), Named(replaced=(Path("/x.ko"),))]
)
def test_a_run_goes_on_with_what_it_was_begun_with(named: Named) -> None:
    with pytest.raises(UsageError) as caught:
        need_resumable(plan_of("debian-6.12"), named)
    assert "start a new run" in caught.value.next_step


@pytest.mark.parametrize(
    "command",
    [["repro", f"{CASE}@0", "--from"], ["run", "--resume"]],
    ids=lambda words: words[0],
)
def test_the_commands_refuse_it(command: list[str], elf: Path, tmp_path: Path) -> None:
    """`repro --from DIR` and `run --resume DIR` executed an ELF that DIR named, on the host, as root."""
    run = theirs(tmp_path, plan_of(elf))
    with RunStore.open(run) as store:
        store.update_info(replace(store.info, kernel=KernelInfo(str(elf))))
    done = powercut(*command, run)
    assert done.exit_code == ExitCode.USAGE, done.output
    assert f"--kernel {elf}" in done.stderr
