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


def site() -> Path | None:
    """The first page of the documents: what `make docs` built in a source checkout, or what a wheel carries.
    None if it is in neither place.
    """
    checkout = (_PACKAGE.parent / "pyproject.toml").exists()
    folder = _PACKAGE.parent / "dist" / "site" if checkout else _PACKAGE / "_data" / "site"
    page = folder / "docs" / "index.html"
    return page if page.is_file() else None


def checkout_documents() -> Path | None:
    """The documents of a source checkout as they are written; None in an installed wheel."""
    folder = _PACKAGE.parent / "docs"
    return folder if (folder / "llms.txt").is_file() else None


def built_part(variable: str, *parts: str) -> Path:
    """A program or library in Rust: the file that the environment variable `variable` names; else, in a
    source checkout, what `make setup` built, at `parts` below `target/`; in an installed wheel, its own.

    Raises EnvironmentLacks if it does not exist.
    """
    checkout = (_PACKAGE.parent / "pyproject.toml").exists()
    built = _PACKAGE.parent / "target" if checkout else _PACKAGE / "_data" / "parts"
    path = Path(os.environ.get(variable) or built.joinpath(*(parts if checkout else parts[-1:])))
    if not path.is_file():
        again = "run: make setup" if checkout else "install powercut again"
        raise EnvironmentLacks(f"{path} is not there", f"{again}, or set {variable} to the file")
    return path
