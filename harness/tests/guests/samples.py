"""Samples of every message, for `vms/protocol/vectors.json`.

After a change of the protocol: `python -m harness.tests.guests.samples` writes the file anew; the
Rust test (`cargo test -p powercut-protocol`) then tells whether both sides still agree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from harness.guests import wire

VECTORS = Path(__file__).resolve().parents[3] / "vms" / "protocol" / "vectors.json"

UNIONS: dict[str, Any] = {
    "AgentRequest": wire.AgentRequest,
    "AgentReply": wire.AgentReply,
    "DiskRequest": wire.DiskRequest,
    "DiskReply": wire.DiskReply,
}

_MOUNT = wire.MountSpec(fstype="ext4", options="data=ordered,nodelalloc", second_offset=1 << 26)
_WRITE = wire.Operation(
    kind="write", path="dir/ü", offset=1 << 33, length=4096, value=b"", flags=["sync", "direct"]
)
_XATTR = wire.Operation(kind="setxattr", path="a", name="user.a", value=b"\x00\xff" * 200)
_RUN = wire.Operation(kind="run", argv=["sqlite3", "db", "select 1"])
_STATES = [
    wire.State(prefix=0),
    wire.State(prefix=417, dropped=[0, 402, 70_000], torn_sectors=0),
    wire.State(prefix=1 << 32, torn_sectors=3),
]
_ENTRIES = [
    wire.TreeEntry(
        path=b"",
        kind="directory",
        inode=2,
        mode=0o755,
        links=3,
        uid=0,
        gid=0,
        size=4096,
        blocks=8,
        target=b"",
        xattrs=[],
        runs=[],
        digest="",
    ),
    wire.TreeEntry(
        path=b"\xff\xfe",
        kind="file",
        inode=1 << 40,
        mode=0o600,
        links=1,
        uid=1000,
        gid=65534,
        size=5000,
        blocks=16,
        target=b"",
        xattrs=[wire.Xattr(name="user.a", value=b"\x01")],
        runs=[
            wire.Run(kind="written", start=0, length=4096, value=7, origin=0, data=b""),
            wire.Run(kind="literal", start=4096, length=904, value=0, origin=0, data=b"x" * 64),
        ],
        digest="0" * 32,
    ),
]

SAMPLES: list[tuple[str, str, msgspec.Struct]] = [
    ("record start", "AgentRequest", wire.RecordStart(data="/dev/vda", log="/dev/vdb", mount=_MOUNT)),
    (
        "operations of three kinds",
        "AgentRequest",
        wire.RunOperations(first_index=300, operations=[_WRITE, _XATTR, _RUN], deadline_s=60),
    ),
    ("no operation", "AgentRequest", wire.RunOperations(first_index=0, operations=[], deadline_s=1)),
    ("record finish", "AgentRequest", wire.RecordFinish()),
    (
        "recover",
        "AgentRequest",
        wire.Recover(device="/dev/vda", mount=_MOUNT, clock_s=1_700_000_000, keep_mounted=True),
    ),
    ("run a program", "AgentRequest", wire.RunProgram(argv=["/bin/true"], deadline_s=0)),
    ("unmount", "AgentRequest", wire.Unmount()),
    ("put a file", "AgentRequest", wire.PutFile(path="/bin/x", mode=0o755, data=bytes(range(256)))),
    (
        "hello",
        "AgentReply",
        wire.Hello(protocol=1, release="6.12", version="#1 SMP", module_errors=[], dm_targets=["linear"]),
    ),
    ("record started", "AgentReply", wire.RecordStarted()),
    (
        "operations done",
        "AgentReply",
        wire.OperationsDone(
            results=[
                wire.OperationResult(index=0, errno=0, detail=""),
                wire.OperationResult(index=300, errno=28, detail="No space left on device"),
            ]
        ),
    ),
    (
        "record finished",
        "AgentReply",
        wire.RecordFinished(status="0 131072 log-writes 9 18", unmount_errno=-1, kernel_log=["<6>x"]),
    ),
    (
        "recovered",
        "AgentReply",
        wire.Recovered(
            mount_errno=0,
            entries=_ENTRIES,
            walk_errors=["opendir a/b: EUCLEAN"],
            unmount_errno=0,
            kernel_log=["<4>EXT4-fs (vda): recovery complete"] * 20,
            mount_us=1300,
            walk_us=70_000,
            unmount_us=300,
        ),
    ),
    ("program done", "AgentReply", wire.ProgramDone(exit_code=-1, output=b"killed\n")),
    ("unmounted", "AgentReply", wire.Unmounted(unmount_errno=16, kernel_log=[])),
    ("done", "AgentReply", wire.Done()),
    ("agent failed", "AgentReply", wire.AgentFailed(what="mount: no such device", errno=6)),
    ("open without a log", "DiskRequest", wire.Open(base="/b", log=None)),
    ("open with a log", "DiskRequest", wire.Open(base="/b", log="/l")),
    *((f"switch {i}", "DiskRequest", wire.Switch(state=state)) for i, state in enumerate(_STATES)),
    ("image", "DiskRequest", wire.Image(path="/i" * 40)),
    ("hashes", "DiskRequest", wire.Hashes(states=_STATES)),
    ("compare", "DiskRequest", wire.Compare(log="/l")),
    ("stats", "DiskRequest", wire.Stats()),
    ("also read", "DiskRequest", wire.AlsoRead(blocks=[0, 128, 1 << 20, 1 << 33])),
    ("remember", "DiskRequest", wire.Remember(outcome=1 << 63)),
    ("recall", "DiskRequest", wire.Recall(states=_STATES)),
    ("block hashes", "DiskRequest", wire.BlockHashes(blocks=[0, 16_383])),
    ("opened", "DiskReply", wire.Opened(size_bytes=1 << 26, entries=417)),
    ("switched", "DiskReply", wire.Switched()),
    ("imaged", "DiskReply", wire.Imaged(copied_bytes=4096, hash="f" * 32)),
    ("hashed", "DiskReply", wire.Hashed(hashes=["0" * 32] * 3)),
    ("compared equal", "DiskReply", wire.Compared(equal=True, first_difference=None)),
    ("compared different", "DiskReply", wire.Compared(equal=False, first_difference=512)),
    (
        "counted",
        "DiskReply",
        wire.Counted(reads=1, writes=200, flushes=3, discards=0, errors=70_000, overlay_bytes=1 << 32),
    ),
    ("noted", "DiskReply", wire.Noted()),
    ("remembered first", "DiskReply", wire.Remembered(earlier=None)),
    ("remembered again", "DiskReply", wire.Remembered(earlier=7)),
    ("recalled", "DiskReply", wire.Recalled(outcomes=[None, 0, 300])),
    ("blocks hashed", "DiskReply", wire.BlocksHashed(hashes=bytes(range(16)) * 2)),
    ("disk failed", "DiskReply", wire.DiskFailed(what="entry 3 of 4: truncated")),
]


def vectors() -> list[dict[str, Any]]:
    """What the file holds. `json` is for readers; bytes are in Base64 there."""
    return [
        {
            "name": name,
            "type": kind,
            "hex": wire.encode(message).hex(),
            "json": json.loads(msgspec.json.encode(message)),
        }
        for name, kind, message in SAMPLES
    ]


def write_vectors() -> None:
    VECTORS.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_vectors()
