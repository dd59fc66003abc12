"""What all pages have in common: each is one file that needs no network, made of a template."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, MappingProxyType

import jinja2
import jinja2.bccache

from harness.host.resources import resource
from harness.host.text import printable

Function = Callable[..., object]


class _Compiled(jinja2.BytecodeCache):
    """What this process has compiled, for all environments: each page has its own, for its filters, and the
    22 templates of a run take most of the time of its reports.
    """

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if bucket.code is not None:
            self._code[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _Compiled()
_RUN = re.compile(r"\d{8}-\d{6}-")
"""How the name of a run directory begins, with its time. Another folder of runs has other files."""


def template(
    name: str, functions: Mapping[str, object] = MappingProxyType({}), **filters: Function
) -> jinja2.Template:
    """A file of `reports/templates` with functions, or values, and filters. No text that is put into it, such
    as a guest's, can be markup or control a terminal; a name that is not given to it is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("reports", "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_COMPILED,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters.update({"sentence": sentence, "on_page": on_page, **filters})
    environment.globals.update(functions)
    return environment.get_template(name)


def on_page(command: str) -> str:
    """A command as a page shows it, which others may read, and which works in the working directory: paths
    below it are relative to it, and so are those of a run beside it. Other texts stay as they are.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # a quotation without an end
        return command
    return shlex.join(map(_shown, words)) if shlex.join(words) == command else command


def _shown(word: str) -> str:
    path = Path(word)
    if not path.is_absolute():
        return word
    if path.is_relative_to(here := Path.cwd()) and here != Path(here.root):
        below = str(path.relative_to(here))
        return below if "/" in below else f"./{below}"  # what has no slash may be a name
    is_of_run = any(folder == "runs" and _RUN.match(name) for folder, name in itertools.pairwise(path.parts))
    is_near = here.parts[:2] == path.parts[:2]  # else both have nothing but the root in common
    return os.path.relpath(path, here) if is_of_run and is_near else word


def sentence(text: str) -> str:
    """With its first letter as a capital, and every other as it is: names are among them."""
    return text[:1].upper() + text[1:]


def begun(text: str, *names: str) -> str:
    """`sentence`, unless it begins with one of these names, or with a part of one: users write those."""
    first = text.partition(" ")[0].rstrip(":,")
    return text if first and any(n == first or n.startswith(f"{first}-") for n in names) else sentence(text)
