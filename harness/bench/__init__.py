"""The cost of a crash state: Powercut's own speed, measured beside a lower bound.

Each measurement is a function that returns tables, and says what their figures are. Everything is measured on
one generated workload, recorded once, on ext4/ordered. Times are medians over single states, with quartiles.
Rates are given by wall-clock time and by processor time, on which other users of the machine have less
influence.

Not measured here: how rates add up over several guests, other file systems, other hosts.
"""

from __future__ import annotations

from harness.bench.measure import run_bench
from harness.bench.setup import FULL, QUICK, Effort

__all__ = ["FULL", "QUICK", "Effort", "run_bench"]
