"""Real modes never show what any/posix forbids: the trees that their crash states come back with.

Each tree is held against the program's own calls: what had returned and had begun when the power failed. So
a violation is a real file system that breaks what fsync(2) promises, or rules that promise too much.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.filesystems.profiles import select_profiles
from harness.kernels.find import find_kernel
from harness.ruled.judging import followed
from harness.rules.calls import Notes
from harness.rules.micro import Sync
from harness.tests.rules.allowed import Allowed
from harness.tests.vm.came_back import Back, Machine, come_back, note, record
from harness.workloads.load import select_workloads

MODES = ("ext4/ordered", "ext4/writeback", "xfs/default", "btrfs/default", "f2fs/posix")
MOST = 80
"""Contents that are recovered of each."""
KNOWN = {
    "f2fs/posix": (
        "are neither zeros nor from a call",  # before fsync has returned: f2fs-fsync-stale-data
        "would be the least",  # the first fsync after a checkpoint is lost: f2fs-fsync-first-node
        "or a later one",  # the same
    )
}
"""What a mode is known to show that any/posix forbids, by its folders in reports/findings."""

# busybox: `sync FILE` is fsync. That of another file, between two calls, writes more than was asked for.
PROGRAMS = {
    "replaced": """
        echo old >c; sync c; sync .; powercut-ack 0
        echo newer >t; mv t c; echo x >other; sync other; sync .; powercut-ack 1
        echo newest >t; sync t; mv t c; sync .; powercut-ack 2""",
    "names": """
        mkdir d; echo 1 >d/a; echo 2 >d/b; ln d/a l; sync d; mv d e; ln -s e/a s; echo x >o; sync o
        mv e/a top; sync e; rm e/b; chmod 600 top; mkdir f; mv top f/a; sync f; sync o; rm l; sync .
        powercut-ack 0""",
    "sizes": """
        seq 4000 >f; sync f; sync .; powercut-ack 0; truncate -s 5000 f; echo x >o; sync o
        truncate -s 15000 f; sync o; echo y >>f; sync o; sync f; powercut-ack 1; seq 900 >>f; sync o; sync""",
    "blocks": """
        seq 9000 | head -c 40000 >/tmp/x; tr 0-9 a-j </tmp/x >/tmp/y
        dd if=/tmp/x of=f bs=40000 2>/dev/null; echo a >n; sync n; sync f; sync .; powercut-ack 0
        dd if=/tmp/y of=f bs=9000 count=2 conv=notrunc 2>/dev/null; echo b >>n; sync n
        dd if=/tmp/y of=f bs=1000 seek=30 count=8 conv=notrunc 2>/dev/null; sync f; powercut-ack 1
        echo c >>n; sync""",
}
INSTALLED = ("journal-magic", "unlinked-open")


def _written(folder: Path, name: str) -> str:
    """One of PROGRAMS as a workload."""
    place = folder / name
    place.mkdir()
    (place / "workload.toml").write_text(f'summary = "{name}"\n')
    (place / "run").write_text(f"#!/bin/sh\nset -e\n{PROGRAMS[name]}\n")
    (place / "check").write_text("#!/bin/sh\nexit 0\n")
    return str(place)


def _seen(folder: Path, kernel: Path, program: str, mode: str) -> tuple[Notes, list[Back]]:
    """The program's calls, and what came back of it in one mode."""
    machine = Machine(find_kernel(str(kernel)), folder)
    named = _written(folder, program) if program in PROGRAMS else program
    (workload,) = select_workloads([named])
    notes = note(machine, workload)
    (profile,) = select_profiles([mode])
    session, recording = record(machine, profile, workload)
    with session:
        return notes, list(come_back(session, recording, notes, MOST))


def _allowed(notes: Notes) -> Allowed:
    (rules,) = (profile.rules for profile in select_profiles(["any/posix"]))
    assert rules is not None
    return Allowed(followed(notes, rules))


def _refused(allowed: Allowed, backs: list[Back]) -> dict[str, str]:
    """Why trees are refused, each with the first state that shows it."""
    found: dict[str, str] = {}
    for back in backs:
        if why := allowed.refusal(back.files, allowed.between(back.returned, back.begun)):
            found.setdefault(why, f"{back.state}, {back.returned} calls had returned")
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", [*PROGRAMS, *INSTALLED])
def test_a_real_mode_shows_nothing_that_any_posix_forbids(
    tmp_path: Path, uml_kernel: Path, program: str, mode: str
) -> None:
    notes, backs = _seen(tmp_path, uml_kernel, program, mode)
    allowed = _allowed(notes)
    assert backs[0].returned == len(notes.calls)
    assert backs[0].files == frozenset(notes.left), (
        "it did the same twice: when its calls were noted, and here"
    )
    refused = _refused(allowed, backs)
    known = KNOWN.get(mode, ())
    assert {why: at for why, at in refused.items() if not any(words in why for words in known)} == {}
    # Rules that promise more than any file system keeps are seen to be wrong.
    allowed.effect.syncs[:] = [Sync(n, allowed.effect.issued(n)) for n in range(len(notes.calls))]
    assert _refused(allowed, backs)


def test_a_mode_that_loses_what_was_synced_shows_what_any_posix_forbids(
    tmp_path: Path, uml_kernel: Path
) -> None:
    """Without barriers no cache is flushed: a whole way from the disk to the rules that can fail."""
    notes, backs = _seen(tmp_path, uml_kernel, "names", "ext4/nobarrier")
    assert any("made durable" in why for why in _refused(_allowed(notes), backs))
