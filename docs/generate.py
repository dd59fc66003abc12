"""The pages of the reference that are made from the code: `python docs/generate.py` writes them.

`harness/tests/test_documents.py` compares the committed pages with what this makes of today's code.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from harness.cli import main
from harness.cli.sections import command_sections, option_sections
from harness.errors import ExitCode
from harness.explain import explain
from harness.faults.catalogue import PlantedFault
from harness.filesystems import disks, layers, profile, profiles, second, stacks, tools, tracepoints
from harness.findings.bug_report import BugReport, StatedRun
from harness.guests import machine
from harness.host.resources import resource
from harness.kernels.build import Addition, Flavour, ReleaseEdit
from harness.kernels.edits import Edit
from harness.kernels.pins import Pin, pins
from harness.known.base import KnownBug, KnownBugs, Record, Severity, Sighting
from harness.known.words import kernels as words_of_kernels
from harness.model import CrashState, questions
from harness.model.disk_faults import DISK_FAULTS, DiskFault
from harness.model.operations import ARGUMENTS, PERSISTS, PERSISTS_IF, OperationKind
from harness.oracles import ORACLES
from harness.oracles.contract import CHOICES, RULES, Contract
from harness.regressions.catalogue import Bug
from harness.report.words import plural
from harness.store import layout
from harness.workloads import applications, load

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
MADE = "<!-- Made by docs/generate.py from the code: change that, then run `make docs`. -->"
Lines = Iterator[str]


def pages() -> dict[str, str]:
    """Each page, by its path below `docs/`."""
    makers: Mapping[str, Callable[[], Lines]] = {
        "reference/commands.md": _commands,
        "reference/files.md": _files,
        "reference/operations.md": _operations,
        "reference/oracles.md": _oracles,
        "reference/modes.md": _modes,
        "reference/exit-codes.md": _exit_codes,
        "reference/crash-points.md": _crash_points,
        "reference/run-directory.md": _run_directory,
        "results/findings.md": _findings,
        "results/litmus.md": _litmus,
    }
    made = {path: MADE + "\n\n" + "\n".join(make()).rstrip() + "\n" for path, make in makers.items()}
    return {**made, "llms.txt": "\n".join(_llms(made)).rstrip() + "\n"}


def _llms(made: Mapping[str, str]) -> Lines:
    """What the documents are, for programs that read them (the form of llmstxt.org)."""
    yield from ("# Powercut", "")
    yield "> After a power cut at any moment, does this file system come back with what it promised?"
    yield "> Start with ../AGENTS.md: the tasks, the exit codes, and where results are."
    here = Path(__file__).parent
    for folder in ("tutorials", "howto", "reference", "explanation", "results"):
        yield from ("", f"## {folder.capitalize()}", "")
        names = {p.relative_to(here).as_posix() for p in (here / folder).glob("*.md")}
        for name in sorted(names | {n for n in made if n.startswith(f"{folder}/")}):
            text = made.get(name) or (here / name).read_text()
            title = next(line for line in text.splitlines() if line.startswith("# "))
            yield f"- [{title[2:]}]({name})"


# --- commands -------------------------------------------------------------------------------------


def _commands() -> Lines:
    yield from ("# Commands", "")
    yield from ("`powercut COMMAND --help` says the same. `powercut man` writes it as manual pages.", "")
    found = list(_below(main, ("powercut",)))
    for heading, commands in command_sections(main, click.Context(main, info_name="powercut")):
        yield from ("", f"**{heading}**", "")
        rows = [row for c in commands for row in found if row[0][1] == c.name]
        yield from _table(
            ("command", "does"),
            [(f"[`{' '.join(words)}`](#{'-'.join(words)})", _sentence(command)) for words, command in rows],
        )
    for words, command in found:
        yield from ("", f"## {' '.join(words)}", "")
        context = click.Context(command, info_name=" ".join(words))
        usage = " ".join([*words, *command.collect_usage_pieces(context)])
        yield from ("```text", usage, "```", "")
        yield from _prose(command.help or "")
        told = {r[0]: r[1] for p in command.get_params(context) if (r := _record(p, context))}
        for heading, rows in option_sections(command, context):
            yield from ("", f"{heading}:", "")
            yield from (f"- `{flags}`: {_escaped(_one_line(told[flags]))}" for flags, _ in rows)


def _record(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Its flags and its help, the same on every host."""
    record = parameter.get_help_record(context)
    if record and parameter.name == "jobs" and parameter.default == (os.cpu_count() or 1):
        one_each = "default: one for each processor"
        return record[0], re.sub(rf"default: {parameter.default}\b", one_each, record[1])
    return record


def _below(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below a group, with its words; hidden ones are left out."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            if not inner.hidden:
                yield (*words, name), inner
                yield from _below(inner, (*words, name))


def _sentence(command: click.Command) -> str:
    return _escaped(_one_line(inspect.cleandoc(command.help or "").split("\n\n")[0]))


def _prose(text: str) -> Lines:
    """A help text: paragraphs; one that begins with \\b keeps its lines."""
    for paragraph in inspect.cleandoc(text).split("\f")[0].split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == "\b":
            yield from ("```text", *lines[1:], "```", "")
        elif lines:
            yield from (_escaped(_one_line(paragraph)), "")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str) -> str:
    """Text that is no Markdown, but for code in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<>\[\]|{}#\\])", r"\\\1", p) for p in parts)


# --- forms of files -------------------------------------------------------------------------------

_FORMS: Sequence[tuple[str, str, Sequence[type]]] = (
    (
        "File systems: `vms/filesystems/FS/filesystem.toml`",
        "What all modes of a file system share.",
        (
            profiles._FilesystemFile,
            tools.Tool,
            profile.ConsolePatterns,
            profile.Sectors,
            profile.MountCounter,
            profile.InToolsImage,
            tracepoints.Tracepoints,
            tracepoints.SpanEvents,
        ),
    ),
    (
        "Modes: `vms/filesystems/FS/MODE.toml`",
        "Mount options, and what the mode promises.",
        (profiles._ModeFile, Contract, profile.First, profile.Second, second.Patch),
    ),
    (
        "Stacks: `vms/stacks/NAME.toml`",
        "What lies between disks and file system.",
        (stacks.Stack, stacks.Member),
    ),
    ("Layers: `vms/layers/NAME.toml`", "What is mounted above a file system.", (layers.Layer,)),
    ("Kinds of disk: `vms/disks/NAME.toml`", "Sectors and cache.", (disks.DiskKind,)),
    (
        "Machines: `vms/machines/NAME.toml`",
        "How a kernel is booted.",
        (machine.MachineProfile, machine.Accelerator, machine.Tools, Flavour, Addition, ReleaseEdit, Edit),
    ),
    ("Kernels: `kernels/NAME.toml`", "A series of distribution kernels.", (Pin,)),
    (
        "Planted faults: `kernels/faults/NAME.toml`",
        "A kernel that is broken on purpose.",
        (PlantedFault, Edit),
    ),
    ("Upstream bugs: `kernels/regressions/NAME.toml`", "A bug that was mended upstream.", (Bug,)),
    ("Operation lists: `workloads/NAME.toml`", "A workload.", (load._OperationList, load._Repeat)),
    (
        "Litmus programs: `workloads/litmus/NAME.toml`",
        "An operation list with a question.",
        (questions.Question, questions.Look, questions.Bytes, questions.Statement, questions.PlantedEntry),
    ),
    (
        "Applications: `workloads/NAME/workload.toml`",
        "A workload with programs of its own.",
        (applications._Description, applications._Variant),
    ),
    ("Findings: `reports/findings/NAME/finding.toml`", "A script and what it says.", (BugReport, StatedRun)),
    (
        "Known bugs: `powercut run --known FILE`",
        "Bugs with which findings are compared. `powercut known` lists the installed ones.",
        (KnownBugs, KnownBug, Record, Sighting),
    ),
)


def _files() -> Lines:
    yield from ("# Forms of files", "")
    yield from ("A field without a default has to be there. Unknown fields are refused.", "")
    shown: set[type] = set()
    for title, about, forms in _FORMS:
        yield from (f"## {title}", "", about, "")
        for form in forms:
            if form in shown:
                yield from (f"`[{_named(form)}]`: as above.", "")
                continue
            shown.add(form)
            yield from (f"### {_named(form)}: {_slug(title)}", "", *_docstring(form), "")
            yield from (*_table(("field", "type", "default"), list(_fields(form))), "")
    yield from ("## Known failures: `*.expected`", "")
    from harness import expectations  # noqa: PLC0415  # the module's own text is the page

    yield from _docstring(expectations)


def _slug(title: str) -> str:
    return title.partition(":")[0].lower()


def _named(form: type) -> str:
    return form.__name__.strip("_")


def _fields(form: type) -> Iterator[tuple[str, str, str]]:
    hints = typing.get_type_hints(form)
    if dataclasses.is_dataclass(form):
        for f in dataclasses.fields(form):
            default = "" if f.default is dataclasses.MISSING else _value(f.default)
            words = f" ({', '.join(map(str, CHOICES[f.name]))})" if f.name in CHOICES and not default else ""
            yield f"`{f.name}`", _type(hints[f.name]) + words, default
        return
    for f in msgspec.structs.fields(form):
        default = ""
        if f.default is not msgspec.NODEFAULT:
            default = _value(f.default)
        elif f.default_factory is not msgspec.NODEFAULT:
            default = _value(f.default_factory())
        yield f"`{f.encode_name}`", _type(hints[f.name]), default


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, Path):
        return "set by the loader"
    return f"`{json.dumps(value)}`"


def _type(hint: object) -> str:
    """A type in words of TOML."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(a) for a in arguments if a is not type(None))
    if origin in (list, tuple):
        inner = [a for a in arguments if a is not Ellipsis]
        return "list of " + ", ".join(dict.fromkeys(_type(a) for a in inner))
    if origin is dict:
        return f"table of {_type(arguments[1])}"
    plain = {str: "text", int: "whole number", float: "number", bool: "true or false", object: "anything"}
    if isinstance(hint, type):
        return plain.get(hint, hint.__name__.strip("_"))
    return str(hint)


def _docstring(thing: object) -> Lines:
    """A docstring as Markdown. msgspec and dataclasses make one up where there is none."""
    text = inspect.cleandoc(getattr(thing, "__doc__", "") or "")
    text = re.sub(r"^(`\w+`(?:, `\w+`)*: )", r"- \1", text, flags=re.MULTILINE)
    inside = False
    for line in text.splitlines():
        inside ^= line.startswith("```")
        yield "```text" if line == "```" and inside else line.replace("[doc]", "(doc)")


# --- operations, oracles, modes -------------------------------------------------------------------


def _operations() -> Lines:
    yield from ("# Operations of a workload", "")
    yield from (
        "[workloads/README.md](../../workloads/README.md) explains sets, handles, repetition",
        "and applications.",
        "Arguments in brackets may be left out; a path may be a handle (`@h`).",
        "",
    )
    rows = []
    about = _rows_of((ROOT / "workloads/README.md").read_text(), "operation")
    for kind in OperationKind:
        if kind is OperationKind.RUN:
            continue
        words = [_argument(kind, a) for a in ARGUMENTS[kind]]
        examples, told = _shown(about, kind.value)
        by_flag = PERSISTS_IF.intersection(load.flags_of(kind))
        durable = "yes" if kind in PERSISTS else "by a flag" if by_flag else ""
        rows.append((f"`{' '.join([kind.value, *words])}`", examples, told, durable))
    yield from _table(("operation", "example", "does", "makes durable"), rows)
    flags = ", ".join(f"`{f}`" for f in sorted(PERSISTS_IF))
    yield from ("", f"Flags that make durable: {flags}. What each of them promises depends on the mode.")


def _argument(kind: OperationKind, name: str) -> str:
    """What an argument is called: that of chmod, say, is read as a length."""
    other = {
        (OperationKind.CHMOD, "length"): "mode",
        (OperationKind.TOUCH, "length"): "seconds",
        (OperationKind.CHATTR, "value"): "flag",
    }
    name = other.get((kind, name), name)
    return f"[{name.rstrip('*')}]" if name.endswith("*") else name


def _shown(about: Sequence[tuple[str, str]], word: str) -> tuple[str, str]:
    """The examples of an operation, and what is said of it: an operation may have several rows."""
    examples, told = [], []
    for names, text in about:
        if found := re.findall(rf"`{re.escape(word)}(?: [^`]*)?`", names):
            examples += found
            told += [text] if text else []
    if not examples:
        raise ValueError(f"workloads/README.md does not say what {word} does")
    return ", ".join(examples), "; ".join(told)


def _rows_of(text: str, first: str) -> list[tuple[str, str]]:
    """The first two cells of each row of the one table whose header begins so."""
    (found,) = re.findall(rf"^\| {first} \|.*\n\|[ -|]*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [
        (c[0].strip(), c[1].strip()) for line in found.splitlines() if (c := line.strip("|").split(" | "))
    ]


_MORE = {
    "assembles": "a stack starts after any power cut, and with it the file system's device is there",
    "untouched": "a durable file that nothing touched reads as it did; on stacks",
    "confluence": "a recovery that was cut and done again ends like one without a cut (`--again`)",
    "question": "the question of a litmus program is answered with yes; judges only where it is named",
    "honesty": "an error of the disk is reported or does no harm (`--disk`)",
}


def _oracles() -> Lines:
    yield from ("# Oracles", "")
    yield from (
        "An oracle judges one promise. `--oracle NAME,...` restricts a run to some of them.",
        "[CONTRACTS.md](../../vms/filesystems/CONTRACTS.md) has the rules and their evidence.",
        "",
    )
    rules = {name: rule.format(persists="fsync or the like") for name, rule in explain._RULES.items()} | _MORE
    yield from _table(("oracle", "promise"), [(f"`{name}`", rules[name]) for name in ORACLES])
    yield from ("", "## Rules of contracts", "")
    yield from _table(("rule", "says"), [(f"`{name}`", says) for name, says in RULES.items()])


def _modes() -> Lines:
    yield from ("# Modes, stacks, disks and kernels", "")
    yield from (
        "`powercut list modes`, `list stacks`, `list disks` and `list kernels` say the same. A mode",
        "marked *named* runs only if it is named in full.",
        "",
    )
    header = ("mode", "what it is", "mount options", "names", "persists", "data", "rules")
    rows = []
    for p in profiles.profiles().values():
        c = p.contract
        name = f"`{p.name}`" + (" (*named*)" if p.on_request else "")
        rules = ", ".join(c.rules)
        rows.append((name, _escaped(p.summary), f"`{p.mount_options}`" if p.mount_options else "",
                     c.namespace, c.persists, c.data, rules))  # fmt: skip
    yield from _table(header, rows)
    yield from ("", "## Stacks", "")
    yield from _table(
        ("stack", "what it is", "members", "may miss"),
        [
            (f"`{n}`", _escaped(s.summary), str(len(s.members)), ", ".join(map(str, s.may_miss)))
            for n, s in stacks.stacks().items()
        ],
    )
    yield from ("", "## Layers", "")
    yield from _table(
        ("layer", "what it is"), [(f"`{n}`", _escaped(x.summary)) for n, x in layers.layers().items()]
    )
    yield from ("", "## Kinds of disk", "")
    yield from _table(
        ("disk", "what it is", "logical, physical sector", "volatile cache"),
        [
            (
                f"`{n}`",
                d.summary,
                f"{d.logical_bytes}, {d.physical_bytes}",
                "no" if d.write_through else "yes",
            )
            for n, d in disks.disks().items()
        ],
    )
    yield from ("", "## Kernels", "")
    yield from _table(("kernel", "what it is"), [(f"`{n}`", _escaped(p.summary)) for n, p in pins().items()])


# --- exit codes, crash points, run directory ------------------------------------------------------

_CODES = {
    ExitCode.CONSISTENT: "every promise was kept",
    ExitCode.INCONSISTENT: "a promise was broken",
    ExitCode.USAGE: "wrong usage: the message says what to write instead",
    ExitCode.UNDECIDED: "something is UNKNOWN, or the harness has an error",
    ExitCode.NOTHING_RUN: "nothing was run, or a required case was not (`--require-all`), or `patch` has "
    "nothing to ask",
    ExitCode.TIME_UP: "`run`, `patch`, `campaign`: the time was up (`--minutes`, `--hours`), something is "
    "decided, nothing inconsistent; other commands end with 3 then",
    ExitCode.BISECT_SKIP: "`--bisect`: skip this commit; `patch`: the last commit does not build",
    ExitCode.BISECT_STOP: "`--bisect`: stop, bisecting makes no sense",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C, SIGTERM, SIGHUP); results are kept, `--resume` continues",
    ExitCode.OUTPUT_CLOSED: "the reader of the output closed it (`powercut log ls LOG | head`)",
}


def _exit_codes() -> Lines:
    yield from ("# Exit codes", "")
    yield from _table(("code", "meaning"), [(str(int(c)), _CODES[c]) for c in ExitCode])
    yield from ("", "[Run it in CI](../howto/ci.md) says what a job does with each.")


_POINTS = (
    ("@417", "the first 417 entries of the write log are on the platter"),
    ("@417-402,405", "the same without the writes 402 and 405 (`--states drop`)"),
    ("@417/t3", "of entry 416 only the first 3 sectors (`--states torn`)"),
    ("@t417", "the power fails just before entry 417 completes; every submitted write is there"),
    ("@t417-402,405.1", "the same; the write 402 and block 1 of the write 405 are still in the cache"),
    ("@t417=402", "of the writes that may be lost, only 402 is there"),
    ("@t417=", "only durable writes are there"),
    (
        "@t52-40@t12=",
        "a crash during the recovery of `@t52-40`, just before entry 12 of the recovery log completes",
    ),
    ("@17+eio-write120", "the recovery of `@17` on a disk that fails a write to sector 120"),
    ("@17+eio-read2048.3-on", "the third read of sector 2048, and all after it"),
    ("@17+rot2048.77", "bit 77 of sector 2048 has changed"),
    ("@17+lost-write2048.3", "the third write to sector 2048 is acknowledged and lost"),
    ("@17+stray-write2048.3-to4096", "the same lands at sector 4096"),
)


def _crash_points() -> Lines:
    yield from ("# Names of crash points", "")
    yield from (
        "A crash point is a case and a crash state: `ext4-ordered/append-fsync@417`.",
        "`powercut repro` and `show` take it. A nested point (two or more `@`) works only if the run found",
        "something there.",
        "",
    )
    for text, _ in _POINTS:
        if str(CrashState.parse(text)) != text:
            raise ValueError(f"{text} is written {CrashState.parse(text)}")
    yield from _table(("state", "the disk"), [(f"`{text}`", about) for text, about in _POINTS])
    yield from (
        "",
        "In a mode that is only rules (`any/posix`), the numbers are those of micro-operations (a name,",
        "a size, a block) in place of entries: `@t7-2,4/0,4/1` is without number 2, and without the first",
        "two sectors of number 4.",
        "",
        "## The form",
        "",
        *_docstring(CrashState),
        "",
        "## Faults of a disk",
        "",
        *_docstring(DiskFault),
    )
    rows = [(f"`{name}`", ", ".join(f"`{k}`" for k in kinds)) for name, kinds in DISK_FAULTS.items()]
    yield from ("", *_table(("`--disk`", "faults"), rows))


def _run_directory() -> Lines:
    yield from ("# The run directory", "")
    yield from _docstring(layout)
    schema = json.loads(resource("reports", "schema", "results.schema.json").read_text())
    yield from ("", "## results.json", "")
    yield from ("`reports/schema/results.schema.json` is the schema, which `powercut` keeps to.", "")
    rows = []
    for name, form in schema["properties"].items():
        kind = form.get("type", "")
        rows.append((f"`{name}`", ", ".join(kind) if isinstance(kind, list) else kind,
                     _escaped(form.get("description", ""))))  # fmt: skip
    yield from _table(("field", "type", "meaning"), rows)
    from harness.cli import events  # noqa: PLC0415  # the module's own text is the page

    head, _, samples = inspect.cleandoc(events.__doc__ or "").partition("\n\n")
    yield from ("", "## Events", "", head, "", "```text", samples, "```")


# --- findings -------------------------------------------------------------------------------------


def _findings() -> Lines:
    yield from ("# Findings", "")
    yield from (
        "Bugs of unmodified kernels that Powercut found. Each has a folder in `reports/findings` with a",
        "script that needs no Powercut; `make findings` runs every script on affected kernels and controls.",
        "The [evidence](findings-evidence.md) says what was seen, and where in the code.",
        "",
    )
    rows: dict[Severity, list[tuple[str, ...]]] = {severity: [] for severity in Severity}
    for path in sorted((ROOT / "reports/findings").glob("*/finding.toml")):
        report = msgspec.toml.decode(path.read_bytes(), type=BugReport)
        name, record = path.parent.name, report.record
        link = f"[{name}](../../reports/findings/{name}/README.md): {_escaped(report.title)}"
        rows[record.severity].append((link, words_of_kernels(record), _escaped(record.workaround)))
    count = sum(map(len, rows.values()))
    yield f"{count} findings, the most severe first. `powercut known NAME` says more of one."
    for severity, found in rows.items():
        yield from ("", f"## {severity.words[0].upper()}{severity.words[1:]} ({len(found)})", "")
        yield from _table(("bug", "kernels", "what to do meanwhile"), found)


_LITMUS = "reports/examples/litmus"
_LITMUS_OTHERS = "reports/examples/litmus-others"
_GROUPS_OF_PATTERNS: Sequence[tuple[str, str, Callable[[Mapping[str, list[str]]], bool]]] = (
    (
        "Safe in every mode that was looked at, but for what is known",
        "Each mode that was looked at promises the answer yes, and kept that, but for known bugs and losses.",
        lambda modes: bool(modes["kept"]) and not (modes["held"] or modes["no"] or modes["broken"]),
    ),
    (
        "Safe in some modes",
        "Some modes promise the answer yes; in the others it is no, or it held without a promise.",
        lambda modes: bool(modes["kept"] and (modes["held"] or modes["no"] or modes["broken"])),
    ),
    (
        "Safe in no mode",
        "No mode promises the answer yes, or none keeps that. Where it held, that is luck.",
        lambda modes: not modes["kept"] and any(modes[s] for s in ("held", "no", "broken", "known")),
    ),
)


def _litmus() -> Lines:
    """The patterns of the litmus tables, from their results."""
    known = _litmus_table(_LITMUS)
    yield from ("# What an application may rely on", "")
    yield from (f"{known['headline']}.", "")
    yield from (
        f"This page is made from [the table](../../{_LITMUS}/report.html) of `powercut litmus`.",
        "[How to ask such a question](../howto/litmus.md) says what the answers mean. *Always*: yes in each",
        "crash state that was looked at, and the mode's contract promises it. *Held*: yes in each, but the",
        "contract does not promise it. *No*: the contract does not promise it either; a document may, which",
        "the table says. A star: not every legal state was looked at. *Known*: against the contract, by a",
        "known bug, or by what the mode is known to lose (`nobarrier` sends no flush). The name of a file",
        "system alone stands for all its modes in the table. [Others](#other-file-systems) have a table of",
        "their own.",
        "",
    )
    yield from _patterns(known, "##")
    others = _litmus_table(_LITMUS_OTHERS)
    yield from ("## Other file systems", "")
    yield from (f"[A table of its own](../../{_LITMUS_OTHERS}/report.html): {others['headline']}.", "")
    yield from _patterns(others, "###")
    yield from _by_hand(DOCS / "results/litmus.md")


def _litmus_table(folder: str) -> Mapping[str, typing.Any]:
    """What `powercut litmus` left there for programs."""
    table: Mapping[str, typing.Any] = json.loads((ROOT / folder / "litmus.json").read_text())
    return table


def _patterns(table: Mapping[str, typing.Any], level: str) -> Lines:
    """What was asked for a table, what it lacks, and its questions in groups, each below a heading."""
    columns, plan = table["columns"], table["plan"]
    kernels = ", ".join(dict.fromkeys(f"{c['kernel']} ({c['machine']})" for c in columns if c["machine"]))
    minutes = round(sum(c["seconds"] for c in columns) / 60)
    yield from (f"{kernels}; {minutes} minutes in all, `powercut {' '.join(plan['argv'])}`.", "")
    if unseen := _not_looked_at(columns):
        yield from (f"Not looked at, so that nothing here is said of it: {'; '.join(unseen)}.", "")
    rows = [(p, _standings(columns, p["name"])) for p in table["programs"]]
    for title, about, belongs in _GROUPS_OF_PATTERNS:
        found = [
            (f"{p['summary']}. {p['question']['asks']} `{p['name']}`", *_modes_of(modes))
            for p, modes in rows
            if belongs(modes)
        ]
        if found:
            yield from (f"{level} {title}", "", about, "")
            yield from (*_table(("question", "always", "held", "no"), found), "")


_BY_HAND = "<!-- By hand from here on: docs/generate.py keeps it. -->"


def _by_hand(page: Path) -> Lines:
    """What a page ends with, and no program knows."""
    _, begun, text = page.read_text().partition(_BY_HAND)
    yield from f"{begun}{text}".splitlines()


def _not_looked_at(columns: Sequence[Mapping[str, typing.Any]]) -> list[str]:
    """What the table lacks: columns as a whole, and how many questions of another one."""
    count = {c["name"]: sum(cell["standing"] == "not-looked-at" for cell in c["cells"]) for c in columns}
    whole = [c["name"] for c in columns if count[c["name"]] == len(c["cells"])]
    parts = [f"{plural(n, 'question')} in {name}" for name, n in count.items() if n and name not in whole]
    return [", ".join(whole)] * bool(whole) + parts


def _standings(columns: Sequence[Mapping[str, typing.Any]], program: str) -> dict[str, list[str]]:
    """The modes by what they answer; a star where some legal states were not looked at. A mode that answers
    the same on each kernel comes once, another one with the kernel's name.
    """
    answers: dict[str, dict[str, str]] = {}
    for column in columns:
        (cell,) = (c for c in column["cells"] if c["program"] == program)
        answers.setdefault(column["mode"], {})[column["kernel"]] = cell["standing"]
    found: dict[str, list[str]] = {"kept": [], "held": [], "no": [], "known": [], "broken": []}
    for mode, on in answers.items():
        least = max(on.values(), key=lambda standing: standing.endswith("-so-far"))
        alike = len({standing.removesuffix("-so-far") for standing in on.values()}) == 1
        for kernel, standing in {"": least}.items() if alike else on.items():
            star = "*" if standing.endswith("-so-far") else ""
            if (name := standing.removesuffix("-so-far")) in found:
                found[name].append(mode + (f" on {kernel.rpartition('-')[2]}" if kernel else "") + star)
    return {standing: _by_filesystem(modes, list(answers)) for standing, modes in found.items()}


def _by_filesystem(modes: Sequence[str], known: Sequence[str]) -> list[str]:
    """Modes as they stand in a cell: `ext4/journal on 6.12*`. Where each known mode of a file system is among
    them, on one kernel or on all, the file system's name stands for them; a star of one is one of all. A mode
    on a stack (`ext4/ordered@overlay`) stands for itself.
    """
    parts = [(m.removesuffix("*").partition(" "), m[len(m.removesuffix("*")) :]) for m in modes]
    stars = {(mode, on): star for (mode, _, on), star in parts}
    found: dict[str, None] = {}
    for (mode, _, on), star in parts:
        filesystem = mode.partition("/")[0]
        those = [(m, on) for m in known if m.startswith(f"{filesystem}/") and "@" not in m]
        if "@" not in mode and all(m in stars for m in those):
            found[f"{filesystem} {on}".rstrip() + max(stars[m] for m in those)] = None
        else:
            found[f"{mode} {on}".rstrip() + star] = None
    return list(found)


def _modes_of(modes: Mapping[str, list[str]]) -> tuple[str, str, str]:
    no = [*(f"**{name}, against its contract**" for name in modes["broken"]), *modes["no"]]
    no += [f"{name} (known)" for name in modes["known"]]
    kept, held = (", ".join(map(_escaped, modes[name])) for name in ("kept", "held"))
    return kept, held, ", ".join(n if n.startswith("**") else _escaped(n) for n in no)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Lines:
    yield f"| {' | '.join(header)} |"
    yield f"|{' --- |' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


if __name__ == "__main__":
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"docs/{name}\n")
