"""A property test's own number of examples, which `make fuzz` still multiplies."""

from __future__ import annotations

from hypothesis import settings

_ORDINARY = 100  # what Hypothesis gives a test that asks for nothing


def budget(examples: int) -> settings:
    """`examples` in the ordinary suite, and as many times more as the loaded profile has.

    @budget(30)
    @given(...)
    def test_...
    """
    current = settings.get_profile(settings.get_current_profile_name())
    return settings(max_examples=max(1, examples * current.max_examples // _ORDINARY))
