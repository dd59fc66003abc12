"""Tracing a file system in the guest with tools, by the kernel's tracepoints."""
