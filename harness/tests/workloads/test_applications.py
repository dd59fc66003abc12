"""Applications: directories with `run` and `check`, errors with a next step, and what the guest gets."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks, UsageError
from harness.filesystems.profiles import select_profiles
from harness.guests.brought import host_files, python_files
from harness.guests.guest_specs import missing_program
from harness.guests.initramfs import Initramfs, build, find_program, libraries_of, user_id
from harness.host.oci import read_image
from harness.host.resources import resource
from harness.model import OperationKind, Workload
from harness.tests.guests.test_brought import elf_with
from harness.tests.guests.test_initramfs import unpacked
from harness.tests.host.images import file, layout, tar
from harness.tests.needs import need_program
from harness.workloads.applications import (
    ENDINGS,
    has_neighbour,
    load_application,
    of_program,
    prints_acknowledgements,
)
from harness.workloads.load import (
    contents_hash,
    is_own_application,
    load_workload,
    select_workloads,
    with_neighbours,
    workload_sets,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An application with a file beside its programs."""
    folder = tmp_path / "my-db"
    (folder / "data").mkdir(parents=True)
    (folder / "workload.toml").write_text(
        'summary = "mine"\nprograms = ["sqlite3", "redis-cli:redis-tools"]\n'
    )
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "check").write_text("#!/bin/sh\n")
    (folder / "data" / "schema.sql").write_text("CREATE TABLE t(x);\n")
    return folder


def test_a_directory_is_a_workload(directory: Path) -> None:
    (workload,) = load_application(directory)
    assert (workload.name, workload.summary, workload.opaque) == ("my-db", "mine", True)
    (run,) = workload.operations
    assert (run.kind, run.argv) == (OperationKind.RUN, ("/workload/my-db/run",))
    (check,) = workload.checks
    assert (check.operation, check.argv, check.reads) == (0, ("/workload/my-db/check",), ("*",))
    assert check.application
    assert workload.programs == ("busybox:busybox-static", "sqlite3", "redis-cli:redis-tools")
    assert workload.files["/workload/my-db/data/schema.sql"] == b"CREATE TABLE t(x);\n"


def test_each_line_that_a_program_prints_may_be_its_acknowledgement(directory: Path) -> None:
    """A program had to call powercut-ack, which one that is tested as it is does not."""
    (directory / "workload.toml").write_text('summary = "mine"\nacknowledges = "lines"\nuser = "me"\n')
    (workload,) = load_application(directory)
    (run,) = workload.operations
    assert run.argv == ("powercut-ack-lines", "powercut-as", "me", "/workload/my-db/run")


def test_another_program_commits_beside_each_variant(directory: Path) -> None:
    (directory / "workload.toml").write_text(
        'summary = "mine"\nacknowledges = "lines"\nneighbour = true\n'
        '[variants.fast]\nsummary = "f"\narguments = ["a"]\n'
    )
    alone, beside = load_application(directory)
    assert (alone.name, beside.name) == ("my-db-fast", "my-db-fast-neighbour")
    assert (has_neighbour(alone), has_neighbour(beside)) == (False, True)
    assert beside.operations[0].argv == ("powercut-neighbour", *alone.operations[0].argv)
    assert "another program commits" in beside.summary


def test_a_neighbour_may_be_asked_for_where_the_description_does_not(directory: Path) -> None:
    """It was a key of the description alone: who tests a program that is not his own had to change it."""
    (directory / "workload.toml").write_text('summary = "mine"\n[variants.fast]\narguments = ["a"]\n')
    words = with_neighbours([str(directory), "redis.s2"], ["-neighbour"])
    assert words[2:] == [f"{directory}-neighbour", "redis-always-neighbour.s2", "redis-no-neighbour.s2"]
    found = {w.name: w for w in select_workloads([*words[:1], *words[2:4], f"{directory}-neighbour.s1"])}
    assert [has_neighbour(w) for w in found.values()] == [False, True, True, True]
    assert [*found] == [
        *("my-db-fast", "my-db-fast-neighbour", "redis-always-neighbour.s2", "my-db-fast-neighbour.s1")
    ]
    assert is_own_application(words[2])
    assert not is_own_application(words[3])
    assert with_neighbours(words, ["-neighbour"]) == words


def test_both_neighbours_may_be_asked_for(directory: Path) -> None:
    words = with_neighbours([str(directory)], ENDINGS)
    alone, beside, pressed = select_workloads(words)
    assert [w.name for w in (alone, beside, pressed)] == ["my-db", "my-db-neighbour", "my-db-pressure"]
    assert pressed.operations[0].argv == ("powercut-pressure", *alone.operations[0].argv)
    assert (has_neighbour(pressed), prints_acknowledgements(pressed)) == (True, False)
    assert "written back" in pressed.summary


def test_a_neighbour_of_the_description_is_the_one_that_is_asked_for(directory: Path) -> None:
    (directory / "workload.toml").write_text('summary = "mine"\nneighbour = true\n')
    found = select_workloads(with_neighbours([str(directory)], ["-neighbour"]))
    assert [w.name for w in found] == ["my-db", "my-db-neighbour"]


def test_a_folder_that_is_named_like_a_neighbour_is_itself(directory: Path) -> None:
    other = directory.with_name("my-db-neighbour")
    shutil.copytree(directory, other)
    (found,) = select_workloads([str(other)])
    assert (found.name, has_neighbour(found)) == ("my-db-neighbour", False)


@pytest.mark.parametrize("word", ["append-fsync", "quick", "nothing-of-that-name"])
def test_what_is_no_application_has_no_neighbour(word: str) -> None:
    with pytest.raises(UsageError, match="has no neighbour: it is no application"):
        with_neighbours([word], ENDINGS)


def test_variants_are_workloads_of_their_own(directory: Path) -> None:
    (directory / "workload.toml").write_text(
        'summary = "mine"\nreads = ["db*"]\n'
        '[variants.fast]\nsummary = "f"\narguments = ["a", "b"]\n'
        "[variants.safe]\narguments = []\n"
    )
    fast, safe = load_application(directory)
    assert (fast.name, fast.summary) == ("my-db-fast", "f")
    assert (safe.name, safe.summary) == ("my-db-safe", "mine")
    assert fast.operations[0].argv == ("/workload/my-db/run", "a", "b")
    assert fast.checks[0].argv == ("/workload/my-db/check", "a", "b")
    assert fast.checks[0].reads == ("db*",)


def test_two_variants_have_two_names(directory: Path) -> None:
    """A dash at the end of a key was left out."""
    (directory / "workload.toml").write_text('summary = "x"\n[variants.a]\n[variants.a-]\n[variants.""]\n')
    assert [w.name for w in load_application(directory)] == ["my-db-a", "my-db-a-", "my-db"]


def test_a_directory_of_ones_own_is_named_by_its_path(directory: Path) -> None:
    assert [w.name for w in select_workloads([str(directory)])] == ["my-db"]


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("workload.toml", None, "has no workload.toml"),
        ("workload.toml", 'programs = ["x"]\n', "it needs summary"),
        ("workload.toml", 'summary = "s"\nprogram = ["x"]\n', "is programs meant"),
        ("workload.toml", 'summary = "s"\nzzz = 1\n', "leave out zzz; there is summary, programs"),
        ("workload.toml", 'summary = "x"\nprogams = []\n', "progams"),
        ("workload.toml", 'summary = "x"\n[variants."a b"]\nsummary = "s"\narguments = []\n', "'my-db-a b'"),
        ("run", None, "run is missing"),
        ("check", None, "check is missing"),
        ("run", "echo no interpreter\n", "write #!/bin/sh into its first line"),
        ("check", "", "could not start it"),
    ],
)
def test_a_wrong_directory_says_what_is_wrong(
    directory: Path, file: str, text: str | None, says: str
) -> None:
    (directory / file).unlink()
    if text is not None:
        (directory / file).write_text(text)
    with pytest.raises(UsageError) as caught:
        load_application(directory)
    assert says in str(caught.value)
    assert str(directory) in str(caught.value)


def test_applications_are_a_set_of_their_own() -> None:
    sets = workload_sets()
    assert set(sets["sqlite"]) < set(sets["applications"])
    assert not set(sets["applications"]) & set(sets["all"])
    for workload in select_workloads(["applications"]):
        assert workload.summary
        assert load_workload(workload.name) == workload


def test_a_misspelt_application_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="sqlite-wal-full"):
        load_workload("sqlite-wal-ful")


def test_the_scripts_are_shell() -> None:
    """As the guest's shell reads them."""
    for script in sorted(resource("workloads").rglob("*")):
        if script.is_file() and script.read_bytes().startswith(b"#!/bin/sh"):
            subprocess.run(["busybox", "sh", "-n", script], check=True)


def test_a_program_that_is_missing_is_named_with_its_package() -> None:
    with pytest.raises(EnvironmentLacks, match="apt-get install no-tools"):
        find_program("no-such-program:no-tools")
    with pytest.raises(EnvironmentLacks, match="gdbmtol spelled rightly") as caught:
        find_program("gdbmtol")
    assert "apt-get install gdbmtol" not in str(caught.value), "there is no package of that name"
    lacking = Workload("w", "w", (), programs=("busybox", "no-such-program:no-tools"))
    assert "apt-get install no-tools" in missing_program(lacking)
    assert missing_program(Workload("w", "w", (), programs=("busybox",))) == ""


def test_a_shell_comes_with_its_commands_and_the_agent_s() -> None:
    need_program("busybox")
    root = Initramfs()
    root.add_program("busybox:busybox-static")
    root.add("bin/sed", b"another sed", 0o755)
    found = unpacked(root.pack())
    link = stat.S_IFLNK | 0o777
    assert found["bin/powercut-as"] == (link, b"/init")
    assert found["bin/sh"] == (link, b"busybox")
    assert found["bin/powercut-ack"] == (link, b"/init")
    assert found["bin/powercut-ack-lines"] == (link, b"/init")
    assert found["bin/powercut-on-copy"] == (link, b"/init")
    assert found["usr/bin"] == (link, b"/bin")
    assert stat.S_ISREG(found["bin/busybox"][0])
    assert found["bin/sed"][1] == b"another sed"


@pytest.mark.parametrize(
    ("first", "interpreter"),
    [("#!/usr/bin/python3", "python3"), ("#!/usr/bin/env bash", "bash"), ("#! /bin/bash -e", "bash")],
)
def test_an_interpreter_that_the_guest_lacks_is_told_before_it_boots(
    directory: Path, first: str, interpreter: str
) -> None:
    (directory / "check").write_text(f"{first}\n")
    with pytest.raises(UsageError, match=f"check is for {interpreter}, which the guest does not have"):
        load_application(directory)
    (directory / "workload.toml").write_text(f'summary = "x"\nprograms = ["{interpreter}:python3-minimal"]\n')
    assert load_application(directory)


@pytest.mark.parametrize(
    "first", ["#!/bin/sh", "#!/usr/bin/env sh", "#!/bin/busybox sh", "#!/usr/bin/awk -f"]
)
def test_what_busybox_runs_is_in_every_guest(directory: Path, first: str) -> None:
    (directory / "run").write_text(f"{first}\n")
    assert load_application(directory)


@pytest.mark.parametrize(
    "first",
    [
        "-S python3 -u",
        "-Spython3 -u",
        "--split-string=python3 -u",
        "-iS -u HOME PYTHONUNBUFFERED=1 /usr/bin/python3",
    ],
)
def test_the_program_behind_env_is_what_the_guest_needs(directory: Path, first: str, tmp_path: Path) -> None:
    """`#!/usr/bin/env -S python3` was told to add -S to the programs."""
    (directory / "run").write_text(f"#!/usr/bin/env {first}\n")
    with pytest.raises(UsageError, match="run is for python3, which the guest does not have"):
        load_application(directory)
    workload = described(directory, 'runtime = "python"')
    assert workload.programs[1:] == ("env:coreutils",), "that of busybox knows no -S"
    made = of_program(directory / "run", [], tmp_path)
    assert (made / "workload.toml").read_text().endswith('runtime = "python"\nprograms = ["env:coreutils"]\n')


@pytest.mark.parametrize("words", ["PYTHONUNBUFFERED=1 python3", "python3 -u"])
def test_what_linux_hands_to_env_as_one_word_is_told(words: str, directory: Path) -> None:
    """With a variable, env sets that and ends well: every check said yes."""
    (directory / "check").write_text(f"#!/usr/bin/env {words}\n")
    with pytest.raises(UsageError) as e:
        described(directory, 'runtime = "python"')
    assert e.value.next_step == f"write #!/usr/bin/env -S {words}"


def test_a_version_of_python_is_not_told_to_add_what_is_there(directory: Path) -> None:
    """With runtime = "python", `#!/usr/bin/python3.11` was told to add just that."""
    (directory / "run").write_text("#!/usr/bin/python3.11\n")
    with pytest.raises(UsageError, match=r"run is for python3\.11") as e:
        described(directory, 'runtime = "python"')
    assert e.value.next_step == "there it is called python3: #!/usr/bin/env python3"


def test_a_description_that_is_no_text_is_refused(directory: Path) -> None:
    (directory / "workload.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"workload\.toml"):
        load_application(directory)


def test_a_program_may_be_named_by_its_path() -> None:
    """It was put at /bin//usr/bin/env, where the guest could not find it."""
    path = shutil.which("env")
    assert path
    found = initramfs_with(path)
    assert found["bin/env"][1] == Path(path).resolve().read_bytes()


def test_a_program_is_found_at_the_path_that_it_was_named_by(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    shutil.copy(shutil.which("env") or "", tool)
    found = initramfs_with(str(tool))
    assert found[str(tool).lstrip("/")][1] == tool.read_bytes()
    assert found["bin/tool"] == (stat.S_IFLNK | 0o777, str(tool).encode())


def test_programs_of_one_name_at_two_paths_are_two(tmp_path: Path) -> None:
    """The last one stood at both paths, and one called `sh` took the place of the guest's shell."""
    root = Initramfs()
    for number, name in enumerate(("one/server", "two/server", "two/sh")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(Path(shutil.which("env") or "").resolve().read_bytes() + b"%d" % number)
        (tmp_path / name).chmod(0o755)
    for program in sorted(["busybox", *(str(p) for p in tmp_path.glob("*/*"))]):
        root.add_program(program)
    found = unpacked(root.pack())
    for path in tmp_path.glob("*/*"):
        assert found[str(path).lstrip("/")][1] == path.read_bytes()
    assert found["bin/sh"] == (stat.S_IFLNK | 0o777, b"busybox")


def initramfs_with(program: str) -> dict[str, tuple[int, bytes]]:
    root = Initramfs()
    root.add_program(program)
    return unpacked(root.pack())


def test_an_interpreter_may_be_named_by_its_path(directory: Path) -> None:
    (directory / "workload.toml").write_text('summary = "x"\nprograms = ["/usr/bin/python3"]\n')
    (directory / "check").write_text("#!/usr/bin/python3\n")
    assert load_application(directory)


def test_a_program_that_is_neither_a_name_nor_a_path_is_refused(directory: Path) -> None:
    (directory / "workload.toml").write_text('summary = "x"\nprograms = ["./tool"]\n')
    with pytest.raises(UsageError, match="neither names nor paths"):
        load_application(directory)


def test_a_program_beside_run_comes_with_its_libraries() -> None:
    """Only those of `programs` did: the guest said that the program is not there."""
    program = Path(shutil.which("env") or "").resolve().read_bytes()
    root = Initramfs()
    root.add_workload({"/workload/my-db/tool": program})
    found = unpacked(root.pack())
    assert found["workload/my-db/tool"] == (stat.S_IFREG | 0o755, program)
    assert "lib/x86_64-linux-gnu/libc.so.6" in found
    assert "lib64/ld-linux-x86-64.so.2" in found


def test_a_library_that_lies_beside_the_program_is_not_looked_for(tmp_path: Path) -> None:
    files = {"/workload/w/tool": elf_with("libmine.so.1"), "/workload/w/libmine.so.1": b""}
    assert libraries_of(files) == {}
    del files["/workload/w/libmine.so.1"]
    assert "libmine.so.1" in missing_program(Workload("w", "w", (), files=files))


@pytest.mark.parametrize("cut", [6, 0x20, 0x40, 0x60, 0x110, 0x205])
def test_a_damaged_program_is_a_users_error(cut: int) -> None:
    with pytest.raises(UsageError, match="w/tool"):
        libraries_of({"w/tool": elf_with("libmine.so.1")[:cut]})


def packed(tmp_path: Path, workload: Workload) -> dict[str, tuple[int, bytes]]:
    """The guest's root for a workload."""
    (tmp_path / "agent").write_bytes(b"agent")
    return unpacked(build(tmp_path / "agent", [], [], {}, [workload]))


def described(directory: Path, more: str) -> Workload:
    """The application with more lines in its description."""
    (directory / "workload.toml").write_text(f'summary = "mine"\n{more}\n')
    (workload,) = load_application(directory)
    return workload


def test_symbolic_links_beside_run_are_followed(directory: Path, tmp_path: Path) -> None:
    """A link to a folder was left out, and one that leads nowhere as well: neither was said."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    (elsewhere / "deep" / "rows").write_text("1\n")
    (directory / "shared").symlink_to(elsewhere)
    (directory / "one").symlink_to(elsewhere / "deep" / "rows")
    files = described(directory, "").files
    assert files["/workload/my-db/shared/deep/rows"] == b"1\n"
    assert files["/workload/my-db/one"] == b"1\n"


@pytest.mark.parametrize(("target", "says"), [("nowhere", "does not exist"), ("..", "leads back to")])
def test_a_link_that_cannot_be_followed_is_named(directory: Path, target: str, says: str) -> None:
    (directory / "data" / "link").symlink_to(target)
    with pytest.raises(UsageError, match=f"data/link .*{says}"):
        load_application(directory)


def test_a_library_that_lies_beside_the_program_is_found_by_the_loader() -> None:
    """It was in the guest, at a place where no loader looks."""
    root = Initramfs()
    root.add_workload({"/workload/w/tool": elf_with("libmine.so.1"), "/workload/w/lib/libmine.so.1": b""})
    link = stat.S_IFLNK | 0o777, b"/workload/w/lib/libmine.so.1"
    assert unpacked(root.pack())["lib/x86_64-linux-gnu/libmine.so.1"] == link


def test_files_of_the_host_stand_at_their_own_paths(directory: Path, tmp_path: Path) -> None:
    """They had to be copied beside `run`, and found there."""
    share = tmp_path / "share"
    (share / "zone").mkdir(parents=True)
    (share / "zone" / "table").write_text("t")
    shutil.copy(shutil.which("env") or "", share / "tool")
    (share / "link").symlink_to("zone/table")
    workload = described(directory, f'files = ["{share}:mine", "{tmp_path}/sh*/zone/*"]')
    assert missing_program(workload) == ""
    found = packed(tmp_path, workload)
    inside = str(share).lstrip("/")
    assert found[f"{inside}/zone/table"] == (stat.S_IFREG | 0o644, b"t")
    assert found[f"{inside}/link"][1] == b"t"
    assert found[f"{inside}/tool"][0] == stat.S_IFREG | 0o755
    assert any("libc.so" in name for name in found)


def test_a_file_of_usr_bin_is_where_the_guest_keeps_programs(directory: Path, tmp_path: Path) -> None:
    found = packed(tmp_path, described(directory, 'files = ["/usr/bin/env"]'))
    assert found["bin/env"][1] == Path("/usr/bin/env").read_bytes()
    assert found["usr/bin"] == (stat.S_IFLNK | 0o777, b"/bin")


def test_a_file_that_the_host_lacks_is_named_with_its_package(directory: Path) -> None:
    workload = described(directory, 'files = ["/no/such/*.so:mine-server"]')
    assert "/no/such/*.so" in missing_program(workload)
    assert "apt-get install mine-server" in missing_program(workload)


@pytest.mark.parametrize("wanted", ["share", "share/link"])
def test_a_link_of_the_host_that_leads_nowhere_costs_only_who_brings_it(
    directory: Path, tmp_path: Path, wanted: str
) -> None:
    """It ended the run of all workloads: as a usage error, or with a traceback."""
    (tmp_path / "share").mkdir()
    (tmp_path / "share" / "link").symlink_to("nowhere")
    workload = described(directory, f'files = ["{tmp_path / wanted}"]')
    assert f"{tmp_path / 'share'}" in missing_program(workload)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('files = ["share"]', "no paths of this host"),
        ('runtime = "pyton"', "there is python"),
        ('user = "Post gres"', "is no user's name"),
        ("image_mib = -1", "image_mib = -1 is not from 1 to"),
        ("image_mib = 100000", "image_mib = 100000 is not from 1 to"),
        ("memory_mib = -1", "memory_mib = -1 is not from 1 to"),
        ("memory_mib = 100000", "memory_mib = 100000 is not from 1 to"),
        ('image = "i.tar"\nprograms = ["ls"]', "image brings all programs"),
        ('image = "i.tar"\nruntime = "python"', "image brings all programs"),
    ],
)
def test_a_description_that_cannot_be_met_says_why(directory: Path, line: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        described(directory, line)
    assert "workload.toml" in caught.value.what


def test_python_comes_with_its_library(directory: Path, tmp_path: Path) -> None:
    """Only the interpreter did, which ends before the first line of a script."""
    (directory / "run").write_text("#!/usr/bin/env python3\n")
    with pytest.raises(UsageError, match='add runtime = "python"'):
        load_application(directory)
    workload = described(directory, 'runtime = "python"')
    assert missing_program(workload) == ""
    found = packed(tmp_path, workload)
    program, files = python_files()
    assert found["bin/python3"][1] in (program.encode(), Path(program).read_bytes())
    assert any(name.endswith("/encodings/utf_8.py") for name in found)
    assert not any("/site-packages/" in name or "/test/" in name for name in files)


def test_modules_of_python_keep_their_times(directory: Path, tmp_path: Path) -> None:
    """With another time than their compiled forms name, all that a script imports is compiled anew."""
    root = Initramfs()
    root.add_python()
    _, files = python_files()
    name, path = next((n, p) for n, p in files.items() if n.endswith("/encodings/utf_8.py"))
    assert root.times[name.lstrip("/")] == int(path.stat().st_mtime)
    assert f"{int(path.stat().st_mtime):08X}".encode() in root.pack()


def test_a_user_may_run_both_programs(directory: Path, tmp_path: Path) -> None:
    workload = described(directory, 'user = "postgres"')
    assert workload.operations[0].argv == ("powercut-as", "postgres", "/workload/my-db/run")
    assert workload.checks[0].ahead == ("powercut-as", "postgres")
    found = packed(tmp_path, workload)
    number = user_id("postgres")
    assert f"postgres:x:{number}:{number}:".encode() in found["etc/passwd"][1]
    assert found["bin/powercut-ack"] == (stat.S_IFREG | 0o4755, b"agent")
    assert found["tmp"][0] == stat.S_IFDIR | 0o1777


def test_both_programs_may_have_the_root_of_an_image(directory: Path, tmp_path: Path) -> None:
    """The image is no file of the workload, of which every guest would have two copies more."""
    path = layout(directory / "i.tar", tar(file("bin/tool")))
    (directory / "run").write_text("#!/usr/bin/ruby\n")
    (directory / "lib.so").write_bytes(Path("/bin/ls").resolve().read_bytes())
    workload = described(directory, 'image = "i.tar"\nuser = "me"\nacknowledges = "lines"\nmemory_mib = 700')
    root = ("powercut-in", f"/images/{read_image(path).identity[:12]}")
    (run,) = workload.operations
    assert run.argv == (*root, "powercut-ack-lines", "powercut-as", "me", "/workload/my-db/run")
    assert workload.checks[0].ahead == (*root, "powercut-as", "me")
    assert prints_acknowledgements(workload)
    assert (workload.image, workload.memory_mib) == (str(path), 700)
    assert missing_program(workload) == ""
    found = packed(tmp_path, workload)
    assert found["workload/my-db/run"] == (stat.S_IFREG | 0o755, b"#!/usr/bin/ruby\n")
    assert found["bin/powercut-in"] == (stat.S_IFLNK | 0o777, b"/init")
    assert not {"workload/my-db/i.tar", "etc/passwd", "lib64/ld-linux-x86-64.so.2"} & set(found)


def test_another_program_commits_beside_one_in_an_image(directory: Path) -> None:
    layout(directory / "i.tar", tar(file("bin/tool")))
    (directory / "workload.toml").write_text('summary = "mine"\nimage = "i.tar"\nneighbour = true\n')
    alone, beside = load_application(directory)
    root, program = alone.operations[0].argv[:2], alone.operations[0].argv[2:]
    assert beside.operations[0].argv == (*root, "powercut-neighbour", *program)
    assert (has_neighbour(alone), has_neighbour(beside)) == (False, True)


def test_an_image_is_told_by_what_it_holds_and_not_by_where_it_lies(directory: Path, tmp_path: Path) -> None:
    """A run could not be judged again where its workload had moved."""
    layout(directory / "i.tar", tar(file("bin/tool")))
    one = contents_hash(described(directory, 'image = "i.tar"'))
    (moved,) = load_application(shutil.copytree(directory, tmp_path / "elsewhere" / directory.name))
    assert contents_hash(moved) == one
    layout(directory / "i.tar", tar(file("bin/tool", b"another")))
    assert contents_hash(described(directory, 'image = "i.tar"')) != one


def test_an_image_that_is_none_is_refused(directory: Path) -> None:
    with pytest.raises(UsageError, match=r"my-db/i\.tar is no image that can be used"):
        described(directory, 'image = "i.tar"')


def test_without_a_user_nothing_has_root_s_rights(directory: Path, tmp_path: Path) -> None:
    found = packed(tmp_path, described(directory, ""))
    assert not any(mode & 0o4000 for mode, _ in found.values())
    assert "etc/passwd" not in found


def test_a_folder_s_hidden_files_come_along(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / ".hidden").touch()
    assert list(host_files(f"{tmp_path}/d")) == [f"{tmp_path}/d/.hidden"]


def test_a_workload_may_ask_for_a_larger_file_system(directory: Path) -> None:
    """A mode's size was all that there was, 64 MiB for most."""
    assert described(directory, "image_mib = 96").image_mib == 96
    (mode,) = select_profiles(["ext4/ordered"])
    assert mode.sized(96).size_bytes == 96 << 20
    assert mode.sized(mode.size_bytes >> 20) is mode
    assert mode.sized(0) is mode
    (two,) = select_profiles(["ext4/external-journal"])
    assert two.second is not None
    assert two.sized(200).second_offset == 200 << 20
    assert two.sized(200).size_bytes == (200 << 20) + two.second.size_bytes


def test_an_unknown_key_of_a_variant_is_named(directory: Path) -> None:
    """`correct variants[...]: another kind of value belongs there`, of a key that is none."""
    (directory / "workload.toml").write_text('summary = "x"\n[variants.a]\nargs = ["a"]\n')
    with pytest.raises(UsageError) as e:
        load_application(directory)
    assert "leave out args, which is no key there" in str(e.value.next_step)


def test_a_source_is_no_program(tmp_path: Path) -> None:
    """Of `-- ./my-test.c`: "write #!/bin/sh into its first line"."""
    (source := tmp_path / "my-test.c").write_text("int main() { return 0; }\n")
    with pytest.raises(UsageError) as e:
        of_program(source, [], tmp_path)
    assert e.value.next_step == "name the program that is built from it"


def test_an_application_of_a_program_is_whole_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed run left of a file beside it was part of the workload of all later runs."""
    (program := tmp_path / "my-test").write_text("#!/bin/sh\n")
    folder = of_program(program, ["a"], tmp_path / "programs")
    files = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    (folder / "program" / ".my-test.123.tmp").write_bytes(b"#!")
    (folder / "run").write_bytes(b"#!/bin/s")
    assert of_program(program, ["a"], tmp_path / "programs") == folder
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == files
    assert [p.name for p in (tmp_path / "programs").iterdir()] == [folder.parent.name]
    monkeypatch.setattr("harness.workloads.applications.write_atomically", pytest.fail)
    assert of_program(program, ["a"], tmp_path / "programs") == folder, "nothing is written that is there"


def test_a_folder_of_workloads_names_one_of_them(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory.parent.parent)
    with pytest.raises(UsageError) as e:
        select_workloads([directory.parent.name])
    assert f"{directory.parent.name}/{directory.name}" in str(e.value.next_step)
