"""`python -m harness` is `powercut`."""

from harness.cli import main

if __name__ == "__main__":  # the workers of `--cluster local:N` import it
    main()
