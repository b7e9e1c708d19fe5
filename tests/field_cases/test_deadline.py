"""B18, B25: one absolute deadline over everything, on a clock that nobody sets.

Virtual time, but for one run on the real clock while the wall clock jumps.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import datetime
import time
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from hortator import best_of_n, open_runtime
from tests.field_cases.scenes import (
    GRACE,
    SLACK,
    Hold,
    Record,
    check_account,
    job_of,
    statuses,
)

# B18: a timeout for each attempt is not multiplied by the number of attempts


@attrs.define
class SilentProvider:
    """Accepts a request and never answers."""

    requests: list[float] = attrs.Factory(list)

    async def __call__(self) -> str:
        self.requests.append(trio.current_time())
        await trio.sleep_forever()
        raise AssertionError


async def naive_retries(provider: SilentProvider, ctx: Any) -> str:
    """Each attempt has the whole 30 s."""
    for _ in range(4):
        try:
            with trio.fail_after(30):
                return await provider()
        except trio.TooSlowError:
            pass
    raise trio.TooSlowError


async def short_attempts(provider: SilentProvider, ctx: Any) -> str:
    """More attempts than fit."""
    while True:
        with trio.move_on_after(7):
            return await provider()


async def long_backoff(provider: SilentProvider, ctx: Any) -> str:
    """Waits longer than there is time, as a server may ask for."""
    for _ in range(4):
        with trio.move_on_after(1):
            return await provider()
        await trio.sleep(171)
    raise trio.TooSlowError


async def one_budget(provider: SilentProvider, ctx: Any) -> str:
    """As it should be: no attempt without a slice of what is left that is worth it."""
    while (left := ctx.remaining().seconds) >= 5:
        with trio.move_on_after(left / 2):
            return await provider()
    raise trio.TooSlowError


async def nested_runs(provider: SilentProvider, ctx: Any) -> str:
    """Retries by runs inside the run, each with a timeout of its own."""

    async def generate(request: str, ctx: Any) -> str:
        return await provider()

    for _ in range(4):
        result = await best_of_n(job_of(generate, n=2, timeout=30.0), "q")
        if result.selected is not None:
            return str(result.output)
    raise trio.TooSlowError


RETRIES = [naive_retries, short_attempts, long_backoff, one_budget, nested_runs]
Retry = Callable[[SilentProvider, Any], Awaitable[str]]


@pytest.mark.parametrize("phase", ["generation", "scoring"])
@pytest.mark.parametrize("retry", RETRIES, ids=lambda retry: retry.__name__)
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_B18_retries_share_the_runs_deadline(
    concurrency: int, retry: Retry, phase: str, autojump_clock: MockClock
) -> None:
    provider = SilentProvider()
    deadlines: set[float] = set()

    async def generate(request: str, ctx: Any) -> str:
        deadlines.add(ctx.deadline)
        return await retry(provider, ctx) if phase == "generation" else "answer"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        deadlines.add(ctx.deadline)
        await retry(provider, ctx)
        raise AssertionError

    job = job_of(generate, score, n=4, max_concurrency=concurrency, timeout=30.0)
    async with open_runtime() as runtime:
        result = await runtime.run(job, "q")
        assert trio.current_time() == result.elapsed
        # Nested runs stop a margin before the deadline; whoever gives up by himself earlier too.
        assert 25 <= result.elapsed <= 30, "the timeout was multiplied"
        assert deadlines == {30.0}, "the attempts do not share one absolute deadline"
        assert provider.requests
        assert max(provider.requests) <= 30
        if retry is one_budget and concurrency == 4:
            slices = sorted(set(provider.requests))
            assert slices == [0, 15, 22.5], "an attempt was started with too small a slice"
        requests = len(provider.requests)
        await trio.sleep(1000)
        assert len(provider.requests) == requests, "a retry was sent after the return"
    if retry in (naive_retries, short_attempts, long_backoff):
        assert result.stop_reason == "deadline"
        assert set(statuses(result)) <= {"timed_out", "skipped"}
    check_account(result, 4)


@pytest.mark.parametrize("retry", RETRIES, ids=lambda retry: retry.__name__)
async def test_B18_a_candidates_own_timeout_covers_its_retries_too(
    retry: Retry, autojump_clock: MockClock
) -> None:
    provider = SilentProvider()

    async def generate(request: str, ctx: Any) -> str:
        return await retry(provider, ctx) if ctx.index else "answer"

    async with open_runtime() as runtime:
        job = job_of(generate, n=2, candidate_timeout=30.0)
        result = await runtime.run(job, "q")
    assert 25 <= result.elapsed <= 30
    assert result.output == "answer"
    assert statuses(result)[1] in ("timed_out", "generation_failed")


async def test_B18_generation_and_scoring_share_it(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> float:
        await trio.sleep(20)
        return float(ctx.remaining().seconds)

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        await trio.sleep(20)
        raise AssertionError

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate, score, n=2, timeout=30.0), "q")
    assert result.elapsed == 30
    assert statuses(result) == ["timed_out"] * 2
    assert [c.output for c in result.candidates] == [10.0, 10.0]


async def test_B18_a_timeout_inside_is_not_the_runs_deadline(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> str:
        with trio.fail_after(0.1):
            await trio.sleep_forever()
        raise AssertionError

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate, timeout=10.0), "q")
    assert statuses(result) == ["generation_failed"] * 3
    assert {type(c.error) for c in result.candidates} == {trio.TooSlowError}
    assert (result.stop_reason, result.partial, result.elapsed) == ("no_eligible", False, 0.1)


# B25: durations are not measured on the wall clock


class JumpingClocks:
    """Wall clocks that are an hour off, in another direction each time somebody looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        real, real_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: real() + self.jump())
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + 10**9 * self.jump())
        clocks = self

        class Datetime(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> Any:
                return super().now(tz) + datetime.timedelta(seconds=clocks.jump())

        monkeypatch.setattr(datetime, "datetime", Datetime)

    def jump(self) -> int:
        self.looks += 1
        return 3600 if self.looks % 2 else -3600


async def test_B25_steps_of_the_wall_clock_change_no_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[float] = []
    left: list[float] = []

    async def generate(request: str, ctx: Any) -> str:
        if ctx.index == 0:
            return "quick"
        left.append(ctx.remaining().seconds)
        time.time()
        await trio.sleep(0.02)
        time.time()
        left.append(ctx.remaining().seconds)
        await trio.sleep_forever()
        raise AssertionError

    async with open_runtime() as runtime:
        for jumping in (False, True):
            if jumping:
                JumpingClocks(monkeypatch)
            record = Record()
            result = await runtime.run(job_of(generate, n=2, timeout=0.3), "q", observers=[record])
            lengths.append(result.elapsed)
            assert (result.output, result.stop_reason) == ("quick", "deadline")
            assert statuses(result) == ["eligible", "timed_out"]
            assert 0.3 >= left[-2] > left[-1] >= 0
            times = [event.time for event in record.events]
            assert times == sorted(times), "events are not told on a monotonic clock"
            assert 0 < times[-1] - times[0] <= result.elapsed + 1e-6
            assert 0 <= result.candidates[1].elapsed <= result.elapsed
    assert all(0.3 <= length <= 0.3 + GRACE + SLACK for length in lengths), lengths


async def test_B25_nor_do_they_cut_or_stretch_the_grace(
    monkeypatch: pytest.MonkeyPatch, hold: Hold
) -> None:
    async def generate(request: str, ctx: Any) -> None:
        with trio.CancelScope(shield=True):
            while hold.on:
                time.time()
                await trio.sleep(0.01)

    async with open_runtime(exit_grace=0.1) as runtime:
        JumpingClocks(monkeypatch)
        result = await runtime.run(job_of(generate, n=1, timeout=0.2), "q")
        hold.let_go()
        assert await runtime.drain(2) == ()
    assert 0.2 + 0.8 * GRACE <= result.elapsed <= 0.2 + GRACE + SLACK
    assert statuses(result) == ["generating"]


async def test_B25_the_library_reads_no_wall_clock(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    clocks = JumpingClocks(monkeypatch)

    async def generate(request: str, ctx: Any) -> str:
        await trio.sleep(1)
        return str(ctx.remaining().seconds)

    async with open_runtime(observers=[Record()]) as runtime:
        handle = runtime.start(job_of(generate, timeout=10.0), "q")
        handle.snapshot()
        result = await handle.result()
        result.to_json()
    assert result.output == "9.0"
    assert clocks.looks == 0
