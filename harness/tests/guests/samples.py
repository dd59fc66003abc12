"""Samples of every message, for `vms/protocol/vectors.json`.

After a change of the protocol: `python -m harness.tests.guests.samples` writes the file anew; the
Rust test (`cargo test -p powercut-protocol`) then tells whether both sides still agree.
"""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any

import msgspec

from harness.guests import wire
from harness.model import (
    Call,
    ChangeKind,
    DifferenceKind,
    ExtentKind,
    FileKind,
    HoldOrder,
    OperationFlag,
    OperationKind,
    RequestKind,
)

VECTORS = Path(__file__).resolve().parents[3] / "vms" / "protocol" / "vectors.json"

UNIONS: dict[str, Any] = {
    "AgentRequest": wire.AgentRequest,
    "AgentReply": wire.AgentReply,
    "DiskRequest": wire.DiskRequest,
    "DiskReply": wire.DiskReply,
}

_MOUNT = wire.MountSpec(
    fstype="ext4", options="data=ordered,nodelalloc", parts=[1 << 26], read_only_first=True
)
_WRITE = wire.Operation(
    kind=OperationKind.WRITE,
    path="dir/ü",
    offset=1 << 33,
    length=4096,
    value=b"",
    flags=list(OperationFlag),
)
SENT = tuple(kind for kind in OperationKind if kind is not OperationKind.CRASH)
"""Operations that a guest is asked for: after a crash it is another guest."""
_XATTR = wire.Operation(kind=OperationKind.SETXATTR, path="a", name="user.a", value=b"\x00\xff" * 200)
_RUN = wire.Operation(kind=OperationKind.RUN, argv=["sqlite3", "db", "select 1"])
_STATES = [
    wire.State(prefix=0),
    wire.State(prefix=417, dropped=[0, 402, 70_000], torn_sectors=0),
    wire.State(prefix=1 << 32, torn_sectors=3),
]
_ENTRIES = [
    wire.TreeEntry(
        path=b"",
        kind=FileKind.DIRECTORY,
        inode=2,
        mode=0o755,
        links=3,
        uid=0,
        gid=0,
        size=4096,
        blocks=8,
        target=b"",
        xattrs=[],
        extents=[],
        digest="",
    ),
    wire.TreeEntry(
        path=b"\xff\xfe",
        kind=FileKind.FILE,
        inode=1 << 40,
        mode=0o600,
        links=1,
        uid=1000,
        gid=65534,
        size=5000,
        blocks=16,
        target=b"",
        xattrs=[wire.Xattr(name="user.a", value=b"\x01")],
        extents=[
            wire.Extent(kind=ExtentKind.WRITTEN, start=0, length=4096, value=7, origin=0, data=b""),
            wire.Extent(kind=ExtentKind.FOREIGN, start=4096, length=904, value=0, origin=0, data=b"x" * 64),
        ],
        digest="0" * 32,
    ),
]


def _entry_of(kind: FileKind) -> wire.TreeEntry:
    return msgspec.structs.replace(_ENTRIES[0], path=kind.encode(), kind=kind)


def _run_of(kind: ExtentKind) -> wire.Extent:
    return wire.Extent(kind=kind, start=0, length=1, value=1, origin=0, data=b"")


SAMPLES: list[tuple[str, str, msgspec.Struct]] = [
    ("record start", "AgentRequest", wire.RecordStart(data="/dev/vda", log="/dev/vdb", mount=_MOUNT)),
    ("record whole", "AgentRequest", wire.RecordStart("/dev/vda", "/dev/vdb", _MOUNT, whole=True)),
    (
        "operations of three kinds",
        "AgentRequest",
        wire.RunOperations(first_index=300, operations=[_WRITE, _XATTR, _RUN], deadline_s=60),
    ),
    (
        "every kind of operation",
        "AgentRequest",
        wire.RunOperations(
            first_index=0, operations=[wire.Operation(kind=kind) for kind in SENT], deadline_s=1
        ),
    ),
    ("no operation", "AgentRequest", wire.RunOperations(first_index=0, operations=[], deadline_s=1)),
    ("record finish", "AgentRequest", wire.RecordFinish()),
    (
        "recover",
        "AgentRequest",
        wire.Recover(device="/dev/vda", mount=_MOUNT, clock_s=1_700_000_000, keep_mounted=True),
    ),
    (
        "remember what lies outside the folder",
        "AgentRequest",
        wire.Remember(
            device="/dev/vda",
            mount=_MOUNT,
            clock_s=1_700_000_000,
            outside=wire.OutsideSpec(root="/below", folder="powercut", names=20_000, bytes=1 << 26),
        ),
    ),
    ("run a program", "AgentRequest", wire.RunProgram(argv=["/bin/true"], deadline_s=0)),
    ("unmount", "AgentRequest", wire.Unmount()),
    (
        "run beside the disk",
        "AgentRequest",
        wire.RunBeside(
            device="/dev/vda",
            mount=msgspec.structs.replace(
                _MOUNT,
                parts=[1 << 26, 1 << 27],
                stack=wire.StackSpec(device="/dev/md0", start="mdadm --assemble", stop="mdadm --stop"),
            ),
            clock_s=1_700_000_000,
            argv=["/bin/busybox", "sh", "-c", "e2fsck -fn /dev/md0"],
            deadline_s=60,
        ),
    ),
    (
        "use",
        "AgentRequest",
        wire.Use(
            device="/dev/vda",
            mount=_MOUNT,
            clock_s=1_700_000_000,
            before=wire.Looks(names="1f" * 16, contents="2e" * 16),
            read_contents=True,
            write=False,
            keep=["lost+found"],
            deadline_s=60,
        ),
    ),
    ("put a file", "AgentRequest", wire.PutFile(path="/bin/x", mode=0o755, data=bytes(range(256)))),
    ("note calls", "AgentRequest", wire.NoteCalls(argv=["/workload/a/run"], deadline_s=600)),
    (
        "try trees",
        "AgentRequest",
        wire.TryTrees(
            trees=[
                wire.TreeToTry(
                    changes=[
                        wire.TreeChange(path=b"old", kind=ChangeKind.REMOVE),
                        wire.TreeChange(
                            path=b"d/\xff",
                            kind=ChangeKind.FILE,
                            mode=0o644,
                            uid=1000,
                            gid=1001,
                            size=70_000,
                            pieces=[(0, 0, 4096), (1 << 20, 65_536, 17)],
                        ),
                        wire.TreeChange(path=b"l", kind=ChangeKind.SYMLINK, target=b"d"),
                    ],
                    acknowledgements=1,
                ),
                wire.TreeToTry(changes=[], acknowledgements=0),
            ],
            acknowledged_at="/acknowledged",
            acknowledged=["commit 1"],
            argv=["/workload/a/check"],
            deadline_s=120,
        ),
    ),
    (
        "hello",
        "AgentReply",
        wire.Hello(
            protocol=wire.PROTOCOL_VERSION,
            release="6.12",
            version="#1 SMP",
            module_errors=[wire.ModuleError(name="ext4", errno=8)],
            dm_targets=["linear"],
        ),
    ),
    ("record started", "AgentReply", wire.RecordStarted()),
    (
        "operations done",
        "AgentReply",
        wire.OperationsDone(
            results=[
                wire.OperationResult(index=0),
                wire.OperationResult(
                    index=300, error=wire.CallError(call=Call.WRITE, path=b"f", name="", errno=28)
                ),
                wire.OperationResult(index=301, exit_code=137, output=b"killed\n"),
            ]
        ),
    ),
    (
        "record finished",
        "AgentReply",
        wire.RecordFinished(
            status="9 18 logging_disabled",
            logging_disabled=True,
            unmount_errno=16,
            kernel_log=[wire.Said(operation=None, lines=["<6>x"]), wire.Said(operation=7, lines=["y"] * 20)],
            log_complete=True,
            events=wire.RecordedEvents(offset=1 << 20, bytes=70_000, notes=5),
        ),
    ),
    (
        "record finished without events",
        "AgentReply",
        wire.RecordFinished(
            status="9 18",
            logging_disabled=False,
            unmount_errno=0,
            kernel_log=[],
            log_complete=True,
            events=wire.RecordedEvents(lacking="this kernel has no tracefs"),
        ),
    ),
    (
        "recovered",
        "AgentReply",
        wire.Recovered(
            mount_errno=0,
            entries=_ENTRIES,
            walk_errors=[wire.CallError(call=Call.GETXATTR, path=b"\xff", name="user.a", errno=117)],
            unmount_errno=0,
            kernel_log=["<4>EXT4-fs (vda): recovery complete"] * 20,
            log_complete=False,
            mount_us=1300,
            walk_us=70_000,
            unmount_us=300,
            read_only=True,
            looks=wire.Looks(names="1f" * 16, contents="2e" * 16),
            outside=[wire.OutsideChange(path=b"etc/\xff", what="size", then="10", now="0")],
        ),
    ),
    (
        "what lies outside the folder",
        "AgentReply",
        wire.OutsideSeen(
            names=500_000,
            compared=20_000,
            files=18_000,
            files_read=700,
            bytes_read=1 << 26,
            kernel_log=["<6>EXT4-fs (vda): mounted"],
        ),
    ),
    (
        "a stack that does not start",
        "AgentReply",
        wire.Recovered(
            mount_errno=6,
            entries=[],
            walk_errors=[],
            unmount_errno=0,
            kernel_log=[],
            log_complete=True,
            mount_us=0,
            walk_us=0,
            unmount_us=0,
            not_started="exit code 1: mdadm: no devices found for /dev/md0",
        ),
    ),
    (
        "every kind of entry, run and call",
        "AgentReply",
        wire.Recovered(
            mount_errno=0,
            entries=[
                *(_entry_of(kind) for kind in FileKind),
                msgspec.structs.replace(_ENTRIES[1], extents=[_run_of(kind) for kind in ExtentKind]),
            ],
            walk_errors=[wire.CallError(call=call, path=b"a", name="", errno=5) for call in Call],
            unmount_errno=5,
            kernel_log=[],
            log_complete=True,
            mount_us=0,
            walk_us=0,
            unmount_us=0,
        ),
    ),
    ("program done", "AgentReply", wire.ProgramDone(exit_code=137, output=b"killed\n")),
    ("program stopped", "AgentReply", wire.ProgramDone(exit_code=None, output=b"")),
    (
        "trees tried",
        "AgentReply",
        wire.TreesTried(
            tried=[
                wire.Tried(exit_code=1, output=b"it is gone\n", opened=[b"d/\xff"]),
                wire.Tried(exit_code=None, output=b"", opened=None),
            ]
        ),
    ),
    ("unmounted", "AgentReply", wire.Unmounted(unmount_errno=16, kernel_log=[], log_complete=True)),
    (
        "used",
        "AgentReply",
        wire.Used(
            mount_errno=0,
            errors=[wire.CallError(call=Call.UNLINK, path=b"A/\xff", name="", errno=117)],
            finished=False,
            unmount_errno=5,
            kernel_log=["<4>EXT4-fs error"],
            log_complete=True,
            differences=[wire.Difference(path=b"f", kind=kind, found=300) for kind in DifferenceKind],
            remount_errno=117,
            looks=wire.Looks(names="1f" * 16),
            entries=_ENTRIES,
        ),
    ),
    ("done", "AgentReply", wire.Done()),
    ("agent failed", "AgentReply", wire.AgentFailed(what="mount: no such device", errno=6)),
    (
        "open without a log",
        "DiskRequest",
        wire.Open(base="/b", log=None, order=None, unit_sectors=8, keep_memo=False, mount_counters=[]),
    ),
    (
        "open with a log",
        "DiskRequest",
        wire.Open(base="/b", log="/l", order=None, unit_sectors=8, keep_memo=False, mount_counters=[]),
    ),
    (
        "open with an order",
        "DiskRequest",
        wire.Open(
            base="/b",
            log="/l",
            order=[3, 0, 300],
            unit_sectors=1,
            keep_memo=True,
            mount_counters=[
                wire.MountCounter(b"", 1024, 1024, [], [(44, 10)], [], 1020),
                wire.MountCounter(b"\xfe\xed", 0, 512, [(12, 4)], [], [(0, 300)], None),
            ],
        ),
    ),
    *((f"switch {i}", "DiskRequest", wire.Switch(state=state)) for i, state in enumerate(_STATES)),
    ("image", "DiskRequest", wire.Image(path="/i" * 40)),
    ("hashes", "DiskRequest", wire.Hashes(states=_STATES)),
    ("compare", "DiskRequest", wire.Compare(log="/l", order=None)),
    ("compare in order", "DiskRequest", wire.Compare(log="/l", order=[1, 0])),
    ("completions held", "DiskRequest", wire.Completions(hold_us=5000, guest=4711)),
    *(
        (
            f"completions held: {order}",
            "DiskRequest",
            wire.Completions(hold_us=1, guest=None, order=order, seed=1 << 63),
        )
        for order in HoldOrder
    ),
    ("completions at once", "DiskRequest", wire.Completions(hold_us=None, guest=None)),
    ("stats", "DiskRequest", wire.Stats()),
    ("also read", "DiskRequest", wire.AlsoRead(blocks=[0, 128, 1 << 20, 1 << 33])),
    ("reads", "DiskRequest", wire.Reads()),
    (
        "learn",
        "DiskRequest",
        wire.Learn(state=_STATES[0], blocks=[0, 16_383], data=[16_383], outcome=1 << 63),
    ),
    ("block hashes", "DiskRequest", wire.BlockHashes(blocks=[0, 16_383])),
    ("snapshot", "DiskRequest", wire.Snapshot()),
    ("roll_back", "DiskRequest", wire.RollBack()),
    ("note-writes", "DiskRequest", wire.NoteWrites()),
    ("log-writes", "DiskRequest", wire.LogWrites(path="recovery.log")),
    ("requests", "DiskRequest", wire.Requests()),
    (
        "inject an error",
        "DiskRequest",
        wire.Inject(wire.Fault(RequestKind.FLUSH, 0, 2, True, wire.Error())),
    ),
    (
        "inject rot",
        "DiskRequest",
        wire.Inject(wire.Fault(RequestKind.READ, 300, 1, True, wire.Flip(4095))),
    ),
    (
        "inject a loss",
        "DiskRequest",
        wire.Inject(wire.Fault(RequestKind.WRITE, 1 << 33, 1, False, wire.Lose())),
    ),
    (
        "inject a stray write",
        "DiskRequest",
        wire.Inject(wire.Fault(RequestKind.WRITE, 8, 1, False, wire.Divert(16))),
    ),
    ("end_fault", "DiskRequest", wire.EndFault()),
    (
        "explore",
        "DiskRequest",
        wire.Explore(
            crash_times=[
                wire.CrashTime(state=wire.State(prefix=300, dropped=[3, 256]), volatile=[7, 299]),
                wire.CrashTime(state=wire.State(prefix=301, torn_sectors=3)),
            ],
            losses=2,
            separate_data=True,
            data_together=False,
            to_visit_max=16,
            known_outcomes_max=50_000,
        ),
    ),
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
    ("were read", "DiskReply", wire.WereRead(blocks=[0, 16_383], data=[16_383])),
    ("blocks hashed", "DiskReply", wire.BlocksHashed(hashes=bytes(range(16)) * 2)),
    ("logged", "DiskReply", wire.Logged(state=12, entries=417, complete=True)),
    (
        "were asked",
        "DiskReply",
        wire.RequestsSeen(
            [wire.Requested(RequestKind.READ, 300, 8), wire.Requested(RequestKind.FLUSH, 0, 0)]
        ),
    ),
    ("fault_ended", "DiskReply", wire.FaultEnded(hits=3)),
    ("rolled_back", "DiskReply", wire.RolledBack(blocks=[0, 16_383, 1 << 33])),
    (
        "explored",
        "DiskReply",
        wire.Explored(
            crash_times=[
                wire.ExploredCrashTime(
                    to_visit=[wire.Choice(kept=True), wire.Choice(kept=False, except_=[7, 299])],
                    known_outcomes=[
                        wire.KnownOutcome(
                            outcome=1 << 40, choice=wire.Choice(kept=False), data=True, losses=1
                        )
                    ],
                    unexplored=70_000,
                    waits=False,
                    crowded=3,
                ),
                wire.ExploredCrashTime(to_visit=[], known_outcomes=[], unexplored=0, waits=True, crowded=0),
            ]
        ),
    ),
    ("disk failed", "DiskReply", wire.DiskFailed(what="entry 3 of 4: truncated")),
]


WORDS: list[type[enum.StrEnum]] = [
    Call,
    ChangeKind,
    DifferenceKind,
    FileKind,
    HoldOrder,
    OperationFlag,
    OperationKind,
    ExtentKind,
]


def vectors() -> dict[str, Any]:
    """What the file holds. `json` is for readers; bytes are in Base64 there."""
    return {
        "protocol": wire.PROTOCOL_VERSION,
        "limits": wire.LIMITS,
        "words": {
            words.__name__: [word.value for word in (SENT if words is OperationKind else words)]
            for words in WORDS
        },
        "messages": [
            {
                "name": name,
                "type": kind,
                "hex": wire.encode(message).hex(),
                "json": json.loads(msgspec.json.encode(message)),
            }
            for name, kind, message in SAMPLES
        ],
    }


def write_vectors() -> None:
    VECTORS.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_vectors()
