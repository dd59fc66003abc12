"""Whether KVM works is asked of it: a file of that name says nothing."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from harness.guests import kvm


def test_a_device_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert kvm.lacks(tmp_path / "kvm") == f"there is no {tmp_path}/kvm"


def test_a_file_that_is_no_kvm_is_told_from_one(tmp_path: Path) -> None:
    """doctor said that KVM opens, of anything with that name."""
    (tmp_path / "kvm").touch()
    assert "opens, but is no working KVM: Inappropriate ioctl" in kvm.lacks(tmp_path / "kvm")
    assert "cannot be opened: Is a directory" in kvm.lacks(tmp_path)


@pytest.mark.parametrize(
    ("version", "fails", "why"),
    [
        (11, 0, "speaks version 11"),
        (12, errno.EBUSY, "opens, but is no working KVM: Device or resource busy"),
        (12, 0, ""),
    ],
)
def test_a_virtual_machine_has_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, fails: int, why: str
) -> None:
    made: list[int] = []

    def ioctl(file: int, request: int, argument: int = 0) -> int:
        if request == kvm._GET_API_VERSION:
            return version
        if fails:
            raise OSError(fails, os.strerror(fails))
        made.append(os.dup(file))
        return made[-1]

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    (tmp_path / "kvm").touch()
    found = kvm.lacks(tmp_path / "kvm")
    assert why in found if why else not found
    for descriptor in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)  # the machine that was made is gone again
