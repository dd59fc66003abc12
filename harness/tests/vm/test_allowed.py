"""Real modes never show what any/posix forbids: the trees that their crash states come back with.

Each tree is held against the program's own calls: what had returned and had begun when the power failed. So
a violation is a real file system that breaks what fsync(2) promises, or rules that promise too much. This is
a part; `make allowed` goes through every application and every mode (`harness/tests/allowed.py`).
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from harness.filesystems.profiles import select_profiles
from harness.guests.initramfs import need_brought
from harness.kernels.find import find_kernel
from harness.ruled.judging import NotJudged
from harness.tests.allowed import (
    cluster,
    known_losses,
    refusals,
    row_of,
    rules_of,
    unknown,
    with_cluster,
)
from harness.tests.needs import needed
from harness.tests.there import there
from harness.tests.vm.came_back import Machine, Recorded, record
from harness.workloads.load import select_workloads

MODES = ("ext4/ordered", "ext4/writeback", "xfs/default", "btrfs/default", "f2fs/posix")
MOST = 80
"""Contents that are recovered of each."""

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
RANDOM = {
    "sqlite-wal-full": "xfs/default",
    "git-commit-all": "btrfs/default",
    "lmdb-sync": "ext4/ordered",
    "redis-always": "ext3/ordered",
    "parallel-fsync": "nilfs2/default",
}
"""Applications that write other bytes, names or times when they run again, or call in another order."""


def recorded(folder: Path, kernel: Path, program: str, mode: str) -> Recorded:
    """A program, one of PROGRAMS or one that is there, on a real file system. Its session is to be closed."""
    if program in PROGRAMS:
        place = folder / program
        place.mkdir()
        (place / "workload.toml").write_text(f'summary = "{program}"\n')
        (place / "run").write_text(f"#!/bin/sh\nset -e\n{PROGRAMS[program]}\n")
        (place / "check").write_text("#!/bin/sh\nexit 0\n")
    named = str(folder / program) if program in PROGRAMS else program
    (workload,), (profile,) = select_workloads([named]), select_profiles([mode])
    return record(Machine(find_kernel(str(kernel)), folder), profile, workload)


CELLS = [(program, mode) for program in (*PROGRAMS, *INSTALLED) for mode in MODES] + list(RANDOM.items())


@pytest.mark.parametrize(("program", "mode"), CELLS)
def test_a_real_mode_shows_nothing_that_any_posix_forbids(
    tmp_path: Path, uml_kernel: Path, program: str, mode: str
) -> None:
    """Beside bugs of its own that are known. By rules that promise more than any file system keeps, some of
    the same trees are wrong.
    """
    made = recorded(tmp_path, uml_kernel, program, mode)
    with made.session:
        row = row_of(made, mode, program, MOST)
    assert (row.why_not, unknown(row, known_losses())) == ("", [])
    assert row.strict


def test_a_cluster_that_this_host_made_is_recorded_and_the_guest_makes_none(
    tmp_path: Path, uml_kernel: Path
) -> None:
    (workload,), (profile,) = select_workloads(["postgresql-single"]), select_profiles(["ext4/ordered"])
    with needed():
        need_brought(workload)
    made = record(Machine(find_kernel(str(uml_kernel)), tmp_path), profile, with_cluster(workload))
    with made.session:
        row = row_of(made, "ext4/ordered", workload.name, 20)
    assert (row.why_not, unknown(row, known_losses())) == ("", [])
    assert row.strict
    with tarfile.open(fileobj=io.BytesIO(cluster())) as archive:
        own_number = there(archive.extractfile("cluster/global/pg_control")).read(8)
    (control,) = (file for file in made.notes.left if file.path == "cluster/global/pg_control")
    assert control.contents.startswith(own_number)


@pytest.mark.parametrize("program", ["names", "sqlite-rollback-full"])
def test_a_mode_that_loses_what_was_synced_shows_what_any_posix_forbids(
    tmp_path: Path, uml_kernel: Path, program: str
) -> None:
    """Without barriers no cache is flushed: a whole way from the disk to the rules that can fail."""
    made = recorded(tmp_path, uml_kernel, program, "ext4/nobarrier")
    with made.session:
        allowed = rules_of(made.notes, made.recording.profile)
        assert any("(durable by " in why for _, why in refusals(allowed, made.come_back(MOST)))


def test_notes_that_are_wrong_are_not_believed(tmp_path: Path, uml_kernel: Path) -> None:
    """A byte, a place or a call that was not what the program did is told before any state is looked at: the
    calls, done again, do not give what it left. Of what was overwritten or removed the law says nothing:
    there, a wrong note refuses what came back.
    """
    made = recorded(tmp_path, uml_kernel, "sqlite-wal-full", "ext4/ordered")
    made.session.close()
    notes, profile = made.notes, made.recording.profile
    assert rules_of(notes, profile)
    last = max(n for n, call in enumerate(notes.calls) if call.text.startswith("pwrite(bank.db, "))
    before, wrong, behind = notes.calls[:last], notes.calls[last], notes.calls[last + 1 :]
    flipped = bytearray(notes.data)
    flipped[wrong.at] ^= 1
    others = (
        replace(notes, data=bytes(flipped)),
        replace(notes, calls=(*before, *behind)),
        replace(notes, calls=(*before, replace(wrong, offset=wrong.offset + 1), *behind)),
    )
    for spoilt in others:
        with pytest.raises(NotJudged):
            rules_of(spoilt, profile)
