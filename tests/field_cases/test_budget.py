"""B38, B41: reserved before it is spent, by all at once, and given back on every way out.

Virtual time, but for charges from threads. Leases are seen through the account only.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    Budget,
    DoesNotFit,
    LeaseExceeded,
    Score,
    Usage,
    best_of_n,
    open_runtime,
)
from tests.field_cases.scenes import (
    Record,
    StopAtStep,
    check_account,
    job_of,
    statuses,
    tokens,
    virtually,
)

# B38: a limit is checked before the calls are made, however many are made at once

TOOL_CALL = Usage(tool_calls=1)


class Tools:
    """Counts how many tool calls were really made."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ran = self.refused = 0

    async def wander(self) -> None:
        for _ in range(self.chance.randrange(3)):
            await trio.lowlevel.checkpoint()

    async def ask_for_each(self, ctx: Any) -> None:
        """One call, reserved by itself."""
        await self.wander()
        if await ctx.reserve(TOOL_CALL):
            await self.wander()
            self.ran += 1
            ctx.charge(TOOL_CALL)
        else:
            self.refused += 1

    async def charge_first(self, ctx: Any) -> None:
        """One call, charged before it is made."""
        await self.wander()
        ctx.charge(TOOL_CALL)
        self.ran += 1

    async def at_once(self, tool: Callable[[Any], Any], ctx: Any, count: int) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(tool, ctx)


def tool_job(generate: Any, n: int, limit: int) -> Any:
    return job_of(generate, n=n, budget=Budget(tool_calls=limit), estimate=TOOL_CALL)


@pytest.mark.parametrize("candidates", [1, 2, 5])
def test_B38_eight_calls_at_once_under_a_limit_of_six(candidates: int) -> None:
    # 10,000 schedules of each held, in two minutes of CPU time; here as many as take no time.
    async def scene(seed: int) -> None:
        tools = Tools(random.Random(seed))

        async def generate(request: str, ctx: Any) -> str:
            await tools.at_once(tools.ask_for_each, ctx, 8)
            return "answer"

        result = await best_of_n(tool_job(generate, candidates, 6), "q")
        # What a candidate was granted at its start it does not use here; at its end it is free.
        assert 6 - candidates <= tools.ran <= 6, f"seed {seed}: {tools.ran} ran"
        assert tools.ran + tools.refused == 8 * candidates
        assert statuses(result) == ["eligible"] * candidates
        assert result.usage.charged.tool_calls <= 6
        check_account(result, candidates)

    for seed in range(120):
        virtually(scene, seed)


@pytest.mark.parametrize(("asked", "ran"), [(8, 0), (6, 0), (5, 5)])
async def test_B38_a_batch_is_reserved_whole_or_not_at_all(
    asked: int, ran: int, autojump_clock: MockClock
) -> None:
    made: list[int] = []

    async def generate(request: str, ctx: Any) -> str:
        before = ctx.remaining()
        if await ctx.reserve(Usage(tool_calls=asked)):
            for number in range(asked):
                ctx.charge(TOOL_CALL)
                made.append(number)
        else:
            assert ctx.remaining() == before, "a part of a refused batch was reserved"
        return "answer"

    result = await best_of_n(tool_job(generate, 1, 6), "q")
    assert len(made) == ran
    assert statuses(result) == ["eligible"]


@pytest.mark.parametrize("nested", [False, True], ids=["serial", "in a nursery"])
async def test_B38_who_charges_first_stops_at_the_lease(
    nested: bool, autojump_clock: MockClock
) -> None:
    tools = Tools(random.Random(0))

    async def generate(request: str, ctx: Any) -> None:
        assert await ctx.reserve(Usage(tool_calls=5))
        if nested:
            await tools.at_once(tools.charge_first, ctx, 8)
        for _ in range(8):
            await tools.charge_first(ctx)

    result = await best_of_n(tool_job(generate, 1, 6), "q")
    assert tools.ran == 6, "a call beyond the limit was made"
    assert statuses(result) == ["budget_exceeded"]
    assert 7 <= result.usage.charged.tool_calls <= 8, "what was charged was not recorded"


async def test_B38_all_dimensions_or_none(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> str:
        before = ctx.remaining()
        assert not await ctx.reserve(Usage(tool_calls=1, cost="0.95"))
        assert ctx.remaining() == before
        assert await ctx.reserve(Usage(tool_calls=5, cost="0.9"))
        assert ctx.remaining().tool_calls == 6
        return "answer"

    each = Usage(tool_calls=1, cost="0.1")
    job = job_of(generate, n=1, budget=Budget(tool_calls=6, cost=1), estimate=each)
    assert statuses(await best_of_n(job, "q")) == ["eligible"]


def test_B38_a_set_that_does_not_fit_is_refused_before_anything_starts() -> None:
    started: list[int] = []

    async def generate(request: str, ctx: Any) -> None:
        started.append(ctx.index)

    with pytest.raises(DoesNotFit, match="6 would fit"):
        tool_job(generate, 8, 6)
    assert started == []


async def test_B38_charges_from_many_threads_are_all_counted() -> None:
    refused: list[LeaseExceeded] = []

    def generate(request: str, ctx: Any) -> str:
        def calls() -> None:
            for _ in range(500):
                try:
                    ctx.charge(TOOL_CALL)
                except LeaseExceeded as error:
                    refused.append(error)

        threads = [threading.Thread(target=calls) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return "answer"

    job = job_of(generate, n=1, budget=Budget(tool_calls=4000), estimate=Usage(tool_calls=3000))
    result = await best_of_n(job, "q")
    assert result.usage.charged.tool_calls == 4000, "increments were lost between threads"
    assert len(refused) == 1000


# B41: cancelled at any step, no lease stays open

ESTIMATE, SCORING = 10, 5


@pytest.mark.parametrize("door", ["handle.cancel", "the caller's scope", "the runtime's scope"])
def test_B41_cancelled_at_any_step_nothing_stays_reserved(door: str) -> None:
    async def scene(step: int) -> bool:
        spent = [0] * 4

        def charge(ctx: Any, count: int) -> None:
            spent[ctx.index] += count
            ctx.charge(tokens(count))

        async def generate(request: str, ctx: Any) -> int:
            await trio.lowlevel.checkpoint()
            charge(ctx, 4)
            await trio.sleep(ctx.index)
            assert await ctx.reserve(tokens(8))
            charge(ctx, 3)
            await trio.lowlevel.checkpoint()
            if ctx.index == 2:
                raise OSError
            return int(ctx.index)

        async def score(request: str, candidate: Any, ctx: Any) -> Score:
            await trio.lowlevel.checkpoint()
            spent[ctx.index] += 6
            return Score(candidate.index, usage=tokens(6))

        job = job_of(
            generate,
            score,
            n=4,
            max_concurrency=2,
            budget=Budget(total_tokens=400),
            estimate=tokens(ESTIMATE),
            scoring_estimate=tokens(SCORING),
        )
        record, result = Record(), None
        with trio.CancelScope() as around:
            async with open_runtime() as runtime:
                handle = runtime.start(job, "q", observers=[record])
                if door == "the runtime's scope":
                    stop = around.cancel
                elif door == "handle.cancel":
                    stop = handle.cancel
                else:
                    scope = trio.CancelScope()
                    stop = scope.cancel
                instrument = StopAtStep(step, stop)
                trio.lowlevel.add_instrument(instrument)
                with trio.CancelScope(shield=True):
                    if door == "the caller's scope":
                        with scope:
                            async with handle:
                                result = await handle.result()
                    result = await handle.result()
                trio.lowlevel.remove_instrument(instrument)
        check_account(result, 4)
        record.check()
        usage = runtime.usage
        assert usage.outstanding == Usage(), f"step {step}: reserved for ever"
        assert usage.charged == result.usage.charged
        assert usage.reported.total_tokens == sum(spent), f"step {step}: a report was lost"
        for candidate, known in zip(result.candidates, spent, strict=True):
            charged = candidate.usage.total_tokens
            assert known <= charged <= max(known, ESTIMATE) + SCORING, f"step {step}: {candidate}"
            if candidate.status in ("eligible", "generation_failed"):
                assert charged == known, f"step {step}: {candidate}"
        return instrument.reached

    step = 1
    while virtually(scene, step):
        step += 1
    assert step > 30, f"the sweep was over after {step} steps"
