"""Requests of candidates, built before anything else: the rows W-BON-18, 20, 21 and 22.

Under virtual time; what blocks a thread is held by an event that each test sets.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Budget, InvalidJob, Status, Usage, open_runtime
from hortator.protocols.errors import NoThreadLeft
from tests.contract.scenes import GRACE, SLACK, WORK, Record, echo, job, statuses, stubborn_for


async def by_index(request: Any, index: int) -> Any:
    await trio.lowlevel.checkpoint()
    return f"{request} {index}"


class Spy:
    """A generator and a builder that note the order of their calls."""

    def __init__(self, *fails: int, seconds: float = 0.0) -> None:
        self.calls: list[str] = []
        self._fails, self._seconds = fails, seconds

    async def build(self, request: Any, index: int) -> Any:
        self.calls.append(f"build {index}")
        await trio.sleep(self._seconds)
        if index in self._fails:
            raise ValueError(f"no request for {index}")
        return f"{request} {index}"

    def build_now(self, request: Any, index: int) -> Any:
        self.calls.append(f"build {index}")
        if index in self._fails:
            raise ValueError(f"no request for {index}")
        return f"{request} {index}"

    async def generate(self, request: Any, ctx: Any) -> Any:
        self.calls.append(f"generate {request}")
        await trio.lowlevel.checkpoint()
        return ctx.index


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_w_bon_18_all_are_built_in_index_order_before_any_is_generated(kind: str) -> None:
    spy = Spy()
    build = spy.build if kind == "async" else spy.build_now
    async with open_runtime() as runtime:
        result = await runtime.run(job(build=build, generate=spy.generate), "q")
    assert spy.calls[:4] == [f"build {i}" for i in range(4)]
    assert sorted(spy.calls[4:]) == [f"generate q {i}" for i in range(4)]
    assert [c.request for c in result.candidates] == [f"q {i}" for i in range(4)]
    assert (result.output, result.stop_reason) == (3, "completed")


async def test_sync_builders_share_one_thread_and_hold_no_loop() -> None:
    threads: list[threading.Thread] = []

    def build(request: Any, index: int) -> Any:
        threads.append(threading.current_thread())
        return index

    async with open_runtime() as runtime:
        await runtime.run(job(build=build), "q")
    assert len(threads) == 4
    assert len(set(threads)) == 1
    assert threads[0] is not threading.main_thread()


async def test_a_sync_builder_that_returns_an_awaitable_has_it_awaited() -> None:
    def build(request: Any, index: int) -> Any:
        return by_index(request, index)

    async with open_runtime() as runtime:
        result = await runtime.run(job(build=build), "q")
    assert [c.request for c in result.candidates] == [f"q {i}" for i in range(4)]


async def test_containers_are_private_on_the_way_in_and_out() -> None:
    shared: list[Any] = []

    async def build(request: list[Any], index: int) -> Any:
        assert request == ["q"], "what another builder has changed"
        request.append(index)
        return shared

    async def generate(request: list[Any], ctx: Any) -> Any:
        request.append(ctx.index)
        await trio.sleep(0)
        return list(request)

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(build=build, generate=generate, score=lambda r, c, ctx: 1), ["q"]
        )
    assert [c.output for c in result.candidates] == [[i] for i in range(4)]
    assert shared == []


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_w_bon_20_one_that_raises_fails_its_own_candidate_alone(kind: str) -> None:
    spy, record = Spy(2), Record()
    build = spy.build if kind == "async" else spy.build_now
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(build=build, generate=spy.generate, budget=Budget(model_calls=4)),
            ["q"],
            observers=[record],
        )
    failed = result.candidates[2]
    assert (failed.status, str(failed.error)) == (Status.GENERATION_FAILED, "no request for 2")
    assert (failed.started, failed.usage, failed.request) == (None, Usage(), ["q"])
    assert record.of(2) == ["ended"]
    assert record.kinds[0] == "ended"
    assert [c.status for c in result.candidates if c.index != 2] == [Status.ELIGIBLE] * 3
    assert result.usage.charged.model_calls == 3
    assert (result.output, result.stop_reason) == (3, "completed")


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_all_that_raise_leave_nothing_to_do(concurrency: int) -> None:
    spy = Spy(0, 1, 2, 3)
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(build=spy.build, generate=spy.generate, max_concurrency=concurrency), "q"
        )
    assert (result.stop_reason, result.selected) == ("no_eligible", None)
    assert spy.calls == [f"build {i}" for i in range(4)]


async def test_one_that_was_not_built_does_not_end_a_run_that_may_go_on() -> None:
    spy = Spy(0, 1, 3)
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(build=spy.build, generate=spy.generate, max_concurrency=1), "q"
        )
    assert (result.output, result.stop_reason) == (2, "completed")


@pytest.mark.parametrize("kind", ["cancel", "stop_after_current", "deadline"])
async def test_w_bon_21_whatever_ends_the_run_while_building_leaves_all_skipped(
    kind: str, autojump_clock: MockClock
) -> None:
    spy, record = Spy(0, seconds=1), Record()
    async with open_runtime() as runtime:
        parts = {"timeout": 2.5} if kind == "deadline" else {}
        handle = runtime.start(
            job(build=spy.build, generate=spy.generate, **parts), "q", observers=[record]
        )
        await trio.sleep(2.5)
        if kind != "deadline":
            assert handle.snapshot().statuses == {Status.PENDING: 4}
            getattr(handle, kind)()
        result = await handle.result()
    reason = {"cancel": "cancelled", "stop_after_current": "stopped"}.get(kind, kind)
    assert (result.stop_reason, result.partial, result.elapsed) == (reason, True, 2.5)
    # What had failed before is told, W-BON-22's "error text preserved"; the others never began.
    assert statuses(result) == ["generation_failed", "skipped", "skipped", "skipped"]
    assert [c.request for c in result.candidates] == ["q", "q 1", "q", "q"]
    assert record.kinds == ["ended", "finished"]
    assert spy.calls == ["build 0", "build 1", "build 2"]


async def test_w_bon_22_a_deadline_that_is_spent_by_building(autojump_clock: MockClock) -> None:
    def build(request: Any, index: int) -> Any:
        if index == 1:
            raise ValueError("no request for 1")
        if index == 3:
            autojump_clock.jump(1)
        return f"{request} {index}"

    async def build_async(request: Any, index: int) -> Any:
        return build(request, index)

    spy = Spy()
    async with open_runtime() as runtime:
        result = await runtime.run(job(build=build_async, generate=spy.generate, timeout=1), "q")
    assert statuses(result) == ["skipped", "generation_failed", "skipped", "skipped"]
    assert [c.request for c in result.candidates] == ["q 0", "q", "q 2", "q 3"]
    assert (result.stop_reason, result.partial) == ("deadline", True)
    assert spy.calls == []


async def test_no_time_at_all_builds_nothing(autojump_clock: MockClock) -> None:
    spy = Spy()
    async with open_runtime() as runtime:
        result = await runtime.run(job(build=spy.build, generate=spy.generate, timeout=0), "q")
    assert (result.stop_reason, statuses(result)) == ("deadline", ["skipped"] * 4)
    assert spy.calls == []


async def test_a_builder_that_cleans_up_has_the_work_share_for_it(
    autojump_clock: MockClock,
) -> None:
    async def build(request: Any, index: int) -> Any:
        try:
            await trio.sleep(9)
        finally:
            await stubborn_for(0.9 * WORK)

    async with open_runtime() as runtime:
        result = await runtime.run(job(build=build, timeout=1), "q")
        assert runtime.detached == ()
    assert result.elapsed == pytest.approx(1 + 0.9 * WORK)


async def test_one_that_swallows_its_cancel_is_detached(autojump_clock: MockClock) -> None:
    async def build(request: Any, index: int) -> Any:
        await stubborn_for(9)
        return index

    spy = Spy()
    async with open_runtime() as runtime:
        result = await runtime.run(job(build=build, generate=spy.generate, timeout=1), "q")
        assert (result.stop_reason, statuses(result)) == ("deadline", ["skipped"] * 4)
        assert 1 + WORK <= result.elapsed <= 1 + GRACE
        (work,) = runtime.detached
        assert (work.phase, work.candidate, work.kind) == ("building", None, "task")
        assert await runtime.drain() == ()
    assert spy.calls == []
    assert [c.request for c in result.candidates] == ["q"] * 4


async def test_a_hung_thread_is_detached_and_builds_nothing_more() -> None:
    release, began, built = threading.Event(), time.monotonic(), []

    def build(request: Any, index: int) -> Any:
        built.append(index)
        if index == 1:
            release.wait(8)
        return index

    async with open_runtime(threads=1, grace=0.1) as runtime:
        result = await runtime.run(job(build=build, timeout=0.1), "q")
        assert time.monotonic() - began < 0.2 + SLACK
        assert (result.stop_reason, statuses(result)) == ("deadline", ["skipped"] * 4)
        assert [c.request for c in result.candidates] == [0, "q", "q", "q"]
        (work,) = runtime.detached
        assert (work.phase, work.kind) == ("building", "thread")
        refused = await runtime.run(job(build=build), "q")
        assert {type(c.error) for c in refused.candidates} == {NoThreadLeft}
        release.set()
        assert await runtime.drain(5) == ()
    assert built == [0, 1]
    assert [c.request for c in result.candidates] == [0, "q", "q", "q"]


async def test_the_caller_is_cancelled_while_building(autojump_clock: MockClock) -> None:
    spy, record = Spy(seconds=9), Record()
    async with open_runtime(observers=[record]) as runtime:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run, job(build=spy.build), "q")
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
    assert record.terminal.stop_reason == "cancelled"
    assert trio.current_time() == pytest.approx(record.terminal.time)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda request: request, r"called as build\(request, index\)"),
        ("request", "is not callable"),
        (echo(1, 2), "pass the function itself"),
    ],
)
def test_what_cannot_build_is_refused(build: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        job(build=build)
