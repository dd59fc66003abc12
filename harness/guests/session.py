"""A disk process and a guest on it: records, and recovers one crash state after another.

Owned by one thread. When either of the two is lost, both are thrown away, and the next request starts
new ones: nothing of a state that went wrong reaches the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from harness.errors import (
    CannotRecord,
    DiskError,
    EnvironmentLacks,
    GuestError,
    GuestLost,
    GuestSpent,
    KernelError,
    NotSupported,
    PowercutError,
    VersionsDiffer,
)
from harness.filesystems.disks import USUAL, DiskKind
from harness.filesystems.layers import BELOW_ROOT, Layer
from harness.filesystems.profile import MountCounter
from harness.filesystems.stacks import MEMBER, Stacked
from harness.guests import wire
from harness.guests.boots import Boots
from harness.guests.disk import Disk, Order
from harness.guests.guest import Guest
from harness.guests.machine import Boot, Machine, VirtualTime, default_name
from harness.guests.operations import check_results
from harness.guests.outcomes import KnownEntries, outcome_of, second_tree, usability_of
from harness.guests.recorded_log import finished_log, need_host_space, noted_calls
from harness.guests.script import (
    RECOVER_TIMEOUT_S,
    USUAL_TIMERS,
    Scripted,
    batches,
    encoded,
    steps_of,
    timers,
)
from harness.host.cache import hold
from harness.host.fork_server import ForkServers
from harness.host.resources import built_part
from harness.model import (
    Check,
    CheckResult,
    CrashState,
    DiskFault,
    FsckResult,
    Operation,
    Outcome,
    Said,
    Schedule,
    Tree,
    Usability,
)
from harness.model.schedules import with_long_pauses, with_threads
from harness.oracles.endings import any_of, complaints, suppressed
from harness.plan import LOG_BYTES, Clock, Completions

CLOCK_S = 1_700_100_000
"""The guest's time at every recovery: equal states must give equal recovered images."""
BESIDE_DEADLINE_S = 300
"""For programs beside the disk: fsck on a stack, or the first resync of one."""
USE_DEADLINE_S = 60
"""For writing to a recovered file system and removing all that it holds."""
PROGRAM_TIMEOUT_S = 120
REMEMBER_TIMEOUT_S = 600.0
"""For one look at all names of a disk that somebody has."""
IDLE_S = 0.005
"""Where the host does not tell whether the guest sleeps, one that asks its disk for nothing for so long
counts as waiting for a write. An emulated one must be able to return from a system call that does not wait,
and to begin the next: 1 ms caught F2FS's fsync that does not wait in 5 of 10 recordings on a busy host, 2 ms
in 10 of 10.
"""
PLAIN = Schedule()
NOT_LOOKED = wire.Looks()
OUTSIDE_NAMES = 20_000
"""Names outside a workload's folder that are compared after each recovery; of more, some are drawn."""
OUTSIDE_BYTES = 64 << 20
"""Of contents there that are read each time."""
VIRTUAL_LOG = "/dev/powercut_log"
"""The log device in virtual time (vms/umldisk/record_kern.c)."""
ACKNOWLEDGED = "/tmp/acknowledged"  # noqa: S108  # in the guest, which is the harness's alone


@dataclass(frozen=True, slots=True)
class Target:
    """What is shown on the disk, and how to mount it. `parts`: bytes at which further devices begin. `order`:
    in which the disk applies the log's entries, if not in their own. `read_only_first`: after a crash it is
    mounted read-only, then remounted. `stacked`: the stack on the parts. `disk`: what kind of disk that is.
    `mount_counters`: what of its contents does not tell blocks apart. `first`: steps before each mount after
    a crash, if there are any. `layer`: what is mounted above the file system, as `fstype` says. `errors`:
    lines of the kernel's log that match one of these are complaints.
    """

    fstype: str
    mount_options: str
    base: Path
    log: Path | None
    parts: tuple[int, ...] = ()
    order: Order | None = None
    read_only_first: bool = False
    stacked: Stacked | None = None
    disk: DiskKind = USUAL
    mount_counters: tuple[MountCounter, ...] = ()
    first: str = ""
    layer: Layer | None = None
    errors: tuple[str, ...] = ()

    @property
    def mount(self) -> wire.MountSpec:
        """After a power cut."""
        steps = self.layer.start if self.layer else self.first
        return self._mount(self.stacked.start if self.stacked else steps)

    @property
    def outside(self) -> wire.OutsideSpec | None:
        """What may not change, of a disk that somebody has."""
        if self.layer is None or not self.layer.folder:
            return None
        return wire.OutsideSpec(BELOW_ROOT, self.layer.folder, OUTSIDE_NAMES, OUTSIDE_BYTES)

    @property
    def mount_whole(self) -> wire.MountSpec:
        """Before it, when no member of a stack is missing."""
        steps = self.layer.record if self.layer else ""
        return self._mount(self.stacked.start_whole if self.stacked else steps)

    def _mount(self, start: str) -> wire.MountSpec:
        stack = None
        if self.stacked:
            of = self.stacked.stack
            stack = wire.StackSpec(device=of.device, start=start, stop=of.stop)
        elif self.layer:  # to the guest, the file system below is a stack, too
            device = self.layer.device or self.layer.fstype
            stack = wire.StackSpec(device=device, start=start, stop=self.layer.stop)
        elif start:  # to the guest, a stack of one disk that is there already
            stack = wire.StackSpec(device=MEMBER, start=start, stop="")
        return wire.MountSpec(self.fstype, self.mount_options, list(self.parts), self.read_only_first, stack)


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """What guests are made of: machine, kernel image, initramfs. `boots`: whether they come up. `hits`: the
    file in which those that judge note what they run, for a kernel that can; `recording_hits`: the one of
    those that record. `memory_mib`: the least memory. `built_for`: of modules that are not the kernel's own,
    by name, the release that they were built for.
    """

    machine: Machine
    kernel_image: Path
    initramfs: Path
    hits: Path | None = None
    recording_hits: Path | None = None
    memory_mib: int = 0
    boots: Boots = field(default_factory=Boots, compare=False)
    built_for: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        hold(self.kernel_image)


RunCheck = Callable[[Check, Sequence[str]], CheckResult]
"""Runs a check in the guest; an application's check receives these acknowledgements."""

Ask = Callable[[Tree, RunCheck], tuple[CheckResult, ...]]
"""Runs the checks of a recovered tree that is still mounted."""


class Recorder(Protocol):
    """Records workloads: a session, here or in another process. `directory`: of its console; `log`: of the
    last recording; `said`: the kernel's messages during it.
    """

    directory: Path
    log: Path
    said: tuple[Said, ...]

    def record(
        self,
        target: Target,
        operations: Sequence[Operation],
        on_progress: Callable[[int], None] = ...,
        schedule: Schedule = ...,
        first: int = ...,
    ) -> str:
        """See `Session.record`."""


CheckImage = Callable[[Path], tuple[FsckResult, Sequence[int] | None]]
"""fsck of an image, and the numbers of the blocks that it read; None if these are not known."""


class Session(contextlib.AbstractContextManager["Session"]):
    """See the module. `directory` is its own: console, log device, recovered image. `completions`: of writes,
    while it records. `outputs`: what each operation of the last recording printed; `said`: what the kernel
    said meanwhile; `log`: its log, which is on the log device, or beside it if it was merged from those of
    two devices. `whole`: whether recordings note the calls of their program with what these wrote; `noted`:
    the notes of the last one (`harness.rules.calls`). `notes`: what recovery writes may be asked for; then
    its guests reach the disk by requests, since shared memory keeps only the last contents. `idle_s`: see
    IDLE_S. `clock`: while it records, where its kernel and disk have a choice.
    """

    def __init__(
        self,
        spec: GuestSpec,
        directory: Path,
        log_bytes: int = LOG_BYTES,
        completions: Completions = Completions.HOLD,
        *,
        notes: bool = False,
        idle_s: float = IDLE_S,
        clock: Clock = Clock.AUTO,
    ) -> None:
        self._spec = spec
        self._idle_s = idle_s
        self._completions = completions
        self.directory = directory
        self._log_bytes = log_bytes
        self._disk: Disk | None = None
        self._guest: Guest | None = None
        self._shown: tuple[object, ...] | None = None
        self._size_bytes = 0
        self._remembered: tuple[object, ...] | None = None
        self._kind = USUAL
        self._shares = spec.machine.shares_disk(spec.kernel_image) and not notes
        self._clock = clock
        self._recording = False
        self._spent = False
        self._visits = 0
        self._complaints: frozenset[str] = frozenset()
        self.servers = ForkServers()
        self._known = KnownEntries()
        self._stopped = threading.Event()
        self.outputs: list[str] = []
        self.whole = False
        self.noted = b""
        self.said: tuple[Said, ...] = ()
        self.image = directory / "recovered.img"
        self.log_device = directory / "log.img"
        self.log = self.log_device
        directory.mkdir(parents=True, exist_ok=True)

    # --- life ---------------------------------------------------------------------------------

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End guest and disk. Their files stay."""
        self.servers.close()
        guest, disk = self._guest, self._disk
        self._guest = self._disk = self._shown = self._remembered = None
        self._spent, self._visits = False, 0
        self._complaints = frozenset()
        if guest:
            guest.kill()
        if disk:
            with contextlib.suppress(DiskError):
                disk.close()

    def _end_guest(self) -> None:
        """End the guest alone."""
        if guest := self._guest:
            self._guest, self._spent, self._complaints = None, False, frozenset()
            self._remembered = None
            guest.kill()

    def kill(self) -> None:
        """From another thread: kill the guest, so that the owner's request fails with GuestLost."""
        if guest := self._guest:
            guest.end()

    def stop(self) -> None:
        """From another thread, for good: kill guest and disk, so that the owner's request ends at once, even
        while the guest boots or if the disk does not reply. No others are started.
        """
        self._stopped.set()
        self.kill()
        if disk := self._disk:
            disk.end()

    def _go_on(self) -> None:
        if self._stopped.is_set():
            raise GuestLost("the run was stopped")

    def refuse_if_given_up(self) -> None:
        """Raises NeverBoots if guests of this spec no longer come up, VersionsDiffer if they differ."""
        self._spec.boots.refuse_if_given_up()

    @property
    def boots(self) -> Boots:
        """Whether guests of its spec come up."""
        return self._spec.boots

    @property
    def boots_anew_to_record(self) -> bool:
        """Whether one worker that both records and judges boots another guest each time."""
        return self._shares

    def in_virtual_time(self, schedule: Schedule) -> bool:
        """Whether it records in virtual time, for which its disk has to be memory. Call `show` first."""
        if self._clock is Clock.REAL or not (self._shares and self._kind.is_usual):
            return False
        if self._clock is Clock.VIRTUAL:
            return True
        return bool(schedule.number) and self._spec.machine.has_virtual_time(self._spec.kernel_image)

    def decides_threads(self, schedule: Schedule) -> bool:
        """Whether the schedule decides which thread runs while it records. Call `show` first."""
        machine, image = self._spec.machine, self._spec.kernel_image
        return bool(schedule.number) and self.in_virtual_time(schedule) and machine.decides_threads(image)

    @property
    def initramfs(self) -> Path:
        """What its guests have for their root."""
        return self._spec.initramfs

    @property
    def machine_name(self) -> str:
        return self._spec.machine.name

    @property
    def is_up(self) -> bool:
        """Whether it has a guest, with its disk: a request that went wrong has ended both."""
        return self._guest is not None

    @property
    def guest_pid(self) -> int | None:
        """For tests that kill the guest."""
        return self._guest.process.pid if self._guest else None

    @property
    def disk(self) -> Disk:
        """The disk process, started if it is not running. Raises VersionsDiffer, as any other then does."""
        if self._disk is None:
            self._go_on()
            try:
                self._disk = Disk(shared=self._shares and self._kind.is_usual, kind=self._kind)
            except VersionsDiffer as e:  # as every other one will be
                self.boots.differs(e)
                raise
            self._shown = None
            self.image.unlink(missing_ok=True)  # a new disk process does not know what is in it
        return self._disk

    def show(self, target: Target) -> Disk:
        """Put another base image and log behind the device. A guest stays, unless the size or the kind
        of disk changes: what a disk tells of itself it tells at boot.
        """
        if self._kind != target.disk:
            self.close()
            self._kind = target.disk
        base, log = target.base, target.log
        shown = (base, _made(base), log, log and _made(log), target.order, target.mount_counters)
        if self._shown != shown:
            size = base.stat().st_size
            if self._guest and size != self._size_bytes:
                self.close()
            self.disk.open(base, log, target.order, mount_counters=target.mount_counters)
            self._shown, self._size_bytes = shown, size
        return self.disk

    def boot(self, target: Target) -> None:
        """Show `target`, with a guest on it. Raises as `show` and `guest`."""
        self.show(target)
        self.guest()

    def guest(self, virtual: VirtualTime | None = None) -> Guest:
        """The guest, booted if it is not running. Call `show` first. `virtual`: what one in virtual time is
        given.

        Raises GuestLost if it does not come up, NeverBoots if none does any more, VersionsDiffer for an agent
        of another version, KernelError for a kernel that refuses its modules.
        """
        if self._guest is None:
            self.refuse_if_given_up()
            with self.log_device.open("ab") as f:
                os.ftruncate(f.fileno(), self._log_bytes)
            boot = Boot(
                kernel_image=self._spec.kernel_image,
                initramfs=self._spec.initramfs,
                disk_socket=self.disk.socket,
                log=self.log_device,
                directory=self.directory,
                memory_mib=self._spec.memory_mib,
                disk_memory=self.disk.memory if virtual or not self._recording else None,
                hits=self._spec.recording_hits if self._recording else self._spec.hits,
                virtual=virtual,
            )
            self._guest = self._boot(boot)
        return self._guest

    def _boot(self, boot: Boot) -> Guest:
        machine, boots = self._spec.machine, self._spec.boots
        self._guest = guest = machine.launch(boot)  # from here on `stop` finds it
        try:
            self._go_on()
            guest.wait_until_up(machine.boot_timeout_s)
        except BaseException as e:
            self._guest = None
            guest.kill()
            if isinstance(e, VersionsDiffer):
                boots.differs(e)
            if isinstance(e, GuestLost):
                self._go_on()
                boots.failed(f"{machine.described}, kernel {self._spec.kernel_image}", e)
            raise
        boots.succeeded()
        _need_modules(guest.hello, self._spec.built_for)
        return guest

    def _renew(self, *, recording: bool = False) -> None:
        """Throw away a guest that still holds something of the state before: its disk was still needed; and
        one that has its disk by another way than it must, or notes what it runs in another file; and before
        a recording, one that has complained.
        Completions are held only over vhost-user, so a guest that records has it by that.
        """
        differ = self._shares or self._spec.hits is not None
        hushed = recording and self.has_complained
        if self._spent or hushed or (differ and self._recording != recording):
            self.close()
        self._recording = recording

    @contextlib.contextmanager
    def _losing(self) -> Iterator[None]:
        """Throw both away when anything goes wrong: what they still hold is unknown. What a guest says when
        its disk has ended is the loss of the disk, after which the state is tried again.
        """
        try:
            yield
        except GuestError as e:
            ended = self._disk is not None and self._disk.ended
            self.close()
            if ended:
                raise DiskError(f"the disk ended, and the guest says: {e.what}") from e
            raise
        except PowercutError:
            self.close()
            raise

    # --- record -------------------------------------------------------------------------------

    def record(
        self,
        target: Target,
        operations: Sequence[Operation],
        on_progress: Callable[[int], None] = lambda _: None,
        schedule: Schedule = PLAIN,
        first: int = 0,
    ) -> str:
        """Run `operations` on a fresh disk through dm-log-writes; the log is then `self.log`.
        `schedule`: how the disk completes writes and time passes meanwhile. `first`: the number of the first
        of them. Returns the text of its events
        (`harness.writelog.events`).

        Raises KernelError for a kernel without dm-log-writes, WriteLogError if the log is not what the disk
        shows or does not fit its events, NotSupported if the file system does not support an operation,
        CannotRecord if this disk cannot be recorded in virtual time, GuestError if an operation fails or part
        of the kernel's log was lost, GuestLost.
        """
        self._renew(recording=True)
        with self._losing():
            disk = self.show(dataclasses.replace(target, log=None, order=None))
            disk.switch(CrashState(0))  # drops what an earlier attempt wrote
            is_virtual = self.in_virtual_time(schedule)
            if self._clock is Clock.VIRTUAL and not is_virtual:
                raise CannotRecord("a disk of this kind cannot be recorded in virtual time")
            if schedule.only and not self.decides_threads(schedule):
                raise CannotRecord("no schedule decides which thread runs on this kernel and disk")
            machine = self._spec.machine
            start = wire.RecordStart(
                machine.data_device, machine.log_device, target.mount_whole, whole=self.whole
            )
            self._visits += 1
            carry_out = self._perform if is_virtual else self._converse
            finished, lacks = carry_out(disk, start, operations, on_progress, schedule, first)
            events = ""
            if refused := disk.stats().errors:  # first: such a disk is not what the log says
                raise DiskError(f"the disk refused {refused} requests while recording", self._another_machine)
            if lacks is None:
                self.noted = noted_calls(finished, self.log_device)
                through = target.disk.write_through
                self.log, events = finished_log(
                    finished, disk, self.log_device, self._log_bytes, write_through=through
                )
            if not finished.log_complete:
                raise GuestError("part of the kernel's log was lost while the workload ran")
            self.said = tuple(Said(part.operation, tuple(part.lines)) for part in finished.kernel_log)
            lines = [line for part in self.said for line in part.lines]
            self._heard(target, lines)
            if self._keeps_back(lines):
                raise GuestSpent("the guest kept part of the kernel's log of the workload back")
        if lacks is not None:
            raise lacks
        return events

    @property
    def _another_machine(self) -> str:
        """What to do where this machine's disk does not record. In UML it reaches no data of the kernel
        itself, such as Linux 7.3's page of zeros.
        """
        usual = default_name()
        return "" if self.machine_name == usual else f"record in another machine: --machine {usual}"

    def _converse(
        self,
        disk: Disk,
        start: wire.RecordStart,
        operations: Sequence[Operation],
        on_progress: Callable[[int], None],
        schedule: Schedule,
        first: int,
    ) -> tuple[wire.RecordFinished, NotSupported | None]:
        """One request after the other; if an operation is not supported, which one, with the recording ended
        all the same: nothing is wrong with the guest.
        """
        guest, lacks = self.guest(), None
        self._hold(disk, guest, schedule)
        _need_log_writes(guest)
        guest.request(start, wire.RecordStarted, RECOVER_TIMEOUT_S)
        for step in timers(schedule.timers):
            guest.request(step.request, step.reply, step.timeout_s)
        try:
            self._run(guest, operations, on_progress, schedule, first)
        except NotSupported as e:
            lacks = e
        for step in timers(schedule.timers and USUAL_TIMERS):
            guest.request(step.request, step.reply, step.timeout_s)
        finished = self._finish(guest)
        disk.hold_completions(None)
        return finished, lacks

    def _perform(
        self,
        disk: Disk,
        start: wire.RecordStart,
        operations: Sequence[Operation],
        on_progress: Callable[[int], None],
        schedule: Schedule,
        first: int,
    ) -> tuple[wire.RecordFinished, None]:
        """In virtual time: a guest that has all requests before it boots, and ends with the last reply. One
        that lacks something ends there.
        """
        schedule = with_long_pauses(schedule, len(operations))
        if self.decides_threads(schedule):
            schedule = with_threads(schedule)
        start = msgspec.structs.replace(start, log=VIRTUAL_LOG)
        steps = steps_of(start, operations, schedule, first)
        script = encoded(steps)
        with self.log_device.open("wb") as f:
            f.write(script)
            f.truncate(self._log_bytes)
        held = self._completions is Completions.HOLD
        patience_ns = round(self._idle_s * 1e9) * schedule.patience if held else 0
        virtual = VirtualTime(len(script), schedule.order if held else "", patience_ns, schedule.number)
        self._end_guest()
        guest = self.guest(virtual)
        _need_log_writes(guest)
        self.outputs.clear()
        try:
            for step in steps:
                done = guest.hear(step.reply, step.timeout_s, type(step.request).__name__)
                if isinstance(done, wire.OperationsDone):
                    self._done(done, step)
                    on_progress(len(step.operations))
        except GuestError:
            need_host_space(self.log_device)  # it sees an I/O error; the host knows why
            raise
        self._end_guest()
        assert isinstance(done, wire.RecordFinished)  # noqa: S101  # the last reply; tells mypy
        return done, None

    def _hold(self, disk: Disk, guest: Guest, schedule: Schedule) -> None:
        """Have completions held. A schedule with patience waits by the clock: a guest that sleeps is one that
        waits, and others of its processes are to meet meanwhile.
        """
        idle_s = self._idle_s * schedule.patience if self._completions is Completions.HOLD else None
        machine = guest.process.pid if schedule.patience == 1 else None
        disk.hold_completions(idle_s, machine, schedule.order, schedule.number)

    def _finish(self, guest: Guest) -> wire.RecordFinished:
        """End the recording: the agent unmounts, and writes the events behind the log."""
        try:
            return guest.request(wire.RecordFinish(), wire.RecordFinished, RECOVER_TIMEOUT_S)
        except GuestError:
            need_host_space(self.log_device)  # it sees an I/O error; the host knows why
            raise

    def _run(
        self,
        guest: Guest,
        operations: Sequence[Operation],
        on_progress: Callable[[int], None],
        schedule: Schedule = PLAIN,
        number: int = 0,
    ) -> None:
        self.outputs.clear()
        for step in batches(operations, schedule, number):
            self._stopped.wait(step.pause_s)
            self._go_on()
            self._done(guest.request(step.request, wire.OperationsDone, step.timeout_s), step)
            on_progress(len(step.operations))

    def _done(self, done: wire.OperationsDone, step: Scripted) -> None:
        check_results(done.results, step.number, step.operations)
        self.outputs += [result.output.decode(errors="replace") for result in done.results]

    # --- recover ------------------------------------------------------------------------------

    def recover(
        self,
        target: Target,
        state: CrashState,
        ask: Ask | None = None,
        *,
        note: bool = False,
        fault: DiskFault | None = None,
    ) -> Recovery:
        """Show `state`, let the kernel recover it, walk it, run the checks (`ask`), unmount. `note`: what
        that writes and asks for, for `self.disk.log_writes` and `requests`. `fault`: what the disk does wrong
        meanwhile, until `recover_after_fault`. A guest that may keep to itself what it has said before is
        replaced, and the next one does it again.

        The recovered device is then available from `self.disk.image`. Raises GuestLost, also for a guest that
        did not let go of the file system, cannot have read this state, or sent something that is not a tree;
        GuestError, DiskError.
        """
        try:
            return self._recover(target, state, ask, note=note, fault=fault)
        except GuestSpent:  # as its first visit shows all that there is
            return self._recover(target, state, ask, note=note, fault=fault)

    def _recover(
        self, target: Target, state: CrashState, ask: Ask | None, *, note: bool, fault: DiskFault | None
    ) -> Recovery:
        self._renew()
        with self._losing():
            disk = self.show(target)
            guest = self.guest()
            self._remember(guest, target)
            self._visits += 1
            disk.switch(state)
            if note:
                disk.note_writes()
            if fault is not None:
                disk.inject(fault)
            seen, outcome = self._mounted_once(guest, target, state, keep=ask is not None)
            complete = seen.log_complete
            if ask is not None and not seen.mount_errno:
                results = ask(outcome.tree, functools.partial(_run_check, guest))
                after = guest.request(wire.Unmount(), wire.Unmounted, RECOVER_TIMEOUT_S)
                complete = complete and after.log_complete
                outcome = dataclasses.replace(
                    outcome,
                    checks=results,
                    unmount_errno=after.unmount_errno,
                    kernel_log=(*outcome.kernel_log, *after.kernel_log),
                )
            if not complete:
                raise GuestError(f"part of the kernel's log of state {state} was lost")
            self._check_visit(state, outcome, disk.stats(), guest)
            self._need_all_said(target, outcome, faulty_disk=fault is not None)
            return Recovery(outcome, (seen.mount_us, seen.walk_us, seen.unmount_us), seen.looks)

    def remember(self, target: Target) -> wire.OutsideSeen | None:
        """Have the guest look at what may not change, of the target's base image; None: of that it has looked
        already. Raises GuestError where that cannot be mounted or read, GuestLost, DiskError.
        """
        self._renew()
        with self._losing():
            self.show(target)
            return self._remember(self.guest(), target)

    def _remember(self, guest: Guest, target: Target) -> wire.OutsideSeen | None:
        base = (target.base, *_made(target.base))
        if target.outside is None or self._remembered == base:
            return None
        self._visits += 1
        self.disk.switch(CrashState(0))
        request = wire.Remember(
            device=self._spec.machine.data_device,
            mount=target.mount,
            clock_s=CLOCK_S,
            outside=target.outside,
        )
        seen = guest.request(request, wire.OutsideSeen, REMEMBER_TIMEOUT_S)
        self._heard(target, seen.kernel_log)
        self._remembered = base
        return seen

    def recover_after_fault(self, target: Target, state: CrashState) -> tuple[int, Outcome]:
        """After `recover` on a faulty disk: let it err no more, and mount, walk and unmount once more
        what is there. Returns how many requests the fault befell, and what was seen now (no fsck). Raises as
        `recover`.
        """
        with self._losing():
            disk, guest = self.disk, self.guest()
            if self._spent:
                raise GuestLost(f"state {state}: not unmounted while its disk erred", guest.console())
            hits, before = disk.end_fault(), disk.stats().reads
            seen, outcome = self._mounted_once(guest, target, state)
            if not seen.log_complete:
                raise GuestError(f"part of the kernel's log of state {state} was lost")
            counted = disk.stats()
            self._check_visit(
                state, outcome, msgspec.structs.replace(counted, reads=counted.reads - before), guest
            )
            self._heard(target, outcome.kernel_log)
            return hits, outcome

    def _mounted_once(
        self, guest: Guest, target: Target, state: CrashState, *, keep: bool = False
    ) -> tuple[wire.Recovered, Outcome]:
        """What the guest says of one mount, and of all that follows it."""
        request = wire.Recover(
            device=self._spec.machine.data_device,
            mount=target.mount,
            clock_s=CLOCK_S,
            keep_mounted=keep,
            outside=target.outside is not None,
        )
        seen = guest.request(request, wire.Recovered, RECOVER_TIMEOUT_S)
        try:
            outcome = outcome_of(seen, self._known)
            if "ro" in target.mount_options.split(","):
                outcome = dataclasses.replace(outcome, read_only=False)
            return seen, outcome
        except wire.WireError as e:
            raise GuestLost(f"state {state}: the guest sent no tree: {e.what}", guest.console()) from e

    def use(
        self,
        target: Target,
        keep: Sequence[str] | None = (),
        check: CheckImage | None = None,
        *,
        before: wire.Looks = NOT_LOOKED,
        contents: bool = False,
    ) -> Used:
        """Mount the file system that `recover` has just recovered once more, and walk it. Then write to it,
        and remove all that it holds but the names `keep` in its root; None: nothing is written. At last
        `check` what is left, if nothing went wrong. `before`: what `recover` saw. `contents`: read files,
        too. The disk then shows again what recovery had left.

        Raises GuestLost, also for a guest that does not let go of the file system or cannot have read it;
        GuestError, DiskError.
        """
        with self._losing():
            disk, guest = self.disk, self.guest()
            disk.snapshot()
            request = wire.Use(
                device=self._spec.machine.data_device,
                mount=target.mount,
                clock_s=CLOCK_S,
                before=before,
                read_contents=contents,
                write=keep is not None,
                keep=list(keep or ()),
                deadline_s=USE_DEADLINE_S,
            )
            answer = guest.request(request, wire.Used, USE_DEADLINE_S + RECOVER_TIMEOUT_S)
            try:
                seen = usability_of(answer)
                tree = second_tree(answer, self._known, contents=contents) if answer.entries else None
            except wire.WireError as e:
                raise GuestLost(f"the guest's answer makes no sense: {e.what}", guest.console()) from e
            read: Sequence[int] | None = ()
            if check is not None and tree is None and seen == Usability(kernel_log=seen.kernel_log):
                disk.image(self.image)
                result, read = check(self.image)
                disk.also_read(read or ())
                seen = dataclasses.replace(seen, fsck=result)
            blocks, counted = disk.roll_back(), disk.stats()
            if not answer.log_complete:
                raise GuestError("part of the kernel's log was lost")
            if counted.errors:
                raise DiskError(f"the disk refused {counted.errors} requests")
            if errno.EBUSY in (seen.mount_errno, seen.remount_errno, seen.unmount_errno):
                raise GuestLost("something still uses the disk: EBUSY", guest.console())
            if not seen.mount_errno and not blocks:
                raise GuestLost("the file system was mounted without a read of the disk", guest.console())
            self._heard(target, seen.kernel_log)
            self._spent = bool(seen.unmount_errno)
            kept_back = self._keeps_back(seen.kernel_log)
            return Used(seen, None if read is None else blocks, answer.looks, tree, kept_back)

    def beside(self, target: Target, script: str) -> tuple[int, str, tuple[int, ...]]:
        """Run a shell script in the guest, beside the disk that `recover` has just recovered. Returns its
        exit code, its output, and the numbers of the 4 KiB blocks that it read of what recovery had left: it
        depends on nothing else. The disk then shows again what recovery had left.

        Raises GuestLost, also for a script that does not end; GuestError, DiskError.
        """
        with self._losing():
            disk = self.disk
            disk.snapshot()
            exit_code, output = self._run_beside(target, script)
            blocks = disk.roll_back()
            if disk.stats().errors:
                raise DiskError(f"the disk refused {disk.stats().errors} requests")
            return exit_code, output, blocks

    def make(self, target: Target, script: str, image: Path) -> None:
        """As `change`. Raises EnvironmentLacks with its output if the script fails, GuestLost, DiskError."""
        exit_code, output = self.change(target, script, image)
        if exit_code:
            raise EnvironmentLacks(
                f"the steps that make {target.fstype} in a guest failed: {exit_code}: {output.strip()}",
                "correct them in vms/stacks or vms/layers, or name another kernel",
            )

    def change(self, target: Target, script: str, image: Path) -> tuple[int, str]:
        """Run a shell script in the guest, beside a disk with the target's base image, and write what it made
        of that into `image`, if its exit code is 0. Returns that and its output. Raises GuestLost, DiskError.
        """
        self._renew()
        with self._losing():
            disk = self.show(dataclasses.replace(target, log=None, order=None))
            disk.switch(CrashState(0))
            self.guest()
            exit_code, output = self._run_beside(target, script)
            if not exit_code:
                image.unlink(missing_ok=True)
                disk.image(image)
            return exit_code, output

    def _run_beside(self, target: Target, script: str) -> tuple[int, str]:
        guest = self.guest()
        request = wire.RunBeside(
            device=self._spec.machine.data_device,
            mount=target.mount,
            clock_s=CLOCK_S,
            argv=["/bin/busybox", "sh", "-c", script],
            deadline_s=BESIDE_DEADLINE_S,
        )
        done = guest.request(request, wire.ProgramDone, BESIDE_DEADLINE_S + RECOVER_TIMEOUT_S)
        said = done.output.decode(errors="replace")
        if done.exit_code is None:
            raise GuestLost(f"a program beside the disk did not end: {said.strip()}", guest.console())
        return done.exit_code, said

    @property
    def has_complained(self) -> bool:
        """Whether its guest has: it may keep to itself what it would have said else."""
        return bool(self._complaints)

    def _need_all_said(self, target: Target, outcome: Outcome, *, faulty_disk: bool) -> None:
        """Raises GuestSpent if this guest may have kept something to itself. What a kernel says once
        (WARN_ON_ONCE, lockdep) or so often in a while (`*_ratelimited`) it says of the first states alone. So
        a guest that has complained counts only where it has the same complaints again. While the disk is
        faulty, any complaint does, since then one is enough.
        """
        said = complaints(_pattern(target.errors), outcome.kernel_log).keys()
        enough = said or outcome.mount_errno if faulty_disk else self._complaints <= said
        if self._complaints and not enough:
            raise GuestSpent("the guest has complained before, and may not say so again")
        if self._keeps_back(outcome.kernel_log):
            raise GuestSpent("the guest keeps part of the kernel's log back")
        self._heard(target, outcome.kernel_log)

    def _keeps_back(self, log: Sequence[str]) -> bool:
        """Whether lines are missing from the kernel's log that a fresh guest would have. One that is fresh
        would have no more the next time.
        """
        return self._visits > 1 and bool(suppressed(log))

    def _heard(self, target: Target, log: Sequence[str]) -> None:
        self._complaints |= complaints(_pattern(target.errors), log).keys()

    def _check_visit(self, state: CrashState, outcome: Outcome, counted: wire.Counted, guest: Guest) -> None:
        """Raise if `outcome` may not be that of `state`; mark a guest that is unusable for the next one."""
        if counted.errors:
            raise DiskError(f"the disk refused {counted.errors} requests in state {state}")
        if errno.EBUSY in (outcome.mount_errno, outcome.unmount_errno):
            # The next mount would show what is still mounted (`sget_dev`, fs/super.c).
            raise GuestLost(f"something still uses the disk at state {state}: EBUSY", guest.console())
        if not outcome.mount_errno and not counted.reads:
            raise GuestLost(f"state {state} was mounted without a read of the disk", guest.console())
        self._spent = bool(outcome.unmount_errno)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The outcome (no fsck yet), the microseconds of mount, walk and unmount in the guest, and digests of the
    tree.
    """

    outcome: Outcome
    times_us: tuple[int, int, int]
    looks: wire.Looks


@dataclass(frozen=True, slots=True)
class Used:
    """What a second mount, and writing, showed. `blocks`: numbers of the 4 KiB blocks that were read for it
    of what recovery had left: it depends on nothing else; None if they are not known. `looks`: digests of the
    tree that the second mount showed; `tree`: that tree, if it is not the first mount's. `kept_back`: lines
    are missing from the kernel's log that a fresh guest would have.
    """

    result: Usability
    blocks: tuple[int, ...] | None
    looks: wire.Looks
    tree: Tree | None
    kept_back: bool = False


def _made(file: Path) -> tuple[int, ...]:
    """What tells a file from another one that takes its path."""
    seen = file.stat()
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


@functools.cache
def _pattern(errors: tuple[str, ...]) -> re.Pattern[str] | None:
    return any_of(errors)


# Format, symbols or signature belong to another kernel (kernel/module/main.c).
_FOREIGN_MODULE = frozenset({errno.ENOEXEC, errno.ENOENT, errno.EKEYREJECTED, errno.EBADMSG})


def _need_modules(hello: wire.Hello, built_for: Mapping[str, str]) -> None:
    """Raises KernelError for modules built for another kernel. Missing hardware or firmware does not matter:
    which modules a kernel loads softly depends on the processor.
    """

    def named_one(e: wire.ModuleError) -> str:
        release = built_for.get(e.name, "")
        other = f"built for {release}" if release != hello.release else "built for another build of it"
        return f"{e.name}: {errno.errorcode[e.errno]} ({e.errno})" + (f", {other}" if release else "")

    refused = [e for e in hello.module_errors if e.errno in _FOREIGN_MODULE]
    if refused:
        named = "; ".join(map(named_one, refused))
        raise KernelError(
            f"this kernel ({hello.release}) refuses modules: {named}",
            "build them for this very kernel: from its source and configuration, or against its headers",
        )


def _need_log_writes(guest: Guest) -> None:
    if "log-writes" not in guest.hello.dm_targets:
        raise KernelError(
            f"this kernel ({guest.hello.release}) has no dm-log-writes target",
            "enable CONFIG_DM_LOG_WRITES; if it is a module, name the directory of the modules",
        )


def _run_check(guest: Guest, check: Check, acknowledged: Sequence[str]) -> CheckResult:
    argv = list(check.argv)
    if check.application:
        text = "".join(f"{line}\n" for line in acknowledged).encode()
        put = wire.PutFile(path=ACKNOWLEDGED, mode=0o644, data=text)
        guest.request(put, wire.Done, RECOVER_TIMEOUT_S)
        argv = ["powercut-on-copy", *check.ahead, argv[0], ACKNOWLEDGED, *argv[1:]]
    request = wire.RunProgram(argv=argv, deadline_s=PROGRAM_TIMEOUT_S)
    done = guest.request(request, wire.ProgramDone, PROGRAM_TIMEOUT_S + 10.0)
    return CheckResult(check.operation, done.exit_code, done.output.decode(errors="replace"))


def find_agent() -> Path:
    """The static agent that becomes PID 1."""
    return built_part("POWERCUT_AGENT", "x86_64-unknown-linux-gnu", "release", "powercut-agent")
