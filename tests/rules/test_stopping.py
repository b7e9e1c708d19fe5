"""Rules that end a run early: what meets them, and in which direction they read a score."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from hortator import (
    Candidate,
    InvalidJob,
    Score,
    Status,
    all_candidates,
    first_accepted,
    target,
)
from hortator.protocols.asking import plainly
from hortator.protocols.candidate import TERMINAL
from hortator.protocols.scoring import Objective
from hortator.protocols.stopping import CUT_SHORT, Follower, Following, StopReason, StopRule


def follower(rule: StopRule, objective: Objective = "max", n: int = 3) -> Follower | None:
    """The rule at work in a run of so many."""
    return rule.follow(Following(n, objective, None, plainly))


def scored(value: float, status: Status = Status.ELIGIBLE) -> Candidate[str]:
    """A record with this score."""
    return Candidate(0, status, output="a", score=Score(value), eligible=status is Status.ELIGIBLE)


def met(rule: StopRule, record: Candidate[str], objective: Objective = "max") -> bool:
    """Whether the rule is met by this record alone."""
    found = follower(rule, objective)
    return found is not None and found.ended(record)


def test_nobody_has_to_look_for_all_candidates() -> None:
    rule = all_candidates()
    assert follower(rule) is None
    assert (rule.reason, rule.takes_the_first) == ("completed", False)


@pytest.mark.parametrize("objective", ["max", "min"])
@pytest.mark.parametrize("value", [-1e300, 0.0, 1e300])
def test_first_accepted_is_met_by_any_eligible_score(objective: Objective, value: float) -> None:
    rule = first_accepted()
    assert met(rule, scored(value), objective)
    assert (rule.reason, rule.takes_the_first) == ("first_accepted", True)


def test_first_accepted_is_met_by_an_eligible_candidate_without_a_score() -> None:
    assert met(first_accepted(), Candidate(0, Status.ELIGIBLE, output="a", eligible=True))


@pytest.mark.parametrize("rule", [first_accepted(), target(-1e9)])
@pytest.mark.parametrize("status", sorted(TERMINAL - {Status.ELIGIBLE}))
def test_only_what_is_eligible_meets_a_rule(rule: StopRule, status: Status) -> None:
    assert not met(rule, scored(1.0, status))


@pytest.mark.parametrize(
    ("value", "objective", "reached"),
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
    value: float, objective: Objective, reached: bool
) -> None:
    assert met(target(0.9), scored(value), objective) is reached


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
