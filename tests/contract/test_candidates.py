"""What becomes of a candidate, and what is kept of it (design §5).

Every status is reached here, by what a callback does to deserve it. Under virtual time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    Budget,
    LeaseExceeded,
    NoEligibleCandidate,
    Score,
    Status,
    Usage,
    open_runtime,
)
from hortator.protocols.candidate import STEPS, TERMINAL
from tests.contract.scenes import SLACK, Stubborn, after, job, statuses, stubborn_for

# -- every status, and why ------------------------------------------------------------------------
#
# In each job candidate 1 deserves the status; nothing ends the run before it had the chance to.


def one(act: Callable[..., Any]) -> Callable[..., Any]:
    """A callback that does something for candidate 1 and is good for the others."""

    async def callback(request: Any, *rest: Any) -> Any:
        ctx = rest[-1]
        await trio.sleep(0.1)
        if ctx.index == 1:
            answer = act(ctx)
            return await answer if hasattr(answer, "__await__") else answer
        return ctx.index

    return callback


def _raise(ctx: Any) -> None:
    raise OSError(f"candidate {ctx.index}")


def _spend_too_much(ctx: Any) -> None:
    ctx.charge(Usage(model_calls=3))


async def _write(ctx: Any) -> None:
    async with ctx.effect("send", "write"):
        raise AssertionError("not blocked")


def _sleep(ctx: Any) -> Any:
    return trio.sleep(9)


def _hold_out(ctx: Any) -> Any:
    return stubborn_for(9)


CALLS: dict[str, Any] = {"budget": Budget(model_calls=8), "estimate": Usage(model_calls=2)}
FROM_SCORING = {"scoring_estimate": Usage(model_calls=1), "estimate": Usage(model_calls=1)}

DESERVED: dict[str, tuple[Status, dict[str, Any]]] = {
    "good": (Status.ELIGIBLE, {}),
    "not accepted": (Status.REJECTED, {"score": one(lambda ctx: Score(9, accepted=False))}),
    "below the threshold": (Status.REJECTED, {"score": one(lambda ctx: -1), "threshold": 0}),
    "generator raises": (Status.GENERATION_FAILED, {"generate": one(_raise)}),
    "scorer raises": (Status.SCORING_FAILED, {"score": one(_raise)}),
    "no score": (Status.SCORING_FAILED, {"score": one(lambda ctx: "good")}),
    "generator spends too much": (
        Status.BUDGET_EXCEEDED,
        {"generate": one(_spend_too_much), **CALLS},
    ),
    "scorer spends too much": (
        Status.BUDGET_EXCEEDED,
        {"score": one(_spend_too_much), **CALLS, **FROM_SCORING},
    ),
    "its score cost too much": (
        Status.BUDGET_EXCEEDED,
        {"score": one(lambda ctx: Score(9, usage=Usage(model_calls=9))), **CALLS},
    ),
    "generator writes": (Status.SIDE_EFFECT_BLOCKED, {"generate": one(_write)}),
    "scorer writes": (Status.SIDE_EFFECT_BLOCKED, {"score": one(_write)}),
    "generates at the deadline": (Status.TIMED_OUT, {"generate": one(_sleep), "timeout": 1}),
    "is scored at the deadline": (Status.TIMED_OUT, {"score": one(_sleep), "timeout": 1}),
    "its own timeout": (Status.TIMED_OUT, {"generate": one(_sleep), "candidate_timeout": 1}),
    "its own timeout in scoring": (
        Status.TIMED_OUT,
        {"score": one(_sleep), "candidate_timeout": 1},
    ),
    "generates for ever": (Status.GENERATING, {"generate": one(_hold_out), "timeout": 1}),
    "is scored for ever": (Status.SCORING, {"score": one(_hold_out), "timeout": 1}),
}


@pytest.mark.parametrize("why", DESERVED)
async def test_a_candidate_gets_the_status_that_it_deserves(
    why: str, autojump_clock: MockClock
) -> None:
    status, parts = DESERVED[why]
    async with open_runtime() as runtime:
        result = await runtime.run(job(**parts), "q")
    found = [c.status for c in result.candidates]
    assert found == [Status.ELIGIBLE, status, Status.ELIGIBLE, Status.ELIGIBLE]
    assert result.candidates[1].detached == (status in STEPS)
    assert result.output == 3
    assert result.candidates[1].eligible == (status is Status.ELIGIBLE)


async def test_a_stop_makes_cancelled_and_skipped_ones(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 9), n=6, max_concurrency=2), "q")
        await trio.sleep(1)
        handle.cancel()
        result = await handle.result()
    assert statuses(result) == ["eligible"] + ["cancelled"] * 2 + ["skipped"] * 3


async def test_what_the_budget_denies_never_started(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        with contextlib.suppress(LeaseExceeded):
            ctx.charge(Usage(model_calls=5))
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, max_concurrency=1, **CALLS), "q")
    assert statuses(result) == ["eligible", "eligible", "budget_exceeded", "budget_exceeded"]
    assert result.stop_reason == "budget_exceeded"
    for denied in result.candidates[2:]:
        assert (denied.started, denied.usage, denied.error) == (None, Usage(), None)


async def test_the_way_there_is_seen_in_snapshots(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(
            job(generate=after(1), score=one(_sleep), n=3, max_concurrency=1), "q"
        )
        assert handle.snapshot().statuses == {Status.PENDING: 3}
        await trio.sleep(0.5)
        assert handle.snapshot().statuses == {Status.GENERATING: 1, Status.PENDING: 2}
        await trio.sleep(0.55)
        seen = handle.snapshot().statuses
        assert seen == {Status.SCORING: 1, Status.GENERATING: 1, Status.PENDING: 1}
        await trio.sleep(2)  # candidate 1 is being scored, and 2 waits for it
        seen = handle.snapshot().statuses
        assert seen == {Status.ELIGIBLE: 1, Status.SCORING: 1, Status.GENERATED: 1}
        handle.cancel()


def test_a_status_is_a_step_on_the_way_or_an_end() -> None:
    assert TERMINAL | STEPS.keys() == set(Status)
    assert {step for steps in STEPS.values() for step in steps} | {Status.PENDING} == set(Status)


# -- the list -------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 3, 8])
async def test_the_list_is_in_index_order_whatever_ends_first(
    concurrency: int, autojump_clock: MockClock
) -> None:
    ended: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(1 - ctx.index / 10)
        ended.append(ctx.index)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=8, max_concurrency=concurrency), "q")
    assert [c.index for c in result.candidates] == list(range(8))
    assert (ended == sorted(ended)) == (concurrency == 1), "this test is about another order"


@pytest.mark.parametrize("timeout", [0, 0.05, 0.15, 0.35, 1])
async def test_there_are_n_records_and_each_has_ended_or_is_detached(
    timeout: float, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=Stubborn(9, 1, 4, otherwise=0.1), n=7, max_concurrency=4, timeout=timeout),
            "q",
        )
    assert len(result.candidates) == 7
    ended = sum(c.status in TERMINAL for c in result.candidates)
    assert ended + sum(c.detached for c in result.candidates) == 7
    assert all(c.detached != (c.status in TERMINAL) for c in result.candidates)


# -- what a record keeps --------------------------------------------------------------------------


async def test_a_record_keeps_everything(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.5)
        ctx.charge(Usage(total_tokens=7))
        return f"{request} {ctx.index}"

    async def score(request: Any, candidate: Any, ctx: Any) -> Score:
        await trio.sleep(0.25)
        return Score(ctx.index, rationale="because", metadata={"k": 1})

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, score=score, n=2, max_concurrency=1), "q")
    last = result.candidates[1]
    assert (last.request, last.output, last.error) == ("q", "q 1", None)
    assert last.score == Score(1.0, rationale="because", metadata={"k": 1})
    assert last.usage == Usage(total_tokens=7)
    assert (last.started, last.elapsed) == (0.5, pytest.approx(0.75))
    assert not last.estimated


@pytest.mark.parametrize("why", [why for why in DESERVED if why != "good"])
async def test_whatever_its_end_a_candidate_keeps_what_it_had(
    why: str, autojump_clock: MockClock
) -> None:
    status, parts = DESERVED[why]
    async with open_runtime() as runtime:
        result = await runtime.run(job(**parts), "q")
    candidate = result.candidates[1]
    assert candidate.request == "q"
    assert candidate.started == 0.0
    assert candidate.elapsed > 0
    if "score" in parts:
        assert candidate.output == 1, "what it had generated is lost"
    assert (candidate.score is not None) == (
        status is Status.REJECTED or why == "its score cost too much"
    )
    failed = status in {
        Status.GENERATION_FAILED,
        Status.SCORING_FAILED,
        Status.BUDGET_EXCEEDED,
        Status.SIDE_EFFECT_BLOCKED,
    }
    assert (candidate.error is not None) == failed


# -- the deadline's very instant ------------------------------------------------------------------


@pytest.mark.parametrize("where", ["generate", "score"])
@pytest.mark.parametrize("late", [-0.001, 0.0, 0.001], ids=["before", "at", "after"])
async def test_what_ends_at_or_after_the_deadline_is_timed_out(
    late: float, where: str, autojump_clock: MockClock
) -> None:
    async def callback(*args: Any) -> Any:
        await trio.sleep(0.5)
        autojump_clock.jump(0.5 + late)  # no await: nothing can cancel this step
        return 1

    async with open_runtime() as runtime:
        result = await runtime.run(job(**{where: callback}, n=1, timeout=1), "q")
    assert statuses(result) == ["eligible" if late < 0 else "timed_out"]
    assert result.candidates[0].output == (1 if where == "generate" else 0), "it is kept"


async def test_an_error_after_the_deadline_is_timed_out_with_the_error(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        autojump_clock.jump(2)
        raise OSError("late")

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert statuses(result) == ["timed_out"]
    assert isinstance(result.candidates[0].error, OSError)


async def test_a_callback_that_blocks_the_loop_beyond_the_deadline_is_timed_out() -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        time.sleep(0.3)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=2, timeout=0.1), "q")
    assert statuses(result) == ["timed_out", "skipped"], "the second one's turn came too late"
    assert result.elapsed < 0.6 + SLACK


# -- what is selected, or not ---------------------------------------------------------------------


async def test_if_all_fail_output_raises_with_every_cause(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        raise OSError(f"number {ctx.index}")

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=3), "q")
    assert (result.stop_reason, result.partial, result.selected) == ("no_eligible", False, None)
    with pytest.raises(NoEligibleCandidate, match="3 generation_failed") as caught:
        _ = result.output
    assert [str(cause) for cause in caught.value.causes] == ["number 0", "number 1", "number 2"]
    with pytest.raises(NoEligibleCandidate):
        result.raise_for_status()
