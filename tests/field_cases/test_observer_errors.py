"""B32, B33, B34: whatever an observer does, the run comes to the same.

Virtual time, but for observers in threads.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    Budget,
    Event,
    LeaseExceeded,
    ObserverFailed,
    RunStopping,
    Usage,
    in_thread,
    open_runtime,
    target,
)
from tests.field_cases.scenes import (
    Record,
    Slow,
    check_account,
    job_of,
    live_tasks,
    spent_cancelled,
    tokens,
)

# B32: a full queue changes nothing of the outcome


async def digest_of(observers: list[Any], kind: str, *, unread: bool) -> object:
    """Everything about a run but for how its telling went, and how long that took."""
    seeds: list[int] = []

    async def generate(request: str, ctx: Any) -> int:
        seeds.append(ctx.seed)
        for number in range(120):
            ctx.emit("delta", number=number)
        await trio.sleep(ctx.seed % 5 + ctx.index / 100)  # no two at the same instant
        ctx.charge(Usage(total_tokens=10 + ctx.index))
        if ctx.index == 5:
            ctx.publish("early", 3)
        if ctx.index in (3, 5) or kind == "failing":
            raise OSError(f"candidate {ctx.index}")
        return int(ctx.seed % 1000)

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        return float(candidate.output)

    limits: dict[str, dict[str, Any]] = {
        "plain": {},
        "failing": {},
        "target": {"stop": target(500)},
        "cut": {"timeout": 3.0},
        "budget": {"budget": Budget(total_tokens=300), "estimate": tokens(15)},
    }
    async with open_runtime() as runtime:
        job = job_of(generate, score, n=12, max_concurrency=5, **limits[kind])
        handle = runtime.start(job, "q", seed=32, observers=observers)
        if unread:
            async with handle.events(buffer=1):
                result = await handle.result()
        else:
            result = await handle.result()
    return (
        [
            (c.index, c.status, c.output, c.score, repr(c.error), c.usage, c.estimated, c.partial)
            for c in result.candidates
        ],
        result.selected and result.selected.index,
        result.selected_by,
        result.stop_reason,
        result.partial,
        result.usage,
        result.telemetry.events,
        sorted(seeds),
    )


def raising(event: Event) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("kind", ["plain", "failing", "target", "cut", "budget"])
@pytest.mark.parametrize("observer", ["hung", "slow", "raising", "many", "unread"])
async def test_B32_a_full_queue_changes_nothing_of_the_outcome(
    observer: str, kind: str, autojump_clock: MockClock
) -> None:
    observers: dict[str, list[Any]] = {
        "hung": [Slow(1e9)],
        "slow": [Slow(0.01)],
        "raising": [raising],
        "many": [Slow(1e9), raising, Record(), Slow(0)],
        "unread": [],
    }
    plain = await digest_of([], kind, unread=False)
    watched = await digest_of(observers[observer], kind, unread=observer == "unread")
    assert watched == plain


# B33: an observer that raises changes nothing, at whichever event it does


ERRORS: dict[str, Callable[[BaseException], BaseException]] = {
    "OSError": lambda _: OSError("the disk is full"),
    "StopIteration": lambda _: StopIteration(),
    "StopAsyncIteration": lambda _: StopAsyncIteration(),
    "GeneratorExit": lambda _: GeneratorExit(),
    "asyncio's CancelledError": lambda _: asyncio.CancelledError(),
    "stray Cancelled": lambda spent: spent,
    "group": lambda _: ExceptionGroup("exporters", [OSError(), ValueError()]),
    "group with a Cancelled": lambda spent: BaseExceptionGroup("exporters", [spent, OSError()]),
    "base exception": lambda _: type("Fatal", (BaseException,), {})(),
    "LeaseExceeded": lambda _: LeaseExceeded("not ours to raise"),
    "RunStopping": lambda _: RunStopping("nor this"),
}
"""By name: what is raised, given a Cancelled of a scope that has been closed long since."""


class RaisesOnce:
    """An observer that raises at one event."""

    def __init__(self, sequence: int, error: BaseException) -> None:
        self.sequence, self.error = sequence, error
        self.seen: list[Event] = []

    def on_the_loop(self, event: Event) -> None:
        self.seen.append(event)
        if event.sequence == self.sequence:
            raise self.error

    async def in_a_task(self, event: Event) -> None:
        await trio.lowlevel.checkpoint()
        self.on_the_loop(event)


async def small_run(
    runtime: Any, observers: list[Any], mode: str = "ignore"
) -> tuple[Any, list[object]]:
    """A run with ends of several kinds, and a digest of what it came to."""

    async def generate(request: str, ctx: Any) -> int:
        ctx.emit("begin")
        await trio.sleep(ctx.index)
        async with ctx.effect("look up", "read"):
            ctx.charge(tokens(3))
        ctx.publish("draft", 0.5)
        if ctx.index == 1:
            raise ConnectionError("the candidate's own")
        return int(ctx.index)

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        ctx.emit("judging")
        return float(candidate.output)

    job = job_of(generate, score, n=3, threshold=1.0)
    result = await runtime.run(job, "q", seed=33, observers=observers, on_observer_error=mode)
    digest = [(c.status, c.output, c.score, c.usage, repr(c.error)) for c in result.candidates]
    return result, [*digest, result.output, result.stop_reason, result.usage, result.elapsed]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("how", ["on_the_loop", "in_a_task"])
async def test_B33_an_error_at_any_event_changes_nothing(
    how: str, error: str, autojump_clock: MockClock
) -> None:
    spent = await spent_cancelled()
    async with open_runtime() as runtime:
        plain, expected = await small_run(runtime, [])
        assert plain.telemetry.events == 1 + 3 * (2 + 1 + 2 + 1 + 1) + 2 * 3
        before = live_tasks()
        for sequence in range(plain.telemetry.events):
            observer, beside = RaisesOnce(sequence, ERRORS[error](spent)), Record()
            result, digest = await small_run(runtime, [getattr(observer, how), beside])
            kind = beside.events[sequence].kind
            assert digest == expected, f"raising at event {sequence}, {kind}, changed the run"
            assert result.telemetry.observer_errors == 1
            assert result.telemetry.dropped == 0
            assert result.telemetry.delivered == 2 * plain.telemetry.events - 1
            assert observer.seen == beside.events, f"after event {sequence} it was told no more"
            beside.check()
        assert live_tasks() == before


@pytest.mark.parametrize("error", ["OSError", "GeneratorExit", "stray Cancelled", "group"])
@pytest.mark.parametrize("how", ["on_the_loop", "in_a_task"])
async def test_B33_strict_it_stops_the_run_with_the_books_closed(
    how: str, error: str, autojump_clock: MockClock
) -> None:
    spent = await spent_cancelled()
    async with open_runtime() as runtime:
        plain, _ = await small_run(runtime, [])
        before = live_tasks()
        for sequence in range(plain.telemetry.events):
            observer, beside = RaisesOnce(sequence, ERRORS[error](spent)), Record()
            with pytest.raises(ObserverFailed, match="an observer raised") as raised:
                await small_run(runtime, [getattr(observer, how), beside], "raise")
            assert raised.value.__cause__ is raised.value.failures[0]
            assert len(raised.value.failures) == 1
            check_account(raised.value.result, 3)
            assert raised.value.result.telemetry.observer_errors == 1
            beside.check()
            assert observer.seen[-1].terminal
            if beside.events[sequence].terminal:
                assert raised.value.result.output == 2, "the result was lost at the last event"
            assert live_tasks() == before
        assert runtime.usage.outstanding == Usage()


async def test_B33_one_that_raises_each_time_is_kept_and_counted() -> None:
    # On the real clock, since it is a thread.
    def always(event: Event) -> None:
        raise OSError("the disk is full")

    async def generate(request: str, ctx: Any) -> int:
        return int(ctx.index)

    record = Record()
    async with open_runtime(grace=5) as runtime:
        observers = [always, in_thread(always), record]
        result = await runtime.run(job_of(generate, n=4), "q", observers=observers)
    assert result.output == 3
    assert result.telemetry.events == 21
    assert result.telemetry.observer_errors == 42
    record.check()


# B34: an observer's error is not taken for the model's


def tells_of_a_tool(ctx: Any) -> None:
    ctx.emit("tool_start", name="search")


def publishes(ctx: Any) -> None:
    ctx.publish("draft", 0.1)


async def performs(ctx: Any) -> None:
    async with ctx.effect("look up", "read"):
        pass


TELLING = {"tool_start": tells_of_a_tool, "published": publishes, "effect": performs}


@pytest.mark.parametrize("phase", ["generation", "scoring"])
@pytest.mark.parametrize("kind", TELLING)
@pytest.mark.parametrize("error", [ValueError, ConnectionError, trio.TooSlowError, GeneratorExit])
@pytest.mark.parametrize("mode", ["ignore", "raise"])
async def test_B34_an_observers_error_is_not_retried(
    mode: str, error: type[BaseException], kind: str, phase: str, autojump_clock: MockClock
) -> None:
    model_calls: list[int] = []
    retries: list[BaseException] = []

    async def call_model(ctx: Any) -> str:
        for _ in range(3):
            try:
                told = TELLING[kind](ctx)
                if told is not None:
                    await told
                model_calls.append(ctx.index)
                await trio.sleep(1)
                return "answer"
            except trio.Cancelled:
                raise
            except BaseException as failure:
                retries.append(failure)
        raise AssertionError("three calls failed")

    async def generate(request: str, ctx: Any) -> str:
        return await call_model(ctx) if phase == "generation" else "answer"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        if phase == "scoring":
            await call_model(ctx)
        return 1.0

    def observer(event: Event) -> None:
        if event.kind == kind:
            raise error("of the observer")

    async with open_runtime() as runtime:
        run = runtime.run(
            job_of(generate, score), "q", observers=[observer], on_observer_error=mode
        )
        if mode == "raise":
            with pytest.raises(ObserverFailed):
                await run
            assert trio.current_time() == 0, "the run went on after its observer had failed"
            assert len(model_calls) <= 3
        else:
            result = await run
            assert result.output == "answer"
            assert sorted(model_calls) == [0, 1, 2], "a model call was made again"
            assert result.telemetry.observer_errors == (6 if kind == "effect" else 3)
    assert retries == [], "the observer's error came out of the candidate's context"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("kind", TELLING)
async def test_B34_nor_is_an_interrupt_in_an_observer(
    kind: str, interrupt: type[BaseException], autojump_clock: MockClock
) -> None:
    caught: list[BaseException] = []

    async def generate(request: str, ctx: Any) -> None:
        try:
            told = TELLING[kind](ctx)
            if told is not None:
                await told
        except (KeyboardInterrupt, SystemExit) as error:
            caught.append(error)
        await trio.sleep_forever()

    def observer(event: Event) -> None:
        if event.kind == kind:
            raise interrupt

    async with open_runtime() as runtime:
        with pytest.raises(interrupt):
            await runtime.run(job_of(generate), "q", observers=[observer])
        assert caught == []
        assert runtime.usage.outstanding == Usage()
