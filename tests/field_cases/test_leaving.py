"""B28, B107: who leaves early leaves nothing behind, and a stop overtakes whatever waits.

Virtual time: all work here is cooperative, so that no time at all goes by between the stop and
the return.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import RunEnded, Usage, open_runtime
from tests.field_cases.scenes import (
    DOORS,
    Record,
    check_account,
    index_score,
    job_of,
    live_tasks,
    statuses,
    stopped,
)

# B28: who leaves early leaves no producer behind


class LeftByError(Exception):
    """How a user's loop may end."""


@pytest.mark.parametrize("concurrency", [2, 8])
@pytest.mark.parametrize("how", ["break", "error", "return", "cancel", "events"])
async def test_B28_leaving_after_the_first_cancels_and_joins_the_others(
    how: str, concurrency: int, autojump_clock: MockClock
) -> None:
    ended: list[int] = []

    async def generate(request: str, ctx: Any) -> int:
        try:
            ctx.charge(Usage(model_calls=1, total_tokens=10))
            await trio.sleep(1 + ctx.index)
            return int(ctx.index)
        finally:
            ended.append(ctx.index)

    job = job_of(generate, n=8, max_concurrency=concurrency, estimate=Usage(total_tokens=7))

    async def first_of(handle: Any) -> None:
        async with handle, handle.candidates() as candidates:
            async for candidate in candidates:
                assert candidate.output == 0
                if how == "break":
                    break
                if how == "error":
                    raise LeftByError
                if how == "cancel":
                    with trio.CancelScope() as scope:
                        scope.cancel()
                        await trio.sleep(1)
                    break
                return

    async def first_event(handle: Any) -> None:
        async with handle, handle.events() as events:
            async for event in events:
                if event.kind == "ended":
                    break

    async with open_runtime() as runtime:
        before = live_tasks()
        handle = runtime.start(job, "q")
        try:
            await (first_event if how == "events" else first_of)(handle)
        except LeftByError:
            assert how == "error"
        assert trio.current_time() == 1, "leaving waited for something"
        assert sorted(ended) == list(range(min(8, concurrency + 1)))
        assert live_tasks() == before
        result = await handle.result()
    assert result.output == 0
    assert result.stop_reason == "cancelled"
    assert statuses(result)[0] == "eligible"
    assert statuses(result).count("cancelled") == len(ended) - 1
    assert result.usage.charged.total_tokens == 10 * len(ended)
    check_account(result, 8)


# B107: a stop is not queued behind what waits


async def test_B107_a_stop_overtakes_a_thousand_candidates_that_wait_to_be_scored(
    autojump_clock: MockClock,
) -> None:
    scored: list[float] = []

    async def generate(request: str, ctx: Any) -> int:
        ctx.charge(Usage(total_tokens=3))
        return int(ctx.index)

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        scored.append(trio.current_time())
        await trio.sleep(1)
        return 1.0

    record = Record()
    async with open_runtime() as runtime:
        job = job_of(generate, score, n=1000, max_concurrency=2, scoring_estimate=Usage(cost=1))
        handle = runtime.start(job, "q", observers=[record])
        await trio.sleep(1.5)
        assert len(record.of("generated")) == 1000
        handle.cancel()
        result = await handle.result()
        assert trio.current_time() == 1.5
    assert len(scored) == 4, "a scorer was called after the stop"
    assert statuses(result) == ["eligible"] * 2 + ["cancelled"] * 998
    assert result.usage.charged.total_tokens == 3000, "what was spent was not settled"
    assert result.usage.charged.cost == 4, "what was not scored was charged for scoring"
    check_account(result, 1000)
    record.check()


@pytest.mark.parametrize("door", DOORS)
async def test_B107_a_stop_overtakes_a_thousand_candidates_that_wait_for_a_slot(
    door: str, autojump_clock: MockClock
) -> None:
    started: list[int] = []

    async def generate(request: str, ctx: Any) -> None:
        started.append(ctx.index)
        await trio.sleep(1)

    async with stopped(door, job_of(generate, n=1000, max_concurrency=1), at=2.5) as run:
        assert run.late == 0
        assert started == [0, 1, 2]
        assert run.record.finished.statuses["skipped"] == 997
        assert len(run.record.events) == 3 * 5 - 2 + 1


async def test_B107_who_asks_after_the_stop_is_refused(autojump_clock: MockClock) -> None:
    answers: list[object] = []

    async def generate(request: str, ctx: Any) -> None:
        kept.append(ctx)
        try:
            await trio.sleep_forever()
        finally:
            try:
                answers.append(await ctx.reserve(Usage(total_tokens=1)))
            except trio.Cancelled:
                answers.append("cancelled")
                raise

    kept: list[Any] = []
    async with stopped("handle.cancel", job_of(generate, n=2), at=1) as run:
        assert answers == ["cancelled", "cancelled"]
        for ctx in kept:
            with pytest.raises(RunEnded, match="has ended"):
                await ctx.reserve(Usage(total_tokens=1))
            with pytest.raises(RunEnded, match="not recorded"):
                ctx.charge(Usage(total_tokens=1))
        assert run.result.usage.charged == Usage()
        assert run.runtime.usage.charged == Usage()


async def test_B107_stopping_twice_is_stopping_once(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> None:
        await trio.sleep_forever()

    record = Record()
    async with open_runtime() as runtime:
        handle = runtime.start(job_of(generate, index_score), "q", observers=[record])
        await trio.sleep(1)
        for _ in range(1000):
            handle.cancel()
            handle.stop_after_current()
        result = await handle.result()
        handle.cancel()
        assert await handle.result() is result
    assert result.stop_reason == "cancelled"
    record.check()
