"""What a number may be, wherever it is given: as an option of a command, or in a plan of a run directory,
which may be somebody else's.

Each is a type with its limits, for a field of a plan; `harness.cli.options.bounded` makes an option of it.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

Jobs: TypeAlias = Annotated[int, Meta(ge=1, le=256)]
"""Guests, or processes of a build, at once."""
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65_535)]
Seed: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Workloads: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
"""Workloads to make."""
BatchSize: TypeAlias = Annotated[int, Meta(ge=2, le=100_000)]
"""Workloads of one run of a campaign."""
Length: TypeAlias = Annotated[int, Meta(ge=3, le=80)]
"""Operations of a generated workload."""
Schedules: TypeAlias = Annotated[int, Meta(ge=0, le=1_000)]
Depth: TypeAlias = Annotated[int, Meta(ge=0, le=16)]
"""Cuts in recoveries, one within another."""
Cases: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
"""Cases that fail before a run stops."""
Rounds: TypeAlias = Annotated[int, Meta(ge=1, le=100_000)]
"""Rounds of a measurement, or of a trace."""
Entries: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000_000)]
"""Entries of a write log, or a number of one."""
Rows: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
"""Lines of a list."""
LogMib: TypeAlias = Annotated[int, Meta(ge=1, le=65_536)]
LogBytes: TypeAlias = Annotated[int, Meta(ge=1 << 20, le=65_536 << 20)]
"""The size of the log device."""
States: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000_000)]
"""Crash states of a case, as a budget."""
Minutes: TypeAlias = Annotated[float, Meta(gt=0, le=366 * 24 * 60)]
Hours: TypeAlias = Annotated[float, Meta(gt=0, le=366 * 24)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=366 * 24 * 3_600)]
Interval: TypeAlias = Annotated[float, Meta(gt=0, le=24 * 3_600)]
"""Seconds between two histograms."""
Pause: TypeAlias = Annotated[float, Meta(ge=0, le=24 * 3_600)]
"""An interval, or none."""
Times: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]
"""How often something is repeated; 0: without end."""
Repeats: TypeAlias = Annotated[int, Meta(ge=1, le=10_000)]
"""Recoveries of one crash state."""
Scale: TypeAlias = Annotated[float, Meta(ge=0.001, le=10_000)]
Percent: TypeAlias = Annotated[float, Meta(ge=1, le=100)]
Share: TypeAlias = Annotated[float, Meta(ge=0.01, le=1)]
"""Of the states that the memo answers."""
