"""The attack on the harness itself: `make chaos`, or `python -m harness.tests.chaos --minutes N --seed S`.

A trial does something to a run that may happen to it (a kill, a flipped bit, a hostile guest, a full disk,
a second process) and holds what it says afterwards against an undisturbed run of the same recordings. The
same verdict, or an error in one line, is right; a verdict of another colour, a traceback, a hang, and
anything left behind are defects.

`verdicts.py` says what is wrong; `kills.py`, `damage.py`, `frames.py`, `full_disk.py` and `together.py` are
the attacks; `lanes.py` shares the time out among them.
"""
