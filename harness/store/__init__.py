"""A run's directory and what is kept in it: cases, crash states with their verdicts, findings' evidence.

```
reports/runs/<date>-<name>/    run.json          what was run, on what, by which version
                               powercut.sqlite   cases, states, violations, evidence
                               cases/<fs>-<mode>/<workload>/   recordings, written by `harness.run`
                               findings/<hash12>/ and the reports, written by `harness.report`
reports/latest -> runs/...
```

SQLite in WAL mode with synchronous=FULL and one transaction a call: after `kill -9`, or a power cut, the
run holds every call that returned, and nothing of one that did not. Findings are no table: they are computed
from the violations, so they cannot depend on the order in which the states came in.

Not kept here: trees, images, logs. A crash state is a recipe; whoever wants its bytes makes them again.
Text of foreign origin (paths, kernel messages) is kept as UTF-8, other bytes written as `\\udcff`.
"""

from harness.store.run_store import RunStore

__all__ = ["RunStore"]
