"""`run()` is back by deadline + grace, whatever the callbacks do (clause 2).

The grace is one budget in two shares: work has the first 80 % to unwind, delivery the rest.
Under virtual time but for the blocked loop.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Event, RunResult, Status, open_runtime
from hortator.protocols.deadlines import grace_from
from tests.contract.scenes import (
    GRACE,
    SLACK,
    WORK,
    AsyncRecord,
    Record,
    Stubborn,
    after,
    echo,
    job,
    statuses,
    stubborn_for,
)

LONG = 20.0
"""Seconds that stubborn work takes: far beyond every grace here."""


# -- whatever the callbacks do --------------------------------------------------------------------


async def _stubborn_score(request: Any, candidate: Any, ctx: Any) -> float:
    if candidate.index == 1:
        await stubborn_for(LONG)
    return candidate.output


async def _stubborn_cleanup(request: Any, ctx: Any) -> Any:
    try:
        await trio.sleep(LONG if ctx.index == 1 else 0)
    finally:
        if ctx.index == 1:
            await stubborn_for(LONG)
    return ctx.index


async def _stubborn_observer(event: Event) -> None:
    await stubborn_for(LONG)


async def _hung_observer(event: Event) -> None:
    await trio.sleep_forever()


HOLDERS: dict[str, dict[str, Any]] = {
    "generator": {"generate": Stubborn(LONG, 1)},
    "scorer": {"score": _stubborn_score},
    "clean-up": {"generate": _stubborn_cleanup},
    "all": {"generate": Stubborn(LONG, 0, 1, 2, 3)},
}


@pytest.mark.parametrize("holder", HOLDERS)
async def test_stubborn_callbacks_do_not_hold_the_run(
    holder: str, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(timeout=1, **HOLDERS[holder]), "q")
    assert 1 <= result.elapsed <= 1 + GRACE, f"a stubborn {holder} held the run"
    assert result.candidates[1].detached


@pytest.mark.parametrize("observer", [_stubborn_observer, _hung_observer])
async def test_observers_that_do_not_return_do_not_hold_the_run(
    observer: Any, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=after(9), timeout=1), "q", observers=[observer])
    assert result.elapsed <= 1 + GRACE, "an observer held the run"
    assert result.telemetry.cut == 1, "a call that was cut is counted"


async def test_stubborn_work_and_a_hung_observer_have_one_grace_between_them(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=Stubborn(LONG, 1), timeout=1), "q", observers=[_hung_observer]
        )
    assert result.elapsed <= 1 + GRACE, "two graces were given"


async def test_a_stop_starts_the_grace_of_a_run_without_a_deadline(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=Stubborn(LONG, 0, 1)), "q")
        await trio.sleep(3)
        handle.cancel()
        result = await handle.result()
    assert result.elapsed == pytest.approx(3 + WORK)


async def test_a_blocked_loop_is_the_exception_and_blames_nobody() -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.02)
        if ctx.index == 0:
            time.sleep(0.5)  # over the deadline and the whole grace
        else:
            await trio.sleep(9)
        return ctx.index

    async with open_runtime(grace=0.1) as runtime:
        result = await runtime.run(job(generate=generate, timeout=0.1), "q")
        assert runtime.detached == (), "who had no chance to unwind was detached"
    assert statuses(result) == ["timed_out"] * 4
    assert 0.5 <= result.elapsed <= 0.5 + SLACK


# -- the two shares -------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.5, 0.79])
async def test_work_that_unwinds_inside_its_share_ends_truly(
    share: float, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=Stubborn(1 + share * GRACE, 1), timeout=1), "q")
        assert runtime.detached == ()
    assert statuses(result) == ["eligible", "timed_out", "eligible", "eligible"]
    assert result.elapsed == pytest.approx(1 + share * GRACE)


@pytest.mark.parametrize("share", [0.81, 1.0])
async def test_work_beyond_its_share_is_detached(share: float, autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=Stubborn(1 + share * GRACE, 1), timeout=1), "q")
    assert statuses(result) == ["eligible", "generating (detached)", "eligible", "eligible"]
    assert result.elapsed == pytest.approx(1 + WORK)


async def test_the_terminal_event_is_made_when_the_work_share_is_over(
    autojump_clock: MockClock,
) -> None:
    record = Record()
    async with open_runtime() as runtime:
        began = trio.current_time()
        await runtime.run(job(generate=Stubborn(LONG, 1), timeout=1), "q", observers=[record])
    assert record.terminal.time == pytest.approx(began + 1 + WORK)
    assert record.terminal.detached == (1,)
    assert record.terminal.statuses == {Status.ELIGIBLE: 3, Status.GENERATING: 1}


@pytest.mark.parametrize(("seconds", "cut"), [(0.04, 0), (0.06, 1)])
async def test_delivery_has_what_the_work_left_of_the_grace(
    seconds: float, cut: int, autojump_clock: MockClock
) -> None:
    told: list[Event] = []

    async def observe(event: Event) -> None:
        if event.terminal:
            await trio.sleep(seconds)
            told.append(event)

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=Stubborn(LONG, 1), timeout=1), "q", observers=[observe]
        )
    # Work took its 0.20 s; 0.05 s are left.
    assert (len(told), result.telemetry.cut) == (1 - cut, cut)
    assert result.elapsed == pytest.approx(1 + WORK + min(seconds, GRACE - WORK))


async def test_delivery_after_a_run_without_a_deadline_is_cut_too(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[_hung_observer])
    assert result.stop_reason == "completed"
    assert GRACE - WORK <= result.elapsed <= GRACE
    assert result.telemetry.cut == 1


# -- how long it is -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime_grace", "job_grace", "seconds"),
    [(0.25, None, 0.25), (0.25, 0.1, 0.1), (0.25, 10.0, 0.25), (0.5, None, 0.5), (0.25, 0, 0)],
)
async def test_a_job_may_lower_the_grace_and_not_raise_it(
    runtime_grace: float, job_grace: float | None, seconds: float, autojump_clock: MockClock
) -> None:
    async with open_runtime(grace=runtime_grace) as runtime:
        result = await runtime.run(
            job(generate=Stubborn(LONG, 1), timeout=1, grace=job_grace),
            "q",
            observers=[_hung_observer],
        )
    assert result.elapsed == pytest.approx(1 + seconds)


async def test_the_grace_grows_with_what_is_in_flight(autojump_clock: MockClock) -> None:
    many = 3000
    stuck = Stubborn(2, *range(many))
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=stuck, n=many, max_concurrency=many, timeout=1), "")
    assert result.elapsed == pytest.approx(1 + 0.8 * 100e-6 * many)


async def test_a_lowered_grace_holds_for_any_number_in_flight(autojump_clock: MockClock) -> None:
    many = 700
    stuck = Stubborn(2, *range(many))
    parts: dict[str, Any] = {"n": many, "max_concurrency": many, "timeout": 1, "grace": 0.05}
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=stuck, **parts), "")
    assert result.elapsed <= 1.05, "the job allowed no more than 0.05 s past its deadline"


def test_grace_is_a_quarter_of_a_second_or_100_us_for_each_in_flight() -> None:
    assert grace_from(10, 0.25, float("inf"), 2500).until == 10.25
    assert grace_from(10, 0.25, float("inf"), 5000).until == 10.5
    assert grace_from(10, 0.25, 0.1, 5000).until == 10.1, "never past an outer deadline"


# -- a nested run ---------------------------------------------------------------------------------


async def test_a_nested_run_returns_before_its_parent_gives_up(autojump_clock: MockClock) -> None:
    back: list[float] = []
    inner: list[RunResult[Any]] = []
    record = Record()

    async with open_runtime() as runtime:

        async def generate(request: Any, ctx: Any) -> Any:
            try:
                async with runtime.start(job(generate=Stubborn(LONG, 1), n=2), "inner") as handle:
                    await trio.sleep_forever()
            finally:
                back.append(trio.current_time())
                inner.append(await _at_once(handle))

        began = trio.current_time()
        outer = runtime.start(job(generate=generate, n=1), "outer", observers=[record])
        await trio.sleep(1)
        outer.cancel()
        result = await outer.result()
        detached = runtime.detached

    assert statuses(result) == ["cancelled"], "an innocent was blamed for what it waited for"
    assert [(d.run_id, d.candidate) for d in detached] == [(inner[0].run_id, 1)]
    assert back == [pytest.approx(began + 1 + 0.8 * WORK / 2)], "half of what the parent had left"
    assert record.terminal.detached == ()


async def test_a_nested_run_that_is_ending_already_returns_in_time_too(
    autojump_clock: MockClock,
) -> None:
    # Its own deadline comes a moment before its parent is stopped, and both its work and its
    # observer hold out. What its parent would have, were it stopped now, is the work share.
    back: list[float] = []

    async with open_runtime() as runtime:

        async def generate(request: Any, ctx: Any) -> Any:
            nested = job(generate=Stubborn(LONG, 0), n=1, timeout=0.99)
            try:
                return await runtime.run(nested, "", observers=[_hung_observer])
            finally:
                back.append(trio.current_time())

        outer = runtime.start(job(generate=generate, n=1), "")
        await trio.sleep(1)
        outer.cancel()
        result = await outer.result()
    assert statuses(result) == ["cancelled"], "an innocent was blamed for what it waited for"
    assert back == [pytest.approx(0.99 + WORK / 2)]


async def test_a_nested_run_that_is_stopped_late_has_half_of_what_is_left(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:

        async def generate(request: Any, ctx: Any) -> Any:
            async with runtime.start(job(generate=Stubborn(LONG, 0), n=1), ""):
                await stubborn_for(1 + 0.75 * WORK)  # goes on well into its parent's grace

        outer = runtime.start(job(generate=generate, n=1), "")
        await trio.sleep(1)
        outer.cancel()
        result = await outer.result()
    assert statuses(result) == ["cancelled"], "an innocent was blamed for what it waited for"
    assert result.elapsed <= 1 + 0.75 * WORK + 0.25 * WORK / 2


async def _at_once(handle: Any) -> RunResult[Any]:
    with trio.CancelScope(shield=True):  # it is over: this can't take time
        return await handle.result()


async def test_a_run_nested_in_a_nested_run_has_half_of_that(autojump_clock: MockClock) -> None:
    names: list[str] = []

    async with open_runtime() as runtime:

        async def innermost(request: Any, ctx: Any) -> Any:
            names.append(ctx.run_id)
            await stubborn_for(LONG)

        async def middle(request: Any, ctx: Any) -> Any:
            return await runtime.run(job(generate=innermost, n=1), "")

        async def outer(request: Any, ctx: Any) -> Any:
            return await runtime.run(job(generate=middle, n=1), "")

        result = await runtime.run(job(generate=outer, n=1, timeout=1), "")
        blamed = [d.run_id for d in runtime.detached]
    assert blamed == names, "only the innermost run has a candidate that does not end"
    assert result.elapsed < 1 + WORK / 2


# -- cooperative work costs none of it ------------------------------------------------------------


@pytest.mark.parametrize("in_flight", [1, 100])
async def test_cooperative_work_costs_no_grace(in_flight: int, autojump_clock: MockClock) -> None:
    record = AsyncRecord()
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=after(9), n=in_flight, max_concurrency=in_flight, timeout=1),
            "q",
            observers=[record],
        )
        assert runtime.detached == ()
    assert result.elapsed == pytest.approx(1, abs=1e-9)
    assert record.terminal.statuses == {Status.TIMED_OUT: in_flight}


async def test_clean_up_without_awaits_costs_no_grace(autojump_clock: MockClock) -> None:
    cleaned: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            return await echo(request, ctx) if ctx.index else await trio.sleep(9)
        finally:
            cleaned.append(ctx.index)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, timeout=1), "q")
    assert sorted(cleaned) == [0, 1, 2, 3]
    assert result.elapsed == pytest.approx(1, abs=1e-9)
