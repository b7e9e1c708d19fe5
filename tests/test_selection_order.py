"""Permuting the order in which candidates complete never changes the winner.

For the rule "all candidates", with neither deadline nor budget. Whole runs under virtual time:
Hypothesis draws what each candidate comes to (scores that tie, costs that differ, failures) and
several orders of completion; all runs must select the same one, and it must be the one that a
model picks by looking at the candidates alone. Each comparison first shows that the orders did
differ.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import attrs
import pytest
import trio
from hypothesis import assume, given, settings, strategies as st
from trio.testing import MockClock

from hortator import (
    BestOfN,
    CandidateContext,
    Event,
    RunResult,
    Score,
    Usage,
    best_score,
    open_runtime,
)
from hortator.protocols.candidate import Generated
from hortator.protocols.scoring import Objective

TOLERANCE = 0.1

How = Literal["scored", "rejected", "generation fails", "scoring fails", "publishes and fails"]


@attrs.frozen
class Fate:
    """What one candidate comes to, whatever the order."""

    score: float
    cost: Decimal
    tokens: int
    how: How


fates = st.lists(
    st.builds(
        Fate,
        # Steps of 0.03 and a tolerance of 0.1: chains of near ties, as in GAP-11.
        score=st.integers(0, 12).map(lambda step: step * 0.03),
        cost=st.sampled_from([Decimal(0), Decimal("0.1"), Decimal("0.2")]),
        tokens=st.integers(0, 2),
        how=st.sampled_from(
            ["scored"] * 5
            + ["rejected", "generation fails", "scoring fails", "publishes and fails"]
        ),
    ),
    min_size=2,
    max_size=7,
)


class Played:
    """One run of a set of fates, in one order."""

    def __init__(self, fated: list[Fate], order: tuple[int, ...], in_scoring: bool) -> None:
        self.fated, self.order, self.in_scoring = fated, order, in_scoring
        self.ended: list[int] = []

    async def generate(self, request: str, ctx: CandidateContext) -> str:
        fate = self.fated[ctx.index]
        await trio.sleep(1 if self.in_scoring else 1 + self.order.index(ctx.index))
        ctx.charge(Usage(cost=fate.cost, total_tokens=fate.tokens))
        if fate.how == "publishes and fails":
            ctx.publish("a draft", 1e6)
        if fate.how in ("generation fails", "publishes and fails"):
            raise ValueError("fated to fail")
        return f"output {ctx.index}"

    async def score(
        self, request: str, candidate: Generated[str], ctx: CandidateContext
    ) -> Score | str:
        fate = self.fated[ctx.index]
        if self.in_scoring:
            await trio.sleep(1 + self.order.index(ctx.index))
        if fate.how == "scoring fails":
            return "no number"
        return Score(fate.score, accepted=fate.how != "rejected")

    def observe(self, event: Event) -> None:
        if event.kind == "ended" and event.candidate is not None:
            self.ended.append(event.candidate)

    def run(self, objective: Objective, concurrency: int) -> RunResult[str]:
        async def main() -> RunResult[str]:
            async with open_runtime() as runtime:
                job: BestOfN[str, str] = BestOfN(
                    generate=self.generate,
                    score=self.score,  # type: ignore[arg-type]  # fails on purpose
                    n=len(self.fated),
                    max_concurrency=concurrency,
                    objective=objective,
                    tie_tolerance=TOLERANCE,
                )
                return await runtime.run(job, "question", observers=[self.observe])

        return trio.run(main, clock=MockClock(autojump_threshold=0))


def model(fated: list[Fate], objective: Objective) -> int | None:
    """The winner, by the definition and nothing else."""
    sign = 1 if objective == "max" else -1
    scores = {i: sign * fate.score for i, fate in enumerate(fated) if fate.how == "scored"}
    if not scores:
        return None
    ties = [i for i, score in scores.items() if score >= max(scores.values()) - TOLERANCE]
    return min(ties, key=lambda i: (fated[i].cost, fated[i].tokens, i))


def winner(result: RunResult[str]) -> int | None:
    return None if result.selected is None else result.selected.index


@settings(max_examples=60, deadline=None)
@given(st.data(), fates, st.sampled_from(["max", "min"]), st.booleans())
def test_whole_runs_select_the_same_whatever_the_order_of_completion(
    data: st.DataObject, fated: list[Fate], objective: Objective, in_scoring: bool
) -> None:
    n = len(fated)
    orders = [tuple(data.draw(st.permutations(range(n)))) for _ in range(2)]
    assume(orders[0] != orders[1])
    expected = model(fated, objective)
    ended = set()
    for order in orders:
        played = Played(fated, order, in_scoring)
        result = played.run(objective, concurrency=n)
        assert winner(result) == expected
        assert [c.index for c in result.candidates] == list(range(n))
        assert len(result.candidates) == len(played.ended) == n
        ended.add(tuple(played.ended))
    if not in_scoring or all(fate.how in ("scored", "rejected") for fate in fated):
        assert ended == set(orders), "the candidates did not end in the orders asked for"


@settings(max_examples=30, deadline=None)
@given(st.data(), fates, st.sampled_from(["max", "min"]))
def test_whole_runs_select_the_same_whatever_the_concurrency(
    data: st.DataObject, fated: list[Fate], objective: Objective
) -> None:
    n = len(fated)
    order = tuple(data.draw(st.permutations(range(n))))
    expected = model(fated, objective)
    for concurrency in (1, 2, n):
        played = Played(fated, order, in_scoring=False)
        assert winner(played.run(objective, concurrency)) == expected
        if concurrency == 1:
            assert played.ended == list(range(n)), "one at a time, they end in their order"


@given(fates, st.sampled_from(["max", "min"]), st.randoms(use_true_random=False))
def test_the_selector_alone_agrees_with_the_model(
    fated: list[Fate], objective: Objective, random: Any
) -> None:
    result = Played(fated, tuple(range(len(fated))), in_scoring=False).run(objective, 1)
    records = list(result.candidates)
    for _ in range(5):
        random.shuffle(records)
        chosen = best_score().choose(records, objective, TOLERANCE)
        assert chosen == model(fated, objective)


@pytest.mark.parametrize("objective", ["max", "min"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 0, 4, 1, 3)])
def test_gap_11_a_chain_of_near_ties_is_not_walked_down(
    objective: Objective, order: tuple[int, ...]
) -> None:
    # 1.0, 0.91, 0.82, ... each within the tolerance of the one before it, and cheaper.
    sign = 1 if objective == "max" else -1
    chain = [
        Fate(sign * (1.0 - 0.09 * step), Decimal(5 - step) / 10, 0, "scored") for step in range(5)
    ]
    played = Played(chain, order, in_scoring=False)
    result = played.run(objective, concurrency=5)
    assert played.ended == list(order)
    assert winner(result) == 1, "the cheapest within 0.1 of the best, not of its neighbour"
