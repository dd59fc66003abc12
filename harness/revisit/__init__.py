"""Looking at a finding again: repro, shrink, compare."""
