"""What the host, the agent and the disk say to each other, from the host's side.

The mirror of `vms/protocol/src/lib.rs`, class for class and field for field; `vms/protocol/vectors.json`
holds samples that both sides must decode and encode to the same bytes. One frame is a little-endian
`u32` length followed by that many bytes of MessagePack; a message is a map whose `type` names the variant.

Not here: what the messages mean to a guest or a disk. That is `guest.py`, `worker.py` and `disk.py`.
"""

from __future__ import annotations

import functools
import select
import socket
import struct
import time
from typing import Any, TypeAlias, TypeVar

import msgspec

from harness.errors import PowercutError
from harness.model import CrashState

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20


class WireError(PowercutError):
    """The peer sent what is no message of this protocol, or the socket failed."""


class WireClosedError(WireError):
    """The peer closed the connection."""


class WireTimeoutError(WireError):
    """The deadline passed. The stream may stand inside a frame: the connection is of no more use."""


# --- parts of messages -----------------------------------------------------------------------


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """A map without a `type`. Fields stand in the order of the Rust struct."""


class _Message(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    """A map whose `type` names the class."""


class Operation(_Part):
    kind: str
    path: str = ""
    target: str = ""
    offset: int = 0
    length: int = 0
    name: str = ""
    value: bytes = b""
    flags: list[str] = []
    argv: list[str] = []


class MountSpec(_Part):
    fstype: str
    options: str
    second_offset: int = 0


class OperationResult(_Part):
    index: int
    errno: int
    detail: str


class Xattr(_Part):
    name: str
    value: bytes


class Run(_Part):
    kind: str
    start: int
    length: int
    value: int
    origin: int
    data: bytes


class TreeEntry(_Part):
    path: bytes
    kind: str
    inode: int
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    blocks: int
    target: bytes
    xattrs: list[Xattr]
    runs: list[Run]
    digest: str


class State(_Part):
    prefix: int
    dropped: list[int] = []
    torn_sectors: int | None = None

    @classmethod
    def of(cls, state: CrashState) -> State:
        return cls(prefix=state.prefix, dropped=list(state.dropped), torn_sectors=state.torn_sectors)


# --- host to agent ---------------------------------------------------------------------------


class RecordStart(_Message, tag="record_start"):
    data: str
    log: str
    mount: MountSpec


class RunOperations(_Message, tag="run_operations"):
    first_index: int
    operations: list[Operation]
    deadline_s: int


class RecordFinish(_Message, tag="record_finish"):
    pass


class Recover(_Message, tag="recover"):
    device: str
    mount: MountSpec
    clock_s: int
    keep_mounted: bool


class RunProgram(_Message, tag="run_program"):
    argv: list[str]
    deadline_s: int


class Unmount(_Message, tag="unmount"):
    pass


class PutFile(_Message, tag="put_file"):
    path: str
    mode: int
    data: bytes
    append: bool = False


AgentRequest: TypeAlias = (
    RecordStart | RunOperations | RecordFinish | Recover | RunProgram | Unmount | PutFile
)


# --- agent to host ---------------------------------------------------------------------------


class Hello(_Message, tag="hello"):
    protocol: int
    release: str
    version: str
    module_errors: list[str]
    dm_targets: list[str]


class RecordStarted(_Message, tag="record_started"):
    pass


class OperationsDone(_Message, tag="operations_done"):
    results: list[OperationResult]


class RecordFinished(_Message, tag="record_finished"):
    status: str
    unmount_errno: int
    kernel_log: list[str]


class Recovered(_Message, tag="recovered"):
    mount_errno: int
    entries: list[TreeEntry]
    walk_errors: list[str]
    unmount_errno: int
    kernel_log: list[str]
    mount_us: int
    walk_us: int
    unmount_us: int


class ProgramDone(_Message, tag="program_done"):
    exit_code: int
    output: bytes


class Unmounted(_Message, tag="unmounted"):
    unmount_errno: int
    kernel_log: list[str]


class Done(_Message, tag="done"):
    pass


class AgentFailed(_Message, tag="failed"):
    """`AgentReply::Failed`."""

    what: str
    errno: int


AgentReply: TypeAlias = (
    Hello
    | RecordStarted
    | OperationsDone
    | RecordFinished
    | Recovered
    | ProgramDone
    | Unmounted
    | Done
    | AgentFailed
)


# --- host to disk ----------------------------------------------------------------------------


class Open(_Message, tag="open"):
    base: str
    log: str | None


class Switch(_Message, tag="switch"):
    state: State


class Image(_Message, tag="image"):
    path: str


class Hashes(_Message, tag="hashes"):
    states: list[State]


class Compare(_Message, tag="compare"):
    log: str


class Stats(_Message, tag="stats"):
    pass


class AlsoRead(_Message, tag="also_read"):
    blocks: list[int]


class Remember(_Message, tag="remember"):
    outcome: int


class Recall(_Message, tag="recall"):
    states: list[State]


class BlockHashes(_Message, tag="block_hashes"):
    blocks: list[int]


DiskRequest: TypeAlias = (
    Open | Switch | Image | Hashes | Compare | Stats | AlsoRead | Remember | Recall | BlockHashes
)


# --- disk to host ----------------------------------------------------------------------------


class Opened(_Message, tag="opened"):
    size_bytes: int
    entries: int


class Switched(_Message, tag="switched"):
    pass


class Imaged(_Message, tag="imaged"):
    copied_bytes: int
    hash: str


class Hashed(_Message, tag="hashed"):
    hashes: list[str]


class Compared(_Message, tag="compared"):
    equal: bool
    first_difference: int | None


class Counted(_Message, tag="counted"):
    """`DiskReply::Counted(Stats)`."""

    reads: int
    writes: int
    flushes: int
    discards: int
    errors: int
    overlay_bytes: int


class Noted(_Message, tag="noted"):
    pass


class Remembered(_Message, tag="remembered"):
    earlier: int | None


class BlocksHashed(_Message, tag="blocks_hashed"):
    hashes: bytes


class Recalled(_Message, tag="recalled"):
    outcomes: list[int | None]


class DiskFailed(_Message, tag="failed"):
    """`DiskReply::Failed`."""

    what: str


DiskReply: TypeAlias = (
    Opened
    | Switched
    | Imaged
    | Hashed
    | Compared
    | Counted
    | Noted
    | Remembered
    | Recalled
    | BlocksHashed
    | DiskFailed
)


# --- frames ----------------------------------------------------------------------------------

T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()


@functools.cache
def _decoder(of: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(of)


def encode(message: msgspec.Struct) -> bytes:
    """The MessagePack body of `message`, without the length."""
    return _encoder.encode(message)


def decode(body: bytes | bytearray, of: Any) -> Any:
    """Inverse of `encode`; `of` is a message class or a union of them. Raises WireError."""
    try:
        return _decoder(of).decode(body)
    except msgspec.MsgspecError as error:
        raise WireError(
            f"a message of {len(body)} bytes is none that was expected: {error}",
            "rebuild the agent and the disk from this checkout: both sides must be of one version",
        ) from error


def send(sock: socket.socket, message: msgspec.Struct, deadline: float | None = None) -> None:
    """Write one frame. `deadline` is a time of `time.monotonic()`; None waits for ever.

    Raises WireClosedError, WireTimeoutError, or WireError for a message longer than MAX_FRAME_BYTES.
    """
    body = encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(f"a message of {len(body)} bytes is longer than a frame may be, {MAX_FRAME_BYTES}")
    rest = memoryview(struct.pack("<I", len(body)) + body)
    while rest:
        _wait(sock, deadline, write=True)
        try:
            sent = sock.send(rest[:_CHUNK_BYTES], socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            continue
        except OSError as error:
            raise WireClosedError(f"the connection broke while sending: {error}") from error
        rest = rest[sent:]


def receive(sock: socket.socket, of: Any, deadline: float | None = None) -> Any:
    """Read one frame and decode it as `of`, a message class or a union such as AgentReply.

    `deadline` is a time of `time.monotonic()`; None waits for ever. Raises WireClosedError when the peer
    has gone, WireTimeoutError, and WireError for what is no such message.
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
        _wait(sock, deadline, write=False)
        try:
            count = sock.recv_into(view[have:], 0, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
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
