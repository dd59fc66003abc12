"""A run's directory and what is kept in it: cases, crash states with their verdicts, findings' evidence.

Where what is: `harness.store.layout`. Who may write: `harness.store.lock`. What shows that something is not
what was written: `harness.store.digests`.

SQLite in WAL mode with synchronous=FULL and one transaction a call: after `kill -9`, or a power cut, the
run holds every call that returned, and nothing of one that did not. Findings are no table: they are computed
from the violations, so they cannot depend on the order in which the states came in.

Not kept here: trees, images, logs. A crash state is a recipe; whoever wants its bytes makes them again.
Text of foreign origin (paths, kernel messages) is kept as UTF-8, other bytes written as `\\udcff`.
"""

from harness.store.run_store import RunStore

__all__ = ["RunStore"]
