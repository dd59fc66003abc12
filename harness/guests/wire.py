"""The messages between the host, the agent and the disk, on the host's side.

Mirrors `vms/protocol/src/lib.rs`, class for class and field for field; `vms/protocol/vectors.json` holds
samples that both sides must decode and encode to the same bytes, every word of every enum, and the limits.
One frame is a little-endian `u32` length followed by that many bytes of MessagePack; a message is a map
whose `type` names the variant. A frame to an agent goes in pieces (`send_in_pieces`).

A guest under test may send any bytes: whatever is not a message within the limits is a WireError.

Not here: what the messages mean to a guest or a disk. That is `guest.py`, `session.py` and `disk.py`.
"""

from __future__ import annotations

import functools
import operator
import select
import socket
import struct
import time
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from harness.errors import PowercutError
from harness.model import (
    Call,
    ChangeKind,
    CrashState,
    DifferenceKind,
    ExtentKind,
    FileKind,
    HoldOrder,
    OperationFlag,
    OperationKind,
    RequestKind,
)

PROTOCOL_VERSION = 20
_CHUNK_BYTES = 1 << 20

# The most that a message may hold; `vms/protocol/src/limits.rs` gives the reason for each.
LIMITS: Final = {
    "FRAME_BYTES": 64 << 20,
    "STRUCTURED_FRAME_BYTES": 16 << 20,
    "PIECE_BYTES": 2048,
    "FRAME_VALUES": 4 << 20,
    "FRAME_DEPTH": 16,
    "OPERATIONS": 1024,
    "FLAGS": 16,
    "ARGUMENTS": 65_536,
    "MODULES": 1024,
    "OUTSIDE_CHANGES": 100,
    "ENTRIES": 50_000,
    "EXTENTS": 200_000,
    "XATTRS": 4096,
    "WALK_ERRORS": 50_000,
    "LOG_LINES": 4096,
    "LOG_BYTES": 1 << 20,
    "STATES": 50_000,
    "DROPPED": 1 << 20,
    "CONTENTS": 1 << 16,
    "BLOCKS": 1 << 20,
    "REQUESTS": 100_000,
}
MORE: Final = b"+"
"""What an agent answers to each piece of a request but the last."""
MAX_FRAME_BYTES = LIMITS["FRAME_BYTES"]
_MAX_STRUCTURED_BYTES = LIMITS["STRUCTURED_FRAME_BYTES"]
# Messages whose bulk is one string of bytes: the only ones that may be longer than _MAX_STRUCTURED_BYTES.
_OPAQUE = (b"\xa4type\xa8put_file", b"\xa4type\xacprogram_done")


def _up_to(limit: str) -> Meta:
    return Meta(max_length=LIMITS[limit])


U32 = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
U64 = Annotated[int, Meta(ge=0)]  # MessagePack has no larger one
I32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Errno = Annotated[int, Meta(ge=0, le=4095)]  # MAX_ERRNO of include/linux/err.h; 0: none
Digest = Annotated[str, Meta(max_length=32)]  # hexadecimal; "" for none
LogLines = Annotated[list[str], _up_to("LOG_LINES")]


class WireError(PowercutError):
    """The peer sent something that is not a message of this protocol, or the socket failed."""


class WireClosedError(WireError):
    """The peer closed the connection."""


class WireTimeoutError(WireError):
    """The deadline passed. The stream may be in mid-frame: the connection is unusable."""


# --- parts of messages -----------------------------------------------------------------------


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """A map without a `type`. Fields are in the order of the Rust struct."""


class _Message(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    """A map whose `type` names the class. Those of one direction have one base, which is decoded as any."""


class AgentRequest(_Message):
    pass


class AgentReply(_Message):
    pass


class DiskRequest(_Message):
    pass


class DiskReply(_Message):
    pass


class Operation(_Part):
    kind: OperationKind
    path: str = ""
    target: str = ""
    offset: U64 = 0
    length: U64 = 0
    name: str = ""
    value: bytes = b""
    flags: Annotated[list[OperationFlag], _up_to("FLAGS")] = []
    argv: Annotated[list[str], _up_to("ARGUMENTS")] = []


class StackSpec(_Part):
    device: str
    start: str
    stop: str


class MountSpec(_Part):
    fstype: str
    options: str
    parts: Annotated[list[U64], _up_to("FLAGS")] = []
    read_only_first: bool = False
    stack: StackSpec | None = None


class OutsideSpec(_Part):
    root: str
    folder: str
    names: U32
    bytes: U64


class OutsideChange(_Part):
    path: bytes
    what: str
    then: str
    now: str


class CallError(_Part):
    call: Call
    path: bytes
    name: str
    errno: Annotated[int, Meta(ge=1, le=4095)]


class Difference(_Part):
    path: bytes
    kind: DifferenceKind
    found: U64


class ModuleError(_Part):
    name: str
    errno: Annotated[int, Meta(ge=1, le=4095)]


class OperationResult(_Part):
    index: U32
    error: CallError | None = None
    exit_code: I32 | None = None
    output: bytes = b""


class RecordedEvents(_Part):
    offset: U64 = 0
    bytes: U64 = 0
    notes: U64 = 0
    lacking: str = ""


class Said(_Part):
    operation: U32 | None
    lines: LogLines


class Looks(_Part):
    names: Digest = ""
    contents: Digest = ""


class Xattr(_Part):
    name: str
    value: bytes


class Extent(_Part):
    kind: ExtentKind
    start: U64
    length: U64
    value: U64
    origin: U64
    data: bytes


class TreeEntry(_Part):
    path: bytes
    kind: FileKind
    inode: U64
    mode: U32
    links: U32
    uid: U32
    gid: U32
    size: U64
    blocks: U64
    target: bytes
    xattrs: Annotated[list[Xattr], _up_to("XATTRS")]
    extents: Annotated[list[Extent], _up_to("EXTENTS")]
    digest: Digest


class State(_Part):
    prefix: U64
    dropped: Annotated[list[U64], _up_to("DROPPED")] = []
    torn_sectors: U64 | None = None

    @classmethod
    def of(cls, state: CrashState) -> State:
        return cls(prefix=state.prefix, dropped=list(state.dropped), torn_sectors=state.torn_sectors)


class Choice(_Part):
    kept: bool
    except_: Annotated[list[U64], _up_to("DROPPED")] = msgspec.field(name="except", default_factory=list)


class KnownOutcome(_Part):
    outcome: U64
    choice: Choice
    data: bool
    losses: U64


class CrashTime(_Part):
    state: State
    volatile: Annotated[list[U64], _up_to("DROPPED")] = []


class ExploredCrashTime(_Part):
    to_visit: Annotated[list[Choice], _up_to("STATES")]
    known_outcomes: Annotated[list[KnownOutcome], _up_to("STATES")]
    unexplored: U64
    waits: bool
    crowded: U64


class Requested(_Part):
    kind: RequestKind
    sector: U64
    sectors: U64


class Error(_Part, tag_field="type", tag="error"):
    pass


class Flip(_Part, tag_field="type", tag="flip"):
    bit: U64


class Lose(_Part, tag_field="type", tag="lose"):
    pass


class Divert(_Part, tag_field="type", tag="divert"):
    sector: U64


class Fault(_Part):
    kind: RequestKind
    sector: U64
    nth: U64
    stays: bool
    effect: Error | Flip | Lose | Divert


# --- host to agent ---------------------------------------------------------------------------


class Wake(AgentRequest, tag="wake"):
    device: str
    seed: bytes
    clock_s: U64


class RecordStart(AgentRequest, tag="record_start"):
    data: str
    log: str
    mount: MountSpec
    whole: bool = False


class RunOperations(AgentRequest, tag="run_operations"):
    first_index: U32
    operations: Annotated[list[Operation], _up_to("OPERATIONS")]
    deadline_s: U32


class RecordFinish(AgentRequest, tag="record_finish"):
    pass


class Recover(AgentRequest, tag="recover"):
    device: str
    mount: MountSpec
    clock_s: U64
    keep_mounted: bool
    outside: bool = False


class Remember(AgentRequest, tag="remember"):
    device: str
    mount: MountSpec
    clock_s: U64
    outside: OutsideSpec


class RunProgram(AgentRequest, tag="run_program"):
    argv: Annotated[list[str], _up_to("ARGUMENTS")]
    deadline_s: U32


class RunBeside(AgentRequest, tag="run_beside"):
    device: str
    mount: MountSpec
    clock_s: U64
    argv: Annotated[list[str], _up_to("ARGUMENTS")]
    deadline_s: U32


class Unmount(AgentRequest, tag="unmount"):
    pass


class PutFile(AgentRequest, tag="put_file"):
    path: str
    mode: U32
    data: bytes
    append: bool = False


class TreeChange(_Part):
    path: bytes
    kind: ChangeKind
    mode: U32 = 0
    uid: U32 = 0
    gid: U32 = 0
    size: U64 = 0
    pieces: Annotated[list[tuple[U64, U64, U64]], _up_to("EXTENTS")] = []
    target: bytes = b""
    xattrs: Annotated[list[Xattr], _up_to("XATTRS")] = []


class NoteCalls(AgentRequest, tag="note_calls"):
    argv: Annotated[list[str], _up_to("ARGUMENTS")]
    deadline_s: U32


class TreeToTry(_Part):
    changes: Annotated[list[TreeChange], _up_to("ENTRIES")]
    acknowledgements: U32


class TryTrees(AgentRequest, tag="try_trees"):
    trees: Annotated[list[TreeToTry], _up_to("STATES")]
    acknowledged_at: str
    acknowledged: Annotated[list[str], _up_to("ENTRIES")]
    argv: Annotated[list[str], _up_to("ARGUMENTS")]
    deadline_s: U32


class Use(AgentRequest, tag="use"):
    device: str
    mount: MountSpec
    clock_s: U64
    before: Looks
    read_contents: bool
    write: bool
    keep: Annotated[list[str], _up_to("ARGUMENTS")]
    deadline_s: U32


# --- agent to host ---------------------------------------------------------------------------


class Hello(AgentReply, tag="hello"):
    protocol: U32
    release: str
    version: str
    module_errors: Annotated[list[ModuleError], _up_to("MODULES")]
    dm_targets: Annotated[list[str], _up_to("MODULES")]


class RecordStarted(AgentReply, tag="record_started"):
    pass


class OperationsDone(AgentReply, tag="operations_done"):
    results: Annotated[list[OperationResult], _up_to("OPERATIONS")]


class RecordFinished(AgentReply, tag="record_finished"):
    status: str
    logging_disabled: bool
    unmount_errno: Errno
    kernel_log: Annotated[list[Said], _up_to("LOG_LINES")]
    log_complete: bool
    events: RecordedEvents


class Recovered(AgentReply, tag="recovered"):
    mount_errno: Errno
    entries: Annotated[list[TreeEntry], _up_to("ENTRIES")]
    walk_errors: Annotated[list[CallError], _up_to("WALK_ERRORS")]
    unmount_errno: Errno
    kernel_log: LogLines
    log_complete: bool
    mount_us: U64
    walk_us: U64
    unmount_us: U64
    not_started: str = ""
    read_only: bool = False
    looks: Looks = msgspec.field(default_factory=Looks)
    outside: Annotated[list[OutsideChange], _up_to("OUTSIDE_CHANGES")] = []


class OutsideSeen(AgentReply, tag="outside_seen"):
    names: U64
    compared: U64
    files: U64
    files_read: U64
    bytes_read: U64
    kernel_log: LogLines


class ProgramDone(AgentReply, tag="program_done"):
    exit_code: I32 | None
    output: bytes


class Tried(_Part):
    exit_code: I32 | None
    output: bytes
    opened: Annotated[list[bytes], _up_to("ENTRIES")] | None


class TreesTried(AgentReply, tag="trees_tried"):
    tried: Annotated[list[Tried], _up_to("STATES")]


class Unmounted(AgentReply, tag="unmounted"):
    unmount_errno: Errno
    kernel_log: LogLines
    log_complete: bool


class Used(AgentReply, tag="used"):
    mount_errno: Errno
    errors: Annotated[list[CallError], _up_to("WALK_ERRORS")]
    finished: bool
    unmount_errno: Errno
    kernel_log: LogLines
    log_complete: bool
    differences: Annotated[list[Difference], _up_to("WALK_ERRORS")] = []
    remount_errno: Errno = 0
    looks: Looks = msgspec.field(default_factory=Looks)
    entries: Annotated[list[TreeEntry], _up_to("ENTRIES")] = []


class Done(AgentReply, tag="done"):
    pass


class AgentFailed(AgentReply, tag="failed"):
    """`AgentReply::Failed`."""

    what: str
    errno: Errno


# --- host to disk ----------------------------------------------------------------------------


class MountCounter(_Part):
    marked: bytes
    at: U64
    size_bytes: U64
    zeros: list[tuple[U64, U64]]
    fields: list[tuple[U64, U64]]
    recounted: list[tuple[U64, U64]]
    crc32c_at: U64 | None


class Open(DiskRequest, tag="open"):
    base: str
    log: str | None
    order: Annotated[list[U64], _up_to("DROPPED")] | None
    unit_sectors: U64
    keep_memo: bool
    mount_counters: list[MountCounter]


class Switch(DiskRequest, tag="switch"):
    state: State


class Image(DiskRequest, tag="image"):
    path: str


class Hashes(DiskRequest, tag="hashes"):
    states: Annotated[list[State], _up_to("STATES")]


class Compare(DiskRequest, tag="compare"):
    log: str
    order: Annotated[list[U64], _up_to("DROPPED")] | None


class Completions(DiskRequest, tag="completions"):
    hold_us: U64 | None
    guest: U32 | None
    order: HoldOrder = HoldOrder.ALL
    seed: U64 = 0


class Stats(DiskRequest, tag="stats"):
    pass


class AlsoRead(DiskRequest, tag="also_read"):
    blocks: Annotated[list[U64], _up_to("BLOCKS")]


class BlockHashes(DiskRequest, tag="block_hashes"):
    blocks: Annotated[list[U64], _up_to("BLOCKS")]


class Snapshot(DiskRequest, tag="snapshot"):
    pass


class RollBack(DiskRequest, tag="roll_back"):
    pass


class NoteWrites(DiskRequest, tag="note_writes"):
    pass


class LogWrites(DiskRequest, tag="log_writes"):
    path: str


class Requests(DiskRequest, tag="requests"):
    pass


class Inject(DiskRequest, tag="inject"):
    fault: Fault


class EndFault(DiskRequest, tag="end_fault"):
    pass


class Reads(DiskRequest, tag="reads"):
    pass


class Learn(DiskRequest, tag="learn"):
    state: State
    blocks: Annotated[list[U64], _up_to("BLOCKS")]
    data: Annotated[list[U64], _up_to("BLOCKS")]
    outcome: U64


class Explore(DiskRequest, tag="explore"):
    crash_times: Annotated[list[CrashTime], _up_to("STATES")]
    losses: U64
    separate_data: bool
    data_together: bool
    to_visit_max: U64
    known_outcomes_max: U64


# --- disk to host ----------------------------------------------------------------------------


class Opened(DiskReply, tag="opened"):
    size_bytes: U64
    entries: U64


class Switched(DiskReply, tag="switched"):
    pass


class Imaged(DiskReply, tag="imaged"):
    copied_bytes: U64
    hash: Digest


class Hashed(DiskReply, tag="hashed"):
    hashes: Annotated[list[Digest], _up_to("STATES")]


class Compared(DiskReply, tag="compared"):
    equal: bool
    first_difference: U64 | None


class Counted(DiskReply, tag="counted"):
    """`DiskReply::Counted(Stats)`."""

    reads: U64
    writes: U64
    flushes: U64
    discards: U64
    errors: U64
    overlay_bytes: U64


class Noted(DiskReply, tag="noted"):
    pass


class Remembered(DiskReply, tag="remembered"):
    earlier: U64 | None


class BlocksHashed(DiskReply, tag="blocks_hashed"):
    hashes: bytes


class RolledBack(DiskReply, tag="rolled_back"):
    blocks: Annotated[list[U64], _up_to("BLOCKS")]


class Logged(DiskReply, tag="logged"):
    state: U64
    entries: U64
    complete: bool


class RequestsSeen(DiskReply, tag="requests_seen"):
    requests: Annotated[list[Requested], _up_to("REQUESTS")]


class FaultEnded(DiskReply, tag="fault_ended"):
    hits: U64


class WereRead(DiskReply, tag="were_read"):
    blocks: Annotated[list[U64], _up_to("BLOCKS")]
    data: Annotated[list[U64], _up_to("BLOCKS")]


class Explored(DiskReply, tag="explored"):
    crash_times: Annotated[list[ExploredCrashTime], _up_to("STATES")]


class DiskFailed(DiskReply, tag="failed"):
    """`DiskReply::Failed`."""

    what: str


# --- frames ----------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder(of: type[msgspec.Struct]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(functools.reduce(operator.or_, of.__subclasses__() or [of]))


def encode_part(part: msgspec.Struct) -> bytes:
    """What a part of a message that was received says, as bytes: equal for equal parts."""
    return _encoder.encode(part)


def encode(message: msgspec.Struct) -> bytes:
    """The MessagePack body of `message`, without the length. Raises WireError if it has no encoding."""
    try:
        body = _encoder.encode(message)
    except (msgspec.MsgspecError, ValueError, ArithmeticError, TypeError) as error:
        raise WireError(f"a {type(message).__name__} cannot be encoded: {error}") from error
    _check_length(len(body), body)
    return body


def decode(body: bytes | bytearray, of: type[msgspec.Struct]) -> Any:
    """Inverse of `encode`; `of` is a message class or a base of them, such as AgentReply. Raises WireError,
    and nothing else, for anything that is not such a message within the limits.
    """
    _check_length(len(body), body)
    try:
        return _decoder(of).decode(body)
    except (msgspec.MsgspecError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        # ValueError: text that is not UTF-8. RecursionError: deeply nested containers.
        raise WireError(
            f"a message of {len(body)} bytes is not one that was expected: {error}",
            "rebuild the agent and the disk from this checkout: both sides must be of one version",
        ) from error


def _check_length(length: int, body: bytes | bytearray) -> None:
    opaque = length > _MAX_STRUCTURED_BYTES and bytes(body[1:32]).startswith(_OPAQUE)
    limit = MAX_FRAME_BYTES if opaque else _MAX_STRUCTURED_BYTES
    if length > limit:
        raise WireError(f"a message of {length} bytes is longer than a frame may be, {limit}")


def send(sock: socket.socket, message: msgspec.Struct, deadline: float | None = None) -> None:
    """Write one frame. `deadline` is a time of `time.monotonic()`; None waits for ever.

    Raises WireClosedError, WireTimeoutError, or WireError for a message that is too long or has no encoding.
    """
    body = encode(message)
    _write(sock, struct.pack("<I", len(body)) + body, deadline)


def send_in_pieces(sock: socket.socket, message: msgspec.Struct, deadline: float | None = None) -> None:
    """The same to an agent, which asks for each piece but the first with MORE: so no line on the way has to
    hold more than a piece.

    Raises as `send`, and WireError if the agent answers anything else in between.
    """
    body = encode(message)
    piece = LIMITS["PIECE_BYTES"]
    _write(sock, struct.pack("<I", len(body)) + body[:piece], deadline)
    for at in range(piece, len(body), piece):
        if (said := bytes(_read(sock, 1, deadline))) != MORE:
            raise WireError(f"the agent answered {said!r} after {at} of {len(body)} bytes of a request")
        _write(sock, body[at : at + piece], deadline)


def _write(sock: socket.socket, data: bytes, deadline: float | None) -> None:
    rest = memoryview(data)
    while rest:
        try:
            sent = sock.send(rest[:_CHUNK_BYTES], socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            _wait(sock, deadline, write=True)
            continue
        except OSError as error:
            raise WireClosedError(f"the connection broke while sending: {error}") from error
        rest = rest[sent:]


def receive(sock: socket.socket, of: type[msgspec.Struct], deadline: float | None = None) -> Any:
    """Read one frame and decode it as `of`: see `decode`.

    `deadline` is a time of `time.monotonic()`; None waits for ever. Raises WireClosedError when the peer
    has gone, WireTimeoutError, and WireError for anything that is not such a message.
    """
    (length,) = struct.unpack("<I", _read(sock, 4, deadline))
    if length > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {length} bytes is longer than a frame may be, {MAX_FRAME_BYTES}")
    return decode(_read(sock, length, deadline), of)


def _read(sock: socket.socket, length: int, deadline: float | None) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    have = 0
    while have < length:
        try:
            count = sock.recv_into(view[have:], 0, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            _wait(sock, deadline, write=False)
            continue
        except OSError as error:
            raise WireClosedError(f"the connection broke after {have} of {length} bytes: {error}") from error
        if count == 0:
            raise WireClosedError(f"the peer closed the connection after {have} of {length} bytes")
        have += count
    return data


def _wait(sock: socket.socket, deadline: float | None, *, write: bool) -> None:
    """Return once `sock` is ready, or raise WireTimeoutError. poll(2): select(2) fails above fd 1023."""
    poller = select.poll()
    poller.register(sock, select.POLLOUT if write else select.POLLIN)
    left_ms = None if deadline is None else max(0, int((deadline - time.monotonic()) * 1000))
    if not poller.poll(left_ms):
        raise WireTimeoutError(f"no {'room to send' if write else 'answer'} before the deadline")
