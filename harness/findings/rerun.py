"""Run a bug report's script in the guest with tools, and compare what it says with what its folder states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import PowercutError
from harness.findings.bug_report import EVIDENCE, SCRIPT, BugReport, StatedRun
from harness.host.files import write_atomically
from harness.host.folders import OwnedFolder
from harness.host.progress import Progress
from harness.kernels.find import find_kernel
from harness.kernels.module_files import need_replaced
from harness.kernels.modules import patched_folder, patched_module
from harness.tools_image.guest import Ran, ToolsGuest, tools_guest

MODULES = ("loop", "dm-mod", "dm-log-writes", "dm-flakey", "dm-delay", "dm-snapshot")
"""What scripts cut the power with; every guest has them."""
UNUSED_DISK_BYTES = 1 << 20
_FOLDER = "/tmp/finding"  # noqa: S108 - in the guest
_STDERR = f"{_FOLDER}/stderr"
_ENDED_S = 60.0


@dataclass(frozen=True, slots=True)
class Rerun:
    """What a script said in one run.

    `said`: `BROKEN`, `KEPT`, or empty if it decided nothing; then `why` says what happened instead.
    `output`: all it printed; `kernel_log`: what the kernel printed meanwhile; `release`: the kernel's.
    """

    bug_report: BugReport
    stated: StatedRun
    said: str
    why: str
    output: str = ""
    kernel_log: str = ""
    release: str = ""

    @property
    def agrees(self) -> bool:
        return self.said == self.stated.says


def last_word(ran: Ran, errors: str) -> tuple[str, str]:
    """What a script said, `BROKEN` or `KEPT`, and its reason; or nothing, and why not.

    A verdict is the last line of a script that ended with 0. All else decides nothing: a script that stopped
    half-way may have printed a verdict before.
    """
    lines = ran.output.rstrip().splitlines()
    if ran.exit_code:
        text = "; ".join(errors.strip().splitlines()[-3:] or lines[-1:]) or "it printed nothing"
        return "", f"the script ended with {ran.exit_code}: {text}"
    match = re.fullmatch(r"(BROKEN|KEPT): *(\S.*)", lines[-1] if lines else "")
    if not match:
        shown = repr(lines[-1]) if lines else "nothing"
        return "", f"the script's last line is no verdict (BROKEN: or KEPT: with a reason), but {shown}"
    return match[1], match[2]


def rerun(bug_report: BugReport, stated: StatedRun, progress: Progress) -> Rerun:
    """Run the script on one kernel, in a guest of its own. If it cannot be run, the answer says why."""
    try:
        replaced = [bug_report.path / stated.module] if stated.module else []
        kernel = find_kernel(stated.kernel, replaced=replaced)
        if stated.patch:
            patch = bug_report.path / stated.patch
            several = patched_folder(patch).startswith("drivers/")
            name = bug_report.modules[0] if several and bug_report.modules else ""
            fixed = patched_module(kernel, patch, progress.say, name)
            kernel = replace(kernel, replaced=(*kernel.replaced, fixed))
        if kernel.replaced:
            need_replaced(kernel, bug_report.modules)
        with (
            OwnedFolder("powercut-finding-") as folder,
            tools_guest(
                kernel,
                folder.path,
                disk_bytes=UNUSED_DISK_BYTES,
                progress=progress,
                modules=[*MODULES, *bug_report.modules],
                memory_mib=bug_report.memory_mib,
                headers=False,
            ) as tools,
        ):
            return _in_guest(tools, bug_report, stated)
    except PowercutError as e:
        return Rerun(bug_report, stated, "", e.line)


def _in_guest(tools: ToolsGuest, bug_report: BugReport, stated: StatedRun) -> Rerun:
    tools.put(f"{_FOLDER}/{SCRIPT}", bug_report.script.read_bytes(), 0o755)
    tools.run(["dmesg", "--clear"], _ENDED_S)
    ran = tools.run(command(stated), bug_report.timeout_s, check=False)
    errors = tools.run(["cat", _STDERR], _ENDED_S).output
    log = tools.run(["dmesg"], _ENDED_S).output
    said, why = last_word(ran, errors)
    return Rerun(bug_report, stated, said, why, ran.output, log, tools.kernel_release)


def command(stated: StatedRun) -> Sequence[str]:
    """Runs the script, with standard error apart from its output, since its last line counts."""
    variables = [f"{name}={value}" for name, value in stated.environment.items()]
    apart = f'cd /tmp && exec "$@" 2>{_STDERR}'
    return ["/bin/sh", "-c", apart, "sh", "env", *variables, f"{_FOLDER}/{SCRIPT}"]


def write_evidence(seen: Rerun, folder: Path) -> Path:
    """Keep what a run printed as a file of a bug report's evidence; returns it."""
    name = seen.stated.name.replace(" ", ".").replace("/", "_")
    file = folder / EVIDENCE / f"{name}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f"# {seen.stated.name}: Linux {seen.release}\n{seen.output}"
    if seen.kernel_log.strip():
        text += f"\n# kernel log\n{seen.kernel_log}"
    write_atomically(file, text.encode())
    return file
