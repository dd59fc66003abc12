"""What all pages have in common: each is one file that needs no network, made of a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jinja2

from harness.host.resources import resource
from harness.host.text import printable

Function = Callable[..., object]


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
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters.update({"sentence": sentence, **filters})
    environment.globals.update(functions)
    return environment.get_template(name)


def sentence(text: str) -> str:
    """With its first letter as a capital, and every other as it is: names are among them."""
    return text[:1].upper() + text[1:]


def begun(text: str, *names: str) -> str:
    """`sentence`, unless it begins with one of these names, or with a part of one: users write those."""
    first = text.partition(" ")[0].rstrip(":,")
    return text if first and any(n == first or n.startswith(f"{first}-") for n in names) else sentence(text)
