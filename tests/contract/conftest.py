"""Fixtures of the tests of the contract.

Every result that a run of these tests comes to, whatever ended it, has a report that reads back to
the same text, and a `repr` of one line. `test_zz_coverage.py` sees to it that all stop reasons are
among them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from hortator import RunResult
from hortator.actors import runner
from tests.contract.scenes import Held

ENOUGH = 20
"""Results of one test whose reports are read: some tests make hundreds that are alike."""


@pytest.fixture
def held() -> Generator[Held]:
    """A sync generator that waits; released at the end of the test, whatever came of it."""
    holding = Held()
    yield holding
    holding.release.set()


@pytest.fixture(autouse=True)
def _every_result_has_a_report(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    made: list[RunResult[Any]] = []
    result_of = runner._result

    def kept(*args: Any) -> RunResult[Any]:
        result = result_of(*args)
        if len(made) < ENOUGH:  # and no more: some tests look for what is kept
            made.append(result)
        return result

    monkeypatch.setattr(runner, "_result", kept)
    yield
    for result in made:
        line = result.to_json()
        read = RunResult.from_json(line)
        assert read.to_json() == line
        assert read.stop_reason == result.stop_reason
        assert "\n" not in repr(result)
        assert result.run_id in repr(result)
