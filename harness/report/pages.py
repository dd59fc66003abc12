"""What all pages have in common: each is one file that needs no network, made of a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jinja2

from harness.host.resources import resource
from harness.host.text import printable

Function = Callable[..., object]


def template(
    name: str, functions: Mapping[str, Function] = MappingProxyType({}), **filters: Function
) -> jinja2.Template:
    """A file of `reports/templates` with functions and filters. No text that is put into it, such as a
    guest's, can be markup or control a terminal; a name that is not given to it is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource("reports", "templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters.update(filters)
    environment.globals.update(functions)
    return environment.get_template(name)
