"""Options shared by several commands."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from harness.cli.console import errors
from harness.errors import PowercutError, UsageError
from harness.expectations import Expectation, read_expectations
from harness.filesystems.profiles import profiles, ruled_modes
from harness.guests.machine import accelerators, names
from harness.host.files import holds, refuses
from harness.host.resources import resource
from harness.host.text import near_or
from harness.known.base import KnownBugs, read_known
from harness.model import bounds
from harness.oracles import ORACLES
from harness.plan import LEGAL, Budget
from harness.states import FAULT_MODELS
from harness.store import RunStore
from harness.store.bundle import is_bundle, unbundle
from harness.trust import Named
from harness.workloads.load import is_installed

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

REPORTS = Path("reports")


class OneOf(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """One of the names that `names` returns when the option is used: machines are read from files."""

    name = "name"

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        self._names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return f"[{'|'.join(self._names())}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.lower() not in self._names():
            self.fail(f"{value!r} is not one of {', '.join(self._names())}", param, ctx)
        return value.lower()


class _Real(click.FloatRange):
    """A number between limits. click lets through what is no number: no limit is above or below it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number", param, ctx)
        return found


def bounded(kind: Any) -> click.ParamType:  # type: ignore[type-arg]  # not generic before click 8.2
    """The type of an option for a number of `harness.model.bounds`."""
    (meta,) = kind.__metadata__
    if kind.__origin__ is int:
        return click.IntRange(meta.ge, meta.le)
    least = meta.gt if meta.ge is None else meta.ge
    return _Real(least, meta.le, min_open=meta.ge is None)


class NewFile(click.Path):
    """A file to write. Its directory must exist: better to fail now than after hours of work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if holds(path.is_dir):
            self.fail(f"{path} is a folder that is there; name a path that is free", param, ctx)
        if not (ctx and ctx.resilient_parsing) and (why := refuses(path)):
            self.fail(f"{why}; name a file that you may write", param, ctx)
        if not holds(path.absolute().parent.is_dir):
            self.fail(f"{path}: no such directory: {path.absolute().parent}", param, ctx)
        return path


class OpenFile(click.File):
    """A file to write to from now on; -: standard output."""

    def __init__(self) -> None:
        super().__init__("w", lazy=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = isinstance(value, str | os.PathLike) and not (ctx and ctx.resilient_parsing)
        if words and str(value) != "-" and (why := refuses(Path(value))):
            self.fail(f"{why}; name a file that you may write", param, ctx)
        return super().convert(value, param, ctx)


class Folder(click.Path):
    """A directory, created if missing; every existing part of its path must be a directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        there = next((p for p in (path.absolute(), *path.absolute().parents) if holds(p.exists)), path)
        if not there.is_dir():
            self.fail(f"{path}: {there} is not a directory", param, ctx)
        is_default = param is not None and value == param.default
        if not holds(path.exists) and not is_default and (why := refuses(path)):
            self.fail(f"{why}; name a folder that you may write to", param, ctx)
        return path


class ExistingFile(click.Path):
    """A file that is there. `step`: what to do about one that is not. `installed`: the folder of this
    installation, and the suffix, of files that may be named without both.
    """

    def __init__(self, step: str, installed: tuple[str, str] | None = None) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self._step, self._installed = step, installed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if value == "":  # a path of no letters is that of the current folder
            self.fail(f"no file is named; {self._step}", param, ctx)
        if holds(path.exists) or (ctx and ctx.resilient_parsing):
            return path
        known = self._named()
        if str(path) not in known:
            of_installation = f"; of this installation: {', '.join(known)}" if known else ""
            self.fail(f"there is no {path}; {self._step}{of_installation}", param, ctx)
        return known[str(path)]

    def _named(self) -> dict[str, Path]:
        if self._installed is None:
            return {}
        folder, suffix = self._installed
        files = sorted(resource(*folder.split("/")).glob(f"*{suffix}"))
        return {file.name.removesuffix(suffix): file for file in files}


class RunDirectory(click.Path):
    """A directory that Powercut has written, perhaps somebody else's: a run, a campaign, a sweep, a
    measurement. What it names is used only by way of `harness.trust`. A file of `powercut pack` is unpacked
    where the command keeps its runs.
    """

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path)
        self._must_exist = exists

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        missing = value == "" or (self._must_exist and not holds(path.exists))
        if missing and not (ctx and ctx.resilient_parsing):
            step = "name reports/latest, a directory in reports/runs, or a file that powercut pack made"
            what = f"there is no {path}" if value else "no run is named"
            self.fail(f"{what}; {step}", param, ctx)
        if (ctx and ctx.resilient_parsing) or not self._is_file(path, param, ctx):
            return path
        if not is_bundle(path):
            self.fail(f"{path} is a file, and none that powercut pack made", param, ctx)
        reports = (ctx.params.get("out") if ctx else None) or REPORTS
        try:
            unpacked = unbundle(path, reports)
        except PowercutError as e:
            self.fail(e.line, param, ctx)
        except OSError as e:
            where = f"{path} cannot be unpacked in {reports.absolute()}: {e.strerror}"
            self.fail(f"{where}; start in a folder that can be written to", param, ctx)
        errors.say(f"{path} is unpacked in {unpacked}")
        return unpacked

    def _is_file(self, path: Path, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Whether it is a file. What may not be read is refused here, outside `guarded`: an error of the host
        would exit with 1, which accuses a file system.
        """
        try:
            if path.is_dir():
                os.scandir(path).close()
            if found := path.is_file():
                path.open("rb").close()
            return found
        except OSError as e:
            self.fail(f"{path} cannot be read: {e.strerror}; name what this user may read", param, ctx)


MACHINE = OneOf(lambda: ["auto", *names()])
ACCEL = OneOf(lambda: ["auto", *accelerators()])


def listed(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[str]:
    """`-c a,b -c c` as one list; empty if not given. `-c ""`, such as an empty variable, is an error."""
    names = [name for value in values for name in value.split(",") if name]
    if values and not names:
        raise click.BadParameter("empty value; leave the option out to get its default")
    return names


def modes_option(about: str, name: str = "modes") -> Decorator:
    """-c, of which a command takes several modes."""
    return click.option(
        "-c", "--config", name, multiple=True, callback=listed, metavar="FS/MODE,...", help=about
    )


def workloads_option(about: str, metavar: str = "NAME,...") -> Decorator:
    """-w, likewise."""
    return click.option(
        "-w", "--workload", "workloads", multiple=True, callback=listed, metavar=metavar, help=about
    )


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--config, the options of a kernel that is built: see `harness.kernels.build.with_options`."""
    return click.option(
        "--config",
        "config",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Build with these options as well: a configuration fragment, such as CONFIG_KASAN=y.",
    )(command)


def resume_option(about: str, metavar: str = "DIR") -> Decorator:
    """--resume, with the directory that is gone on with."""
    return click.option("--resume", type=RunDirectory(exists=True), metavar=metavar, help=about)


def out_option(said: str = "Where runs are kept") -> Decorator:
    """--out, the directory that holds the runs."""
    return click.option(
        "--out",
        type=Folder(),
        default=REPORTS,
        show_default=True,
        metavar="DIR",
        is_eager=True,  # `RunDirectory` unpacks there
        help=f"{said}: in DIR/runs; DIR/latest is what powercut run began last.",
    )


source_option = click.option(
    "--from",
    "source",
    type=RunDirectory(),
    default=REPORTS / "latest",
    show_default=True,
    metavar="RUN",
)


def open_run(path: Path) -> RunStore:
    """Open the run directory named on the command line. Raises UsageError if there is none."""
    need_run(path)
    return RunStore.open(path)


def need_run(path: Path) -> None:
    """Raises UsageError if `path` is not a run directory."""
    if path == REPORTS / "latest" and not path.exists():
        raise UsageError(
            f"there is no run here: {path.absolute()} does not exist",
            "go to the folder in which powercut run was started, or name the run: DIR/reports/latest",
        )
    if not (path / "run.json").is_file():
        if of_kernels := sorted(str(p.parent) for p in path.glob("kernels/*/runs/*/run.json")):
            raise UsageError(
                f"{path} has a run of each kernel",
                f"name one: {', '.join(of_kernels)}; {path / 'report.html'} has all, and needs no other file",
            )
        if not path.exists():
            raise UsageError(
                f"there is no {path}",
                "name reports/latest, a directory in reports/runs, or a file that powercut pack made",
            )
        raise UsageError(
            f"{path} is not a run directory: it has no run.json",
            "name reports/latest or a directory in reports/runs; powercut run creates them",
        )


def is_typed(parameter: str) -> bool:
    """Whether this command line names a value for a parameter; a default does not count."""
    default = (None, ParameterSource.DEFAULT)
    return click.get_current_context().get_parameter_source(parameter) not in default


def named_here(given: Mapping[str, Any]) -> Named:
    """The programs, files and hosts that this command line names, as far as the command has options for them:
    a run directory may name such things, too.
    """
    return Named(
        given["kernel"] if "kernel" in given and is_typed("kernel") else None,
        given.get("modules"),
        tuple(given.get("replaced", ())),
        tuple(given.get("workloads", ())),
        given.get("cluster"),
        given.get("recordings"),
        given.get("image"),
        say=functools.cache(errors.say),  # once: what is named is looked at more than once
    )


def beside_resume(what: str, kept: Sequence[str]) -> None:
    """Raises UsageError for options of this command line that a `what` ("run") which is resumed cannot
    follow: it would go on as it was begun, and seem to have done what they ask for. `kept`: the parameters
    that it can; of workloads, those that are files.
    """
    context = click.get_current_context()
    named = [p for p in context.command.params if p.name and is_typed(p.name)]
    chosen = any(map(is_installed, context.params.get("workloads") or ()))
    if ignored := [p.opts[-1] for p in named if p.name not in kept or (p.name == "workloads" and chosen)]:
        raise UsageError(
            f"a {what} is resumed as it was begun: {', '.join(ignored)} cannot change it",
            f"leave that out beside --resume, or start a new {what}",
        )


accel_option = click.option("--accel", type=ACCEL, default="auto", show_default=True)

_module_option = click.option(
    "--module",
    "replaced",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE.ko",
    help="Use this module in place of the kernel's own of that name; may be repeated.",
)

own_kernel_options = [
    click.option(
        "--kernel",
        metavar="K",
        help="A kernel other than the run's; or the run's own, if that is a file not in the cache.",
    ),
    click.option("--modules", type=click.Path(path_type=Path), metavar="DIR", help="Modules of that kernel."),
    _module_option,
]

own_workloads_option = workloads_option(
    "The workload of the run, if it is a file or a folder of yours, or a copy with the same name. It "
    "has to be named, since it may bring files of this host.",
    "PATH,...",
)

own_files_options: list[Decorator] = [*own_kernel_options, own_workloads_option]
"""For commands that look at a run again."""

kernel_options = [
    click.option(
        "--kernel",
        default="debian-6.12",
        show_default=True,
        metavar="K",
        help="A name that powercut list kernels shows (debian-6.12, uml-6.1), an exact version "
        "(debian-6.12.117), or an image.",
    ),
    click.option(
        "--modules",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Modules of your own kernel: the directory filled by make modules_install.",
    ),
    _module_option,
    click.option(
        "--machine",
        type=MACHINE,
        default="auto",
        show_default=True,
        help="auto: QEMU records; UML judges if a UML kernel of the same source has been built.",
    ),
    click.option(
        "--accel",
        type=ACCEL,
        default="auto",
        show_default=True,
        help="QEMU's accelerator. auto tries the real kernel under KVM, falls back to TCG, and remembers.",
    ),
]


def asked_kernel(given: Mapping[str, Any]) -> dict[str, Any]:
    """What `kernel_options` say, for a plan; files as absolute paths, so that it is resumed from anywhere."""
    kernel = Path(given["kernel"])
    need_machine_of(given["accel"], given["machine"])
    return {
        "kernel": str(kernel.resolve()) if kernel.is_file() else given["kernel"],
        "modules": str(given["modules"].resolve()) if given["modules"] else None,
        "replaced": [str(p.resolve()) for p in given["replaced"]],
        "machine": given["machine"],
        "accel": given["accel"],
    }


def need_machine_of(accel: str, machine: str) -> None:
    """Raises UsageError for an accelerator that this machine does not take."""
    if machine == "uml" and accel in ("kvm", "tcg"):
        raise UsageError(f"--accel {accel} is for QEMU; UML runs as a process", "leave out one of them")


def expect_option(about: str = "Known failures, as for powercut run.") -> Decorator:
    """--expect; `asked_expectations` reads the files."""
    a_file = ExistingFile("name a file of known failures", ("vms/filesystems", ".expected"))
    return click.option("--expect", type=a_file, multiple=True, metavar="FILE",
                        help=f"{about} A file, or by its name a list of this installation, such as sectors. "
                        "Repeatable.")  # fmt: skip


def asked_expectations(files: Sequence[Path]) -> tuple[Expectation, ...]:
    """Raises UsageError for a file that does not parse, and for a line that nothing could meet: no mode or
    oracle has that name. A workload may be a program of another run.
    """
    found = tuple(e for file in files for e in read_expectations(file))
    modes = profiles().keys() | ruled_modes().keys()
    for e in found:
        _need_name(e, "mode", e.configuration.partition("@")[0], modes, "powercut list modes names all")
        for pattern in filter(None, e.oracle.split(",")):
            _need_name(e, "oracle", pattern, ORACLES, f"name one of: {', '.join(ORACLES)}")
    return found


def _need_name(e: Expectation, what: str, pattern: str, known: Collection[str], else_said: str) -> None:
    if not any(fnmatchcase(name, pattern) for name in known):
        raise UsageError(f"{e.origin}: no {what} is called {pattern!r}", near_or(pattern, known, else_said))


known_options: list[Decorator] = [
    click.option(
        "--known",
        "known_files",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        multiple=True,
        metavar="FILE",
        help="Known bugs beside those that powercut known lists; one of the same name counts instead. "
        "Repeatable.",
    ),
    click.option(
        "--new-only",
        is_flag=True,
        help="Only findings that agree with no known bug fail the run; the others are reported as expected.",
    ),
]


def asked_known(given: Mapping[str, Any]) -> KnownBugs:
    """What `known_options` say. Raises UsageError for a file that does not parse."""
    bugs = tuple(bug for file in given["known_files"] for bug in read_known(file, ORACLES))
    return KnownBugs(bug=bugs, new_only=given["new_only"])


def required(asked: bool | None, configurations: Sequence[str]) -> bool:
    """Whether what cannot be run here is no pass: a user who names a mode in full wants its verdict; `all`
    takes whatever this host can run. `asked`: what the user said of it, if anything.
    """
    return all("/" in name for name in configurations) if asked is None else asked


def states_options(states: str = "prefix", budget: str = "no limit") -> list[Decorator]:
    """--states and --budget, where these are the defaults."""
    return [
        click.option(
            "--states",
            "--fault-model",
            "fault_models",
            multiple=True,
            callback=listed,
            metavar="NAME,...",
            help="Which crash states. exhaustive: all that a disk with a volatile cache may be left in, "
            "block by block; sectors: the same, sector by sector; "
            + "".join(f"{model.name}: {model.summary}; " for model in FAULT_MODELS.values())
            + f"the default: {states}.",
        ),
        click.option(
            "--budget",
            default="",
            metavar="N,TIME",
            help="Stop a case after N states recovered in guests, or after a time (90s, 2m), and say what is "
            "left. The simplest states are covered in any case: with exhaustive and sectors, all lost and "
            "all kept at every crash time; with the others, those where an fsync or the like begins and "
            "returns. States that need no guest are not counted. "
            f"Default: {budget}.",
        ),
    ]


jobs_option = click.option(
    "-j",
    "--jobs",
    type=bounded(bounds.Jobs),
    default=min(os.cpu_count() or 1, 256),
    show_default=True,
    help="Guests to run at once.",
)

schedules_option = click.option(
    "--schedules",
    type=bounded(bounds.Schedules),
    default=0,
    metavar="N",
    help="Record each workload N times more, under other schedules: the disk completes writes in another "
    "order and leaves some incomplete across a flush, and the kernel's timers run. On a kernel "
    "for UML that powercut built, its number also decides which thread runs. Schedule 2 of "
    "append-fsync is the workload append-fsync.s2. Default: 0.",
)

neighbour_options = [
    click.option(
        "--neighbour",
        is_flag=True,
        help="Record each application once more, as NAME-neighbour, beside another program that commits "
        "behind each of its calls.",
    ),
    click.option(
        "--pressure",
        is_flag=True,
        help="Record each application once more, as NAME-pressure, while what it makes dirty is written back "
        "behind each of its calls, as under memory pressure: no commit, and no flush.",
    ),
]

selection_options = [
    click.option(
        "-k",
        "match",
        default="",
        metavar="EXPR",
        help="Only cases whose names match: 'rename and not (xfs or btrfs)'.",
    ),
    click.option(
        "--failed-from",
        type=RunDirectory(),
        metavar="RUN",
        help="Only the cases of RUN that failed unexpectedly or were left undecided, recorded anew. Kernel, "
        "states, oracles and all else that decides a verdict are RUN's, except for the options named here.",
    ),
    click.option(
        "--oracle",
        "oracles",
        multiple=True,
        callback=listed,
        metavar="NAME,...",
        help="Judge by these oracles alone: durability, fsck, ... The report says so. Default: all.",
    ),
]

stopping_options = [
    click.option(
        "-x",
        "--maxfail",
        "max_failures",
        type=bounded(bounds.Cases),
        is_flag=False,
        flag_value=1,
        metavar="[N]",
        help="Stop in good order once N cases have failed (-x: the first).",
    ),
    click.option(
        "--minutes",
        type=bounded(bounds.Minutes),
        metavar="N",
        help="Stop in good order after N minutes; --resume continues. Exits with 5 if something was decided "
        "and nothing had failed.",
    ),
]


def asked_oracles(names: Sequence[str]) -> list[str]:
    """The oracles that --oracle names, in their own order. Raises UsageError for an unknown one."""
    names = [name.lower() for name in names]
    for name in names:
        if name not in ORACLES:
            raise UsageError(
                f"no oracle is called {name!r}", near_or(name, ORACLES, f"name one of: {', '.join(ORACLES)}")
            )
    return [name for name in ORACLES if name in names]


def with_options(options: Sequence[Decorator]) -> Decorator:
    """Combine several options into one decorator."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def asked_states(given: Sequence[str]) -> tuple[str, ...]:
    """The crash states named by --states. Raises UsageError for names that are unknown or exclude each
    other.
    """
    names = [name.lower() for name in given or ["prefix"]]
    known = [*LEGAL, *FAULT_MODELS]
    for name in names:
        if name not in known:
            raise UsageError(f"no crash states are called {name!r}", f"one of: {', '.join(known)}")
    if len(set(names)) > 1 and (alone := next((name for name in names if name in LEGAL), None)):
        others = ", ".join(dict.fromkeys(name for name in names if name != alone))
        raise UsageError(
            f"{alone} and {others}: {alone} contains the states of the others", f"leave out {others}"
        )
    return tuple(dict.fromkeys(names))


def asked_budget(text: str) -> Budget:
    """The budget given by --budget. Raises UsageError for one that is malformed."""
    if not text:
        return Budget()
    try:
        return Budget.parse(text)
    except ValueError as e:
        raise UsageError(str(e)) from e
