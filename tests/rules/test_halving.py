"""Successive halving as a rule: who goes on at which rung, for a given order of arrival."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hortator import InvalidJob, all_candidates, first_accepted, successive_halving
from hortator.protocols.halving import Pruner, pruner_of, prunes
from hortator.protocols.scoring import Objective
from hortator.protocols.stopping import Following

values = st.floats(-1e6, 1e6)


def halving(eta: int = 2, rungs: int | None = None, objective: Objective = "max") -> Pruner:
    pruner = pruner_of(successive_halving(eta, rungs), objective)
    assert pruner is not None
    return pruner


def at_the_first_rung(scores: list[float], eta: int = 2, **options: Any) -> list[bool]:
    """Who goes on, each candidate publishing once."""
    pruner = halving(eta, **options)
    return [pruner.published(index, score) for index, score in enumerate(scores)]


# -- one rung ------------------------------------------------------------------------------------


def test_who_is_better_than_all_before_goes_on() -> None:
    assert at_the_first_rung([1, 2, 3, 4, 5]) == [True] * 5


def test_in_falling_order_only_the_first_go_on() -> None:
    assert at_the_first_rung([5, 4, 3, 2, 1]) == [True, False, False, False, False]
    assert at_the_first_rung([5, 4, 3, 2, 1], eta=3) == [True, True, False, False, False]


def test_one_half_of_those_that_have_arrived_counts_as_good() -> None:
    # The fourth is second of four; the fifth third of five, where two go on.
    assert at_the_first_rung([9, 1, 2, 8, 7]) == [True, False, False, True, False]
    # The sixth is third of six, where three go on.
    assert at_the_first_rung([9, 1, 2, 8, 1, 7]) == [True, False, False, True, False, True]


def test_ties_go_on() -> None:
    assert at_the_first_rung([1, 1, 1, 1]) == [True] * 4


def test_scores_are_read_in_the_direction_of_the_objective() -> None:
    assert at_the_first_rung([1, 2, 3], objective="min") == [True, False, False]
    assert at_the_first_rung([3, 2, 1], objective="min") == [True, True, True]


@given(st.lists(values, min_size=1), st.integers(2, 5))
def test_nobody_is_dropped_but_behind_a_full_share_of_better_ones(
    scores: list[float], eta: int
) -> None:
    went_on = at_the_first_rung(scores, eta)
    for index, stays in enumerate(went_on):
        before, arrived = scores[:index], index + 1
        better = sum(score > scores[index] for score in before)
        assert stays == (arrived < eta or better < max(1, arrived // eta))
    assert all(went_on[: eta - 1])
    assert went_on[scores.index(max(scores))], "the best was dropped"


@pytest.mark.parametrize("eta", [2, 3, 4])
def test_in_random_order_about_one_in_eta_passes_a_rung(eta: int) -> None:
    draw = random.Random(eta)
    n, shares = 200, []
    for _ in range(100):
        went_on = at_the_first_rung([draw.random() for _ in range(n)], eta)
        shares.append(sum(went_on) / n)
    mean = sum(shares) / len(shares)
    # One in eta of those that are judged, and the few first ones that go on unjudged.
    assert 1 / eta - 0.02 < mean < 1 / eta + 0.05
    assert max(shares) < 1 / eta + 0.2


# -- the rungs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("eta", "judged"), [(2, [1, 2, 4, 8, 16]), (3, [1, 3, 9])])
def test_a_rung_is_reached_with_a_power_of_eta_publications(eta: int, judged: list[int]) -> None:
    pruner = halving(eta)
    for index in range(eta):  # good ones, that have been everywhere
        for _ in range(16):
            pruner.published(index, 100.0)
    dropped_at = [count for count in range(1, 17) if not pruner.published(99, 0.0)]
    assert dropped_at == judged


def test_above_the_last_rung_nobody_is_judged() -> None:
    pruner = halving(2, rungs=2)
    for index in range(2):
        for _ in range(16):
            pruner.published(index, 100.0)
    assert [count for count in range(1, 17) if not pruner.published(99, 0.0)] == [1, 2]


def test_each_rung_has_its_own_scores() -> None:
    pruner = halving()
    assert pruner.published(0, 5.0)
    assert pruner.published(0, 50.0)  # the first at the second rung
    assert pruner.published(1, 6.0), "compared with 5 and not with 50"
    assert not pruner.published(1, 7.0), "compared with 50"


@given(st.permutations(range(16)), st.integers(2, 4))
def test_of_a_law_without_crossings_the_best_is_left_and_few_with_it(
    order: list[int], eta: int
) -> None:
    """All at the same pace, in any order within a step; candidate i is worth i at any rung."""
    pruner = halving(eta)
    alive, survivors = list(order), []
    for step in range(1, 17):
        alive = [index for index in alive if pruner.published(index, index * step)]
        survivors.append(len(alive))
        assert 15 in alive
    assert survivors == sorted(survivors, reverse=True)


def test_the_same_order_decides_the_same() -> None:
    scores = [random.Random(7).random() for _ in range(50)]
    assert at_the_first_rung(scores) == at_the_first_rung(scores)
    again = halving()
    assert [again.published(index, score) for index, score in enumerate(scores)] == (
        at_the_first_rung(scores)
    ), "one run leaves nothing in the rule for the next"


# -- the rule itself -----------------------------------------------------------------------------


def test_it_ends_no_run_and_is_a_value_that_jobs_may_share() -> None:
    rule = successive_halving(3, 4)
    assert (rule.reason, rule.takes_the_first) == ("completed", False)
    assert rule.follow(Following(4, "max", None, lambda *_: None)) is None
    assert rule == successive_halving(eta=3, rungs=4)
    assert hash(rule) == hash(successive_halving(eta=3, rungs=4))


def test_other_rules_drop_nobody() -> None:
    for rule in (all_candidates(), first_accepted()):
        assert not prunes(rule)
        assert pruner_of(rule, "max") is None


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("eta", 1), ("eta", 2.0), ("eta", True), ("eta", None), ("rungs", 0), ("rungs", 1.5)],
)
def test_numbers_that_make_no_rungs_are_refused(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidJob, match=rf"successive_halving\({name}="):
        successive_halving(**{name: wrong})
