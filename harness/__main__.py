"""`python -m harness` is `powercut`."""

from harness.cli import main

main()
