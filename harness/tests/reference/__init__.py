"""Holds the exploration of a run against a plain enumeration of its legal states: `make reference`."""
