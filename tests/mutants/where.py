"""A pytest plugin: refuse to test another hortator than the one in the tree that pytest runs in.

An installed one would hide the planted fault, and every fault would seem to survive.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hortator


def pytest_configure(config: pytest.Config) -> None:
    """Look where it was imported from."""
    found = Path(hortator.__file__).resolve()
    if not found.is_relative_to(config.rootpath.resolve()):
        raise pytest.UsageError(f"hortator is imported from {found}, not from {config.rootpath}")
