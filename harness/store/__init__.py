"""The run directory and its contents: cases, verdicts on crash states, evidence of findings.

`harness.store.layout` has the paths, `harness.store.lock` keeps out a second writer, `harness.store.digests`
detects damage.

SQLite in WAL mode with synchronous=FULL and one transaction per call: after `kill -9` or a power cut, the
run holds the effect of every call that returned, and no part of one that did not. Findings have no table:
they are computed from the violations, so they cannot depend on the order in which states arrive.

Trees and disk images are not stored. A crash state is a recipe; its bytes are rebuilt from the recording when
needed. Untrusted text (paths, kernel messages) is stored as UTF-8, other bytes written as `\\udcff`.
"""

from harness.store.run_store import RunStore

__all__ = ["RunStore"]
