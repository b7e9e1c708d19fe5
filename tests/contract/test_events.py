"""The record of a run: which events there are, their order, and the one that ends it (design §7).

Under virtual time.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, get_args

import attrs
import pytest
import trio
from trio.testing import MockClock

from hortator import (
    Budget,
    Event,
    LeaseExceeded,
    Status,
    Usage,
    first_accepted,
    open_runtime,
    target,
)
from hortator.actors import observer as observers
from hortator.protocols.events import Emitted
from hortator.protocols.stopping import CUT_SHORT
from tests.contract.scenes import AsyncRecord, Record, Stubborn, after, job, stubborn_for

# -- one terminal event, whatever the end ---------------------------------------------------------


async def _overspend(request: Any, ctx: Any) -> Any:
    with contextlib.suppress(LeaseExceeded):
        ctx.charge(Usage(model_calls=9))
    return ctx.index


async def _fail(request: Any, ctx: Any) -> Any:
    raise OSError


async def _interrupt(request: Any, ctx: Any) -> Any:
    await trio.sleep(0.1)
    raise KeyboardInterrupt


def _complain(event: Event) -> None:
    if event.kind == "generated":
        raise ValueError


ENDS: dict[str, dict[str, Any]] = {
    "completed": {},
    "no_eligible": {"generate": _fail},
    "first_accepted": {"generate": after(0.1, 9), "stop": first_accepted()},
    "target": {"generate": after(0.1, 9), "stop": target(0)},
    "deadline": {"generate": after(0.1, 9), "timeout": 1},
    "deadline, at once": {"timeout": 0},
    "deadline, detached": {"generate": Stubborn(9, 1), "timeout": 1},
    "outer_deadline": {"generate": after(0.1, 9)},
    "cancelled": {"generate": after(0.1, 9)},
    "stopped": {"generate": after(0.6), "max_concurrency": 1},
    "budget_exceeded": {
        "generate": _overspend,
        "budget": Budget(model_calls=4),
        "max_concurrency": 1,
    },
    "slots_lost": {"generate": Stubborn(9, 0), "max_concurrency": 1, "candidate_timeout": 0.5},
    "observer_failed": {"generate": after(0.1, 9)},
    "cancelled, interrupt": {"generate": _interrupt},
}


async def _play(end: str, runtime: Any, watching: list[Any]) -> Any:
    """The result of a run that ends in that way; None if it raises instead."""
    strict: Any = {}
    if end == "observer_failed":
        watching, strict = [*watching, _complain], {"on_observer_error": "raise"}
    with trio.CancelScope() as scope:
        if end == "outer_deadline":
            scope.deadline = trio.current_time() + 1
        handle = runtime.start(job(**ENDS[end]), "q", observers=watching, **strict)
        if end in ("cancelled", "stopped"):
            await trio.sleep(0.5)
            (handle.cancel if end == "cancelled" else handle.stop_after_current)()
        try:
            return await handle.result()
        except (KeyboardInterrupt, Exception):
            return None


@pytest.mark.parametrize("end", ENDS)
async def test_every_end_has_exactly_one_terminal_event_and_it_is_last(
    end: str, autojump_clock: MockClock
) -> None:
    record, slow, everybodys = Record(), AsyncRecord(), Record()
    async with open_runtime(observers=[everybodys]) as runtime:
        result = await _play(end, runtime, [record, slow])
        told = list(everybodys.events)
    assert result is None or result.stop_reason == end.split(",")[0]
    for events in (record.events, slow.events, told):
        assert [event.terminal for event in events].count(True) == 1
        assert events[-1].kind == "finished"
        assert [event.sequence for event in events] == list(range(len(events)))
        assert all(a.time <= b.time for a, b in itertools.pairwise(events))


@pytest.mark.parametrize("end", [e for e in ENDS if e not in ("observer_failed",)])
async def test_the_terminal_event_says_what_the_result_says(
    end: str, autojump_clock: MockClock
) -> None:
    record = Record()
    async with open_runtime() as runtime:
        result = await _play(end, runtime, [record])
    terminal = record.terminal
    assert terminal.partial == (terminal.stop_reason in CUT_SHORT)
    assert sum(terminal.statuses.values()) == 4
    if result is not None:
        assert terminal.stop_reason == result.stop_reason
        assert terminal.partial == result.partial
        assert terminal.selected == (result.selected.index if result.selected else None)
        assert terminal.charged == result.usage.charged
        assert terminal.detached == tuple(c.index for c in result.candidates if c.detached)
        assert result.telemetry.events == len(record.events)
        for status in Status:
            count = [c.status for c in result.candidates].count(status)
            assert terminal.statuses.get(status, 0) == count


# -- the events of a candidate --------------------------------------------------------------------


async def test_a_candidate_that_runs_through_makes_five(autojump_clock: MockClock) -> None:
    record = Record()
    async with open_runtime() as runtime:
        await runtime.run(job(n=7, max_concurrency=3), "q", observers=[record])
    for index in range(7):
        assert record.of(index) == ["started", "leased", "generated", "scored", "ended"]
    assert len(record.events) == 5 * 7 + 1


async def test_each_started_candidate_ends_once(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        if candidate.index == 1:
            raise ValueError
        await trio.sleep(9 if candidate.index == 2 else 0)
        return candidate.index

    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 0:
            raise OSError("mine")
        await (stubborn_for if ctx.index == 3 else trio.sleep)(9 if ctx.index > 2 else 0.1)

    record = Record()
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=generate, score=score, n=6, max_concurrency=5, timeout=1),
            "q",
            observers=[record],
        )
    assert [record.of(index) for index in range(6)] == [
        ["started", "leased", "ended"],
        ["started", "leased", "generated", "ended"],
        ["started", "leased", "generated", "ended"],
        ["started", "leased", "ended"],
        ["started", "leased", "ended"],
        ["started", "leased", "ended"],
    ]
    ends = {event.candidate: event for event in record.events if event.kind == "ended"}
    for candidate in result.candidates:
        end: Any = ends[candidate.index]
        assert (end.status, end.detached, end.error) == (
            candidate.status,
            candidate.detached,
            candidate.error,
        )


async def test_skipped_candidates_make_none_and_denied_ones_only_end(
    autojump_clock: MockClock,
) -> None:
    record = Record()
    async with open_runtime() as runtime:
        await _play("budget_exceeded", runtime, [record])
        skipping = Record()
        await _play("stopped", runtime, [skipping])
    assert record.of(0)[-1] == "ended"
    assert [record.of(index) for index in (1, 2, 3)] == [["ended"]] * 3
    assert [skipping.of(index) for index in (1, 2, 3)] == [[]] * 3


async def test_a_callback_may_tell_things_of_its_own(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.emit("token", text="a", finished=False)
        async with ctx.effect("look", "read"):
            ctx.publish("draft", 0.5)
        return ctx.index

    record = Record()
    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, n=1), "q", observers=[record])
    assert record.of(0) == [
        *("started", "leased"),
        *("token", "effect", "published", "effect"),
        *("generated", "scored", "ended"),
    ]
    emitted = record.events[2]
    assert isinstance(emitted, Emitted)
    assert dict(emitted.data) == {"text": "a", "finished": False}
    states = [event.state for event in record.events if event.kind == "effect"]
    assert states == ["unknown", "done"]


# -- what an event is -----------------------------------------------------------------------------

CLASSES: tuple[Any, ...] = get_args(Event)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_event_has_the_same_head(kind: Any) -> None:
    names = {field.name for field in attrs.fields(kind)} | set(vars(kind))
    assert names >= {"sequence", "kind", "run_id", "candidate", "time", "terminal"}
    assert kind.terminal is (kind.__name__ == "RunFinished")


def test_kinds_tell_the_classes_apart() -> None:
    kinds = [kind.kind for kind in CLASSES if kind is not Emitted]
    assert len(set(kinds)) == len(kinds) == len(CLASSES) - 1


async def test_events_carry_their_run_their_candidate_and_a_time(
    autojump_clock: MockClock,
) -> None:
    record = Record()
    async with open_runtime() as runtime:
        began = trio.current_time()
        result = await runtime.run(job(generate=after(0.5)), "q", observers=[record])
    assert {event.run_id for event in record.events} == {result.run_id}
    assert record.events[-1].candidate is None
    assert {event.candidate for event in record.events[:-1]} == {0, 1, 2, 3}
    assert {event.time - began for event in record.events} == {0.0, 0.5}


# -- buffers --------------------------------------------------------------------------------------


def _chatter(deltas: int) -> Callable[..., Any]:
    async def generate(request: Any, ctx: Any) -> Any:
        for number in range(deltas):
            ctx.emit("delta", number=number)
        return ctx.index

    return generate


async def test_deltas_are_dropped_at_a_soft_limit_lifecycle_events_are_not(
    autojump_clock: MockClock,
) -> None:
    deltas = 2 * observers.SOFT_LIMIT
    slow, quick = AsyncRecord(0.001), Record()
    async with open_runtime(grace=60) as runtime:
        result = await runtime.run(
            job(generate=_chatter(deltas), n=1), "q", observers=[slow, quick]
        )
    told = slow.kinds.count("delta")
    assert told <= observers.SOFT_LIMIT, "the buffer grew beyond its limit"
    assert told > observers.SOFT_LIMIT / 2, "dropped long before it was full"
    lifecycle = [kind for kind in slow.kinds if kind != "delta"]
    assert lifecycle == ["started", "leased", "generated", "scored", "ended", "finished"]
    assert result.telemetry.dropped == deltas - told, "every drop is counted"
    assert quick.kinds.count("delta") == deltas, "a slow observer's drops hit a quick one"
    numbers = [event.sequence for event in slow.events]
    assert numbers == sorted(numbers)


async def test_lifecycle_events_are_dropped_at_a_hard_limit_the_terminal_one_never(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(observers, "HARD_LIMIT", 10)
    slow = AsyncRecord(0.001)
    async with open_runtime(grace=60) as runtime:
        result = await runtime.run(job(n=20, max_concurrency=20), "q", observers=[slow])
    assert result.telemetry.dropped == 101 - len(slow.events) > 50
    assert slow.terminal.sequence == 100


async def test_what_is_delivered_dropped_and_failed_adds_up(autojump_clock: MockClock) -> None:
    async def hangs(event: Event) -> None:
        await trio.sleep(9 if event.kind == "scored" else 0)

    def raises(event: Event) -> None:
        if event.kind == "leased":
            raise ValueError

    async with open_runtime() as runtime:
        result = await runtime.run(job(timeout=1), "q", observers=[hangs, raises])
    telemetry = result.telemetry
    assert telemetry.observer_errors == 4
    assert telemetry.cut == 1
    assert telemetry.dropped > 0, "what the hung one never got"
    total = telemetry.delivered + telemetry.dropped + telemetry.observer_errors
    assert total == 2 * telemetry.events


async def test_an_observer_that_is_far_behind_at_the_end_is_cut_and_counted(
    autojump_clock: MockClock,
) -> None:
    slow = AsyncRecord(0.1)
    async with open_runtime() as runtime:
        result = await runtime.run(job(n=20, max_concurrency=20), "q", observers=[slow])
    assert not any(event.terminal for event in slow.events)
    assert result.telemetry.cut == 1
    assert result.telemetry.dropped == 101 - len(slow.events)
