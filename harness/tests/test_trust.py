"""A run directory from somebody else is data: nothing that it names is executed or loaded for that alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.errors import StoreError, UsageError
from harness.host.files import file_hash
from harness.host.resources import resource
from harness.kernels.build import Built
from harness.kernels.find import Kernel
from harness.model import CaseId
from harness.plan import ExistingDisk, Plan
from harness.store import RunStore
from harness.store.records import CaseInfo, CaseStatus, KernelInfo
from harness.tests.cli.runner import refused
from harness.tests.report.demo import run_info
from harness.trust import (
    Named,
    chosen_kernel,
    need_same_modules,
    plan_here,
    resumable,
    vouched,
    vouched_word,
    vouched_workload,
)
from harness.workloads.load import contents_hash, pin_name, select_workloads

CASE = CaseId("ext4", "ordered", "append-fsync")


pytestmark = pytest.mark.usefixtures("cache")


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


def in_cache(cache: Path, image: bytes) -> Path:
    """A kernel built before."""
    kept = cache / "kernels" / "built-x"
    kept.mkdir(parents=True)
    (kept / "image").write_bytes(image)
    (kept / "built.json").write_bytes(msgspec.json.encode(Built("uml", "s", "1", "6.12", "key")))
    return kept


def test_a_kernel_as_large_as_one_in_the_cache_is_another(elf: Path, cache: Path) -> None:
    in_cache(cache, elf.read_bytes()[:-1] + b"x")
    for refuses in (vouched, resumable):
        with pytest.raises(UsageError, match="come from somebody else"):
            refuses(plan_of(elf), Named())


def test_a_kernel_that_the_cache_holds_is_taken_from_the_cache(elf: Path, cache: Path) -> None:
    """Not from where the run directory says: that file may become another."""
    kept = in_cache(cache, elf.read_bytes())
    assert chosen_kernel(plan_of(elf), str(elf), Named()).image == kept / "image"
    resumable(plan_of(elf), Named())


def test_a_kernel_that_this_command_line_names_is_used(elf: Path) -> None:
    assert chosen_kernel(plan_of(elf), str(elf), Named(kernel=str(elf))).image == elf
    resumable(plan_of(elf), Named(kernel=str(elf)))


@pytest.mark.parametrize("option", ["--modules", "--module"])
def test_modules_that_only_the_run_directory_names_are_refused(option: str, tmp_path: Path) -> None:
    folder, module = tmp_path / "mods", tmp_path / "ext4.ko"
    plan = plan_of("debian-6.12", folder) if option == "--modules" else plan_of("debian-6.12", None, module)
    for refuses in (
        lambda: chosen_kernel(plan, "debian-6.12", Named()),
        lambda: resumable(plan, Named()),
    ):
        with pytest.raises(UsageError, match="come from somebody else") as caught:
            refuses()
        assert f"{option} {tmp_path}" in caught.value.next_step


def test_a_module_that_is_named_here_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "ext4.ko"
    monkeypatch.setattr(
        "harness.trust.find_kernel",
        lambda spec, modules, replaced: Kernel(spec, tmp_path, modules, "00", "1", tuple(replaced)),
    )
    plan = plan_of("debian-6.12", None, module)
    assert chosen_kernel(plan, "debian-6.12.117", Named(replaced=(module,))).replaced == (module,)
    resumable(plan, Named(replaced=(module,)))


@pytest.mark.parametrize(
    "named", [Named(kernel="debian-6.1"), Named(modules=Path("/m")), Named(replaced=(Path("/x.ko"),))]
)
def test_a_run_goes_on_with_what_it_was_begun_with(named: Named) -> None:
    with pytest.raises(UsageError) as caught:
        resumable(plan_of("debian-6.12"), named)
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
    assert f"--kernel {elf}" in refused(*command, run)


# --- what else a plan names --------------------------------------------------------------------


@pytest.mark.parametrize("address", ["tcp://evil:8786", "local:4.evil:8786"])
def test_the_cluster_of_a_directory_is_not_connected_to(address: str) -> None:
    """`run --resume DIR` unpickled what the scheduler that DIR named had sent."""
    plan = msgspec.structs.replace(plan_of("debian-6.12"), cluster=address)
    for refuses in (vouched, resumable):
        with pytest.raises(UsageError, match="no host") as caught:
            refuses(plan, Named())
        assert caught.value.next_step.endswith(f"--cluster {address}")
    assert resumable(plan, Named(cluster=address)).cluster == address
    assert resumable(plan, Named(cluster="")).cluster == ""
    ours = msgspec.structs.replace(plan, cluster="local:4")
    assert resumable(ours, Named()) == ours


def test_the_recordings_of_another_run_are_named_again(tmp_path: Path) -> None:
    plan = msgspec.structs.replace(plan_of("debian-6.12"), recordings=str(tmp_path))
    with pytest.raises(UsageError) as caught:
        resumable(plan, Named())
    assert caught.value.next_step.endswith(f"--recordings {tmp_path}")
    assert resumable(plan, Named(recordings=tmp_path)) == plan
    with pytest.raises(UsageError, match="was started with"):
        resumable(plan, Named(recordings=tmp_path / "other"))


@pytest.mark.parametrize("word", ["/theirs/app", "/theirs/a.toml", "a.toml", "../a", "x.fio", "ace-a+/b"])
def test_a_workload_of_the_directory_is_named_again(word: str) -> None:
    """An application in DIR names files of this host (`files = [...]`), and the guest got them."""
    plan = msgspec.structs.replace(plan_of("debian-6.12"), workloads=["quick", word])
    with pytest.raises(UsageError, match="no file of yours") as caught:
        vouched(plan, Named())
    assert caught.value.next_step.endswith(f"-w {word}")
    assert vouched(plan, Named(workloads=(word,))) == plan


def test_workloads_of_this_installation_need_no_word() -> None:
    ours = [
        *(
            "all",
            "quick",
            "append-fsync",
            "sqlite-wal-full",
            "ace1",
            "random1-7-20",
            "ace-creat.A_foo+fsync.A_foo",
        ),
        str(resource("workloads") / "append-fsync.toml"),
    ]
    plan = msgspec.structs.replace(plan_of("debian-6.12"), workloads=ours)
    assert resumable(plan, Named()) == plan


def test_one_case_needs_the_file_of_its_own_workload_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('summary = "s"\noperations = ["create a"]\n')
    plan = msgspec.structs.replace(
        plan_of("debian-6.12"), workloads=["/theirs/other.toml", str(mine), "quick"]
    )
    assert vouched_word(plan, Named(), "append-fsync") == "append-fsync"
    with pytest.raises(UsageError) as caught:
        vouched_word(plan, Named(), "mine")
    assert caught.value.next_step.endswith(f": -w {mine}")
    assert vouched_word(plan, Named(workloads=(str(mine),)), "mine") == str(mine)


def test_the_schedule_of_a_case_is_that_of_its_workloads_word(tmp_path: Path) -> None:
    """The printed line named the file alone: the case under a schedule could not be repeated."""
    own = tmp_path / "own.toml"
    own.write_text('summary = ""\noperations = ["create f"]\n')
    words = [str(own), f"{own}.s2"]
    plan = Plan(configurations=["ext4/ordered"], workloads=[*words, "quick.s1"])
    named = Named(workloads=tuple(words))
    assert vouched_word(plan, named, "own.s2") == words[1]
    assert vouched_word(plan, named, "own") == words[0]
    assert vouched_word(plan, named, "overwrite.s1") == "overwrite.s1"
    with pytest.raises(UsageError, match=r"own\.toml\.s2"):
        vouched_word(plan, Named(), "own.s2")


def test_a_file_that_is_named_is_named_under_each_of_its_schedules(tmp_path: Path) -> None:
    """A run with `--schedules 9` was resumed only with ten `-w`, each with the same file."""
    own = tmp_path / "own.toml"
    own.write_text('summary = ""\noperations = ["create f"]\n')
    plan = Plan(configurations=["ext4/ordered"], workloads=[str(own), f"{own}.s1", f"{own}.s2"])
    named = Named(workloads=(str(own),))
    assert resumable(plan, named) == plan
    assert vouched_word(plan, named, "own.s2") == f"{own}.s2"
    with pytest.raises(UsageError, match=r"own\.toml"):
        resumable(plan, Named(workloads=(f"{own}.s1",)))


def test_an_application_that_is_named_is_named_with_a_neighbour(tmp_path: Path) -> None:
    """And no folder that has such a name."""
    app = application(tmp_path / "my-db")
    plan = Plan(configurations=["ext4/ordered"], workloads=[str(app), f"{app}-neighbour"])
    named = Named(workloads=(str(app),))
    assert resumable(plan, named) == plan
    assert vouched_word(plan, named, "my-db-neighbour") == f"{app}-neighbour"
    application(tmp_path / "my-db-neighbour")
    with pytest.raises(UsageError, match="my-db-neighbour"):
        resumable(plan, named)


def test_a_file_that_has_the_name_of_one_of_ours_is_not_taken_for_ours(tmp_path: Path) -> None:
    """What the run recorded was the file's."""
    plan = msgspec.structs.replace(plan_of("debian-6.12"), workloads=["/theirs/append-fsync.toml", "quick"])
    with pytest.raises(UsageError, match=r"append-fsync\.toml: named by the run directory"):
        vouched_word(plan, Named(), "append-fsync")


@pytest.mark.parametrize("other", [{"machine": "../evil"}, {"accel": "kvm,device=/dev/theirs"}])
def test_a_machine_that_is_none_of_ours_is_no_word_of_a_command(other: dict[str, str]) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        vouched(msgspec.structs.replace(plan_of("debian-6.12"), **other), Named())


def test_another_kernel_takes_the_place_of_all_files_of_the_runs_own(tmp_path: Path) -> None:
    plan = plan_of("/theirs/linux", tmp_path / "mods", tmp_path / "ext4.ko")
    asked = vouched(plan, Named(kernel="debian-6.12"))
    assert (asked.kernel, asked.modules, asked.replaced) == ("debian-6.12", None, [])
    with pytest.raises(UsageError) as caught:
        vouched(plan, Named(kernel="/theirs/linux"))
    assert "--modules" in caught.value.next_step


# --- a module and a workload are their contents ------------------------------------------------


def application(folder: Path, check: str = "exit 0") -> Path:
    folder.mkdir(parents=True)
    (folder / "workload.toml").write_text('summary = "s"\n')
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "check").write_text(f"#!/bin/sh\n{check}\n")
    return folder


def run_of(tmp_path: Path, *, app: Path | None = None, module: Path | None = None) -> RunStore:
    """A run of an application, or on a module, of one's own."""
    plan = plan_of("debian-6.12", None, *([module] if module else []))
    info = run_info()
    with RunStore.create(tmp_path / "run", "test", info) as store:
        if app:
            plan = msgspec.structs.replace(plan, workloads=[str(app)])
            store.put_pins({pin_name(w.name): contents_hash(w) for w in select_workloads([str(app)])})
        store.put_plan(plan)
        if module:
            begun = KernelInfo("debian-6.12", replaced={str(module): file_hash(module)})
            store.update_info(replace(store.info, kernel=begun))
    return store


def test_a_copy_of_an_application_is_taken_for_it(tmp_path: Path) -> None:
    """`repro --from FILE` of a packed run wanted the path at which the application had been elsewhere:
    `-w ./copy` was ignored.
    """
    app = application(tmp_path / "theirs" / "my-db")
    store = run_of(tmp_path, app=app)
    app.rename(tmp_path / "gone")
    copy = application(tmp_path / "here" / "my-db")
    named = Named(workloads=(str(copy),))
    assert vouched_workload(store, named, "my-db").name == "my-db"
    assert resumable(plan_here(store, named), named).workloads == [str(copy)]


def test_a_copy_that_is_called_otherwise_is_not_ignored_without_a_word(tmp_path: Path) -> None:
    app = application(tmp_path / "theirs" / "my-db")
    store = run_of(tmp_path, app=app)
    copy = application(tmp_path / "my-copy")
    with pytest.raises(UsageError, match=f"{copy}: the run's workload is {app}") as caught:
        vouched_workload(store, Named(workloads=(str(copy),)), "my-db")
    assert caught.value.next_step.endswith("-w DIR/my-db")
    with pytest.raises(UsageError, match="there is no /nope"):
        vouched_workload(store, Named(workloads=("/nope",)), "my-db")


@pytest.mark.parametrize("where", ["theirs", "here"])
def test_an_application_with_other_contents_is_refused_with_both_hashes(where: str, tmp_path: Path) -> None:
    """One that was changed where it lay judged the old recording by the new check, without a word."""
    app = application(tmp_path / "theirs" / "my-db")
    store = run_of(tmp_path, app=app)
    then = store.info.pins["workload my-db"]
    app.rename(tmp_path / "gone")
    other = application(tmp_path / where / "my-db", "exit 1")
    (found,) = select_workloads([str(other)])
    with pytest.raises(
        UsageError, match=f"sha256 {then[:12]} then, {contents_hash(found)[:12]} now"
    ) as caught:
        vouched_workload(store, Named(workloads=(str(other),)), "my-db")
    assert f"powercut run -w {other}" in caught.value.next_step


def test_where_the_run_kept_no_hash_it_is_said_that_nothing_was_compared(tmp_path: Path) -> None:
    """Any module, and any workload of the same name, was taken for the run's without a word."""
    app = application(tmp_path / "theirs" / "my-db")
    store = run_of(tmp_path, app=app)
    said: list[str] = []
    named = Named(workloads=(str(app),), replaced=(tmp_path / "ext4.ko",), say=said.append)
    vouched_workload(store, named, "my-db")
    need_same_modules({str(tmp_path / "ext4.ko"): "00"}, named)
    assert said == []
    store = run_of(tmp_path / "without")
    store.put_plan(msgspec.structs.replace(store.plan(), workloads=[str(app)]))
    vouched_workload(store, named, "my-db")
    assert set(said) == {f"{app}: the run kept no hash of it; whether it is what was recorded is not known"}
    said.clear()
    need_same_modules({}, named)
    assert said == [
        f"{tmp_path}/ext4.ko: no hash of it was kept; whether it is what this was begun with is not known"
    ]


def test_the_same_module_elsewhere_is_the_same_module(tmp_path: Path) -> None:
    """The same bytes at another path were called another module."""
    module, copy = tmp_path / "build" / "ext4.ko", tmp_path / "kept" / "ext4.ko"
    for path in (module, copy):
        path.parent.mkdir()
        path.write_bytes(b"\x7fELF one build")
    store = run_of(tmp_path, module=module)
    named = Named(replaced=(copy,))
    need_same_modules(store.info.kernel.replaced, named)
    assert resumable(plan_here(store, named), named).replaced == [str(copy)]
    copy.write_bytes(b"\x7fELF another")
    assert plan_here(store, named).replaced == [str(module)]


def test_a_run_does_not_go_on_with_a_module_that_was_rebuilt(tmp_path: Path) -> None:
    module = tmp_path / "ext4.ko"
    module.write_bytes(b"\x7fELF one build")
    store = run_of(tmp_path, module=module)
    then = file_hash(module)
    module.write_bytes(b"\x7fELF another build")
    told = refused("run", "--resume", store.path, "--module", module)
    said = told
    assert f"another build than this was begun with: sha256 ext4.ko {then[:12]} then" in said
    assert f"{file_hash(module)[:12]} now" in said


def test_a_disk_that_only_the_run_directory_names_is_refused(tmp_path: Path) -> None:
    """It may be any file of the user's; and with another disk, old verdicts would stand beside new ones."""
    disk, copy, other = (tmp_path / name for name in ("disk", "copy", "other"))
    for path, data in ((disk, b"1"), (copy, b"1"), (other, b"2")):
        path.write_bytes(data)
    image = ExistingDisk(str(disk), file_hash(disk), 1)
    plan = msgspec.structs.replace(plan_of("debian-6.12"), image=image)
    with pytest.raises(UsageError, match="come from somebody else") as caught:
        resumable(plan, Named())
    assert f"--image {disk}" in caught.value.next_step
    assert resumable(plan, Named(image=copy)).image == ExistingDisk(str(copy), image.sha256, 1)
    with pytest.raises(UsageError, match="another disk than the run was begun with"):
        resumable(plan, Named(image=other))
    with pytest.raises(UsageError, match="the run was started with mkfs"):
        resumable(plan_of("debian-6.12"), Named(image=disk))


def test_whoever_looks_at_a_finding_again_needs_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run keeps its base image."""
    found = Kernel("debian-6.12.117", Path("/image"), None, "00")
    monkeypatch.setattr("harness.trust.find_kernel", lambda *_: found)
    plan = msgspec.structs.replace(plan_of("debian-6.12"), image=ExistingDisk("/gone", "0" * 64, 1))
    assert chosen_kernel(plan, found.name, Named()) is found
