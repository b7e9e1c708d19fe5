"""`on_observer_error="raise"`: an observer that raises stops its run, and no other (design §7).

Under virtual time.
"""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from hortator import Event, ObserverFailed, open_runtime
from tests.contract.scenes import Record, after, job, statuses


async def _hangs(event: Event) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("kind", ["started", "generated", "scored", "ended"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_strict_mode_stops_the_run_and_raises_with_the_result(
    kind: str, asynchronous: bool, autojump_clock: MockClock
) -> None:
    mine = ValueError("mine")
    record = Record()

    def observe(event: Event) -> None:
        if event.kind == kind:
            raise mine

    async def observe_async(event: Event) -> None:
        observe(event)

    async with open_runtime() as runtime:
        other = runtime.start(job(generate=after(2)), "q")
        with pytest.raises(ObserverFailed) as caught:
            await runtime.run(
                job(generate=after(0.1, 9)),
                "q",
                observers=[record, observe_async if asynchronous else observe],
                on_observer_error="raise",
            )
        assert trio.current_time() <= 0.1, "it did not stop the run"
        assert (await other.result()).output == 3, "another run was stopped"
    error = caught.value
    assert error.failures[0] is error.__cause__ is mine
    result = error.result
    assert (result.stop_reason, result.partial) == ("observer_failed", True)
    assert len(result.candidates) == 4
    assert "cancelled" in statuses(result)
    assert record.terminal.stop_reason == "observer_failed"
    if kind in ("scored", "ended"):
        assert result.output == 0, "the best so far"


async def test_strict_mode_counts_a_failure_on_the_terminal_event_too(
    autojump_clock: MockClock,
) -> None:
    def observe(event: Event) -> None:
        if event.terminal:
            raise ValueError("at the end")

    async with open_runtime() as runtime:
        with pytest.raises(ObserverFailed) as caught:
            await runtime.run(job(), "q", observers=[observe], on_observer_error="raise")
    assert caught.value.result.output == 3
    assert caught.value.result.stop_reason == "completed", "the event has said so"


async def test_strict_mode_without_a_failure_is_a_result(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[Record()], on_observer_error="raise")
    assert result.output == 3


async def test_a_cut_is_no_failure_in_strict_mode(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[_hangs], on_observer_error="raise")
    assert (result.output, result.telemetry.cut) == (3, 1)
