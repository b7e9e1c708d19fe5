"""Scenes of the sweep in which rules decide: scored with whom, by whose score, dropped by whom.

Each is a stage for `tests/sweep_scenes.py`, which has their list.
"""

from __future__ import annotations

from typing import Any

import trio

from hortator import BatchScorer, BestOfN, Budget, successive_halving
from tests.sweep import WORK, Play, Scene


def batched(play: Play, timeout: float, cap: int | None) -> Scene:
    """What waits is scored two at a time; a call fails, some wait past their own time."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.125 * (1 + ctx.index % 3))
        return ctx.index

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        await trio.sleep(0.25)
        return [each.index for each in candidates if each.index != 5]

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=BatchScorer(play.watched(score), size=2),
            n=7,
            max_concurrency=3,
            timeout=timeout,
            candidate_timeout=0.6875,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
        late=0.25,
    )


def repeated(play: Play, timeout: float, cap: int | None) -> Scene:
    """Duplicates wait for one score; sometimes that fails, or its candidate is cut."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.125 * (1 + ctx.index % 3))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.sleep(0.25)
        return "no number" if candidate.index < 2 else candidate.index

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            score_once=lambda output: output % 2,
            score_concurrency=1,
            n=7,
            max_concurrency=3,
            timeout=timeout,
            candidate_timeout=0.6875,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
    )


def halved(play: Play, timeout: float, cap: int | None) -> Scene:
    """Candidates publish as they go, and a rule drops those that fall behind; some clean up."""

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            for step in range(1, 5):
                await trio.sleep(0.125)
                ctx.publish(step, (ctx.index * 5) % 7)
            return (ctx.index * 5) % 7
        finally:
            if ctx.index % 2:
                with ctx.cleanup():
                    await trio.sleep(0.0625)

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.sleep(0.125)
        ctx.publish(candidate.output, candidate.output)
        await trio.sleep(0.125)
        return candidate.output

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=7,
            max_concurrency=3,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
            stop=successive_halving(),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
        bound=WORK,
    )
