"""`powercut run --quick`, `--thorough` and `--overnight`: one word for several options, which it prints."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from harness.cli.console import errors
from harness.cli.options import is_typed
from harness.errors import UsageError
from harness.filesystems.profiles import select_profiles

PRESETS: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "quick": {"workloads": ("-w", "quick"), "budget": ("--budget", "100,10s")},
        "thorough": {
            "workloads": ("-w", "all"),
            "fault_models": ("--states", "exhaustive"),
            "again": ("--again", "1"),
            "budget": ("--budget", "1000,2m"),
        },
        "overnight": {
            "workloads": ("-w", "all"),
            "fault_models": ("--states", "exhaustive"),
            "again": ("--again", "1"),
            "disk": ("--disk", "errors"),
            "schedules": ("--schedules", "2"),
            "budget": ("--budget", "5000,10m"),
            "minutes": ("--minutes", "600"),
        },
    }
)
"""Each as parameters of `powercut run`, with the words that one would type for them."""
_ABOUT = {
    "quick": "A first look, within minutes",
    "thorough": "The test that a patch should pass",
    "overnight": "As much as ten hours allow",
}


def words_of(preset: str) -> str:
    """What a preset stands for, as it is typed."""
    return shlex.join(word for words in PRESETS[preset].values() for word in words)


preset_options = [
    click.option(
        f"--{name}",
        is_flag=True,
        help=f"{_ABOUT[name]}. Stands for {words_of(name)}; an option that you add replaces its part.",
    )
    for name in PRESETS
]


def with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of this command line, with what its preset stands for wherever it names nothing; says so.
    Raises UsageError for two presets, and beside --failed-from, which takes all else from a run.
    """
    plain = {name: value for name, value in given.items() if name not in PRESETS}
    asked = [name for name in PRESETS if given[name]]
    if not asked or given["resume"]:  # which refuses it
        return plain
    preset, *others = asked
    if others:
        raise UsageError(
            f"--{preset} and --{others[0]} each say how to run",
            f"leave out one; what --{preset} stands for: {words_of(preset)}",
        )
    if given["failed_from"]:
        raise UsageError(
            f"--{preset} and --failed-from both say how to run: --failed-from takes that from the run",
            f"leave out one, or name single options: {words_of(preset)}",
        )
    taken = {name: words for name, words in PRESETS[preset].items() if not is_typed(name)}
    if profiles := select_profiles(given["configurations"]):
        for_disks = any(not p.stacked and not p.rules for p in profiles)
        taken = {name: words for name, words in taken.items() if name != "disk" or for_disks}
    errors.say(
        f"--{preset}: {shlex.join(w for words in taken.values() for w in words) or 'nothing is left of it'}"
    )
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in taken:
            value = taken[parameter.name][1]
            plain[parameter.name] = parameter.process_value(
                context, (value,) if parameter.multiple else value
            )
    return plain
