"""More scenes of the sweep: budgets that are waited for, leases three levels deep, receivers.

Registered in `sweep_scenes.py`, where it is told how to play a single step of one again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from hortator import BestOfN, Budget, RunHandle, Usage, best_of_n
from tests.sweep import Play, Scene


def calls(number: int) -> Usage:
    """So many model calls."""
    return Usage(model_calls=number)


def contended(play: Play, timeout: float, cap: int | None) -> Scene:
    """Under the runtime's budget there is no room for all: leases wait, and so do top-ups."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.125 * (1 + ctx.index % 3))
        if await ctx.reserve(calls(1 + ctx.index % 2)):
            await trio.sleep(0.25)
        ctx.charge(calls(ctx.index % 2))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        if ctx.index == 3:
            await ctx.reserve(calls(2))
        await trio.sleep(0.125)
        return ctx.index

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=6,
            max_concurrency=5,
            timeout=timeout,
            candidate_timeout=1000.0,
        ),
        observers=(play.listener("a sync observer"),),
        runtime_observers=(play.listener("a sync observer of the runtime"),),
        runtime_budget=Budget(model_calls=4 if cap is None else cap // 2),
    )


def deep(play: Play, timeout: float, cap: int | None) -> Scene:
    """Three levels of runs, each on the lease of a candidate that has no room for all at once."""

    async def low(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.125 * (1 + ctx.index))
        if ctx.index == 0 and await ctx.reserve(calls(1)):
            ctx.charge(calls(2))
        return ctx.index

    async def middle(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(0))
        job = BestOfN(generate=play.watched(low), score=play.watched(score), n=2)
        if ctx.index == 0:
            return (await best_of_n(job, request, seed=ctx.index)).output
        async with trio.open_nursery() as nursery:  # two that compete for one lease
            nursery.start_soon(best_of_n, job, request)
            await best_of_n(job, request)
        return ctx.index

    async def high(request: Any, ctx: Any) -> Any:
        job = BestOfN(
            generate=play.watched(middle),
            score=play.watched(score),
            n=2,
            estimate=calls(2),
        )
        return (await best_of_n(job, request, seed=ctx.index)).output

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return candidate.output

    return Scene(
        job=BestOfN(
            generate=play.watched(high),
            score=play.watched(score),
            n=2,
            timeout=timeout,
            candidate_timeout=1000.0,
            estimate=calls(4),
        ),
        observers=(play.listener("a sync observer"),),
        runtime_observers=(play.listener("a sync observer of the runtime"),),
        runtime_budget=Budget(model_calls=cap),
    )


def left_behind(play: Play, timeout: float, cap: int | None) -> Scene:
    """Candidates start runs and return without them: those are cancelled."""

    async def inner(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.25 * (1 + ctx.index))
        return ctx.index

    async def generate(request: Any, ctx: Any) -> Any:
        assert play.runtime is not None
        job = BestOfN(generate=play.watched(inner), score=play.watched(score), n=4)
        play.runtime.start(job, request)
        await trio.sleep(0.375 * (1 + ctx.index))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        return ctx.index

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=3,
            timeout=timeout,
            candidate_timeout=1000.0,
            estimate=calls(2),
        ),
        observers=(play.listener("a sync observer"),),
        runtime_budget=Budget(model_calls=cap),
    )


def received(play: Play, timeout: float, cap: int | None) -> Scene:
    """The handle's events and candidates are received; one leaves by itself, all at the door."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.25 * (1 + ctx.index % 2))
        ctx.emit("token", text="a")
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return ctx.index

    async def all_events(handle: RunHandle[Any]) -> None:
        async with handle.events() as events:
            async for event in events:
                if play.back_at is not None:
                    play.faults.append(f"received {event} when the run had come back")

    async def one_candidate(handle: RunHandle[Any]) -> None:
        async with handle.candidates() as candidates:
            await anext(candidates, None)

    async def all_candidates(handle: RunHandle[Any]) -> None:
        ended: list[int] = []
        async with handle.candidates() as candidates:
            async for candidate in candidates:
                ended.append(candidate.index)
        if len(ended) != len(set(ended)):
            play.faults.append(f"received twice: {ended}")

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=3,
            max_concurrency=2,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"),),
        receivers=(all_events, one_candidate, all_candidates),
    )


MORE_SCENES: tuple[Callable[[Play, float, int | None], Scene], ...] = (
    contended,
    deep,
    left_behind,
    received,
)
