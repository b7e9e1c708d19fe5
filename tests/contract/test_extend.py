"""`handle.extend`: the deadline of a run moves, and everything that hangs on it (issue E, GAP-32).

Under virtual time, so that times are exact; one test with a thread is on the real clock.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import trio
from hypothesis import given, settings, strategies as st
from trio.testing import MockClock, assert_no_checkpoints

from hortator import BatchScorer, BestOfN, InvalidJob, best_of_n, open_runtime
from tests.contract.scenes import GRACE, SLACK, WORK, Stubborn, after, by_output, job, statuses

# -- what follows -------------------------------------------------------------------------------


async def test_work_in_flight_gets_the_time_that_was_added(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        began = trio.current_time()
        handle = runtime.start(job(generate=after(0.1, 2.5, 9), timeout=2), "q")
        await trio.sleep(1)
        with assert_no_checkpoints():
            assert handle.extend(1)
        assert handle.snapshot().deadline == began + 3
        result = await handle.result()
    assert statuses(result) == ["eligible", "eligible", "timed_out", "timed_out"]
    assert (result.stop_reason, result.output, result.elapsed) == ("deadline", 1, 3)


async def test_a_run_may_be_extended_before_anything_began(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1.5, 9), timeout=1), "q")
        assert handle.extend(1)
        result = await handle.result()
    assert (statuses(result)[:2], result.elapsed) == (["eligible", "timed_out"], 2)


async def test_extensions_add_up(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(9), timeout=1), "q")
        assert handle.extend(1)
        await trio.sleep(1.5)
        assert handle.extend(0.25)
        assert handle.extend(0.25)
        result = await handle.result()
    assert result.elapsed == 2.5


async def test_candidates_begin_after_the_first_deadline(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        run = job(generate=after(0.75), n=4, max_concurrency=1, timeout=1)
        handle = runtime.start(run, "q")
        handle.extend(1)
        result = await handle.result()
    assert statuses(result) == ["eligible", "eligible", "timed_out", "skipped"]


async def test_the_context_tells_the_new_deadline(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        seen.append((ctx.deadline, ctx.remaining().seconds, trio.current_effective_deadline()))
        await trio.sleep(0.5)
        seen.append((ctx.deadline, ctx.remaining().seconds, trio.current_effective_deadline()))
        await trio.sleep(1)
        return ctx.stopping

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, n=1, timeout=1), "q")
        await trio.sleep(0.25)
        handle.extend(1)
        result = await handle.result()
    assert seen == [(1, 1, 1), (2, 1.5, 2)]
    assert result.output is False


async def test_the_time_at_which_all_are_scored_together_moves_along(
    autojump_clock: MockClock,
) -> None:
    """A fifth of the whole time is kept for the one scoring call: of the new time, that is."""

    async def score_all(request: Any, candidates: Any, ctx: Any) -> list[float]:
        return [candidate.output for candidate in candidates]

    async with open_runtime() as runtime:
        run = job(
            generate=after(1.5, 1.5, 1.5, 9),
            score=BatchScorer(score_all, together=True),
            timeout=1,
        )
        handle = runtime.start(run, "q")
        await trio.sleep(0.5)
        assert handle.extend(1)
        result = await handle.result()
    assert statuses(result) == ["eligible"] * 3 + ["timed_out"]
    assert (result.output, result.elapsed) == (2, pytest.approx(1.6))


async def test_a_candidates_own_timeout_stays(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(9), timeout=2, candidate_timeout=1), "q")
        await trio.sleep(0.5)
        assert handle.extend(5)
        result = await handle.result()
    assert (statuses(result), result.elapsed) == (["timed_out"] * 4, 1)


async def test_clean_up_that_is_under_way_gets_the_time_too(autojump_clock: MockClock) -> None:
    done: list[float] = []

    async def generate(request: Any, ctx: Any) -> Any:
        with ctx.cleanup(3.5 if ctx.index else None):
            await trio.sleep(9)
        done.append(trio.current_time())
        await trio.lowlevel.checkpoint()

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, n=2, timeout=2), "q")
        await trio.sleep(1)
        handle.extend(2)
        result = await handle.result()
    assert statuses(result)[0] == "timed_out"
    assert done == [3.5, pytest.approx(4 + WORK)], "limited by its own seconds, or by the new end"


async def test_the_grace_is_counted_from_the_new_deadline(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=Stubborn(5, 0), timeout=1), "q")
        handle.extend(1)
        result = await handle.result()
    assert statuses(result)[0] == "generating (detached)"
    assert result.elapsed == pytest.approx(2 + WORK)


async def test_an_extended_run_waits_no_longer_than_its_work(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1.5), timeout=1), "q")
        handle.extend(100)
        result = await handle.result()
    assert (result.stop_reason, result.elapsed) == ("completed", 1.5)


async def test_a_generator_in_a_thread_sees_it() -> None:
    seen: list[bool] = []

    def generate(request: Any, ctx: Any) -> Any:
        until = time.monotonic() + 5
        while not ctx.stopping and time.monotonic() < until:
            seen.append(ctx.remaining().seconds > 1)
            time.sleep(0.01)
            if any(seen) and len(seen) > 3:
                return "saw it"
        return None

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, n=1, score=_one, timeout=0.5), "q")
        await trio.sleep(0.05)
        assert handle.extend(5)
        result = await handle.result()
    assert result.output == "saw it"
    assert result.elapsed < 0.5 + SLACK


async def _one(request: Any, candidate: Any, ctx: Any) -> float:
    return 1.0


# -- when it is refused -------------------------------------------------------------------------


async def test_at_the_instant_of_the_deadline_it_is_too_late(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(9), timeout=1), "q")
        await trio.sleep(0.5)
        # Nobody has been woken by the deadline yet: the clock alone says so.
        autojump_clock.jump(0.5)
        assert not handle.snapshot().stop_reason
        assert not handle.extend(1)
        result = await handle.result()
    assert (result.stop_reason, result.elapsed) == ("deadline", 1)


async def test_a_moment_before_the_deadline_it_is_not(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(9), timeout=1), "q")
        await trio.sleep(0.5)
        autojump_clock.jump(0.4375)
        assert handle.extend(1)
        result = await handle.result()
    assert result.elapsed == 2


async def test_without_a_deadline_there_is_nothing_to_move(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(3)), "q")
        assert not handle.extend(1)
        assert handle.snapshot().deadline is None
        assert (await handle.result()).stop_reason == "completed"


async def test_a_run_that_is_stopping_or_over_is_not_extended(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=Stubborn(9, 0), timeout=5), "q")
        await trio.sleep(1)
        handle.cancel()
        assert not handle.extend(1)
        result = await handle.result()
        assert not handle.extend(1)
        assert result.elapsed == pytest.approx(1 + WORK)

        other = runtime.start(job(timeout=5), "q")
        await other.result()
        assert not other.extend(1)
        assert other.snapshot().deadline == trio.current_time() + 5


async def test_those_in_flight_after_stop_after_current_get_the_time(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        run = job(generate=after(1.5), n=8, max_concurrency=2, timeout=1)
        handle = runtime.start(run, "q")
        await trio.sleep(0.5)
        handle.stop_after_current()
        assert handle.extend(1)
        result = await handle.result()
    assert statuses(result) == ["eligible"] * 2 + ["skipped"] * 6
    assert (result.stop_reason, result.elapsed) == ("stopped", 1.5)


@pytest.mark.parametrize("wrong", [0, -1, 0.0, math.inf, math.nan, True, "5", None, 10**400])
async def test_what_is_no_number_of_seconds_is_refused(
    wrong: Any, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(timeout=5), "q")
        with pytest.raises(InvalidJob, match=r"handle\.extend\(5\)"):
            handle.extend(wrong)
        assert handle.snapshot().deadline == 5
        await handle.result()
        with pytest.raises(InvalidJob):
            handle.extend(wrong)  # also when it could not do anything any more


# -- the outer deadline -------------------------------------------------------------------------


async def test_an_extension_ends_at_the_outer_deadline_less_its_margin(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(10) as scope:
            async with runtime.start(job(generate=after(0.1, 99), timeout=1), "q") as handle:
                assert handle.extend(1)
                assert handle.extend(1000), "it moved, if not by so much"
                assert handle.snapshot().deadline == 10 - GRACE
                assert not handle.extend(1000), "there is no room left"
                result = await handle.result()
        assert not scope.cancelled_caught
    assert (result.stop_reason, result.output) == ("outer_deadline", 0)
    assert result.elapsed == 10 - GRACE


async def test_an_extension_that_stays_short_of_the_outer_deadline_is_the_runs_own(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(10):
            handle = runtime.start(job(generate=after(99), timeout=1), "q")
            handle.extend(2)
            result = await handle.result()
    assert (result.stop_reason, result.elapsed) == ("deadline", 3)


async def test_the_grace_after_an_extension_stays_inside_the_outer_deadline(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(10) as scope:
            async with runtime.start(job(generate=Stubborn(30, 0), timeout=1), "q") as handle:
                assert handle.extend(1000)
                result = await handle.result()
        assert not scope.cancelled_caught
    assert statuses(result)[0] == "generating (detached)"
    assert 10 - GRACE < result.elapsed < 10


async def test_a_deadline_that_is_the_outer_one_leaves_no_room(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(1):
            handle = runtime.start(job(generate=after(99)), "q")
            assert not handle.extend(1)
            result = await handle.result()
    assert result.stop_reason == "outer_deadline"


# -- nested -------------------------------------------------------------------------------------


async def test_a_run_inside_a_candidate_may_be_extended_up_to_the_one_around_it(
    autojump_clock: MockClock,
) -> None:
    inner: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        handle = runtime.start(job(generate=after(0.1, 99), timeout=1), request)
        assert handle.extend(1000)
        inner.append(await handle.result())
        return inner[0].output

    async with open_runtime() as runtime:
        outer = await runtime.run(BestOfN(generate=generate, score=by_output, n=1, timeout=5), "q")
    assert inner[0].stop_reason == "outer_deadline"
    assert 4.5 < inner[0].elapsed < 5
    assert (outer.stop_reason, outer.output) == ("completed", 0)


async def test_a_nested_run_keeps_the_deadline_that_it_was_started_with(
    autojump_clock: MockClock,
) -> None:
    inner: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        inner.append(await best_of_n(job(generate=after(0.1, 99)), request))
        await trio.sleep(1)
        return inner[0].output

    async with open_runtime() as runtime:
        run = BestOfN(generate=generate, score=by_output, n=1, timeout=2)
        handle = runtime.start(run, "q")
        await trio.sleep(1)
        assert handle.extend(1)
        result = await handle.result()
    assert inner[0].stop_reason == "outer_deadline"
    assert inner[0].elapsed < 2
    assert (statuses(result), result.output) == (["eligible"], 0)


# -- any order of times -------------------------------------------------------------------------


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 12), st.integers(1, 8)).map(lambda s: (s[0] / 8, s[1] / 8)),
        max_size=8,
    ),
    outer=st.sampled_from([math.inf, 5.0]),
)
@settings(max_examples=60, deadline=None)
def test_a_run_ends_exactly_where_its_extensions_lead(
    steps: list[tuple[float, float]], outer: float
) -> None:
    """Against a model that is too simple to be wrong: one number, moved while it is ahead."""
    latest = outer - GRACE
    deadline, now, reason = 1.0, 0.0, "deadline"
    expected: list[bool] = []
    for pause, seconds in steps:
        now += pause
        ahead = now < deadline and deadline < latest
        expected.append(ahead)
        if ahead:
            # At the very same instant the run's own deadline is the reason.
            reason = "outer_deadline" if deadline + seconds > latest else "deadline"
            deadline = min(deadline + seconds, latest)

    async def main() -> None:
        answers: list[bool] = []
        async with open_runtime() as runtime:
            with trio.move_on_at(outer):
                handle = runtime.start(job(generate=after(99), timeout=1), "q")
            for pause, seconds in steps:
                await trio.sleep(pause)
                answers.append(handle.extend(seconds))
            result = await handle.result()
        assert answers == expected
        assert result.elapsed == deadline
        assert result.stop_reason == reason

    trio.run(main, clock=MockClock(autojump_threshold=0))
