"""The worker threads' one limit, detached threads, and what never starts (clause 7 and "Threads").

On the real clock, with limits of half a second at the most; whatever waits is released.
"""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
from typing import Any

import trio

from hortator import RunStopping, Usage, open_runtime
from hortator.actors.callbacks import Failed
from hortator.actors.threads import ThreadCall, Threads
from hortator.protocols.errors import NoThreadLeft
from tests.contract.scenes import SLACK, Held, job, statuses

# -- one limiter ----------------------------------------------------------------------------------


def test_there_are_forty_threads_unless_said_otherwise() -> None:
    assert inspect.signature(open_runtime).parameters["threads"].default == 40


async def test_all_runs_share_one_limit(held: Held) -> None:
    at_work = most = 0
    lock = threading.Lock()

    def generate(request: Any, ctx: Any) -> Any:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.02)
        with lock:
            at_work -= 1
        return ctx.index

    async with open_runtime(threads=3) as runtime:
        handles = [runtime.start(job(generate=generate, score=lambda *_: 1), "q") for _ in "ab"]
        results = [await handle.result() for handle in handles]
    assert most == 3, f"{most} threads at work at once, of 3 allowed"
    assert [statuses(result) for result in results] == [["eligible"] * 4] * 2


async def test_a_wait_for_a_thread_ends_at_the_deadline_and_the_callback_never_starts(
    held: Held,
) -> None:
    held.indices = (0,)
    async with open_runtime(threads=1, grace=0.1, exit_grace=0) as runtime:
        result = await runtime.run(job(generate=held, n=3, timeout=0.2), "q")
        began_before, ended = list(held.began), trio.current_time()
        held.release.set()
        await runtime.drain()
        assert trio.current_time() - ended < SLACK
    assert began_before == held.began == [0], "a callback started after it was told to stop"
    assert statuses(result) == ["generating (detached)", "skipped", "skipped"]
    assert result.elapsed <= 0.2 + 0.1 + SLACK


# -- detached threads -----------------------------------------------------------------------------


async def test_a_detached_thread_keeps_its_token_and_who_needs_one_fails_at_once(
    held: Held,
) -> None:
    held.indices = (0, 1)
    async with open_runtime(threads=2, grace=0.05, exit_grace=0) as runtime:
        stuck = await runtime.run(job(generate=held, n=2, timeout=0.1), "q")
        assert statuses(stuck) == ["generating (detached)"] * 2

        began = trio.current_time()
        result = await runtime.run(job(generate=held, n=2, timeout=2 * SLACK), "q")
        assert trio.current_time() - began < SLACK, "it waited for a thread that may never come"
        assert statuses(result) == ["generation_failed"] * 2
        for candidate in result.candidates:
            assert isinstance(candidate.error, NoThreadLeft)
            for name in (f"{stuck.run_id} candidate 0", f"{stuck.run_id} candidate 1"):
                assert name in str(candidate.error), "who holds the threads is not named"
        unscored = await runtime.run(job(score=lambda *_: 1), "q")
        assert statuses(unscored) == ["scoring_failed"] * 4

        held.release.set()
        assert await runtime.drain() == ()
        assert statuses(await runtime.run(job(generate=held), "q")) == ["eligible"] * 4


async def test_a_thread_at_work_that_is_not_detached_is_waited_for(held: Held) -> None:
    held.indices = (0,)
    async with open_runtime(threads=1) as runtime:
        handle = runtime.start(job(generate=held, n=2), "q")
        await trio.sleep(0.05)
        assert held.began == [0]
        held.release.set()
        assert statuses(await handle.result()) == ["eligible"] * 2


async def test_what_a_detached_thread_comes_to_goes_to_its_entry(held: Held) -> None:
    def generate(request: Any, ctx: Any) -> Any:
        held(request, ctx)
        ctx.charge(Usage(total_tokens=5))
        raise OSError("late")

    held.indices = (0,)
    async with open_runtime(grace=0.05, exit_grace=0) as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=0.1), "q")
        before = result.candidates
        held.release.set()
        assert await runtime.drain() == ()
        (entry,) = runtime.detached
        assert isinstance(entry.error, OSError)
        assert entry.late_usage == Usage(total_tokens=5)
        assert entry.ended
        assert result.candidates == before


# -- nothing starts after it was told to stop -----------------------------------------------------


async def test_a_callback_that_is_queued_for_a_thread_never_starts_after_a_stop(
    held: Held,
) -> None:
    held.indices = (0,)
    async with open_runtime(threads=1) as runtime:
        handle = runtime.start(job(generate=held), "q")
        while not held.began:
            await trio.sleep(0.001)
        handle.cancel()
        held.release.set()
        result = await handle.result()
        # The token is free now: whoever would start does so in this run.
        assert statuses(await runtime.run(job(generate=held, n=1), "q")) == ["eligible"]
    assert statuses(result) == ["cancelled", "skipped", "skipped", "skipped"]
    assert held.began == [0, 0], "a queued callback started though its run was told to stop"


async def test_the_thread_looks_once_more_before_the_first_line() -> None:
    ran: list[int] = []
    threads = Threads(1)
    call = ThreadCall(threads, "run-1 candidate 0", lambda value: None)
    value = await call.run(ran.append, (1,), contextvars.copy_context(), lambda: False)
    assert ran == [], "the callback's first line ran though it may not start"
    assert isinstance(value, Failed)
    assert isinstance(value.error, RunStopping)
    assert threads.limiter.borrowed_tokens == 0


async def test_no_scorer_starts_after_a_stop(held: Held) -> None:
    scored: list[int] = []

    def score(request: Any, candidate: Any, ctx: Any) -> float:
        scored.append(candidate.index)
        return 1.0

    held.indices = (0, 1, 2, 3)
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=held, score=score), "q")
        while len(held.began) < 4:
            await trio.sleep(0.001)
        handle.cancel()
        held.release.set()
        result = await handle.result()
    assert (statuses(result), scored) == (["cancelled"] * 4, [])
    assert [c.output for c in result.candidates] == [0, 1, 2, 3], "what came back is kept"
