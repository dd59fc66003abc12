"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

REPORTS = Path("reports")


def listed(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[str]:
    """`-c a,b -c c` as one list; empty where it was not given. `-c ""`, an empty variable, is an error."""
    names = [name for value in values for name in value.split(",") if name]
    if values and not names:
        raise click.BadParameter("it names nothing; leave the option out for its default")
    return names


def out_option(said: str | None = None) -> Decorator:
    """--out, the folder of the runs."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
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

accel_option = click.option(
    "--accel", type=click.Choice(["auto", "kvm", "tcg"]), default="auto", show_default=True
)

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
        help="Modules of a kernel of your own: what make modules_install filled.",
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
        type=click.Choice(["auto", "qemu", "uml"]),
        default="auto",
        show_default=True,
        help="auto: QEMU records; UML judges, where a UML kernel of the same source has been built.",
    ),
    click.option(
        "--accel",
        type=click.Choice(["auto", "kvm", "tcg"]),
        default="auto",
        show_default=True,
        help="QEMU's accelerator. auto tries the real kernel under KVM, falls back to TCG, and remembers.",
    ),
]


def with_options(options: Sequence[Decorator]) -> Decorator:
    """Several options as one decorator."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
