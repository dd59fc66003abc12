"""Casework: recording a workload, looking at its crash states, judging each."""
