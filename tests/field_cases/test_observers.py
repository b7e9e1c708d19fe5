"""B08, B29, B31: an observer gets events in order, one at a time, and holds up nothing.

Virtual time, but for observers in threads.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import gc
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Event, in_thread, open_runtime
from hortator.actors.observer import HARD_LIMIT, SOFT_LIMIT
from hortator.protocols.events import Emitted
from tests.field_cases.scenes import (
    CALLERS,
    DOORS,
    GRACE,
    SLACK,
    Hold,
    Record,
    Slow,
    job_of,
    statuses,
    stopped,
)


def check_telemetry(result: Any, observers: int) -> None:
    """Assert that each event was delivered, dropped, or raised on, for each observer."""
    telling = result.telemetry
    told = telling.delivered + telling.dropped + telling.observer_errors
    assert told == observers * telling.events, f"events are not accounted for: {telling}"


async def thousand_deltas(request: str, ctx: Any) -> None:
    if ctx.index == 0:
        for number in range(1000):
            ctx.emit("delta", number=number)
    await trio.sleep_forever()


# B08: after a cancel an observer's queue is drained within the grace, or cut and counted


@pytest.mark.parametrize("door", DOORS)
async def test_B08_a_queue_that_is_too_long_is_cut_at_the_grace_and_counted(
    door: str, autojump_clock: MockClock
) -> None:
    slow = Slow(1.0)
    async with stopped(door, job_of(thousand_deltas), at=9.5, watchers=[slow]) as run:
        expected = 0.9 * GRACE if door == "outer deadline" else GRACE
        assert run.late == pytest.approx(expected), "the queue held the run"
        run.record.check()
        assert len(run.record.events) > 1000
        assert len(slow.done) == 9
        assert len(slow.begun) == 10
        await trio.sleep(100)
        assert len(slow.begun) == 10, "the observer was called after the return"
        if run.result is not None:
            telling = run.result.telemetry
            assert (telling.cut, telling.dropped) == (1, telling.events - 9)
            check_telemetry(run.result, 2)


@pytest.mark.parametrize("door", DOORS)
async def test_B08_a_queue_that_fits_into_the_grace_is_drained(
    door: str, autojump_clock: MockClock
) -> None:
    quick = Slow(0.0001)

    async def generate(request: str, ctx: Any) -> None:
        await trio.sleep(4.99)
        await thousand_deltas(request, ctx)

    async with stopped(door, job_of(generate), at=5, watchers=[quick]) as run:
        assert 0.08 < run.late < 0.1
        assert quick.done == run.record.events, "an event is missing, or out of order"
        assert quick.done[-1].terminal
        if run.result is not None:
            assert (run.result.telemetry.cut, run.result.telemetry.dropped) == (0, 0)


@pytest.mark.parametrize("door", DOORS)
async def test_B08_a_runtimes_observer_is_cut_too_and_free_for_the_next_run(
    door: str, autojump_clock: MockClock
) -> None:
    slow = Slow(1.0)
    async with stopped(door, job_of(thousand_deltas), at=9.5, observers=[slow]) as run:
        expected = 0.9 * GRACE if door == "outer deadline" else GRACE
        assert run.late == pytest.approx(expected)
        assert (len(slow.done), len(slow.begun)) == (9, 10)
        if door == "the runtime's scope":
            return  # no other run can be started on it
        began = trio.current_time()
        handle = run.runtime.start(job_of(thousand_deltas), "q")
        await trio.sleep(0.1)
        assert slow.begun[10:], "it is still busy with the run that is over"
        assert slow.begun[10].run_id == handle.run_id
        assert slow.begun[10].time == began
        handle.cancel()
        await handle.result()


async def test_B08_a_slow_reader_of_events_finds_a_bounded_rest_and_the_terminal_event(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job_of(thousand_deltas), "q")
        got: list[Any] = []
        async with handle.events(buffer=50) as events:
            async for event in events:
                got.append(event)
                await trio.sleep(1)
                if len(got) == 10:
                    handle.cancel()
        result = await handle.result()
        assert result.elapsed == 10, "who reads slowly held the run"
    numbers = [event.sequence for event in got]
    assert len(got) <= 10 + 50 + 1, "the rest is not bounded"
    assert numbers == sorted(set(numbers))
    assert [event.terminal for event in got].count(True) == 1
    assert got[-1].terminal, "the terminal event was lost"
    assert result.telemetry.dropped == result.telemetry.events - len(got)


async def test_B08_a_thread_that_observes_is_left_at_the_grace(hold: Hold) -> None:
    called: list[int] = []

    def blocking(event: Event) -> None:
        called.append(event.sequence)
        hold.block()

    job = job_of(thousand_deltas)
    watchers = [in_thread(blocking)]
    async with stopped("deadline", job, at=0.2, watchers=watchers, free=hold.let_go) as run:
        assert run.late <= GRACE + SLACK
        assert called == [0]
        telling = run.result.telemetry
        assert (telling.cut, telling.dropped) == (1, telling.events)
        hold.let_go()
        await trio.sleep(0.05)
        assert called == [0], "the observer was called after the return"


# B29: never two calls at once, always in order


class Strict:
    """What an observer may rely on. `enter` and `leave` stand around its work."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.events: dict[str, list[Event]] = defaultdict(list)
        self.overlaps = 0

    def enter(self, event: Event) -> None:
        self.inside["calls"] += 1
        self.overlaps = max(self.overlaps, self.inside["calls"])
        self.events[event.run_id].append(event)

    def leave(self) -> None:
        self.inside["calls"] -= 1

    def check(self, runs: int) -> None:
        assert self.overlaps == 1, f"{self.overlaps} calls of one observer at once"
        assert len(self.events) == runs
        for events in self.events.values():
            assert [e.sequence for e in events] == list(range(len(events))), "out of order"
            per_candidate: dict[int | None, list[str]] = defaultdict(list)
            for event in events:
                per_candidate[event.candidate].append(event.kind)
            assert per_candidate.pop(None) == ["finished"]
            assert len(per_candidate) == 32
            expected = ["started", "leased", "begin", *["token"] * 5, "end", "generated"]
            for kinds in per_candidate.values():
                assert kinds == [*expected, "scored", "ended"]


def sync_observer(strict: Strict) -> Callable[[Event], Any]:
    def observer(event: Event) -> None:
        strict.enter(event)
        strict.leave()

    return observer


def async_observer(strict: Strict) -> Callable[[Event], Any]:
    chance = random.Random(29)

    async def observer(event: Event) -> None:
        strict.enter(event)
        for _ in range(chance.randrange(3)):
            await trio.sleep(chance.random() * 1e-4)
        strict.leave()

    return observer


def thread_observer(strict: Strict) -> Callable[[Event], Any]:
    def observer(event: Event) -> None:
        strict.enter(event)
        if event.sequence % 50 == 0:
            time.sleep(0.001)
        strict.leave()

    return in_thread(observer)


@pytest.mark.parametrize("level", ["run", "runtime"])
@pytest.mark.parametrize("make", [sync_observer, async_observer, thread_observer])
async def test_B29_calls_do_not_overlap_and_come_in_order(
    make: Callable[[Strict], Any], level: str
) -> None:
    # On the real clock, since some of it are threads.
    async def generate(request: str, ctx: Any) -> str:
        chance = random.Random(ctx.seed)
        ctx.emit("begin")
        for _ in range(5):
            for _ in range(chance.randrange(4)):
                await trio.lowlevel.checkpoint()
            ctx.emit("token")
        ctx.emit("end")
        return "answer"

    # An observer of two runs at once is given much time: what it has not got would be cut.
    strict, job = [Strict(), Strict()], job_of(generate, n=32, max_concurrency=8)
    options: dict[str, Any] = {"grace": 10.0}
    if level == "runtime":
        options["observers"] = [make(each) for each in strict]
    async with open_runtime(**options) as runtime:
        own = [make(each) for each in strict] if level == "run" else []
        first = runtime.start(job, "q", observers=own, seed=1)
        if level == "runtime":
            result = await runtime.run(job, "q", seed=2)
            assert result.telemetry.dropped == 0
        result = await first.result()
        assert (result.telemetry.dropped, result.telemetry.cut) == (0, 0)
    for each in strict:
        each.check(2 if level == "runtime" else 1)


async def test_B29_what_threads_emit_keeps_its_order_too() -> None:
    lock = threading.Lock()

    def generate(request: str, ctx: Any) -> str:
        for number in range(50):
            with lock:
                ctx.emit("token", number=number)
        return "answer"

    record, async_record = Record(), Slow(0)
    async with open_runtime(grace=5) as runtime:
        await runtime.run(job_of(generate, n=8), "q", observers=[record, async_record])
    record.check()
    assert async_record.done == record.events
    numbers: dict[int, list[int]] = defaultdict(list)
    for event in record.of("token"):
        numbers[event.candidate].append(event.data["number"])
    assert numbers == {index: list(range(50)) for index in range(8)}


# B31: what waits for a slow observer is bounded, by class


class Payload:
    """Something whose number can be watched."""

    alive = peak = 0

    def __init__(self) -> None:
        Payload.alive += 1
        Payload.peak = max(Payload.peak, Payload.alive)

    def __del__(self) -> None:
        Payload.alive -= 1


@pytest.mark.parametrize("pace", ["in one go", "step by step"])
@pytest.mark.parametrize("observer", ["slow", "hung", "reader"])
async def test_B31_ten_thousand_deltas_for_a_slow_observer_take_bounded_memory(
    observer: str, pace: str, autojump_clock: MockClock
) -> None:
    gc.collect()
    Payload.alive = Payload.peak = 0

    async def generate(request: str, ctx: Any) -> str:
        for _ in range(10_000):
            ctx.emit("delta", payload=Payload())
            if pace == "step by step":
                await trio.lowlevel.checkpoint()
        return "answer"

    slow = Slow(1.0 if observer == "slow" else 1e9)
    async with open_runtime() as runtime:
        watchers = [] if observer == "reader" else [slow, Slow(1e9)]
        handle = runtime.start(job_of(generate, n=1, timeout=5.0), "q", observers=watchers)
        if observer == "reader":
            async with handle.events(buffer=100):
                result = await handle.result()
        else:
            result = await handle.result()
        assert result.output == "answer"
        assert result.elapsed <= GRACE, "an observer held the run"
        bound = 100 if observer == "reader" else SOFT_LIMIT
        assert Payload.peak <= bound + 5, f"{Payload.peak} events were kept"
        if observer != "reader":
            check_telemetry(result, 2)
            assert result.telemetry.cut == 2
        assert result.telemetry.dropped >= 10_000 - bound
    del handle
    gc.collect()
    assert Payload.alive == 0, "dropped events are still kept"


def live_events() -> int:
    """How many events there are in this process."""
    gc.collect()
    return sum(type(each).__module__ == Emitted.__module__ for each in gc.get_objects())


async def test_B31_the_lives_of_many_candidates_are_bounded_too(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    assert HARD_LIMIT == 65_536  # that held for 14,000 candidates; a smaller one is quicker to see
    limit, n = 5000, 2000
    monkeypatch.setattr("hortator.actors.observer.HARD_LIMIT", limit)
    kept = 0

    async def generate(request: str, ctx: Any) -> int:
        nonlocal kept
        if ctx.index in (0, n - 1):
            kept = live_events() - kept
        return 1

    hung = Slow(1e9)
    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate, n=n, max_concurrency=8), "q", observers=[hung])
    assert statuses(result).count("eligible") == n
    assert result.telemetry.events == 5 * n + 1
    assert limit <= kept <= limit + 100, f"{kept} events were kept"
    assert (result.telemetry.dropped, result.telemetry.cut) == (5 * n + 1, 1)
    check_telemetry(result, 1)


@pytest.mark.parametrize("door", CALLERS)
async def test_B31_the_deadline_holds_with_a_full_queue(
    door: str, autojump_clock: MockClock
) -> None:
    hung = [Slow(1e9) for _ in range(3)]
    async with stopped(door, job_of(thousand_deltas, n=8), at=5, watchers=hung) as run:
        assert run.late <= GRACE + 1e-9
        check_telemetry(run.result, 4)
