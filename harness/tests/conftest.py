"""What all tests share: how long property tests look.

`default` is the ordinary suite's budget. `HYPOTHESIS_PROFILE=fuzz` (`make fuzz`) gives the tests marked
`fuzz`, those of bytes that come from elsewhere, a hundred times as many examples. A test with a budget of
its own takes it from `harness.tests.budget`, so that the profile reaches it too.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "fuzz",
    max_examples=10_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # it is meant to be slow
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
