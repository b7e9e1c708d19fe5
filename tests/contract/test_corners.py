"""Corners where two guarantees meet: leaving and nesting, queues and detached work, late ends.

Virtual time, but where threads are: there limits are short and every thread is released.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import BestOfN, InvalidJob, Status, best_of_n, open_runtime
from hortator.protocols.errors import NoThreadLeft, RunStopping


async def _one(request: Any, candidate: Any, ctx: Any) -> float:
    return 1.0


async def _generate(request: Any, ctx: Any) -> int:
    return ctx.index


async def test_runs_that_leaving_waits_for_may_still_nest(autojump_clock: MockClock) -> None:
    async def inner(request: Any, ctx: Any) -> str:
        await trio.sleep(1)
        return f"{request}!"

    async def outer(request: Any, ctx: Any) -> Any:
        await trio.sleep(1)  # by now the body has been left
        return (await best_of_n(BestOfN(generate=inner, score=_one, n=2), request)).output

    async with open_runtime() as runtime:
        handle = runtime.start(BestOfN(generate=outer, score=_one, n=1), "q")
    assert (await handle.result()).output == "q!"


async def test_leaving_with_no_grace_sleeps_while_it_waits(autojump_clock: MockClock) -> None:
    async def slow(request: Any, ctx: Any) -> int:
        await trio.sleep(100)
        return 1

    began = trio.current_time()
    async with open_runtime(grace=0) as runtime:
        handle = runtime.start(BestOfN(generate=slow, score=_one, n=1), "q")
    assert (await handle.result()).output == 1
    # A busy loop would keep a virtual clock from ever moving, and this test from ending.
    assert trio.current_time() - began == 100


async def test_who_waits_for_a_thread_is_refused_when_none_is_left() -> None:
    release = threading.Event()

    def hangs(request: Any, ctx: Any) -> int:
        release.wait(8)
        return 1

    try:
        async with open_runtime(threads=1, grace=0.05) as runtime:
            first = runtime.start(BestOfN(generate=hangs, score=_one, n=1, timeout=0.1), "q")
            await trio.sleep(0.05)
            queued = runtime.start(BestOfN(generate=hangs, score=_one, n=1), "q")
            assert (await first.result()).candidates[0].detached
            with trio.fail_after(5):
                (candidate,) = (await queued.result()).candidates
            assert candidate.status is Status.GENERATION_FAILED
            assert isinstance(candidate.error, NoThreadLeft), "it waits for a thread for ever"
            release.set()
    finally:
        release.set()


async def test_a_thread_that_ends_after_the_runtime_was_left_is_settled() -> None:
    release = threading.Event()

    def hangs(request: Any, ctx: Any) -> int:
        release.wait(8)
        return 1

    try:
        async with open_runtime(grace=0.05, exit_grace=0.05) as runtime:
            await runtime.run(BestOfN(generate=hangs, score=_one, n=1, timeout=0.05), "q")
        assert not runtime.detached[0].ended
        release.set()
        assert await runtime.drain(5) == (), "nobody was told that the thread has ended"
        assert runtime.detached[0].ended
    finally:
        release.set()


async def test_a_coroutine_that_a_plain_function_returns_is_not_begun_after_the_stop() -> None:
    began: list[str] = []
    in_the_thread, go_on = threading.Event(), threading.Event()

    async def body() -> int:
        began.append("its first line")
        return 1

    def makes(request: Any, ctx: Any) -> Any:
        in_the_thread.set()
        go_on.wait(8)
        return body()

    async with open_runtime(grace=2) as runtime:
        handle = runtime.start(BestOfN(generate=makes, score=_one, n=1), "q")
        await trio.to_thread.run_sync(in_the_thread.wait, 8)
        handle.cancel()
        go_on.set()
        (candidate,) = (await handle.result()).candidates
    assert began == [], "it was begun after it was told to stop"
    assert candidate.status is Status.CANCELLED
    assert isinstance(candidate.error, RunStopping)


async def test_a_run_that_a_plain_function_nests_through_its_thread_is_held_too() -> None:
    inner_reasons: list[str] = []

    async def slow(request: Any, ctx: Any) -> int:
        await trio.sleep(5)
        return 1

    async with open_runtime(grace=1) as runtime:

        def nests(request: Any, ctx: Any) -> int:
            result = trio.from_thread.run(
                runtime.run, BestOfN(generate=slow, score=_one, n=1), "inner"
            )
            inner_reasons.append(result.stop_reason)
            return 1

        await runtime.run(BestOfN(generate=nests, score=_one, n=1, timeout=0.3), "q")
        assert await runtime.drain(3) == ()
    assert inner_reasons == ["outer_deadline"]


async def test_candidates_that_never_started_do_not_come_by_the_channel(
    autojump_clock: MockClock,
) -> None:
    async def slow(request: Any, ctx: Any) -> int:
        await trio.sleep(9)
        return 1

    async with open_runtime() as runtime:
        job = BestOfN(generate=slow, score=_one, n=5, max_concurrency=2, timeout=1)
        handle = runtime.start(job, "q")
        await handle.result()
        async with handle.candidates() as receive:
            late = [candidate.index async for candidate in receive]
    assert late == [0, 1], "who comes late is told more than who listened"


class _Custom:
    name = "custom"
    reason = "completed"
    takes_the_first = False

    def choose(self, *args: Any) -> int:
        return 99

    def met(self, *args: Any) -> bool:
        raise OSError


@pytest.mark.parametrize("rule", ["select", "stop"])
def test_rules_of_ones_own_are_refused_before_anything_starts(rule: str) -> None:
    with pytest.raises(InvalidJob, match="is not a rule of this library"):
        BestOfN(generate=_generate, score=_one, **{rule: _Custom()})
