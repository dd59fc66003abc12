"""One crash state, looked at live: what was on the disk, what recovery read, and what it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.blocks import describe, namer, names_of_log, written_paths
from harness.cases.recording import UNTOUCHED, Recording
from harness.cases.repair import repaired
from harness.errors import GuestLost, UsageError
from harness.explain.trees import trees_of
from harness.findings.repro import ReproContext
from harness.guests.disk import Reads
from harness.guests.session import Session
from harness.model import BLOCK_BYTES, CrashState, EntryFlag, Outcome
from harness.oracles import Judge
from harness.report.live import Block, Look, Write
from harness.writelog import read_log
from harness.writelog.log import changes

_WRITES = 60  # of the log, before the cut


def look(shown: ReproContext) -> Look:
    """Recover the state in a guest of its own. Raises GuestLost, GuestError, DiskError, and UsageError for a
    state that is a cut in a recovery.
    """
    state, recording = shown.point.state, shown.recording
    if state.again:
        raise UsageError(f"{shown.point} is a cut in a recovery", "powercut repro shows it")
    profile = recording.profile
    target, on_disk = recording.shown(state)
    with Session(shown.spec, shown.directory / "look", notes=True) as session:
        if profile.repair is not None:
            target, on_disk = repaired(session, target, on_disk, profile.repair), UNTOUCHED
        try:
            outcome = session.recover(target, on_disk, note=True).outcome
        except GuestLost as e:
            return Look(str(shown.point), "unknown", (e.what,), kernel_log=tuple(e.console.splitlines()))
        reads = session.disk.reads()
        wrote = _recovery(session, shown)
        session.disk.image(session.image)
        fsck = profile.check_filesystem(session.image) if profile.fsck else None
        outcome = replace(outcome, fsck=fsck)
        session.show(target).switch(on_disk)
        before = session.directory / "before.img"
        session.disk.image(before)
        return _told(shown, outcome, list(_blocks(recording, reads, before.read_bytes())), wrote)


def _told(shown: ReproContext, outcome: Outcome, reads: list[Block], wrote: list[Write] | None) -> Look:
    recording, state = shown.recording, shown.point.state
    profile = recording.profile
    judge = Judge(
        profile.contract,
        recording.history,
        checks=(),
        error_patterns=tuple(profile.console.errors),
    )
    position = recording.position(state)
    judged = judge.judge(position, outcome)
    return Look(
        str(shown.point),
        judged.verdict.value,
        tuple(v.summary for v in judged.violations) + judged.unknown,
        tuple(_on_disk(recording, state)),
        tuple(reads),
        None if wrote is None else tuple(wrote),
        outcome.kernel_log,
        outcome.fsck.output if outcome.fsck else "",
        trees_of(judge.timeline, position.acked, outcome, judged.violations, profile.contract.made_by_mkfs),
    )


def _on_disk(recording: Recording, state: CrashState) -> Iterator[Write]:
    """The last writes of the log that were sent before the cut, with what had become of each."""
    legal = recording.legal
    if legal is not None:
        shown = legal.on_disk(state)
        kept = set(range(shown.prefix)) - set(shown.dropped)
        there = {legal.chunks[n].entry for n in kept}
        gone = {legal.chunks[n].entry for n in legal.lost(state)}
        sent = dict.fromkeys(chunk.entry for chunk in legal.chunks[: shown.prefix])
        fates = {
            e: "lost" if e not in there else "part lost" if e in gone else "on the platter" for e in sent
        }
    else:
        cut = recording.write_log.entries[: state.prefix]
        fates = {e.index: "lost" if e.index in state.dropped else "on the platter" for e in cut if changes(e)}
    names = names_of_log(
        recording.base,
        recording.write_log,
        recording.log,
        second_bytes=recording.profile.second_offset,
        paths=written_paths(recording.workload.operations),
        order=legal.order if legal is not None else (),
    )
    for entry, fate in list(fates.items())[-_WRITES:]:
        logged = recording.write_log.entries[entry]
        text = describe(names.get(entry, ()), 3) or "?"
        yield Write(entry, logged.sector, logged.sectors, text, fate)


def _blocks(recording: Recording, reads: Reads, before: bytes) -> Iterator[Block]:
    """What recovery, and the walk behind it, read of the crashed disk, in order."""
    name = namer(
        recording.base,
        recording.write_log,
        recording.log,
        second_bytes=recording.profile.second_offset,
        order=recording.legal.order if recording.legal is not None else (),
    )
    data = set(reads.data)
    for block in reads.blocks:
        at = block * BLOCK_BYTES
        text = describe(name(at, before[at : at + BLOCK_BYTES]), 3)
        yield Block(block, text or "?", block in data)


def _recovery(session: Session, shown: ReproContext) -> list[Write] | None:
    """What recovery wrote, in order; None if that is more than a disk keeps."""
    recording = shown.recording
    file = shown.directory / "wrote.log"
    told = session.disk.log_writes(file)
    if not told.complete:
        return None
    whole = read_log(file)
    own = replace(whole, entries=whole.entries[told.state :])  # those before are the state itself
    names = names_of_log(recording.base, own, file, second_bytes=recording.profile.second_offset)
    return [
        Write(n, e.sector, e.sectors, describe(names.get(e.index, ()), 3) or _flags(e.flags), _flags(e.flags))
        for n, e in enumerate(own.entries)
        if changes(e) or EntryFlag.FLUSH in e.flags
    ]


def _flags(flags: EntryFlag) -> str:
    named = (EntryFlag.FLUSH, EntryFlag.FUA, EntryFlag.DISCARD)
    return " ".join(str(f.name).lower() for f in named if f in flags) or "write"
