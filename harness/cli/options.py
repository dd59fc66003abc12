"""Options shared by several commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from harness.errors import UsageError
from harness.guests.machine import accelerators, names
from harness.revisit.trust import Named
from harness.store import RunStore

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
        if value not in self._names():
            self.fail(f"{value!r} is not one of {', '.join(self._names())}", param, ctx)
        return value


class NewFile(click.Path):
    """A file to write. Its directory must exist: better to fail now than after hours of work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.absolute().parent.is_dir():
            self.fail(f"{path}: no such directory: {path.absolute().parent}", param, ctx)
        return path


class Folder(click.Path):
    """A directory, created if missing; every existing part of its path must be a directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        there = next((p for p in (path.absolute(), *path.absolute().parents) if p.exists()), path)
        if not there.is_dir():
            self.fail(f"{path}: {there} is not a directory", param, ctx)
        return path


MACHINE = OneOf(lambda: ["auto", *names()])
ACCEL = OneOf(lambda: ["auto", *accelerators()])


def listed(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[str]:
    """`-c a,b -c c` as one list; empty if not given. `-c ""`, such as an empty variable, is an error."""
    names = [name for value in values for name in value.split(",") if name]
    if values and not names:
        raise click.BadParameter("empty value; leave the option out to get its default")
    return names


def out_option(said: str | None = None) -> Decorator:
    """--out, the directory that holds the runs."""
    return click.option(
        "--out",
        type=Folder(),
        default=REPORTS,
        show_default=True,
        help=said,
    )


source_option = click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
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
    if not (path / "run.json").is_file():
        raise UsageError(
            f"{path} is not a run directory: it has no run.json",
            "name reports/latest or a directory in reports/runs; powercut run creates them",
        )


def named_kernel(given: Mapping[str, Any]) -> Named:
    """The kernel and modules typed on this command line; a default does not count."""
    typed = click.get_current_context().get_parameter_source("kernel") is not ParameterSource.DEFAULT
    return Named(given["kernel"] if typed else None, given["modules"], tuple(given["replaced"]))


accel_option = click.option("--accel", type=ACCEL, default="auto", show_default=True)

own_kernel_options = [
    click.option(
        "--kernel",
        metavar="K",
        help="A kernel other than the run's; or the run's own, if that is a file not in the cache.",
    ),
    click.option("--modules", type=click.Path(path_type=Path), metavar="DIR", help="Modules of that kernel."),
    click.option(
        "--module",
        "replaced",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE.ko",
        help="Use this module in place of the kernel's own of that name; may be repeated.",
    ),
]

kernel_options = [
    click.option(
        "--kernel",
        default="debian-6.12",
        show_default=True,
        metavar="K",
        help="A pin of kernels/ (debian-6.12, uml-6.1), an exact version (debian-6.12.117), or an image.",
    ),
    click.option(
        "--modules",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Modules of your own kernel: the directory filled by make modules_install.",
    ),
    click.option(
        "--module",
        "replaced",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE.ko",
        help="Use this module in place of the kernel's own of that name; may be repeated.",
    ),
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


def with_options(options: Sequence[Decorator]) -> Decorator:
    """Combine several options into one decorator."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
