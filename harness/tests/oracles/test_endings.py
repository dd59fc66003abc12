"""Consoles of kernels that died or hang: which line tells it, and which ends are alike."""

from __future__ import annotations

import errno

import pytest

from harness.filesystems.profiles import complaints
from harness.model import Judgement, Outcome, Position, Usability
from harness.oracles import Judge
from harness.oracles.endings import ending, stalled
from harness.tests.oracles.cases import CLEAN, ORDERED, file, history, tree

NULL = """[    2.1] EXT4-fs (vda): mounting
[    2.2] BUG: kernel NULL pointer dereference, address: 0000000000000008
[    2.2] #PF: supervisor read access in kernel mode
[    2.2] Oops: Oops: 0000 [#1] SMP NOPTI
[    2.2] RIP: 0010:jbd2_journal_recover+0x67/0x120 [jbd2]
[    2.3] Kernel panic - not syncing: Fatal exception
"""
BUG_ON = """------------[ cut here ]------------
kernel BUG at fs/jbd2/recovery.c:307!
Oops: invalid opcode: 0000 [#1] SMP NOPTI
RIP: 0010:do_one_pass+0x1/0x2 [jbd2]
Kernel panic - not syncing: Fatal exception
"""
OF_UML = """Kernel panic - not syncing: Kernel mode fault at addr 0x8, ip 0x6012a4b0
CPU: 0 UID: 0 PID: 1 Comm: init Not tainted 6.12.117 #1
RIP: 0033:do_one_pass+0x1/0x2
"""
SOFT = """watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [init:1]
RIP: 0010:do_one_pass+0x1/0x2 [jbd2]
Kernel panic - not syncing: softlockup: hung tasks
"""
HANGS = """INFO: task init:1 blocked for more than 30 seconds.
sysrq: Show Blocked State
powercut-agent: mount hangs in schedule < jbd2_journal_recover < jbd2_journal_load < ext4_load_journal
reboot: Power down
"""


@pytest.mark.parametrize(
    ("console", "line", "hangs", "signature"),
    [
        (
            NULL,
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            False,
            "BUG: kernel NULL pointer dereference, address: N in jbd2_journal_recover",
        ),
        (
            BUG_ON,
            "kernel BUG at fs/jbd2/recovery.c:307!",
            False,
            "kernel BUG at fs/jbd2/recovery.c:N! in do_one_pass",
        ),
        (
            OF_UML,
            "Kernel panic - not syncing: Kernel mode fault at addr 0x8, ip 0x6012a4b0",
            False,
            "Kernel panic - not syncing: Kernel mode fault at addr N, ip N in do_one_pass",
        ),
        (
            SOFT,
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [init:1]",
            True,
            "watchdog: BUG: soft lockup - CPU#N stuck for Ns! [init:N] in do_one_pass",
        ),
        (
            HANGS,
            HANGS.splitlines()[2],
            True,
            HANGS.splitlines()[2],
        ),
        (
            "INFO: task init:1 blocked for more than 122 seconds.\n"
            "Kernel panic - not syncing: hung_task: blocked tasks",
            "Kernel panic - not syncing: hung_task: blocked tasks",
            True,
            "Kernel panic - not syncing: hung_task: blocked tasks",
        ),
    ],
    ids=["null", "BUG_ON", "UML", "soft lockup", "agent", "hung task"],
)
def test_an_end_is_told_by_its_reason(console: str, line: str, hangs: bool, signature: str) -> None:
    end = ending(console)
    assert end is not None
    assert (end.line, end.hangs, end.signature) == (line, hangs, signature)


@pytest.mark.parametrize(
    "console",
    [
        "",
        "EXT4-fs (vda): recovery complete",
        "BUG: KASAN: slab-use-after-free in jbd2_journal_recover+0x67/0x120",
        "WARNING: CPU: 0 PID: 1 at fs/jbd2/recovery.c:307 jbd2_journal_recover+0x67/0x120 [jbd2]",
        "INFO: task init:1 blocked for more than 30 seconds.",
    ],
)
def test_a_kernel_that_only_complained_has_not_ended(console: str) -> None:
    """A guest that reported a race and was lost later, on a busy host, counted as a kernel that had died."""
    assert ending(console) is None


@pytest.mark.parametrize(
    "line",
    [
        "[   40.1] INFO: task init:1 blocked for more than 30 seconds.",
        "INFO: task kworker/u8:2:31 blocked in I/O wait for more than 30 seconds.",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [mount:71]",
    ],
)
def test_what_a_slow_host_causes_as_well_is_told_apart(line: str) -> None:
    assert stalled(["EXT4-fs (vda): recovery complete", line])
    assert not stalled(["EXT4-fs error (device vda): bad", "BUG: KASAN: use-after-free in f+0x1/0x2"])


@pytest.mark.parametrize("where", ["first mount", "second mount"])
def test_a_report_of_a_stall_is_no_violation(where: str) -> None:
    """On an overloaded host, it was a complaint of the kernel wherever nobody had tried again."""
    log = ("INFO: task init:1 blocked for more than 30 seconds.",)
    log_of_first, used = (log, Usability()) if where == "first mount" else ((), Usability(kernel_log=log))
    outcome = Outcome(tree=tree(file("f")), fsck=CLEAN, kernel_log=log_of_first, usable=used)
    found = Judge(ORDERED, history(["create f"]), error_patterns=complaints()).judge(Position(1, 1), outcome)
    assert found.violations == ()
    assert log[0] in found.unknown[0]


def judged(outcome: Outcome) -> Judgement:
    return Judge(ORDERED, history(["create f"]), error_patterns=()).judge(Position(1, 1), outcome)


def test_a_hang_is_told_as_one() -> None:
    """It was UNKNOWN; a death was told by the first line of the console, whatever that was."""
    (hang,) = judged(Outcome(lost=HANGS)).violations
    assert (hang.oracle, hang.signature) == ("mountable", f"hangs: {HANGS.splitlines()[2]}")
    assert hang.summary.startswith("recovery hangs: powercut-agent: mount hangs in schedule < jbd2")
    (death,) = judged(Outcome(lost=NULL)).violations
    assert death.summary.startswith("the kernel did not survive recovery: BUG: kernel NULL pointer")
    later = Outcome(tree=tree(file("f")), fsck=CLEAN, usable=Usability(lost=HANGS))
    (hang,) = judged(later).violations
    assert (hang.oracle, hang.signature) == ("usable", f"hangs: {HANGS.splitlines()[2]}")


def test_what_is_no_end_is_told_by_its_first_line() -> None:
    (death,) = judged(Outcome(lost=f"gone\n{errno.EIO}")).violations
    assert death.signature == "lost: gone"
