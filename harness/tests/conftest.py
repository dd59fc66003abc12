"""What all tests share: their order, and how long property tests look.

`default` is the ordinary suite's budget. `HYPOTHESIS_PROFILE=fuzz` (`make fuzz`) gives the tests marked
`fuzz`, those of bytes that come from elsewhere, a hundred times as many examples. `mutants` (`make mutants`)
has the default's examples, always the same. A test with a budget of its own takes it from
`harness.tests.budget`, so that the profile reaches it too; one with `settings(max_examples=...)` has the same
examples in every profile.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "fuzz",
    max_examples=10_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # it is meant to be slow
)
settings.register_profile(
    "mutants",
    deadline=None,
    database=None,
    derandomize=True,  # so that a mutant which survives does so again
    phases=[Phase.explicit, Phase.generate],  # no example is made smaller: nobody looks at it
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, which is not made yet: the user's may hold kernel trees."""
    monkeypatch.setenv("POWERCUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests with guests first: a file of them takes minutes, and files of seconds fill the end."""
    items.sort(key=lambda item: item.path.parent.name != "vm")
