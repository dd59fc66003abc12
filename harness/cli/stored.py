"""The rows of `powercut list runs`: runs, series (campaigns, histories, ...) and measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harness.host.text import one_line
from harness.measure.run import NOT_REACHED
from harness.series.journal import JOURNAL, End, last_end
from harness.store.layout import LOCK, PLAN, RUN, runs
from harness.store.lock import holder_of

MEASUREMENTS = "measurements.json"
_ENDS = {End.COMPLETE: "finished", End.TIME_UP: "stopped: time up", End.INTERRUPTED: "interrupted"}


def stored_rows(out: Path) -> Iterator[tuple[str, ...]]:
    """Path, kernel, state and command of everything that is kept below `out`, oldest first; of any version,
    as far as its files can be read.
    """
    for path in sorted(p for p in runs(out).glob("*/") if not p.is_symlink()):
        for name, row in ((RUN, _run), (PLAN, _series), (MEASUREMENTS, _measured)):
            if (path / name).is_file():
                yield (str(path), *map(one_line, _read(path, name, row)))
                break


def _read(path: Path, name: str, row: Any) -> tuple[str, str, str]:
    try:
        kernel, state, command = row(path, msgspec.json.decode((path / name).read_bytes()))
        if state != "finished" and holder_of(path / LOCK):
            state = "at work"
    except (OSError, ValueError, AttributeError, KeyError, TypeError, IndexError, RecursionError):
        return ("?", "cannot be read", "")
    return str(kernel), str(state), str(command)


def _run(path: Path, info: Mapping[str, Any]) -> tuple[str, str, str]:
    how = f"stopped: {info['stopped']}" if info.get("stopped") else "interrupted"
    whole = how if info.get("interrupted") else "finished"
    if (text := path / "summary.txt").is_file():
        whole += f": {text.read_text(errors='replace').rstrip().rpartition(chr(10))[2]}"
    return info["kernel"]["name"], whole if info.get("finished") else "not finished", " ".join(info["argv"])


def _series(path: Path, plan: Mapping[str, Any]) -> tuple[str, str, str]:
    """Of a series, whose journal says how it ended, or of a measurement, which has none."""
    run = plan.get("run") or plan.get("plan") or {}
    kernels = plan.get("kernels") or [plan.get("kernel") or run.get("kernel") or "-"]
    command = " ".join(plan.get("argv") or run.get("argv") or [])
    if (path / JOURNAL).is_file():
        end = last_end(path)
        state = _ENDS[end] if end else "not finished"
    else:
        file = path / MEASUREMENTS
        state = _taken(msgspec.json.decode(file.read_bytes())) if file.is_file() else "not finished"
    return ", ".join(kernels), state, command


def _measured(_: Path, found: list[Mapping[str, Any]]) -> tuple[str, str, str]:
    return found[0]["kernel"], _taken(found), " ".join(found[0]["command"]).removeprefix("powercut ")


def _taken(found: list[Mapping[str, Any]]) -> str:
    """Whether a measurement went through all of its rounds, also where it could not measure some of it."""
    left = any(str(why).endswith(NOT_REACHED) for why in found[0].get("missing", ()))
    return "not finished" if left else "finished"
