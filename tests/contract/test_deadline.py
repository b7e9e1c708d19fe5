"""One absolute deadline over everything, and the best so far when it comes (clauses 1 and 3).

Under virtual time, so that times are exact.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Budget, LeaseExceeded, NoEligibleCandidate, Status, Usage, open_runtime
from tests.contract.scenes import GRACE, Record, Stubborn, after, job, statuses


async def slow_score(request: Any, candidate: Any, ctx: Any) -> float:
    await trio.sleep(0.6)
    return candidate.output


# -- one deadline over all phases -----------------------------------------------------------------


async def test_generation_and_scoring_share_one_deadline(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=after(0.6), score=slow_score, timeout=1), "q")
    assert statuses(result) == ["timed_out"] * 4
    assert result.elapsed == pytest.approx(1.0), "scoring got a deadline of its own"
    assert [c.output for c in result.candidates] == [0, 1, 2, 3], "what was generated is lost"


async def test_retries_and_backoff_inside_a_candidate_add_no_time(
    autojump_clock: MockClock,
) -> None:
    tries: list[float] = []

    async def generate(request: Any, ctx: Any) -> Any:
        while True:
            with trio.move_on_after(0.3):
                await trio.sleep(9)  # an attempt with a timeout of its own, then the next one
            tries.append(trio.current_time())

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert result.elapsed == pytest.approx(1.0)
    assert len(tries) == 3, "tried on after the deadline"


async def test_the_second_wave_of_candidates_gets_no_new_deadline(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=after(0.4), n=6, max_concurrency=2, timeout=1), "q")
    assert statuses(result) == ["eligible"] * 4 + ["timed_out"] * 2
    assert result.elapsed == pytest.approx(1.0)


async def test_the_deadline_is_taken_at_start(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        began = trio.current_time()
        handle = runtime.start(job(generate=after(9), timeout=1), "q")
        await trio.sleep(0.7)
        result = await handle.result()  # asked for late: that moves nothing
        assert trio.current_time() - began == pytest.approx(1.0)
    assert result.stop_reason == "deadline"


async def test_clean_up_is_inside_the_deadline_and_grace(autojump_clock: MockClock) -> None:
    cleaned: list[float] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            with ctx.cleanup():
                try:
                    await trio.sleep(9)
                finally:
                    cleaned.append(trio.current_time())

    async with open_runtime() as runtime:
        began = trio.current_time()
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert cleaned == [pytest.approx(began + 1 + 0.8 * GRACE)], "clean-up ends with the work share"
    assert statuses(result) == ["timed_out"]


async def test_no_timeout_is_no_deadline(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        seen.append((ctx.deadline, ctx.remaining().seconds, trio.current_effective_deadline()))
        await trio.sleep(1e6)
        return 1

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1), "q")
    assert seen == [(None, None, math.inf)]
    assert (result.stop_reason, result.output) == ("completed", 1)


async def test_a_timeout_of_zero_skips_everything(autojump_clock: MockClock) -> None:
    called: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        called.append(ctx.index)

    record = Record()
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, timeout=0), "q", observers=[record])
    assert (statuses(result), called) == (["skipped"] * 4, [])
    assert (result.stop_reason, result.partial, result.elapsed) == ("deadline", True, 0.0)
    assert record.kinds == ["finished"]


# -- what user code sees of it --------------------------------------------------------------------


async def test_user_code_sees_the_real_deadline(autojump_clock: MockClock) -> None:
    seen: dict[str, tuple[float, float, float]] = {}

    def look(where: str, ctx: Any) -> None:
        seen[where] = (trio.current_effective_deadline(), ctx.deadline, ctx.remaining().seconds)

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.5)
        look("generator", ctx)
        return 1

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        look("scorer", ctx)
        return 1.0

    async with open_runtime() as runtime:
        until = trio.current_time() + 2
        await runtime.run(job(generate=generate, score=score, n=1, timeout=2), "q")
    expected = (pytest.approx(until), pytest.approx(until), pytest.approx(1.5))
    assert seen == {"generator": expected, "scorer": expected}


async def test_a_nested_run_is_clamped_to_the_deadline_around_it(autojump_clock: MockClock) -> None:
    inner: list[Any] = []

    async with open_runtime() as runtime:

        async def generate(request: Any, ctx: Any) -> Any:
            nested = job(generate=after(0.1, 9), n=2, timeout=60)
            inner.append(await runtime.run(nested, request))
            return inner[0].output

        outer = await runtime.run(job(generate=generate, n=1, timeout=2), "q")
    assert inner[0].stop_reason == "outer_deadline"
    assert inner[0].output == 0
    assert outer.output == 0, "the nested run came back too late to be of use"
    assert outer.elapsed < 2


async def test_a_candidate_timeout_is_seen_as_the_deadline_of_its_candidate(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        seen.append((ctx.deadline, trio.current_effective_deadline()))
        await trio.sleep(9)

    async with open_runtime() as runtime:
        until = trio.current_time() + 0.5
        result = await runtime.run(job(generate=generate, n=1, candidate_timeout=0.5), "q")
    assert seen == [(pytest.approx(until), pytest.approx(until))]
    assert statuses(result) == ["timed_out"]
    assert result.stop_reason == "no_eligible", "one candidate's timeout is not the run's deadline"


# -- the deadline of the caller's scopes ----------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "margin"), [(10.0, GRACE), (2.0, 0.2), (0.5, 0.05)], ids=["grace", "10%", "short"]
)
async def test_an_outer_deadline_gives_the_best_so_far_inside_it(
    seconds: float, margin: float, autojump_clock: MockClock
) -> None:
    record = Record()
    async with open_runtime() as runtime:
        began = trio.current_time()
        with trio.move_on_after(seconds) as scope:
            result = await runtime.run(
                job(generate=after(0.1, 0.2, 0.3, 99)), "q", observers=[record]
            )
        assert not scope.cancelled_caught, "the caller's scope was cancelled before we returned"
        took = trio.current_time() - began
    assert took == pytest.approx(seconds - margin), "margin = min(grace, 10 % of the time left)"
    assert (result.stop_reason, result.partial, result.output) == ("outer_deadline", True, 2)
    assert statuses(result) == ["eligible"] * 3 + ["timed_out"]
    assert record.terminal.stop_reason == "outer_deadline"


async def test_done_when_4_one_candidate_hangs_inside_move_on_after(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = None
        with trio.move_on_after(1):
            result = await runtime.run(job(generate=after(0.1, math.inf, 0.1, 0.1)), "q")
    assert result is not None, "run() was cancelled instead of returning the best so far"
    assert result.output == 3


async def test_an_outer_deadline_holds_even_if_the_hanging_candidate_is_stubborn(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(1) as scope:
            result = await runtime.run(job(generate=Stubborn(5, 1, otherwise=0.1)), "q")
        assert not scope.cancelled_caught, "the grace reaches past the caller's deadline"
        assert trio.current_time() <= scope.deadline
    assert result.output == 3
    assert result.candidates[1].detached


@pytest.mark.parametrize(
    ("timeout", "outer", "reason"), [(1, 10, "deadline"), (10, 1, "outer_deadline")]
)
async def test_the_earlier_deadline_wins(
    timeout: float, outer: float, reason: str, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(outer):
            result = await runtime.run(job(generate=after(0.1, 99), timeout=timeout), "q")
    assert result.stop_reason == reason
    assert result.elapsed == pytest.approx(1.0 if reason == "deadline" else 0.9)


async def test_a_run_under_a_scope_that_is_cancelled_already_starts_nothing(
    autojump_clock: MockClock,
) -> None:
    called: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        called.append(ctx.index)

    record = Record()
    async with open_runtime() as runtime:
        with trio.CancelScope() as scope:
            scope.cancel()
            await runtime.run(job(generate=generate), "q", observers=[record])
        assert scope.cancelled_caught, "run() swallowed the cancellation of its caller"
    assert called == []
    assert record.terminal.statuses == {Status.SKIPPED: 4}


# -- whatever cuts a run short, the best so far is selected ---------------------------------------


async def _by_deadline(runtime: Any, **parts: Any) -> Any:
    return await runtime.run(job(generate=after(0.1, 0.2, 9), timeout=1, **parts), "q")


async def _by_cancel(runtime: Any, **parts: Any) -> Any:
    handle = runtime.start(job(generate=after(0.1, 0.2, 9), **parts), "q")
    await trio.sleep(1)
    handle.cancel()
    return await handle.result()


async def _by_stop(runtime: Any, **parts: Any) -> Any:
    handle = runtime.start(job(generate=after(0.1, 0.2, 9), max_concurrency=1, **parts), "q")
    await trio.sleep(0.2)
    handle.stop_after_current()
    return await handle.result()


async def _by_budget(runtime: Any, **parts: Any) -> Any:
    async def generate(request: Any, ctx: Any) -> Any:
        with contextlib.suppress(LeaseExceeded):
            ctx.charge(Usage(model_calls=10 if ctx.index == 1 else 1))
        return ctx.index

    budget = {"budget": Budget(model_calls=8), "estimate": Usage(model_calls=2)}
    return await runtime.run(job(generate=generate, max_concurrency=1, **budget, **parts), "q")


async def _by_lost_slots(runtime: Any, **parts: Any) -> Any:
    stuck = Stubborn(9, 2, 3, otherwise=0.1)
    return await runtime.run(
        job(generate=stuck, n=6, max_concurrency=2, candidate_timeout=0.5, **parts), "q"
    )


CUT_SHORT = {
    "deadline": _by_deadline,
    "cancelled": _by_cancel,
    "stopped": _by_stop,
    "budget_exceeded": _by_budget,
    "slots_lost": _by_lost_slots,
}


@pytest.mark.parametrize("reason", CUT_SHORT)
async def test_a_run_that_is_cut_short_selects_the_best_so_far(
    reason: str, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await CUT_SHORT[reason](runtime)
    assert (result.stop_reason, result.partial) == (reason, True)
    assert (result.output, result.selected_by) == (1, "best_score"), statuses(result)
    assert result.raise_for_status() is result


@pytest.mark.parametrize("reason", CUT_SHORT)
async def test_a_job_may_want_nothing_instead_of_the_best_so_far(
    reason: str, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await CUT_SHORT[reason](runtime, on_early_stop="fail")
    assert (result.stop_reason, result.selected, result.selected_by) == (reason, None, "")
    with pytest.raises(NoEligibleCandidate, match=reason):
        result.raise_for_status()
    assert [c.eligible for c in result.candidates][:2] == [True, True], "the records stay"


async def test_nothing_eligible_at_the_deadline_is_a_result_without_a_selection(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=after(9), timeout=1), "q")
    assert (result.stop_reason, result.partial, result.selected) == ("deadline", True, None)
    with pytest.raises(NoEligibleCandidate, match="4 timed_out"):
        _ = result.output


async def test_selection_is_made_though_the_deadline_left_no_time_for_it(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(grace=0) as runtime:
        result = await runtime.run(job(generate=after(0.1, 9), timeout=1), "q")
    assert (result.output, result.elapsed) == (0, pytest.approx(1.0))
