"""What comes out of a callback, and what that makes of its candidate (clauses 6 and 8).

Under virtual time. KeyboardInterrupt and SystemExit have `test_interrupts.py` to themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import CandidateError, open_runtime
from hortator.protocols.candidate import Effect
from hortator.protocols.errors import StrayCancelled
from tests.contract.scenes import GRACE, WORK, Stubborn, after, echo, job, statuses, stubborn_for


async def stray() -> trio.Cancelled:
    """A Cancelled whose scope is gone."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            return cancelled
    raise AssertionError("not cancelled")


def leaves(error: BaseException | None) -> Iterator[BaseException]:
    """All errors in a tree of groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    elif error is not None:
        yield error


# -- a status never lies --------------------------------------------------------------------------


async def test_cancelled_means_that_it_has_stopped(autojump_clock: MockClock) -> None:
    stopped: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            # Slow ways out: inside the work share, and for candidate 3 beyond the whole grace.
            await stubborn_for(9 if ctx.index == 3 else ctx.index * WORK / 3)
            stopped.append(ctx.index)

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate), "q")
        await trio.sleep(1)
        handle.cancel()
        result = await handle.result()
        when_returned = list(stopped)
    said = [c.index for c in result.candidates if c.status == "cancelled"]
    assert said == when_returned == [0, 1, 2]
    assert statuses(result)[3] == "generating (detached)"


async def test_who_comes_back_after_being_told_to_stop_keeps_its_output(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        except trio.Cancelled:
            return f"half of {ctx.index}"

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, n=1), "q")
        await trio.sleep(1)
        handle.cancel()
        cancelled = await handle.result()
        late = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    for result, status in ((cancelled, "cancelled"), (late, "timed_out")):
        (candidate,) = result.candidates
        assert (candidate.status, candidate.output) == (status, "half of 0")
        assert candidate.score is None, "it was scored after the stop"
        assert result.selected is None


async def test_effects_are_recorded_as_what_is_known_of_them(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        sent, refused, cut, never = (
            ctx.effect(name, "write") for name in ("sent", "refused", "cut", "never")
        )
        async with sent:
            await trio.sleep(0.1)
        with pytest.raises(OSError, match="no route"):
            async with refused:
                raise OSError("no route")
        async with cut:
            await trio.sleep(9)
        async with never:
            pass

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=generate, n=1, timeout=1, side_effects="allow"), "q"
        )
    assert result.candidates[0].effects == (
        Effect("sent", "write", "done"),
        Effect("refused", "write", "failed"),
        Effect("cut", "write", "unknown"),
        Effect("never", "write", "not_started"),
    )


async def test_an_effect_of_detached_work_stays_unknown(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        async with ctx.effect("send", "write"):
            await stubborn_for(9)

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=generate, n=1, timeout=1, side_effects="allow"), "q"
        )
        before = result.candidates[0].effects
        await runtime.drain()
    assert before == result.candidates[0].effects == (Effect("send", "write", "unknown"),)


async def test_an_effect_that_is_entered_after_the_stop_is_not_started(
    autojump_clock: MockClock,
) -> None:
    performed: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            async with ctx.effect("undo", "write"):
                performed.append(ctx.index)

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=generate, n=1, timeout=1, side_effects="allow"), "q"
        )
    assert performed == []
    assert result.candidates[0].effects == (Effect("undo", "write", "not_started"),)


# -- ordinary errors ------------------------------------------------------------------------------


class Teapot(BaseException):
    """Neither an Exception nor one of those that Python knows."""


@pytest.mark.parametrize(
    "kind", [ValueError, trio.TooSlowError, asyncio.CancelledError, GeneratorExit, Teapot]
)
@pytest.mark.parametrize("where", ["generate", "score"])
async def test_any_other_error_is_the_candidates_failure_and_kept_as_itself(
    kind: type[BaseException], where: str, autojump_clock: MockClock
) -> None:
    mine = kind("mine")

    async def fails(*args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if args[-1].index == 1:
            raise mine
        return args[-1].index

    async with open_runtime() as runtime:
        result = await runtime.run(job(**{where: fails}), "q")
    failed = {"generate": "generation_failed", "score": "scoring_failed"}[where]
    assert statuses(result) == ["eligible", failed, "eligible", "eligible"]
    assert result.candidates[1].error is mine, "wrapped or replaced"
    assert (result.output, result.stop_reason) == (3, "completed")


async def test_an_error_in_clean_up_keeps_the_one_before_it_as_its_context(
    autojump_clock: MockClock,
) -> None:
    first, second = ValueError("first"), OSError("in clean-up")

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            raise first
        finally:
            raise second

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1), "q")
    error = result.candidates[0].error
    assert error is second
    assert error.__context__ is first, "one of the two errors is lost"


async def test_an_error_in_clean_up_after_a_stop_is_kept_and_the_status_is_the_stops(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            raise OSError("in clean-up")

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    (candidate,) = result.candidates
    assert candidate.status == "timed_out"
    assert isinstance(candidate.error, OSError)


# -- Cancelled ------------------------------------------------------------------------------------


async def test_our_cancellation_is_no_failure(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=after(9), timeout=1), "q")
    assert [c.error for c in result.candidates] == [None] * 4, "a Cancelled was kept as an error"


@pytest.mark.parametrize("where", ["generate", "score"])
async def test_a_stray_cancelled_fails_its_candidate_alone(
    where: str, autojump_clock: MockClock
) -> None:
    async def strays(*args: Any) -> Any:
        if args[-1].index == 1:
            raise await stray()
        return args[-1].index

    async with open_runtime() as runtime:
        result = await runtime.run(job(**{where: strays}), "q")
    failed = {"generate": "generation_failed", "score": "scoring_failed"}[where]
    assert statuses(result) == ["eligible", failed, "eligible", "eligible"]
    error = result.candidates[1].error
    assert isinstance(error, StrayCancelled)
    assert isinstance(error, CandidateError)


async def test_a_stray_cancelled_of_an_observer_is_its_failure(autojump_clock: MockClock) -> None:
    async def observe(event: Any) -> None:
        if event.terminal:
            raise await stray()

    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[observe])
    assert result.telemetry.observer_errors == 1
    assert statuses(result) == ["eligible"] * 4


async def test_a_cancel_of_the_callbacks_own_nursery_stays_inside(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.cancel_scope.cancel()
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate), "q")
    assert statuses(result) == ["eligible"] * 4


# -- groups ---------------------------------------------------------------------------------------


async def test_a_group_is_kept_as_itself(autojump_clock: MockClock) -> None:
    async def fail(error: Exception) -> None:
        raise error

    async def generate(request: Any, ctx: Any) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, ValueError("a"))
            nursery.start_soon(fail, OSError("b"))

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1), "q")
    (candidate,) = result.candidates
    assert candidate.status == "generation_failed"
    assert isinstance(candidate.error, ExceptionGroup)
    assert {str(error) for error in leaves(candidate.error)} == {"a", "b"}


async def test_of_a_group_the_cancelled_is_dropped_if_we_are_cancelled(
    autojump_clock: MockClock,
) -> None:
    async def complain() -> None:
        try:
            await trio.sleep(9)
        finally:
            raise OSError("in clean-up")

    async def generate(request: Any, ctx: Any) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(complain)
            nursery.start_soon(trio.sleep_forever)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    (candidate,) = result.candidates
    assert candidate.status == "timed_out"
    assert [type(error) for error in leaves(candidate.error)] == [OSError]
    assert result.elapsed == pytest.approx(1)


async def test_a_group_of_nothing_but_our_cancellation_is_no_failure(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("mine", [cancelled]) from None

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert (statuses(result), result.candidates[0].error) == (["timed_out"], None)


async def test_a_stray_cancelled_in_a_group_is_not_dropped(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        raise BaseExceptionGroup("mine", [await stray(), OSError("beside it")])

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1), "q")
    (candidate,) = result.candidates
    kinds = {type(error) for error in leaves(candidate.error)}
    assert candidate.status == "generation_failed"
    assert OSError in kinds
    assert trio.Cancelled not in kinds, "a Cancelled was stored"
    assert StrayCancelled in kinds, "nobody was cancelled, so it is dropped only if we are"


async def test_a_group_of_stray_cancelleds_is_a_failure(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        raise BaseExceptionGroup("mine", [await stray(), await stray()])

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1), "q")
    assert statuses(result) == ["generation_failed"]
    assert isinstance(result.candidates[0].error, StrayCancelled)


async def test_cancelling_goes_on_after_a_callback_that_hid_one(autojump_clock: MockClock) -> None:
    # It swallows the first Cancelled and awaits again: it is cancelled again, not waited for.
    async def generate(request: Any, ctx: Any) -> Any:
        for _ in range(3):
            try:
                await trio.sleep(9)
            except trio.Cancelled:
                continue
        return await echo(request, ctx)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert statuses(result) == ["timed_out"]
    assert result.elapsed == pytest.approx(1)


async def test_detached_work_is_never_called_cancelled_even_if_it_ends_before_the_result(
    autojump_clock: MockClock,
) -> None:
    stuck = Stubborn(1 + (WORK + GRACE) / 2, 1)  # ends while the last events are delivered

    async def observe(event: Any) -> None:
        await trio.sleep(GRACE if event.terminal else 0)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=stuck, timeout=1), "q", observers=[observe])
        assert 1 in stuck.ended, "this test is about work that ends in the delivery share"
    assert statuses(result)[1] == "generating (detached)", "the terminal event has said so"
