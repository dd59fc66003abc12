"""Bugs of unmodified kernels as folders that one can send: `reports/findings/SLUG`."""
