"""What a crash state costs: the project's own speed, measured beside what it could be at best.

Each measurement is a function that gives a dataclass, or NotMeasured with the reason; the figures'
meaning stands in the dataclasses. Everything is measured on one generated workload, recorded once, on
ext4/ordered. Times are medians of single states with their quartiles, and beside the clock's rate stands
the one by processor time, on which the machine's other users have less influence.

Not measured here: how rates add up over several guests, other file systems, other machines than one host's.
"""

from __future__ import annotations

from harness.bench.figures import BenchResult, bench_json
from harness.bench.measure import run_bench
from harness.bench.stage import FULL, QUICK, Effort
from harness.bench.table import table

__all__ = ["FULL", "QUICK", "BenchResult", "Effort", "bench_json", "run_bench", "table"]
