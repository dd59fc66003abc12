"""Attacks on the harness itself: `make chaos`, or `python -m harness.tests.chaos --minutes N --seed S`.

A trial does to a run what may happen to it (a kill, a flipped bit, a hostile guest, a full disk, a second
process) and compares the result with an undisturbed run of the same recordings. The same verdict, or a
one-line error, is right; a changed verdict, a traceback, a hang, and anything left behind are defects.

`verdicts.py` decides what is wrong; `kills.py`, `many_runs.py`, `damage.py`, `foreign.py`, `frames.py`,
`full_disk.py` and `together.py` are the attacks; `lanes.py` divides the time among them.
"""
