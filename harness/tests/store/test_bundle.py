"""A run as one file; and files from people who mean no good."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest
import zstandard

from harness.errors import EnvironmentLacks, ExitCode, PowercutError, StoreError, UsageError
from harness.host.files import file_hash
from harness.model import CaseId
from harness.plan import Plan
from harness.report import write_reports
from harness.report.findings import write_findings
from harness.report.lines import source_words
from harness.report.markdown import summary_markdown
from harness.store import RunStore
from harness.store import bundle as module
from harness.store.bundle import bundle, is_bundle, packed_case, unbundle
from harness.store.layout import RunLayout
from harness.store.records import Finding
from harness.summary import summarise
from harness.tests.cli.runner import powercut, printed, refused
from harness.tests.report.demo import demo_run
from harness.trust import NOTHING, Named, plan_here, vouched

RULED = CaseId("any", "posix", "rnd")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunStore]:
    monkeypatch.chdir(tmp_path)
    with demo_run(tmp_path / "there") as store:
        for finding in store.findings():
            folder = store.layout.case(finding.case).folder
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "history.json").write_text("{}")
            (folder / "log.zst").write_bytes(bytes(1000))
            (folder.parent / "base.img.zst").write_bytes(b"base")
        store.layout.scratch.mkdir()
        (store.layout.scratch / "huge.img").write_bytes(bytes(1 << 16))
        store.put_plan(Plan(configurations=["ext4"], workloads=["all"]))
        yield store


def names(run: Path) -> set[str]:
    return {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()}


def two_cases(run: RunStore) -> tuple[Finding, Finding]:
    first, *rest = run.findings()
    return first, next(f for f in rest if f.case != first.case)


def test_a_file_that_another_process_unpacks_meanwhile_is_unpacked_once(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three `show --from FILE` at once two ended with "Directory not empty"."""
    file, unpack = tmp_path / "run.tar.zst", module._unpack
    others: list[Path] = []
    bundle(run.path, file)

    def overtaken(packed: BinaryIO, folder: Path, of: Path) -> str:
        name = unpack(packed, folder, of)
        if not others:
            others.append(folder)
            others.append(unbundle(file, tmp_path / "here"))
        return name

    monkeypatch.setattr(module, "_unpack", overtaken)
    assert unbundle(file, tmp_path / "here") == others[1]
    assert [p.name for p in (tmp_path / "here" / "runs").iterdir()] == [others[1].name]


def test_what_was_packed_is_what_comes_out(run: RunStore, tmp_path: Path) -> None:
    file = tmp_path / "run.tar.zst"
    bundle(run.path, file)
    again = unbundle(file, tmp_path / "here")
    assert again.parent == tmp_path / "here" / "runs"
    assert names(again) == {
        n for n in names(run.path) if not n.startswith(("lock", "scratch", "powercut.sqlite-"))
    }
    assert file_hash(again / "run.json") == file_hash(run.path / "run.json")
    with RunStore.open(again) as store:
        assert store.findings() == run.findings()
        assert store.plan() == run.plan()
    assert unbundle(file, tmp_path / "here") == again, "a second time, nothing is unpacked"
    assert not list(again.parent.glob(".unpacking-*"))


@pytest.mark.parametrize("folder", ["proj#1", "what?", "a%20b"])
def test_a_folder_above_the_run_may_be_called_anything(tmp_path: Path, folder: str) -> None:
    """SQLite took the rest of such a path for options: an empty database was packed, without a word."""
    with demo_run(tmp_path / folder) as run:
        bundle(run.path, tmp_path / "run.tar.zst")
        with RunStore.open(unbundle(tmp_path / "run.tar.zst", tmp_path / "here")) as store:
            assert store.findings() == run.findings()
    assert {p.name for p in tmp_path.iterdir()} == {folder, "run.tar.zst", "here"}


def test_a_database_that_nobody_can_open_is_not_packed(run: RunStore, tmp_path: Path) -> None:
    run.close()
    run.layout.database.write_bytes(b"")
    with pytest.raises(StoreError, match="is damaged"):
        bundle(run.path, tmp_path / "run.tar.zst")
    assert not (tmp_path / "run.tar.zst").exists()


def test_what_a_link_names_does_not_go_along(run: RunStore, tmp_path: Path) -> None:
    """A run that came from elsewhere could name any file of this host, and `pack` put it into the package."""
    (tmp_path / "secret").write_text("of this host alone")
    link = run.path / "reports.txt"
    link.symlink_to(tmp_path / "secret")
    folder = run.path / "more"
    folder.symlink_to(tmp_path)
    bundle(run.path, tmp_path / "run.tar.zst")
    again = unbundle(tmp_path / "run.tar.zst", tmp_path / "here")
    assert not {n for n in names(again) if n.startswith(("reports.txt", "more"))}


@pytest.mark.parametrize("name", ["a\x1b[31m", "a\udcff", "a/b/c/d/e/f/g/h", "x" * 101])
def test_a_file_that_unpack_would_refuse_is_not_packed(run: RunStore, tmp_path: Path, name: str) -> None:
    """Whoever got the package was told that it came from somebody who means no good."""
    (run.path / name).parent.mkdir(parents=True, exist_ok=True)
    (run.path / name).write_text("")
    with pytest.raises(StoreError, match="cannot be packed") as e:
        bundle(run.path, tmp_path / "run.tar.zst")
    assert ("up to 100 bytes" in e.value.next_step) == (len(name) > 100), "it said 255"
    assert not (tmp_path / "run.tar.zst").exists()


def test_a_run_directory_that_unpack_would_refuse_is_not_packed(run: RunStore, tmp_path: Path) -> None:
    run.close()
    renamed = run.path.rename(run.path.with_name("my run"))
    with pytest.raises(UsageError, match="my run cannot be packed") as e:
        bundle(renamed, tmp_path / "run.tar.zst")
    assert e.value.next_step.startswith("rename it")


def test_more_than_unpack_would_take_is_not_packed(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    with pytest.raises(StoreError, match="more than a package holds"):
        bundle(run.path, tmp_path / "run.tar.zst")


def test_a_tar_reads_it_too(run: RunStore, tmp_path: Path) -> None:
    bundle(run.path, tmp_path / "run.tar.zst")
    plain = zstandard.ZstdDecompressor().stream_reader((tmp_path / "run.tar.zst").read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        assert f"{run.path.name}/run.json" == tar.getnames()[1]
        assert {m.uid for m in tar} == {0}


def test_one_case_leaves_the_recordings_of_others_out(run: RunStore, tmp_path: Path) -> None:
    mine, other = two_cases(run)
    bundle(run.path, tmp_path / "one.tar.zst", mine.case)
    again = unbundle(tmp_path / "one.tar.zst", tmp_path / "here")
    with RunStore.open(again) as store:
        assert store.layout.case(mine.case).log.is_file()
        assert store.layout.case(mine.case).base.is_file()
        assert not store.layout.case(other.case).folder.exists()
        assert store.findings() == run.findings()


def test_a_package_of_one_case_prints_no_command_for_what_was_left_out(run: RunStore, tmp_path: Path) -> None:
    """Its report told how to reproduce findings of cases that were not packed; each command refused."""
    mine, other = two_cases(run)
    bundle(run.path, tmp_path / "one.tar.zst", mine.case)
    report = powercut("report", tmp_path / "one.tar.zst").stdout
    assert f"powercut repro {mine.case}@" in report
    assert f"powercut repro {other.case}@" not in report
    (unpacked,) = Path("reports/runs").iterdir()
    assert report.count(f"not here: the file was packed with {mine.case} alone") == 1
    assert f"FAIL {other.case} " not in report
    done = powercut("repro", f"{other.case}@1", "--from", tmp_path / "one.tar.zst")
    assert done.exit_code == ExitCode.USAGE, "3 stood for a case that is not in the file"
    assert f"was packed with {mine.case} alone, without {other.case}" in " ".join(done.output.split())
    assert "name one" not in powercut("log", "ls", "--from", tmp_path / "one.tar.zst").stderr
    with RunStore.open(unpacked) as store:
        write_reports(store)
    for name in ("report.html", "summary.txt", "summary.md", "junit.xml"):
        assert f"powercut repro {other.case}@" not in (unpacked / name).read_text(), name
    bundle(unpacked, tmp_path / "again.tar.zst", mine.case)
    assert powercut("report", run.path).stdout.count(f"powercut repro {other.case}@") == 1


@pytest.mark.parametrize("said", ["", "nonsense\n", "x" * 10_000, "\udcff"])
def test_a_package_that_names_no_case_is_a_whole_run(said: str, run: RunStore) -> None:
    run.layout.packed.write_text(said, errors="surrogateescape")
    assert packed_case(run.layout) is None


# --- from somebody who means no good ---------------------------------------------------------


def made(path: Path, *members: tuple[tarfile.TarInfo, bytes], end: bytes = bytes(1024)) -> Path:
    data = b"".join(
        info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512) for info, body in members
    )
    path.write_bytes(zstandard.ZstdCompressor().compress(data + end))
    return path


def plain(name: str, body: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(body)
    return info, body


def other(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


HOSTILE = {
    "a name that climbs": [plain("run/../../evil")],
    "an absolute name": [plain("/run/evil")],
    "a name that climbs at once": [plain("../evil")],
    "a dot": [plain("run/./evil")],
    "a top that hides": [plain(".evil/run.json")],
    "a symbolic link": [other("run/cases", tarfile.SYMTYPE, "/etc"), plain("run/cases/evil")],
    "a hard link": [other("run/evil", tarfile.LNKTYPE, "/etc/passwd")],
    "a device": [other("run/evil", tarfile.CHRTYPE)],
    "a folder": [other("run/evil", tarfile.DIRTYPE)],
    "a long name's header": [other("././@LongLink", tarfile.GNUTYPE_LONGNAME)],
    "a pax header": [other("run/PaxHeader", tarfile.XHDTYPE)],
    "two runs": [plain("run/run.json"), plain("other/run.json")],
    "a control character": [plain("run/\x1b[31m")],
    "no run": [plain("run/report.html")],
    "nothing": [],
    "too deep": [plain("run/" + "a/" * 9 + "b")],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_but_a_run_is_unpacked(members: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path) -> None:
    file = made(tmp_path / "evil.tar.zst", *members)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StoreError):
        unbundle(file, tmp_path / "here")
    left = [p for p in sorted(tmp_path.rglob("*")) if p not in before]
    assert left == [tmp_path / "here", tmp_path / "here" / "runs"]


def test_a_file_twice_does_not_replace_the_first(tmp_path: Path) -> None:
    file = made(tmp_path / "evil.tar.zst", plain("run/run.json"), plain("run/run.json"))
    with pytest.raises((StoreError, FileExistsError)):
        unbundle(file, tmp_path / "here")


def test_a_file_that_would_fill_the_disk_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, _ = plain("run/run.json")
    info.size = 7 << 30
    monkeypatch.setattr(module, "MAX_BYTES", 6 << 30)
    with pytest.raises(EnvironmentLacks, match="more than there is room for"):
        unbundle(made(tmp_path / "bomb", (info, b"")), tmp_path / "here")
    monkeypatch.setattr(module, "MAX_FILES", 3)
    many = [plain(f"run/{i}") for i in range(4)]
    with pytest.raises(StoreError):
        unbundle(made(tmp_path / "many", *many), tmp_path / "here")


def test_a_damaged_file_leaves_nothing(run: RunStore, tmp_path: Path) -> None:
    bundle(run.path, tmp_path / "run.tar.zst")
    whole = (tmp_path / "run.tar.zst").read_bytes()
    for data in (whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), whole[:4] + bytes(40)):
        (tmp_path / "bad").write_bytes(data)
        assert is_bundle(tmp_path / "bad")
        with pytest.raises(PowercutError):
            unbundle(tmp_path / "bad", tmp_path / "here")
        assert not list((tmp_path / "here" / "runs").iterdir())


# --- commands --------------------------------------------------------------------------------


def test_a_packed_run_is_taken_wherever_a_run_is(run: RunStore, tmp_path: Path) -> None:
    """A CI job published a page whose commands named a directory of a runner that was gone."""
    told = printed("pack", run.path, "--output", "run.tar.zst")
    assert f"--from {tmp_path}/run.tar.zst" in " ".join(told.split())
    report = powercut("report", "run.tar.zst")
    assert report.exit_code == ExitCode.INCONSISTENT, report.stderr
    assert "run.tar.zst is unpacked in" in report.stderr
    (unpacked,) = Path("reports/runs").iterdir()
    assert f"--from {tmp_path}/{unpacked}" in report.stdout
    compared = powercut("compare", run.path, "run.tar.zst")
    assert compared.exit_code == ExitCode.UNDECIDED, "as the run is"


def test_what_only_a_packed_run_names_is_not_used(run: RunStore) -> None:
    run.put_plan(Plan(configurations=["ext4"], workloads=["all"], replaced=["/theirs/evil.ko"]))
    bundle(run.path, Path("run.tar.zst"))
    point = next(f.crash_point for f in run.findings() if f.case.workload == "append-fsync")
    assert "--module /theirs/evil.ko" in refused("repro", point, "--from", "run.tar.zst")


def test_the_line_that_pack_prints_names_the_module_too(run: RunStore) -> None:
    """It was refused where it was printed: a module that only the run names is not used."""
    run.put_plan(Plan(configurations=["ext4"], workloads=["all"], replaced=["/mine/ext4.ko"]))
    done = powercut("pack", run.path, "--output", "run.tar.zst")
    assert "run.tar.zst --module /mine/ext4.ko" in " ".join(done.stdout.split())


def test_a_kernel_of_ones_own_does_not_go_along_and_the_receiver_is_told(run: RunStore) -> None:
    """The printed command named a file that only the sender had, without a word."""
    run.put_plan(
        Plan(configurations=["ext4"], workloads=["all"], kernel="/mine/bzImage", modules="/mine/lib")
    )
    said = " ".join(powercut("pack", run.path, "--output", "run.tar.zst").stdout.split())
    assert "not in the file, and needed there: /mine/bzImage (--kernel)" in said
    assert "not in the file, and needed there: /mine/lib (--modules)" in said


def with_module(run: RunStore, tmp_path: Path) -> Path:
    """The run, made with a module that is kept in it, and gone since."""
    module = tmp_path / "build" / "ext4.ko"
    kept = run.layout.module("ext4.ko")
    kept.parent.mkdir()
    kept.write_bytes(b"\x7fELF as it was")
    begun = replace(run.info.kernel, replaced={str(module): file_hash(kept)})
    run.update_info(replace(run.info, kernel=begun))
    run.put_plan(Plan(configurations=["ext4"], workloads=["all"], replaced=[str(module)]))
    return kept


def test_a_module_goes_along_and_whoever_gets_the_file_is_told_how_to_name_it(
    run: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of a red job named a module on a runner that was gone, and nobody had it."""
    with_module(run, tmp_path)
    done = powercut("pack", run.path, "--output", "run.tar.zst")
    printed = next(line for line in done.stdout.splitlines() if line.startswith("look at it again: "))
    there = tmp_path / "theirs"
    there.mkdir()
    monkeypatch.chdir(there)
    point = next(f.crash_point for f in run.findings() if f.case.workload == "append-fsync")
    told = refused("repro", point, "--from", tmp_path / "run.tar.zst")
    said = told
    assert "for the kernel's own module instead: --kernel debian-6.12" in said
    (module,) = there.glob("reports/runs/*/modules/ext4.ko")
    assert f"--module {module}" in said
    assert printed.endswith(f"--module {module.relative_to(there)}"), "the line of pack works there, too"
    assert module.read_bytes() == b"\x7fELF as it was"
    with RunStore.open(module.parent.parent) as store:
        named = Named(replaced=(module,))
        asked = vouched(plan_here(store, named), named)
        assert asked.replaced == [str(module)]
        assert vouched(plan_here(store, NOTHING), Named(kernel="debian-6.12")).replaced == []


def test_lines_name_the_module_that_the_run_keeps_and_a_script_that_of_its_folder(
    run: RunStore, tmp_path: Path
) -> None:
    """The file at the old path is another build tomorrow."""
    kept = with_module(run, tmp_path)
    assert source_words(run, str(run.path)).endswith(f" --module {kept}")
    summary = summarise(run)
    write_findings(summary, run, str(run.path))
    script = (run.layout.finding(summary.findings[0].id) / "repro.sh").read_text()
    assert '--from "$run" --module "$run"/modules/ext4.ko "$@"' in script
    assert "ext4.ko (sha256 " in summary_markdown(summary, str(run.path))
    assert "--from run.tar.zst" in summary_markdown(summary, str(run.path))
    kept.write_bytes(b"\x7fELF changed")
    assert source_words(run, str(run.path)).endswith(f" --module {tmp_path}/build/ext4.ko")


def test_a_file_that_is_no_packed_run_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    assert "none that powercut pack made" in refused("report", tmp_path / "file")


def test_a_case_that_the_run_does_not_have_is_refused(run: RunStore) -> None:
    for case in ("ext4-ordered/nothing", "nonsense"):
        assert powercut("pack", run.path, case).exit_code == ExitCode.USAGE
    assert not list(Path().glob("*.zst"))


def test_a_case_of_a_mode_that_is_only_rules_is_packed_with_its_calls(run: RunStore, tmp_path: Path) -> None:
    """It "has no recording"."""
    folder = run.layout.case(RULED).folder
    folder.mkdir(parents=True)
    (folder / "calls.zst").write_bytes(b"calls")
    bundle(run.path, tmp_path / "p.tar.zst", RULED)
    unpacked = unbundle(tmp_path / "p.tar.zst", tmp_path / "here")
    assert RunLayout(unpacked).case(RULED).calls.read_bytes() == b"calls"


def test_what_is_left_of_an_unpacked_run_is_not_taken_for_it(run: RunStore, tmp_path: Path) -> None:
    """Each further use of the file ended with "it has no readable run.json"."""
    bundle(run.path, tmp_path / "p.tar.zst")
    first = unbundle(tmp_path / "p.tar.zst", tmp_path / "here")
    (first / "run.json").unlink()
    again = unbundle(tmp_path / "p.tar.zst", tmp_path / "here")
    assert again == first
    with RunStore.open(again) as store:
        assert store.findings()
