"""One crash state, looked at live: what was on the disk, what recovery read, and what it wrote.

It is recovered and judged as `powercut repro` does it, by the same function: a page never says anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.blocks import NamedLog, describe, named_log, written_paths
from harness.blocks.fields import BlockName
from harness.cases.attempts import Unobserved
from harness.cases.recording import Recording
from harness.errors import UsageError
from harness.explain.trees import trees_of
from harness.findings.repro import ReproContext, recover_and_judge
from harness.guests.disk import BlockReads
from harness.guests.session import Session
from harness.model import BLOCK_BYTES, CrashState, EntryFlag, Judgement, LogEntry, Outcome
from harness.oracles.replay import replay
from harness.report.live import Block, LiveLook, LiveWrite
from harness.states.legal import LegalStates
from harness.writelog import read_log
from harness.writelog.log import changes

_WRITES = 60  # of a log, before the cut
Names = Mapping[int, Sequence[BlockName]]


class CaseNames:
    """What the blocks of a case's log are called: the whole log is read for that, so it is kept from one
    state to the next.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], NamedLog] = {}

    def of(self, recording: Recording) -> NamedLog:
        """For a recording of the case, as it is looked at for a state."""
        order = recording.legal.order if recording.legal is not None else ()
        if order not in self._known:
            self._known[order] = named_log(
                recording.base,
                recording.write_log,
                recording.log,
                second_bytes=recording.profile.second_offset,
                paths=written_paths(recording.workload.operations),
                order=order,
            )
        return self._known[order]


def look(shown: ReproContext, names: CaseNames) -> LiveLook:
    """Recover the state in a guest of its own, and judge it. Raises DiskError, and as a boot does.

    What was read and written is not known where the guest was lost: its disk went with it. Raises UsageError
    for a state that is recovered on a faulty disk.
    """
    if shown.point.state.fault:
        raise UsageError(f"{shown.point} is recovered on a faulty disk", "powercut repro shows it")
    with Session(shown.spec, shown.directory / "look", notes=True) as session:
        outcome, judgement = recover_and_judge(shown, session, notes=True)
        found = _judged(shown, outcome, judgement, names.of(shown.recording))
        if not session.is_up:
            return replace(found, wrote=(), lost=True)
        reads = session.disk.reads()
        wrote = _recovery(session, shown)
        session.disk.switch(shown.recording.shown(shown.point.state)[1])
        before = session.directory / "before.img"
        session.disk.image(before)
        blocks = tuple(_blocks(names.of(shown.recording), reads, before.read_bytes()))
        return replace(found, reads=blocks, wrote=wrote)


def _judged(
    shown: ReproContext, outcome: Outcome | Unobserved, judgement: Judgement, names: NamedLog
) -> LiveLook:
    """The judgement of a state, with everything that is known of the state without its disk."""
    recording, state = shown.recording, shown.point.state
    found = LiveLook(
        str(shown.point),
        judgement.verdict.value,
        judgement.violations,
        judgement.unknown,
        on_disk=tuple(_on_disk(recording, state.first, names.writes)),
        cut_again=tuple(_cut_again(recording, state)),
    )
    if isinstance(outcome, Unobserved):
        return found
    contract, usable = recording.profile.contract, outcome.usable
    timeline, acked = replay(contract, recording.history), recording.position(state).acked
    log = outcome.lost.splitlines() if outcome.lost else outcome.kernel_log
    return replace(
        found,
        kernel_log=tuple(log),
        use_log=(tuple(usable.lost.splitlines()) or usable.kernel_log) if usable else (),
        fsck=outcome.fsck.output if outcome.fsck else "",
        trees=trees_of(timeline, acked, outcome, judgement.violations, contract.made_by_mkfs),
    )


def _on_disk(recording: Recording, state: CrashState, names: Names) -> Iterator[LiveWrite]:
    """The last writes of the log that were sent before the cut, with what had become of each."""
    entries = recording.write_log.entries
    if recording.legal is not None:
        fates = _fates(recording.legal, state)
    else:
        cut = (e for e in entries[: state.prefix] if changes(e))
        fates = {e.index: "lost" if e.index in state.dropped else "on the platter" for e in cut}
    yield from _last(fates, entries, names)


def _cut_again(recording: Recording, state: CrashState) -> Iterator[tuple[LiveWrite, ...]]:
    """The writes of each recovery that was cut, the last recovery first, each with its fate."""
    while state.again:
        recovery, cut = recording.recoveries[state.recovered], state.again[-1]
        entries, names = _own_writes(recording, recovery.log, recovery.state_entries)
        yield tuple(_last(_fates(recovery.legal, cut), entries, names))
        state = state.recovered


def _own_writes(recording: Recording, log: Path, state_entries: int) -> tuple[list[LogEntry], Names]:
    """The entries of a recovery's log behind those that are the state, counted from 0, and their names."""
    whole = read_log(log)
    named = named_log(recording.base, whole, log, second_bytes=recording.profile.second_offset)
    own = [replace(e, index=n) for n, e in enumerate(whole.entries[state_entries:])]
    return own, {e.index: named.writes.get(state_entries + e.index, ()) for e in own}


def _fates(legal: LegalStates, state: CrashState) -> dict[int, str]:
    """What had become of each write that was sent before the cut."""
    shown = legal.on_disk(state)
    kept = set(range(shown.prefix)) - set(shown.dropped)
    there = {legal.chunks[n].entry for n in kept}
    gone = {legal.chunks[n].entry for n in legal.lost(state)}
    sent = dict.fromkeys(chunk.entry for chunk in legal.chunks[: shown.prefix])
    return {e: "lost" if e not in there else "part lost" if e in gone else "on the platter" for e in sent}


def _last(fates: Mapping[int, str], entries: Sequence[LogEntry], names: Names) -> Iterator[LiveWrite]:
    for entry, fate in list(fates.items())[-_WRITES:]:
        logged = entries[entry]
        text = describe(names.get(entry, ()), 3) or _flags(logged.flags)
        yield LiveWrite(entry, logged.sector, logged.sectors, text, fate)


def _blocks(names: NamedLog, reads: BlockReads, before: bytes) -> Iterator[Block]:
    """What recovery, and the walk behind it, read of the crashed disk, in order."""
    data = set(reads.data)
    for block in reads.blocks:
        at = block * BLOCK_BYTES
        text = describe(names.block(at, before[at : at + BLOCK_BYTES]), 3)
        yield Block(block, text or "?", block in data)


def _recovery(session: Session, shown: ReproContext) -> tuple[LiveWrite, ...] | None:
    """What recovery wrote, in order; None if that is more than a disk keeps."""
    file = shown.directory / "wrote.log"
    told = session.disk.log_writes(file)
    if not told.complete:
        return None
    entries, names = _own_writes(shown.recording, file, told.state)
    return tuple(
        LiveWrite(e.index, e.sector, e.sectors, describe(names.get(e.index, ()), 3) or how, how)
        for e in entries
        if (how := _flags(e.flags)) and (changes(e) or EntryFlag.FLUSH in e.flags)
    )


def _flags(flags: EntryFlag) -> str:
    named = (EntryFlag.FLUSH, EntryFlag.FUA, EntryFlag.DISCARD)
    return " ".join(str(f.name).lower() for f in named if f in flags) or "write"
