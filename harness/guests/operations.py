"""Operations as messages, and what a guest answered to them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import msgspec

from harness.errors import FullDisk, GuestError, GuestLost, NotSupported
from harness.guests import wire
from harness.guests.outcomes import call_error
from harness.host.text import ended_with
from harness.model import Operation, OperationKind

LACKS = 77
"""Exit code of a program that cannot do its work here, as in automake's tests and meson's."""


def to_wire(op: Operation) -> wire.Operation:
    """The message for an operation: its fields have the same names."""
    return msgspec.convert(op, wire.Operation, from_attributes=True)


def check_results(
    results: Sequence[wire.OperationResult], first: int, operations: Sequence[Operation]
) -> None:
    """Raise unless all `operations`, numbered from `first`, have succeeded: NotSupported if the file system
    does not support one, or lacks what a program needs, FullDisk if one failed for lack of space, GuestError
    if one failed for another reason, GuestLost if the results belong to others.
    """
    expected = range(first, first + len(operations))[: len(results)]
    if [r.index for r in results] != list(expected):
        raise GuestLost(f"the results of operations from {first} on belong to other operations")
    for result, operation in zip(results, operations, strict=False):
        if result.error is not None and _lacks(result.error.errno, operation):
            raise NotSupported(f"this file system does not support `{_shortened(operation)}`")
        if result.error is not None and (limit := _limit(result.error.errno, operation)):
            raise NotSupported(f"this file system has {limit}: `{_shortened(operation)}`")
        if result.exit_code == LACKS:
            said = result.output.decode(errors="replace").strip() or "it does not say what"
            raise NotSupported(f"this file system lacks what the program needs: {said}")
        if why := _failure(result):
            full = result.error is not None and result.error.errno in _OF_FULL_DISKS
            raise (FullDisk if full else GuestError)(
                f"operation {result.index} ({_shortened(operation)}) failed while recording: {why}",
                _advice(operation, printed=bool(result.output.strip())),
            )
    if len(results) < len(operations):
        raise GuestLost(f"{len(results)} results of {len(operations)} operations, and none of them failed")


_REFUSED_TO_ROOT = frozenset(
    {
        OperationKind.LINK,
        OperationKind.SYMLINK,
        OperationKind.MKFIFO,
        OperationKind.MKNOD,
        OperationKind.CHMOD,
        OperationKind.CHOWN,
    }
)
"""For these EPERM says that the file system has no such thing: link(2), symlink(2), mknod(2). Permissions and
owners are refused to root by nothing else ([code] fs/fat/file.c, fat_setattr).
"""


_MOVES = (OperationKind.RENAME, OperationKind.EXCHANGE)


def _lacks(error: int, operation: Operation) -> bool:
    """Whether the error says that the file system does not have the operation."""
    if operation.kind is OperationKind.EXCHANGE and error == errno.EINVAL:
        return True  # rename(2): the file system does not support one of the flags
    if operation.kind in _MOVES and error == errno.EXDEV:
        return True  # overlayfs.rst, redirect_dir: a directory of a lower layer cannot be renamed
    return error == errno.EOPNOTSUPP or (error == errno.EPERM and operation.kind in _REFUSED_TO_ROOT)


_OF_ATTRIBUTES = (errno.ENOSPC, errno.E2BIG, errno.ERANGE)
"""For one too many, or too long: setxattr(2). ext4's are in one block; F2FS, in one as well, says E2BIG."""
_LINE_MAX = 100
_LIMITS = {
    errno.ENAMETOOLONG: "no names so long",
    errno.EFBIG: "no files so large",
    errno.EMLINK: "no room for so many links",
}
"""What errors say of a limit of the file system: path_resolution(7), write(2), link(2)."""


def _limit(error: int, operation: Operation) -> str:
    """The limit of the file system that the operation exceeds; empty if it failed for another reason."""
    if operation.kind is OperationKind.SETXATTR and error in _OF_ATTRIBUTES:
        return "no room for so many attributes"
    return _LIMITS.get(error, "")


def _shortened(operation: Operation) -> str:
    """Its line, without most of a value of kilobytes."""
    line = str(operation)
    return line if len(line) <= _LINE_MAX else f"{line[:_LINE_MAX]}... ({len(line):,} characters)"


def _advice(operation: Operation, *, printed: bool) -> str:
    """What to do about an operation that failed. Operations that no file system could carry out are rejected
    before recording, so the workload's list is not at fault. `printed`: whether its program printed more than
    its acknowledgements, which the output of a result leaves out.
    """
    if operation.kind is OperationKind.RUN:
        return correct_the_program(printed=printed)
    return "the file system refuses it in this mode: leave the operation out, or the mode"


def correct_the_program(*, printed: bool) -> str:
    """What to do about a program that failed."""
    said = "its last output is above" if printed else "it printed nothing besides its acknowledgements"
    return f"correct the program: {said}"


_OF_FULL_DISKS = (errno.ENOSPC, errno.EDQUOT)


def _failure(result: wire.OperationResult) -> str:
    """Why the operation failed, with its program's output; empty if it did not fail."""
    said = result.output.decode(errors="replace").strip()
    if result.error is not None:
        error = call_error(result.error)
        why = f"{error}, {os.strerror(error.errno)}"
    elif result.exit_code:
        why = f"the program {ended_with(result.exit_code)}"
    else:
        return ""
    return f"{why}: {said}" if said else why
