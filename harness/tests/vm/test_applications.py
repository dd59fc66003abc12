"""An application from its directory to a verdict: one that acknowledges too early is caught, a careful one is
not, whatever its check does to the copy that it is given.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from harness.cases.application import CALLS
from harness.findings.repro import repro_context, reproduce
from harness.guests.initramfs import find_program
from harness.model import CaseId, CrashPoint, CrashState, Verdict
from harness.plan import Budget, Plan
from harness.store import RunStore
from harness.summary import CaseVerdict, Summary
from harness.tests.cli.runner import powercut, printed
from harness.tests.host.images import file, layout, link, tar
from harness.tests.needs import need_program
from harness.tests.vm.conftest import run_plan
from harness.trust import Named
from harness.workloads.applications import ENDINGS
from harness.workloads.load import with_neighbours

RUN = """#!/bin/sh
for i in 1 2 3; do
    echo "line $i" >>journal
    {sync} && powercut-ack "line $i"
done
"""

# It destroys what it has checked, leaves a process and a file in /tmp behind, and acknowledges where nothing
# is recorded.
CHECK = """#!/bin/sh
[ "$PWD" = /mnt ] && [ ! -e "$HOME/mine" ] || exit 7
echo mine >"$HOME/mine"
while read -r line; do
    grep -qx "$line" journal || { echo "$line is gone"; exit 1; }
done <"$1"
rm -rf /mnt/* && echo mine >/mnt/journal
sleep 1000 &
powercut-ack never 2>/dev/null
[ $? = 125 ] || exit 7
"""


# Room for 80 blocks of a MiB: not in the 64 MiB that the mode has.
LARGE = '[ $(($(stat -f -c "%b * %S" .))) -gt 83886080 ] || exit 9; echo text >f; sync f'

# By the book.
RENAME = "echo text >new && chmod 600 new && sync new && mv new f && sync . && powercut-ack done"

# In Python, by a user who is not root.
RUN_PYTHON = """#!/usr/bin/env python3
import ctypes, json, os, pwd, subprocess
assert pwd.getpwuid(os.getuid()).pw_name == "writer" and os.getuid() != 0
with open("journal", "w") as f:
    for i in (1, 2, 3):
        print(json.dumps(i), file=f, flush=True)
        {sync}
        subprocess.run(["powercut-ack", str(i)], check=True)
piped, into = os.pipe()
os.write(into, b"piped")
os.splice(piped, os.open("piped", os.O_CREAT | os.O_WRONLY), 5)
"""
CHECK_PYTHON = """#!/usr/bin/env python3
import os, pathlib, sys
assert os.getuid() != 0
here = pathlib.Path("journal").read_text().split() if os.path.exists("journal") else []
for line in pathlib.Path(sys.argv[1]).read_text().split():
    if line not in here:
        sys.exit(print(f"line {line} is gone") or 1)
pathlib.Path("journal").write_text("mine")
"""


# In an image, which has a shell and nothing of the guest's own root, by a user of the image. It leaves a
# process behind that is in the file system under test.
RUN_BOXED = """#!/bin/sh
[ "$PWD" = /mnt ] && [ -e /of-the-image ] && [ ! -e /init ] && [ "$(id -un)" = boxed ] || exit 9
echo "line 1" >journal
{sync} && powercut-ack "line 1"
sleep 1000 &
"""
CHECK_BOXED = CHECK.replace(
    "exit 7\n", "exit 7\n[ -e /of-the-image ] && [ ! -e /init ] || exit 7\n", 1
).replace("-qx", "-qsx")
LOOPBACK = 'ifconfig lo | grep -q "inet addr:127.0.0.1"'


def write_boxed(folder: Path, name: str, sync: str) -> str:
    """An application in an image that is made of this host's busybox."""
    need_program("busybox")
    busybox = find_program("busybox").read_bytes()
    commands = ("sh", "id", "grep", "sleep", "rm", "sync", "ifconfig")
    lower = tar(file("bin/busybox", busybox, 0o755), *(link(f"bin/{c}", "busybox") for c in commands))
    users = file("etc/passwd", b"root:x:0:0::/:/bin/sh\nboxed:x:77:77::/:/bin/sh\n")
    place = folder / name
    place.mkdir()
    layout(place / "image.tar", lower, tar(file("of-the-image"), users))
    (place / "workload.toml").write_text(f'summary = "{name}"\nimage = "image.tar"\nuser = "boxed"\n')
    (place / "run").write_text(RUN_BOXED.format(sync=sync))
    (place / "check").write_text(CHECK_BOXED)
    return str(place)


def write_renamer(folder: Path) -> Path:
    place = folder / "renamer"
    place.mkdir()
    (place / "workload.toml").write_text('summary = "renamer"\n')
    (place / "run").write_text(f"#!/bin/sh\n{RENAME}\n")
    (place / "check").write_text(
        '#!/bin/sh\n[ ! -s "$1" ] || grep -qx text f || { echo f is gone; exit 1; }\n'
    )
    return place


def calls_of_program(path: Path, workload: str) -> tuple[list[str], list[int]]:
    """The calls of a workload's program, and the entries before each."""
    with RunStore.open(path) as store:
        record = store.case(CaseId("ext4", "ordered", workload))
        assert record is not None
        assert record.info.calls is not None
        assert (record.info.calls.more, record.info.calls.lacking) == (0, "")
        drawn = record.info.calls.calls
    return [f"{c.text} {c.outcome}" for c in drawn], [c.begin for c in drawn]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    folder = tmp_path_factory.mktemp("applications")
    for name, sync in (("careful", "sync journal"), ("hasty", "true")):
        (folder / name).mkdir()
        (folder / name / "workload.toml").write_text(f'summary = "{name}"\n')
        (folder / name / "run").write_text(RUN.format(sync=sync))
        (folder / name / "check").write_text(CHECK)
    for name, sync in (("snake", "os.fsync(f.fileno()); os.sync()"), ("hasty-snake", "")):
        (folder / name).mkdir()
        (folder / name / "workload.toml").write_text(
            f'summary = "{name}"\nuser = "writer"\nruntime = "python"\n'
        )
        (folder / name / "run").write_text(RUN_PYTHON.format(sync=sync))
        (folder / name / "check").write_text(CHECK_PYTHON)
    (folder / "large").mkdir()
    (folder / "large" / "workload.toml").write_text('summary = "large"\nimage_mib = 96\n')
    (folder / "large" / "run").write_text(f"#!/bin/sh\n{LARGE}\nsync .\npowercut-ack done\n")
    (folder / "large" / "check").write_text("#!/bin/sh\nexit 0\n")
    write_renamer(folder)
    own = [str(folder / name) for name in ("careful", "hasty", "snake", "hasty-snake", "large", "renamer")]
    own.append(write_boxed(folder, "boxed", f"{LOOPBACK} && sync journal ."))
    own.append(write_boxed(folder, "hasty-boxed", "true"))
    plan = Plan(configurations=["ext4/ordered"], workloads=[*own, "sqlite-wal-full"], jobs=2)
    return run_plan(plan, folder)


def test_one_that_syncs_before_it_acknowledges_keeps_all(ran: tuple[Summary, Path]) -> None:
    summary, path = ran
    case = next(c for c in summary.cases if c.case.workload == "careful")
    assert case.verdict is CaseVerdict.PASS, case.findings
    with RunStore.open(path) as store:
        marks = [e.mark for e in store.timeline(CaseId("ext4", "ordered", "careful")) if e.mark]
    assert marks[:5] == ["begin 0", "app line 1", "app line 2", "app line 3", "ack 0"]


def test_a_real_one_keeps_all(ran: tuple[Summary, Path]) -> None:
    need_program("sqlite3")
    summary, path = ran
    case = next(c for c in summary.cases if c.case.workload == "sqlite-wal-full")
    assert case.verdict is CaseVerdict.PASS, case.findings
    with RunStore.open(path) as store:
        marks = [e.mark for e in store.timeline(case.case) if e.mark.startswith("app ")]
    assert marks == [f"app {k}" for k in range(1, 13)]


def test_one_that_acknowledges_too_early_is_caught(ran: tuple[Summary, Path]) -> None:
    summary, _ = ran
    case = next(c for c in summary.cases if c.case.workload == "hasty")
    assert case.verdict is CaseVerdict.FAIL
    assert {f.oracle for f in case.findings} == {"program"}
    assert any("line 1 is gone" in v.summary + v.found for f in case.findings for v in f.violations)


def test_python_runs_as_a_user_who_acknowledges(ran: tuple[Summary, Path]) -> None:
    """Nobody but root could put a mark into the log, or write to the file system."""
    summary, path = ran
    verdicts = {c.case.workload: c.verdict for c in summary.cases}
    assert (verdicts["snake"], verdicts["hasty-snake"]) == (CaseVerdict.PASS, CaseVerdict.FAIL)
    with RunStore.open(path) as store:
        marks = [e.mark for e in store.timeline(CaseId("ext4", "ordered", "snake")) if e.mark]
    assert marks[:5] == ["begin 0", "app 1", "app 2", "app 3", "ack 0"]


def test_both_programs_run_in_the_root_of_an_image(ran: tuple[Summary, Path]) -> None:
    summary, path = ran
    cases = {c.case.workload: c for c in summary.cases}
    assert cases["boxed"].verdict is CaseVerdict.PASS, (cases["boxed"].reason, cases["boxed"].findings)
    assert cases["hasty-boxed"].verdict is CaseVerdict.FAIL
    told = {v.summary for f in cases["hasty-boxed"].findings for v in f.violations}
    assert "`/workload/hasty-boxed/check` after 1 acknowledgement: line 1 is gone" in told
    calls, _ = calls_of_program(path, "boxed")
    assert "write(journal, 7) = 7" in calls, "the tracer took its paths for others"
    assert "fsync(journal) = 0" in calls


def test_the_rules_judge_programs_in_an_image(tmp_path: Path, uml_kernel: Path) -> None:
    own = [write_boxed(tmp_path, "boxed", "sync journal ."), write_boxed(tmp_path, "hasty-boxed", "true")]
    plan = Plan(configurations=["any/linux"], workloads=own, machine="uml", kernel=str(uml_kernel))
    summary, _ = run_plan(plan, tmp_path / "runs")
    verdicts = {c.case.workload: (c.verdict, c.reason) for c in summary.cases}
    assert verdicts == {"boxed": (CaseVerdict.PASS, ""), "hasty-boxed": (CaseVerdict.FAIL, "")}


RENAMED = [
    "openat(new, create|truncate) = 3",
    "write(new, 5) = 5",
    "chmod(new) = 0",
    "rename(new, f) = 0",
]


def test_what_a_program_asked_of_the_kernel_is_noted_between_its_writes(ran: tuple[Summary, Path]) -> None:
    """Whether a program synced before it renamed was to be guessed from the blocks that came of it."""
    summary, path = ran
    case = next(c for c in summary.cases if c.case.workload == "renamer")
    assert case.verdict is CaseVerdict.PASS, case.findings
    calls, places = calls_of_program(path, "renamer")
    assert [c for c in calls if c in RENAMED] == RENAMED
    synced = next(at for at, call in enumerate(calls) if call.startswith(("fsync(new)", "syncfs(new)")))
    assert calls.index(RENAMED[2]) < synced < calls.index(RENAMED[3])
    with RunStore.open(path) as store:
        marks = {e.mark: e.index for e in store.timeline(case.case) if e.mark}
    assert marks["begin 0"] < places[0]
    assert places == sorted(places)
    assert places[-1] <= marks["app done"]
    # By a user who is not root, in an interpreter.
    calls, _ = calls_of_program(path, "snake")
    assert calls.count("fsync(journal) = 0") == calls.count("sync() = 0") == 3
    assert "splice(piped, 5) = 5" in calls, "what it had spliced and not synced had no cause"


def test_the_last_calls_stand_beside_a_finding(ran: tuple[Summary, Path]) -> None:
    summary, path = ran
    case = next(c for c in summary.cases if c.case.workload == "hasty")
    with RunStore.open(path) as store:
        evidence = store.evidence(case.findings[0])
    assert evidence is not None
    told = evidence.notes[CALLS].splitlines()
    assert "write(journal, 7) = 7" in told
    assert "acknowledged: line 1" in told
    assert not any("sync" in line for line in told)


def test_the_calls_are_noted_in_uml_as_well(tmp_path: Path, uml_kernel: Path) -> None:
    """It has no trace events of system calls, and no kprobes."""
    plan = Plan(
        configurations=["ext4/ordered"],
        workloads=[str(write_renamer(tmp_path))],
        machine="uml",
        kernel=str(uml_kernel),
        budget=Budget(1),
    )
    _, path = run_plan(plan, tmp_path / "runs")
    calls, _ = calls_of_program(path, "renamer")
    assert [c for c in calls if c in RENAMED] == RENAMED


REPLACES = """#!/bin/sh
echo old >config; sync
powercut-ack old
echo new >config.tmp
echo 1 >scratch
mv config.tmp config
"""
NOT_EMPTY = """#!/bin/sh
[ ! -s "$1" ] && exit 0
case "$(tr '\\0' 0 <config)" in old|new) ;; *) echo "config is empty, or zeros"; exit 1;; esac
"""


def neighbour_plan(place: Path, kernel: Path, run: str, check: str, modes: list[str], states: str) -> Plan:
    """A shell script with a neighbour."""
    (place / "workload.toml").write_text('summary = "mine"\nneighbour = true\n')
    for name, text in (("run", run), ("check", check)):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return Plan(
        configurations=modes,
        workloads=[str(place)],
        machine="uml",
        kernel=str(kernel),
        fault_models=(states,),
    )


def test_a_neighbour_shows_what_a_program_alone_does_not(tmp_path: Path, uml_kernel: Path) -> None:
    """A file of 0 bytes under its final name needs another program's commit between rename and writeback."""
    directory = tmp_path / "conf"
    directory.mkdir()
    modes = ["xfs/default", "any/linux"]
    plan = neighbour_plan(directory, uml_kernel, REPLACES, NOT_EMPTY, modes, "exhaustive")
    summary, path = run_plan(plan, tmp_path)
    verdicts = {str(c.case): c.verdict for c in summary.cases}
    assert verdicts == {
        "any-linux/conf": CaseVerdict.FAIL,  # rules need no neighbour
        "xfs-default/conf": CaseVerdict.PASS,
        "xfs-default/conf-neighbour": CaseVerdict.FAIL,
    }
    (beside,) = [f for c in summary.cases for f in c.findings if "neighbour" in str(c.case)]
    named = ["--from", str(path), "--kernel", str(uml_kernel), "-w", str(directory)]
    shown = powercut("show", beside.id, *named)
    told = " ".join(shown.stdout.split())
    assert "rename(config.tmp, config)" in told
    assert "called fsync of `config.tmp`, or the like, for write(config.tmp, 4)" in told
    assert "The check refuses a tree in which only this is lost" in told, "scratch was not synced either"
    assert "another program: fsync of its own file" in shown.stdout


def test_a_neighbour_that_was_asked_for_shows_it_as_well(tmp_path: Path, uml_kernel: Path) -> None:
    """And what the program relies on tells of both. `-w` takes what the page prints."""
    directory, out = tmp_path / "conf", tmp_path / "out"
    directory.mkdir()
    neighbour_plan(directory, uml_kernel, REPLACES, NOT_EMPTY, [], "exhaustive")
    (directory / "workload.toml").write_text('summary = "mine"\n')
    asked = ["-c", "xfs/default,any/linux", "-w", str(directory), "--neighbour", "--states", "exhaustive"]
    here = ["--machine", "uml", "--kernel", str(uml_kernel), "-j", "1", "--no-why", "--out", str(out)]
    ran = powercut("run", *asked, *here)
    assert ran.exit_code == 1, ran.stdout
    named = ["--from", str(out / "latest"), "--kernel", str(uml_kernel)]
    shown = powercut("show", "--all", "--no-ladder", *named, "-w", str(directory))
    told = " ".join(shown.stdout.split())
    assert "seen: xfs/default: none of" in told
    assert "fail the same check" in told.partition("xfs/default beside another program: ")[2]
    (line,) = [at for at in ran.stdout.splitlines() if at.startswith("reproduce: ") and "neighbour@" in at]
    again = powercut(*shlex.split(line)[2:], "--kernel", str(uml_kernel))
    assert again.exit_code == 1, again.stdout


STEALS = """#!/bin/sh
head -c 8192 /dev/zero >db && : >log && sync && powercut-ack 0
printf new | dd of=db conv=notrunc 2>/dev/null
echo "db is new" >>log && sync log && powercut-ack 1
"""
LOGGED = """#!/bin/sh
[ "$(head -c 3 db 2>/dev/null | tr '\\0' 0)" != new ] || grep -q "db is new" log || { echo "no log"; exit 1; }
"""


@pytest.mark.parametrize("mode", ["ext4/ordered", "xfs/default"])
def test_memory_pressure_writes_a_page_before_its_log(mode: str, tmp_path: Path, uml_kernel: Path) -> None:
    """A page in place was on the disk only with what was synced later, alone and beside commits: that a
    program writes its log too late showed in no mode of a kernel.
    """
    directory = tmp_path / "wal"
    directory.mkdir()
    plan = neighbour_plan(directory, uml_kernel, STEALS, LOGGED, [mode], "exhaustive")
    plan = msgspec.structs.replace(plan, workloads=with_neighbours(plan.workloads, ENDINGS))
    summary, path = run_plan(plan, tmp_path)
    verdicts = {c.case.workload: c.verdict for c in summary.cases}
    assert verdicts == {
        "wal": CaseVerdict.PASS,
        "wal-neighbour": CaseVerdict.PASS,
        "wal-pressure": CaseVerdict.FAIL,
    }
    (pressed,) = [f for c in summary.cases for f in c.findings]
    shown = powercut(
        "show", pressed.id, "--from", str(path), "--kernel", str(uml_kernel), "-w", str(directory)
    )
    assert "memory pressure: what is dirty is written back" in shown.stdout


def test_a_neighbour_commits_where_fsync_is_of_one_file(tmp_path: Path, uml_kernel: Path) -> None:
    """On F2FS its fsync made its own file durable alone, and showed nothing."""
    directory = tmp_path / "conf"
    directory.mkdir()
    plan = neighbour_plan(directory, uml_kernel, REPLACES, NOT_EMPTY, ["f2fs/posix"], "prefix")
    summary, _ = run_plan(plan, tmp_path)
    verdicts = {c.case.workload: c.verdict for c in summary.cases}
    assert verdicts == {"conf": CaseVerdict.PASS, "conf-neighbour": CaseVerdict.FAIL}


def test_a_neighbour_that_stops_is_told(tmp_path: Path, uml_kernel: Path) -> None:
    """Behind 200 commits it went on without, and `NAME-neighbour` passed as if it had looked at each call."""
    directory = tmp_path / "busy"
    directory.mkdir()
    busy = "#!/bin/sh\nfor n in $(seq 120); do echo $n >f; done\nsync\npowercut-ack done\n"
    plan = neighbour_plan(directory, uml_kernel, busy, "#!/bin/sh\n", ["ext4/ordered"], "prefix")
    summary, _ = run_plan(plan, tmp_path)
    (beside,) = [c for c in summary.cases if c.case.workload == "busy-neighbour"]
    assert beside.verdict is CaseVerdict.UNKNOWN
    assert "changes files by more than 200 calls" in beside.reason


def test_a_larger_file_system_is_recorded_kept_and_shown_again(ran: tuple[Summary, Path]) -> None:
    """`image_mib` had no effect. Its base image is the case's own, beside those of the mode's size."""
    summary, path = ran
    case = next(c for c in summary.cases if c.case.workload == "large")
    assert case.verdict is CaseVerdict.PASS, case.findings
    with RunStore.open(path) as store:
        point = CrashPoint(case.case, CrashState(len(store.timeline(case.case))))
        with repro_context(store, point, Named(workloads=tuple(store.plan().workloads)), "auto") as shown:
            assert shown.recording.base.stat().st_size == 96 << 20
            assert reproduce(shown).judgement.verdict is Verdict.PASS


@pytest.mark.parametrize("kind", ["shell", "python", "c", "go", "rust", "operations"])
def test_a_new_workload_runs_and_passes_as_it_is(tmp_path: Path, kind: str) -> None:
    made = powercut("new", tmp_path / "my-db", "--kind", kind)
    place = tmp_path / ("my-db.toml" if kind == "operations" else "my-db")
    assert place.exists(), made.output
    told = printed("try", place, "--machine", "uml")
    assert ("my-db: PASS" if kind == "operations" else "my-db-synced: PASS") in told
    if kind != "operations":
        assert "acknowledged 5: line 1, line 2" in told
        assert "check of operation 0: exit code 0" in told
