"""What has to be there in a test."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def there(found: T | None) -> T:
    """What was found; the test fails where nothing was."""
    assert found is not None
    return found
