"""B01, B06: a cancel reaches all of a run's work, and only that.

Virtual time: all work here is cooperative. So "at once" is exact: no time at all goes by between
the stop and the return.
"""

# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    ObserverFailed,
    best_of_n,
    first_accepted,
    open_runtime,
)
from hortator.protocols.errors import StrayCancelled
from tests.field_cases.scenes import (
    DOORS,
    check_account,
    job_of,
    live_tasks,
    spent_cancelled,
    statuses,
    stopped,
)

# B01: child work outlives its cancelled parent


class Ticker:
    """An async tool that ticks every second."""

    def __init__(self) -> None:
        self.ticks: list[float] = []
        self.cancelled: list[float] = []

    async def __call__(self) -> None:
        try:
            while True:
                self.ticks.append(trio.current_time())
                await trio.sleep(1)
        except trio.Cancelled:
            self.cancelled.append(trio.current_time())
            raise


def ticking_job(where: str, tool: Ticker) -> Any:
    """Three candidates that use the tool in one of several places."""

    async def quick(request: str, ctx: Any) -> str:
        return "quick"

    async def generate(request: str, ctx: Any) -> None:
        await tool()

    async def in_a_nursery(request: str, ctx: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tool)
            nursery.start_soon(tool)

    async def nested(request: str, ctx: Any) -> None:
        await best_of_n(job_of(generate, n=2), request)

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        await tool()
        raise AssertionError

    if where == "scorer":
        return job_of(quick, score)
    return job_of({"generator": generate, "nursery": in_a_nursery, "nested run": nested}[where])


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("where", ["generator", "scorer", "nursery", "nested run"])
async def test_B01_a_tool_has_stopped_before_run_returns(
    door: str, where: str, autojump_clock: MockClock
) -> None:
    tool = Ticker()
    before = live_tasks()
    async with stopped(door, ticking_job(where, tool), at=2.5) as run:
        if where == "nested run":  # ends before the deadline of the run around it, by a margin
            assert run.late <= 0
        else:
            assert run.late == 0, "cooperative work costs no grace"
        ticks, tools = len(tool.ticks), len(tool.cancelled)
        assert tools in (3, 6), "a tool did not see Cancelled before its run returned"
        assert max(tool.cancelled) <= run.stopped_at
        left = {task.name for task in live_tasks() - before}
        assert not any("hortator run" in name for name in left), left
        await trio.sleep(10)
        assert len(tool.ticks) == ticks, "a tool went on ticking after its run had returned"
        assert len(tool.cancelled) == tools
        run.record.check()
        if run.result is not None:
            check_account(run.result, 3)
            assert not any(c.detached for c in run.result.candidates)
    assert live_tasks() == before


@pytest.mark.parametrize("how", ["rule", "strict observer", "interrupt"])
async def test_B01_what_ends_a_run_from_inside_stops_its_tools_too(
    how: str, autojump_clock: MockClock
) -> None:
    tool = Ticker()

    async def generate(request: str, ctx: Any) -> str:
        if ctx.index:
            await tool()
        await trio.sleep(2.5)
        if how == "interrupt":
            raise KeyboardInterrupt
        return "answer"

    def observer(event: Any) -> None:
        if how == "strict observer" and event.kind == "generated":
            raise OSError("the disk is full")

    rule = {"stop": first_accepted()} if how == "rule" else {}
    async with open_runtime() as runtime:
        before = live_tasks()
        run = runtime.run(
            job_of(generate, **rule), "q", observers=[observer], on_observer_error="raise"
        )
        if how == "rule":
            assert (await run).output == "answer"
        else:
            with pytest.raises((ObserverFailed, KeyboardInterrupt)):
                await run
        assert tool.cancelled == [2.5, 2.5]
        assert live_tasks() == before
        await trio.sleep(10)
        assert len(tool.ticks) == 6


# B06: a foreign cancellation is not taken for our own, nor our own for a foreign one


async def bare() -> None:
    raise await spent_cancelled()


async def grouped() -> None:
    raise BaseExceptionGroup("of a library", [await spent_cancelled()])


async def grouped_twice() -> None:
    group = BaseExceptionGroup("inner", [await spent_cancelled()])
    raise BaseExceptionGroup("outer", [group, await spent_cancelled()])


async def mixed() -> None:
    raise BaseExceptionGroup("mixed", [await spent_cancelled(), ValueError("the real fault")])


async def of_asyncio() -> None:
    raise asyncio.CancelledError


async def of_futures() -> None:
    raise concurrent.futures.CancelledError


async def of_a_generator() -> None:
    raise GeneratorExit


FOREIGN: dict[Callable[[], Awaitable[None]], type[BaseException]] = {
    bare: StrayCancelled,
    grouped: StrayCancelled,
    grouped_twice: StrayCancelled,
    mixed: ExceptionGroup,
    of_asyncio: asyncio.CancelledError,
    of_futures: concurrent.futures.CancelledError,
    of_a_generator: GeneratorExit,
}


@pytest.mark.parametrize("phase", ["generation", "scoring"])
@pytest.mark.parametrize("tool", FOREIGN, ids=lambda tool: tool.__name__)
async def test_B06_a_foreign_cancellation_fails_one_candidate_and_no_more(
    tool: Callable[[], Awaitable[None]], phase: str, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        await trio.sleep(ctx.index)
        if phase == "generation" and ctx.index == 1:
            await tool()
        return f"answer {ctx.index}"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        if phase == "scoring" and ctx.index == 1:
            await tool()
        return float(candidate.index)

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate, score, n=4), "q")
    assert statuses(result) == ["eligible", f"{phase}_failed", "eligible", "eligible"]
    assert type(result.candidates[1].error) is FOREIGN[tool]
    assert (result.output, result.stop_reason, result.partial) == ("answer 3", "completed", False)
    check_account(result, 4)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("tool", FOREIGN, ids=lambda tool: tool.__name__)
async def test_B06_our_own_cancellation_gets_through_beside_it(
    tool: Callable[[], Awaitable[None]], door: str, autojump_clock: MockClock
) -> None:
    caught: list[str] = []

    async def generate(request: str, ctx: Any) -> None:
        while True:  # the loop around a tool goes on after the tool's own failure
            try:
                await tool()
            except BaseException as error:
                caught.append(type(error).__name__)
            await trio.sleep(1)  # but not after a cancel: this raises

    async with stopped(door, job_of(generate, n=2), at=2.5) as run:
        assert run.late == 0
        assert len(caught) == 6, "the loop around the tool did not go on"
        if run.result is not None:
            late = "timed_out" if "deadline" in door else "cancelled"
            assert statuses(run.result) == [late, late]
            assert [c.error for c in run.result.candidates] == [None, None]


async def test_B06_a_foreign_one_while_we_are_cancelled_does_not_hide_our_own(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: str, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            await bare()

    async with stopped("the caller's scope", job_of(generate), at=1) as run:
        assert run.late == 0
        assert run.record.finished.statuses == {"cancelled": 3}
