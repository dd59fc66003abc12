"""Kernels under test: found, unpacked, built."""
