"""The ledger tree from end to end: at each of its levels a limit can be the one that stops it.

Under virtual time. Calls of a model stand for everything that can be limited.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Budget, LeaseExceeded, Usage, open_runtime
from tests.contract.scenes import Held, Stubborn, after, by_output, echo, statuses
from tests.contract.tree import a_job, at_most, calls, check, check_is_idle

ROOMY = 1000
LEVELS = ("runtime", "account", "run", "lease", "nested")


@pytest.mark.parametrize("level", LEVELS)
async def test_the_limit_at_each_level_is_the_one_that_stops_it(
    autojump_clock: MockClock, level: str
) -> None:
    """The same work under five limits: where one is 5, a lease of 1 can't have 5 more."""
    limits = dict.fromkeys(LEVELS, ROOMY) | {level: 5}
    granted: list[bool] = []

    async def inner(request: Any, ctx: Any) -> Any:
        granted.append(await ctx.reserve(calls(5)))  # with its own lease of 1 it would be 6
        return ctx.index

    async def outer(request: Any, ctx: Any) -> Any:
        # What a nested run may draw on is its candidate's lease; that has to be widened first.
        if level != "lease" and not await ctx.reserve(calls(5)):
            granted.append(False)
            return 0
        job = a_job(inner, budget=at_most(limits["nested"]))
        return (await runtime.run(job, request)).output

    async with open_runtime(budget=at_most(limits["runtime"])) as runtime:
        account = runtime.account("tenant", at_most(limits["account"]))
        job = a_job(outer, each=1 if level != "lease" else 5, budget=at_most(limits["run"]))
        await runtime.run(job, "q", account=account)
        check_is_idle(runtime)
    assert granted == [False], f"the limit of the {level} did not hold"


async def test_with_room_at_each_level_the_same_work_is_granted(autojump_clock: MockClock) -> None:
    granted: list[bool] = []

    async def inner(request: Any, ctx: Any) -> Any:
        granted.append(await ctx.reserve(calls(5)))
        return ctx.index

    async def outer(request: Any, ctx: Any) -> Any:
        granted.append(await ctx.reserve(calls(5)))
        job = a_job(inner, budget=at_most(6))
        return (await runtime.run(job, request)).output

    async with open_runtime(budget=at_most(6)) as runtime:
        account = runtime.account("tenant", at_most(6))
        await runtime.run(a_job(outer, budget=at_most(6)), "q", account=account)
        check_is_idle(runtime)
    assert granted == [True, True]


# -- a budget that runs share ----------------------------------------------------------------------


async def test_runs_that_share_a_budget_wait_for_each_other(autojump_clock: MockClock) -> None:
    async def silent(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(0))  # what was reserved is given back whole
        await trio.sleep(1)
        return ctx.index

    async with open_runtime(budget=at_most(2)) as runtime:
        handles = [runtime.start(a_job(silent), "q") for _ in range(6)]
        results = [await handle.result() for handle in handles]
        check_is_idle(runtime)
    assert [result.stop_reason for result in results] == ["completed"] * 6
    assert sorted(result.elapsed for result in results) == [1, 1, 2, 2, 3, 3], "two at a time"


async def test_a_spent_budget_denies_at_once(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(2)) as runtime:
        first = await runtime.run(a_job(n=2), "q")
        second = await runtime.run(a_job(n=3), "q")
        check_is_idle(runtime)
    assert first.stop_reason == "completed"
    assert statuses(second) == ["budget_exceeded"] * 3
    assert (second.stop_reason, second.elapsed, second.selected) == ("budget_exceeded", 0, None)
    assert all(candidate.started is None for candidate in second.candidates)


async def test_a_run_is_never_refused_for_a_shared_budget(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=Budget(model_calls=0, total_tokens=1)) as runtime:
        result = await runtime.run(a_job(n=4, budget=at_most(4)), "q")
        tight = runtime.account("tight", at_most(0))
        other = await runtime.run(a_job(n=2), "q", account=tight)
    assert {*statuses(result), *statuses(other)} == {"budget_exceeded"}


async def test_who_fits_goes_on_where_others_are_denied(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(3)) as runtime:
        result = await runtime.run(a_job(n=5), "q")
        check_is_idle(runtime)
    assert statuses(result) == ["eligible"] * 3 + ["budget_exceeded"] * 2
    assert (result.output, result.stop_reason) == (2, "budget_exceeded")
    assert result.partial


async def test_the_runtimes_budget_is_charged_what_was_spent_and_not_what_was_held(
    autojump_clock: MockClock,
) -> None:
    async def thrifty(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        for _ in range(10):  # each holds 1 to 10, and spends 1
            result = await runtime.run(a_job(thrifty, each=1), "q")
            assert result.stop_reason == "completed"
        assert runtime.usage.charged == calls(10)
        last = await runtime.run(a_job(thrifty), "q")
        check_is_idle(runtime)
    assert last.stop_reason == "budget_exceeded"


async def test_overspending_is_shared_too(autojump_clock: MockClock) -> None:
    async def greedy(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(8))
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        first = await runtime.run(a_job(greedy), "q")
        second = await runtime.run(a_job(greedy, n=3), "q")
        check_is_idle(runtime)
    assert isinstance(first.candidates[0].error, LeaseExceeded), "no cap under a shared limit"
    assert first.usage.charged == calls(8)
    held_at_once = ["budget_exceeded", "budget_exceeded", "budget_exceeded"]
    assert statuses(second) == held_at_once
    assert second.candidates[2].started is None, "2 were left for 3 leases"


async def test_a_limit_in_one_dimension_alone_denies_as_a_whole(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        seen.append(await ctx.reserve(Usage(model_calls=1, total_tokens=50)))
        seen.append(ctx.remaining())
        return 1

    async with open_runtime(budget=Budget(model_calls=9, total_tokens=59)) as runtime:
        job = a_job(generate, estimate=Usage(model_calls=1, total_tokens=10))
        await runtime.run(job, "q")
    assert seen[0] is False
    assert (seen[1].model_calls, seen[1].total_tokens) == (1, 10), "some of it was granted"


async def test_what_is_left_of_a_lease_is_told_for_the_limits_of_all_levels(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(Usage(model_calls=1, total_tokens=4))
        seen.append(ctx.remaining())
        return 1

    estimate = Usage(model_calls=2, total_tokens=10, cost="0.5")
    async with open_runtime(budget=at_most(9)) as runtime:
        account = runtime.account("tenant", Budget(total_tokens=100))
        await runtime.run(a_job(generate, estimate=estimate), "q", account=account)
    (left,) = seen
    assert (left.model_calls, left.total_tokens, left.cost) == (1, 6, None)


# -- detached work ---------------------------------------------------------------------------------


async def test_what_detached_work_holds_stays_held_at_the_runtime(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(budget=at_most(4)) as runtime:
        first = await runtime.run(a_job(Stubborn(50, 0), each=3, timeout=1), "q")
        assert runtime.usage.outstanding == calls(3)
        second = await runtime.run(a_job(n=2), "q")
        check(runtime)
        await runtime.drain()
        assert runtime.usage.charged == calls(4)
        check_is_idle(runtime)
    assert first.usage.outstanding == calls(3)
    assert statuses(second) == ["eligible", "budget_exceeded"]


async def test_detached_work_that_spent_less_than_it_held_makes_room(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)

    async with open_runtime(budget=at_most(4)) as runtime:
        job = a_job(generate, estimate=calls(1), scoring_estimate=calls(3), timeout=1)
        await runtime.run(job, "q")
        await runtime.drain()
        assert runtime.usage.charged == calls(1), "it was never scored"
        result = await runtime.run(a_job(n=3), "q")
        check_is_idle(runtime)
    assert result.stop_reason == "completed"


# -- threads ---------------------------------------------------------------------------------------


async def test_sync_generators_wait_for_a_shared_budget_too() -> None:
    def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(0))
        return ctx.index

    def score(request: Any, candidate: Any, ctx: Any) -> float:
        return float(candidate.output)

    async with open_runtime(budget=at_most(2)) as runtime:
        handles = [runtime.start(a_job(generate, n=4, score=score), "q") for _ in range(4)]
        results = [await handle.result() for handle in handles]
        check_is_idle(runtime)
    assert [result.output for result in results] == [3] * 4
    assert {result.stop_reason for result in results} == {"completed"}


async def test_a_thread_that_is_given_up_is_held_for_and_settled_late(held: Held) -> None:
    held.indices = (0,)
    async with open_runtime(budget=at_most(2)) as runtime:
        result = await runtime.run(a_job(held, timeout=0.1, score=by_output), "q")
        assert result.candidates[0].detached
        assert runtime.usage.outstanding == calls(1)
        fits = await runtime.run(a_job(echo, n=2), "q")
        held.release.set()
        await runtime.drain()
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(2)
    assert statuses(fits) == ["eligible", "budget_exceeded"]


# -- a run that waits is a run ---------------------------------------------------------------------


async def test_a_run_whose_candidates_all_wait_keeps_its_deadline(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(budget=at_most(1)) as runtime:
        holder = runtime.start(a_job(after(10)), "q")
        await trio.sleep(1)
        result = await runtime.run(a_job(n=3, timeout=2), "q")
        assert statuses(result) == ["skipped"] * 3, "nothing of them ran"
        assert (result.stop_reason, result.elapsed) == ("deadline", 2)
        assert (await holder.result()).output == 0
        check_is_idle(runtime)


async def test_candidates_that_wait_for_a_lease_are_pending(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(2)) as runtime:
        handle = runtime.start(a_job(after(1), n=3), "q")
        await trio.sleep(0.5)
        told = {str(status): count for status, count in handle.snapshot().statuses.items()}
        assert told == {"generating": 2, "pending": 1}
        await handle.result()
