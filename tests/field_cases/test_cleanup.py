"""B09, B106: clean-up gets its share of the grace and no more, and what hangs is named.

Virtual time, but for threads. Whatever hangs here is let go before its runtime is left.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import logging
import threading
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from hortator import Event, Usage, open_runtime
from tests.field_cases.scenes import (
    DOORS,
    GRACE,
    HOLDS,
    SLACK,
    Hold,
    Record,
    check_account,
    job_of,
    statuses,
    stopped,
    virtually,
)

WORK = 0.8 * GRACE
AT = 4
"""Seconds from the start of a run to its stop."""

# B09: clean-up after a cancel


def work_share(door: str) -> float:
    """Seconds that work has to unwind; inside an outer scope a bit less, so that it all fits."""
    return 0.9 * WORK if door == "outer deadline" else WORK


class Tool:
    """A tool with a connection that has to be closed: `close` takes some seconds."""

    def __init__(self, seconds: float, shielded: bool) -> None:
        self.seconds, self.shielded = seconds, shielded
        self.closed: list[float] = []

    async def __call__(self, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if self.shielded:
                with ctx.cleanup():
                    await self.close(ctx)
            else:
                await self.close(ctx)

    async def close(self, ctx: Any) -> None:
        async with ctx.effect("close", "read"):
            await trio.sleep(self.seconds)
        self.closed.append(trio.current_time())


def job_with(tool: Tool, phase: str) -> Any:
    """Two candidates; the second one uses the tool."""

    async def generate(request: str, ctx: Any) -> str:
        if phase == "generating" and ctx.index:
            ctx.publish("draft")
            await tool(ctx)
        return f"answer {ctx.index}"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        if phase == "scoring" and ctx.index:
            await tool(ctx)
        return float(candidate.index)

    return job_of(generate, score, n=2, estimate=Usage(total_tokens=10))


def check_record(run: Any, door: str, effect: str) -> None:
    """Assert that the record of the cancelled candidate has everything."""
    run.record.check()
    status = "timed_out" if "deadline" in door else "cancelled"
    assert run.record.finished.statuses == {"eligible": 1, status: 1}
    assert run.record.finished.detached == ()
    assert run.runtime.detached == ()
    assert run.runtime.usage.outstanding == Usage()
    if run.result is None:
        return
    check_account(run.result, 2)
    cut = run.result.candidates[1]
    assert (cut.status, cut.request, cut.error) == (status, "question", None)
    assert cut.output in ("draft", "answer 1"), "what it had come to was lost"
    assert cut.usage.total_tokens == 10
    assert cut.elapsed == pytest.approx(AT + run.late)
    assert [e.state for e in cut.effects] == [effect], "how its clean-up ended is not told"
    assert run.result.output == "answer 0"


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize("door", DOORS)
async def test_B09_close_completes_inside_the_grace(
    door: str, phase: str, autojump_clock: MockClock
) -> None:
    tool = Tool(0.15, shielded=True)
    async with stopped(door, job_with(tool, phase), at=AT) as run:
        assert run.late == pytest.approx(0.15)
        assert tool.closed == [pytest.approx(run.stopped_at + 0.15)]
        check_record(run, door, "done")


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize("door", DOORS)
async def test_B09_without_a_shield_close_is_cut_at_once_and_the_record_is_complete(
    door: str, phase: str, autojump_clock: MockClock
) -> None:
    tool = Tool(0.15, shielded=False)
    async with stopped(door, job_with(tool, phase), at=AT) as run:
        assert run.late == 0
        assert tool.closed == []
        check_record(run, door, "not_started")


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize("door", DOORS)
async def test_B09_a_close_that_takes_too_long_is_cut_at_the_work_share_and_flagged(
    door: str, phase: str, autojump_clock: MockClock
) -> None:
    for _ in range(5):  # the cut and the run's giving up fall on the same instant: any may be first
        tool = Tool(60, shielded=True)
        async with stopped(door, job_with(tool, phase), at=AT) as run:
            assert run.late == pytest.approx(work_share(door))
            assert tool.closed == []
            check_record(run, door, "unknown")


@pytest.mark.parametrize("seconds", [0.15, 60])
def test_B09_after_its_own_timeout_a_candidate_may_clean_up_too(seconds: float) -> None:
    tool = Tool(seconds, shielded=True)
    job = attrs.evolve(job_with(tool, "generating"), candidate_timeout=1.0)

    async def scene() -> Any:
        async with open_runtime() as runtime:
            return await runtime.run(job, "question"), runtime.detached

    for _ in range(20):
        result, detached = virtually(scene)
        assert statuses(result) == ["eligible", "timed_out"]
        assert result.elapsed == pytest.approx(1 + min(seconds, WORK))
        assert detached == ()
        assert (result.stop_reason, result.partial) == ("completed", False)


async def test_B09_all_clean_up_of_a_candidate_shares_one_allowance(
    autojump_clock: MockClock,
) -> None:
    cut: list[float] = []

    async def generate(request: str, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            for seconds in (0.05, None, None):
                with ctx.cleanup(seconds):
                    await trio.sleep(0.1)
                    cut.append(-1)
                cut.append(round(trio.current_time(), 6))

    async with stopped("deadline", job_of(generate, n=1), at=AT) as run:
        assert cut[0] == 4.05, "cleanup(seconds=...) was not kept to"
        assert cut[1:3] == [-1, 4.15]
        assert run.late == pytest.approx(WORK), "two clean-ups got more than one share"
        assert statuses(run.result) == ["timed_out"]


@pytest.mark.parametrize("door", DOORS)
async def test_B09_an_error_in_clean_up_is_kept_and_changes_no_status(
    door: str, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        if not ctx.index:
            return "answer 0"
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup():
                await trio.sleep(0.1)
                raise ConnectionError("the peer has gone")
        raise AssertionError

    async with stopped(door, job_of(generate, n=2), at=AT) as run:
        assert run.late == pytest.approx(0.1)
        status = "timed_out" if "deadline" in door else "cancelled"
        assert run.record.finished.statuses == {"eligible": 1, status: 1}
        [ended] = [event for event in run.record.of("ended") if event.candidate == 1]
        assert isinstance(ended.error, ConnectionError)


async def test_B09_clean_up_after_a_failure_of_its_own_takes_its_time_too(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: str, ctx: Any) -> None:
        try:
            raise ValueError("the candidate's own")
        finally:
            with ctx.cleanup():
                await trio.sleep(0.1)

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate), "q")
    assert statuses(result) == ["generation_failed"] * 3
    assert result.elapsed == pytest.approx(0.1)
    assert [str(c.error) for c in result.candidates] == ["the candidate's own"] * 3


# B106: clean-up that hangs


class Client:
    """A provider's client whose close hangs."""

    def __init__(self, free: trio.Event) -> None:
        self._free = free
        self.closes = 0

    async def aclose(self) -> None:
        self.closes += 1
        with trio.CancelScope(shield=True):
            await self._free.wait()


@pytest.mark.parametrize("door", DOORS)
async def test_B106_a_close_that_hangs_is_left_behind_at_the_grace_and_named(
    door: str, autojump_clock: MockClock
) -> None:
    free = trio.Event()
    client = Client(free)

    async def generate(request: str, ctx: Any) -> str:
        if ctx.index == 0:
            return "answer"
        try:
            await trio.sleep_forever()
        finally:
            await client.aclose()
        raise AssertionError

    async with stopped(door, job_of(generate, n=2), at=AT, free=free.set) as run:
        assert run.late == pytest.approx(work_share(door))
        [left] = run.runtime.detached
        assert left.where.endswith("in Client.aclose"), left.where
        assert left.since == pytest.approx(run.stopped_at + run.late)
        if run.result is not None:
            assert statuses(run.result) == ["eligible", "generating"]
            assert run.result.output == "answer"
        free.set()
        assert await run.runtime.drain() == ()
        assert client.closes == 1


async def test_B106_closing_twice_is_closing_once(autojump_clock: MockClock) -> None:
    free = trio.Event()
    client = Client(free)

    async def generate(request: str, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            await client.aclose()

    record = Record()
    async with open_runtime() as runtime:
        async with runtime.start(job_of(generate, n=1), "q", observers=[record]) as handle:
            await trio.sleep(1)
        assert trio.current_time() == pytest.approx(1 + WORK)
        async with handle:  # a second close finds nothing to do
            handle.cancel()
        assert trio.current_time() == pytest.approx(1 + WORK)
        first = await handle.result()
        free.set()
        await runtime.drain()
        assert await handle.result() is first
        assert len(runtime.reap()) == 1
        assert runtime.reap() == ()
    assert client.closes == 1
    record.check()


async def test_B106_leaving_the_runtime_says_what_it_waits_for(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    free = trio.Event()

    async def generate(request: str, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            await Client(free).aclose()

    async def let_go_later() -> None:
        await trio.sleep(4)
        free.set()

    caplog.set_level(logging.WARNING, "hortator")
    async with trio.open_nursery() as nursery:
        async with open_runtime() as runtime:
            result = await runtime.run(job_of(generate, n=1, timeout=1), "q")
            nursery.start_soon(let_go_later)
            left = trio.current_time()
        assert trio.current_time() == pytest.approx(left + 4), "it did not wait for a live task"
    waits = [r.getMessage() for r in caplog.records if "waits since" in r.getMessage()]
    # After the grace, and then at doubling intervals.
    assert [text.split(" s ")[0][-4:] for text in waits] == ["0.25", "0.75", "1.75", "3.75"]
    for text in waits:
        assert f"candidate 0 of {result.run_id} (generating)" in text
        assert "in Client.aclose" in text


async def test_B106_a_thread_that_hangs_does_not_hold_the_runtime(
    hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def generate(request: str, ctx: Any) -> None:
        hold.block()
        done.set()

    caplog.set_level(logging.WARNING, "hortator")
    async with open_runtime(exit_grace=0.05) as runtime:
        result = await runtime.run(job_of(generate, n=1, timeout=0.2, grace=0.05), "q")
        left = trio.current_time()
    assert trio.current_time() - left <= 0.05 + SLACK
    [warning] = [r.getMessage() for r in caplog.records]
    assert f"candidate 0 of {result.run_id}" in warning
    assert "in Hold.block" in warning
    hold.let_go()  # and its end, after the runtime is gone, troubles nobody
    assert await trio.to_thread.run_sync(done.wait, HOLDS)
    await trio.sleep(0.02)
    assert statuses(result) == ["generating"]


async def test_B106_an_observer_that_hangs_is_cut_and_counted(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> str:
        return "answer"

    free = trio.Event()

    async def observer(event: Event) -> None:
        with trio.CancelScope(shield=True):
            await free.wait()

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate), "q", observers=[observer])
        assert result.elapsed <= GRACE
        [left] = runtime.detached
        assert (left.candidate, left.phase) == (None, "observing")
        assert "observer" in left.where
        free.set()
        assert await runtime.drain(1) == ()
    assert result.output == "answer"
    assert (result.telemetry.cut, result.telemetry.dropped) == (1, result.telemetry.events)
