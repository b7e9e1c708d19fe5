"""Work that outlives the work share of the grace: who it is, what becomes of it (clause 5).

Under virtual time, with work behind a shield that ends by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Budget, Event, LeaseExceeded, RunEnded, Usage, open_runtime
from hortator.protocols.events import LateEnd
from tests.contract.scenes import (
    WORK,
    Record,
    Stubborn,
    after,
    echo,
    job,
    statuses,
    stubborn_for,
)

LIMITED: dict[str, Any] = {"budget": Budget(total_tokens=400), "estimate": Usage(total_tokens=100)}
"""A budget that fits four candidates exactly."""

OBLIVIOUS = Stubborn(5, 1)


async def stubborn_score(request: Any, candidate: Any, ctx: Any) -> float:
    if candidate.index == 1:
        await stubborn_for(5)
    return candidate.output


def then(act: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A generator whose candidate 1 does something, once it is detached."""

    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 1:
            await stubborn_for(5)
            return act(ctx)
        return ctx.index

    return generate


# -- its record in the run ------------------------------------------------------------------------


async def test_it_keeps_the_phase_that_it_is_stuck_in(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        generating = await runtime.run(job(generate=OBLIVIOUS, timeout=1), "q")
        scoring = await runtime.run(job(score=stubborn_score, timeout=1), "q")
        phases = [each.phase for each in runtime.detached]
    assert statuses(generating)[1] == "generating (detached)"
    assert statuses(scoring)[1] == "scoring (detached)"
    assert phases == ["generating", "scoring"]
    assert scoring.candidates[1].output == 1, "what it had generated is lost"
    assert scoring.candidates[1].score is None


async def test_the_best_of_the_others_is_selected(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=OBLIVIOUS, timeout=1), "q")
    assert (result.output, result.stop_reason, result.partial) == (3, "deadline", True)


async def test_its_result_changes_nothing_when_it_comes(autojump_clock: MockClock) -> None:
    stuck = Stubborn(5, 3)  # the one that would have won
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=stuck, timeout=1), "q")
        before = (result.candidates, result.usage, result.telemetry, result.output)
        await runtime.drain()
        assert 3 in stuck.ended
    assert (result.candidates, result.usage, result.telemetry, result.output) == before
    assert result.output == 2


# -- its entry at the runtime ---------------------------------------------------------------------


async def test_its_entry_names_it(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        began = trio.current_time()
        result = await runtime.run(job(generate=stuck_here, timeout=1, **LIMITED), "q")
        (entry,) = runtime.detached
        assert (entry.run_id, entry.candidate) == (result.run_id, 1)
        assert (entry.phase, entry.kind) == ("generating", "task")
        assert entry.since == pytest.approx(began + 1 + WORK)
        assert entry.lease.total_tokens == 100
        assert (entry.ended, entry.late_usage, entry.error) == (False, None, None)
        assert entry.where == f"{__file__}:{STUCK_AT} in stuck_here", (
            "not the innermost line outside trio and this library"
        )


async def stuck_here(request: Any, ctx: Any) -> Any:
    if ctx.index == 1:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)  # here


STUCK_AT = 3 + inspect.getsourcelines(stuck_here)[1]


async def test_its_entry_says_where_it_is_now(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await first_stop()
        await second_stop()

    async def first_stop() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)

    async def second_stop() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, n=1, timeout=1), "q")
        earlier = runtime.detached[0].where
        await trio.sleep(2)
        later = runtime.detached[0].where
        await runtime.drain()
        ended = runtime.detached[0].where
    assert earlier.endswith("first_stop")
    assert later.endswith("second_stop"), "it shows where it was, not where it is"
    assert ended == later, "the last place is forgotten"


async def test_entries_stay_until_they_are_reaped(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        await runtime.run(job(generate=OBLIVIOUS, timeout=1), "q")
        assert runtime.reap() == (), "what is alive can't be reaped"
        await runtime.drain()
        (entry,) = runtime.detached
        assert entry.ended
        assert entry.late_usage is not None
        assert tuple(runtime.reap()) == (entry,)
        assert runtime.detached == ()
        assert runtime.reap() == ()


async def test_drain_returns_what_is_still_alive(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        for seconds in (3, 6):
            await runtime.run(job(generate=Stubborn(seconds, 1), timeout=1), "q")
        one, two = runtime.detached
        began = trio.current_time()
        assert [each.run_id for each in await runtime.drain(0)] == [one.run_id, two.run_id]
        assert trio.current_time() == began
        left = await runtime.drain(2)  # at 4.4: the first ended at 3
        assert [each.run_id for each in left] == [two.run_id]
        assert await runtime.drain() == ()
        assert trio.current_time() == pytest.approx(1 + WORK + 6)


# -- its lease ------------------------------------------------------------------------------------


async def test_its_lease_moves_to_the_runtime_and_the_run_is_frozen(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=OBLIVIOUS, timeout=1, **LIMITED), "q")
        frozen = result.usage
        assert frozen.charged.total_tokens == 300
        assert frozen.outstanding.total_tokens == 100, "reserved, and neither spent nor free"
        assert runtime.usage.outstanding.total_tokens == 100
        assert runtime.usage.charged.total_tokens == 300
        await runtime.drain()
        assert runtime.usage.outstanding == Usage(), "its lease was never settled"
        assert runtime.usage.charged.total_tokens == 400, "the estimate, for want of a report"
        assert result.usage == frozen
        assert runtime.detached[0].lease == Usage()


async def test_its_late_charges_go_to_its_entry(autojump_clock: MockClock) -> None:
    generate = then(lambda ctx: ctx.charge(Usage(total_tokens=70)))
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, timeout=1, **LIMITED), "q")
        await runtime.drain()
        (entry,) = runtime.detached
        assert entry.late_usage is not None
        assert entry.late_usage.total_tokens >= 70
        assert entry.error is None, "a charge within the lease is no error"
        assert runtime.usage.reported.total_tokens == 70
    assert result.usage.reported == Usage()


async def test_a_late_charge_beyond_the_lease_is_recorded_and_raises_in_it(
    autojump_clock: MockClock,
) -> None:
    generate = then(lambda ctx: ctx.charge(Usage(total_tokens=500)))
    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, timeout=1, **LIMITED), "q")
        await runtime.drain()
        (entry,) = runtime.detached
    assert entry.late_usage is not None
    assert entry.late_usage.total_tokens == 500
    assert isinstance(entry.error, LeaseExceeded)


# -- what it does later ---------------------------------------------------------------------------


class Teapot(BaseException):
    """Neither an Exception nor one of those that Python knows."""


@pytest.mark.parametrize("kind", [ValueError, Teapot, KeyboardInterrupt, SystemExit])
async def test_what_it_raises_later_is_raised_nowhere(
    kind: type[BaseException], autojump_clock: MockClock
) -> None:
    mine = kind("late")

    def fail(ctx: Any) -> None:
        raise mine

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=then(fail), timeout=1), "q")
        other = await runtime.run(job(generate=after(9)), "q")  # while it raises
        (entry,) = runtime.detached
    assert (entry.ended, entry.error) == (True, mine)
    assert other.output == 3
    assert result.candidates[1].error is None


async def test_late_ends_are_told_to_the_runtimes_observers_only(
    autojump_clock: MockClock,
) -> None:
    own, everybodys = Record(), Record()
    async with open_runtime(observers=[everybodys]) as runtime:
        result = await runtime.run(job(generate=OBLIVIOUS, timeout=1), "q", observers=[own])
        await runtime.drain()
        (entry,) = runtime.detached
    late = everybodys.events[-1]
    assert isinstance(late, LateEnd)
    assert (late.run_id, late.candidate, late.terminal) == (result.run_id, 1, False)
    assert late.detached == entry
    assert late.detached.ended
    assert own.kinds[-1] == "finished"
    assert everybodys.kinds[:-1] == own.kinds, "all but the late end is told to both"


async def test_what_it_tells_later_reaches_the_runtimes_observers_only(
    autojump_clock: MockClock,
) -> None:
    own, everybodys = Record(), Record()
    generate = then(lambda ctx: ctx.emit("still here", after="the end"))
    async with open_runtime(observers=[everybodys]) as runtime:
        await runtime.run(job(generate=generate, timeout=1), "q", observers=[own])
        await runtime.drain()
    assert own.kinds[-1] == "finished", "an event after the terminal one"
    after_the_end = everybodys.kinds[everybodys.kinds.index("finished") + 1 :]
    assert after_the_end == ["still here", "late_end"]


async def test_what_it_publishes_later_changes_no_record(autojump_clock: MockClock) -> None:
    generate = then(lambda ctx: ctx.publish("too late", 99))
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, timeout=1), "q")
        await runtime.drain()
    assert (result.candidates[1].output, result.output) == (None, 3)


async def test_it_is_told_that_it_should_stop(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    def look(ctx: Any) -> None:
        seen.append((ctx.stopping, ctx.remaining().seconds))

    async with open_runtime() as runtime:
        await runtime.run(job(generate=then(look), timeout=1), "q")
        await runtime.drain()
    assert seen == [(True, 0.0)]


async def test_it_can_reserve_nothing_any_more(autojump_clock: MockClock) -> None:
    errors: list[BaseException] = []

    async def generate(request: Any, ctx: Any) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
            try:
                await ctx.reserve(Usage(total_tokens=1))
            except RunEnded as error:
                errors.append(error)

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, timeout=1, **LIMITED), "q")
        await runtime.drain()
        assert runtime.usage.outstanding == Usage()
    assert len(errors) == 4


async def test_what_it_published_before_stands_as_its_partial_output(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.publish(f"draft {ctx.index}", ctx.index)
        await stubborn_for(5)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, timeout=1), "q")
    assert (result.output, result.selected and result.selected.partial) == ("draft 3", True)
    assert statuses(result) == ["generating (detached)"] * 4


# -- observers ------------------------------------------------------------------------------------


async def test_an_observer_that_does_not_end_is_named_too(autojump_clock: MockClock) -> None:
    async def observe(event: Event) -> None:
        if event.terminal:
            await stubborn_for(5)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=echo), "q", observers=[observe])
        (entry,) = runtime.detached
        assert (entry.run_id, entry.candidate) == (result.run_id, None)
        assert (entry.phase, entry.kind, entry.ended) == ("observing", "task", False)
        assert entry.where.startswith(stubborn_for.__code__.co_filename)
        assert await runtime.drain() == ()
        assert runtime.reap()[0].ended
