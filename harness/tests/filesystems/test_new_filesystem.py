"""A file system that is added as a folder, and nothing else: what the rest of the harness sees of it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import harness
from harness.errors import KernelError, UsageError
from harness.filesystems import profiles as loading
from harness.filesystems.profiles import select_profiles
from harness.guests.guest_specs import missing_for
from harness.host.resources import resource
from harness.kernels import module_files
from harness.kernels.find import Kernel
from harness.kernels.module_files import resolve_modules
from harness.tests.cli.runner import powercut
from harness.tools_image.rootfs import recipe
from harness.tracing.probes import program, wanted_families

SHARED = """
summary = "a file system that nobody has written"
fstype = "toyfs"
size_mib = 16
modules = ["toyfs"]
made_by_mkfs = [".toy"]

[mkfs]
program = "mkfs.toyfs"
package = "toy-progs"
arguments = ["-q"]

[console]
errors = ["toyfs: .*bad"]

[tools_image]
mkfs = ["mkfs.toyfs"]

[tracing]
name = "toyfs"
what = "toy-commit"
programs = ["tracing.c"]
events = ["toyfs/toyfs_commit"]

[[tracing.spans]]
what = "toy-commit"
end = "toyfs_commit:"
"""
MODE = """
summary = "the only one"
mount_options = ["toy=1"]

[contract]
namespace = "prefix"
persists = "transaction"
data = "ordered"
size_lags = false
zeros_in_new_blocks = false
stale_allowed = false
replace_is_safe = false
fsck_clean = false
"""
PROGRAM = "TRACEPOINT_PROBE(toyfs, toyfs_commit) { struct record r = { TOY_COMMIT }; tell(&r); return 0; }\n"


@pytest.fixture
def toyfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`vms/filesystems` with one folder in it: the made-up one."""
    folder = tmp_path / "vms" / "filesystems" / "toyfs"
    folder.mkdir(parents=True)
    (folder / "filesystem.toml").write_text(SHARED)
    (folder / "default.toml").write_text(MODE)
    (folder / "tracing.c").write_text(PROGRAM)
    shutil.copy(resource("vms", "filesystems", loading.COMPLAINTS), folder.parent)
    monkeypatch.setattr(loading, "resource", tmp_path.joinpath)
    return folder


def test_its_modes_are_selected_with_their_contract(toyfs: Path) -> None:
    (profile,) = select_profiles(["toyfs"])
    assert (profile.name, profile.mount_options, profile.size_bytes) == ("toyfs/default", "toy=1", 16 << 20)
    assert profile.contract.data == "ordered"
    assert profile.contract.made_by_mkfs == (".toy",)


@pytest.mark.parametrize("name", ["toy-fs/default", "Toyfs/default", "toyfs/v1.0", "toyfs/a@b"])
def test_a_name_that_leads_to_no_case_is_refused(toyfs: Path, name: str) -> None:
    """`toy-fs/default` ran, and its findings went to the case of `toy/fs-default`: none was shown."""
    file = toyfs.parent / f"{name}.toml"
    file.parent.mkdir(exist_ok=True)
    shutil.copy(toyfs / "default.toml", file)
    (file.parent / "filesystem.toml").write_text(SHARED)
    with pytest.raises(UsageError, match="name a file system"):
        loading.profiles()


def test_it_is_listed(toyfs: Path) -> None:
    assert powercut("list", "filesystems").output.split()[:2] == ["toyfs/default", "toy=1"]


def test_it_is_made_and_traced_in_the_guest_with_tools(toyfs: Path) -> None:
    (profile,) = select_profiles(["toyfs"])
    assert profile.tools_mkfs == ("mkfs.toyfs",)
    assert "toy-progs" in recipe().packages
    text = program(wanted_families([profile.tracing]), (254, 16), 250).decode()
    assert "TOY_COMMIT };" in text
    assert PROGRAM in text


def test_set_up_installs_its_programs(toyfs: Path) -> None:
    """`vms/setup.sh` named each mkfs once more, and that of a file system that Linux does not have."""
    text = resource("vms", "setup.sh").read_text()
    (words,) = re.findall(r"^\tawk .*?toml", text, re.MULTILINE | re.DOTALL)
    outside = toyfs.parent / "atoyfs"
    outside.mkdir()
    mkfs = '[mkfs]\nprogram = "mkfs.outside"\npackage = "outside-progs"\n'
    (outside / "filesystem.toml").write_text(f'not_in_linux = "build it"\n{mkfs}')
    done = subprocess.run(
        ["sh", "-c", words], cwd=toyfs.parents[2], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "mkfs.toyfs:toy-progs\n"


def test_the_option_that_a_kernel_lacks_is_named_from_the_kernel_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "common.config").write_text("CONFIG_TOYFS_FS=y\n")
    monkeypatch.setattr(module_files, "resource", lambda *parts: tmp_path)
    with pytest.raises(KernelError) as e:
        resolve_modules(Kernel("mine", Path("bzImage"), tmp_path, ""), ["toyfs"])
    assert "CONFIG_TOYFS_FS" in e.value.next_step


STACK = """
[stack]
summary = "a pool"
promises = "nothing"
modules = []
options = []
programs = []
device = "POOL"
members = [{ share = 1 }]
make = "make-pool /dev/member-0"
start = "start-pool"
stop = "stop-pool"
"""


def test_all_its_modes_may_be_on_one_stack(toyfs: Path) -> None:
    """Each mode had to say it again: a file system that a program makes on its devices has no other way."""
    (toyfs / "filesystem.toml").write_text(SHARED + STACK.replace("POOL", "tank"))
    (toyfs / "own.toml").write_text(MODE + STACK.replace("POOL", "own"))
    devices = {p.mode: p.stacked and p.stacked.stack.device for p in select_profiles(["toyfs"])}
    assert devices == {"default": "tank", "own": "own"}
    (toyfs / "filesystem.toml").write_text(SHARED + STACK.replace("{ share = 1 }", ""))
    with pytest.raises(UsageError, match="a stack has members"):
        select_profiles(["toyfs/default"])


def test_one_that_linux_does_not_have_says_where_its_module_is_from(toyfs: Path, tmp_path: Path) -> None:
    """It was to be enabled in the kernel's configuration, which has no such option."""
    (tmp_path / "modules.dep").write_text("kernel/ext4.ko:\n")
    kernel = Kernel("debian-9.9", Path("bzImage"), tmp_path, "00")
    (toyfs / "filesystem.toml").write_text('not_in_linux = "build toyfs.ko"\n' + SHARED)
    (profile,) = select_profiles(["toyfs"])
    reason = missing_for(profile, kernel)
    assert reason == "kernel debian-9.9 has no module toyfs, and it is not built in; build toyfs.ko"


def test_tracepoints_of_a_folder_that_has_none_are_an_error(toyfs: Path) -> None:
    other = toyfs.with_name("other")
    other.mkdir()
    text = SHARED[: SHARED.index("[tracing]")]
    (other / "filesystem.toml").write_text('tracing = "nowhere"\n' + text)
    (other / "default.toml").write_text(MODE)
    with pytest.raises(UsageError, match="nowhere"):
        select_profiles(["other"])


# What a measurement compares, and the modes that commands name by default, are choices and no knowledge.
# What stands in the blocks of a format is read by a module of its own in `blocks/`.
CHOICES = ("blocks/", "measure/", "cli/", "doctor.py", "bench/setup.py")
EXAMPLES = re.compile(r"ext4[/-]ordered\b|fs/ext4/ext4\.ko|vms/filesystems/\S+|btrfs -q subvolume")
"""Among them the program by which a shell does what an operation does: operations have no such folder."""
NAMES = re.compile(r"\b(ext[234]|xfs|btrfs|f2fs|nilfs2?|gfs2|jfs|reiserfs|minix|bcachefs)\b", re.IGNORECASE)


def spoken(path: Path) -> list[str]:
    """Texts and names in a module's code, without comments and docstrings."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                statement.value.value = ""
        match node:
            case ast.Constant(value=str(text)) | ast.Name(id=text) | ast.Attribute(attr=text):
                found.append(text)
    return found


def test_no_module_knows_a_file_system_by_name() -> None:
    """`rig.MKFS`, `FAMILIES`, `.nilfs` and the names of tracepoints stood in five modules."""
    package = Path(harness.__file__).parent
    told = [
        f"{path.relative_to(package)}: {text[:60]}"
        for path in sorted(package.rglob("*.py"))
        if "tests" not in path.parts and not str(path.relative_to(package)).startswith(CHOICES)
        for text in spoken(path)
        if NAMES.search(EXAMPLES.sub("", text))
    ]
    assert told == [], "what is known of one file system goes into its folder in vms/filesystems"
