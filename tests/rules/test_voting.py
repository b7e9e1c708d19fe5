"""Votes: who belongs to which group, which group wins, and who stands for it.

Pure selectors over records. Each is a function of the set of records: shuffling them changes
nothing. What a vote is to choose is said here a second time, by a model that counts naively.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from hortator import (
    Candidate,
    InvalidJob,
    Score,
    Status,
    Usage,
    best_score,
    plurality_vote,
    top_k,
    weighted_vote,
)
from hortator.protocols.errors import InvalidScore
from hortator.protocols.scoring import Objective
from hortator.protocols.selection import InPlace, first_of, in_order, tie_set
from hortator.protocols.voting import Groups

TOLERANCE = 1e-9


def record(
    index: int,
    output: Any,
    score: float | None = None,
    *,
    cost: str | Decimal = "0",
    tokens: int = 0,
    eligible: bool = True,
    partial: bool = False,
) -> Candidate[Any]:
    return Candidate(
        index,
        Status.ELIGIBLE if eligible else Status.REJECTED,
        output=output,
        score=None if score is None else Score(score),
        usage=Usage(cost=cost, total_tokens=tokens),
        eligible=eligible,
        partial=partial,
    )


def chosen(
    selector: InPlace, records: list[Candidate[Any]], objective: Objective = "max"
) -> int | None:
    return selector.choose(records, objective, TOLERANCE)


def records(scored: bool) -> st.SearchStrategy[list[Candidate[Any]]]:
    row = st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([0.0, 0.5, 1.0]) if scored else st.none(),
        st.sampled_from(["0", "0.1"]),
        st.integers(0, 2),
        st.sampled_from([True] * 4 + [False]),
    )
    return st.lists(row, min_size=1, max_size=9).map(
        lambda rows: [
            record(index, output, score, cost=cost, tokens=tokens, eligible=good)
            for index, (output, score, cost, tokens, good) in enumerate(rows)
        ]
    )


SELECTORS: dict[str, InPlace] = {
    "best_score": best_score(),
    "top_k": top_k(2),
    "plurality_vote": plurality_vote(),
    "plurality_vote by key": plurality_vote(key=lambda output: output == "a"),
    "plurality_vote, unhashable": plurality_vote(key=lambda output: [output]),
    "weighted_vote": weighted_vote(),
    "weighted_vote by weight": weighted_vote(weight=lambda c: 1 / (1 + c.usage.total_tokens)),
}


@pytest.mark.parametrize("name", SELECTORS)
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(name: str, data: Any, random: Any) -> None:
    some = data.draw(records(scored=True))
    shuffled = list(some)
    random.shuffle(shuffled)
    assert chosen(SELECTORS[name], shuffled) == chosen(SELECTORS[name], some)


@given(st.booleans().flatmap(records), st.randoms(use_true_random=False))
def test_nor_does_it_without_scores(some: list[Candidate[Any]], random: Any) -> None:
    shuffled = list(some)
    random.shuffle(shuffled)
    assert chosen(plurality_vote(), shuffled) == chosen(plurality_vote(), some)
    assert first_of(shuffled, "max", TOLERANCE) == first_of(some, "max", TOLERANCE)


def naive(some: list[Candidate[Any]], weigh: Callable[[Candidate[Any]], float]) -> int | None:
    """A vote by brute force: every eligible one is ranked by its group, then by itself."""
    able = [c for c in some if c.eligible]

    def rank(c: Candidate[Any]) -> Any:
        score = 0.0 if c.score is None else c.score.value
        return -score, c.usage.cost, c.usage.total_tokens, c.index

    def votes(c: Candidate[Any]) -> float:
        return sum(weigh(other) for other in able if other.output == c.output)

    return min(able, key=lambda c: (-votes(c), rank(c))).index if able else None


@given(st.booleans().flatmap(records))
def test_the_largest_group_wins_and_its_best_one_is_chosen(some: list[Candidate[Any]]) -> None:
    assert chosen(plurality_vote(), some) == naive(some, lambda c: 1)


@given(records(scored=True))
def test_the_heaviest_group_wins(some: list[Candidate[Any]]) -> None:
    assert chosen(weighted_vote(), some) == naive(some, lambda c: c.score.value if c.score else 0)
    by_tokens = weighted_vote(weight=lambda c: c.usage.total_tokens)
    assert chosen(by_tokens, some) == naive(some, lambda c: c.usage.total_tokens)


# -- W-BON-45, E4 --------------------------------------------------------------------------------


def test_w_bon_45_two_middling_votes_beat_a_single_good_one() -> None:
    assert (
        chosen(plurality_vote(), [record(0, "c", 0.99), record(1, "b", 0.5), record(2, "b")]) != 0
    )
    some = [record(0, "a", 0.6), record(1, "b", 0.5), record(2, "a", 0.4), record(3, "b", 0.5)]
    assert chosen(plurality_vote(), [*some, record(4, "c", 0.99)]) == 0


def test_within_a_group_the_best_score_stands_for_it_in_the_direction_of_the_objective() -> None:
    some = [record(0, "a", 0.2), record(1, "b", 0.9), record(2, "a", 0.7)]
    assert chosen(plurality_vote(), some) == 2
    assert chosen(plurality_vote(), some, "min") == 0


def test_a_tie_between_groups_goes_to_the_better_representative() -> None:
    some = [record(0, "a", 0.5), record(1, "b", 0.75)]
    assert chosen(plurality_vote(), some) == 1
    assert chosen(plurality_vote(), some, "min") == 0
    priced = [record(0, "a", cost="0.2"), record(1, "b", cost="0.1"), record(2, "c", cost="0.1")]
    assert chosen(plurality_vote(), priced) == 1
    with_tokens = [record(0, "a", tokens=2), record(1, "b", tokens=1), record(2, "c", tokens=1)]
    assert chosen(plurality_vote(), with_tokens) == 1


def test_a_wide_tolerance_of_scores_makes_no_ties_of_counts() -> None:
    some = [record(0, "a", 1.0), record(1, "b", 0.0), record(2, "b", 0.0)]
    assert plurality_vote().choose(some, "max", 5.0) == 1


def test_sums_that_differ_only_by_rounding_are_a_tie() -> None:
    some = [
        *(record(i, "a", cost="1") for i in range(2)),
        *(record(2 + i, "b") for i in range(1)),
    ]
    weights = {0: 0.1, 1: 0.2, 2: 0.3}
    assert 0.1 + 0.2 > 0.3
    assert chosen(weighted_vote(weight=lambda c: weights[c.index]), some) == 2


def test_only_what_is_eligible_votes() -> None:
    some = [record(0, "a"), record(1, "b", eligible=False), record(2, "b", eligible=False)]
    assert chosen(plurality_vote(), some) == 0
    assert chosen(plurality_vote(), some[1:]) is None
    assert chosen(weighted_vote(weight=lambda c: 1), some[1:]) is None


# -- groups --------------------------------------------------------------------------------------


def test_unhashable_keys_are_grouped_by_equality() -> None:
    some = [record(0, {"x": 1}), record(1, {"x": 2}), record(2, {"x": 2})]
    assert chosen(plurality_vote(), some) == 1


@pytest.mark.parametrize("order", list(itertools.permutations([frozenset("a"), {"a"}, "a"])))
def test_what_is_equal_is_one_group_hashable_or_not(order: tuple[Any, ...]) -> None:
    groups = Groups()
    numbers = {repr(type(key)) + repr(key): groups.number(key) for key in order}
    assert len(groups) == 2
    assert numbers[repr(set) + "{'a'}"] == numbers[repr(frozenset) + "frozenset({'a'})"]
    assert [groups.number(key) for key in order] == [
        numbers[repr(type(key)) + repr(key)] for key in order
    ]


def test_a_thing_that_does_not_equal_itself_is_in_its_own_group_all_the_same() -> None:
    groups, lists = Groups(), [math.nan]
    assert groups.number(math.nan) == groups.number(math.nan) == 0
    assert groups.number(lists) == groups.number(lists) == 1


@given(st.lists(st.one_of(st.integers(0, 3), st.lists(st.integers(0, 1), max_size=2))))
def test_two_keys_have_the_same_number_iff_they_are_equal(keys: list[Any]) -> None:
    groups = Groups()
    numbers = [groups.number(key) for key in keys]
    for (i, a), (j, b) in itertools.combinations(enumerate(keys), 2):
        assert (numbers[i] == numbers[j]) == (a == b)
    assert set(numbers) == set(range(len(groups)))


# -- what goes wrong -----------------------------------------------------------------------------


def test_what_a_key_raises_comes_out_as_itself() -> None:
    def key(output: str) -> str:
        raise LookupError("no number in it")

    with pytest.raises(LookupError, match="no number in it"):
        chosen(plurality_vote(key), [record(0, "a")])


@pytest.mark.parametrize("weight", [math.nan, math.inf, "heavy", None])
def test_a_weight_is_a_finite_number(weight: Any) -> None:
    with pytest.raises(InvalidScore, match="the weight function returned"):
        chosen(weighted_vote(weight=lambda c: weight), [record(0, "a")])


async def an_async_key(output: str) -> str:
    return output


@pytest.mark.parametrize("make", [plurality_vote, weighted_vote])
@pytest.mark.parametrize(
    ("key", "message"),
    [
        (an_async_key, "called on the loop"),
        ("text", "is not callable"),
        (lambda: 1, "is called as key"),
        (lambda a, b: 1, "is called as key"),
    ],
)
def test_a_key_that_cannot_work_is_refused(make: Any, key: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        make(key=key)


# -- top_k ---------------------------------------------------------------------------------------


@given(records(scored=True), st.sampled_from(["max", "min"]), st.sampled_from([0.0, 0.5, 2.0]))
def test_the_order_is_the_first_then_the_first_of_the_rest(
    some: list[Candidate[Any]], objective: Objective, tolerance: float
) -> None:
    rest, expected = list(some), []
    while ties := tie_set(rest, objective, tolerance):
        first = min(ties, key=lambda c: (c.usage.cost, c.usage.total_tokens, c.index))
        expected.append(first)
        rest.remove(first)
    assert in_order(some, objective, tolerance) == expected
    assert top_k(2).choose(some, objective, tolerance) == (expected[0].index if expected else None)


@given(records(scored=False))
def test_without_scores_the_order_is_cost_tokens_index(some: list[Candidate[Any]]) -> None:
    ranked = in_order(some, "max", TOLERANCE)
    ranks = [(c.usage.cost, c.usage.total_tokens, c.index) for c in ranked]
    assert ranks == sorted(ranks)
    assert {c.index for c in ranked} == {c.index for c in some if c.eligible}
    assert first_of(some, "max", TOLERANCE) == (ranked[0] if ranked else None)


def test_without_scores_what_is_whole_comes_before_what_is_partial() -> None:
    some = [attrs.evolve(record(0, "a", 0.9), partial=True), record(1, "b", cost="5")]
    first = first_of(some, "max", TOLERANCE)
    assert first is not None
    assert first.index == 1


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", None])
def test_k_is_a_whole_number_from_1_up(k: Any) -> None:
    with pytest.raises(InvalidJob, match=r"top_k\(3\)"):
        top_k(k)
