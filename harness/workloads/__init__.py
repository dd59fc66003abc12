"""Workloads: read from files, or generated."""
