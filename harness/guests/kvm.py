"""KVM as this host's kernel provides it (Documentation/virt/kvm/api.rst)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

DEVICE = Path("/dev/kvm")
_GET_API_VERSION = 0xAE00  # _IO(KVMIO, 0x00)
_CREATE_VM = 0xAE01  # _IO(KVMIO, 0x01)
_API_VERSION = 12  # the only one there has been since Linux 2.6.22


def lacks(device: Path = DEVICE) -> str:
    """Why no virtual machine can be created here; empty if one was. Only a trial can tell whether a kernel
    then comes up in it.
    """
    if not device.exists():
        return f"there is no {device}"
    try:
        file = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as e:
        return f"{device} cannot be opened: {e.strerror}"
    try:
        version = fcntl.ioctl(file, _GET_API_VERSION)
        if version != _API_VERSION:
            return f"{device} speaks version {version} of its interface, not {_API_VERSION}"
        os.close(fcntl.ioctl(file, _CREATE_VM, 0))
    except OSError as e:
        return f"{device} opens, but is no working KVM: {e.strerror}"
    finally:
        os.close(file)
    return ""
