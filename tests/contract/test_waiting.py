"""Asks that wait for what others give back: fair, never for nothing, and gone with their asker.

Under virtual time. `Asks` in `tree.py` keeps who was answered what, and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import InvalidJob, RunHandle, Runtime, Usage, open_runtime
from tests.contract.scenes import Record, Stubborn, after, statuses
from tests.contract.tree import Asks, a_job, at_most, calls, check, check_is_idle, root


def waiting(runtime: Runtime) -> int:
    """How many asks wait at the runtime's own budget."""
    return len(root(runtime).pools[0].waiters)


# -- waiting helps --------------------------------------------------------------------------------


async def test_a_top_up_waits_until_another_candidate_gives_back(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(2, 0, before=(0.0, 3.0), then=1.0)
    async with open_runtime() as runtime:
        job = a_job(_reports_nothing(asks), n=2, each=2, budget=at_most(5))
        result = await runtime.run(job, "q")
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 4.0)}, "candidate 1 ended at 4"
    assert result.elapsed == 5
    assert statuses(result) == ["eligible"] * 2


def _reports_nothing(generate: Any) -> Callable[[Any, Any], Any]:
    """The same, but what it does not use of its lease comes back."""

    async def reports(request: Any, ctx: Any) -> Any:
        output = await generate(request, ctx)
        ctx.charge(Usage())
        return output

    return reports


async def test_a_top_up_waits_for_another_run(autojump_clock: MockClock) -> None:
    asks = Asks(3)
    async with open_runtime(budget=at_most(5)) as runtime:
        holder = runtime.start(a_job(_reports_nothing(after(2)), each=4), "q")
        await wait_all_tasks_blocked()
        result = await runtime.run(a_job(asks), "q")
        await holder.result()
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 2.0)}
    assert result.usage.charged == calls(4)


async def test_a_grant_is_good_for_what_it_covers(autojump_clock: MockClock) -> None:
    left: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        granted = await ctx.reserve(calls(3))
        left.append((granted, ctx.remaining().model_calls))
        ctx.charge(calls(4))
        return ctx.index

    async with open_runtime(budget=at_most(5)) as runtime:
        holder = runtime.start(a_job(_reports_nothing(after(2)), each=4), "q")
        await wait_all_tasks_blocked()
        result = await runtime.run(a_job(generate), "q")
        await holder.result()
    assert left == [(True, 4)]
    assert statuses(result) == ["eligible"]


async def test_asking_for_nothing_is_granted_at_once(autojump_clock: MockClock) -> None:
    asks: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        asks.append((await ctx.reserve(Usage()), trio.current_time()))
        return 1

    async with open_runtime(budget=at_most(1)) as runtime:
        await runtime.run(a_job(generate), "q")
    assert asks == [(True, 0.0)]


async def test_nonsense_is_refused_and_nothing_waits(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        with pytest.raises(InvalidJob, match="reserve"):
            await ctx.reserve(calls(-1))
        return 1

    async with open_runtime(budget=at_most(1)) as runtime:
        result = await runtime.run(a_job(generate), "q")
        check_is_idle(runtime)
    assert statuses(result) == ["eligible"]


# -- first come, first served ---------------------------------------------------------------------


async def test_a_small_late_ask_does_not_overtake_a_big_early_one(
    autojump_clock: MockClock,
) -> None:
    """6 are held, 2 are free: the one that asks for 1 would fit, and comes behind the 4."""
    asks = Asks(4, 1, before=(1.0, 2.0), then=0.0)
    async with open_runtime(budget=at_most(8)) as runtime:
        holder = runtime.start(a_job(_reports_nothing(after(3)), each=4), "q")
        await wait_all_tasks_blocked()
        assert (await runtime.run(a_job(asks, n=2), "q")).stop_reason == "completed"
        await holder.result()
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 3.0), 1: (True, 3.0)}, "it got 1 of the 2 free at 2"


async def test_a_new_candidate_does_not_overtake_a_top_up_that_waits(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(3, then=1.0)
    async with open_runtime(budget=at_most(6)) as runtime:
        holder = runtime.start(a_job(_reports_nothing(after(3)), each=3), "q")
        await wait_all_tasks_blocked()
        first = runtime.start(a_job(asks), "q")
        await trio.sleep(1)
        late = await runtime.run(a_job(after(0)), "q")  # 2 are free
        await holder.result()
        await first.result()
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 3.0)}
    assert late.elapsed == 2, "it was not made to wait behind who had come before"


async def test_a_new_candidate_does_not_overtake_a_top_up_that_waits_at_its_own_run(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(8, 0, before=(0.5, 1.0, 50.0))
    async with open_runtime() as runtime:
        job = a_job(asks, n=10, max_concurrency=3, budget=at_most(10))
        result = await runtime.run(job, "q")
        check_is_idle(runtime)
    started = result.candidates[3].started
    assert started is not None
    assert started > 1, "it got at 1 what candidate 0 had asked for at 0.5"
    assert asks.answers[0][1] <= 50


async def test_leases_are_granted_in_the_order_of_their_asking(autojump_clock: MockClock) -> None:
    began: list[str] = []

    def named(name: str) -> Callable[[Any, Any], Any]:
        async def generate(request: Any, ctx: Any) -> Any:
            began.append(name)
            await trio.sleep(1)
            ctx.charge(Usage())
            return 1

        return generate

    async with open_runtime(budget=at_most(1)) as runtime:
        handles = []
        for name in "abcde":
            handles.append(runtime.start(a_job(named(name)), "q"))
            await trio.sleep(0.1)
        for handle in handles:
            await handle.result()
        check_is_idle(runtime)
    assert "".join(began) == "abcde"


async def test_who_waits_at_one_run_does_not_hold_up_another(autojump_clock: MockClock) -> None:
    """The queue is that of the node which has no room: here of one account."""
    asks = Asks(2, then=1.0)
    async with open_runtime(budget=at_most(100)) as runtime:
        tight = runtime.account("tight", at_most(5))
        roomy = runtime.account("roomy", at_most(50))
        holder = runtime.start(a_job(_reports_nothing(after(9)), each=4), "q", account=tight)
        await wait_all_tasks_blocked()
        waiter = runtime.start(a_job(asks), "q", account=tight)
        await trio.sleep(1)
        free = await runtime.run(a_job(Asks(5)), "q", account=roomy)
        assert free.elapsed == 0
        await holder.result()
        await waiter.result()
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 9.0)}


# -- when waiting can't help ----------------------------------------------------------------------


async def test_an_ask_that_can_never_be_met_is_denied_at_once(autojump_clock: MockClock) -> None:
    asks = Asks(5, 0, then=3.0)
    async with open_runtime(budget=at_most(5)) as runtime:
        result = await runtime.run(a_job(asks, n=2), "q")  # 1 + 5 > 5, whatever candidate 1 does
        check_is_idle(runtime)
    assert asks.answers == {0: (False, 0.0)}
    assert statuses(result) == ["eligible"] * 2, "it returned normally"


async def test_an_ask_becomes_hopeless_when_what_it_waits_for_is_spent(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(3, 0, 0, before=(0.0, 2.0, 9.0), then=1.0)
    async with open_runtime(budget=at_most(5)) as runtime:
        await runtime.run(a_job(asks, n=3), "q")
        check_is_idle(runtime)
    # 3 leases of 1, and 3 more would be 6. At 3 candidate 1 has spent its 1: 1 + 1 + 3 fits, but
    # candidate 2 holds 1. At 10 that is spent, too.
    assert asks.answers == {0: (False, 10.0)}


async def test_when_all_wait_the_highest_index_is_denied_first_and_then_it_goes_on(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(2, before=(0.3, 0.2, 0.1, 0.0), then=1.0)
    async with open_runtime() as runtime:
        result = await runtime.run(a_job(_reports_nothing(asks), n=4, budget=at_most(5)), "q")
        check_is_idle(runtime)
    # 4 are held, 1 is free. At 0.3 all four wait: 3 is denied and works on, for a second.
    assert asks.answers[3] == (False, 0.3)
    # At 1.3 it gives 1 back: 2 are free, for who came first.
    assert asks.answers[2] == (True, 1.3)
    assert [asks.answers[index][0] for index in (0, 1)].count(True) <= 1
    assert sorted(asks.answers) == [0, 1, 2, 3], "everybody has an answer"
    assert statuses(result) == ["eligible"] * 4


async def test_one_after_the_other_is_denied_until_somebody_works(
    autojump_clock: MockClock,
) -> None:
    """Whoever is denied raises at once, and gives nothing back: it has spent its lease."""
    denied: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        await trio.sleep(0.1 * ctx.index)
        if not await ctx.reserve(calls(1)):
            denied.append(ctx.index)
            raise ValueError("no answer without another call")
        ctx.charge(calls(1))
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(generate, n=4, budget=at_most(4)), "q")
        check_is_idle(runtime)
    assert denied[0] == 3, "the highest index first"
    assert sorted(denied) == [0, 1, 2, 3], "4 were spent, so nobody could have more"
    assert statuses(result) == ["budget_exceeded"] * 4
    assert [type(candidate.error) for candidate in result.candidates] == [ValueError] * 4


async def test_a_candidate_alone_is_denied_at_once(autojump_clock: MockClock) -> None:
    asks = Asks(3)
    async with open_runtime() as runtime:
        job = a_job(asks, n=2, max_concurrency=1, budget=at_most(4))
        result = await runtime.run(job, "q")  # 1 + 3 fits; then 4 are spent, and 1 more asked for
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 0.0)}
    assert statuses(result) == ["eligible", "budget_exceeded"]


async def test_a_detached_holder_does_not_count_as_working(autojump_clock: MockClock) -> None:
    asks = Asks(3)
    async with open_runtime(budget=at_most(5)) as runtime:
        stuck = await runtime.run(a_job(Stubborn(50, 0), each=4, timeout=1), "q")
        assert stuck.candidates[0].detached
        began = trio.current_time()
        result = await runtime.run(a_job(asks), "q")
        assert asks.answers == {0: (False, began)}, "it waits for work that nobody counts on"
        await runtime.drain()
        check_is_idle(runtime)
    assert statuses(result) == ["eligible"]


async def test_who_waits_is_denied_when_the_last_that_works_is_detached(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(3)
    async with open_runtime(budget=at_most(5)) as runtime:
        stuck = runtime.start(a_job(Stubborn(50, 0), each=4, timeout=1), "q")
        await wait_all_tasks_blocked()
        await runtime.run(a_job(asks), "q")
        assert asks.answers[0][0] is False
        assert asks.answers[0][1] == pytest.approx(1.2), "that was given up after 1.2 s"
        assert (await stuck.result()).candidates[0].detached
        await runtime.drain()
        check_is_idle(runtime)


async def test_two_runs_that_wait_for_each_other_both_get_an_answer(
    autojump_clock: MockClock,
) -> None:
    first, second = Asks(3, before=0.25, then=1.0), Asks(3, before=0.5, then=1.0)
    async with open_runtime(budget=at_most(6)) as runtime:
        one = runtime.start(a_job(first, each=2), "q")
        two = runtime.start(a_job(second, each=2), "q")
        results = [await one.result(), await two.result()]
        check_is_idle(runtime)
    # 4 are held. At 0.5 both wait; the second is denied, and spends its 2 until 1.5.
    assert second.answers == {0: (False, 0.5)}
    assert first.answers == {0: (False, 1.5)}, "then 2 + 2 + 3 are more than 6"
    assert [result.stop_reason for result in results] == ["completed"] * 2


async def test_of_equal_indices_the_last_comer_is_denied(autojump_clock: MockClock) -> None:
    first, second = Asks(2, then=1.0), Asks(2, before=0.5, then=1.0)
    async with open_runtime(budget=at_most(5)) as runtime:
        one = runtime.start(a_job(_reports_nothing(first), each=2), "q")
        two = runtime.start(a_job(_reports_nothing(second), each=2), "q")
        await one.result()
        await two.result()
        check_is_idle(runtime)
    assert second.answers == {0: (False, 0.5)}, "then all wait, and it came last"
    assert first.answers[0] == (True, 1.5), "the other was denied, ended, and gave back"


async def test_a_candidate_that_waits_for_its_lease_is_denied_when_nobody_works(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(1, before=0.5)
    async with open_runtime(budget=at_most(5)) as runtime:
        one = runtime.start(a_job(asks, each=3), "q")
        await wait_all_tasks_blocked()
        two = await runtime.run(a_job(after(1), n=2, each=2), "q")
        await one.result()
        check_is_idle(runtime)
    # At 1 the 2 are spent and 3 are held by who waits; the candidate with the index 1 goes first.
    assert statuses(two) == ["eligible", "budget_exceeded"]
    assert two.elapsed == 1
    assert asks.answers == {0: (False, 1.0)}, "and now 2 + 3 + 1 can't be met any more"


# -- an asker that is told to stop leaves the queue -----------------------------------------------


class Scene:
    """A holder until 9; one who waits for its lease's widening; another one behind it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.asks, self.behind = Asks(5), Asks(1, then=0.5)

    async def begin(self, **parts: Any) -> tuple[RunHandle[Any], RunHandle[Any], RunHandle[Any]]:
        """Of a budget of 10, 5 + 1 are held; the first wants 5 more, the other 1 of the 4 left."""
        holder = self.runtime.start(a_job(_reports_nothing(after(9)), each=5), "q")
        await wait_all_tasks_blocked()
        first = self.runtime.start(a_job(self.asks, **parts), "q")
        await wait_all_tasks_blocked()
        second = self.runtime.start(a_job(self.behind), "q")
        await wait_all_tasks_blocked()
        assert waiting(self.runtime) == 2
        return holder, first, second

    async def end(self, *handles: RunHandle[Any]) -> None:
        for handle in handles:
            await handle.result()
        check_is_idle(self.runtime)


@pytest.mark.parametrize(
    ("parts", "at", "status"),
    [({"timeout": 2}, 2.0, "timed_out"), ({"candidate_timeout": 3}, 3.0, "timed_out")],
    ids=["deadline", "candidate_timeout"],
)
async def test_a_waiter_whose_time_is_up_lets_the_next_go(
    autojump_clock: MockClock, parts: dict[str, Any], at: float, status: str
) -> None:
    async with open_runtime(budget=at_most(10)) as runtime:
        scene = Scene(runtime)
        holder, first, second = await scene.begin(**parts)
        result = await first.result()
        await scene.end(holder, second)
    assert statuses(result) == [status]
    assert result.elapsed == at
    assert scene.behind.answers == {0: (True, at)}
    assert scene.asks.answers == {}, "a cancelled ask was answered"
    assert result.usage.charged == calls(1), "what it had waited for was charged"


async def test_a_waiter_that_is_cancelled_by_its_handle_lets_the_next_go(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(budget=at_most(10)) as runtime:
        scene = Scene(runtime)
        holder, first, second = await scene.begin()
        await trio.sleep(1)
        first.cancel()
        result = await first.result()
        await scene.end(holder, second)
    assert statuses(result) == ["cancelled"]
    assert scene.behind.answers == {0: (True, 1.0)}


async def test_a_waiter_that_is_cancelled_by_its_caller_lets_the_next_go(
    autojump_clock: MockClock,
) -> None:
    asks, behind = Asks(5), Asks(1)
    async with open_runtime(budget=at_most(10)) as runtime:
        holder = runtime.start(a_job(_reports_nothing(after(9)), each=5), "q")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, a_job(asks), "q")
            await wait_all_tasks_blocked()
            second = runtime.start(a_job(behind), "q")
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        await second.result()
        await holder.result()
        check_is_idle(runtime)
    assert behind.answers == {0: (True, 1.0)}


async def test_waiters_end_with_the_scope_around_the_runtime(autojump_clock: MockClock) -> None:
    asks = Asks(5)
    with trio.CancelScope() as scope:
        async with open_runtime(budget=at_most(10)) as runtime:
            holder = runtime.start(a_job(after(9), each=5), "q")
            await wait_all_tasks_blocked()
            first = runtime.start(a_job(asks), "q")
            await wait_all_tasks_blocked()
            lease = runtime.start(a_job(each=9), "q")
            await trio.sleep(1)
            assert waiting(runtime) == 2
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == 1
    assert statuses(await first.result()) == ["cancelled"]
    assert statuses(await lease.result()) == ["skipped"]
    assert statuses(await holder.result()) == ["cancelled"]
    check_is_idle(runtime)


async def test_a_cancelled_ask_of_a_nursery_inside_a_candidate_leaves_the_queue(
    autojump_clock: MockClock,
) -> None:
    later: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        with trio.move_on_after(1) as scope:
            await ctx.reserve(calls(5))
        assert scope.cancelled_caught
        assert waiting(runtime) == 0
        later.append((await ctx.reserve(calls(1)), trio.current_time()))
        return 1

    async with open_runtime(budget=at_most(10)) as runtime:
        holder = runtime.start(a_job(after(9), each=6), "q")
        await wait_all_tasks_blocked()
        result = await runtime.run(a_job(generate), "q")
        assert later == [(True, 1.0)]
        assert statuses(result) == ["eligible"], "a cancelled ask is no denied one"
        await holder.result()
        check_is_idle(runtime)


async def test_two_asks_of_one_candidate_at_once_are_two(autojump_clock: MockClock) -> None:
    granted: list[tuple[int, float]] = []

    async def generate(request: Any, ctx: Any) -> Any:
        async def ask(more: int) -> None:
            if await ctx.reserve(calls(more)):
                granted.append((more, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 3)
            await wait_all_tasks_blocked()
            nursery.start_soon(ask, 2)
        assert ctx.remaining().model_calls == 6
        ctx.charge(Usage())
        return 1

    async with open_runtime(budget=at_most(6)) as runtime:
        holder = runtime.start(a_job(_reports_nothing(after(9)), each=4), "q")
        await wait_all_tasks_blocked()
        await runtime.run(a_job(generate), "q")
        await holder.result()
        check_is_idle(runtime)
    assert sorted(granted) == [(2, 9.0), (3, 9.0)]


# -- candidates that wait for a lease -------------------------------------------------------------


async def test_stop_after_current_takes_those_that_wait_for_a_lease_out(
    autojump_clock: MockClock,
) -> None:
    began: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        began.append(ctx.index)
        await trio.sleep(2)
        return ctx.index

    async with open_runtime(budget=at_most(3)) as runtime:
        holder = runtime.start(a_job(_reports_nothing(after(1.5)), each=2), "q")
        await wait_all_tasks_blocked()
        handle = runtime.start(a_job(generate, n=4), "q")
        await trio.sleep(1)
        assert waiting(runtime) == 3
        handle.stop_after_current()
        assert waiting(runtime) == 0
        result = await handle.result()
        await holder.result()
        check_is_idle(runtime)
    assert began == [0]
    assert statuses(result) == ["eligible", *["skipped"] * 3]
    assert (result.stop_reason, result.elapsed) == ("stopped", 2)


async def test_a_run_of_which_all_wait_ends_at_once_by_stop_after_current(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(budget=at_most(3)) as runtime:
        holder = runtime.start(a_job(after(5), each=3), "q")
        await wait_all_tasks_blocked()
        handle = runtime.start(a_job(n=4), "q")
        await trio.sleep(1)
        handle.stop_after_current()
        result = await handle.result()
        assert (result.stop_reason, result.elapsed) == ("stopped", 1)
        assert statuses(result) == ["skipped"] * 4
        await holder.result()
        check_is_idle(runtime)


def _cancels(handle: RunHandle[Any]) -> None:
    handle.cancel()


def _stops(handle: RunHandle[Any]) -> None:
    handle.stop_after_current()


@pytest.mark.parametrize("stop", [_cancels, _stops, None], ids=["cancel", "stop", "deadline"])
async def test_a_grant_is_handed_back_if_its_candidate_may_not_start_any_more(
    autojump_clock: MockClock, stop: Callable[[RunHandle[Any]], None] | None
) -> None:
    """The lease is granted, and before its candidate gets the loop its run is over."""
    began: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        began.append(ctx.index)
        return ctx.index

    record = Record()
    async with open_runtime(budget=at_most(3)) as runtime:

        async def gives_back(request: Any, ctx: Any) -> Any:
            await trio.sleep(1)
            ctx.charge(Usage())
            return 1

        def see(event: Any) -> None:
            if event.kind == "ended":  # its lease was settled in this very step
                assert waiting(runtime) == 0, "it was not granted"
                assert root(runtime).pools[0].open == 1
                if stop is None:
                    autojump_clock.jump(2)
                else:
                    stop(waiter)

        holder = runtime.start(a_job(gives_back, each=3), "q", observers=[see])
        await wait_all_tasks_blocked()
        waiter = runtime.start(a_job(generate, timeout=2), "q", observers=[record])
        await holder.result()
        result = await waiter.result()
        check_is_idle(runtime)
        assert runtime.usage.charged == Usage()
    assert began == [], "it started after it was told to stop"
    assert statuses(result) == ["skipped"]
    assert record.of(0) == [], "what never started has no events"
    reasons = {_cancels: "cancelled", _stops: "stopped", None: "deadline"}
    assert result.stop_reason == reasons[stop]


async def test_a_top_up_that_was_granted_to_who_is_cancelled_in_the_same_step_is_given_back(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(budget=at_most(3)) as runtime:

        def see(event: Any) -> None:
            if event.kind == "ended":
                assert waiting(runtime) == 0, "it was not granted"
                waiter.cancel()

        holder = runtime.start(a_job(_reports_nothing(after(1)), each=2), "q", observers=[see])
        await wait_all_tasks_blocked()
        waiter = runtime.start(a_job(Asks(2, then=5.0)), "q")
        await holder.result()
        result = await waiter.result()
        check_is_idle(runtime)
    assert statuses(result) == ["cancelled"]
    assert result.elapsed == 1


async def test_waiting_takes_no_slot_of_others_and_ends_in_index_order_records(
    autojump_clock: MockClock,
) -> None:
    record = Record()
    async with open_runtime(budget=at_most(2)) as runtime:
        job = a_job(_reports_nothing(after(1)), n=6, max_concurrency=6)
        result = await runtime.run(job, "q", observers=[record])
        check_is_idle(runtime)
    assert result.elapsed == 3
    assert [candidate.index for candidate in result.candidates] == list(range(6))
    assert [candidate.started for candidate in result.candidates] == [0, 0, 1, 1, 2, 2]
    for index in range(6):
        assert record.of(index) == ["started", "leased", "generated", "scored", "ended"]


async def test_a_lease_that_waits_does_not_outlive_its_run(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(1)) as runtime:
        holder = runtime.start(a_job(after(9)), "q")
        await wait_all_tasks_blocked()
        for _ in range(5):
            result = await runtime.run(a_job(n=3, timeout=0.5), "q")
            assert statuses(result) == ["skipped"] * 3
            assert waiting(runtime) == 0
            check(runtime)
        await holder.result()
        check_is_idle(runtime)
