"""A pytest plugin: what holds for each run of pytest on a tree with a fault planted.

* It refuses to test another hortator than the one in the tree that pytest runs in: an installed
  one would hide the planted fault, and every fault would seem to survive.
* Hypothesis tries the same examples each time, or a fault would be noticed by luck; and it does
  not look for a shorter one, since nobody reads what it found.
"""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

import hortator


def pytest_configure(config: pytest.Config) -> None:
    """Look where it was imported from, and settle on examples."""
    found = Path(hortator.__file__).resolve()
    if not found.is_relative_to(config.rootpath.resolve()):
        raise pytest.UsageError(f"hortator is imported from {found}, not from {config.rootpath}")
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    name = "mutants"
    hypothesis.settings.register_profile(name, derandomize=True, database=None, phases=phases)
    hypothesis.settings.load_profile(name)
