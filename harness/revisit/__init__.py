"""Work on a finished run: repro, shrink, compare."""
