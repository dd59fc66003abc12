"""`powercut bugreport`: a bug report as far as a program can write it. The rest says TO DO."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.filesystems.disks import USUAL
from harness.filesystems.profile import Profile
from harness.filesystems.profiles import select_profiles
from harness.filesystems.tools import Tool
from harness.findings.bug_report import EVIDENCE, MAIL, NO_CHECK, SCRIPT, TO_DO
from harness.findings.mail import mail, with_cut
from harness.findings.shell import shell_lines
from harness.host.files import file_hash, toml_string, write_atomically
from harness.host.resources import resource
from harness.host.text import one_line, printable
from harness.model import CrashState, Operation, Persisted, Workload
from harness.oracles.names import first_operations
from harness.report.explanation import Explanation, mail_text, read_explanation
from harness.report.html import finding_html
from harness.report.ladder import ladder_svg, ladder_text
from harness.report.lines import source_words
from harness.report.shrunk import shrunk_file
from harness.report.sides import sides_text
from harness.report.strip import read_strip
from harness.report.words import history_lines, state_words
from harness.store import RunStore
from harness.store.records import CaseInfo, DrawnEntry, Finding
from harness.summary import summarise
from harness.trust import NOTHING, Named, kept_module, vouched_workload
from harness.workloads.load import load_workload

_AFTER = 12
"""Entries shown behind the crash."""
_OF_THE_WHOLE = "# Numbers of operations are those of the whole workload, of which reproduce.sh has a part.\n"
_WIDTH = 110
"""Of a comment in a script."""


def slug_of(finding: Finding) -> str:
    """`ext4-fast-commit-random1-7-20-durability`: a name until somebody finds a better one."""
    return re.sub(r"[^a-z0-9]+", "-", f"{finding.case} {finding.oracle}".lower()).strip("-")


def draft(store: RunStore, finding: Finding, folder: Path, named: Named = NOTHING) -> list[Path]:
    """Write the bug report of a finding into a new folder; returns its files. Its workload is the shrunk one,
    if the run has one of this very finding. `named`: modules that took the place of the kernel's own in the
    run: a copy goes into the folder, and the kernel with its own becomes the control; and the run's own
    workload.
    Raises UsageError if the folder is there, for a workload that runs programs, for one that only the run
    directory names, for modules that are not those of the run, and for a state that no such script makes.
    """
    modules = named.replaced
    _need_same(store, modules)
    if folder.exists():
        raise UsageError(f"{folder} is there already", "name another one: --output DIR")
    (profile,) = select_profiles([finding.case.configuration])
    workload, shown, shows = _workload(store, finding, named)
    _need_one_cut(shows)
    record = store.case(finding.case)
    assert record is not None  # noqa: S101 - a finding is of a case
    operations = list(workload.operations)
    unlike = _unlike_script(shows, [] if shown else _since_returned(store, record.info, finding))
    explanation = read_explanation(store.layout, finding.id)
    evidence = _evidence(store, finding, record.info, explanation, _OF_THE_WHOLE if shown else "")
    if shown:
        whole = [step.text for step in record.info.steps]
        finding, explanation = renumbered(finding, explanation, whole, list(map(str, operations)))
    returned = None if shown else _returned(record.info, finding)
    listed = with_cut(operations, returned)
    title = _titled(shown or finding.summary)
    files = {
        "README.md": _readme(store, finding, record.info, listed, shown, unlike, explanation),
        MAIL: mail(
            _maintainers(store, profile),
            f"{profile.filesystem}: {title}",
            f"{profile.name}: {title}",
            operations,
            _kernels(store, finding),
            explanation,
            shrunk=bool(shown),
            returned=returned,
        ),
        "finding.toml": _toml(store, finding, profile, shown, unlike),
        SCRIPT: script(profile, finding, operations, shown, returned, unlike),
        **{f"{EVIDENCE}/{name}": text for name, text in evidence.items()},
    }
    (folder / EVIDENCE).mkdir(parents=True)
    for name, text in files.items():
        write_atomically(folder / name, text, 0o755 if name == SCRIPT else 0o644)
    for module in modules:
        write_atomically(folder / module.name, module.read_bytes())
    return [folder / name for name in (*files, *(m.name for m in modules))]


def _evidence(
    store: RunStore, finding: Finding, info: CaseInfo, explanation: Explanation | None, head: str
) -> dict[str, str]:
    """The files of the evidence, by name. `head` comes first in those that number operations."""
    files = {
        "write-log.txt": head + log_excerpt(store.timeline(finding.case), info, finding),
        "finding.html": _page(store, finding),
    }
    if explanation is not None:
        asked = str(finding.crash_point)
        why = [mail_text(explanation, asked), ladder_text(explanation), sides_text(explanation)]
        files["why.txt"] = head + "\n".join(filter(None, why))
        files["ladder.svg"] = str(ladder_svg(explanation))
    if evidence := store.evidence(finding):
        files["kernel-log.txt"] = printable(evidence.kernel_log)
        files["fsck.txt"] = printable(evidence.fsck)
    return files


def _returned(info: CaseInfo, finding: Finding) -> int:
    """How many operations had returned when the power failed."""
    return sum(s.ack is not None and s.ack < finding.state.prefix for s in info.steps)


def _need_one_cut(state: CrashState) -> None:
    """Raises UsageError for a state that more than one loss of power makes."""
    if state.again or state.fault:
        what = "a faulty disk" if state.fault else "a second power cut, in recovery"
        raise UsageError(f"{state} takes {what}", "the template knows none: write reproduce.sh by hand")


def _since_returned(store: RunStore, info: CaseInfo, finding: Finding) -> list[DrawnEntry]:
    """What was written between the return of the last operation and the power failure."""
    cut = finding.state.prefix
    returned = max((s.ack for s in info.steps if s.ack is not None and s.ack < cut), default=-1)
    return [e for e in store.timeline(finding.case) if returned < e.index < cut and e.kind != "mark"]


def _unlike_script(state: CrashState, since: Sequence[DrawnEntry]) -> str:
    """What is to do where the script makes another state than this one, else nothing. The script takes all
    that was durable when an operation returned, and nothing `since`.
    """
    if kept := state.persisted:  # what was only written since is in the cache, and lost
        alike = kept == Persisted(only=True) and not any(e.kind.startswith(("flush", "fua")) for e in since)
    else:
        alike = not (state.dropped or state.torn_sectors is not None or since)
    made = "As drafted, the power fails as an operation returns, and all that is in the cache is lost."
    return "" if alike else f"{TO_DO}: make the state of the finding: {state_words(state)}. {made}"


def _maintainers(store: RunStore, profile: Profile) -> str:
    """To whom a mail goes: a module that took the place of the kernel's own is not theirs."""
    for path in store.info.kernel.replaced:
        return f"TO DO: whoever maintains this {Path(path).name}, which is not the kernel's own"
    return profile.mailing_list


_NUMBERED = re.compile(
    r"(?P<words> ?\(?\boperation )(?P<of>\d+)(?P<end>\)?)"
    r"|\bthe first (?:operation\b|(?P<count>\d+)(?: operations\b|(?=[:;]|$)))"
)


def renumbered(
    finding: Finding, explanation: Explanation | None, whole: Sequence[str], short: Sequence[str]
) -> tuple[Finding, Explanation | None]:
    """With the operations' numbers of the shrunk workload in place of those of the whole one; without a
    number where that has none, or may have several.
    """
    texts = [text for v in finding.violations for text in (v.summary, v.expected, v.found)]
    if explanation is not None:
        texts += [explanation.headline, explanation.mechanism, *explanation.lines.values()]
    named = {int(m["of"]) for text in texts for m in _NUMBERED.finditer(text) if m["of"] is not None}
    numbers = _numbers(whole, short, named)

    def told(text: str) -> str:
        return _NUMBERED.sub(numbers.told, text)

    violations = tuple(
        replace(v, summary=told(v.summary), expected=told(v.expected), found=told(v.found))
        for v in finding.violations
    )
    if explanation is not None:
        lines = {label: told(text) for label, text in explanation.lines.items()}
        explanation = msgspec.structs.replace(
            explanation,
            headline=told(explanation.headline),
            mechanism=told(explanation.mechanism),
            lines=lines,
        )
    return replace(finding, violations=violations), explanation


class _Numbers:
    """Which operation of the whole workload is which of the shrunk one. Equal operations can be taken for one
    another, so there may be several ways: those count that have the most of `wanted`, all others are
    forgotten.
    """

    def __init__(self, whole: Sequence[str], short: Sequence[str], wanted: Set[int]) -> None:
        self._whole, self._short, self._wanted = whole, short, wanted
        forward = self._most(whole, short, [n in wanted for n in range(len(whole))])
        backward = self._most(whole[::-1], short[::-1], [n in wanted for n in reversed(range(len(whole)))])
        self._before = forward
        self._behind = [row[::-1] for row in reversed(backward)]
        self.most = forward[-1][-1]

    @staticmethod
    def _most(whole: Sequence[str], short: Sequence[str], wanted: Sequence[bool]) -> list[list[int]]:
        """Of each number of operations of both, from the first on: how many wanted ones a way has that finds
        all of the short ones; less than 0 if there is none.
        """
        rows = [[0, *[_NO_WAY] * len(short)]]
        for text, is_wanted in zip(whole, wanted, strict=True):
            row = rows[-1]
            found = [
                max(row[j + 1], row[j] + is_wanted if text == other else _NO_WAY)
                for j, other in enumerate(short)
            ]
            rows.append([0, *found])
        return rows

    def of(self, number: int) -> set[int | None]:
        """Which operations of the shrunk workload it may be; None: none of them."""
        before, behind = self._before[number], self._behind[number + 1]
        mine = number in self._wanted
        found: set[int | None] = {
            j
            for j, text in enumerate(self._short)
            if text == self._whole[number] and before[j] + behind[j + 1] + mine == self.most
        }
        skipped = any(a + b == self.most for a, b in zip(before, behind, strict=True))
        return found | ({None} if skipped else set())

    def first(self, count: int) -> set[int]:
        """How many of the first operations may be left."""
        pairs = zip(self._before[count], self._behind[count], strict=True)
        return {j for j, (a, b) in enumerate(pairs) if a + b == self.most}

    def told(self, found: re.Match[str]) -> str:
        """A number in the words of the shrunk workload."""
        if found["of"] is None:
            left = self._first_or_none(int(found["count"] or 1))
            return "some of the operations" if left is None else first_operations(left)
        number = int(found["of"])
        places = self.of(number) if self.most >= 0 and number < len(self._whole) else set()
        if len(places) == 1:
            (place,) = places
            return f"{found['words']}{'that was left out' if place is None else place}{found['end']}"
        if found["words"].lstrip().startswith("(") and found["end"]:
            return ""
        return f"{found['words'].replace('operation ', 'one of the operations')}{found['end']}"

    def _first_or_none(self, count: int) -> int | None:
        """How many of the first operations are left; None if that is not known."""
        known = self.first(min(count, len(self._whole))) if self.most >= 0 else set()
        return known.pop() if len(known) == 1 else None


_NO_WAY = -(10**9)


def _numbers(whole: Sequence[str], short: Sequence[str], named: Set[int]) -> _Numbers:
    """The ways that have all operations that are named and may be left; where there is none, all ways."""
    any_way = _Numbers(whole, short, frozenset())
    if any_way.most < 0:
        return any_way
    there = {n for n in named if n < len(whole) and any_way.of(n) != {None}}
    with_these = _Numbers(whole, short, there)
    return with_these if with_these.most == len(there) else any_way


def _page(store: RunStore, finding: Finding) -> str:
    """What the report shows of the finding."""
    case = next(c for c in summarise(store).cases if c.case == finding.case)
    return finding_html(store, case, finding, source_words(store, str(store.path)))


def _kernels(store: RunStore, finding: Finding) -> list[str]:
    """The run's kernel, and what those said that were asked since."""
    kernel = " with ".join([store.info.kernel.name, *(Path(m).name for m in store.info.kernel.replaced)])
    strip = read_strip(store.layout, finding.id)
    return [f"{kernel}: seen", *(f"{c.kernel}: {c.words}" for c in (strip.cells if strip else ()))]


def _need_same(store: RunStore, modules: Sequence[Path]) -> None:
    """Raises UsageError unless these are the modules of the run, byte for byte: else the folder would accuse
    another one, or the kernel's own. What is said of them names the run's own copy, if it has one: a run from
    elsewhere knows paths of its maker.
    """
    replaced = store.info.kernel.replaced
    if len(replaced) > 1:
        raise UsageError(
            f"the run replaced {len(replaced)} modules",
            "a bug report is of one: run it again with that alone",
        )
    given = sorted(file_hash(m) for m in modules if m.is_file())
    if given == sorted(replaced.values()):
        return
    if not replaced:
        raise UsageError("the run was on the kernel's own modules", "leave out the module")
    (path, sha), *_ = replaced.items()
    path = kept_module(store, Path(path), sha)
    raise UsageError(
        f"the run was with {path} (sha256 {sha[:12]}) in place of the kernel's own module, and so must be a "
        "bug report of it",
        f"name it, as it was: {shlex.join(['--module', path])}",
    )


def _workload(store: RunStore, finding: Finding, named: Named) -> tuple[Workload, str, CrashState]:
    """The workload to show it with; if that is shrunk, what it shows, else nothing; and in which state. A
    workload that was shrunk from another finding of the same oracle shows that one.
    """
    short = shrunk_file(store.layout, finding)
    if short is not None:
        found = load_workload(str(short.path.resolve()))
        at, _, shown = short.shown.partition(f" {finding.oracle}: ")
        state = _state_in(at)
    else:
        found, shown = vouched_workload(store, named, finding.case.workload), ""
        state = finding.state
    if found.opaque:
        raise UsageError(f"{found.name} runs programs", "only lists of operations become a script")
    return found, shown, state


def _state_in(text: str) -> CrashState:
    """Raises UsageError if it is none: a file in a run directory may come from anybody."""
    try:
        return CrashState.parse(text)
    except ValueError as e:
        raise UsageError(f"the shrunk workload: {e}", "shrink the finding anew: powercut shrink") from e


def script(
    profile: Profile,
    finding: Finding,
    operations: Sequence[Operation],
    shown: str = "",
    returned: int | None = None,
    unlike: str = "",
) -> str:
    """reproduce.sh from its template. `shown`: what these operations show, if they are shrunk. `returned`: so
    many had when the power failed; None: all. `unlike`: what is to do for the state of the finding. What fsck
    or mount decides is complete; else the check is to be written, and until then the script exits with 2: it
    could not tell.
    """
    _need_plain(profile)
    title = f"{profile.name}: {one_line(_titled(shown or finding.summary))}"
    fsck = [profile.fsck.program, *profile.fsck.arguments] if profile.fsck else ["true"]
    lines = shell_lines(operations)
    last = (len(operations) if returned is None else returned) - 1
    used = {word for line in lines for word in ("xfs_io", "setfattr", "perl") if word in line}
    unmountable = 'echo "BROKEN: the crashed file system cannot be mounted"\n\texit 0'
    values = {
        "TITLE": "\n# ".join([title, *(["", *textwrap.wrap(unlike, _WIDTH)] if unlike else [])]),
        "CUT": str(last) if last >= 0 else "begun",
        "OPTIONS": shlex.quote(profile.mount_options),
        "TOOLS": " ".join(sorted(used | {profile.mkfs.program, fsck[0]})),
        "MODULES": " ".join(profile.modules),
        "SIZE": str(profile.size_bytes),
        "MKFS": shlex.join([profile.mkfs.program, *profile.mkfs.arguments, *profile.mkfs_arguments]),
        "FSTYPE": profile.fstype,
        "FIRST": "ro" if profile.read_only_first else "rw",
        "THEN": ' || ! mount -o remount,rw "$DIR/mnt"' if profile.read_only_first else "",
        "OPERATIONS": "\n".join(f"{line}\nmark done-{i}" for i, line in enumerate(lines)),
        "IF_UNMOUNTABLE": unmountable
        if finding.oracle == "mountable"
        else 'fail "the crashed file system cannot be mounted"',
        "CHECK": _check(finding, profile.fsck, shlex.join(fsck)),
    }
    template = resource("reports", "templates", SCRIPT).read_text()
    return re.sub(r"@([A-Z_]+)@", lambda m: values[m[1]], template)


def _need_plain(profile: Profile) -> None:
    """Raises UsageError for a mode that takes more than mkfs and a mount on the usual disk."""
    if profile.parts or profile.repair or profile.first or profile.layer:
        what = "several devices or a layer, or something is done before it is mounted"
    elif profile.steps or profile.disk != USUAL:
        what = "another kind of disk, or programs that run after mkfs"
    else:
        return
    raise UsageError(
        f"{profile.name} takes {what}", "the template knows none of these: write reproduce.sh by hand"
    )


def _check(finding: Finding, fsck: Tool | None, command: str) -> str:
    said = f'{command} "$DIR/after" >"$DIR/said" 2>&1'
    if finding.oracle == "fsck":
        return _fsck_decides(fsck, said)
    if finding.oracle == "mountable":
        return 'echo "KEPT: the crashed file system can be mounted"'
    expected = one_line(finding.violations[0].expected)
    todo = f"# TO DO: while it is mounted, look at what was promised: {expected}"
    return f'{said} || cat "$DIR/said"\n{todo}\nfail "{NO_CHECK}"'


def _fsck_decides(fsck: Tool | None, said: str) -> str:
    """By fsck's exit code, as a run does: by one that is neither clean nor dirty, it could not check."""
    clean, dirty, allowed = (fsck.clean, fsck.dirty, fsck.allowed) if fsck else ((0,), (), [])
    broken = ['echo "BROKEN: fsck finds errors after recovery"']
    if allowed:
        broken = [
            "# TO DO: BROKEN if it says more than what recovery means to leave (regular expressions):",
            *(f"#   {one_line(pattern)}" for pattern in allowed),
            f'fail "{NO_CHECK}"',
        ]
    branches = {
        clean: ['echo "KEPT: fsck finds nothing wrong after recovery"'],
        dirty: ['cat "$DIR/said"', *broken],
    }
    lines = ["ended=0", f"{said} || ended=$?"]
    if fsck and fsck.too_old:
        patterns = " ".join(f"-e {shlex.quote(pattern)}" for pattern in fsck.too_old)
        unknown = 'fail "fsck is too old for this file system: $(cat "$DIR/said")"'
        lines += [f'if grep -qE {patterns} "$DIR/said"; then', f"\t{unknown}", "fi"]
    lines += ["case $ended in"]
    for codes, does in branches.items():
        lines += [f"{' | '.join(map(str, codes))})", *(f"\t{line}" for line in does), "\t;;"] if codes else []
    lines += ["*)", '\tcat "$DIR/said" >&2', '\tfail "fsck could not check: it ended with $ended"', "\t;;"]
    return "\n".join([*lines, "esac"])


def log_excerpt(timeline: Sequence[DrawnEntry], info: CaseInfo, finding: Finding) -> str:
    """The write log from the last operation that had returned before the crash to some entries behind it."""
    cut = finding.state.prefix
    returned = [s for s in info.steps if s.ack is not None and s.ack < cut and s.begin is not None]
    first = returned[-1].begin if returned else max(0, cut - 2 * _AFTER)
    lines = [f"# {finding.crash_point}", *history_lines(info, cut), ""]
    for entry in timeline:
        if entry.index == cut:
            lines.append("----- the power failed here")
        if (first or 0) <= entry.index < cut + _AFTER:
            what = entry.mark or f"sector {entry.sector} + {entry.sectors}"
            lines.append(f"{entry.index:8} {entry.kind:10} {what}")
    if finding.state.dropped or finding.state.persisted:
        lines.append(f"# of these, {finding.state} says which had persisted")
    return "\n".join(map(one_line, lines)) + "\n"


def _titled(summary: str) -> str:
    """A summary without the numbers of operations, which nobody can look up in a title."""
    return re.sub(r" \(operation \d+\)", "", summary)


def _toml(store: RunStore, finding: Finding, profile: Profile, shown: str, unlike: str) -> str:
    pin = re.sub(r"^(debian-\d+\.\d+)\..*", r"\1", store.info.kernel.name)
    (module,) = [Path(path).name for path in store.info.kernel.replaced] or [""]
    subject = f"{profile.filesystem}, with {module} built anew" if module else profile.filesystem
    title = toml_string(one_line(f"{subject}: {_titled(shown or finding.summary)}"))
    modules, kernel = ", ".join(map(toml_string, profile.modules)), f"kernel = {toml_string(pin)}"
    todo = f"# {unlike}\n" if unlike else ""
    head = f"title = {title}\nmodules = [{modules}]\n\n[[run]]\n{kernel}\n{todo}"
    if module:
        return (
            f'{head}module = {toml_string(module)}\nsays = "BROKEN"\n\n'
            f'[[run]]\n{kernel}\nsays = "KEPT"\nnote = "the kernel\'s own module"\n'
        )
    return (
        f'{head}says = "BROKEN"\n\n'
        "# TO DO: a control that isolates it: other OPTIONS, another kernel, a patch\n"
        f'[[run]]\n{kernel}\nenvironment = {{ OPTIONS = "{TO_DO}" }}\nsays = "KEPT"\n'
    )


def _readme(
    store: RunStore,
    finding: Finding,
    info: CaseInfo,
    listed: Sequence[str],
    shown: str,
    unlike: str,
    explained: Explanation | None,
) -> str:
    asked = read_strip(store.layout, finding.id) is not None
    todo = [] if asked else ["TO DO: `powercut history` asks the other kernels."]
    why = explained.mechanism if explained else "TO DO: `powercut show` tells; then begin this folder anew."
    first = finding.violations[0]
    whole = " (Events, entries and numbers in the evidence are those of the whole workload.)" if shown else ""
    words = [
        f"# {finding.case.configuration}: {_titled(shown or finding.summary)}",
        "TO DO: one paragraph: what goes wrong, and why it matters.",
        f"**Promise.** TO DO: where it is written down. Expected: {first.expected}. Found: {first.found}."
        + whole,
        "**How to see it.** `sh reproduce.sh` as root. The operations"
        + (":" if shown else " (TO DO: `powercut shrink` leaves those that it needs):"),
        "\n".join(["```", *listed, "```"]),
        *filter(None, [unlike]),
        f"mkfs: `{info.mkfs_options}`; mount options: `{info.mount_options or '(none)'}`",
        "**Controls.** " + ("The kernel's own module." if store.info.kernel.replaced else "TO DO"),
        "**Kernels.** " + "; ".join([*_kernels(store, finding), *todo]),
        f"**Why.** {why or 'TO DO: the times of the writes do not tell.'}",
        "**Code.** TO DO: the path, with the names of functions; what is only read is said to be so.",
        "**Not claimed.** TO DO",
    ]
    return "\n\n".join(line if "\n" in line else one_line(line) for line in words) + "\n"
