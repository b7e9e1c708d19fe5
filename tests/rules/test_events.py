"""What observers are told: the fields, the kinds, the order.

A candidate that runs to its end makes five events, a run of n makes 5 n + 1: numbered from 0
without a gap, and exactly one of them, the last, is terminal.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any, get_args

import attrs
import pytest
import trio

from hortator import (
    BestOfN,
    Budget,
    CandidateContext,
    Event,
    RunResult,
    Status,
    Usage,
    first_accepted,
    open_runtime,
)
from hortator.protocols import events
from hortator.protocols.candidate import Generated

ORDER = ["started", "leased", "generated", "scored", "ended"]


async def generate(request: str, ctx: CandidateContext) -> str:
    await trio.sleep(1 + ctx.index % 3)
    return request


async def score(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    await trio.sleep((ctx.index + 1) % 2)
    return float(ctx.index)


async def told(**options: Any) -> tuple[RunResult[str], list[Event]]:
    """The result of a run, and all that an observer of it was told."""
    seen: list[Event] = []
    callbacks: dict[str, Any] = {"generate": generate, "score": score}
    async with open_runtime() as runtime:
        job = BestOfN(**{**callbacks, **options})
        result = await runtime.run(job, "question", observers=[seen.append])
    return result, seen


def of_each(seen: list[Event]) -> dict[int, list[str]]:
    """The kinds of events of each candidate, in their order."""
    kinds: dict[int, list[str]] = defaultdict(list)
    for event in seen:
        if event.candidate is not None:
            kinds[event.candidate].append(event.kind)
    return kinds


# -- the classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("event", get_args(Event))
def test_every_event_has_the_common_fields_and_is_a_value(event: type[Any]) -> None:
    fields = {field.name for field in attrs.fields(event)}
    assert fields >= {"sequence", "run_id", "time"}
    for name in ("kind", "candidate", "terminal"):
        assert name in fields or hasattr(event, name), name
    made = event(**dict.fromkeys(fields))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.sequence = 1


def test_events_are_told_apart_by_their_kinds_and_one_is_terminal() -> None:
    kinds = [event.kind for event in get_args(Event) if event is not events.Emitted]
    assert kinds == [*ORDER, "published", "effect", "late_end", "finished"]
    assert [event.kind for event in get_args(Event) if event.terminal] == ["finished"]


def test_every_class_of_the_module_is_in_the_union() -> None:
    classes = {each for each in vars(events).values() if attrs.has(each) and isinstance(each, type)}
    ours = {each for each in classes if each.__module__ == events.__name__}
    assert ours == set(get_args(Event))


# -- the order -----------------------------------------------------------------------------------


@pytest.mark.parametrize("max_concurrency", [1, 3, 8])
async def test_a_run_of_n_makes_five_n_events_and_the_terminal_one(
    autojump_clock: Any, max_concurrency: int
) -> None:
    result, seen = await told(n=8, max_concurrency=max_concurrency)
    assert [event.sequence for event in seen] == list(range(5 * 8 + 1))
    assert result.telemetry.events == result.telemetry.delivered == 5 * 8 + 1
    assert [event.terminal for event in seen] == [False] * 40 + [True]
    assert of_each(seen) == dict.fromkeys(range(8), ORDER)
    assert {event.run_id for event in seen} == {result.run_id}
    assert all(a.time <= b.time for a, b in itertools.pairwise(seen)), "time ran backwards"


async def test_what_each_event_says(autojump_clock: Any) -> None:
    result, seen = await told(n=1)
    started, leased, generated, scored, ended, finished = seen
    assert (started.kind, started.candidate) == ("started", 0)
    assert (leased.kind, generated.kind) == ("leased", "generated")
    assert generated.time - started.time == 1
    assert isinstance(scored, events.CandidateScored)
    assert scored.score == result.candidates[0].score
    assert scored.time - started.time == 2
    assert isinstance(ended, events.CandidateEnded)
    assert (ended.status, ended.detached, ended.error) == (Status.ELIGIBLE, False, None)
    assert isinstance(finished, events.RunFinished)
    assert (finished.selected, finished.partial) == (0, False)
    assert (finished.stop_reason, finished.candidate) == (result.stop_reason, None)
    assert (finished.statuses, finished.detached) == ({Status.ELIGIBLE: 1}, ())
    assert finished.charged == result.usage.charged


async def test_a_failure_is_told_as_itself(autojump_clock: Any) -> None:
    async def failing(request: str, ctx: CandidateContext) -> str:
        raise ValueError("no")

    result, seen = await told(generate=failing, n=1)
    assert [event.kind for event in seen] == ["started", "leased", "ended", "finished"]
    ended = seen[2]
    assert isinstance(ended, events.CandidateEnded)
    assert ended.error is result.candidates[0].error
    assert ended.status is Status.GENERATION_FAILED


async def test_one_that_never_started_makes_no_event(autojump_clock: Any) -> None:
    result, seen = await told(n=8, max_concurrency=2, stop=first_accepted())
    skipped = [c.index for c in result.candidates if c.status is Status.SKIPPED]
    assert skipped, "all had started: the test shows nothing"
    assert not set(skipped) & set(of_each(seen))
    assert seen[-1].kind == "finished"


async def test_one_that_the_budget_denied_is_told_to_have_ended_and_nothing_else(
    autojump_clock: Any,
) -> None:
    async def overspends(request: str, ctx: CandidateContext) -> str:
        ctx.charge(Usage(model_calls=3))
        return request

    _, seen = await told(generate=overspends, n=3, max_concurrency=1, budget=Budget(model_calls=3))
    assert of_each(seen)[1] == of_each(seen)[2] == ["ended"]


async def test_a_run_without_time_tells_its_end_alone(autojump_clock: Any) -> None:
    result, seen = await told(n=3, timeout=0)
    assert [event.kind for event in seen] == ["finished"]
    assert [c.status for c in result.candidates] == [Status.SKIPPED] * 3
    assert (result.stop_reason, result.partial) == ("deadline", True)


async def test_what_callbacks_tell_of_is_numbered_among_the_rest(autojump_clock: Any) -> None:
    async def telling(request: str, ctx: CandidateContext) -> str:
        ctx.emit("token", text="a")
        ctx.publish("draft", 0.5)
        async with ctx.effect("look up", "read"):
            pass
        return request

    _, seen = await told(generate=telling, n=1)
    assert [event.kind for event in seen] == [
        "started",
        "leased",
        "token",
        "published",
        "effect",
        "effect",
        *ORDER[2:],
        "finished",
    ]
    assert [event.sequence for event in seen] == list(range(10))
    emitted = seen[2]
    assert isinstance(emitted, events.Emitted)
    assert emitted.data == {"text": "a"}


async def test_every_observer_is_told_the_same(autojump_clock: Any) -> None:
    first, second, later = list[Event](), list[Event](), list[Event]()

    async def slow(event: Event) -> None:
        await trio.sleep(0.001)
        later.append(event)

    observers: list[Callable[[Event], Any]] = [first.append, second.append, slow]
    async with open_runtime() as runtime:
        job = BestOfN(generate=generate, score=score, n=4)
        await runtime.run(job, "question", observers=observers)
    assert first == second == later
    assert len(first) == 21
