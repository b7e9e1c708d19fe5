"""Runs that a candidate starts: deadline, grace, ids, observers and money come from around them.

Under virtual time, but for threads.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import RunEnded, Usage, best_of_n, open_runtime
from tests.contract.scenes import Record, Stubborn, after, echo, statuses
from tests.contract.tree import Asks, a_job, at_most, calls, check, check_is_idle, root


async def charge_one(request: Any, ctx: Any) -> Any:
    ctx.charge(calls(1))
    await trio.lowlevel.checkpoint()
    return ctx.index


# -- three levels deep ----------------------------------------------------------------------------


class Deep:
    """Candidates that start runs of candidates that start runs, and what is seen on the way."""

    def __init__(self, runtime: Any, *, n: int = 2, **parts: Any) -> None:
        self.runtime, self.n, self.parts = runtime, n, parts
        self.ids: list[str] = []
        self.deadlines: dict[int, set[float | None]] = {}
        self.graces: dict[int, set[float]] = {}
        self.results: dict[int, list[Any]] = {}

    def job(self, depth: int, **parts: Any) -> Any:
        async def generate(request: Any, ctx: Any) -> Any:
            self.ids.append(ctx.run_id)
            self.deadlines.setdefault(depth, set()).add(ctx.deadline)
            self.graces.setdefault(depth, set()).add(ctx.around.grace_seconds)
            ctx.charge(calls(1))
            if depth < 2:
                await trio.sleep(0.1 * ctx.index)
                job = self.job(depth + 1, **self.parts)
                result = await self.runtime.run(job, request)
                self.results.setdefault(depth + 1, []).append(result)
                return result.output
            return ctx.index

        each = (21, 6, 1)[depth]
        return a_job(generate, n=self.n, **{"each": each, **parts})


async def test_three_levels_deep_it_is_one_tree(autojump_clock: MockClock) -> None:
    record = Record()
    async with open_runtime(budget=at_most(100)) as runtime:
        deep = Deep(runtime)
        result = await runtime.run(deep.job(0, timeout=10), "q", observers=[record])
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(14)
        assert runtime.usage.reported == calls(14)
    assert result.usage.charged == calls(2 + 4 + 8), "one call for each candidate, counted once"
    assert result.usage.reported == calls(14)
    assert result.usage.estimated == 0
    assert [candidate.usage for candidate in result.candidates] == [calls(7)] * 2
    assert {each.usage.charged.model_calls for each in deep.results[1]} == {6}
    assert {each.usage.charged.model_calls for each in deep.results[2]} == {2}

    top = result.run_id
    middle = {f"{top}/{index}.1" for index in (0, 1)}
    low = {f"{run}/{index}.1" for run in middle for index in (0, 1)}
    assert set(deep.ids) == {top} | middle | low
    assert {each.run_id for each in deep.results[2]} == low
    told = {event.run_id for event in (*record.events, *record.nested)}
    assert told == {top} | middle | low, "the observer of the outermost run is told of all"


async def test_deadlines_only_get_nearer_and_each_grace_is_at_most_half(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(grace=1.0) as runtime:
        deep = Deep(runtime)
        await runtime.run(deep.job(0, timeout=10), "q")
    (first,), (second,), (third,) = (deep.deadlines[depth] for depth in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first == 10
    assert third <= second <= first
    outer, middle, low = (max(deep.graces[depth]) for depth in range(3))
    assert outer == 1.0
    assert middle <= outer / 2
    assert low <= middle / 2


async def test_events_of_nested_runs_come_in_order_to_the_observers_around_them(
    autojump_clock: MockClock,
) -> None:
    top, own, everywhere = Record(), Record(), Record()

    async def outer(request: Any, ctx: Any) -> Any:
        return (await runtime.run(a_job(n=2), request, observers=[own])).output

    async with open_runtime(observers=[everywhere]) as runtime:
        result = await runtime.run(a_job(outer), "q", observers=[top])
    inner = f"{result.run_id}/0.1"
    assert [event.run_id for event in own.events] == [inner] * len(own.events)
    assert own.nested == []
    for record in (top, everywhere):
        told = [event for event in record.nested if event.run_id == inner]
        assert told == own.events, "not the same events, or not in the same order"
        assert [event.sequence for event in told] == list(range(len(told)))
        assert [event.terminal for event in told] == [False] * (len(told) - 1) + [True]
        heard = [id(event) for event in (*record.events, *record.nested)]
        assert len(heard) == len(set(heard)), "told twice"


async def test_an_observer_of_the_run_around_it_is_told_once_also_if_the_runtime_has_it_too(
    autojump_clock: MockClock,
) -> None:
    heard: list[tuple[str, int]] = []

    def observe(event: Any) -> None:
        heard.append((event.run_id, event.sequence))

    async def outer(request: Any, ctx: Any) -> Any:
        return (await runtime.run(a_job(), request)).output

    async with open_runtime() as runtime:
        await runtime.run(a_job(outer), "q", observers=[observe])
    assert len(heard) == len(set(heard))


async def test_the_second_run_of_a_candidate_has_the_number_two(autojump_clock: MockClock) -> None:
    ids: list[str] = []

    async def outer(request: Any, ctx: Any) -> Any:
        for _ in range(2):
            ids.append((await best_of_n(a_job(), request)).run_id)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(outer, n=2), "q")
    top = result.run_id
    assert sorted(ids) == [f"{top}/0.1", f"{top}/0.2", f"{top}/1.1", f"{top}/1.2"]


# -- money ----------------------------------------------------------------------------------------


async def test_it_draws_on_the_lease_of_its_candidate_and_on_nothing_else(
    autojump_clock: MockClock,
) -> None:
    inner: list[Any] = []

    async def outer(request: Any, ctx: Any) -> Any:
        inner.append(await runtime.run(a_job(n=5), request))
        assert ctx.remaining().model_calls == 0
        return ctx.index

    async with open_runtime(budget=at_most(100)) as runtime:
        result = await runtime.run(a_job(outer, each=3), "q")
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(3)
    assert statuses(inner[0]) == ["eligible"] * 3 + ["budget_exceeded"] * 2
    assert result.usage.charged == calls(3)
    assert result.candidates[0].usage == calls(3)


async def test_without_limits_of_its_own_it_has_what_is_left_of_the_lease(
    autojump_clock: MockClock,
) -> None:
    left: list[Any] = []

    async def inner(request: Any, ctx: Any) -> Any:
        left.append(ctx.remaining().model_calls)
        left.append(await ctx.reserve(calls(4)))  # 2 are spent, 1 + 4 makes 7
        left.append(await ctx.reserve(calls(1)))
        return 1

    async def outer(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(2))
        await runtime.run(a_job(inner), request)
        return ctx.index

    async with open_runtime() as runtime:
        await runtime.run(a_job(outer, each=7, budget=at_most(7)), "q")
        check_is_idle(runtime)
    assert left == [1, True, False]


async def test_what_it_spends_is_the_candidates_own_report_as_well(
    autojump_clock: MockClock,
) -> None:
    left: list[int] = []

    async def outer(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        await runtime.run(a_job(charge_one, n=2), request)
        left.append(ctx.remaining().model_calls)
        ctx.charge(calls(1))
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        result = await runtime.run(a_job(outer, each=5), "q")
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(4)
    assert left == [2]
    assert result.usage.charged == calls(4)
    assert result.usage.reported == calls(4)
    assert result.usage.estimated == 0


async def test_an_estimate_below_is_marked_above(autojump_clock: MockClock) -> None:
    async def outer(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        await runtime.run(a_job(echo, n=2), request)  # reports nothing
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(outer, each=3, budget=at_most(3)), "q")
        assert runtime.usage.estimated == 1
    assert result.usage.charged == calls(3)
    assert result.usage.reported == calls(1)
    assert result.usage.estimated == 1
    assert result.candidates[0].estimated


async def test_a_candidate_whose_runs_reported_all_is_not_estimated(
    autojump_clock: MockClock,
) -> None:
    async def outer(request: Any, ctx: Any) -> Any:
        await runtime.run(a_job(charge_one, n=2), request)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(outer, each=5, budget=at_most(5)), "q")
    assert result.usage.charged == calls(2), "5 were estimated, and 2 are known"
    assert not result.candidates[0].estimated


async def test_a_candidate_of_a_nested_run_that_overspends_shows_in_the_lease_around_it(
    autojump_clock: MockClock,
) -> None:
    left: list[int] = []

    async def greedy(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(9))

    async def outer(request: Any, ctx: Any) -> Any:
        inner = await runtime.run(a_job(greedy), request)
        assert statuses(inner) == ["budget_exceeded"]
        left.append(ctx.remaining().model_calls)
        again = await runtime.run(a_job(), request)
        assert statuses(again) == ["budget_exceeded"], "there was nothing left to draw on"
        return ctx.index

    async with open_runtime(budget=at_most(20)) as runtime:
        result = await runtime.run(a_job(outer, each=3), "q")
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(9)
    assert left == [0]
    assert result.usage.charged == calls(9)
    assert statuses(result) == ["eligible"], "it returned normally, and what it cost is recorded"


async def test_a_nested_ask_waits_for_its_siblings_and_not_for_the_world(
    autojump_clock: MockClock,
) -> None:
    async def ends_at_two(request: Any, ctx: Any) -> Any:
        await trio.sleep(2)
        ctx.charge(Usage())
        return 1

    asks = Asks(3)

    async def outer(request: Any, ctx: Any) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, a_job(ends_at_two, each=2), request)
            await wait_all_tasks_blocked()
            nursery.start_soon(runtime.run, a_job(asks), request)
        return ctx.index

    async with open_runtime(budget=at_most(5)) as runtime:
        await runtime.run(a_job(outer, each=5), "q")
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 2.0)}


async def test_when_all_nested_candidates_wait_one_is_denied_though_the_outer_one_works(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(2, before=(0.0, 0.5), then=1.0)

    async def outer(request: Any, ctx: Any) -> Any:
        await runtime.run(a_job(asks, n=2), request)
        return ctx.index

    async with open_runtime(budget=at_most(100)) as runtime:
        await runtime.run(a_job(outer, each=3), "q")
        check_is_idle(runtime)
    assert asks.answers[1] == (False, 0.5)


async def test_a_wider_lease_is_room_for_who_waits_below(autojump_clock: MockClock) -> None:
    asks = Asks(3)

    async def outer(request: Any, ctx: Any) -> Any:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, a_job(after(9)), request)
            await wait_all_tasks_blocked()
            nursery.start_soon(runtime.run, a_job(asks), request)
            await trio.sleep(1)
            assert await ctx.reserve(calls(2))
        return ctx.index

    async with open_runtime(budget=at_most(100)) as runtime:
        await runtime.run(a_job(outer, each=4), "q")
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 1.0)}


async def test_a_nested_run_of_a_scorer_is_scoring(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        ctx.charge(calls(1))
        await runtime.run(a_job(charge_one, n=2), request)
        return 1.0

    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        await runtime.run(a_job(charge_one, n=3), request)
        return 1

    async with open_runtime() as runtime:
        job = a_job(generate, each=4, score=score, scoring_estimate=calls(3), budget=at_most(7))
        result = await runtime.run(job, "q")
        check_is_idle(runtime)
    (candidate,) = result.candidates
    assert candidate.usage == calls(7)
    assert candidate.scoring == calls(1), "what scoring came to by itself"
    assert [each.charged for each in candidate.nested] == [calls(3), calls(2)]


async def test_a_scorer_that_only_starts_runs_is_not_charged_its_estimate(
    autojump_clock: MockClock,
) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await runtime.run(a_job(charge_one), request)
        return 1.0

    async with open_runtime() as runtime:
        job = a_job(charge_one, score=score, scoring_estimate=calls(5), budget=at_most(6))
        result = await runtime.run(job, "q")
    assert result.usage.charged == calls(2)
    assert result.usage.estimated == 0


# -- its candidate ends ---------------------------------------------------------------------------


async def test_a_run_that_its_candidate_leaves_behind_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    handles: list[Any] = []
    undone: list[int] = []

    async def slow(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        except trio.Cancelled:
            undone.append(ctx.index)
            raise

    async def outer(request: Any, ctx: Any) -> Any:
        handles.append(runtime.start(a_job(slow, n=3, max_concurrency=2), request))
        await trio.sleep(1)
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        result = await runtime.run(a_job(outer, each=5), "q")
        inner = await handles[0].result()
        assert trio.current_time() == 1
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(2)
    assert sorted(undone) == [0, 1]
    assert statuses(inner) == ["cancelled", "cancelled", "skipped"]
    assert result.usage.charged == calls(2), "what it held, for nobody waits for its end"
    assert result.candidates[0].estimated
    assert result.attribution.charged == calls(2)


async def test_a_run_comes_back_when_those_that_its_candidates_left_behind_have_ended(
    autojump_clock: MockClock,
) -> None:
    undone: list[float] = []
    record = Record()

    async def slow(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            with ctx.cleanup():
                await trio.sleep(0.05)
                undone.append(trio.current_time())

    async def outer(request: Any, ctx: Any) -> Any:
        runtime.start(a_job(slow, n=2), request)
        await trio.sleep(1)
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        await runtime.run(a_job(outer, each=5), "q", observers=[record])
        assert undone == [1.05] * 2, "a callback of a nested run goes on"
        check_is_idle(runtime)
    assert record.nested[-1].terminal, "who was told of its start was not told of its end"
    assert [event.terminal for event in record.nested].count(True) == 1


async def test_what_a_run_that_was_left_behind_holds_is_charged_once(
    autojump_clock: MockClock,
) -> None:
    """It reports less than it holds, but only when the candidate around it has been settled."""

    async def slow(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            ctx.charge(calls(1))

    async def outer(request: Any, ctx: Any) -> Any:
        runtime.start(a_job(slow, each=3), request)
        await trio.sleep(1)
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        result = await runtime.run(a_job(outer, each=5), "q")
        await trio.sleep(1)
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(3)
    assert result.usage.charged == calls(3)


async def test_what_a_nested_run_that_was_left_behind_holds_is_charged_once_also_if_it_does_not_end(
    autojump_clock: MockClock,
) -> None:
    async def outer(request: Any, ctx: Any) -> Any:
        runtime.start(a_job(Stubborn(50, 0, 1), n=2), request)
        await trio.sleep(1)
        return ctx.index

    async with open_runtime(budget=at_most(20)) as runtime:
        result = await runtime.run(a_job(outer, each=4), "q")
        assert result.usage.charged == calls(2)
        await trio.sleep(5)
        assert len(runtime.detached) == 2
        check(runtime)
        await runtime.drain()
        assert runtime.usage.charged == calls(2), "charged again"
        check_is_idle(runtime)


async def test_what_is_detached_two_levels_below_who_left_it_is_charged_once(
    autojump_clock: MockClock,
) -> None:
    async def middle(request: Any, ctx: Any) -> Any:
        await runtime.run(a_job(Stubborn(50, 0)), request)

    async def outer(request: Any, ctx: Any) -> Any:
        runtime.start(a_job(middle, each=3), request)
        await trio.sleep(1)
        return ctx.index

    async with open_runtime(budget=at_most(20)) as runtime:
        result = await runtime.run(a_job(outer, each=5), "q")
        await runtime.drain()
        assert result.usage.charged == runtime.usage.charged == calls(3)
        check_is_idle(runtime)


async def test_who_waits_in_a_run_that_is_left_behind_leaves_the_queue(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(3, 0, then=9.0)
    pools: list[Any] = []

    async def outer(request: Any, ctx: Any) -> Any:
        runtime.start(a_job(asks, n=4), request)
        await trio.sleep(1)
        pools.append(ctx.attempt.lease.pool)
        assert pools[0].waiters
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        await runtime.run(a_job(outer, each=3), "q")
        await wait_all_tasks_blocked()
        assert pools[0].waiters == []
        assert pools[0].open == pools[0].waiting == 0
        check_is_idle(runtime)
    assert asks.answers.get(0, (False, 0))[0] is False


async def test_a_run_two_levels_down_ends_with_its_candidate_too(autojump_clock: MockClock) -> None:
    ends: list[float] = []

    async def low(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(99)
        finally:
            ends.append(trio.current_time())

    async def middle(request: Any, ctx: Any) -> Any:
        return (await runtime.run(a_job(low), request)).output

    async def outer(request: Any, ctx: Any) -> Any:
        runtime.start(a_job(middle, each=2), request)
        await trio.sleep(1)
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime:
        result = await runtime.run(a_job(outer, each=5), "q")
        await wait_all_tasks_blocked()
        check_is_idle(runtime)
        assert result.usage.charged == runtime.usage.charged == calls(2)
    assert ends == [1]


async def test_a_task_that_a_candidate_left_in_a_nursery_of_yours_starts_runs_of_its_own(
    autojump_clock: MockClock,
) -> None:
    results: list[Any] = []

    async def left_behind() -> None:
        await trio.sleep(2)
        results.append(await runtime.run(a_job(charge_one, n=2), "q"))

    async def outer(request: Any, ctx: Any) -> Any:
        nursery.start_soon(left_behind)
        ctx.charge(calls(1))
        return ctx.index

    async with open_runtime(budget=at_most(10)) as runtime, trio.open_nursery() as nursery:
        result = await runtime.run(a_job(outer), "q")
        await trio.sleep(3)
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(3)
    assert result.usage.charged == calls(1)
    assert "/" not in results[0].run_id
    assert statuses(results[0]) == ["eligible"] * 2


async def test_detached_work_starts_no_runs(autojump_clock: MockClock) -> None:
    errors: list[BaseException] = []

    async def outer(request: Any, ctx: Any) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
            try:
                await runtime.run(a_job(), request)
            except RunEnded as error:
                errors.append(error)

    async with open_runtime(budget=at_most(10)) as runtime:
        await runtime.run(a_job(outer, timeout=1), "q")
        await runtime.drain()
        check_is_idle(runtime)
    assert "detached" in str(errors[0])


# -- work that does not end, below ----------------------------------------------------------------


async def test_detached_work_of_a_nested_run_takes_what_it_holds_out_of_the_lease(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []

    async def outer(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        inner = await runtime.run(a_job(Stubborn(50, 0), each=3, timeout=1), request)
        seen.append(inner.usage.outstanding)
        seen.append(ctx.remaining().model_calls)
        return ctx.index

    async with open_runtime(budget=at_most(20)) as runtime:
        tenant = runtime.account("tenant", at_most(8))
        result = await runtime.run(a_job(outer, each=6), "q", account=tenant)
        assert seen == [calls(3), 2], "6, less 1 that was spent, less 3 that it lost"
        assert result.usage.charged == calls(1)
        assert result.usage.outstanding == calls(3), "shown above, too"
        assert tenant.usage.outstanding == calls(3)
        assert tenant.remaining().model_calls == 4
        check(runtime)
        await runtime.drain()
        assert tenant.usage.charged == calls(4), "its estimate, settled late"
        assert runtime.detached[0].late_usage == calls(3)
        check_is_idle(runtime)
    assert result.usage.outstanding == calls(3), "a result does not change any more"


async def test_late_usage_of_nested_work_is_settled_in_the_account(
    autojump_clock: MockClock,
) -> None:
    async def stubborn(request: Any, ctx: Any) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        ctx.charge(calls(2))

    async def outer(request: Any, ctx: Any) -> Any:
        await runtime.run(a_job(stubborn, each=2, timeout=1), request)
        return ctx.index

    async with open_runtime(budget=at_most(20)) as runtime:
        tenant = runtime.account("tenant", at_most(8))
        result = await runtime.run(a_job(outer, each=6), "q", account=tenant)
        await runtime.drain()
        assert tenant.usage.reported == calls(2)
        assert tenant.usage.charged == calls(2)
        assert tenant.remaining().model_calls == 6
        check_is_idle(runtime)
    assert result.usage.charged == Usage()


async def test_nobody_is_charged_more_than_was_granted_without_a_report(
    autojump_clock: MockClock,
) -> None:
    """The outer candidate is cut, so its estimate counts; but a part of that left its lease."""

    async def outer(request: Any, ctx: Any) -> Any:
        await runtime.run(a_job(Stubborn(50, 0), timeout=0.1), request)
        await trio.sleep(9)

    async with open_runtime(budget=at_most(20)) as runtime:
        result = await runtime.run(a_job(outer, each=3, timeout=1), "q")
        assert statuses(result) == ["timed_out"]
        await runtime.drain()
        assert runtime.usage.charged.model_calls <= 3, "3 were granted, and nothing was reported"
        check_is_idle(runtime)


async def test_what_is_detached_within_detached_work_is_not_outstanding_for_ever(
    autojump_clock: MockClock,
) -> None:
    async def outer(request: Any, ctx: Any) -> Any:
        with trio.CancelScope(shield=True):
            await runtime.run(a_job(Stubborn(50, 0), timeout=5), request)
        return ctx.index

    async with open_runtime(budget=at_most(20)) as runtime:
        job = a_job(outer, each=3, timeout=9, candidate_timeout=0.3)
        await runtime.run(job, "q")
        await runtime.drain()
        check_is_idle(runtime)


async def test_detached_two_levels_down_is_outstanding_at_each_level(
    autojump_clock: MockClock,
) -> None:
    shown: list[Usage] = []

    async def middle(request: Any, ctx: Any) -> Any:
        inner = await runtime.run(a_job(Stubborn(50, 0), each=2, timeout=1), request)
        shown.append(inner.usage.outstanding)
        return 1

    async def outer(request: Any, ctx: Any) -> Any:
        inner = await runtime.run(a_job(middle, each=4), request)
        shown.append(inner.usage.outstanding)
        return 1

    async with open_runtime(budget=at_most(20)) as runtime:
        result = await runtime.run(a_job(outer, each=6), "q")
        shown.append(result.usage.outstanding)
        assert runtime.usage.outstanding == calls(2), "counted once"
        assert runtime.usage.charged == Usage(), "the others came to nothing"
        await runtime.drain()
        assert runtime.usage.charged == calls(2)
        check_is_idle(runtime)
    assert shown == [calls(2)] * 3


# -- other places ---------------------------------------------------------------------------------


async def test_from_a_thread_it_is_nested_all_the_same() -> None:
    inner: list[Any] = []

    def outer(request: Any, ctx: Any) -> Any:
        run = functools.partial(runtime.run, a_job(charge_one, n=4), request)
        inner.append(trio.from_thread.run(run))
        return ctx.index

    record = Record()
    async with open_runtime(budget=at_most(20)) as runtime:
        result = await runtime.run(a_job(outer, each=3), "q", observers=[record])
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(3)
    assert inner[0].run_id == f"{result.run_id}/0.1"
    assert statuses(inner[0]) == ["eligible"] * 3 + ["budget_exceeded"]
    assert result.usage.charged == calls(3)
    assert record.nested, "the observer around it was not told"


async def test_from_a_thread_it_ends_within_its_candidates_own_timeout() -> None:
    deadlines: list[Any] = []

    async def inner(request: Any, ctx: Any) -> Any:
        deadlines.append(ctx.deadline)
        await trio.sleep(0.4)

    def outer(request: Any, ctx: Any) -> Any:
        deadlines.append(ctx.deadline)
        return trio.from_thread.run(functools.partial(runtime.run, a_job(inner), request)).output

    async with open_runtime() as runtime:
        job = a_job(outer, timeout=5, candidate_timeout=0.2)
        result = await runtime.run(job, "q")
        assert runtime.detached == (), "it went on after its candidate's time"
    assert deadlines[1] <= deadlines[0]
    assert statuses(result) == ["generation_failed"], "it came back in time, with nothing to show"


async def test_behind_a_shield_of_the_candidates_it_still_ends_with_its_candidate(
    autojump_clock: MockClock,
) -> None:
    deadlines: list[Any] = []

    async def inner(request: Any, ctx: Any) -> Any:
        deadlines.append(ctx.deadline)
        await trio.sleep(9)

    async def outer(request: Any, ctx: Any) -> Any:
        with trio.CancelScope(shield=True):
            await runtime.run(a_job(inner), request)

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(outer, timeout=1), "q")
        assert runtime.detached == ()
    assert deadlines[0] is not None
    assert deadlines[0] <= 1
    assert result.candidates[0].detached is False


async def test_a_runtime_of_its_own_within_a_candidate_has_a_budget_of_its_own(
    autojump_clock: MockClock,
) -> None:
    inner: list[Any] = []

    async def outer(request: Any, ctx: Any) -> Any:
        async with open_runtime(budget=at_most(4)) as own:
            inner.append(await own.run(a_job(charge_one, n=5), request))
            assert own.usage.charged == calls(4)
            check_is_idle(own)
        return ctx.index

    async with open_runtime(budget=at_most(2)) as runtime:
        result = await runtime.run(a_job(outer), "q")
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(1), "the estimate of its own candidate"
    assert statuses(inner[0]) == ["eligible"] * 4 + ["budget_exceeded"]
    assert result.usage.charged == calls(1)


async def test_the_runtime_around_is_used_again_behind_one_within(
    autojump_clock: MockClock,
) -> None:
    """A candidate of an inner runtime starts a run on the outer one."""

    async def low(request: Any, ctx: Any) -> Any:
        return (await runtime.run(a_job(charge_one), request)).output

    async def outer(request: Any, ctx: Any) -> Any:
        async with open_runtime() as own:
            await own.run(a_job(low), request)
        return ctx.index

    async with open_runtime(budget=at_most(9)) as runtime:
        await runtime.run(a_job(outer, each=3), "q")
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(4), "the estimate of its candidate, and a run"


async def test_a_nested_run_on_a_closing_runtime_still_starts(autojump_clock: MockClock) -> None:
    async def outer(request: Any, ctx: Any) -> Any:
        await trio.sleep(1)
        return (await runtime.run(a_job(charge_one), request)).output

    async with open_runtime(budget=at_most(9)) as runtime:
        handle = runtime.start(a_job(outer, each=3), "q")
    result = await handle.result()
    assert statuses(result) == ["eligible"]
    assert result.usage.charged == calls(1)


async def test_a_hundred_nested_runs_of_one_candidate_add_up(autojump_clock: MockClock) -> None:
    async def outer(request: Any, ctx: Any) -> Any:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(runtime.run, a_job(charge_one, n=2), request)
        return ctx.index

    async with open_runtime(budget=at_most(100)) as runtime:
        result = await runtime.run(a_job(outer, each=100), "q")
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(100)
    assert len(result.candidates[0].nested) == 50
    assert result.usage.charged == calls(100)


async def test_sync_scorers_of_nested_runs_work_too() -> None:
    def score(request: Any, candidate: Any, ctx: Any) -> float:
        ctx.charge(calls(1))
        return float(candidate.output)

    async def outer(request: Any, ctx: Any) -> Any:
        job = a_job(charge_one, n=2, score=score, scoring_estimate=calls(1))
        return (await runtime.run(job, request)).output

    async with open_runtime(budget=at_most(9)) as runtime:
        result = await runtime.run(a_job(outer, each=4), "q")
        check_is_idle(runtime)
    assert (result.output, result.usage.charged) == (1, calls(4))


@pytest.mark.parametrize("stop", ["deadline", "cancel"])
async def test_no_nested_lease_outlives_the_stop_of_the_outer_run(
    autojump_clock: MockClock, stop: str
) -> None:
    async with open_runtime(budget=at_most(60)) as runtime:
        deep = Deep(runtime)

        async def slow(request: Any, ctx: Any) -> Any:
            await trio.sleep(0.5)
            return (await runtime.run(a_job(after(9), n=3), request)).output

        async def outer(request: Any, ctx: Any) -> Any:
            deep.ids.append(ctx.run_id)
            return (await runtime.run(a_job(slow, n=2, each=4), request)).output

        handle = runtime.start(a_job(outer, n=2, each=9, timeout=1), "q")
        if stop == "cancel":
            await trio.sleep(0.75)
            handle.cancel()
        result = await handle.result()
        assert runtime.detached == ()
        check_is_idle(runtime)
        assert runtime.usage.charged == result.usage.charged
        assert root(runtime).pools[0].spent[0] == result.usage.charged.model_calls
    # At the deadline a nested run comes back a little earlier, without anything to show.
    assert set(statuses(result)) == {"generation_failed" if stop == "deadline" else "cancelled"}
