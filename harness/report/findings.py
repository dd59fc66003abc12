"""`findings/<hash12>/`: one directory per finding, to read, keep, or attach to a mail."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from harness.filesystems.profiles import ANY
from harness.host.files import json_text, write_again
from harness.host.text import one_line, printable
from harness.known.words import NEW
from harness.model import CaseId
from harness.report.explanation import Explanation, heading_of, mail_text, read_explanation
from harness.report.ladder import ladder_text
from harness.report.lines import commands, files_of, reproduce
from harness.report.sides import sides_text
from harness.report.words import (
    DeviceOf,
    device_of,
    history_lines,
    kernel_name,
    known_lines,
    machine_name,
    no_device,
    state_words,
    where,
)
from harness.store import RunStore
from harness.store.records import CaseInfo, Evidence, Finding, RunInfo
from harness.summary import Summary

_NO_EVIDENCE = "(not kept)\n"


def write_findings(summary: Summary, store: RunStore, source: str) -> None:
    """Write the directory of every finding. `source`: see `lines.source_words`."""
    infos = {c.case: c.info for c in summary.cases}
    for finding in summary.findings:
        _write(store, finding, infos[finding.case], source, summary.packed)


def _write(store: RunStore, f: Finding, info: CaseInfo, source: str, packed: CaseId | None) -> None:
    folder = store.finding_directory(f.id)
    evidence = store.evidence(f)
    files = {
        "description": one_line(f"{f.case} {f.oracle}: {f.summary}") + "\n",
        "report.txt": report_text(
            f,
            info,
            store.info,
            evidence,
            source,
            read_explanation(store.layout, f.id),
            device_of(store.timeline(f.case)),
            packed,
        ),
        "dmesg": printable(evidence.kernel_log) if evidence else _NO_EVIDENCE,
        "fsck.txt": printable(evidence.fsck) if evidence else _NO_EVIDENCE,
        "crash.json": json_text(crash(f, info, store.info, evidence)),
    }
    for name, text in files.items():
        write_again(folder / name, text)
    script = repro_script(f, files_of(store), str(store.path))
    write_again(folder / "repro.sh", script, mode=0o755)


def report_text(
    f: Finding,
    info: CaseInfo,
    run: RunInfo,
    evidence: Evidence | None,
    source: str,
    explanation: Explanation | None = None,
    device: DeviceOf = no_device,
    packed: CaseId | None = None,
) -> str:
    """The full text of a finding; the last line is the command that reproduces it. `device`: see
    `state_words`; `packed`: `lines.commands`.
    """
    lines = [
        f"{f.case} {f.oracle}: {f.summary}",
        "",
        f"finding        {f.id}",
        f"crash point    {f.crash_point}",
        f"seen           {where(f)}",
        f"symptom        {f.symptom.what}",
        f"kernel         {kernel_name(run)} {run.kernel.version}".rstrip(),
        f"machine        {machine_name(run)}",
        f"mkfs options   {info.mkfs_options or '(none)'}",
        f"mount options  {info.mount_options or '(none)'}",
    ]
    if f.expectation:
        lines.append(f"expected       {f.expectation.reason} ({f.expectation.origin})")
    # What a program's own check says is no bug of a kernel.
    known = known_lines(f) or [NEW] * (f.oracle != "program")
    lines += [f"{'' if i else 'known bug':14} {one.removeprefix('known: ')}" for i, one in enumerate(known)]
    for v in f.violations:
        lines += ["", f"{v.subject}: {v.summary}", f"  expected  {v.expected}", f"  found     {v.found}"]
    if info.steps:
        lines += ["", "Operations, and where the power failed:", *history_lines(info, f.state.prefix)]
    if f.case.filesystem != ANY:  # whose entries are no writes
        lines += ["", f"The state: {state_words(f.state, device)}"]
    if evidence and evidence.state != f.state:
        lines += ["", f"dmesg and fsck.txt were taken at {evidence.state}, which shows the same violation."]
    for name, text in sorted(evidence.notes.items()) if evidence else ():
        lines += ["", f"{heading_of(name, f, explanation)}:", *(f"  {line}" for line in text.splitlines())]
    if explanation:
        text = mail_text(explanation, str(f.crash_point))
        lines += ["", *text.splitlines()[:-1], "", *ladder_text(explanation).splitlines()]
        lines += ["", *sides_text(explanation).splitlines()]
    lines += ["", *commands(f, source, packed)[-1 if explanation else 0 :]]
    return "\n".join(map(one_line, lines)) + "\n"


def crash(f: Finding, info: CaseInfo, run: RunInfo, evidence: Evidence | None) -> dict[str, Any]:
    """The finding as JSON values (crash.json)."""
    return {
        "schema": 1,
        "id": f.id,
        "crash_point": str(f.crash_point),
        "case": msgspec.to_builtins(f.case),
        "state": msgspec.to_builtins(f.state),
        "states": f.states,
        "oracle": f.oracle,
        "signature": f.signature,
        "symptom": f.symptom.what,
        "violations": msgspec.to_builtins(f.violations),
        "expected_reason": f.expectation.reason if f.expectation else None,
        "known": f.known.bug.name if f.known else None,
        "evidence_state": str(evidence.state) if evidence else None,
        "mkfs_options": info.mkfs_options,
        "mount_options": info.mount_options,
        "kernel": msgspec.to_builtins(run.kernel),
        "machine": msgspec.to_builtins(run.machine),
        "powercut": run.powercut,
    }


def repro_script(f: Finding, kernel: Sequence[str], run: str) -> str:
    """A shell script that expects the run directory two levels above itself, so the run can be copied
    anywhere. `kernel`: the options that name its kernel's files; those in the directory `run` go along. Where
    no `powercut` is in PATH, the interpreter that wrote the script does it.
    """
    files = "".join(
        f' "$run"/{shlex.quote(inside)}'
        if (inside := word.removeprefix(f"{run}/")) != word
        else f" {shlex.quote(word)}"
        for word in kernel
    )
    command = reproduce(f.case, f.state, f'"$run"{files}').removeprefix("powercut ")
    module = __name__.partition(".")[0]
    return (
        '#!/bin/sh\nset -eu\nrun=$(cd "$(dirname "$0")/../.." && pwd)\n'
        f'if command -v powercut >/dev/null; then\n\texec powercut {command} "$@"\nfi\n'
        f'exec {shlex.quote(sys.executable)} -m {module} {command} "$@"\n'
    )
