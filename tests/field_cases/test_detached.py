"""B04, B11: work that does not end when it is told to is detached, named, and settled late.

Real clock where work swallows its cancellation for ever or sits in a thread. All of it ends when
the test lets it go, and by itself after a few seconds if a test fails to. Limits on the real
clock have a slack for a loaded machine; the lower ones are exact.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Event, Usage, open_runtime
from tests.field_cases.scenes import (
    DOORS,
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
WORK = 0.8 * GRACE

# B04: a cancellation that is swallowed


async def swallows_everything(hold: Hold) -> None:
    while hold.on:
        try:
            await trio.sleep(0.01)
        except BaseException:
            pass


async def swallows_cancelled(hold: Hold) -> None:
    while hold.on:
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            pass


async def goes_on_in_finally(hold: Hold) -> None:
    try:
        await trio.sleep_forever()
    finally:
        await swallows_everything(hold)


async def swallows_in_a_child(hold: Hold) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(swallows_everything, hold)


async def sits_in_a_shield(hold: Hold) -> None:
    with trio.CancelScope(shield=True):
        while hold.on:
            await trio.sleep(0.01)


STUBBORN = [
    swallows_everything,
    swallows_cancelled,
    goes_on_in_finally,
    swallows_in_a_child,
    sits_in_a_shield,
]


def stubborn_job(phase: str, stubborn: Callable[[Hold], Awaitable[None]], hold: Hold) -> Any:
    """Of three candidates the middle one does not end; the first one is the better of the rest."""

    async def generate(request: str, ctx: Any) -> str:
        if phase == "generating" and ctx.index == 1:
            await stubborn(hold)
        return f"answer {ctx.index}"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        if phase == "scoring" and ctx.index == 1:
            await stubborn(hold)
        return [2.0, 9.0, 1.0][candidate.index]

    return job_of(generate, score, estimate=Usage(total_tokens=10))


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize(
    ("door", "stubborn"),
    [
        *[("deadline", each) for each in STUBBORN],
        ("handle.cancel", swallows_everything),
        ("handle.cancel", sits_in_a_shield),
        ("the caller's scope", swallows_everything),
        ("the caller's scope", sits_in_a_shield),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
async def test_B04_who_swallows_his_cancellation_does_not_hold_the_run_up(
    door: str, stubborn: Callable[[Hold], Awaitable[None]], phase: str, hold: Hold
) -> None:
    async with stopped(
        door, stubborn_job(phase, stubborn, hold), at=0.25, grace=GRACE, free=hold.let_go
    ) as run:
        assert WORK <= run.late <= GRACE + SLACK
        run.record.check()
        [work] = run.runtime.detached
        assert (work.candidate, work.phase, work.kind, work.ended) == (1, phase, "task", False)
        assert "test_detached.py:" in work.where, f"it is not named: {work.where}"
        assert work.lease.total_tokens == 10
        if run.result is not None:
            assert run.result.output == "answer 0", "the best of the good ones was not returned"
            assert statuses(run.result) == ["eligible", phase, "eligible"]
            stuck = run.result.candidates[1]
            assert (stuck.detached, stuck.eligible, stuck.score) == (True, False, None)
            assert run.result.partial
            assert run.result.usage.outstanding.total_tokens == 10
            check_account(run.result, 3)
        events = len(run.record.events)

        hold.let_go()
        assert await run.runtime.drain(2) == ()
        [work] = run.runtime.reap()
        assert work.ended
        assert run.runtime.detached == ()
        assert run.runtime.usage.outstanding == Usage(), "its lease was never settled"
        assert run.runtime.usage.charged.total_tokens == 30
        assert len(run.record.events) == events, "the run was told of it after its return"
        if run.result is not None:
            assert statuses(run.result) == ["eligible", phase, "eligible"]


@pytest.mark.parametrize("door", REAL_DOORS)
async def test_B04_every_door_is_as_hard(door: str, hold: Hold) -> None:
    job = stubborn_job("generating", swallows_everything, hold)
    async with stopped(door, job, at=0.25, grace=GRACE, free=hold.let_go) as run:
        assert run.late <= GRACE + SLACK
        assert [work.candidate for work in run.runtime.detached] == [1]


@pytest.mark.parametrize("door", DOORS)
async def test_B04_an_answer_after_the_cancel_is_no_success(
    door: str, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        if ctx.index:
            try:
                await trio.sleep_forever()
            except BaseException:
                pass  # and goes on as if nothing had happened
        return f"answer {ctx.index}"

    async with stopped(door, job_of(generate), at=1) as run:
        assert run.late == 0
        status = "timed_out" if "deadline" in door else "cancelled"
        assert run.record.finished.statuses == {"eligible": 1, status: 2}
        if run.result is not None:
            assert run.result.output == "answer 0"
            assert [c.output for c in run.result.candidates[1:]] == ["answer 1", "answer 2"]


async def test_B04_a_slot_that_is_lost_is_not_reused_and_the_last_one_ends_the_run(
    hold: Hold,
) -> None:
    started: list[int] = []

    async def generate(request: str, ctx: Any) -> str:
        started.append(ctx.index)
        if ctx.index:
            await swallows_everything(hold)
        return "good"

    job = job_of(generate, n=9, max_concurrency=2, candidate_timeout=0.25, grace=0.1)
    async with open_runtime() as runtime:
        result = await runtime.run(job, "q")
        hold.let_go()
    assert started == [0, 1, 2], "a lost slot was used again"
    assert statuses(result) == ["eligible", "generating", "generating"] + ["skipped"] * 6
    assert (result.output, result.stop_reason, result.partial) == ("good", "slots_lost", True)
    check_account(result, 9)


# B11: nothing is called ended before it has ended; its late end is told once, and changes nothing


def in_thread(hold: Hold, ctx: Any, end: Callable[[Any], Any]) -> Any:
    hold.block()
    return end(ctx)


async def in_task(hold: Hold, ctx: Any, end: Callable[[Any], Any]) -> Any:
    await swallows_everything(hold)
    return end(ctx)


def returns(ctx: Any) -> float:
    return 9.0


def raises(ctx: Any) -> float:
    raise OSError("too late")


def charges(ctx: Any) -> float:
    ctx.charge(Usage(total_tokens=77))
    return 9.0


def tells(ctx: Any) -> float:
    ctx.publish("late", 9.0)
    ctx.emit("late", text="late")
    return 9.0


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize("work", [in_thread, in_task], ids=lambda each: each.__name__)
@pytest.mark.parametrize("end", [returns, raises, charges, tells], ids=lambda end: end.__name__)
async def test_B11_a_late_end_is_told_once_to_the_runtimes_observers_and_changes_nothing(
    end: Callable[[Any], Any], work: Callable[..., Any], phase: str, hold: Hold
) -> None:
    def sync_generate(request: str, ctx: Any) -> Any:
        return in_thread(hold, ctx, end)

    async def async_generate(request: str, ctx: Any) -> Any:
        return await in_task(hold, ctx, end)

    def sync_score(request: str, candidate: Any, ctx: Any) -> Any:
        return in_thread(hold, ctx, end)

    async def async_score(request: str, candidate: Any, ctx: Any) -> Any:
        return await in_task(hold, ctx, end)

    async def quick(request: str, ctx: Any) -> str:
        return "quick"

    threaded = work is in_thread
    if phase == "generating":
        job = job_of(sync_generate if threaded else async_generate, index_score, n=1)
    else:
        job = job_of(quick, sync_score if threaded else async_score, n=1)
    told: list[Event] = []
    watched = {"grace": GRACE, "observers": [told.append]}
    async with stopped("deadline", job, at=0.25, free=hold.let_go, **watched) as run:
        assert run.late <= GRACE + SLACK
        [stuck] = run.result.candidates
        assert (stuck.status, stuck.detached, stuck.error) == (phase, True, None)
        assert run.result.stop_reason == "deadline"
        [ended] = run.record.of("ended")
        assert (ended.status, ended.detached) == (phase, True), "it was said to have ended"
        [detached] = run.runtime.detached
        assert (detached.run_id, detached.candidate) == (run.result.run_id, 0)
        assert detached.kind == ("thread" if threaded else "task")
        assert not [event for event in told if event.kind == "late_end"]
        before, seen = run.result.to_json(), len(run.record.events)

        hold.let_go()
        assert await run.runtime.drain(2) == ()
        await trio.testing.wait_all_tasks_blocked()
        [late] = [event for event in told if event.kind == "late_end"]
        assert late.detached.ended
        assert (late.run_id, late.candidate) == (run.result.run_id, 0)
        assert told[-1] is late
        assert isinstance(late.detached.error, OSError) == (end is raises)
        assert late.detached.late_usage.total_tokens == (77 if end is charges else 0)
        assert run.runtime.usage.charged.total_tokens == (77 if end is charges else 0)
        assert run.result.to_json() == before, "a late end changed the result"
        assert len(run.record.events) == seen, "the run's observer was called after its return"
