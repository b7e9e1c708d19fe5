"""Fixtures of the tests of the contract."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.contract.scenes import Held


@pytest.fixture
def held() -> Generator[Held]:
    """A sync generator that waits; released at the end of the test, whatever came of it."""
    holding = Held()
    yield holding
    holding.release.set()
