"""Rules that end a run early: what meets them, and in which direction they read a score."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from hortator import InvalidJob, all_candidates, first_accepted, target
from hortator.protocols.scoring import Objective
from hortator.protocols.stopping import CUT_SHORT, StopReason


@pytest.mark.parametrize("objective", ["max", "min"])
@pytest.mark.parametrize("value", [-1e300, 0.0, 1e300])
def test_all_candidates_is_never_met(objective: Objective, value: float) -> None:
    rule = all_candidates()
    assert not rule.met(value, objective)
    assert (rule.reason, rule.takes_the_first) == ("completed", False)


@pytest.mark.parametrize("objective", ["max", "min"])
@pytest.mark.parametrize("value", [-1e300, 0.0, 1e300])
def test_first_accepted_is_met_by_any_eligible_score(objective: Objective, value: float) -> None:
    rule = first_accepted()
    assert rule.met(value, objective)
    assert (rule.reason, rule.takes_the_first) == ("first_accepted", True)


@pytest.mark.parametrize(
    ("value", "objective", "met"),
    [
        (0.9, "max", True),
        (0.899, "max", False),
        (1.0, "max", True),
        (0.9, "min", True),
        (0.901, "min", False),
        (0.1, "min", True),
    ],
)
def test_a_target_is_inclusive_and_read_in_the_direction_of_the_objective(
    value: float, objective: Objective, met: bool
) -> None:
    assert target(0.9).met(value, objective) is met


def test_a_target_selects_the_best_so_far_and_not_the_one_that_met_it() -> None:
    rule = target(1)
    assert (rule.reason, rule.takes_the_first) == ("target", False)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "0.9", None, 10**400, [1]])
def test_a_target_that_is_no_finite_number_is_refused_with_an_example(value: Any) -> None:
    with pytest.raises(InvalidJob, match=r"target\(0\.9\)") as caught:
        target(value)
    assert isinstance(caught.value, ValueError)


def test_rules_are_values_that_jobs_may_share() -> None:
    assert target(0.5) == target(0.5)
    with pytest.raises(AttributeError):
        target(0.5).value = 1.0  # type: ignore[attr-defined]


def test_a_result_is_partial_iff_the_run_was_cut_short() -> None:
    assert frozenset(get_args(StopReason)) - CUT_SHORT == {
        "completed",
        "first_accepted",
        "target",
        "vote_decided",
        "consistency",
        "no_eligible",
        "selector_declined",
        "selection_failed",
    }
    assert frozenset(get_args(StopReason)) >= CUT_SHORT
