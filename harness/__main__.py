"""`python -m harness` is `powercut`."""

if __name__ == "__main__":  # the workers of `--cluster local:N` import this module, and need no commands
    from harness.cli import main

    main()
