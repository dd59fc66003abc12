"""The cases of a run in several processes: those of this host, or the workers of a Dask scheduler.

The unit of work is one case: record it and decide all its crash states, by the same `harness.cases.casework`
as on one machine. A worker does that into a small run directory of its own and sends back a *payload*, which
the run adopts in one transaction. `addresses`: which clusters there may be; `messages`: what travels; `site`:
the worker's side; `dispatch`: who works on what, and what is done when a worker is lost; `shards`: the
processes of this host, for a run with many workers; `over_dask`: the only module that imports `distributed`,
and only when a cluster is asked for.
"""
