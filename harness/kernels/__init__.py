"""Kernels under test: find, unpack, build."""
