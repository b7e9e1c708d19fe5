"""Sync callbacks in worker threads: which, where, and how they cooperate ("Threads").

On the real clock, with limits of half a second at the most; whatever waits is released.
"""

from __future__ import annotations

import contextvars
import functools
import re
import threading
import time
from typing import Any

import pytest
import trio

from hortator import RunStopping, Usage, in_thread, open_runtime
from hortator.actors.threads import ThreadCall
from tests.contract.scenes import SLACK, Held, Record, by_output, echo, job, statuses

# -- where they run -------------------------------------------------------------------------------


async def test_sync_generators_and_scorers_run_in_worker_threads() -> None:
    where: set[tuple[str, bool]] = set()
    loop = threading.get_ident()

    def generate(request: Any, ctx: Any) -> Any:
        where.add(("generate", threading.get_ident() == loop))
        return ctx.index

    def score(request: Any, candidate: Any, ctx: Any) -> float:
        where.add(("score", threading.get_ident() == loop))
        return candidate.output

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, score=score), "q")
    assert where == {("generate", False), ("score", False)}
    assert (statuses(result), result.output) == (["eligible"] * 4, 3)


async def test_a_sync_callback_that_blocks_holds_nobody_else_up(held: Held) -> None:
    held.indices = (1,)
    async with open_runtime(grace=0.05, exit_grace=0) as runtime:
        result = await runtime.run(job(generate=held, timeout=0.3), "q")
        held.release.set()
        await runtime.drain()
    assert statuses(result) == ["eligible", "generating (detached)", "eligible", "eligible"]
    assert 0.3 <= result.elapsed <= 0.3 + 0.05 + SLACK


async def test_a_sync_scorer_that_blocks_is_detached_while_scoring(held: Held) -> None:
    def score(request: Any, candidate: Any, ctx: Any) -> float:
        return held(request, ctx)

    held.indices = (1,)
    async with open_runtime(grace=0.05, exit_grace=0) as runtime:
        result = await runtime.run(job(score=score, timeout=0.3), "q")
        (entry,) = runtime.detached
        held.release.set()
        await runtime.drain()
    assert statuses(result)[1] == "scoring (detached)"
    assert (entry.phase, entry.kind, entry.candidate) == ("scoring", "thread", 1)
    assert re.search(r"scenes\.py:\d+ in Held\.__call__$", entry.where), entry.where


async def test_sync_observers_run_on_the_loop_and_in_thread_ones_do_not() -> None:
    idents: dict[str, set[int]] = {"sync": set(), "in_thread": set()}
    sequences: list[int] = []
    at_once = 0

    def observe(event: Any) -> None:
        idents["sync"].add(threading.get_ident())

    def slow(event: Any) -> None:
        nonlocal at_once
        at_once += 1
        assert at_once == 1, "two calls of one observer overlap"
        time.sleep(0.002)
        idents["in_thread"].add(threading.get_ident())
        sequences.append(event.sequence)
        at_once -= 1

    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[observe, in_thread(slow)])
    assert idents["sync"] == {threading.get_ident()}
    assert threading.get_ident() not in idents["in_thread"]
    assert sequences == list(range(21))
    assert result.telemetry.observer_errors == 0


# -- sync or async --------------------------------------------------------------------------------


class AsyncObject:
    """Async, though only its `__call__` tells."""

    async def __call__(self, request: Any, ctx: Any) -> Any:
        return await echo(request, ctx)


class SyncObject:
    """Sync, in the same way."""

    def __call__(self, request: Any, ctx: Any) -> Any:
        return ctx.index


async def _with_more(more: Any, request: Any, ctx: Any) -> Any:
    return await echo(request, ctx)


def _sync_with_more(more: Any, request: Any, ctx: Any) -> Any:
    return ctx.index


ON_THE_LOOP: dict[str, Any] = {
    "function": echo,
    "object": AsyncObject(),
    "method": AsyncObject().__call__,
    "partial": functools.partial(_with_more, 1),
    "partial of partial": functools.partial(functools.partial(_with_more, 1)),
    "partial of object": functools.partial(AsyncObject()),
}
IN_A_THREAD: dict[str, Any] = {
    "object": SyncObject(),
    "partial": functools.partial(_sync_with_more, 1),
    "lambda": lambda request, ctx: ctx.index,
}


@pytest.mark.parametrize("kind", ON_THE_LOOP)
async def test_what_is_async_is_recognised(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadCall, "run", None)  # a thread would fail the candidate
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=ON_THE_LOOP[kind]), "q")
    assert (statuses(result), result.output) == (["eligible"] * 4, 3)


@pytest.mark.parametrize("kind", IN_A_THREAD)
async def test_what_is_sync_is_recognised(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[ThreadCall] = []
    run = ThreadCall.run

    async def counted(self: ThreadCall, *args: Any, **more: Any) -> Any:
        calls.append(self)
        return await run(self, *args, **more)

    monkeypatch.setattr(ThreadCall, "run", counted)
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=IN_A_THREAD[kind]), "q")
    assert (len(calls), result.output) == (4, 3)


async def test_an_awaitable_out_of_a_sync_callable_is_awaited() -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(
                generate=lambda request, ctx: _with_more(1, request, ctx),
                score=lambda request, candidate, ctx: by_output(None, candidate, ctx),
            ),
            "q",
        )
    assert [c.output for c in result.candidates] == [0, 1, 2, 3], "the coroutine is the output"
    assert (statuses(result), result.output) == (["eligible"] * 4, 3)


async def test_context_variables_reach_worker_threads_and_do_not_leak_from_them() -> None:
    name = contextvars.ContextVar("name", default="none")
    name.set("the caller's")
    seen: list[tuple[str, str]] = []

    def generate(request: Any, ctx: Any) -> Any:
        seen.append(("generator", name.get()))
        name.set(f"candidate {ctx.index}'s")
        return ctx.index

    def score(request: Any, candidate: Any, ctx: Any) -> float:
        seen.append(("scorer", name.get()))
        return 1.0

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, score=score, n=2, max_concurrency=1), "q")
    assert [value for where, value in seen if where == "generator"] == ["the caller's"] * 2
    assert sorted(value for where, value in seen if where == "scorer") == [
        "candidate 0's",
        "candidate 1's",
    ]
    assert name.get() == "the caller's"


# -- cooperating ----------------------------------------------------------------------------------


async def test_a_thread_that_looks_at_stopping_ends_in_time() -> None:
    def generate(request: Any, ctx: Any) -> Any:
        while not ctx.stopping:
            time.sleep(0.002)
        return f"half of {ctx.index}"

    async with open_runtime(grace=5) as runtime:
        result = await runtime.run(job(generate=generate, timeout=0.1), "q")
        assert runtime.detached == ()
    assert statuses(result) == ["timed_out"] * 4
    assert result.candidates[0].output == "half of 0"
    assert result.elapsed < 0.1 + SLACK


async def test_raise_if_stopping_ends_a_thread_as_stopped_not_as_failed() -> None:
    def generate(request: Any, ctx: Any) -> Any:
        while True:
            ctx.raise_if_stopping()
            time.sleep(0.002)

    async with open_runtime(grace=5) as runtime:
        handle = runtime.start(job(generate=generate), "q")
        await trio.sleep(0.05)
        handle.cancel()
        result = await handle.result()
    assert statuses(result) == ["cancelled"] * 4
    assert {type(c.error) for c in result.candidates} <= {RunStopping, type(None)}


async def test_a_candidates_own_timeout_tells_its_thread_to_stop() -> None:
    def generate(request: Any, ctx: Any) -> Any:
        while ctx.index == 1 and not ctx.stopping:
            time.sleep(0.002)
        return ctx.index

    async with open_runtime(grace=1, exit_grace=0) as runtime:
        result = await runtime.run(job(generate=generate, candidate_timeout=0.1, timeout=20), "q")
        assert runtime.detached == (), "its own timeout did not reach it"
    assert statuses(result) == ["eligible", "timed_out", "eligible", "eligible"]


async def test_the_context_may_be_used_from_a_thread() -> None:
    def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(Usage(total_tokens=3))
        ctx.emit("note", index=ctx.index)
        ctx.publish("draft")
        left = ctx.remaining().seconds
        return (ctx.seed, ctx.run_id, ctx.stopping, ctx.deadline is not None and left > 0)

    record = Record()
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=generate, score=lambda *_: 1, n=1, timeout=20), "q", observers=[record]
        )
    assert result.output[1:] == (result.run_id, False, True)
    assert result.usage.reported.total_tokens == 3
    expected = ["started", "leased", "note", "published", "generated", "scored", "ended"]
    assert record.kinds == [*expected, "finished"], "events of a thread come late or out of order"
