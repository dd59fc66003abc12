"""`powercut docs`: the documents of this installation, as a site that needs no server."""

from __future__ import annotations

import sys
import webbrowser

import click

from harness.cli.console import console
from harness.cli.guard import guarded
from harness.errors import EnvironmentLacks, ExitCode
from harness.host.resources import checkout_documents, site


@click.command("docs")
@click.option("--open/--path", "opens", default=None,
              help="Open it in a browser, or only print the path. On a terminal: open.")  # fmt: skip
@guarded
def docs_command(opens: bool | None) -> ExitCode:
    """Open the documents, or print where they are.

    \b
    powercut docs                 in a browser
    powercut docs --path          the path of the first page

    A wheel and an image have the documents built in. In a checkout, make docs builds them; until then --path
    prints its docs/.
    """
    page = site()
    if page is None and opens is False:
        page = checkout_documents()
    if page is None:
        raise EnvironmentLacks("the documents are not built", "run: make docs")
    if sys.stdout.isatty() if opens is None else opens:
        webbrowser.open(page.as_uri())
    console.say(str(page))
    return ExitCode.CONSISTENT
