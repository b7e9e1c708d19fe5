"""Scenes of the sweep in which the job is called outside of any candidate: selectors, builders.

Each is a stage for `tests/sweep_scenes.py`, which has their list.
"""

from __future__ import annotations

from typing import Any

import trio

from hortator import BestOfN, Budget, best_of_n, plurality_vote, tournament, vote_decided
from tests.sweep import GRACE, Play, Scene


def chosen(play: Play, timeout: float, cap: int | None) -> Scene:
    """A selector of one's own takes its time; a stop finds it at work, or before it began."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.25 * (1 + ctx.index))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        return ctx.index

    async def select(request: Any, candidates: Any) -> Any:
        for _ in range(4):
            await trio.sleep(0.125)
        return next((c for c in candidates if c.eligible), None)

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            select=play.watched(select),
            n=3,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
        runtime_observers=(play.listener("a sync observer of the runtime"),),
        bound=0.9 * GRACE,
    )


def judged(play: Play, timeout: float, cap: int | None) -> Scene:
    """No scorer: a judge compares, and asks a run of its own; a key has counted before."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.125 * (1 + ctx.index))
        return ctx.index

    async def inner(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.0625)
        return max(request)

    async def judge(request: Any, first: Any, second: Any) -> Any:
        pair = [first.output, second.output]
        job = BestOfN(generate=play.watched(inner), select=plurality_vote(), n=2)
        result = await best_of_n(job, pair, seed=1)
        return first if result.selected is None or result.output == first.output else second

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            select=tournament(play.watched(judge)),
            n=4,
            max_concurrency=2,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"),),
        runtime_observers=(play.listener("a sync observer of the runtime"),),
        bound=0.9 * GRACE,
    )


def built(play: Play, timeout: float, cap: int | None) -> Scene:
    """Requests are built, one of them can't be; a decided vote ends the run."""

    async def build(request: Any, index: int) -> Any:
        await trio.sleep(0.125)
        if index == 2:
            raise ValueError("no request")
        return [*request, index]

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.125 * (1 + ctx.index))
        return request[0]

    return Scene(
        job=BestOfN(
            build=play.watched(build),
            generate=play.watched(generate),
            select=plurality_vote(),
            stop=vote_decided(),
            n=5,
            max_concurrency=2,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
        runtime_observers=(play.listener("a sync observer of the runtime"),),
    )
