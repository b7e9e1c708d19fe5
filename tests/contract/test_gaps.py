"""The known weaknesses of best-of-N runtimes that speak of runs, budgets and observers, by name.

Each test is the row of the same number; most are under virtual time. What of a row speaks of tool
loops (09) or of votes and batches is tested where those are.
"""
# ruff: noqa: N802  (tests are named after their rows)

from __future__ import annotations

import itertools
import random
import threading
import time
from decimal import Decimal
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import (
    LeaseExceeded,
    ObserverFailed,
    Usage,
    first_accepted,
    open_runtime,
    target,
)
from hortator.protocols.errors import SideEffectBlocked
from tests.contract.scenes import (
    AsyncRecord,
    Held,
    Record,
    after,
    echo,
    job,
    statuses,
)
from tests.contract.tree import Asks, a_job, at_most, calls, check_is_idle

# 01: cancel and deadline reach what is in flight, everywhere


async def test_GAP_01_a_deadline_cuts_a_call_in_flight_and_the_client_sees_it(
    autojump_clock: MockClock,
) -> None:
    seen: list[tuple[str, float]] = []

    async def call() -> None:
        try:
            await trio.sleep(0.4)
        except trio.Cancelled:
            seen.append(("cancelled", trio.current_time()))
            raise

    async def generate(request: Any, ctx: Any) -> Any:
        async with trio.open_nursery() as nursery:  # however deep it is
            nursery.start_soon(call)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=0.05), "q")
    assert (result.stop_reason, result.elapsed) == ("deadline", 0.05)
    assert statuses(result) == ["timed_out"]
    assert seen == [("cancelled", 0.05)]


async def test_GAP_01_a_deadline_cuts_scoring_and_nested_runs_too(
    autojump_clock: MockClock,
) -> None:
    async def slow_score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.sleep(9)
        return 1.0

    async def nested(request: Any, ctx: Any) -> Any:
        await runtime.run(job(generate=after(9), timeout=99), request)
        await trio.sleep(9)

    async with open_runtime() as runtime:
        scoring = await runtime.run(job(score=slow_score, timeout=0.5), "q")
        outer = await runtime.run(job(generate=nested, timeout=0.5), "q")
        assert runtime.detached == ()
    for result in (scoring, outer):
        assert statuses(result) == ["timed_out"] * 4
        assert result.elapsed == 0.5


async def test_GAP_01_a_blocking_callback_does_not_hold_the_run_up(held: Held) -> None:
    held.indices = (0,)
    async with open_runtime() as runtime:
        began = time.monotonic()
        result = await runtime.run(job(generate=held, n=1, timeout=0.05, grace=0.1), "q")
        took = time.monotonic() - began
        assert result.candidates[0].detached
        held.release.set()
        await runtime.drain()
    assert took < 1.5


# 02: grace, tracked leftovers


async def test_GAP_02_a_cooperative_candidate_is_cancelled_and_not_detached(
    autojump_clock: MockClock,
) -> None:
    undone: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            with ctx.cleanup():
                await trio.sleep(0.1)
                undone.append(ctx.index)

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate), "q")
        await trio.sleep(1)
        handle.cancel()
        result = await handle.result()
        assert runtime.detached == ()
    assert statuses(result) == ["cancelled"] * 4
    assert sorted(undone) == [0, 1, 2, 3], "its `finally` did not run to its end"


async def test_GAP_02_what_is_left_is_tracked_until_its_end(autojump_clock: MockClock) -> None:
    record = Record()

    async def stubborn(request: Any, ctx: Any) -> Any:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        ctx.charge(calls(2))

    async with open_runtime(observers=[record]) as runtime:
        result = await runtime.run(a_job(stubborn, each=3, timeout=1, budget=at_most(3)), "q")
        (left,) = runtime.detached
        assert (left.run_id, left.candidate, left.ended) == (result.run_id, 0, False)
        assert await runtime.drain() == ()
        (left,) = runtime.reap()
        assert left.ended
        assert left.late_usage is not None
        assert runtime.usage.charged == left.late_usage
        check_is_idle(runtime)
    assert record.kinds[-1] == "late_end"


# 03: anytime


async def test_GAP_03_one_eligible_and_a_timeout_is_a_partial_result(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=after(0.1, 9), timeout=1), "q")
    assert result.selected is result.candidates[0]
    assert (result.partial, result.stop_reason, result.output) == (True, "deadline", 0)


async def test_GAP_03_a_cut_candidate_keeps_its_request_output_and_usage(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        request.append(ctx.index)
        ctx.charge(Usage(total_tokens=10))
        ctx.publish(f"half of {ctx.index}")
        await trio.sleep(9)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=2, timeout=1), ["q"])
    for index, candidate in enumerate(result.candidates):
        assert candidate.request == ["q", index]
        assert (candidate.output, candidate.partial) == (f"half of {index}", True)
        assert candidate.usage.total_tokens == 10


async def test_GAP_03_an_interrupted_run_may_be_told_to_fail(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        late = job(generate=after(0.1, 9), timeout=1, on_early_stop="fail")
        result = await runtime.run(late, "q")
    assert result.selected is None
    assert "eligible" in statuses(result)


async def test_GAP_03_a_spent_budget_still_selects(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(2)) as runtime:
        result = await runtime.run(a_job(n=5), "q")
    assert (result.output, result.partial, result.stop_reason) == (1, True, "budget_exceeded")


# 04: leases


async def test_GAP_04_an_over_hungry_candidate_is_stopped_and_the_others_finish(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        for _ in range(10 if ctx.index == 3 else 1):
            ctx.charge(calls(1))
            await trio.sleep(0.1)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(generate, n=4, each=2, budget=at_most(8)), "q")
    assert statuses(result) == ["eligible"] * 3 + ["budget_exceeded"]
    assert isinstance(result.candidates[3].error, LeaseExceeded)
    assert result.candidates[3].usage == calls(3), "stopped at the first call past its lease"
    assert result.output == 2


async def test_GAP_04_who_is_denied_waits_for_releases_and_poisons_nobody(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(4, 0, before=(0.0, 1.0), then=0.5)

    async def reports(request: Any, ctx: Any) -> Any:
        output = await asks(request, ctx)
        ctx.charge(calls(0))
        return output

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(reports, n=2, each=3, budget=at_most(8)), "q")
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 1.5)}
    assert result.stop_reason == "completed"


async def test_GAP_04_a_malformed_report_poisons_nobody(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 0:
            ctx.charge(Usage(total_tokens=-5))
        return ctx.index

    async with open_runtime(budget=at_most(4)) as runtime:
        result = await runtime.run(a_job(generate, n=4), "q")
    assert statuses(result) == ["eligible"] * 4
    assert [each.candidate for each in result.usage.malformed] == [0]


# 05: one ledger


async def test_GAP_05_every_call_is_charged_whoever_makes_it(autojump_clock: MockClock) -> None:
    made = 0

    async def model(ctx: Any) -> None:
        nonlocal made
        made += 1
        ctx.charge(calls(1))
        await trio.lowlevel.checkpoint()

    async def solve(request: Any, ctx: Any) -> Any:
        await model(ctx)
        return ctx.index

    async def judge(request: Any, candidate: Any, ctx: Any) -> Any:
        await model(ctx)
        return candidate.output

    async def plan(request: Any, ctx: Any) -> Any:
        await model(ctx)
        steps = [a_job(solve, n=2, score=judge, scoring_estimate=calls(1)) for _ in range(2)]
        for step in steps:
            await runtime.run(step, request)
        await model(ctx)
        return ctx.index

    async with open_runtime(budget=at_most(100)) as runtime:
        whole = a_job(plan, n=3, each=12, score=judge, scoring_estimate=calls(1))
        result = await runtime.run(whole, "q")
        check_is_idle(runtime)
    assert made == 3 * (1 + 2 * 4 + 1 + 1)
    assert result.usage.charged == calls(made)
    assert sum(leaf.charged.model_calls for leaf in result.attribution.leaves()) == made


async def test_GAP_05_no_call_is_free_under_a_limit_of_zero(autojump_clock: MockClock) -> None:
    made: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        made.append(ctx.index)

    async with open_runtime(budget=at_most(0)) as runtime:
        result = await runtime.run(a_job(generate, n=3), "q")
    assert made == []
    assert statuses(result) == ["budget_exceeded"] * 3


# 06: three views that agree


async def test_GAP_06_reported_charged_and_outstanding_are_exact(
    autojump_clock: MockClock,
) -> None:
    cent = Usage(cost="0.1", model_calls=1)

    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 0:
            for _ in range(3):  # 0.1 + 0.1 + 0.1 is 0.3
                ctx.charge(Usage(cost="0.1"))
        elif ctx.index == 1:
            raise ValueError("failed, and had spent its estimate for all we know")
        elif ctx.index == 2:
            ctx.charge(Usage(cost=float("nan")))
        else:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(generate, n=4, estimate=cent, timeout=1), "q")
        usage = result.usage
        assert usage.reported.cost == Decimal("0.3")
        assert usage.charged.cost == Decimal("0.5")
        assert usage.outstanding.cost == Decimal("0.1")
        assert [each.what for each in usage.malformed] == ["cost=NaN"]
        await runtime.drain()
        assert runtime.usage.outstanding == Usage()
        assert runtime.usage.charged.cost == Decimal("0.6"), "settled when its work ended"
    assert result.usage == usage


async def test_GAP_06_what_was_charged_before_a_failure_is_not_guessed(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(Usage(total_tokens=7))
        raise ValueError

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(generate, estimate=Usage(total_tokens=100)), "q")
    assert result.usage.charged.total_tokens == 7
    assert result.usage.estimated == 0


# 07: isolation by effect class


async def test_GAP_07_reads_run_in_isolation_and_writes_do_not(autojump_clock: MockClock) -> None:
    done: list[str] = []

    async def generate(request: Any, ctx: Any) -> Any:
        async with ctx.effect("look", "read"):
            done.append("read")
        if ctx.index == 1:
            async with ctx.effect("send", "write"):
                done.append("write")
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=2), "q")
        allowed = await runtime.run(job(generate=generate, n=2, side_effects="allow"), "q")
    assert statuses(result) == ["eligible", "side_effect_blocked"]
    assert isinstance(result.candidates[1].error, SideEffectBlocked)
    assert statuses(allowed) == ["eligible", "eligible"]
    assert (done.count("read"), done.count("write")) == (4, 1)


# 08: stop early


@pytest.mark.parametrize("stop", [target(2), first_accepted()], ids=["target", "first"])
async def test_GAP_08_an_early_exit_cancels_the_rest_and_shows_what_was_saved(
    autojump_clock: MockClock, stop: Any
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(1 + abs(ctx.index - 2))  # candidate 2 first
        ctx.charge(calls(1))
        return ctx.index

    async with open_runtime() as runtime:
        early = a_job(generate, n=5, max_concurrency=4, stop=stop, budget=at_most(5))
        result = await runtime.run(early, "q")
        check_is_idle(runtime)
    assert (result.output, result.elapsed, result.partial) == (2, 1, False)
    assert statuses(result)[4] == "skipped"
    assert statuses(result).count("cancelled") >= 2
    assert result.candidates[4].usage == Usage(), "saved"
    assert result.usage.charged.model_calls < 5


# 10: one ordered stream, one terminal event


@pytest.mark.parametrize("seed", range(5))
async def test_GAP_10_order_uniqueness_one_terminal_and_every_parent_is_there(
    autojump_clock: MockClock, seed: int
) -> None:
    chance = random.Random(seed)
    record, slow = Record(), AsyncRecord(0.01)

    async def generate(request: Any, ctx: Any) -> Any:
        ctx.emit("token", text="a")
        await trio.sleep(chance.choice((0.0, 0.1, 0.2)))
        if chance.random() < 0.3:
            raise ValueError
        if ctx.run_id.count("/") < 1 and chance.random() < 0.5:
            await runtime.run(job(generate=generate, n=2), request)
        return ctx.index

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=generate, n=6), "q", observers=[record, slow])
        if seed % 2:
            await trio.sleep(0.15)
            handle.cancel()
        await handle.result()
    events = [*record.events, *record.nested]
    runs = {event.run_id for event in events}
    for run in runs:
        told = [event for event in events if event.run_id == run]
        assert [event.sequence for event in told] == list(range(len(told)))
        assert [event.terminal for event in told] == [False] * (len(told) - 1) + [True]
        assert [event.time for event in told] == sorted(event.time for event in told)
        parent = run.rpartition("/")[0]
        assert not parent or parent in runs, f"{run} has no parent among {runs}"
        if parent:
            index = int(run.rpartition("/")[2].partition(".")[0])
            began = [e for e in events if e.run_id == parent and e.candidate == index]
            assert began[0].kind == "started"
            assert began[0].time <= told[0].time
    mine = [event for event in slow.events if event.run_id == record.events[0].run_id]
    assert [event.sequence for event in mine] == list(range(len(mine))), "out of order"


async def test_GAP_10_events_from_threads_join_the_same_order() -> None:
    record = Record()
    together = threading.Barrier(4, timeout=5)

    def generate(request: Any, ctx: Any) -> Any:
        together.wait()
        for number in range(20):
            ctx.emit("step", number=number)
        return ctx.index

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate), "q", observers=[record])
    assert [event.sequence for event in record.events] == list(range(len(record.events)))
    assert record.terminal.sequence == len(record.events) - 1
    for index in range(4):
        steps = [
            e.data["number"] for e in record.events if e.kind == "step" and e.candidate == index
        ]
        assert steps == list(range(20))


# 11: the tie set


async def test_GAP_11_a_chain_never_selects_below_the_best_less_the_tolerance(
    autojump_clock: MockClock,
) -> None:
    scores = [1.0, 0.93, 0.86, 0.79, 0.72, 0.64]
    chosen = set()
    for order in itertools.permutations(range(6), 6):
        if order[0] > order[1]:  # half of them are enough
            continue

        async def generate(request: Any, ctx: Any, order: Any = order) -> Any:
            ctx.charge(Usage(total_tokens=10 - ctx.index))  # the worse, the cheaper
            return scores[ctx.index]

        if order[2] < order[3] < order[4]:
            async with open_runtime() as runtime:
                tied = job(
                    generate=generate,
                    n=6,
                    tie_tolerance=0.1,
                    max_concurrency=1 + order[5] % 3,
                )
                chosen.add((await runtime.run(tied, "q")).output)
    assert chosen == {0.93}, "the cheapest within the tolerance of the best, whatever the order"


# 12: observers off the critical path


async def test_GAP_12_a_slow_observer_does_not_overrun_the_deadline(
    autojump_clock: MockClock,
) -> None:
    slow = AsyncRecord(0.3)
    async with open_runtime() as runtime:
        quick = await runtime.run(
            job(generate=after(9), timeout=0.04, grace=0.0), "q", observers=[slow]
        )
        assert quick.elapsed == 0.04
        result = await runtime.run(job(generate=after(9), timeout=0.04), "q", observers=[slow])
    assert result.elapsed <= 0.04 + 0.25 + 1e-9
    assert result.telemetry.cut + result.telemetry.dropped > 0, "what it missed is not told"


async def test_GAP_12_a_failing_observer_fails_nothing(autojump_clock: MockClock) -> None:
    def fails(event: Any) -> None:
        raise ValueError(event.kind)

    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[fails])
    assert result.stop_reason == "completed"
    assert result.telemetry.observer_errors == result.telemetry.events


@pytest.mark.parametrize("kind", ["started", "generated", "ended", "finished"])
async def test_GAP_12_strict_mode_raises_whatever_the_event(
    autojump_clock: MockClock, kind: str
) -> None:
    def fails(event: Any) -> None:
        if event.kind == kind:
            raise ValueError(kind)

    async with open_runtime(budget=at_most(4)) as runtime:
        with pytest.raises(ObserverFailed) as caught:
            await runtime.run(a_job(n=4), "q", observers=[fails], on_observer_error="raise")
        check_is_idle(runtime)
    assert caught.value.result is not None
    assert "generation_failed" not in statuses(caught.value.result)


async def test_GAP_12_a_nested_runs_events_fail_the_strict_run_around_it(
    autojump_clock: MockClock,
) -> None:
    """The observer answers to the run that it belongs to: that one is strict."""

    def fails(event: Any) -> None:
        if "/" in event.run_id and event.kind == "generated":
            raise ValueError(event.kind)

    async def outer(request: Any, ctx: Any) -> Any:
        await runtime.run(job(n=1), request)
        await trio.sleep(9)

    async with open_runtime() as runtime:
        with pytest.raises(ObserverFailed) as caught:
            await runtime.run(
                job(generate=outer, n=1), "q", observers=[fails], on_observer_error="raise"
            )
        assert trio.current_time() < 9
    assert caught.value.result.stop_reason == "observer_failed"


# 32: live control


async def test_GAP_32_a_snapshot_tells_how_far_it_is_and_what_it_cost(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(budget=at_most(3)) as runtime:
        handle = runtime.start(a_job(after(1, 2, 3), n=4), "q")
        await trio.sleep(2.5)
        snapshot = handle.snapshot()
        told = {str(status): count for status, count in snapshot.statuses.items()}
        assert told == {"eligible": 2, "generating": 1, "pending": 1}
        assert (snapshot.best, snapshot.elapsed, snapshot.stop_reason) == (1, 2.5, None)
        assert (snapshot.usage.charged, snapshot.usage.outstanding) == (calls(2), calls(1))
        await handle.result()


async def test_GAP_32_stop_after_current_lowers_n_while_it_runs(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1), n=9, max_concurrency=2), "q")
        await trio.sleep(1.5)
        handle.stop_after_current()
        result = await handle.result()
    assert statuses(result) == ["eligible"] * 4 + ["skipped"] * 5
    assert (result.stop_reason, result.output, result.elapsed) == ("stopped", 3, 2)


async def test_GAP_32_events_and_candidates_are_iterated_while_it_runs(
    autojump_clock: MockClock,
) -> None:
    ended: list[int] = []
    kinds: list[str] = []

    async def watch() -> None:
        async with handle.candidates() as candidates:
            async for candidate in candidates:
                ended.append(candidate.index)
                if len(ended) == 2:
                    break  # leaving early is an unsubscribe
        handle.stop_after_current()

    async def listen() -> None:
        async with handle.events() as events:
            async for event in events:
                kinds.append(type(event).__name__)

    async with open_runtime() as runtime, trio.open_nursery() as nursery:
        handle = runtime.start(job(generate=after(3, 2, 1, 4), n=6, max_concurrency=4), "q")
        await wait_all_tasks_blocked()
        nursery.start_soon(watch)
        nursery.start_soon(listen)
        result = await handle.result()
    assert ended == [2, 1]
    assert kinds[0] == "Snapshot", "who comes late gets one first"
    assert kinds[-1] == "RunFinished"
    assert result.stop_reason == "completed", "all had begun, so nobody was kept from anything"


# 33: no polling, thousands of candidates


async def test_GAP_33_a_thousand_candidates_take_less_than_a_second() -> None:
    began = time.process_time()
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=echo, n=1000, max_concurrency=1000), "q")
    assert result.output == 999
    assert time.process_time() - began < 1.0


async def test_GAP_33_who_waits_is_woken_and_does_not_poll(autojump_clock: MockClock) -> None:
    """Virtual time jumps only when every task waits: it would not jump over a polling one."""
    steps = 0

    class Count(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += 1

    asks = Asks(3)
    async with open_runtime(budget=at_most(5)) as runtime:
        holder = runtime.start(a_job(after(3600), each=4), "q")
        await wait_all_tasks_blocked()
        waiting = [runtime.start(a_job(asks), "q"), runtime.start(a_job(n=9), "q")]
        await wait_all_tasks_blocked()
        counter = Count()
        trio.lowlevel.add_instrument(counter)
        await trio.sleep(3599)
        assert steps < 5, "somebody looks again and again"
        trio.lowlevel.remove_instrument(counter)
        for handle in (holder, *waiting):
            await handle.result()
        check_is_idle(runtime)


async def test_GAP_33_no_task_or_thread_for_each_candidate(autojump_clock: MockClock) -> None:
    threads = threading.active_count()
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1), n=5000, max_concurrency=10), "q")
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living < 40
        assert threading.active_count() == threads
        handle.cancel()
        await handle.result()
