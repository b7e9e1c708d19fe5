"""Cancelling a run from each of its doors (clauses 4, 4a and 11).

Under virtual time. That cooperative work takes none of it is part of what is asserted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import Event, RunHandle, Status, Usage, open_runtime
from hortator.protocols.errors import RuntimeClosed
from tests.contract.scenes import (
    GRACE,
    WORK,
    AsyncRecord,
    Record,
    Stubborn,
    after,
    job,
    statuses,
    stubborn_for,
)

# -- the caller's scope ---------------------------------------------------------------------------


async def test_cancelling_the_caller_raises_cancelled_out_of_run(
    autojump_clock: MockClock,
) -> None:
    unwound: list[int] = []
    record, slow_record = Record(), AsyncRecord()
    seen_when_raised: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            unwound.append(ctx.index)

    async def caller(scope: trio.CancelScope) -> None:
        with scope:
            try:
                await runtime.run(job(generate=generate), "q", observers=[record, slow_record])
            except trio.Cancelled:
                seen_when_raised.append((sorted(unwound), len(record.kinds), slow_record.kinds[-1]))
                raise

    scope = trio.CancelScope()
    async with open_runtime() as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(caller, scope)
        await trio.sleep(1)
        cancelled_at = trio.current_time()
        scope.cancel()
        await wait_all_tasks_blocked()
        assert scope.cancelled_caught, "run() returned a result instead of raising Cancelled"
        assert trio.current_time() == cancelled_at, "cooperative work took time to be cancelled"
    # four started, leased and ended, and the terminal event
    assert seen_when_raised == [([0, 1, 2, 3], 13, "finished")]
    assert record.terminal.stop_reason == "cancelled"
    assert record.terminal.statuses == {Status.CANCELLED: 4}


async def test_stubborn_work_does_not_hold_a_cancelled_caller(autojump_clock: MockClock) -> None:
    record = AsyncRecord()
    async with open_runtime() as runtime:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, 1, scope)
                await runtime.run(job(generate=Stubborn(9, 1, otherwise=9)), "", observers=[record])
        left_at = trio.current_time()
        assert scope.cancelled_caught
        assert [d.candidate for d in runtime.detached] == [1]
    assert left_at == pytest.approx(1 + WORK)
    assert record.terminal.detached == (1,)


async def test_a_hung_observer_does_not_hold_a_cancelled_caller(autojump_clock: MockClock) -> None:
    async def observe(event: Event) -> None:
        await trio.sleep_forever()

    async with open_runtime() as runtime:
        with trio.move_on_after(0) as scope:
            scope.deadline = trio.current_time() + 1e9  # far: so that no outer deadline plays in
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, 1, scope)
                await runtime.run(job(generate=after(9)), "q", observers=[observe])
        assert trio.current_time() <= 1 + GRACE


async def test_who_wants_the_best_so_far_of_his_own_cancellation_uses_start(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 9)), "q")
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_after, 1, scope)
                await handle.result()
        assert not handle.ended, "cancelling a waiter cancelled the run"
        handle.cancel()
        result = await handle.result()
    assert (result.output, result.stop_reason, result.partial) == (0, "cancelled", True)


async def _cancel_after(seconds: float, scope: trio.CancelScope) -> None:
    await trio.sleep(seconds)
    scope.cancel()


# -- the scope around the runtime -----------------------------------------------------------------


async def test_cancelling_around_the_runtime_ends_every_run_as_cancel_would(
    autojump_clock: MockClock,
) -> None:
    records = [Record(), AsyncRecord(), Record()]
    with trio.CancelScope() as scope:
        async with open_runtime(observers=records[2:]) as runtime:
            one = runtime.start(job(generate=after(0.1, 9)), "q", observers=records[:1])
            two = runtime.start(job(generate=after(0.2, 9)), "q", observers=records[1:2])
            await trio.sleep(1)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(1), "cooperative work took some of the grace"
    for handle, output in ((one, 0), (two, 0)):
        result = await handle.result()
        assert statuses(result) == ["eligible"] + ["cancelled"] * 3
        assert (result.stop_reason, result.output) == ("cancelled", output)
    assert [record.terminal.stop_reason for record in records[:2]] == ["cancelled"] * 2
    assert records[2].kinds.count("finished") == 2, "the runtime's observer was cut"


async def test_services_get_no_more_than_the_grace_when_the_runtime_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    async def observe(event: Event) -> None:
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with open_runtime(observers=[observe]) as runtime:
            runtime.start(job(generate=after(9)), "q", observers=[observe])
            await trio.sleep(1)
            scope.cancel()
            await trio.sleep_forever()
    assert 1 < trio.current_time() <= 1 + 2 * GRACE, "a run's grace, and one for the runtime"


async def test_a_cancelled_runtime_still_waits_for_detached_tasks(
    autojump_clock: MockClock,
) -> None:
    stuck = Stubborn(5, 1)
    with trio.CancelScope() as scope:
        async with open_runtime() as runtime:
            handle = runtime.start(job(generate=stuck), "q")
            await trio.sleep(1)
            scope.cancel()
            await trio.sleep_forever()
    assert stuck.ended[-1] == 1, "a task was left behind, which Trio does not allow"
    result = await handle.result()
    assert statuses(result)[1] == "generating (detached)"
    assert result.elapsed == pytest.approx(1 + WORK)


class Teapot(BaseException):
    """Neither an Exception nor one of those that Python knows."""


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, Teapot])
@pytest.mark.parametrize("running", [False, True], ids=["idle", "with a run in flight"])
async def test_the_bodys_exception_leaves_as_itself(
    kind: type[BaseException], running: bool, autojump_clock: MockClock
) -> None:
    mine = kind("mine")
    with pytest.raises(kind) as caught:
        async with open_runtime() as runtime:
            if running:
                handle = runtime.start(job(generate=after(9)), "q")
                await trio.sleep(1)
            raise mine
    assert caught.value is mine, "it was wrapped or replaced"
    if running:
        assert (await handle.result()).stop_reason == "cancelled"


async def test_the_bodys_exception_leaves_as_itself_though_callbacks_raise_on_their_way_out(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            raise OSError("clean-up failed")

    def observe(event: Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ValueError, match="mine"):
        async with open_runtime(observers=[observe]) as runtime:
            runtime.start(job(generate=generate), "q", observers=[observe])
            await trio.sleep(1)
            raise ValueError("mine")


async def test_no_failure_of_one_run_reaches_the_nursery_of_all(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.1)
        raise Teapot if ctx.index % 2 else OSError

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        raise Teapot

    async def observe(event: Event) -> None:
        raise Teapot

    async with open_runtime() as runtime:
        calm = runtime.start(job(generate=after(5)), "q")
        failed = await runtime.run(job(generate=generate), "q", observers=[observe])
        unscored = await runtime.run(job(score=score), "q", observers=[observe])
        result = await calm.result()
    assert statuses(failed) == ["generation_failed"] * 4
    assert statuses(unscored) == ["scoring_failed"] * 4
    assert statuses(result) == ["eligible"] * 4, "another run suffered"


async def test_a_runtime_that_is_left_takes_no_more_runs(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        pass
    with pytest.raises(RuntimeClosed):
        await runtime.run(job(), "q")
    with pytest.raises(RuntimeClosed):
        runtime.start(job(), "q")


# -- every door, with cooperative work ------------------------------------------------------------

Door = Callable[[RunHandle[Any], trio.CancelScope], None]


def _handle(handle: RunHandle[Any], around: trio.CancelScope) -> None:
    handle.cancel()


def _around_the_runtime(handle: RunHandle[Any], around: trio.CancelScope) -> None:
    around.cancel()


def _two_at_once(handle: RunHandle[Any], around: trio.CancelScope) -> None:
    around.cancel()
    handle.cancel()


DOORS: dict[str, Door] = {
    "handle": _handle,
    "around the runtime": _around_the_runtime,
    "both": _two_at_once,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("at", [0.0, 0.1, 0.35, 1.0], ids="{} s".format)
async def test_a_stop_from_any_door_costs_cooperative_work_no_time(
    door: str, at: float, autojump_clock: MockClock
) -> None:
    record = Record()

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.sleep(0.2)
        return candidate.output

    with trio.CancelScope() as around:
        async with open_runtime() as runtime:
            handle = runtime.start(
                # the deadline is 1.0: with `at` = 1.0 it comes at the same moment as the door
                job(generate=after(0.1, 0.3, 0.5), score=score, max_concurrency=2, timeout=1.0),
                "q",
                observers=[record],
            )
            await trio.sleep(at)
            DOORS[door](handle, around)
            await trio.sleep(0)
            await handle.result()
    result = await handle.result()
    assert trio.current_time() == pytest.approx(at), "cancelling took time"
    assert result.elapsed == pytest.approx(at)
    assert result.usage.outstanding == Usage(), "a lease is open"
    assert record.terminal.stop_reason == result.stop_reason
    assert result.stop_reason in ("cancelled", *(("deadline",) if at == 1.0 else ()))
    for candidate in result.candidates:
        told = record.of(candidate.index)
        if candidate.status is not Status.SKIPPED:
            assert told.count("ended") == 1, f"candidate {candidate.index}: {told}"
        assert not candidate.detached


async def test_one_candidates_own_scope_ends_that_candidate_alone(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        with trio.CancelScope() as scope:
            if ctx.index == 1:
                scope.cancel()
            await trio.sleep(0.1)
            return ctx.index
        return -1

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate), "q")
    assert statuses(result) == ["eligible"] * 4, "a scope of the callback's own is its own affair"
    assert [c.output for c in result.candidates] == [0, -1, 2, 3]


async def test_a_second_cancel_changes_nothing(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=Stubborn(9, 1, otherwise=9)), "q")
        await trio.sleep(1)
        handle.cancel()
        await trio.sleep(WORK / 2)
        handle.cancel("again")
        result = await handle.result()
        handle.cancel("too late")
        assert await handle.result() is result
    assert result.elapsed == pytest.approx(1 + WORK), "the second cancel gave it a second grace"


@pytest.mark.parametrize("cancel_at", [0.9, 1.1])
async def test_a_cancel_and_the_deadline_make_one_grace(
    cancel_at: float, autojump_clock: MockClock
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await stubborn_for(9)

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, timeout=1), "q")
        await trio.sleep(cancel_at)
        handle.cancel()
        result = await handle.result()
    first = min(cancel_at, 1)
    assert result.elapsed == pytest.approx(first + WORK)
    assert result.stop_reason == ("cancelled" if cancel_at < 1 else "deadline")
