"""`handle.events()` and `handle.candidates()`: watching a run from wherever one happens to be.

Under virtual time.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import RunHandle, Snapshot, Status, open_runtime
from hortator.protocols.events import RunFinished
from hortator.protocols.run import RunState
from tests.contract.scenes import Record, after, job, statuses


async def everything(handle: RunHandle[Any], **options: Any) -> list[Any]:
    """All that a feed of events has, until it ends."""
    async with handle.events(**options) as events:
        return [item async for item in events]


# -- events ---------------------------------------------------------------------------------------


async def test_who_subscribes_at_once_gets_everything(autojump_clock: MockClock) -> None:
    record = Record()
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 0.2)), "q", observers=[record])
        items = await everything(handle)
    assert items == record.events
    assert isinstance(items[-1], RunFinished)


async def test_who_subscribes_late_gets_a_snapshot_first_and_then_all_that_follows(
    autojump_clock: MockClock,
) -> None:
    record = Record()
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 1)), "q", observers=[record])
        await trio.sleep(0.5)
        first, *rest = await everything(handle)
    assert isinstance(first, Snapshot)
    assert first.statuses == {Status.ELIGIBLE: 1, Status.GENERATING: 3}
    assert rest == record.events[first.sequence :], "a gap or a repeat after the snapshot"
    assert [item for item in (first, *rest) if isinstance(item, Snapshot)] == [first]


async def test_after_the_end_there_is_the_snapshot_and_nothing_more(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(), "q")
        await handle.result()
        items = await everything(handle)
    assert [type(item) for item in items] == [Snapshot]
    assert items[0].statuses == {Status.ELIGIBLE: 4}


@pytest.mark.parametrize("end", ["completed", "cancelled", "deadline", "runtime cancelled"])
async def test_the_feed_ends_after_the_terminal_event(end: str, autojump_clock: MockClock) -> None:
    items: list[Any] = []

    async def listen(handle: RunHandle[Any]) -> None:
        items.extend(await everything(handle))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with open_runtime() as runtime:
                handle = runtime.start(
                    job(
                        generate=after(0.1, 0.2 if end == "completed" else 9),
                        timeout=1 if end == "deadline" else None,
                    ),
                    "q",
                )
                nursery.start_soon(listen, handle)
                await trio.sleep(0.5)
                if end == "cancelled":
                    handle.cancel()
                if end == "runtime cancelled":
                    scope.cancel()
    assert [getattr(item, "terminal", False) for item in items].count(True) == 1
    assert items[-1].terminal
    assert items[-1].stop_reason == end.removeprefix("runtime ")


async def test_leaving_early_is_an_unsubscribe(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    states: list[RunState] = []
    subscribe = RunState.subscribe

    def watched(self: RunState, deliver: Any) -> None:
        states.append(self)
        subscribe(self, deliver)

    monkeypatch.setattr(RunState, "subscribe", watched)
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1)), "q")
        async with handle.events() as events:
            first: Any = await events.receive()
        assert first.kind == "started"
        assert [state.subscribers for state in states] == [()], "it is still told everything"
        result = await handle.result()
    assert (result.stop_reason, result.output) == ("completed", 3), "the run was touched"
    assert result.telemetry.dropped == 0


async def test_a_slow_receiver_loses_the_newest_but_never_the_terminal_event(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(n=20, max_concurrency=20), "q")
        async with handle.events(buffer=10) as events:
            result = await handle.result()  # meanwhile nobody receives
            items: list[Any] = [item async for item in events]
    assert [item.sequence for item in items] == [*range(10), 100]
    assert items[-1].terminal
    assert result.telemetry.dropped == 101 - 11


async def test_a_receiver_that_does_not_receive_holds_nobody_up(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(1)), "q")
        async with handle.events(buffer=1), handle.candidates():
            result = await handle.result()
    assert result.elapsed == pytest.approx(1)


async def test_several_feeds_do_not_share_their_items(autojump_clock: MockClock) -> None:
    found: list[list[Any]] = []

    async def listen(handle: RunHandle[Any]) -> None:
        found.append(await everything(handle))

    async with open_runtime() as runtime, trio.open_nursery() as nursery:
        handle = runtime.start(job(generate=after(0.1)), "q")
        for _ in range(3):
            nursery.start_soon(listen, handle)
    assert len(found) == 3
    last = found[0][-21:]
    assert all(items[-len(last) :] == last for items in found)


# -- candidates -----------------------------------------------------------------------------------


async def test_candidates_come_as_they_end(autojump_clock: MockClock) -> None:
    came: list[tuple[int, float]] = []
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.3, 0.1, 0.4, 0.2)), "q")
        async with handle.candidates() as candidates:
            async for candidate in candidates:
                came.append((candidate.index, round(trio.current_time(), 6)))
        result = await handle.result()
    assert came == [(1, 0.1), (3, 0.2), (0, 0.3), (2, 0.4)]
    assert statuses(result) == ["eligible"] * 4


async def test_who_comes_late_gets_those_that_have_ended_first(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.3, 0.1, 0.4, 0.2)), "q")
        await trio.sleep(0.25)
        async with handle.candidates() as candidates:
            indices = [candidate.index async for candidate in candidates]
        result = await handle.result()
        async with handle.candidates() as candidates:
            again = [candidate async for candidate in candidates]
    assert indices == [1, 3, 0, 2]
    assert again == list(result.candidates)


async def test_records_that_come_are_those_of_the_result(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1, 9), timeout=1), "q")
        async with handle.candidates() as candidates:
            came = [candidate async for candidate in candidates]
        result = await handle.result()
    assert sorted(came, key=lambda candidate: candidate.index) == list(result.candidates)


async def test_leaving_candidates_early_leaves_the_run_alone_and_leaving_the_handle_ends_it(
    autojump_clock: MockClock,
) -> None:
    unwound: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(0.1 + 9 * ctx.index)
        finally:
            unwound.append(ctx.index)
        return ctx.index

    async with open_runtime() as runtime:
        async with runtime.start(job(generate=generate), "q") as handle:
            async with handle.candidates() as candidates:
                first = await candidates.receive()
            assert first.index == 0
            assert handle.snapshot().stop_reason is None
        assert sorted(unwound) == [0, 1, 2, 3]
        result = await handle.result()
    assert statuses(result) == ["eligible"] + ["cancelled"] * 3
    assert result.output == 0
