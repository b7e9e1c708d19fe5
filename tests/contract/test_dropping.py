"""One candidate is dropped by a rule, and the others go on: `successive_halving` (issue C).

Under virtual time, but for what runs in threads. With eta = 2 the second of two that publish is
dropped if its score is worse: that is how most tests here have a candidate dropped.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import BestOfN, RunStopping, best_of_n, open_runtime, successive_halving
from tests.contract.scenes import SLACK, WORK, Held, Record, job, statuses, stubborn_for


def halved(**parts: Any) -> BestOfN[Any, Any]:
    """A job of two candidates under successive halving."""
    return job(**{"n": 2, "max_concurrency": 2, "stop": successive_halving(), **parts})


async def loses(ctx: Any) -> bool:
    """Candidate 0 publishes first, candidate 1 after a second and with less."""
    await trio.sleep(ctx.index)
    ctx.publish(f"draft of {ctx.index}", 0.5 - ctx.index / 10)
    return bool(ctx.index)


# -- what becomes of it --------------------------------------------------------------------------


async def test_the_one_that_falls_behind_is_cancelled_and_the_other_goes_on(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await loses(ctx)
        await trio.sleep(5)
        return 1

    record = Record()
    async with open_runtime() as runtime:
        result = await runtime.run(halved(generate=generate), "q", observers=[record])
        assert runtime.detached == ()
    assert statuses(result) == ["eligible", "cancelled"]
    assert (result.stop_reason, result.partial, result.output) == ("completed", False, 1)
    assert [c.elapsed for c in result.candidates] == [5, 1]
    assert record.of(1) == ["started", "leased", "published", "ended"]


async def test_what_it_published_last_stands_and_may_be_selected(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await loses(ctx)
        await trio.sleep(5)
        if ctx.index == 0:
            raise ValueError("the favourite stumbles")

    result = await best_of_n(halved(generate=generate), "q")
    dropped = result.candidates[1]
    assert statuses(result) == ["generation_failed", "cancelled"]
    assert (dropped.output, dropped.partial, dropped.eligible) == ("draft of 1", True, True)
    assert dropped.score is not None
    assert dropped.score.value == pytest.approx(0.4)
    assert (result.selected, result.stop_reason) == (dropped, "completed")


async def test_its_place_is_free_for_the_next_one(autojump_clock: MockClock) -> None:
    began: dict[int, float] = {}

    async def generate(request: Any, ctx: Any) -> Any:
        began[ctx.index] = trio.current_time()
        ctx.publish(None, -ctx.index)
        await trio.sleep(3)
        return ctx.index

    result = await best_of_n(halved(generate=generate, n=5, max_concurrency=1), "q")
    assert statuses(result) == ["eligible"] + ["cancelled"] * 4
    assert began == {0: 0, 1: 3, 2: 3, 3: 3, 4: 3}


async def test_whoever_takes_the_place_is_not_cut_with_it(autojump_clock: MockClock) -> None:
    """The drop comes in the very step in which the callback returns."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(1)
        ctx.publish("draft", (1, 0, 2, 3)[ctx.index])
        return ctx.index

    result = await best_of_n(halved(generate=generate, n=4, max_concurrency=1), "q")
    assert statuses(result) == ["eligible", "cancelled", "eligible", "eligible"]
    assert result.candidates[1].output == "draft"
    assert result.elapsed == 4


async def test_its_context_tells_it(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        if await loses(ctx):
            seen.append((ctx.stopping, ctx.deadline, ctx.remaining().seconds))
            with pytest.raises(RunStopping):
                ctx.raise_if_stopping()
        else:
            await trio.sleep(2)
            seen.append((ctx.stopping, ctx.deadline))
        await trio.sleep(1)
        return ctx.index

    await best_of_n(halved(generate=generate), "q")
    assert seen == [(True, 1, 0), (False, None)]


async def test_an_answer_that_comes_after_all_is_kept_but_not_scored(
    autojump_clock: MockClock,
) -> None:
    scored: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        await loses(ctx)
        await stubborn_for(0.1)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        scored.append(candidate.index)
        return 1.0

    result = await best_of_n(halved(generate=generate, score=score), "q")
    assert statuses(result) == ["eligible", "cancelled"]
    assert scored == [0]


async def test_it_may_be_dropped_while_it_is_scored(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await loses(ctx)
        await trio.sleep(5)
        return 1.0

    result = await best_of_n(halved(score=score), "q")
    assert statuses(result) == ["eligible", "cancelled"]
    assert [c.elapsed for c in result.candidates] == [5, 1]


async def test_one_that_waits_to_be_scored_ends_at_once(autojump_clock: MockClock) -> None:
    """A task of its own, left in a nursery of the caller's, publishes for it."""
    scored: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 0:
            ctx.publish("good", 1.0)
        else:
            nursery.start_soon(publish, ctx)
        return ctx.index

    async def publish(ctx: Any) -> None:
        await trio.sleep(1)
        ctx.publish("worse", 0.0)

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        scored.append(candidate.index)
        await trio.sleep(5)
        return 1.0

    async with open_runtime() as runtime, trio.open_nursery() as nursery:
        run = halved(generate=generate, score=score, max_concurrency=1)
        result = await runtime.run(run, "q")
    assert statuses(result) == ["eligible", "cancelled"]
    assert (scored, result.candidates[1].elapsed) == ([0], 1)


# -- what does not end ---------------------------------------------------------------------------


async def test_one_that_swallows_it_is_detached_after_the_work_share(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await loses(ctx)
        if ctx.index:
            await stubborn_for(9)
        else:
            await trio.sleep(3)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(halved(generate=generate), "q")
        (entry,) = runtime.detached
    dropped = result.candidates[1]
    assert statuses(result) == ["eligible", "generating (detached)"]
    assert dropped.elapsed == pytest.approx(1 + WORK)
    assert (entry.candidate, entry.since) == (1, pytest.approx(1 + WORK))
    assert (result.stop_reason, result.elapsed) == ("completed", 3)


async def test_when_no_slot_is_left_the_run_ends(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.publish("draft", -ctx.index)
        if ctx.index:
            await stubborn_for(9)
        return ctx.index

    async with open_runtime() as runtime:
        run = halved(generate=generate, n=4, max_concurrency=1)
        result = await runtime.run(run, "q")
    assert statuses(result) == ["eligible", "generating (detached)", "skipped", "skipped"]
    assert (result.stop_reason, result.output) == ("slots_lost", 0)


async def test_clean_up_has_the_work_share_whenever_it_began(autojump_clock: MockClock) -> None:
    ended: dict[str, float] = {}

    async def generate(request: Any, ctx: Any) -> Any:
        if not ctx.index:
            ctx.publish("good", 1.0)
            await trio.sleep(9)
            return 1
        name = f"while it cleaned up {ctx.index}" if ctx.index == 1 else "before"
        try:
            with ctx.cleanup():
                await trio.sleep(1)
                if ctx.index == 1:
                    ctx.publish("worse", 0.0)
                    await trio.sleep(99)
            ctx.publish("worse", 0.0)
            await trio.sleep(99)
        finally:
            with ctx.cleanup():
                await trio.sleep(0.1 if ctx.index == 2 else 99)
            ended[name] = trio.current_time()

    async with open_runtime() as runtime:
        run = halved(generate=generate, n=3, max_concurrency=3)
        result = await runtime.run(run, "q")
        assert runtime.detached == ()
    assert statuses(result) == ["eligible", "cancelled", "cancelled"]
    assert ended == {
        "while it cleaned up 1": pytest.approx(1 + WORK),
        "before": pytest.approx(1.1),
    }


async def test_a_thread_that_falls_behind_is_told() -> None:
    told: list[int] = []

    def generate(request: Any, ctx: Any) -> Any:
        ctx.publish("draft", -ctx.index)
        for _ in range(0 if ctx.index == 0 else 400):
            if ctx.stopping:
                told.append(ctx.index)
                ctx.raise_if_stopping()
            time.sleep(0.005)
        return ctx.index

    run = halved(generate=generate, score=_one, n=4, max_concurrency=1)
    result = await best_of_n(run, "q")
    assert statuses(result) == ["eligible"] + ["cancelled"] * 3
    assert [c.output for c in result.candidates] == [0, "draft", "draft", "draft"]
    assert told == [1, 2, 3]
    assert result.elapsed < SLACK


async def test_a_thread_that_does_not_look_is_given_up(held: Held) -> None:
    def deaf(request: Any, ctx: Any) -> Any:
        ctx.publish("draft", -ctx.index)
        return held(request, ctx) if ctx.index else ctx.index

    held.indices = (1,)
    async with open_runtime(grace=0.05, exit_grace=0) as runtime:
        run = halved(generate=deaf, score=_one, max_concurrency=1)
        result = await runtime.run(run, "q")
        held.release.set()
        await runtime.drain()
    assert statuses(result) == ["eligible", "generating (detached)"]


async def _one(request: Any, candidate: Any, ctx: Any) -> float:
    return 1.0


# -- beside other ends ---------------------------------------------------------------------------


async def test_dropped_before_the_deadline_and_unwound_after_it_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await loses(ctx)
        await stubborn_for(0.1 if ctx.index else 0)
        await trio.sleep(9)

    result = await best_of_n(halved(generate=generate, timeout=1.05), "q")
    assert statuses(result) == ["timed_out", "cancelled"]
    assert result.stop_reason == "deadline"


async def test_what_it_raises_once_it_was_dropped_is_the_form_of_its_end(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await loses(ctx)
        ctx.raise_if_stopping()
        return ctx.index

    result = await best_of_n(halved(generate=generate), "q")
    assert statuses(result) == ["eligible", "cancelled"]
    assert isinstance(result.candidates[1].error, RunStopping)


async def test_its_own_timeout_comes_first_if_it_is_first(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9 if ctx.index else 0.5)
        finally:
            ctx.publish("at the end", -ctx.index)
        return ctx.index

    result = await best_of_n(halved(generate=generate, candidate_timeout=1), "q")
    assert statuses(result) == ["eligible", "timed_out"]


async def test_after_a_stop_nobody_is_dropped(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            ctx.publish("at the end", -ctx.index)

    async with open_runtime() as runtime:
        handle = runtime.start(halved(generate=generate), "q")
        await trio.sleep(1)
        handle.cancel()
        result = await handle.result()
    assert statuses(result) == ["cancelled", "cancelled"]
    assert result.stop_reason == "cancelled"
    assert result.output == "at the end"


async def test_publications_without_a_score_are_not_judged(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        for _ in range(8):
            ctx.publish("no score")
            await trio.sleep(0.1)
        return ctx.index

    result = await best_of_n(halved(generate=generate, n=4, max_concurrency=4), "q")
    assert statuses(result) == ["eligible"] * 4


# -- what it is for ------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [4, 16])
@pytest.mark.parametrize("eta", [2, 4])
async def test_it_finds_the_best_of_a_law_without_crossings_for_much_less(
    eta: int, concurrency: int, autojump_clock: MockClock
) -> None:
    steps, n = 16, 32
    for seed in range(5):
        worth = random.Random(seed).sample(range(n), n)

        async def generate(request: Any, ctx: Any) -> Any:
            for step in range(1, steps + 1):
                await trio.sleep(1)
                ctx.publish(step, worth[ctx.index] * step)  # noqa: B023  # awaited within the loop
            return worth[ctx.index]  # noqa: B023

        async def score(request: Any, candidate: Any, ctx: Any) -> float:
            return float(candidate.output * steps)

        run = BestOfN(
            generate=generate,
            score=score,
            n=n,
            max_concurrency=concurrency,
            stop=successive_halving(eta),
        )
        result = await best_of_n(run, "q")
        assert result.output == n - 1, "the best was dropped"
        assert result.stop_reason == "completed"
        assert result.selected is not None
        assert not result.selected.partial
        spent = sum(candidate.elapsed for candidate in result.candidates)
        assert spent < 0.6 * n * steps, f"seed {seed}: {spent} of {n * steps} seconds"
        assert set(statuses(result)) == {"eligible", "cancelled"}
