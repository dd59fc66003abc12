"""Modules built with a patch: what is refused, and that a patch is applied as it stands. Nothing is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import KernelError, UsageError
from harness.kernels import modules
from harness.kernels.find import Kernel
from harness.kernels.modules import patched_folder, patched_module, relocated

SOURCE = "int f(void)\n{\n\treturn 1;\n}\n"
PATCH = """--- a/fs/jbd2/recovery.c
+++ b/fs/jbd2/recovery.c
@@ -1,4 +1,4 @@
 int f(void)
 {
-\treturn 1;
+\treturn 2;
 }
"""


@pytest.fixture
def patch(tmp_path: Path) -> Path:
    file = tmp_path / "fix.patch"
    file.write_text(PATCH)
    return file


def kernel(version: str = "6.12.1-1", source: str = "linux-source-6.12") -> Kernel:
    return Kernel("debian-6.12.1", Path("vmlinuz"), Path("6.12.1-amd64"), "", version, source=source)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, cache: Path) -> list[str]:
    """Whatever would be compiled, instead of being compiled."""
    seen: list[str] = []

    def unpack(source: str, scratch: Path, say: object, folder: str) -> str:
        (scratch / "tree" / folder).mkdir(parents=True)
        (scratch / "tree" / folder / "recovery.c").write_text(SOURCE)
        return "6.12.1-1"

    def make(kernel: Kernel, folder: Path, scratch: Path, target: str) -> Path:
        seen.append((folder / "recovery.c").read_text() + ("" if target == "modules" else target))
        # strip(1) takes no text file
        (folder / "jbd2.ko").write_bytes(Path("/bin/true").read_bytes())
        return folder / "jbd2.ko"

    monkeypatch.setattr(modules, "unpack_source", unpack)
    monkeypatch.setattr(modules, "_make", make)
    return seen


def test_a_module_is_built_from_the_patched_source_once(patch: Path, built: list[str]) -> None:
    module = patched_module(kernel(), patch, print)
    assert module.name == "jbd2.ko"
    assert built == [SOURCE.replace("1", "2")]
    assert patched_module(kernel(), patch, print) == module
    assert len(built) == 1
    patch.write_text(PATCH.replace("return 2", "return 3"))
    assert patched_module(kernel(), patch, print) != module


def test_of_a_folder_with_several_modules_one_is_built(patch: Path, built: list[str]) -> None:
    """A patch of RAID 5 was refused; of its folder the first module would have taken its place."""
    patch.write_text(PATCH.replace("fs/jbd2", "drivers/md"))
    patched_module(kernel(), patch, print, "raid456")
    assert [text.removeprefix(SOURCE.replace("1", "2")) for text in built] == ["raid456.ko"]


def test_a_patch_that_does_not_fit_is_refused(patch: Path, built: list[str]) -> None:
    """patch(1) would guess a place by its context."""
    patch.write_text(PATCH.replace(" int f(void)", " int g(void)"))
    with pytest.raises(UsageError, match="does not apply"):
        patched_module(kernel(), patch, print)
    assert built == []


def test_the_source_is_that_of_the_kernel(patch: Path, built: list[str]) -> None:
    """A module of another version would be refused by the kernel, or worse, be taken."""
    with pytest.raises(KernelError, match=r"6\.12\.1-1.*6\.12\.2-1"):
        patched_module(kernel("6.12.2-1"), patch, print)
    with pytest.raises(KernelError, match="no source package"):
        patched_module(kernel(source=""), patch, print)
    assert built == []


def test_a_patch_changes_one_module(patch: Path) -> None:
    assert patched_folder(patch) == "fs/jbd2"
    for text in ("", PATCH + PATCH.replace("jbd2", "ext4"), PATCH.replace("/fs/", "/mm/")):
        patch.write_text(text)
        with pytest.raises(UsageError, match="not one module"):
            patched_folder(patch)


def test_a_patch_may_have_times_in_its_header(patch: Path, built: list[str]) -> None:
    """Just what diff -u writes, which the refusal named as the way to write it, was refused."""
    time = "\t2024-01-02 03:04:05.678901234 +0100"
    patch.write_text(PATCH.replace("recovery.c\n", f"recovery.c{time}\n"))
    assert patched_folder(patch) == "fs/jbd2"
    patched_module(kernel(), patch, print)
    assert built == [SOURCE.replace("1", "2")]


def test_a_patch_need_not_be_utf_8(patch: Path, built: list[str]) -> None:
    """A name in Latin-1 above the patch ended in a UnicodeDecodeError."""
    patch.write_bytes("From: Jörg\n\n".encode("latin-1") + PATCH.encode())
    assert patched_folder(patch) == "fs/jbd2"
    patched_module(kernel(), patch, print)
    assert built == [SOURCE.replace("1", "2")]


def test_headers_are_used_where_they_were_unpacked() -> None:
    """No module of 7.3 could be built: the headers' Makefile names its own place, too."""
    installed = "KBUILD_OUTPUT=/usr/src/headers-amd64\ninclude /usr/src/headers-common/Makefile\n"
    unpacked = "KBUILD_OUTPUT=/tmp/x/usr/src/headers-amd64\ninclude /tmp/x/usr/src/headers-common/Makefile\n"
    assert relocated(installed, Path("/tmp/x")) == unpacked  # noqa: S108  # no file is made there
