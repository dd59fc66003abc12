"""Oracles without a reference model: mounting, reading, kernel log, fsck, writing, programs' own checks."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Sequence

from harness.host.text import ended_with, last_lines
from harness.model import (
    BLOCK_BYTES,
    Call,
    CallError,
    Change,
    Check,
    Difference,
    DifferenceKind,
    ExtentKind,
    FsckClass,
    FsckResult,
    Said,
    Violation,
)
from harness.oracles.case import Case
from harness.oracles.endings import complaints, ending, folded, stalled, suppressed
from harness.oracles.trees import other
from harness.oracles.undecided import Undecided

# With these errnos mount(2) reports that it could not try, and says nothing about the disk. Not with EPERM or
# ENOENT: the agent is root, and its device and mount point are there, so these come from the file system.
_COULD_NOT_TRY = frozenset({errno.ENODEV, errno.EACCES, errno.ENOMEM, errno.EBUSY, errno.ENOTBLK})
_DIGITS = re.compile(r"\d+")


def _errno_name(number: int) -> str:
    return errno.errorcode.get(abs(number), str(number))


def _without_numbers(line: str) -> str:
    """A check's message for a signature: `lost k0` and `lost k1` are one fault. The kernel's lines keep the
    digits inside a word (`folded`), since EXT2-fs and EXT4-fs differ, and so do i_blocks32 and i_blocks64.
    """
    return _DIGITS.sub("N", folded(line)).strip()


def could_not_try(mount_errno: int) -> bool:
    """Whether mount(2) failed for a reason that says nothing about the disk."""
    return abs(mount_errno) in _COULD_NOT_TRY


def mountable(case: Case) -> Iterator[Violation | Undecided]:
    """The kernel mounts the crash state, and survives it. `found` has what the kernel said as well: an errno
    alone seldom tells one bug from another.
    """
    seen = case.outcome
    if seen.lost:
        what, signature = death(seen.lost, "recovery hangs", "the kernel did not survive recovery")
        yield Violation("mountable", "recovery", what, "recovery that ends", last_words(seen.lost), signature)
    elif seen.not_started:
        return  # `assembles` says so
    elif could_not_try(seen.mount_errno):
        yield Undecided(f"mount could not be tried: {_errno_name(seen.mount_errno)}")
    elif seen.mount_errno:
        name = _errno_name(seen.mount_errno)
        found = "; ".join([name, *complaints(case.errors, seen.kernel_log).values()])
        yield Violation(
            "mountable", "mount", f"mount fails with {name}", "a mount that succeeds", found, f"mount: {name}"
        )


def assembles(case: Case) -> Iterator[Violation | Undecided]:
    """What comes before the mount succeeds: the stack below the file system starts by the steps that its
    documentation names; a mode's own steps come to their end.
    """
    said = case.outcome.not_started
    if said:
        last = said.strip().splitlines()[-1]
        yield Violation(
            "assembles",
            "before the mount",
            f"the steps before the mount fail after the crash: {last}",
            "a disk, or a stack, that is ready to be mounted",
            said[:1000],
            f"start: {_without_numbers(last)}",
        )


def readable(case: Case) -> Iterator[Violation | Undecided]:
    """Every directory can be listed, every file read to its end, and the file system unmounted."""
    if not case.mounted:
        return
    for error in case.outcome.walk_errors:
        line = str(error)
        if error.call is Call.READ and error.errno == errno.EFBIG:
            # not from read(2): the agent reports a file larger than it reads in this way
            yield Undecided(f"not looked at whole: {line}")
            continue
        yield Violation("readable", error.subject, f"cannot be read: {line}", "a readable tree", line, line)
    for path, entry in case.outcome.tree.items():
        for extent in entry.extents:
            if extent.kind is ExtentKind.UNREADABLE and extent.value != errno.EFBIG:
                name = _errno_name(extent.value)
                yield Violation(
                    "readable",
                    path,
                    f"{path}: read fails with {name} at offset {extent.start}",
                    f"{entry.size} readable bytes",
                    f"{name} for bytes {extent.start} to {extent.end}",
                    f"{path}: {name}",
                )
                break
    if abs(case.outcome.unmount_errno) == errno.EBUSY:
        yield Undecided("unmount: EBUSY, something still used the file system")
    elif case.outcome.unmount_errno:
        name = _errno_name(case.outcome.unmount_errno)
        yield Violation(
            "readable", "unmount", f"unmount fails with {name}", "an unmount", name, f"unmount: {name}"
        )


def outside(case: Case) -> Iterator[Violation]:
    """On a disk that somebody has, nothing changes outside the folder in which operations run: no operation
    had any business there.
    """
    if not case.mounted:
        return
    for change in case.outcome.outside:
        yield Violation(
            "outside",
            change.path,
            f"{change.path}: outside the workload's folder, and it has {other(change.what)}",
            change.then,
            change.now,
            f"outside the folder: {change.what}",
        )


def kernel_log(case: Case) -> Iterator[Violation | Undecided]:
    """The kernel log has no line that the file system's profile calls an error. One violation per kind."""
    if kept_back := suppressed(case.outcome.kernel_log):
        yield Undecided(_kept_back(kept_back))
    for kind, text in complaints(case.errors, case.outcome.kernel_log).items():
        if stalled([text]):
            yield Undecided(_slow(text))
        else:
            yield Violation(
                "kernel-log", "kernel", f"the kernel complains: {text}", "no complaint", text, kind
            )


def workload_log(
    said: Sequence[Said], errors: re.Pattern[str] | None, describe: Callable[[int], str]
) -> Iterator[Violation | Undecided]:
    """The kernel log of the recording has no such line either. `describe`: an operation, in words."""
    reported: set[str] = set()
    for part in said:
        if kept_back := suppressed(part.lines):
            yield Undecided(f"while the workload ran, {_kept_back(kept_back)}")
        for kind, text in complaints(errors, part.lines).items():
            if kind in reported:
                continue
            reported.add(kind)
            at = "at its mount or unmount" if part.operation is None else f"in {describe(part.operation)}"
            yield Violation(
                "kernel-log",
                "workload",
                f"the kernel complains while the workload runs, {at}: {text}",
                "no complaint",
                text,
                f"{WHILE_RECORDED}{kind}",
            )


WHILE_RECORDED = "while the workload runs: "
"""With this begin the signatures of what the kernel said in no recovery."""


def _kept_back(line: str) -> str:
    return f"the kernel kept part of its log back: {line}"


def _slow(line: str) -> str:
    return f"the kernel went on, but says that something took long, as on a slow host: {line}"


def fsck(case: Case) -> Iterator[Violation | Undecided]:
    """fsck finds nothing to repair in what recovery left."""
    if not case.contract.fsck_clean:
        return
    result = case.outcome.fsck
    if result is None:
        yield Undecided("fsck was not run")
    elif result.classified is FsckClass.FAILED:
        yield Undecided(_fsck_failed(result))
    elif result.classified is not FsckClass.CLEAN:
        complaint = result.complaint or _first_complaint(result.output)
        yield Violation(
            "fsck",
            "file system",
            f"fsck finds errors after recovery: {complaint}",
            "nothing to repair",
            f"exit code {result.exit_code}: {complaint}",
            f"fsck: {folded(complaint)}",
        )


def _fsck_failed(result: FsckResult) -> str:
    said = result.complaint or result.output.strip()[:200]
    return f"fsck could not do its work: exit code {result.exit_code}: {said}"


def usable(case: Case) -> Iterator[Violation | Undecided]:
    """What came back is not read-only, and is still there when it is mounted once more. It can be written to
    and emptied, keeps what was written to it, and is sound afterwards. Judged where it came back whole; it is
    written to where fsck found nothing wrong.
    """
    seen = case.outcome.usable
    if seen is None:
        return
    if case.outcome.read_only:
        what = "the file system is read-only, although it was mounted to be written to"
        yield _unusable("mount", what, "EROFS", "mount: read-only")
    if seen.undecided:
        yield Undecided(f"what comes of writing to it was not seen: {seen.undecided}")
    if seen.lost:
        what, signature = death(
            seen.lost, "writing to it hangs", "the kernel does not survive being written to"
        )
        yield _unusable("kernel", what, last_words(seen.lost), signature)
    yield from _failed_mount("a second mount", "mount", seen.mount_errno)
    yield from map(_changed, seen.changed)
    said = complaints(case.errors, seen.kernel_log)
    yield from _failed_calls(seen.errors, next(iter(said.values()), ""))
    yield from _differences(seen.differences)
    yield from _failed_mount("a mount after writing to it", "remount", seen.remount_errno)
    if seen.unmount_errno:
        name = _errno_name(seen.unmount_errno)
        yield _unusable("unmount", f"unmount fails with {name}", name, f"unmount: {name}")
    yield from _fsck_afterwards(seen.fsck)
    if kept_back := suppressed(seen.kernel_log):
        yield Undecided(_kept_back(kept_back))
    for kind, text in said.items():
        if stalled([text]):
            yield Undecided(_slow(text))
        else:
            yield _unusable("kernel", f"the kernel complains while it is written to: {text}", text, kind)


def _fsck_afterwards(result: FsckResult | None) -> Iterator[Violation | Undecided]:
    if result is None or result.classified is FsckClass.CLEAN:
        return
    if result.classified is FsckClass.FAILED:
        yield Undecided(f"after it was written to, {_fsck_failed(result)}")
        return
    complaint = result.complaint or _first_complaint(result.output)
    what = f"fsck finds errors after it was written to and emptied: {complaint}"
    yield _unusable("file system", what, complaint, f"fsck: {folded(complaint)}")


def last_words(console: str) -> str:
    """What is shown of a kernel's console in one line; the whole of it is the finding's evidence."""
    end = ending(console)
    return end.line if end else console.strip().splitlines()[0]


def death(console: str, hangs: str, dies: str) -> tuple[str, str]:
    """What to say of a kernel that ended, and the signature of that."""
    end = ending(console)
    if end is None:  # the guest says so in another way
        first = console.strip().splitlines()[0]
        return f"{dies}: {first}", f"lost: {folded(first)}"
    if end.hangs:
        return f"{hangs}: {end.line}", f"hangs: {end.signature}"
    return f"{dies}: {end.line}", f"lost: {end.signature}"


def _unusable(subject: str, what: str, found: str, signature: str) -> Violation:
    expected = "a file system that can be written to and emptied"
    return Violation("usable", subject, f"after recovery, {what}", expected, found, signature)


def _changed(change: Change) -> Violation:
    where = "the root" if change.path == "." else f"`{change.path}`"
    if change.what == "existence":
        what = f"{where} is {change.then} at the first mount, and {change.now} at the second"
    else:
        what = f"{where} has {other(change.what)} at the second mount than at the first"
    return Violation(
        "usable",
        change.path,
        f"after recovery, {what}: what the first shows is not on the disk",
        change.then,
        change.now,
        f"second mount: {change.path}: {change.what}",
    )


def _failed_mount(which: str, word: str, mount_errno: int) -> Iterator[Violation | Undecided]:
    name = _errno_name(mount_errno)
    if could_not_try(mount_errno):
        yield Undecided(f"{which} could not be tried: {name}")
    elif mount_errno:
        yield _unusable("mount", f"{which} fails with {name}", name, f"{word}: {name}")


def _failed_calls(errors: Sequence[CallError], said: str) -> Iterator[Violation]:
    """One violation for each call and errno: a bitmap that is wrong stops the removal of many names. `said`:
    what the kernel complained of first, which may be why.
    """
    kinds: dict[tuple[str, int], list[CallError]] = {}
    for error in errors:
        kinds.setdefault((error.call.value, error.errno), []).append(error)
    for (call, number), alike in kinds.items():
        name, first = _errno_name(number), alike[0]
        what = f"`{first.subject}` fails with {name}"
        if (first.call, number) == (Call.RMDIR, errno.ENOTEMPTY):
            what += ", although all names in it were removed"
        if len(alike) > 1:
            what += f", and {len(alike) - 1} more like it"
        found = [*map(str, alike[:5]), *([f"kernel: {said}"] if said else [])]
        yield _unusable(first.subject, what, "; ".join(found), f"{call}: {name}")


def _differences(found: Sequence[Difference]) -> Iterator[Violation]:
    """One violation for each kind of difference."""
    for kind, words in _WORDS.items():
        alike = [d for d in found if d.kind is kind]
        if alike:
            first = alike[0]
            more = f", and {len(alike) - 1} more like it" if len(alike) > 1 else ""
            what = f"`{first.path}` {words.format(first.found)}{more}"
            paths = "; ".join(f"{d.path}: {d.found}" for d in alike[:5])
            yield _unusable(first.path, what, paths, f"difference: {kind.value}")


_WORDS = {
    DifferenceKind.SHORT_WRITE: f"takes {{}} bytes of a write of {BLOCK_BYTES}, although there is room",
    DifferenceKind.SIZE: f"has {{}} bytes after another mount, and {BLOCK_BYTES} were written",
    DifferenceKind.DATA: "holds other data than was written from byte {} on, after another mount",
}


def _first_complaint(output: str) -> str:
    """The first line that is neither a banner nor a progress line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = (line for line in lines if not re.match(r"(e2fsck|fsck)\b.* \d|Pass \d|\S+: recovering", line))
    return next(telling, lines[0] if lines else "no output")


def program(case: Case) -> Iterator[Violation | Undecided]:
    """A workload's own checks accept what its acknowledged RUN operations left; those of applications accept
    every crash state.
    """
    if not case.mounted:
        return
    results = {r.operation: r for r in case.outcome.checks}
    for check in case.checks:
        if check.application:
            yield from _application(case, check)
            continue
        if check.operation >= case.position.acked:
            continue
        result = results.get(check.operation)
        command = " ".join(check.argv)
        if result is None or result.exit_code is None:
            why = f": {result.output.strip()[:200]}" if result else ""
            yield Undecided(f"check `{command}` of operation {check.operation} was not run{why}")
        elif result.exit_code:
            yield Violation(
                "program",
                f"operation {check.operation}",
                f"`{command}` rejects what {case.timeline.describe(check.operation)} left",
                "exit code 0",
                f"exit code {result.exit_code}: {_told(result.output)}",
                f"check {check.operation}: exit code {result.exit_code}",
            )


def _told(output: str) -> str:
    """Of a program's output, what it complains of; if it does not, the end. fio says which block it misses,
    and then a page of statistics.
    """
    lines = output.strip().splitlines()
    first = next((n for n, line in enumerate(lines) if _COMPLAINT.search(line)), None)
    return output.strip()[-_TOLD:] if first is None else "\n".join(lines[first:])[:_TOLD].rstrip()


_TOLD = 400
_COMPLAINT = re.compile(
    r"\b(bad|error|errors|failed|failure|mismatch|corrupt|corrupted|wrong)\b", re.IGNORECASE
)


def telling_line(output: str) -> str:
    """The line of a check's output that says what is wrong: the first; of a traceback of Python the last."""
    lines = output.splitlines()
    return lines[-1 if lines[0].startswith("Traceback (most recent call last)") else 0]


def _application(case: Case, check: Check) -> Iterator[Violation | Undecided]:
    """The application's check accepts the state with the acknowledgements given so far, or with more."""
    acks = case.position.app_acks
    results = [r for r in case.outcome.checks if r.operation == check.operation and r.app_acks >= acks]
    if any(r.exit_code == 0 for r in results):
        return
    result = next((r for r in results if r.app_acks == acks), None)
    command = " ".join(check.argv)
    if result is None or result.exit_code != 1:
        how = "was not run" if result is None or result.exit_code is None else ended_with(result.exit_code)
        why = f": {last_lines(result.output)}" if result and result.output.strip() else ""
        yield Undecided(f"check `{command}` {how}{why}")
        return
    output = result.output.strip() or "it does not say what is wrong"
    first = telling_line(output)
    yield Violation(
        "program",
        f"operation {check.operation}",
        f"`{command}` after {acks} acknowledgement{'s' * (acks != 1)}: {first}",
        "exit code 0",
        f"exit code 1: {output[-400:]}",
        f"check {check.operation}: {_without_numbers(first)}",
    )
