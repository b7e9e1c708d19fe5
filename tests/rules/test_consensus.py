"""Stopping a vote early: when the rest can't change it, and when it hardly will.

Followers are fed with records one by one; what a rule costs and risks is measured on 2,000 seeded
runs of a known law, and compared with what the full vote says.
"""

from __future__ import annotations

import collections
import functools
import math
import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hortator import (
    BestOfN,
    Candidate,
    InvalidJob,
    Status,
    adaptive_consistency,
    plurality_vote,
    vote_decided,
    weighted_vote,
)
from hortator.protocols.asking import Raised, plainly
from hortator.protocols.candidate import TERMINAL
from hortator.protocols.consensus import stability, sure
from hortator.protocols.stopping import Following, StopRule


def votes(rule: StopRule, outputs: Any, n: int, key: Any = None, ask: Any = plainly) -> int | None:
    """After how many ends the rule is met; None if it never is. A None is a failed candidate."""
    follower = rule.follow(Following(n, "max", key, ask))
    assert follower is not None
    for index, output in enumerate(outputs):
        status = Status.ELIGIBLE if output is not None else Status.GENERATION_FAILED
        if follower.ended(Candidate(index, status, output=output)):
            return index + 1
    return None


# -- vote_decided --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "n", "met_after"),
    [
        ("aaa", 5, 3),  # 3 to 0, 2 remain
        ("aaab", 6, None),  # 3 to 1, 2 remain: they could make it a tie
        ("aaaba", 6, 5),
        ("ab", 3, None),
        ("aab", 4, None),
        ("a", 1, None),  # nobody is left to stop
        ("abab", 4, None),
    ],
)
def test_it_is_decided_when_the_rest_can_not_even_make_it_a_tie(
    outputs: str, n: int, met_after: int | None
) -> None:
    assert votes(vote_decided(), outputs, n) == met_after


def test_one_that_fails_has_no_vote_and_leaves_fewer() -> None:
    assert votes(vote_decided(), ["a", "a", None, "a"], 6) == 4
    assert votes(vote_decided(), ["a", None, None], 4) is None
    assert votes(vote_decided(), ["a", "a", None, None], 5) == 4


@pytest.mark.parametrize("status", sorted(TERMINAL - {Status.ELIGIBLE}))
def test_whatever_is_not_eligible_has_no_vote(status: Status) -> None:
    follower = vote_decided().follow(Following(3, "max", None, plainly))
    assert follower is not None
    assert not any(follower.ended(Candidate(i, status, output="a")) for i in range(3))


@given(st.lists(st.sampled_from("abc"), min_size=2, max_size=9))
def test_no_way_of_going_on_would_change_the_winner(outputs: list[str]) -> None:
    met = votes(vote_decided(), outputs, len(outputs))
    if met is None:
        return
    so_far = outputs[:met]
    leader = max("abc", key=so_far.count)
    for other in set("abcd") - {leader}:
        final = so_far + [other] * (len(outputs) - met)
        assert final.count(leader) > final.count(other)
    # … and before that, some way would have.
    before = outputs[: met - 1]
    best = max("abc", key=before.count)
    left = len(outputs) - met + 1
    assert any(before.count(x) + left >= before.count(best) for x in set("abcd") - {best})


def test_the_key_of_the_selector_is_taken_if_there_is_none_of_its_own() -> None:
    assert votes(vote_decided(), ["A", "a", "A"], 5, key=str.lower) == 3
    assert votes(vote_decided(), ["A", "a", "A"], 5) is None
    assert votes(vote_decided(str.lower), ["A", "a", "A"], 5, key=str.swapcase) == 3


def test_unhashable_outputs_are_counted() -> None:
    assert votes(vote_decided(), [[1], [2], [1], [1]], 5) == 4


def test_a_vote_whose_key_raises_is_not_counted() -> None:
    def ask(function: Any, args: Any) -> Any:
        try:
            return function(*args)
        except ValueError as error:
            return Raised(error)

    assert votes(vote_decided(int), ["1", "x", "1", "1"], 5, ask=ask) == 4
    assert votes(vote_decided(int), ["x", "x", "x", "x", "x"], 5, ask=ask) is None


def test_sure_is_strict() -> None:
    assert [sure(3, 1, left) for left in (1, 2, 3)] == [True, False, False]


# -- adaptive_consistency ------------------------------------------------------------------------


def test_stability_is_the_beta_integral() -> None:
    # Against the midpoint rule for the integral of x^v2 (1-x)^v1 from 0 to 1/2, over that to 1.
    steps = 20_000
    for leader, runner_up in [(1, 0), (4, 0), (3, 3), (6, 1), (9, 3), (2, 5)]:
        points = [(i + 0.5) / steps for i in range(steps)]
        heights = [x**runner_up * (1 - x) ** leader for x in points]
        expected = sum(heights[: steps // 2]) / sum(heights)
        assert float(stability(leader, runner_up)) == pytest.approx(expected, abs=1e-6)


@given(st.integers(0, 40), st.integers(0, 40))
def test_stability_is_symmetric_and_grows_with_the_lead(leader: int, runner_up: int) -> None:
    assert stability(leader, runner_up) + stability(runner_up, leader) == 1
    assert stability(leader + 1, runner_up) > stability(leader, runner_up)


@pytest.mark.parametrize(
    ("outputs", "met_after"),
    [("aaaaaa", 4), ("abaaaaaa", 7), ("bbaaaaaaaaaa", 10), ("abababab", None)],
)
def test_it_stops_when_the_leader_is_stable(outputs: str, met_after: int | None) -> None:
    assert votes(adaptive_consistency(), outputs, 40) == met_after


def test_more_confidence_takes_more_votes() -> None:
    needed = [votes(adaptive_consistency(confidence=c), "a" * 39, 40) for c in (0.8, 0.95, 0.999)]
    assert needed == [2, 4, 9]
    assert [stability(v, 0) for v in (2, 9)] == [Fraction(7, 8), Fraction(1023, 1024)]


@pytest.mark.parametrize("confidence", [0.5, 0.0, 1, 1.0, -1, 2, float("nan"), "0.95", None, True])
def test_a_confidence_that_can_not_be_meant_is_refused(confidence: Any) -> None:
    with pytest.raises(InvalidJob, match=r"confidence=0\.95"):
        adaptive_consistency(confidence=confidence)


RUNS, N = 2000, 40
LAW = {"a": 0.6, "b": 0.25, "c": 0.15}


def simulated(rule: StopRule) -> tuple[float, float]:
    """Mean samples, and how often the winner is that of the full vote, over all runs of the law."""
    rng = random.Random(20_231_205)
    drawn, agreed = 0, 0
    for _ in range(RUNS):
        outputs = rng.choices(list(LAW), list(LAW.values()), k=N)
        stop = votes(rule, outputs, N) or N
        drawn += stop
        agreed += _winner(outputs[:stop]) == _winner(outputs)
    return drawn / RUNS, agreed / RUNS


def _winner(outputs: list[str]) -> str:
    return max(sorted(set(outputs)), key=outputs.count)


@functools.cache
def _finally(a: int, b: int, c: int) -> dict[str, float]:
    """How probable it is for each answer to win the full vote, from so many votes on."""
    if a + b + c == N:
        winner = _winner(["a"] * a + ["b"] * b + ["c"] * c)
        return {answer: float(answer == winner) for answer in LAW}
    ways = {"a": _finally(a + 1, b, c), "b": _finally(a, b + 1, c), "c": _finally(a, b, c + 1)}
    return {x: sum(LAW[drawn] * ways[drawn][x] for drawn in LAW) for x in LAW}


def exactly() -> tuple[float, float, float]:
    """Mean and deviation of the samples, and the agreement, from the law itself.

    Forward over all counts of votes: how probable each one is to be reached without a stop.
    """
    reached = {(0, 0, 0): 1.0}
    lengths: dict[int, float] = collections.defaultdict(float)
    agreement = 0.0
    for drawn in range(1, N + 1):
        then: dict[tuple[int, int, int], float] = collections.defaultdict(float)
        for (a, b, c), p in reached.items():
            then[a + 1, b, c] += p * LAW["a"]
            then[a, b + 1, c] += p * LAW["b"]
            then[a, b, c + 1] += p * LAW["c"]
        reached = {}
        for counts, p in then.items():
            second, first = sorted(counts)[1:]
            m = first + second + 1
            stable = sum(math.comb(m, j) for j in range(second + 1, m + 1)) / 2**m
            if stable < 0.95 and drawn < N:
                reached[counts] = p
                continue
            lengths[drawn] += p
            leader = "abc"[counts.index(first)]
            agreement += p * _finally(*counts)[leader]
    mean = sum(t * p for t, p in lengths.items())
    deviation = math.sqrt(sum((t - mean) ** 2 * p for t, p in lengths.items()))
    return mean, deviation, agreement


def test_adaptive_consistency_against_a_simulation() -> None:
    # What the law says exactly is that 18.6 samples are drawn in the mean, with a deviation of
    # 11.9, and that 99.3 % of the runs agree with the full vote of 40. A sample of 2,000 runs is
    # within five standard errors of both, but once in two million times; the seed is fixed.
    mean, deviation, agreement = exactly()
    assert (round(mean, 1), round(deviation, 1), round(agreement, 3)) == (18.6, 11.9, 0.993)
    seen_mean, seen_agreement = simulated(adaptive_consistency())
    assert abs(seen_mean - mean) < 5 * deviation / math.sqrt(RUNS)
    error = math.sqrt(agreement * (1 - agreement) / RUNS)
    assert abs(seen_agreement - agreement) < 5 * error
    # So the rule saves half of the samples, and costs less than the 5 % that it is told to risk.
    assert seen_mean < N / 2
    assert seen_agreement > 0.95


def test_a_decided_vote_always_agrees_with_the_full_one() -> None:
    mean, agreement = simulated(vote_decided())
    assert agreement == 1.0
    # Decided when the lead exceeds what remains: with a lead of 0.35 t after t samples at
    # t = 40 / 1.35 = 29.6, and fluctuations only move that by a few.
    assert 27 < mean < 33


# -- in a job ------------------------------------------------------------------------------------


async def generate(request: Any, ctx: Any) -> str:
    return "a"


@pytest.mark.parametrize("rule", [vote_decided(), adaptive_consistency()])
@pytest.mark.parametrize("select", [None, weighted_vote(weight=lambda c: 1), lambda r, c: 0])
def test_they_need_a_plurality_vote(rule: StopRule, select: Any) -> None:
    parts = {} if select is None else {"select": select}
    with pytest.raises(InvalidJob, match=r"write select=plurality_vote\(\)"):
        BestOfN(generate=generate, score=lambda r, c, ctx: 1, stop=rule, **parts)
    assert BestOfN(generate=generate, stop=rule, select=plurality_vote()).n == 3


@pytest.mark.parametrize("make", [vote_decided, adaptive_consistency])
def test_one_that_was_not_called_is_refused(make: Any) -> None:
    with pytest.raises(InvalidJob, match=r"with \(\)"):
        BestOfN(generate=generate, select=plurality_vote(), stop=make)
