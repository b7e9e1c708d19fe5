"""Guarantees that no other test would miss: each of these is the killer of a planted fault.

The faults are in `tests/mutants`. Under virtual time, but for processes.
"""

from __future__ import annotations

import contextvars
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import BestOfN, Event, best_of_n, open_runtime
from hortator.actors.process import command
from hortator.actors.threads import ThreadCall, Threads
from hortator.protocols.candidate import Effect


async def _by_output(request: Any, candidate: Any, ctx: Any) -> float:
    return float(candidate.output)


async def test_what_has_begun_is_told_while_it_goes_on(autojump_clock: MockClock) -> None:
    told: list[str] = []

    async def generate(request: Any, ctx: Any) -> int:
        await trio.sleep(9)
        return 1

    def observe(event: Event) -> None:
        told.append(event.kind)

    job = BestOfN(generate=generate, score=_by_output, n=1)
    async with open_runtime() as runtime:
        handle = runtime.start(job, "q", observers=[observe])
        await wait_all_tasks_blocked()
        assert told == ["started", "leased"], "held back until the candidate was over"
        await handle.result()
    assert told == ["started", "leased", "generated", "scored", "ended", "finished"]


async def test_an_effect_that_a_timeout_of_the_callbacks_own_cuts_is_unknown(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> int:
        with trio.move_on_after(1):
            async with ctx.effect("send", "write"):
                await trio.sleep(9)  # it may have been sent by now, or not
        return 1

    job = BestOfN(generate=generate, score=_by_output, n=1, side_effects="allow")
    async with open_runtime() as runtime:
        result = await runtime.run(job, "q")
    effects = result.candidates[0].effects
    assert effects == (Effect("send", "write", "unknown"),), "nobody knows that it failed"


async def test_clean_up_that_was_begun_before_the_stop_ends_with_the_work_share(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> int:
        with ctx.cleanup():
            await trio.sleep(9)
        return 1

    async with open_runtime(grace=0.25) as runtime:
        handle = runtime.start(BestOfN(generate=generate, score=_by_output, n=1), "q")
        await trio.sleep(1)
        handle.cancel()
        result = await handle.result()
        assert runtime.detached == (), "innocent work was left behind in its own clean-up"
    assert result.candidates[0].status == "cancelled"
    assert result.elapsed == pytest.approx(1.2), "the work share is 80 % of the grace"


async def test_who_needs_some_steps_to_unwind_when_its_clean_up_is_cut_is_not_left_behind(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> int:
        try:
            with ctx.cleanup():
                await trio.sleep(9)
        finally:
            for _ in range(3):  # as each nursery or further clean-up around it needs one
                await trio.lowlevel.cancel_shielded_checkpoint()
        return 1

    job = BestOfN(generate=generate, score=_by_output, n=1, timeout=1)
    async with open_runtime(grace=0.25) as runtime:
        result = await runtime.run(job, "q")
        assert runtime.detached == (), "it ends as soon as it gets the loop"
    assert result.candidates[0].status == "timed_out"
    assert result.elapsed == pytest.approx(1.2)


@pytest.mark.parametrize("place", ["generate", "select"])
async def test_a_task_that_waits_for_a_nested_run_holds_no_thread_and_lends_none(
    place: str,
) -> None:
    # On the real clock, since it is about threads.
    at_once: list[int] = []
    working: list[None] = []

    def leaf(request: Any, ctx: Any) -> int:
        working.append(None)
        at_once.append(len(working))
        time.sleep(0.02)
        working.pop()
        return 0

    async def nested(*_: Any) -> int:
        inner = BestOfN(generate=leaf, score=_by_output, n=3, max_concurrency=3)
        return (await best_of_n(inner, "")).output

    async def plain(request: Any, ctx: Any) -> int:
        return ctx.index

    parts: dict[str, Any] = {"generate": plain, "score": _by_output, place: nested}
    async with open_runtime(threads=1) as runtime:
        assert (await runtime.run(BestOfN(n=1, timeout=5, **parts), "q")).stop_reason == "completed"
    assert at_once == [1] * 3, "the runtime has one thread"


async def test_a_command_that_ignores_sigterm_does_not_use_up_the_work_share() -> None:
    # On the real clock, since it is a process.
    stubborn = command(["sh", "-c", "trap '' TERM; while :; do sleep 60; done"])
    job = BestOfN(generate=stubborn, score=_by_output, n=1, timeout=0.1)
    async with open_runtime(grace=2.0) as runtime:
        result = await runtime.run(job, "q")
    assert result.elapsed < 0.1 + 1.4, "SIGKILL is due after 0.8 s, the work share ends after 1.6 s"


async def test_a_thread_that_ends_as_it_is_given_up_still_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between its end and the waking of who waits for it a run may give up on it."""
    late: list[Any] = []
    threads = Threads(1)
    call = ThreadCall(threads, "a call", late.append)

    def sync_work() -> str:
        return "in time"

    release = call.release_on_behalf_of

    def released_and_given_up(borrower: object) -> None:
        release(borrower)
        call.abandon()

    monkeypatch.setattr(call, "release_on_behalf_of", released_and_given_up)
    value = await call.run(sync_work, (), contextvars.copy_context(), lambda: True)
    assert value == "in time", "the value of a thread that had ended was thrown away"
    assert not threads.abandoned, "a thread that has ended is counted as held for ever"
    assert not late, "it reported to two"
