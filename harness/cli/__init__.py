"""The command line; see `harness.cli.run`."""

from harness.cli.run import main

__all__ = ["main"]
