"""Which accelerator: KVM where a kernel comes up under it, found out once."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from harness.errors import EnvironmentLacks, GuestLost, KernelError, VersionsDiffer
from harness.guests import accel, kvm, qemu, wire
from harness.guests.machine import Machine
from harness.guests.session import _need_modules


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the answer is remembered; the host has a /dev/kvm."""
    monkeypatch.setattr(accel, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(qemu, "version", lambda: "7.2")
    monkeypatch.setattr(kvm, "lacks", lambda: "")
    return tmp_path / "accel.json"


def comes_up(_: Machine) -> None: ...


def is_lost(_: Machine) -> None:
    raise GuestLost("guest lost: boot: no answer within 20 s; machine still running")


def is_broken(_: Machine) -> None:
    raise VersionsDiffer("the agent speaks protocol 1, the harness 2")


def never(_: Machine) -> None:
    raise AssertionError("it was remembered")


def test_the_answer_is_remembered(memory: Path) -> None:
    assert accel.choose_accel("qemu", "auto", comes_up).machine.accel == "kvm"
    assert accel.choose_accel("qemu", "auto", never).machine.accel == "kvm"
    memory.unlink()
    assert accel.choose_accel("qemu", "auto", is_lost).machine.accel == "tcg"
    assert accel.choose_accel("qemu", "auto", never).machine.accel == "tcg"


def test_a_kernel_of_ones_own_that_does_not_boot_is_not_held_against_kvm(memory: Path) -> None:
    """One broken bzImage, and every later run was emulated."""
    assert accel.choose_accel("qemu", "auto", is_lost, known_good=False).machine.accel == "tcg"
    assert not memory.exists()
    assert accel.choose_accel("qemu", "auto", comes_up, known_good=False).machine.accel == "kvm"
    assert accel.choose_accel("qemu", "auto", never).machine.accel == "kvm"


def test_what_is_wrong_elsewhere_is_not_held_against_kvm(memory: Path) -> None:
    with pytest.raises(VersionsDiffer):
        accel.choose_accel("qemu", "auto", is_broken)
    assert not memory.exists()


def test_a_memory_that_cannot_be_read_is_made_again(memory: Path) -> None:
    memory.write_text("{torn")
    assert accel.choose_accel("qemu", "auto", comes_up).machine.accel == "kvm"
    assert accel.choose_accel("qemu", "auto", never).machine.accel == "kvm"


def hello(**errors: int) -> wire.Hello:
    refused = [wire.ModuleError(name, number) for name, number in errors.items()]
    return wire.Hello(wire.PROTOCOL_VERSION, "6.12", "", refused, [])


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOEXEC, "ext4: ENOEXEC (8)"),
        (errno.ENOENT, "ext4: ENOENT (2)"),
        (errno.EKEYREJECTED, "ext4: EKEYREJECTED (129)"),
    ],
)
def test_a_module_for_another_kernel_is_named(number: int, told: str) -> None:
    """It was told as `mount: ENODEV`."""
    with pytest.raises(KernelError, match=r"6\.12") as caught:
        _need_modules(hello(crc32c_intel=errno.ENODEV, ext4=number), {})
    assert told in str(caught.value)
    assert "crc32c_intel" not in str(caught.value)


def test_a_module_without_its_hardware_is_no_matter() -> None:
    _need_modules(hello(crc32c_intel=errno.ENODEV), {})


@pytest.mark.parametrize(
    ("release", "said"), [("6.1", "built for 6.1"), ("6.12", "built for another build of it"), ("", "")]
)
def test_a_refused_module_of_the_users_own_says_what_it_was_built_for(release: str, said: str) -> None:
    """Its kernel alone was named."""
    with pytest.raises(KernelError) as caught:
        _need_modules(hello(ext4=errno.ENOEXEC), {"ext4": release})
    assert "this kernel (6.12)" in caught.value.what
    assert caught.value.what.endswith(said or "ENOEXEC (8)")


def test_an_accelerator_that_was_asked_for_and_does_not_work_is_said_at_once(memory: Path) -> None:
    """`--accel kvm` was taken where `powercut doctor` knew that it fails: each case was UNKNOWN, a minute
    later.
    """
    with pytest.raises(EnvironmentLacks, match="KVM was asked for: KVM is there, but") as caught:
        accel.choose_accel("qemu", "kvm", is_lost)
    assert "auto" in caught.value.next_step
    assert accel.choose_accel("qemu", "kvm", comes_up).machine.accel == "kvm", "it may have been mended"
    assert accel.choose_accel("qemu", "kvm", never).machine.accel == "kvm"
    assert accel.choose_accel("qemu", "tcg", never).machine.accel == "tcg"
