"""Observers: each is called with everything, in order, one call at a time; and none of them
can hold a run up, change what it comes to, or be called after it returned (design §7).

Under virtual time but for the thread.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Event, in_thread, open_runtime
from tests.contract.scenes import (
    GRACE,
    PATIENCE,
    SLACK,
    AsyncRecord,
    Held,
    Record,
    Stubborn,
    after,
    job,
    statuses,
)

# -- one call at a time, in order -----------------------------------------------------------------


class Overlap(AsyncRecord):
    """An async observer of random slowness that notes how many calls of it are under way."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._random = random.Random(1)

    async def __call__(self, event: Event) -> None:  # type: ignore[override]
        self.now += 1
        self.most = max(self.most, self.now)
        await trio.sleep(self._random.random() / 1000)
        self.now -= 1
        self.events.append(event)


async def test_calls_never_overlap_and_come_in_order(autojump_clock: MockClock) -> None:
    record, slow = Record(), Overlap()
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=after(0.3, 0.1, 0.2, 0.0), n=32, max_concurrency=8),
            "q",
            observers=[record, slow],
        )
    assert slow.most == 1, f"{slow.most} calls of one observer at once"
    for observer in (record, slow):
        sequence = [event.sequence for event in observer.events]
        assert sequence == list(range(result.telemetry.events)), "a gap, a repeat or a swap"
    assert result.telemetry.events == 5 * 32 + 1
    assert result.telemetry.delivered == 2 * result.telemetry.events


async def test_a_slow_observer_does_not_slow_another_one_or_the_work(
    autojump_clock: MockClock,
) -> None:
    slow, seen_at = AsyncRecord(0.05), []

    async def quick(event: Event) -> None:
        seen_at.append(trio.current_time() - event.time)

    async with open_runtime(grace=60) as runtime:
        result = await runtime.run(job(generate=after(1)), "q", observers=[slow, quick])
    assert max(seen_at) == 0, "it had to wait for the slow one"
    assert slow.terminal.time == pytest.approx(1), "the work had to wait for it"
    assert result.elapsed == pytest.approx(21 * 0.05 + 1 - 8 * 0.05)


async def test_what_an_observer_causes_comes_after_what_it_is_being_told(
    autojump_clock: MockClock,
) -> None:
    inside = False
    orders: dict[str, list[int]] = {"first": [], "meddler": [], "last": []}

    def meddle(event: Event) -> None:
        nonlocal inside
        assert not inside, "it is called while it is in a call"
        inside = True
        orders["meddler"].append(event.sequence)
        if event.kind == "generated":
            handle.cancel()  # ends three candidates, so that there is much to tell
        inside = False

    def first(event: Event) -> None:
        orders["first"].append(event.sequence)

    def last(event: Event) -> None:
        orders["last"].append(event.sequence)

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 9)), "q", observers=[first, meddle, last])
        result = await handle.result()
    assert result.stop_reason == "cancelled"
    assert result.telemetry.observer_errors == 0
    for order in orders.values():
        assert order == list(range(result.telemetry.events))


async def test_an_observer_of_two_runs_is_not_called_inside_its_own_call(
    autojump_clock: MockClock,
) -> None:
    inside = False
    told: list[tuple[str, str]] = []
    contexts: dict[str, Any] = {}

    async def generate(request: Any, ctx: Any) -> Any:
        contexts[request] = ctx
        await trio.sleep(1 if request == "one" else 2)
        return 1

    def meddle(event: Event) -> None:
        nonlocal inside
        assert not inside, "it is called while it is in a call"
        inside = True
        told.append((event.run_id, event.kind))
        if (event.run_id, event.kind) == (one.run_id, "generated"):
            contexts["two"].emit("nudge")  # an event of the other run, which it is told of too
        inside = False

    async with open_runtime(observers=[meddle]) as runtime:
        one = runtime.start(job(generate=generate, n=1), "one")
        two = runtime.start(job(generate=generate, n=1), "two")
        results = [await one.result(), await two.result()]
    assert [result.telemetry.observer_errors for result in results] == [0, 0]
    at = told.index((one.run_id, "generated"))
    assert (two.run_id, "nudge") in told[at + 1 :]
    assert len(told) == 6 + 7


async def test_an_async_observer_may_wait_for_the_run_to_be_cancelled(
    autojump_clock: MockClock,
) -> None:
    async def meddle(event: Event) -> None:
        if event.kind == "generated":
            await trio.sleep(0.5)
            handle.cancel()

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 9)), "q", observers=[meddle])
        result = await handle.result()
    assert (result.stop_reason, result.elapsed) == ("cancelled", pytest.approx(0.6))


# -- slow, hung, raising --------------------------------------------------------------------------


async def _hangs(event: Event) -> None:
    await trio.sleep_forever()


async def _hangs_stubbornly(event: Event) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(9)


async def _crawls(event: Event) -> None:
    await trio.sleep(0.2)


def _raises(event: Event) -> None:
    raise ValueError("observer")


async def _raises_async(event: Event) -> None:
    await trio.lowlevel.checkpoint()
    raise ValueError("observer")


BAD = [_hangs, _hangs_stubbornly, _crawls, _raises, _raises_async]


@pytest.mark.parametrize("observer", BAD)
async def test_a_bad_observer_never_delays_the_deadline_and_changes_nothing(
    observer: Any, autojump_clock: MockClock
) -> None:
    one = job(generate=after(0.1, 0.2, 9), timeout=1)
    async with open_runtime() as runtime:
        alone = await runtime.run(one, "q", seed=1)
        watched = await runtime.run(one, "q", seed=1, observers=[observer])
    assert watched.elapsed <= 1 + GRACE
    assert statuses(watched) == statuses(alone)
    assert (watched.output, watched.selected_by) == (alone.output, alone.selected_by)
    assert (watched.stop_reason, watched.usage) == (alone.stop_reason, alone.usage)


@pytest.mark.parametrize("observer", BAD)
async def test_a_bad_observer_does_not_keep_a_good_one_from_being_told(
    observer: Any, autojump_clock: MockClock
) -> None:
    record, slow = Record(), AsyncRecord()
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=after(0.1)), "q", observers=[record, observer, slow]
        )
    for each in (record, slow):
        assert len(each.events) == result.telemetry.events == 21
        assert each.terminal.stop_reason == "completed"


@pytest.mark.parametrize("observer", [_raises, _raises_async])
async def test_failures_are_counted(observer: Any, autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[observer])
    assert result.telemetry.observer_errors == result.telemetry.events == 21
    assert result.telemetry.delivered == 0


@pytest.mark.parametrize("at", range(6))
async def test_one_failure_is_one_failure_and_the_telling_goes_on(
    at: int, autojump_clock: MockClock
) -> None:
    record = Record()

    def observe(event: Event) -> None:
        record(event)
        if event.sequence == at:
            raise ValueError

    async with open_runtime() as runtime:
        result = await runtime.run(job(n=1), "q", observers=[observe])
    assert (result.telemetry.observer_errors, len(record.events)) == (1, 6)
    assert result.output == 0


# -- after the end --------------------------------------------------------------------------------


@pytest.mark.parametrize("observer", [_hangs, _hangs_stubbornly, _crawls])
@pytest.mark.parametrize("end", ["completed", "deadline", "cancelled"])
async def test_no_callback_is_called_after_run_returned(
    end: str, observer: Any, autojump_clock: MockClock
) -> None:
    calls: list[float] = []

    async def observe(event: Event) -> None:
        calls.append(trio.current_time())
        await observer(event)

    async def generate(request: Any, ctx: Any) -> Any:
        calls.append(trio.current_time())
        await trio.sleep(0.1 if end == "completed" or ctx.index == 0 else 9)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        calls.append(trio.current_time())
        return candidate.output

    async with open_runtime() as runtime:
        handle = runtime.start(
            job(
                generate=generate,
                score=score,
                n=8,
                timeout=1 if end == "deadline" else None,
            ),
            "q",
            observers=[observe],
        )
        if end == "cancelled":
            await trio.sleep(1)
            handle.cancel()
        result = await handle.result()
        returned, calls_then = trio.current_time(), len(calls)
        await trio.sleep(20)
    assert result.stop_reason == end
    assert len(calls) == calls_then, f"called at {calls[calls_then:]}, after {returned}"


async def test_no_observer_is_called_for_what_a_detached_thread_tells_later(held: Held) -> None:
    record = Record()

    def generate(request: Any, ctx: Any) -> Any:
        held(request, ctx)
        ctx.emit("late")
        ctx.publish("late")

    held.indices = (0,)
    async with open_runtime(grace=0.05, exit_grace=0) as runtime:
        result = await runtime.run(
            job(generate=generate, n=1, timeout=0.1), "q", observers=[record]
        )
        told = list(record.events)
        held.release.set()
        await runtime.drain()
        await trio.sleep(0.01)
    assert record.events == told
    assert record.terminal.detached == (0,)
    assert result.elapsed < 0.1 + 0.05 + SLACK


async def test_the_tasks_of_a_runs_observers_end_with_it(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def observe(event: Event) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cut")

    async with open_runtime() as runtime:
        await runtime.run(job(), "q", observers=[observe])
        assert ended == ["cut"], "the call was still under way when run() returned"
        assert runtime.detached == ()


# -- observers of all runs ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Record, AsyncRecord])
async def test_a_runtimes_observer_is_told_of_every_run(
    kind: type[Record], autojump_clock: MockClock
) -> None:
    record = kind()
    async with open_runtime(observers=[record]) as runtime:
        handles = [runtime.start(job(generate=after(s)), "q") for s in (0.1, 0.2)]
        results = [await handle.result() for handle in handles]
    for result in results:
        own = [event for event in record.events if event.run_id == result.run_id]
        assert [event.sequence for event in own] == list(range(21)), "each run counts from 0"
        assert own[-1].kind == "finished"


async def test_a_runtimes_observer_that_hangs_holds_no_run(autojump_clock: MockClock) -> None:
    async with open_runtime(observers=[_hangs]) as runtime:
        for _ in range(3):
            result = await runtime.run(job(generate=after(1)), "q")
            assert result.elapsed <= 1 + GRACE
            assert result.telemetry.cut == 1


async def test_a_runtimes_observer_is_told_late_ends(autojump_clock: MockClock) -> None:
    record = AsyncRecord()
    async with open_runtime(observers=[record]) as runtime:
        await runtime.run(job(generate=Stubborn(5, 1), timeout=1), "q")
    assert record.kinds[-2:] == ["finished", "late_end"], "leaving the runtime cut it off"


async def test_an_observer_in_a_thread_that_hangs_is_cut() -> None:
    release = threading.Event()

    def observe(event: Event) -> None:
        release.wait(PATIENCE)

    try:
        async with open_runtime(grace=0.1) as runtime:
            result = await runtime.run(job(), "q", observers=[in_thread(observe)])
    finally:
        release.set()
    assert (result.telemetry.cut, result.output) == (1, 3)
    assert result.elapsed <= 0.1 + SLACK
