"""Casework: record a workload, recover its crash states, judge each."""
