"""Fixtures of the field cases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.field_cases.scenes import Hold


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Holds stubborn work until the test lets it go, at its end at the latest."""
    hold = Hold()
    yield hold
    hold.let_go()
