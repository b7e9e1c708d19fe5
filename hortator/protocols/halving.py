"""Successive halving: losers are dropped while they are under way, so that others get their place.

The asynchronous variant that stops candidates (and does not pause them): no rung waits until all
have reached it. What it decides depends on the order of arrival, and on nothing else.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Protocol

import attrs

from hortator.protocols.checking import whole
from hortator.protocols.scoring import Objective
from hortator.protocols.stopping import AllCandidates, StopRule


class Pruner(Protocol):
    """What a rule that drops single candidates keeps in mind of one run."""

    def published(self, index: int, value: float) -> bool:
        """A candidate has published an output with this score: whether it goes on."""
        ...


@attrs.frozen(kw_only=True)
class SuccessiveHalving(AllCandidates):
    """Never ends a run, but drops candidates that fall behind; see `successive_halving`."""

    eta: int = 2
    rungs: int | None = None


class Halving:
    """The rungs of one run, and the scores of those that have reached them.

    Invariants:

    1. The first eta - 1 arrivals at a rung go on, and so does every new best.
    2. Who is dropped had at least max(1, k // eta) better ones before it, k being the arrivals.
    """

    def __init__(self, rule: SuccessiveHalving, objective: Objective) -> None:
        self._eta, self._most = rule.eta, rule.rungs
        self._sign = 1.0 if objective == "max" else -1.0
        self._counts: dict[int, int] = {}
        self._arrived: list[list[float]] = []

    def published(self, index: int, value: float) -> bool:
        """Count it, and judge the candidate if that takes it to a rung."""
        count = self._counts[index] = self._counts.get(index, 0) + 1
        rung, reached_with = 0, 1
        while reached_with < count:
            rung, reached_with = rung + 1, reached_with * self._eta
        if reached_with != count or (self._most is not None and rung >= self._most):
            return True  # between two rungs, or above the last one
        if rung == len(self._arrived):
            self._arrived.append([])
        arrived, signed = self._arrived[rung], self._sign * value
        better = len(arrived) - bisect_right(arrived, signed)
        insort(arrived, signed)
        return len(arrived) < self._eta or better < max(1, len(arrived) // self._eta)


def prunes(rule: StopRule) -> bool:
    """Whether a rule may drop single candidates."""
    return isinstance(rule, SuccessiveHalving)


def pruner_of(rule: StopRule, objective: Objective) -> Pruner | None:
    """What the rule needs for one run, None if it never drops a candidate."""
    return Halving(rule, objective) if isinstance(rule, SuccessiveHalving) else None


def successive_halving(eta: int = 2, rungs: int | None = None) -> StopRule:
    """Drop candidates that fall behind, judged by the scores that they publish under way.

    A candidate reaches rung r = 0, 1, 2, … with its eta**r-th publication that has a score
    (`ctx.publish(output, score)`): its 1st, 2nd, 4th, 8th for eta = 2. Let k be how many have
    reached that rung so far, itself included. It goes on if k < eta, or if fewer than
    max(1, floor(k / eta)) of them have a better score. So the best so far always goes on, ties
    go on, and nobody waits for others. Who does not go on is told to stop there and then: it
    ends `cancelled`, what it published last stands as its partial output, and its slot is free
    for the next one. The run ends when all have ended, as "completed".

    This is asynchronous successive halving in its stopping variant: K. Jamieson, A. Talwalkar,
    "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016 (the
    rungs); L. Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020
    (without waiting). If n arrive in random order, about n / eta of them pass each rung; if each
    is better than all before it, everyone does.

    Candidates that publish nothing, or without a score, are never dropped. Scores have to mean
    the same after the same number of publications; and what a dropped candidate leaves is
    compared, at the end, with the scores that the scorer has given.

    Args:
        eta: of so many one goes on; 2 or more.
        rungs: how many rungs there are; None for no end.

    Raises:
        InvalidJob: eta is no whole number from 2 up, or rungs none from 1 up.

    >>> from hortator import BestOfN
    >>> async def generate(request, ctx):
    ...     draft = request
    ...     for step in range(8):
    ...         draft = await improve(draft)
    ...         ctx.publish(draft, score=len(draft))
    ...     return draft
    >>> async def score(request, candidate, ctx):
    ...     return len(candidate.output)
    >>> job = BestOfN(generate=generate, score=score, n=8, stop=successive_halving(eta=2))
    """
    whole("eta", eta, least=2, example=3, of="successive_halving")
    if rungs is not None:
        whole("rungs", rungs, example=2, of="successive_halving")
    return SuccessiveHalving(eta=eta, rungs=rungs)
