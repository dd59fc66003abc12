"""QEMU's command line."""

from __future__ import annotations

from pathlib import Path

from harness.guests import qemu
from harness.guests.machine import Boot


def test_a_comma_in_the_path_of_a_file_ends_no_option(tmp_path: Path) -> None:
    """QEMU ended at once, and every case was UNKNOWN."""
    folder = tmp_path / "a,b"
    folder.mkdir()
    (folder / "initramfs").write_bytes(b"archive")
    boot = Boot(folder / "image", folder / "initramfs", folder / "vhost", folder / "log", folder)
    named = [word for word in qemu.command(boot, "tcg", 3) if word.startswith(("file=", "socket,id=disk"))]
    assert len(named) == 2
    assert all("a,,b/" in word for word in named)
