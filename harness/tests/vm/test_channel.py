"""The channel to a UML guest, which is a serial line, takes requests and replies of any length."""

from __future__ import annotations

import json
from pathlib import Path

from harness.cases.crash_and_continue import record
from harness.cases.recording import make_base
from harness.filesystems.profiles import profiles
from harness.guests.guest_specs import spec_of
from harness.guests.script import BATCH
from harness.guests.session import Session
from harness.guests.uml import Uml
from harness.kernels.find import Kernel
from harness.model import CaseId, CrashState
from harness.store.layout import CaseLayout
from harness.workloads.load import load_workload

LOG_BYTES = 256 << 20
TARGET_BYTES = 4000
LINKS = {f"link{number}": f"{number:x<{TARGET_BYTES}}" for number in range(16 * BATCH)}
"""Requests of 64 KiB, and a reply of 1 MiB."""


def test_long_requests_and_replies_pass_through_the_serial_line(uml_kernel: Path, tmp_path: Path) -> None:
    """Requests of more than some 3.9 KiB (names of 255 bytes, attributes of 400) stopped the line for good:
    "no answer within 600 s", for each mode.
    """
    operations = [*(f"symlink {name} {target}" for name, target in LINKS.items()), "sync"]
    file = tmp_path / "long.toml"
    file.write_text(f'summary = "Long names"\noperations = {json.dumps(operations)}\n')
    profile, workload = profiles()["ext4/ordered"], load_workload(str(file))
    own = Kernel("uml", uml_kernel, None, "")
    spec = spec_of(Uml(), own, [profile], [workload], tmp_path / "initramfs.cpio")
    base = make_base(profile, tmp_path / "base.zst", tmp_path)
    case = CaseId(profile.filesystem, profile.mode, workload.name)
    kept = CaseLayout(tmp_path / "base.zst", tmp_path / "case")
    with Session(spec, tmp_path / "session", LOG_BYTES) as session:
        recording = record(session, profile, workload, case, base, kept, tmp_path)
        whole = CrashState(len(recording.write_log.entries))
        tree = session.recover(recording.target, whole).outcome.tree
    assert {entry.path: entry.target.decode() for entry in tree.values() if entry.target} == LINKS
