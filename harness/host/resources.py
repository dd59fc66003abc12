"""Find the files that the package needs besides its Python: templates, schemas, machines."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import EnvironmentLacks

_PACKAGE = Path(__file__).resolve().parent.parent


def resource(*parts: str) -> Path:
    """Path of a data file or folder, such as `resource("reports", "templates", "report.html")`.

    In a source checkout it is beside the package; an installed wheel has it in `harness/_data`. Raises
    EnvironmentLacks if it is in neither place.
    """
    places = [_PACKAGE.parent.joinpath(*parts), _PACKAGE.joinpath("_data", *parts)]
    if not (_PACKAGE.parent / "pyproject.toml").exists():
        places.reverse()  # beside an installed package are other projects' packages
    for place in places:
        if place.exists():
            return place
    raise EnvironmentLacks(
        f"{'/'.join(parts)} is part of powercut and is at neither {places[0]} nor {places[1]}",
        "install powercut again: the installation is incomplete",
    )


def built_part(variable: str, *parts: str) -> Path:
    """A Rust program or library that `make setup` built; the environment variable `variable` may name another
    file.

    Raises EnvironmentLacks if it does not exist.
    """
    configured = os.environ.get(variable)
    path = Path(configured) if configured else _PACKAGE.parent.joinpath("target", *parts)
    if not path.is_file():
        raise EnvironmentLacks(f"{path} is not there", f"run: make setup, or set {variable} to the file")
    return path
