"""B15, B20, B21: sync code goes to worker threads, which are few, and which nobody can stop.

Real clock. What blocks is held by the test and let go at its end. If it ran on the event loop it
would hold everything for seconds, so that limits with slack for a loaded machine still tell.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import functools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio

from hortator import best_of_n, open_runtime
from hortator.protocols.errors import NoThreadLeft
from tests.field_cases.scenes import (
    HOLDS,
    REAL_DOORS,
    SLACK,
    Hold,
    check_account,
    index_score,
    job_of,
    statuses,
    stopped,
)

GRACE = 0.1


async def quick(request: str, ctx: Any) -> str:
    return f"answer {ctx.index}"


async def check_threads(runtime: Any, count: int) -> None:
    """Assert that so many worker threads can be had at once."""
    together = threading.Barrier(count)

    def generate(request: str, ctx: Any) -> int:
        return together.wait(HOLDS)

    result = await runtime.run(job_of(generate, n=count, timeout=2 * HOLDS), "q")
    assert statuses(result) == ["eligible"] * count, f"not {count} threads: some are lost"


# B15: what is queued for a thread when it is cancelled never starts


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize("door", REAL_DOORS)
async def test_B15_what_waits_for_a_thread_when_it_is_stopped_never_starts(
    door: str, phase: str, hold: Hold
) -> None:
    ran: list[int] = []

    def busy(request: str, *rest: Any) -> str:
        ran.append(rest[-1].index)
        hold.block()
        return "late"

    job = job_of(busy, n=6) if phase == "generating" else job_of(quick, busy, n=6)
    options: dict[str, Any] = {"threads": 1, "grace": GRACE, "free": hold.let_go}
    async with stopped(door, job, at=0.25, **options) as run:
        assert run.late <= GRACE + SLACK
        assert len(ran) == 1, "with one thread, more than one was started"
        first = ran[0]
        if run.result is not None:
            check_account(run.result, 6)
            expected = "timed_out" if "deadline" in door else "cancelled"
            if phase == "generating":
                expected = "skipped"  # no line of it ran
            for index, candidate in enumerate(run.result.candidates):
                assert candidate.status == (phase if index == first else expected)
                assert candidate.output == (None if phase == "generating" else f"answer {index}")
        hold.let_go()
        assert await run.runtime.drain(HOLDS) == ()
        await check_threads(run.runtime, 1)
        assert ran == [first], "it was started after it had been stopped"


async def test_B15_queued_behind_another_run(hold: Hold) -> None:
    ran: list[str] = []

    def busy(request: str, ctx: Any) -> str:
        ran.append(request)
        hold.block()
        return request

    async with open_runtime(threads=1, grace=GRACE) as runtime:
        first = runtime.start(job_of(busy, n=1), "first")
        await trio.sleep(0.1)
        second = await runtime.run(job_of(busy, n=1, timeout=0.1), "second")
        assert (statuses(second), second.stop_reason) == (["skipped"], "deadline")
        hold.let_go()
        assert (await first.result()).output == "first"
        await check_threads(runtime, 1)
    assert ran == ["first"]


async def test_B15_the_cancel_and_a_free_thread_at_the_same_moment(hold: Hold) -> None:
    chance = random.Random(15)
    ran: set[tuple[int, int]] = set()

    def short(request: int, ctx: Any) -> str:
        ran.add((request, ctx.index))
        time.sleep(0.001)
        return "answer"

    async with open_runtime(threads=2, grace=GRACE) as runtime:
        for number in range(60):
            handle = runtime.start(job_of(short, n=5), number)
            await trio.sleep(chance.uniform(0, 0.004))
            handle.cancel()
            result = await handle.result()
            for candidate in result.candidates:
                started = (number, candidate.index) in ran
                assert started == (candidate.status != "skipped"), f"run {number}: {candidate}"
            check_account(result, 5)
        await check_threads(runtime, 2)


# B20: threads that nobody can cancel do not pile up


async def hundred_runs(seconds: float, hold: Hold) -> None:
    running = peak = 0
    count = threading.Lock()

    def tool(request: int, ctx: Any) -> None:
        nonlocal running, peak
        with count:
            running += 1
            peak = max(peak, running)
        until = time.monotonic() + seconds
        while hold.on and time.monotonic() < until:
            time.sleep(0.005)
        with count:
            running -= 1

    results: list[Any] = []
    took: list[float] = []

    async def one(runtime: Any, number: int) -> None:
        began = trio.current_time()
        results.append(await runtime.run(job_of(tool, n=1, timeout=0.1), number))
        took.append(trio.current_time() - began)

    async with open_runtime(threads=8, grace=GRACE) as runtime:
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(one, runtime, number)
        assert max(took) <= 0.1 + GRACE + SLACK, "a run waited for its thread"
        ends = [statuses(result)[0] for result in results]
        held = ends.count("generating")
        assert (len(ends), held + ends.count("skipped")) == (100, 100)
        assert len(runtime.detached) == held <= 8, "the limiter did not limit"
        while len(runtime.detached) < 8:  # on a busy machine a thread may not begin in 0.1 s
            await runtime.run(job_of(tool, n=8, timeout=0.1), -1)
        while running < 8:
            await trio.sleep(0.01)

        # All threads are held by work that was given up: that is said at once.
        began = trio.current_time()
        for number in range(100, 105):
            refused = await runtime.run(job_of(tool, n=2, timeout=HOLDS), number)
            assert statuses(refused) == ["generation_failed"] * 2
            error = refused.candidates[0].error
            assert isinstance(error, NoThreadLeft)
            for work in runtime.detached:
                assert f"{work.run_id} candidate {work.candidate}" in str(error), "nobody is named"
        assert trio.current_time() - began <= SLACK

        if seconds > HOLDS:
            hold.let_go()
        assert await runtime.drain(HOLDS) == (), "the gauge did not return to its base"
        assert (running, peak) == (0, 8)
        assert len(runtime.reap()) == 8
        await check_threads(runtime, 8)


async def test_B20_a_hundred_runs_with_threads_that_hang(hold: Hold) -> None:
    await hundred_runs(2 * HOLDS, hold)


@pytest.mark.slow  # the case's own figure: 100 runs with 3 s each, which end by themselves
async def test_B20_a_hundred_runs_with_threads_of_three_seconds(hold: Hold) -> None:
    await hundred_runs(3.0, hold)


# B21: a blocking call starves nobody


class Object:
    """A callable object, and one with a method."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    method = __call__


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def awaiting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function that blocks, and then returns an awaitable."""

    def wrapper(*args: Any) -> Any:
        value = function(*args)

        async def later() -> Any:
            await trio.lowlevel.checkpoint()
            return value

        return later()

    return wrapper


PLAIN: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "function": lambda function: function,
    "lambda": lambda function: lambda *args: function(*args),  # noqa: PLW0108  (that is the shape)
    "partial": lambda function: functools.partial(functools.partial(function)),
    "object": Object,
    "method": lambda function: Object(function).method,
    "wrapped": wrapped,
    "awaiting": awaiting,
}


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize("shape", PLAIN)
async def test_B21_plain_functions_block_a_thread_and_not_the_loop(
    shape: str, phase: str, hold: Hold
) -> None:
    threads: set[int] = set()

    def blocking(request: str, *rest: Any) -> Any:
        threads.add(threading.get_ident())
        index = rest[-1].index
        if index == 0:
            hold.block()
        return [9.0, 1.0, 2.0][index] if phase == "scoring" else f"answer {index}"

    callback = PLAIN[shape](blocking)
    gaps: list[float] = []

    async def tick() -> None:
        while True:
            began = trio.current_time()
            await trio.sleep(0.005)
            gaps.append(trio.current_time() - began)

    async with open_runtime(grace=GRACE) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        if phase == "generating":
            job = job_of(callback, index_score, timeout=0.6)
        else:
            job = job_of(quick, callback, timeout=0.6)
        result = await runtime.run(job, "q")
        nursery.cancel_scope.cancel()
        hold.let_go()
        assert await runtime.drain(HOLDS) == ()
    assert result.elapsed <= 0.6 + GRACE + SLACK, "the blocking call held the run"
    assert len(gaps) > 3
    assert max(gaps) <= SLACK, "the blocking call held the loop"
    assert threading.get_ident() not in threads
    assert statuses(result) == [phase, "eligible", "eligible"], "the others did not get on"
    assert result.output == "answer 2"


@pytest.mark.parametrize("shape", ["partial", "object", "method"])
async def test_B21_async_callables_of_any_shape_stay_on_the_loop(shape: str) -> None:
    threads: set[int] = set()

    class Caller:
        async def __call__(self, request: str, *rest: Any) -> int:
            threads.add(threading.get_ident())
            await trio.lowlevel.checkpoint()
            return int(rest[-1].index)

        async def method(self, request: str, *rest: Any) -> int:
            return await self(request, *rest)

    shapes = {
        "partial": functools.partial(Caller().method),
        "object": Caller(),
        "method": Caller().method,
    }
    result = await best_of_n(job_of(shapes[shape], shapes[shape]), "q")
    assert result.output == 2
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("when", ["across the deadline", "across the grace"])
@pytest.mark.parametrize("end", ["ends", "hangs"])
async def test_B21_async_code_that_blocks_the_loop_delays_the_account_and_loses_none_of_it(
    end: str, when: str, hold: Hold
) -> None:
    # No deadline on an event loop can help this: the return is late, but true.
    async def generate(request: str, ctx: Any) -> str:
        if ctx.index == 0:
            return "answer"
        with trio.CancelScope(shield=True):
            await trio.sleep(0.17 if when == "across the deadline" else 0.22)
            if ctx.index == 1:
                time.sleep(0.3)
            while end == "hangs" and hold.on:
                await trio.sleep(0.01)
        await trio.sleep_forever()
        raise AssertionError

    job = job_of(generate, n=4)
    async with stopped("deadline", job, at=0.2, grace=0.1, free=hold.let_go) as run:
        assert run.result.output == "answer", "the best so far was lost"
        run.record.check()
        check_account(run.result, 4)
        assert run.result.stop_reason == "deadline"
        rest = "generating" if end == "hangs" else "timed_out"
        assert statuses(run.result) == ["eligible", rest, rest, rest]
        stuck = {work.candidate for work in run.runtime.detached}
        assert stuck == ({1, 2, 3} if end == "hangs" else set())
        assert run.late <= 0.3 + 0.1 + SLACK
