"""A blocked loop can't be preempted, but it is named (clause 9).

On the real clock, with short limits. How long something was seen to block is bounded from below
only: on a loaded machine the watchdog's thread looks late.
"""

from __future__ import annotations

import functools
import gc
import math
import queue
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    BatchScorer,
    Blocked,
    InvalidJob,
    best_of_n,
    open_runtime,
    plurality_vote,
)
from hortator.actors import watchdog
from tests.contract.scenes import Record, by_output, job, statuses
from tests.sweep import scheduler

LIMIT = 0.04
PATIENT = 0.3
"""Where nothing blocks: no pause that others cause on a busy machine is so long."""
HERE = re.escape(__file__)


def watchers() -> list[threading.Thread]:
    """The threads that watch a loop, but for those that are about to end."""
    until = time.monotonic() + 2
    while found := [t for t in threading.enumerate() if t.name == "hortator watchdog"]:
        if time.monotonic() > until:
            break
        time.sleep(0.001)
    return found


def watched_now() -> int:
    return sum(t.name == "hortator watchdog" for t in threading.enumerate())


def spin(seconds: float) -> None:
    """Hold the loop in Python code."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(50))


def blocking(hold: Callable[[float], object], seconds: float = 8 * LIMIT) -> Callable[..., Any]:
    """A generator of which candidate 2 holds the loop."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.01)
        if ctx.index == 2:
            hold(seconds)
        return ctx.index

    return generate


# -- who it is, and where ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hold", "place"),
    [(time.sleep, "blocking.<locals>.generate"), (spin, "spin")],
    ids=["in C", "in Python"],
)
async def test_a_generator_that_blocks_is_named(
    hold: Callable[[float], object], place: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_runtime(watchdog=LIMIT) as runtime:
        result = await runtime.run(job(generate=blocking(hold)), "q")
        (found,) = runtime.blocked
    assert statuses(result) == ["eligible"] * 4, "it only looks"
    assert (found.run_id, found.candidate, found.phase) == (result.run_id, 2, "generating")
    assert re.fullmatch(rf"{HERE}:\d+ in {re.escape(place)}", found.where)
    assert LIMIT <= found.seconds <= 8 * LIMIT + 1
    said = [r for r in caplog.records if "has been blocked" in r.getMessage()]
    assert {(r.name, r.levelname) for r in said} == {("hortator", "WARNING")}
    who = f"candidate 2 of {result.run_id} (generating)"
    assert f"s by {who} at {__file__}:" in said[0].getMessage()


async def test_a_scorer_that_blocks_is_named() -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.lowlevel.checkpoint()
        if candidate.index == 3:
            time.sleep(6 * LIMIT)
        return 1.0

    async with open_runtime(watchdog=LIMIT) as runtime:
        result = await runtime.run(job(score=score), "q")
        (found,) = runtime.blocked
    assert (found.run_id, found.candidate, found.phase) == (result.run_id, 3, "scoring")


async def test_the_first_step_of_a_callback_counts_too() -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        time.sleep(6 * LIMIT if ctx.index == 1 else 0)
        return ctx.index

    async with open_runtime(watchdog=LIMIT) as runtime:
        await runtime.run(job(generate=generate), "q")
        (found,) = runtime.blocked
    assert (found.candidate, found.phase) == (1, "generating")


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_an_observer_that_blocks_is_named_as_such(
    asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def observe(event: Any) -> None:
        if event.kind == "scored" and event.candidate == 1:
            time.sleep(6 * LIMIT)

    async def observe_later(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        observe(event)

    observer = observe_later if asynchronous else observe
    async with open_runtime(watchdog=LIMIT) as runtime:
        result = await runtime.run(job(), "q", observers=[observer])
        (found,) = runtime.blocked
    assert (found.run_id, found.candidate, found.phase) == (result.run_id, None, "observing")
    assert found.where.endswith("<locals>.observe")
    assert f"an observer of {result.run_id} (observing)" in caplog.text


async def test_an_observer_that_a_candidates_own_step_tells_is_the_one_that_is_named() -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        ctx.emit("hello")
        return ctx.index

    def observe(event: Any) -> None:
        if event.kind == "hello":
            time.sleep(6 * LIMIT)

    async with open_runtime(watchdog=LIMIT) as runtime:
        await runtime.run(job(generate=generate, n=1), "q", observers=[observe])
        (found,) = runtime.blocked
    assert (found.candidate, found.phase) == (None, "observing")


async def test_a_candidate_of_a_nested_run_is_named_and_not_the_one_around_it() -> None:
    inner: list[str] = []

    async def generate(request: Any, ctx: Any) -> Any:
        result = await best_of_n(job(generate=blocking(time.sleep)), request)
        inner.append(result.run_id)
        return result.output

    async with open_runtime(watchdog=LIMIT) as runtime:
        await runtime.run(job(generate=generate, n=1), "q")
        (found,) = runtime.blocked
    assert (found.run_id, found.candidate) == (inner[0], 2)


@pytest.mark.parametrize("phase", ["selecting", "building", "scoring"])
async def test_a_callback_that_belongs_to_no_single_candidate_is_named(
    phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def select(request: Any, candidates: Any) -> int:
        time.sleep(6 * LIMIT)
        return 0

    async def build(request: Any, index: int) -> Any:
        time.sleep(0 if index else 6 * LIMIT)
        return request

    async def score_all(request: Any, candidates: Any, ctx: Any) -> list[float]:
        time.sleep(6 * LIMIT)
        return [1.0] * len(candidates)

    parts: dict[str, Any] = {
        "selecting": {"select": select},
        "building": {"build": build},
        "scoring": {"score": BatchScorer(score_all, together=True)},
    }
    who = {
        "selecting": "the selector",
        "building": "the builder",
        "scoring": "a batch scorer",
    }
    async with open_runtime(watchdog=LIMIT) as runtime:
        result = await runtime.run(job(**parts[phase]), "q")
        (found,) = runtime.blocked
    assert (found.run_id, found.candidate, found.phase) == (result.run_id, None, phase)
    assert f"{who[phase]} of {result.run_id} ({phase})" in caplog.text


async def test_a_key_that_blocks_is_named_by_its_run_and_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def key(output: Any) -> Any:
        time.sleep(0 if output else 6 * LIMIT)
        return 1

    async with open_runtime(watchdog=LIMIT) as runtime:
        result = await runtime.run(job(select=plurality_vote(key=key)), "q")
        (found,) = runtime.blocked
    assert (found.run_id, found.candidate, found.phase) == (result.run_id, None, None)
    assert f"by {result.run_id} at {found.where}" in caplog.text
    assert found.where.endswith("<locals>.key")


async def test_code_outside_of_any_run_is_named_by_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_runtime(watchdog=LIMIT) as runtime:
        await trio.sleep(0.01)
        time.sleep(6 * LIMIT)
        await trio.sleep(0.01)
        (found,) = runtime.blocked
    assert (found.run_id, found.candidate, found.phase) == (None, None, None)
    assert found.where.endswith("test_code_outside_of_any_run_is_named_by_its_place")
    assert "code outside of any run" in caplog.text


# -- how often -----------------------------------------------------------------------------------


async def test_it_is_told_again_at_doubling_intervals_and_kept_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_runtime(watchdog=LIMIT) as runtime:
        await runtime.run(job(generate=blocking(time.sleep, 12 * LIMIT)), "q")
        (found,) = runtime.blocked
    said = re.findall(r"has been blocked for ([\d.]+) s", caplog.text)
    assert 2 <= len(said) <= 4, f"at {LIMIT} times 1, 2, 4, 8, or later: {said}"
    for number, seconds in enumerate(map(float, said)):
        assert seconds >= LIMIT * 2**number - 0.005, "rounded"
    assert found.seconds >= float(said[-1]) - 0.005, "counted on between what was told"


async def test_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "MOST_KEPT", 2)
    async with open_runtime(watchdog=0.02) as runtime:
        for pause in ("first", "second", "third"):
            await trio.sleep(0.01)
            _NAMED[pause](0.16)
        await trio.sleep(0.01)
        kept = [found.where.rsplit(" ", 1)[1] for found in runtime.blocked]
    assert kept == ["second", "third"]


def first(seconds: float) -> None:
    time.sleep(seconds)


def second(seconds: float) -> None:
    time.sleep(seconds)


def third(seconds: float) -> None:
    time.sleep(seconds)


_NAMED = {"first": first, "second": second, "third": third}


async def test_what_was_found_can_be_read_after_the_runtime_was_left() -> None:
    async with open_runtime(watchdog=LIMIT) as runtime:
        await runtime.run(job(generate=blocking(time.sleep)), "q")
    (found,) = runtime.blocked
    assert isinstance(found, Blocked)
    with pytest.raises(AttributeError):
        found.seconds = 0.0  # type: ignore[misc]


# -- no false alarms -----------------------------------------------------------------------------


@pytest.fixture
def no_pause() -> Iterator[None]:
    """A collection of garbage may take longer than the limit, and then it is a block."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_many_short_steps_in_one_tick_are_no_block(no_pause: None) -> None:
    """Each takes a fraction of the limit, all of them together many times as long."""
    ticks: list[float] = []

    async def short() -> None:
        await trio.lowlevel.checkpoint()  # all of them become runnable for the same tick
        spin(PATIENT / 25)

    async with open_runtime(watchdog=PATIENT) as runtime:
        async with trio.open_nursery() as nursery:
            for _ in range(80):
                nursery.start_soon(short)
            began = time.monotonic()
        ticks.append(time.monotonic() - began)
        assert runtime.blocked == ()
    assert ticks[0] > 2 * PATIENT, "there was no long tick to take for a block"


async def test_one_task_that_never_rests_is_no_block(
    monkeypatch: pytest.MonkeyPatch, no_pause: None
) -> None:
    """Its frames are the same at every look, but it lets the loop go all the time."""
    looks: list[float] = []
    look = watchdog.Watchdog._look

    def noting(self: watchdog.Watchdog, now: float) -> None:
        looks.append(now)
        look(self, now)

    monkeypatch.setattr(watchdog.Watchdog, "_look", noting)
    # To look, the thread needs the interpreter lock, which it gets 5 ms after it asks, or between
    # two steps. These are so long that many looks are not between two.
    async with open_runtime(watchdog=0.1) as runtime:
        until = time.monotonic() + 5
        while len(looks) < 16 and time.monotonic() < until:  # few, on a loaded machine
            spin(0.02)
            await trio.lowlevel.checkpoint()
        assert runtime.blocked == ()
    assert len(looks) >= 16


async def test_very_many_quick_candidates_are_no_block(no_pause: None) -> None:
    async with open_runtime(watchdog=PATIENT) as runtime:
        result = await runtime.run(job(n=5_000, max_concurrency=100), "q")
        assert runtime.blocked == ()
    assert result.output == 4_999


async def test_a_loop_that_waits_is_no_block() -> None:
    async with open_runtime(watchdog=0.01) as runtime:
        await trio.sleep(0.2)
        assert runtime.blocked == ()


async def test_threads_do_not_hold_the_loop() -> None:
    def generate(request: Any, ctx: Any) -> Any:
        time.sleep(6 * LIMIT)
        return ctx.index

    async with open_runtime(watchdog=LIMIT) as runtime:
        await runtime.run(job(generate=generate), "q")
        assert runtime.blocked == ()


# -- it only looks -------------------------------------------------------------------------------


class Counter(trio.abc.Instrument):
    """Counts what the loop does."""

    def __init__(self) -> None:
        self.steps = self.waits = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1

    def before_io_wait(self, timeout: float) -> None:
        self.waits += 1


def counted(limit: float | None, body: Callable[[Any], Awaitable[object]]) -> tuple[int, int]:
    counter = Counter()

    async def main() -> None:
        async with open_runtime(watchdog=limit) as runtime:
            await body(runtime)

    scheduler.seed(1)
    trio.run(main, instruments=[counter])
    return counter.steps, counter.waits


def test_it_changes_no_step_count_and_wakes_nobody() -> None:
    async def body(runtime: Any) -> None:
        await runtime.run(job(n=20, max_concurrency=5), "q", observers=[Record()])
        await trio.sleep(0.2)
        time.sleep(0.05)

    watched, unwatched = counted(0.01, body), counted(None, body)
    assert watched == unwatched


def test_a_loop_that_is_found_blocked_is_not_woken_for_it() -> None:
    async def body(runtime: Any) -> None:
        await runtime.run(job(generate=blocking(time.sleep), n=3, max_concurrency=1), "q")

    assert counted(0.01, body)[0] == counted(None, body)[0]


# -- on and off ----------------------------------------------------------------------------------


async def test_it_can_be_turned_off() -> None:
    async with open_runtime(watchdog=None) as runtime:
        assert watched_now() == 0
        time.sleep(4 * LIMIT)
        await trio.sleep(0)
        assert runtime.blocked == ()


async def test_it_is_off_under_a_clock_that_is_not_the_systems(autojump_clock: MockClock) -> None:
    async with open_runtime(watchdog=0.01) as runtime:
        assert watched_now() == 0
        time.sleep(0.1)
        await trio.sleep(0)
        assert runtime.blocked == ()


@pytest.mark.parametrize("wrong", [0, -1, math.inf, math.nan, "0.5"])
def test_a_limit_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidJob, match="watchdog="):
        open_runtime(watchdog=wrong)


@pytest.mark.parametrize("how", [None, ValueError, KeyboardInterrupt, "cancelled"])
def test_nothing_of_it_is_left_however_the_runtime_is_left(
    how: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[float] = []
    added: list[trio.abc.Instrument] = []
    add = trio.lowlevel.add_instrument
    monkeypatch.setattr(trio.lowlevel, "add_instrument", lambda i: (added.append(i), add(i)))

    async def main() -> None:
        with trio.CancelScope() as scope:
            try:
                async with open_runtime(watchdog=LIMIT):
                    assert watched_now() == 1
                    await trio.sleep(0.01)
                    took.append(time.monotonic())
                    if how == "cancelled":
                        scope.cancel()
                        await trio.lowlevel.checkpoint()
                    elif how is not None:
                        raise how
            finally:
                took.append(time.monotonic())
                assert not watchers()
        (ticks,) = added
        with pytest.raises(KeyError):
            trio.lowlevel.remove_instrument(ticks)  # it has been taken out before

    if isinstance(how, type):
        with pytest.raises(how):
            trio.run(main)
    else:
        trio.run(main)
    assert took[1] - took[0] < 0.25


async def test_each_of_several_runtimes_has_its_own_and_takes_it_along() -> None:
    async with open_runtime(watchdog=LIMIT) as outer:
        async with open_runtime(watchdog=LIMIT) as inner:
            assert watched_now() == 2
            await inner.run(job(generate=blocking(time.sleep)), "q")
        assert len(inner.blocked) == 1
        assert watched_now() == 1
        time.sleep(6 * LIMIT)
        await trio.sleep(0)
        assert len(outer.blocked) == 2, "the outer one has seen both"
        assert len(inner.blocked) == 1
    assert not watchers()


def test_loops_in_two_threads_are_told_apart() -> None:
    found: dict[str, int] = {}
    both = threading.Barrier(2, timeout=5)

    async def main(name: str, hold: float) -> None:
        async with open_runtime(watchdog=LIMIT) as runtime:
            both.wait()  # opened at the same time
            await trio.sleep(0.01)
            time.sleep(hold)
            until = time.monotonic() + 10 * LIMIT
            while time.monotonic() < until:
                await trio.sleep(0.005)
            found[name] = sum(blocked.where.endswith("main") for blocked in runtime.blocked)

    threads = [
        threading.Thread(target=trio.run, args=(functools.partial(main, name, hold),))
        for name, hold in (("held", 8 * LIMIT), ("free", 0.0))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["held"] >= 1
    assert found["free"] == 0


def test_under_a_foreign_loop_the_hosts_own_work_is_not_the_guests() -> None:
    """Guest mode: between two ticks the thread belongs to the host, for as long as it likes."""
    calls: queue.Queue[Callable[[], object]] = queue.Queue()
    over: list[Any] = []
    found: list[Blocked] = []

    async def guest() -> None:
        async with open_runtime(watchdog=LIMIT) as runtime:
            await trio.sleep(0.01)
            calls.put(functools.partial(time.sleep, 8 * LIMIT))
            await trio.sleep(0.05)
            assert runtime.blocked == ()
            await runtime.run(job(generate=blocking(time.sleep), score=by_output), "q")
            found.extend(runtime.blocked)

    trio.lowlevel.start_guest_run(
        guest, run_sync_soon_threadsafe=calls.put, done_callback=over.append
    )
    while not over:
        calls.get(timeout=10)()
    over[0].unwrap()
    assert [each.candidate for each in found] == [2]


async def test_no_frame_is_held_once_the_tick_is_over() -> None:
    """What a task had must not be finalised in the watchdog's thread."""

    class Local:
        def __del__(self) -> None:
            died_in.append(threading.current_thread().name)

    died_in: list[str] = []

    async def short() -> None:
        local = Local()
        await trio.lowlevel.checkpoint()
        spin(LIMIT / 10)
        assert local  # with the frame it goes, when the task has ended

    async with open_runtime(watchdog=LIMIT):
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for _ in range(40):
                    nursery.start_soon(short)
        await trio.lowlevel.checkpoint()
        assert len(died_in) == 120
        assert set(died_in) == {threading.current_thread().name}
