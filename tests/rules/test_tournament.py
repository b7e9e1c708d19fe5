"""The knock-out: how many comparisons, who meets whom, what a judge may answer; and minimum risk.

Scripts are played here by a function that calls the callback at once: no task, no thread.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from hortator import InvalidJob, Preference, Usage, minimum_bayes_risk, tournament
from hortator.protocols.asking import AskingFailed, Case, Raised
from hortator.protocols.candidate import Candidate, Generated
from hortator.protocols.errors import InvalidChoice, InvalidScore
from hortator.protocols.selection import Asks
from hortator.protocols.tournament import bracket
from tests.rules.test_voting import record


def play(selector: Asks, case: Case) -> int | None:
    """Ask for the callback and call it, until the script has decided."""
    script, answer = selector.script(case), None
    while True:
        try:
            args = script.send(answer)
        except StopIteration as end:
            index: int | None = end.value
            return index
        try:
            answer = selector.function(*args)
        except ValueError as error:
            answer = Raised(error)


def field(n: int, **options: Any) -> Case:
    """So many eligible candidates whose output is their index."""
    return Case(request="q", candidates=tuple(record(i, i) for i in range(n)), **options)


def by_strength(strength: Any) -> Callable[..., Generated[int]]:
    return lambda request, first, second: max(first, second, key=lambda c: strength[c.output])


# -- the bracket ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", range(1, 40))
def test_there_is_one_pair_less_than_entrants_and_nobody_plays_much_more(n: int) -> None:
    pairs, winner, played = bracket(range(n), seed=n), None, Counter[int]()
    count, losers = 0, []
    while True:
        try:
            pair = next(pairs) if winner is None else pairs.send(winner)
        except StopIteration as end:
            champion = end.value
            break
        count += 1
        played.update(pair)
        winner = max(pair)
        losers.append(min(pair))
    assert champion == n - 1
    assert count == n - 1
    assert len(set(losers)) == n - 1, "somebody who had lost played again"
    rounds = (n - 1).bit_length()
    if n > 1:
        assert played[champion] in (rounds, rounds - 1)
        assert set(played) == set(range(n)), "somebody never played"


def test_the_bracket_is_drawn_from_the_seed() -> None:
    def first_pairs(seed: int) -> tuple[int, int]:
        return next(bracket(range(16), seed))

    assert first_pairs(3) == first_pairs(3)
    assert len({first_pairs(seed) for seed in range(20)}) > 10


@given(st.permutations(range(9)), st.integers(0, 2**64 - 1))
def test_a_consistent_judge_gets_its_favourite_from_every_bracket(order: Any, seed: int) -> None:
    assert play(tournament(by_strength(order)), field(9, seed=seed)) == order.index(8)


@given(st.integers(1, 12), st.integers(0, 99), st.randoms(use_true_random=False))
def test_the_order_of_completion_does_not_matter(n: int, seed: int, random: Any) -> None:
    # The records are in index order whatever the order of completion; the bracket is theirs.
    shown: list[list[tuple[int, int]]] = []
    for _ in range(2):
        shown.append([])

        def judge(request: Any, first: Any, second: Any) -> Any:
            shown[-1].append((first.index, second.index))
            return first if (first.index * 7 + second.index * 3) % 2 else second

        play(tournament(judge), field(n, seed=seed))
    assert shown[0] == shown[1]
    assert len(shown[0]) == n - 1


@pytest.mark.parametrize(("limit", "made"), [(None, 6), (9, 6), (6, 6), (3, 3), (1, 1), (0, 0)])
def test_fewer_comparisons_are_for_the_best_by_the_built_in_order(
    limit: int | None, made: int
) -> None:
    asked: list[int] = []

    def judge(request: Any, first: Any, second: Any) -> Any:
        asked.extend((first.index, second.index))
        return max(first, second, key=lambda c: c.index)

    candidates = tuple(record(i, i, score) for i, score in enumerate([3, 1, 4, 1, 5, 9, 2]))
    case = Case(request="q", candidates=candidates)
    winner = play(tournament(judge, comparisons=limit), case)
    assert len(asked) == 2 * made
    best = [5, 4, 2, 0, 6, 1, 3][: made + 1]
    assert set(asked) <= set(best)
    assert winner == max(best)


# -- what a judge is shown, and may answer --------------------------------------------------------


def test_a_judge_is_shown_what_a_scorer_is() -> None:
    seen: list[Any] = []

    def judge(*args: Any) -> Any:
        seen.append(args)
        return args[1]

    candidates = tuple(record(i, f"out {i}", 0.5, tokens=i) for i in range(2))
    play(tournament(judge), Case(request={"a": 1}, candidates=candidates))
    ((request, first, second),) = seen
    assert request == {"a": 1}
    assert {type(first), type(second)} == {Generated}
    shown = sorted((c.index, c.output, c.usage) for c in (first, second))
    assert shown == [(i, f"out {i}", Usage(total_tokens=i)) for i in range(2)]


@pytest.mark.parametrize("tie", [None, Preference(None), Preference(None, rationale="alike")])
def test_a_tie_is_broken_by_the_built_in_order(tie: Any) -> None:
    candidates = (record(0, "a", 0.5, cost="0.2"), record(1, "b", 0.5, cost="0.1"))
    assert play(tournament(lambda r, a, b: tie), Case(request="q", candidates=candidates)) == 1


def test_what_comparisons_cost_is_told() -> None:
    spent: list[Usage] = []
    judge = tournament(lambda r, a, b: Preference(a, usage=Usage(model_calls=1)))
    play(judge, field(5, spend=spent.append))
    assert spent == [Usage(model_calls=1)] * 4


def test_what_can_not_be_afforded_is_decided_by_the_built_in_order() -> None:
    left = [True, True, False, False]
    asked: list[Any] = []

    def judge(request: Any, first: Any, second: Any) -> Any:
        asked.append(first)
        return max(first, second, key=lambda c: c.index)

    assert play(tournament(judge), field(5, afford=lambda: left.pop(0))) is not None
    assert len(asked) == 2


def test_an_equal_copy_of_one_of_the_two_will_do() -> None:
    def judge(request: Any, first: Any, second: Any) -> Any:
        return attrs.evolve(max(first, second, key=lambda c: c.index))

    assert play(tournament(judge), field(4)) == 3


@pytest.mark.parametrize("answer", [1, True, "first", Generated(9, 9, Usage()), Preference(0)])  # type: ignore[arg-type]
def test_an_answer_that_is_neither_of_the_two_fails_the_selection(answer: Any) -> None:
    with pytest.raises(AskingFailed) as caught:
        play(tournament(lambda r, a, b: answer), field(2))
    assert isinstance(caught.value.error, InvalidChoice)
    assert "`first` or `second`" in str(caught.value.error)


def test_what_a_judge_raises_fails_the_selection_as_itself() -> None:
    error = ValueError("no opinion")

    def judge(request: Any, first: Any, second: Any) -> Any:
        raise error

    with pytest.raises(AskingFailed) as caught:
        play(tournament(judge), field(3))
    assert caught.value.error is error


@pytest.mark.parametrize("n", [0, 1])
def test_without_a_pair_nobody_is_asked(n: int) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError

    assert play(tournament(never), field(n)) == (None if n == 0 else 0)
    assert play(minimum_bayes_risk(never), field(n)) == (None if n == 0 else 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tournament(lambda first, second: first),
        lambda: tournament("judge"),  # type: ignore[arg-type]
        lambda: tournament(lambda r, a, b: a, comparisons=-1),
        lambda: tournament(lambda r, a, b: a, comparisons=True),
        lambda: tournament(lambda r, a, b: a, estimate=Usage(model_calls=-1)),
        lambda: minimum_bayes_risk(lambda a: 1.0),  # type: ignore[arg-type,misc]
    ],
)
def test_what_cannot_work_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidJob):
        make()


# -- minimum Bayes risk --------------------------------------------------------------------------


def overlap(a: set[int], b: set[int]) -> float:
    return len(a & b)


@given(st.lists(st.sets(st.integers(0, 4)), min_size=1, max_size=6), st.data())
def test_it_is_the_one_with_the_highest_mean_similarity(outputs: list[set[int]], data: Any) -> None:
    eligible = data.draw(st.lists(st.booleans(), min_size=len(outputs), max_size=len(outputs)))
    candidates = [
        record(i, output, eligible=good)
        for i, (output, good) in enumerate(zip(outputs, eligible, strict=True))
    ]
    able = [c for c in candidates if c.eligible]

    def total(c: Candidate[Any]) -> float:
        return sum(overlap(c.output, other.output) for other in able if other is not c)

    expected = min(able, key=lambda c: (-total(c), c.index), default=None)
    case = Case(request="q", candidates=tuple(candidates))
    got = play(minimum_bayes_risk(overlap), case)
    assert got == (None if expected is None else expected.index)


def test_each_pair_is_asked_about_once() -> None:
    asked: list[tuple[int, int]] = []

    def similarity(a: int, b: int) -> float:
        asked.append((a, b))
        return 0.0

    assert play(minimum_bayes_risk(similarity), field(6)) == 0
    assert asked == list(itertools.combinations(range(6), 2))


@pytest.mark.parametrize("answer", [math.nan, math.inf, "alike", None])
def test_a_similarity_that_is_no_finite_number_fails_the_selection(answer: Any) -> None:
    with pytest.raises(AskingFailed) as caught:
        play(minimum_bayes_risk(lambda a, b: answer), field(2))
    assert isinstance(caught.value.error, InvalidScore)
    assert "the similarity function returned" in str(caught.value.error)


def test_ties_are_broken_by_the_built_in_order() -> None:
    candidates = tuple(record(i, i, cost=cost) for i, cost in enumerate(["0.2", "0.1", "0.1"]))
    assert play(minimum_bayes_risk(lambda a, b: 1), Case(request="", candidates=candidates)) == 1
