"""A candidate's life and record: legal steps, what each end keeps, what each end costs.

Real runs under virtual time; the rows W-BON-32 to 35 and 47 to 49 in the design's readings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pytest
import trio

from hortator import (
    BestOfN,
    Budget,
    CandidateContext,
    RunResult,
    Score,
    Status,
    Usage,
    open_runtime,
)
from hortator.protocols.candidate import STEPS, TERMINAL, Generated
from hortator.protocols.errors import InvalidScore, LeaseExceeded
from hortator.protocols.usage import MOST, Malformed

Generator: TypeAlias = Callable[[str, CandidateContext], Awaitable[str]]
Scoring: TypeAlias = Callable[[str, Generated[str], CandidateContext], Awaitable[Any]]


async def answer(request: str, ctx: CandidateContext) -> str:
    return f"{request} {ctx.index}"


async def by_index(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    return float(candidate.index)


async def run(
    generate: Generator = answer, score: Scoring = by_index, **options: Any
) -> RunResult[str]:
    async with open_runtime() as runtime:
        return await runtime.run(BestOfN(generate=generate, score=score, **options), "attempt")


def statuses(result: RunResult[str]) -> list[str]:
    return [str(candidate.status) for candidate in result.candidates]


# -- the steps -----------------------------------------------------------------------------------


def test_w_bon_36_the_statuses_and_which_of_them_are_ends() -> None:
    assert [str(status) for status in Status] == [
        "pending",
        "generating",
        "generated",
        "scoring",
        "eligible",
        "rejected",
        "generation_failed",
        "scoring_failed",
        "budget_exceeded",
        "side_effect_blocked",
        "cancelled",
        "timed_out",
        "skipped",
    ]
    assert set(STEPS) == set(list(Status)[:4])
    assert set(TERMINAL) == set(list(Status)[4:])


def test_every_end_can_be_reached_and_no_step_leads_back() -> None:
    order = list(Status)
    reachable = {Status.PENDING}
    for status in order[:4]:
        assert status in reachable
        assert all(order.index(then) > order.index(status) for then in STEPS[status])
        reachable |= STEPS[status]
    assert reachable == set(Status)


def test_only_what_was_scored_can_be_rejected() -> None:
    for end in (Status.REJECTED, Status.SCORING_FAILED):
        assert [status for status, then in STEPS.items() if end in then] == [Status.SCORING]


# -- records -------------------------------------------------------------------------------------


async def test_w_bon_35_candidates_are_in_index_order_whatever_the_order_of_their_ends(
    autojump_clock: Any,
) -> None:
    ended: list[int] = []

    async def the_last_first(request: str, ctx: CandidateContext) -> str:
        await trio.sleep(10 - ctx.index)
        ended.append(ctx.index)
        return request

    result = await run(the_last_first, n=6, max_concurrency=6)
    assert ended == [5, 4, 3, 2, 1, 0]
    assert [candidate.index for candidate in result.candidates] == [0, 1, 2, 3, 4, 5]


async def test_w_bon_34_one_that_timed_out_keeps_its_request_and_what_it_published(
    autojump_clock: Any,
) -> None:
    async def slow(request: str, ctx: CandidateContext) -> str:
        if ctx.index == 1:
            ctx.publish("a draft")
            await trio.sleep(60)
        return request

    result = await run(slow, n=2, timeout=1)
    assert statuses(result) == ["eligible", "timed_out"]
    cut = result.candidates[1]
    assert (cut.request, cut.output, cut.partial, cut.score) == ("attempt", "a draft", True, None)
    assert (cut.detached, cut.eligible) == (False, False)
    assert cut.started == 0
    assert cut.elapsed == 1


async def test_a_failure_is_kept_as_itself(autojump_clock: Any) -> None:
    error = KeyError("what the user raised")

    async def failing(request: str, ctx: CandidateContext) -> str:
        if ctx.index == 0:
            raise error
        return request

    result = await run(failing, n=2)
    assert statuses(result) == ["generation_failed", "eligible"]
    assert result.candidates[0].error is error
    assert result.candidates[1].error is None


async def test_w_bon_33_what_is_rejected_keeps_its_score_and_output(autojump_clock: Any) -> None:
    async def judged(request: str, candidate: Generated[str], ctx: CandidateContext) -> Score:
        return Score(0.1 + candidate.index, accepted=candidate.index != 0, rationale="off topic")

    # 0 is neither accepted nor at the threshold, 1 is both, 2 (with the threshold at 2) neither.
    result = await run(score=judged, n=3, threshold=1.1)
    assert statuses(result) == ["rejected", "eligible", "eligible"]
    rejected = result.candidates[0]
    assert rejected.score == Score(0.1, accepted=False, rationale="off topic")
    assert (rejected.output, rejected.eligible, rejected.error) == ("attempt 0", False, None)
    assert statuses(await run(score=judged, n=2, threshold=2.0)) == ["rejected", "rejected"]


# -- what a scorer answers -----------------------------------------------------------------------


async def test_w_bon_32_an_answer_that_is_no_number_costs_what_it_says_and_has_no_score(
    autojump_clock: Any,
) -> None:
    async def spends_one(request: str, ctx: CandidateContext) -> str:
        ctx.charge(Usage(model_calls=1))
        return request

    async def nan(request: str, candidate: Generated[str], ctx: CandidateContext) -> Score:
        return Score(float("nan"), usage=Usage(model_calls=3))

    result = await run(spends_one, nan, n=1)
    (candidate,) = result.candidates
    assert candidate.status is Status.SCORING_FAILED
    assert candidate.score is None
    assert isinstance(candidate.error, InvalidScore)
    assert candidate.usage == Usage(model_calls=4)
    assert candidate.output == "attempt", "the output is kept"


async def test_w_bon_32_what_a_score_cost_is_part_of_its_candidate(autojump_clock: Any) -> None:
    async def costly(request: str, candidate: Generated[str], ctx: CandidateContext) -> Score:
        ctx.charge(Usage(total_tokens=5))
        return Score(1.0, usage=Usage(model_calls=2, cost="0.25"))

    result = await run(score=costly, n=1)
    assert result.candidates[0].usage == Usage(model_calls=2, total_tokens=5, cost="0.25")


async def test_w_bon_32_a_scorer_that_raises_is_charged_its_estimate(autojump_clock: Any) -> None:
    async def failing(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
        raise ValueError("no verdict")

    result = await run(
        score=failing,
        n=1,
        estimate=Usage(total_tokens=40),
        scoring_estimate=Usage(total_tokens=2),
    )
    assert statuses(result) == ["scoring_failed"]
    assert result.usage.charged == Usage(total_tokens=42)
    assert result.candidates[0].estimated


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    "bad",
    [
        10**400,
        10**5000,
        "high",
        None,
        NoRepr(),
        np.array([1, 2]),
        Score("high"),  # type: ignore[arg-type]
        Score(1.0, usage={"model_calls": 1}),  # type: ignore[arg-type]
        Score(1.0, accepted=np.array([True, False])),  # type: ignore[arg-type]
    ],
    ids=lambda bad: type(bad).__name__,
)
async def test_one_bad_answer_fails_its_candidate_and_no_other(
    autojump_clock: Any, bad: Any
) -> None:
    async def one_is_bad(request: str, candidate: Generated[str], ctx: CandidateContext) -> Any:
        return bad if candidate.index == 1 else 1.0

    result = await run(score=one_is_bad, n=3)
    assert statuses(result) == ["eligible", "scoring_failed", "eligible"]
    assert isinstance(result.candidates[1].error, InvalidScore)


# -- what it costs -------------------------------------------------------------------------------


async def test_w_bon_17_without_limits_and_estimates_what_is_charged_is_what_was_reported(
    autojump_clock: Any,
) -> None:
    async def reports(request: str, ctx: CandidateContext) -> str:
        ctx.charge(Usage(model_calls=1, total_tokens=ctx.index, cost="0.1"))
        return request

    result = await run(reports, n=3, estimate=Usage())
    assert result.usage.reported == result.usage.charged
    assert result.usage.charged == Usage(model_calls=3, total_tokens=3, cost="0.3")
    assert result.usage.estimated == 0
    assert [c.usage.total_tokens for c in result.candidates] == [0, 1, 2]


async def test_w_bon_47_the_largest_reports_saturate(autojump_clock: Any) -> None:
    async def reports(request: str, ctx: CandidateContext) -> str:
        ctx.charge(Usage(total_tokens=MOST))
        return request

    result = await run(reports, n=2)
    assert result.usage.charged.total_tokens == result.usage.reported.total_tokens == MOST
    assert [c.usage.total_tokens for c in result.candidates] == [MOST, MOST]


async def test_a_malformed_report_is_quarantined_and_poisons_nobody(autojump_clock: Any) -> None:
    async def reports(request: str, ctx: CandidateContext) -> str:
        ctx.charge(Usage(total_tokens=-5 if ctx.index == 1 else 7))
        return request

    result = await run(
        reports, n=3, budget=Budget(total_tokens=30), estimate=Usage(total_tokens=10)
    )
    assert statuses(result) == ["eligible"] * 3
    assert result.usage.malformed == (Malformed(1, "total_tokens=-5"),)
    assert result.usage.charged == Usage(total_tokens=7 + 10 + 7)
    assert result.usage.reported == Usage(total_tokens=14)
    assert [c.estimated for c in result.candidates] == [False, True, False]


async def test_w_bon_48_49_what_hangs_is_outstanding_and_what_is_done_is_charged(
    autojump_clock: Any,
) -> None:
    release = trio.Event()

    async def one_hangs(request: str, ctx: CandidateContext) -> str:
        if ctx.index == 0:
            assert await ctx.reserve(Usage(model_calls=1))
            ctx.charge(Usage(model_calls=3))
            return request
        with trio.CancelScope(shield=True):  # what a shield without a limit does
            await release.wait()
        return request

    estimate = Usage(model_calls=2, total_tokens=50, cost="0.25")
    async with open_runtime() as runtime:
        job = BestOfN(
            generate=one_hangs,
            score=by_index,
            n=2,
            timeout=1,
            budget=Budget(model_calls=10),
            estimate=estimate,
        )
        try:
            result = await runtime.run(job, "attempt")
            while_it_hangs = (runtime.usage.outstanding, runtime.detached[0].lease)
        finally:
            release.set()
        assert await runtime.drain() == ()
        assert [(c.status, c.detached) for c in result.candidates] == [
            (Status.ELIGIBLE, False),
            (Status.GENERATING, True),
        ]
        assert result.usage.charged == Usage(model_calls=3)
        assert result.usage.outstanding == estimate
        assert result.candidates[1].usage == Usage(), "nothing of it was known then"
        assert while_it_hangs == (estimate, estimate)

        # It ended without a word about its cost: the estimate stands, at the runtime.
        assert runtime.detached[0].late_usage == estimate
        assert runtime.usage.outstanding == Usage()
        assert runtime.usage.charged == Usage(model_calls=3 + 2, total_tokens=50, cost="0.25")


# -- leases --------------------------------------------------------------------------------------


async def test_a_lease_exceeded_ends_its_candidate_and_who_catches_it_goes_on(
    autojump_clock: Any,
) -> None:
    async def spends_too_much(request: str, ctx: CandidateContext) -> str:
        if ctx.index == 2:
            return request
        try:
            ctx.charge(Usage(total_tokens=15))
        except LeaseExceeded:
            if ctx.index == 0:
                raise
        return request

    result = await run(
        spends_too_much, n=3, budget=Budget(total_tokens=100), estimate=Usage(total_tokens=10)
    )
    assert statuses(result) == ["budget_exceeded", "eligible", "eligible"]
    assert isinstance(result.candidates[0].error, LeaseExceeded)
    assert [c.usage.total_tokens for c in result.candidates] == [15, 15, 10]


async def test_a_run_past_its_limit_denies_those_to_come_and_not_those_with_leases(
    autojump_clock: Any,
) -> None:
    async def the_first_overspends(request: str, ctx: CandidateContext) -> str:
        if ctx.index == 0:
            with pytest.raises(LeaseExceeded):
                ctx.charge(Usage(model_calls=9))
        await trio.sleep(1 + ctx.index)
        return request

    result = await run(the_first_overspends, n=4, max_concurrency=2, budget=Budget(model_calls=4))
    assert statuses(result) == ["eligible", "eligible", "budget_exceeded", "budget_exceeded"]
    assert (result.stop_reason, result.partial) == ("budget_exceeded", True)
    assert result.selected is not None, "the best so far is selected all the same"


async def test_a_denied_top_up_is_an_answer_and_who_raises_over_it_is_budget_exceeded(
    autojump_clock: Any,
) -> None:
    granted: list[bool] = []

    async def asks(request: str, ctx: CandidateContext) -> str:
        granted.append(await ctx.reserve(Usage(total_tokens=8)))
        if ctx.index == 1:
            raise RuntimeError("cannot go on without")
        return request

    result = await run(asks, n=2, budget=Budget(total_tokens=25), estimate=Usage(total_tokens=10))
    assert granted == [False, False]
    assert statuses(result) == ["eligible", "budget_exceeded"]


async def test_what_remains_is_told_in_the_lease_and_in_dollars(autojump_clock: Any) -> None:
    left: list[Any] = []

    async def looks(request: str, ctx: CandidateContext) -> str:
        ctx.charge(Usage(total_tokens=3, cost="0.1"))
        left.append(ctx.remaining())
        return request

    budget, estimate = Budget(total_tokens=20, cost="0.5"), Usage(total_tokens=10, cost="0.25")
    await run(looks, n=1, timeout=2, budget=budget, estimate=estimate)
    (remaining,) = left
    assert (remaining.seconds, remaining.total_tokens) == (2, 7)
    assert remaining.cost == Decimal("0.15")
    assert remaining.model_calls is None, "it is not limited"
