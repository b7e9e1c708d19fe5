"""Choosing among candidates that have ended: the tie set and the order inside it.

The tie set is everything within the tolerance of the *best* score; inside it the cheapest wins,
then the one with the fewest tokens, then the lowest index. The choice depends on the records
alone, never on the order in which they were made.
"""

from __future__ import annotations

import math
from decimal import Decimal

import attrs
import pytest
from hypothesis import assume, given, strategies as st

from hortator import Candidate, Score, Status, Usage, best_score
from hortator.protocols.scoring import Objective
from hortator.protocols.selection import tie_set

DEFAULT_TOLERANCE = 1e-9


def eligible(
    index: int, score: float, *, cost: str | Decimal = "0", tokens: int = 0
) -> Candidate[str]:
    return Candidate(
        index,
        Status.ELIGIBLE,
        output=f"output {index}",
        score=Score(score),
        usage=Usage(total_tokens=tokens, cost=cost),
        eligible=True,
    )


def chosen(
    candidates: list[Candidate[str]],
    objective: Objective = "max",
    tolerance: float = DEFAULT_TOLERANCE,
) -> int | None:
    return best_score().choose(candidates, objective, tolerance)


finite = st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1.0, 0.95, 0.9, -1.0])
records = st.lists(
    st.tuples(
        finite,
        st.sampled_from(["0", "0.1", "0.2", "0.000000001"]),
        st.integers(0, 3),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
).map(
    lambda rows: [
        attrs.evolve(eligible(index, score, cost=cost, tokens=tokens), eligible=good)
        for index, (score, cost, tokens, good) in enumerate(rows)
    ]
)
objectives: st.SearchStrategy[Objective] = st.sampled_from(["max", "min"])
tolerances = st.sampled_from([0.0, DEFAULT_TOLERANCE, 0.1, 1.0])


@given(records, objectives, tolerances, st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(
    candidates: list[Candidate[str]], objective: Objective, tolerance: float, random: object
) -> None:
    shuffled = list(candidates)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert chosen(shuffled, objective, tolerance) == chosen(candidates, objective, tolerance)


@given(records, objectives, tolerances)
def test_the_chosen_one_is_eligible_and_within_the_tolerance_of_the_best(
    candidates: list[Candidate[str]], objective: Objective, tolerance: float
) -> None:
    index = chosen(candidates, objective, tolerance)
    scores = [c.score.value for c in candidates if c.eligible and c.score is not None]
    if not scores:
        assert index is None
        return
    assert index is not None, "nobody was chosen though somebody is eligible"
    score = candidates[index].score
    assert candidates[index].eligible
    assert score is not None
    best = max(scores) if objective == "max" else min(scores)
    assert abs(score.value - best) <= tolerance * (1 + 1e-12) + 1e-9


@given(records, objectives, tolerances)
def test_nobody_in_the_tie_set_is_cheaper_than_the_chosen_one(
    candidates: list[Candidate[str]], objective: Objective, tolerance: float
) -> None:
    index = chosen(candidates, objective, tolerance)
    assume(index is not None)
    assert index is not None
    ranks = {
        c.index: (c.usage.cost, c.usage.total_tokens, c.index)
        for c in tie_set(candidates, objective, tolerance)
    }
    assert ranks[index] == min(ranks.values())


@given(records, tolerances)
def test_a_smaller_score_is_better_when_minimising(
    candidates: list[Candidate[str]], tolerance: float
) -> None:
    negated = [
        attrs.evolve(c, score=None if c.score is None else Score(-c.score.value))
        for c in candidates
    ]
    assert chosen(candidates, "min", tolerance) == chosen(negated, "max", tolerance)


# -- GAP-11, W-BON-07, W-BON-41: a chain of near ties --------------------------------------------


@pytest.mark.parametrize("objective", ["max", "min"])
@pytest.mark.parametrize("backwards", [False, True])
def test_gap_11_a_chain_of_near_ties_never_walks_away_from_the_best(
    objective: Objective, backwards: bool
) -> None:
    sign = 1 if objective == "max" else -1
    # Each is within the tolerance of the one before, and cheaper: 1.0, 0.91, 0.82, ... 0.64.
    chain = [
        eligible(index, sign * (1.0 - 0.09 * index), cost=f"{1 - index / 10:.1f}")
        for index in range(5)
    ]
    ties = tie_set(chain[::-1] if backwards else chain, objective, 0.1)
    assert {c.index for c in ties} == {0, 1}
    assert chosen(chain[::-1] if backwards else chain, objective, 0.1) == 1


def test_the_tolerance_is_inclusive() -> None:
    pair = [eligible(0, 1.0, cost="0.2"), eligible(1, 0.75, cost="0.1")]
    assert chosen(pair, tolerance=0.25) == 1
    assert chosen(pair, tolerance=0.2499) == 0


def test_a_tolerance_of_zero_ties_only_what_is_equal() -> None:
    three = [
        eligible(0, math.nextafter(1.0, 0), cost="0"),
        eligible(1, 1.0, cost="0.2"),
        eligible(2, 1.0, cost="0.1"),
    ]
    assert chosen(three, tolerance=0.0) == 2


# -- W-BON-42: the order inside the tie set ------------------------------------------------------


def test_w_bon_42_lower_cost_then_fewer_tokens_then_lower_index() -> None:
    three = [
        eligible(0, 1.0, cost="0.2", tokens=10),
        eligible(1, 1.0, cost="0.1", tokens=20),
        eligible(2, 1.0, cost="0.1", tokens=5),
    ]
    assert chosen(three) == 2
    assert chosen(three[:2]) == 1
    assert chosen([eligible(4, 1.0), eligible(3, 1.0)]) == 3


def test_a_nano_dollar_decides_a_tie() -> None:
    pair = [eligible(0, 1.0, cost="0.100000001"), eligible(1, 1.0, cost="0.1")]
    assert chosen(pair) == 1


def test_cost_does_not_matter_beyond_the_tolerance() -> None:
    assert chosen([eligible(0, 1.0, cost="9"), eligible(1, 0.999)]) == 0


# -- who may be chosen ---------------------------------------------------------------------------


def test_only_what_is_eligible_is_chosen() -> None:
    rejected = attrs.evolve(eligible(0, 5.0), status=Status.REJECTED, eligible=False)
    cut = attrs.evolve(eligible(1, 2.0), status=Status.TIMED_OUT, partial=True)
    assert chosen([rejected, cut, eligible(2, 1.0)]) == 1


def test_nobody_is_chosen_if_nobody_is_eligible() -> None:
    assert chosen([]) is None
    assert chosen([Candidate(0, Status.GENERATION_FAILED), Candidate(1, Status.SKIPPED)]) is None


def test_the_result_names_the_rule() -> None:
    assert best_score().name == "best_score"
