"""Planted defects in the harness's own code: does a test of that part notice?

A file a part: `*.toml` names the tests of the part, and the mutants: a few words of code, what they become,
and what that would hide. `python -m harness.tests.mutants` (`make mutants`) plants one at a time in a copy of
the checkout and runs the part's tests. A mutant that survives needs a test; one whose words are gone is
*stale*, and needs new words.
"""
