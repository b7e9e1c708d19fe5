"""The scenes that are swept, and how to play a single step of one again.

    python -m tests.sweep_scenes SCENE DOORS SEED TIMEOUT CAP STEP
    python -m tests.sweep_scenes mixed caller+deadline 3 1.5 8 57

Times are eighths of a second, so that their sums are exact.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import trio

from hortator import BatchScorer, BestOfN, Budget, Usage, best_of_n, target
from tests.sweep import GRACE, WORK, Play, Scene, perform
from tests.sweep_more_scenes import MORE_SCENES
from tests.sweep_outside_scenes import built, chosen, judged
from tests.sweep_rule_scenes import batched, halved, repeated

N = 8
CALL = Usage(model_calls=1)


def mixed(play: Play, timeout: float, cap: int | None) -> Scene:
    """Eight candidates that go each another way; both kinds of scorers and of observers."""

    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(CALL)
        await WAYS[ctx.index](ctx)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        if ctx.index % 2 == 0:
            await trio.sleep(0.25)
        return "no number" if ctx.index == 7 else ctx.index

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=N,
            max_concurrency=3,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
        runtime_observers=(play.listener("a sync observer of the runtime"),),
    )


async def _answers(ctx: Any) -> None:
    await trio.sleep(1.0)


async def _fails(ctx: Any) -> None:
    await trio.sleep(0.5)
    raise ValueError("no answer")


async def _overspends(ctx: Any) -> None:
    await trio.sleep(0.5)
    ctx.charge(Usage(model_calls=N))


async def _publishes(ctx: Any) -> None:
    ctx.publish("a draft", 0.5)
    await trio.sleep(0.5)
    ctx.publish("a better one", 0.75)
    await trio.sleep(1.0)


async def _opens_a_nursery(ctx: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0.5)
        nursery.start_soon(trio.sleep, 1.0)


async def _never_yields(ctx: Any) -> None:
    pass


async def _asks_for_more(ctx: Any) -> None:
    if await ctx.reserve(CALL):
        ctx.charge(CALL)
    ctx.emit("token", text="a")
    async with ctx.effect("a look", "read"):
        await trio.sleep(0.5)


WAYS = (
    _answers,
    _asks_for_more,
    _overspends,
    _publishes,
    _opens_a_nursery,
    _never_yields,
    _fails,
    _answers,
)


def settled(play: Play, timeout: float, cap: int | None) -> Scene:
    """A rule ends the run; some wait to be scored until their own time is over."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.125 * (ctx.index % 3))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.sleep(0.25)
        return ctx.index

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=6,
            max_concurrency=2,
            timeout=timeout,
            candidate_timeout=0.4375,
            budget=Budget(model_calls=cap),
            stop=target(3),
        ),
        observers=(play.listener("a sync observer"),),
        runtime_observers=(play.async_listener("an async observer of the runtime"),),
    )


def nested(play: Play, timeout: float, cap: int | None) -> Scene:
    """Each candidate is itself the best of two, on the same runtime."""

    async def inner(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.25 + 0.25 * ctx.index)
        return ctx.index

    async def generate(request: Any, ctx: Any) -> Any:
        job = BestOfN(generate=play.watched(inner), score=play.watched(score), n=2)
        result = await best_of_n(job, request, seed=ctx.index)
        return result.output

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return candidate.output

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
        runtime_observers=(play.listener("a sync observer of the runtime"),),
    )


def tidy(play: Play, timeout: float, cap: int | None) -> Scene:
    """Everybody cleans up under `ctx.cleanup()`: in time, too slowly, for a given time, twice."""

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(0.5 + 0.25 * ctx.index)
            return ctx.index
        finally:
            with ctx.cleanup(0.125 if ctx.index == 2 else None):
                await trio.sleep((0.125, 100.0, 100.0, 0.125)[ctx.index])
            with ctx.cleanup():
                await trio.sleep(0.125 if ctx.index == 3 else 0.0)

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(0.25)
            return ctx.index
        finally:
            with ctx.cleanup():
                await trio.sleep(0.0625)

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=4,
            max_concurrency=3,
            timeout=timeout,
            candidate_timeout=0.875,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
        bound=WORK,
    )


def nested_and_tidy(play: Play, timeout: float, cap: int | None) -> Scene:
    """The candidates of nested runs clean up, and so do those around them."""

    async def inner(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(0.25 + 0.25 * ctx.index)
            return ctx.index
        finally:
            with ctx.cleanup():
                await trio.sleep((0.0625, 100.0)[ctx.index])

    async def generate(request: Any, ctx: Any) -> Any:
        job = BestOfN(generate=play.watched(inner), score=play.watched(score), n=2)
        try:
            return (await best_of_n(job, request, seed=ctx.index)).output
        finally:
            with ctx.cleanup():
                await trio.sleep((0.0, 100.0, 0.0625)[ctx.index])

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        return candidate.output

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
        runtime_observers=(play.listener("a sync observer of the runtime"),),
        bound=WORK,
    )


def hurried(play: Play, timeout: float, cap: int | None) -> Scene:
    """The deadline is that of the scope around the call; the run has to be back inside of it."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.25 * (1 + ctx.index))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return ctx.index

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=4,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
        caller_deadline=timeout,
    )


def overheard(play: Play, timeout: float, cap: int | None) -> Scene:
    """Observers that sleep: one keeps up, one is cut at the end, one is cut inside nurseries."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.25 * (1 + ctx.index))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        return ctx.index

    listen_at_once = play.listener("a sync observer")
    listen = play.listener("an observer with nurseries")

    async def fan_out(event: Any) -> None:
        listen(event)
        async with trio.open_nursery() as outer:
            outer.start_soon(_opens_a_nursery, None)

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=2,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(
            listen_at_once,
            play.async_listener("a slow observer", 0.25),
            play.watched(fan_out),
        ),
        runtime_observers=(play.async_listener("a slow observer of the runtime", 0.25),),
        bound=GRACE,
        slow=("a slow observer", "an observer with nurseries", "a slow observer of the runtime"),
    )


def overheard_by_the_runtime(play: Play, timeout: float, cap: int | None) -> Scene:
    """Only the runtime has a slow observer: its call for this run is cut at the end."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.5)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        return ctx.index

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=play.watched(score),
            n=2,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"),),
        runtime_observers=(play.async_listener("a slow observer of the runtime", 0.25),),
        bound=GRACE,
        slow=("a slow observer of the runtime",),
    )


def gathered(play: Play, timeout: float, cap: int | None) -> Scene:
    """All are scored in one call; of duplicates one is in it. Somebody can't wait for the call."""

    async def generate(request: Any, ctx: Any) -> Any:
        await WAYS[ctx.index](ctx)
        return ctx.index

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        await trio.sleep(0.125)
        return [each.index for each in candidates]

    return Scene(
        job=BestOfN(
            generate=play.watched(generate),
            score=BatchScorer(play.watched(score), together=True),
            score_once=lambda output: output // 2,
            n=N,
            max_concurrency=3,
            timeout=timeout,
            candidate_timeout=1000.0,
            budget=Budget(model_calls=cap),
        ),
        observers=(play.listener("a sync observer"), play.async_listener("an async observer")),
    )


SCENES: dict[str, Callable[[Play, float, int | None], Scene]] = {
    scene.__name__: scene
    for scene in (
        mixed,
        settled,
        nested,
        tidy,
        nested_and_tidy,
        hurried,
        overheard,
        overheard_by_the_runtime,
        batched,
        gathered,
        repeated,
        halved,
        *MORE_SCENES,
        chosen,
        judged,
        built,
    )
}


def staged(name: str, timeout: float, cap: int | None) -> Callable[[Play], Scene]:
    """A scene with its deadline and cap, ready to be played."""
    scene = SCENES[name]
    return lambda play: scene(play, timeout, cap)


def main(name: str, doors: str, seed: str, timeout: str, cap: str, step: str) -> int:
    """Play one step again, and show what was seen."""
    stage = staged(name, float(timeout), None if cap == "None" else int(cap))
    play = perform(stage, doors.split("+"), seed=int(seed), step=int(step))
    for log, events in play.heard.items():
        print(f"\n{log}:")
        for e in events:
            print(f"  {e.time:9.4f} {e.run_id} {e.sequence:3} {e.kind} {e.candidate}")
    print(f"\ndoors opened at {play.opened_at}")
    print(f"run back at {play.back_at}, runtime left at {play.left_at}")
    print("\n".join(play.faults) or "no faults")
    return bool(play.faults)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
