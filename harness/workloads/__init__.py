"""Workloads, from files and generated."""
