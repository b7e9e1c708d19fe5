"""`start` and the handle of a run: wait for it, watch it, steer it, leave it.

Under virtual time.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints

from hortator import Budget, DoesNotFit, InvalidJob, Status, Usage, open_runtime
from tests.contract.scenes import WORK, Record, Stubborn, after, job, statuses

# -- start ----------------------------------------------------------------------------------------


async def test_start_is_no_checkpoint_and_nothing_runs_before_the_next_one(
    autojump_clock: MockClock,
) -> None:
    called: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        called.append(ctx.index)
        return ctx.index

    record = Record()
    async with open_runtime() as runtime:
        with assert_no_checkpoints():
            handle = runtime.start(job(generate=generate), "q", observers=[record])
        assert (called, record.events) == ([], [])
        assert handle.snapshot().statuses == {Status.PENDING: 4}
        result = await handle.result()
    assert sorted(called) == [0, 1, 2, 3]
    assert handle.run_id == result.run_id


async def test_what_is_wrong_with_the_arguments_is_raised_by_start(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        with assert_no_checkpoints():
            for wrong in ({"seed": 1.5}, {"on_observer_error": "log"}, {"observers": [3]}):
                with pytest.raises(InvalidJob):
                    runtime.start(job(), "q", **wrong)
            with pytest.raises(InvalidJob):
                runtime.start("a job", "q")  # type: ignore[arg-type]


def test_a_set_that_does_not_fit_is_refused_before_anything_starts() -> None:
    with pytest.raises(DoesNotFit, match="4"):
        job(budget=Budget(total_tokens=399), estimate=Usage(total_tokens=100))


# -- result ---------------------------------------------------------------------------------------


async def test_the_result_can_be_asked_for_again_and_by_many(autojump_clock: MockClock) -> None:
    results: list[Any] = []

    async def wait(handle: Any) -> None:
        results.append(await handle.result())

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1)), "q")
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait, handle)
        results.append(await handle.result())
    results.append(await handle.result())  # also after the runtime was left
    assert len(results) == 5
    assert all(result is results[0] for result in results)


async def test_cancelling_a_waiter_cancels_only_the_wait(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(3)), "q")
        with trio.move_on_after(1) as scope:
            await handle.result()
        assert scope.cancelled_caught
        assert not handle.ended
        assert handle.snapshot().statuses == {Status.GENERATING: 4}
        result = await handle.result()
    assert (result.output, result.stop_reason, result.elapsed) == (3, "completed", 3)


async def test_a_run_that_was_started_knows_the_deadline_around_its_start(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(1):
            handle = runtime.start(job(generate=after(0.1, 9)), "q")
        result = await handle.result()
    assert (result.stop_reason, result.output) == ("outer_deadline", 0)


# -- cancel ---------------------------------------------------------------------------------------


async def test_cancel_stops_the_run_and_selects_the_best_so_far(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 0.2, 9), n=6), "q")
        await trio.sleep(1)
        with assert_no_checkpoints():
            handle.cancel()
        result = await handle.result()
    assert (result.stop_reason, result.partial, result.output) == ("cancelled", True, 1)
    assert result.elapsed == 1


async def test_the_reason_of_a_cancel_is_carried_into_what_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    texts: list[str] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        except trio.Cancelled as cancelled:
            texts.append(str(cancelled))
            raise

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, n=1), "q")
        await trio.sleep(1)
        handle.cancel("the user closed the window")
        await handle.result()
    assert "the user closed the window" in texts[0]
    assert handle.run_id in texts[0]


async def test_cancel_before_anything_started_skips_everything(autojump_clock: MockClock) -> None:
    called: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        called.append(ctx.index)

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate), "q")
        handle.cancel()
        result = await handle.result()
    assert (statuses(result), called) == (["skipped"] * 4, [])
    assert result.stop_reason == "cancelled"


async def test_cancel_after_the_end_changes_nothing(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(), "q")
        result = await handle.result()
        handle.cancel("too late")
        handle.stop_after_current()
        assert await handle.result() is result
        assert handle.snapshot().stop_reason is None
    assert result.stop_reason == "completed"


@pytest.mark.parametrize("who", ["generator", "scorer"])
async def test_a_callback_may_cancel_its_own_run(who: str, autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(ctx.index / 10)
        if who == "generator" and ctx.index == 2:
            handle.cancel()
            await trio.sleep(9)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        if who == "scorer" and ctx.index == 2:
            handle.cancel()
            await trio.sleep(9)
        return candidate.output

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, score=score), "q")
        result = await handle.result()
    assert statuses(result) == ["eligible", "eligible", "cancelled", "cancelled"]
    assert result.output == 1


# -- stop_after_current ---------------------------------------------------------------------------


async def test_stop_after_current_lets_those_in_flight_end(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1), n=8, max_concurrency=2), "q")
        await trio.sleep(1.5)
        with assert_no_checkpoints():
            handle.stop_after_current()
        assert handle.snapshot().stop_reason == "stopped"
        result = await handle.result()
    assert statuses(result) == ["eligible"] * 4 + ["skipped"] * 4
    assert (result.stop_reason, result.partial, result.output) == ("stopped", True, 3)
    assert result.elapsed == pytest.approx(2), "they are scored as well"


async def test_stop_after_current_with_nothing_in_flight_ends_at_once(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1)), "q")
        handle.stop_after_current()
        result = await handle.result()
    assert (statuses(result), result.elapsed) == (["skipped"] * 4, 0)
    assert result.stop_reason == "stopped"


async def test_the_deadline_holds_after_stop_after_current(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 9), timeout=1), "q")
        await trio.sleep(0.5)
        handle.stop_after_current()
        result = await handle.result()
    assert result.elapsed == pytest.approx(1)
    assert statuses(result) == ["eligible"] + ["timed_out"] * 3


async def test_cancel_after_stop_after_current_ends_it_now(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 9)), "q")
        await trio.sleep(0.5)
        handle.stop_after_current()
        await trio.sleep(0.5)
        handle.cancel()
        result = await handle.result()
    assert result.elapsed == pytest.approx(1)
    assert statuses(result) == ["eligible"] + ["cancelled"] * 3


# -- snapshot -------------------------------------------------------------------------------------


async def test_a_snapshot_shows_the_run_as_it_is(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        began = trio.current_time()
        handle = runtime.start(
            job(
                generate=after(0.1, 0.3, 9),
                n=6,
                max_concurrency=3,
                timeout=5,
                budget=Budget(model_calls=6),
            ),
            "q",
        )
        await trio.sleep(1)
        with assert_no_checkpoints():
            seen = handle.snapshot()
        assert (seen.run_id, seen.time, seen.elapsed) == (handle.run_id, began + 1, 1)
        assert seen.deadline == began + 5
        assert seen.statuses == {
            Status.ELIGIBLE: 2,
            Status.GENERATING: 3,
            Status.PENDING: 1,
        }
        assert [c.index for c in seen.ended] == [0, 1]
        assert (seen.best, seen.stop_reason) == (1, None)
        assert seen.usage.charged.model_calls == 2
        assert seen.usage.outstanding.model_calls == 3
        handle.cancel()
        assert handle.snapshot().stop_reason == "cancelled"
        await handle.result()
        after_the_end = handle.snapshot()
    assert sum(after_the_end.statuses.values()) == len(after_the_end.ended) == 6
    assert after_the_end.usage.outstanding == Usage()


# -- async with -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["normally", "by an exception", "by a cancellation"])
async def test_leaving_the_handle_cancels_and_joins(how: str, autojump_clock: MockClock) -> None:
    unwound: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(0.1 if ctx.index == 0 else 9)
        finally:
            unwound.append(ctx.index)
        return ctx.index

    async with open_runtime() as runtime:
        with trio.move_on_after(1e9) as scope:
            try:
                async with runtime.start(job(generate=generate), "q") as handle:
                    await trio.sleep(1)
                    if how == "by an exception":
                        raise ValueError("mine")
                    if how == "by a cancellation":
                        scope.cancel()
                        await trio.sleep(1)
            except ValueError:
                assert how == "by an exception"
            assert sorted(unwound) == [0, 1, 2, 3], "left before its callbacks had ended"
            assert handle.ended
        assert scope.cancelled_caught == (how == "by a cancellation")
        assert trio.current_time() == pytest.approx(1)
        result = await handle.result()
    assert (result.stop_reason, result.output) == ("cancelled", 0)


async def test_leaving_the_handle_of_stubborn_work_takes_the_grace(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        async with runtime.start(job(generate=Stubborn(9, 1)), "q") as handle:
            await trio.sleep(1)
        assert trio.current_time() == pytest.approx(1 + WORK)
        assert statuses(await handle.result())[1] == "generating (detached)"


async def test_leaving_the_handle_of_a_run_that_has_ended_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        async with runtime.start(job(), "q") as handle:
            result = await handle.result()
        assert await handle.result() is result
    assert result.stop_reason == "completed"


async def test_a_handle_that_nobody_holds_does_not_end_its_run(autojump_clock: MockClock) -> None:
    record = Record()
    async with open_runtime() as runtime:
        runtime.start(job(generate=after(1)), "q", observers=[record])
    assert record.terminal.stop_reason == "completed"
