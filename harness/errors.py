"""What can go wrong with the harness or its surroundings.

A violation of a promise is data (`harness.model.Violation`), never an exception; an exception is a
defect of the harness, of the machine it runs on, or of what the user asked for.
"""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What `powercut` returns to the shell."""

    CONSISTENT = 0
    INCONSISTENT = 1
    USAGE = 2
    UNDECIDED = 3
    NOTHING_RUN = 4  # or not everything that was required
    TIME_UP = 5  # stopped after the time that it was given: something was decided, nothing is inconsistent
    BISECT_SKIP = 125  # git bisect run: this commit cannot be tested
    BISECT_STOP = 128  # git bisect run: stop (1 to 127, but for 125, say that the commit is bad)
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141  # 128 + SIGPIPE: `powercut log ls LOG | head` ended as a shell expects


class PowercutError(Exception):
    """Base of everything raised here. `what` says what happened and names the value and the limit;
    `next_step` says what to do about it.
    """

    exit_code = ExitCode.UNDECIDED

    def __init__(self, what: str, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    @property
    def line(self) -> str:
        """Both in one line, for a cell of a report."""
        return f"{self.what}; {self.next_step}" if self.next_step else self.what

    def __str__(self) -> str:
        return f"{self.what}\n  next: {self.next_step}" if self.next_step else self.what


class UsageError(PowercutError):
    """The user asked for something that does not exist or does not fit together."""

    exit_code = ExitCode.USAGE


class NothingToAsk(UsageError):
    """What is asked about leaves nothing to run: a script that asks about each push has made no mistake."""

    exit_code = ExitCode.NOTHING_RUN


class EnvironmentLacks(PowercutError):
    """A program, package, device or space that the host should have is missing."""


class VersionsDiffer(EnvironmentLacks):
    """A built part is of another version than the harness: nothing that needs it can be done."""


class ToolKilled(PowercutError):
    """A host program was killed, or did not end: that says nothing of what the host has."""


class InUse(PowercutError):
    """Another process of this host has something for longer than this one waits."""


class KernelError(PowercutError):
    """A kernel that cannot be found, unpacked or used."""


class GuestError(PowercutError):
    """The guest answered, and said that it could not do what was asked."""


class NotSupported(GuestError):
    """The file system under test answered EOPNOTSUPP: it does not have an operation of the workload."""


class FullDisk(GuestError):
    """An operation of the workload failed since the disk is full: ENOSPC or EDQUOT."""


class CannotRecord(PowercutError):
    """The harness cannot record this workload here: that says nothing of the file system."""


class GuestLost(PowercutError):
    """The guest stopped answering. `console` is what its kernel last printed; `harness.oracles.endings` reads
    there whether the kernel itself is at fault.
    """

    def __init__(self, what: str, console: str = "", next_step: str = "") -> None:
        super().__init__(what, next_step)
        self.console = console


class GuestSpent(GuestLost):
    """What a guest said before may keep it from saying something now. Another guest has to tell."""


class NeverBoots(PowercutError):
    """No guest of a guest spec comes up any more: there is no use in trying another."""


class DiskError(PowercutError):
    """The disk process refused a request, or has gone."""


class DiskRefused(DiskError):
    """The disk process refused a request, and says why: another process would as well."""


class WriteLogError(PowercutError):
    """A write log that is truncated, foreign, or not what the device shows."""


class LogDiffers(WriteLogError):
    """A write log whose replay does not give the disk: recorded again, it may."""


class EventsDiffer(WriteLogError):
    """The events of a recording do not fit its log: its writes have no times."""


class StoreError(PowercutError):
    """A run directory that cannot be read, or was written by another version."""


class RunChanged(StoreError):
    """A run is to be gone on with, and something that its verdicts depend on is not what it was. `machine`:
    the one that it had alone, if another judges now as well.
    """

    def __init__(self, what: str, next_step: str = "", machine: str = "") -> None:
        super().__init__(what, next_step)
        self.machine = machine


class ClusterGone(PowercutError):
    """The scheduler of a cluster does not answer any more, or no worker is left."""


class RunLocked(StoreError):
    """Another process is writing into the run directory."""
