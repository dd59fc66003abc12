"""The guest with tools, and what the kernel's tracepoints tell in it."""
