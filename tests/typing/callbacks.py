"""For type checkers only: what callbacks, observers and rules of the user's own may look like.

Each wrong line carries an ignore, which would be unused if the line stopped being wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never, assert_type

from hortator import (
    BestOfN,
    Budget,
    Candidate,
    CandidateContext,
    Event,
    Observer,
    Runtime,
    Score,
    Usage,
    in_thread,
)
from hortator.protocols.candidate import Generated
from hortator.protocols.events import (
    CandidateEnded,
    CandidateGenerated,
    CandidateLeased,
    CandidatePublished,
    CandidateScored,
    CandidateStarted,
    EffectChanged,
    Emitted,
    LateEnd,
    RunFinished,
)
from hortator.protocols.scoring import Objective
from hortator.protocols.selection import InPlace, Selector
from hortator.protocols.stopping import Follower, Following, StopReason, StopRule


async def a_context_is_typed(ctx: CandidateContext) -> None:
    assert_type(ctx.index, int)
    assert_type(ctx.seed, int)
    assert_type(ctx.deadline, float | None)
    assert_type(ctx.stopping, bool)
    assert_type(ctx.remaining().seconds, float | None)
    assert_type(ctx.remaining().total_tokens, int | None)
    assert_type(await ctx.reserve(Usage(model_calls=1)), bool)
    ctx.charge(Usage(total_tokens=3, cost="0.01"))
    ctx.publish("draft", 0.5)
    ctx.emit("token", text="a")
    with ctx.cleanup(0.1):
        pass
    async with ctx.effect("mail", "write"):
        pass

    ctx.charge({"total_tokens": 3})  # type: ignore[arg-type]
    ctx.charge(Usage(total_tokens=1.5))  # type: ignore[arg-type]
    Usage(3)  # type: ignore[call-arg]
    Budget(model_calls="16")  # type: ignore[arg-type]
    ctx.effect("mail", "send")  # type: ignore[arg-type]
    ctx.index = 3  # type: ignore[misc]
    with ctx.effect("mail", "write"):  # type: ignore[attr-defined]
        pass


def what_a_scorer_is_shown(candidate: Generated[list[str]]) -> Score:
    assert_type(candidate.output, list[str])
    assert_type(candidate.usage, Usage)
    _ = candidate.score  # type: ignore[attr-defined]
    Score("0.5")  # type: ignore[arg-type]
    Score(0.5, usage={"model_calls": 1})  # type: ignore[arg-type]
    return Score(0.5, accepted=True, rationale="half", usage=Usage(model_calls=1))


# -- observers -----------------------------------------------------------------------------------


def on_the_loop(event: Event) -> None: ...


async def in_its_own_task(event: Event) -> None: ...


def of_nothing() -> None: ...


async def observers_may_be_sync_or_async(runtime: Runtime, job: BestOfN[str, str]) -> None:
    await runtime.run(job, "q", observers=[on_the_loop, in_its_own_task, in_thread(on_the_loop)])
    await runtime.run(job, "q", observers=(lambda event: None,))
    one: Observer = on_the_loop
    await runtime.run(job, "q", observers=[one])
    await runtime.run(job, "q", observers=[of_nothing])  # type: ignore[list-item]
    in_thread(in_its_own_task)  # type: ignore[arg-type]
    in_thread(of_nothing)  # type: ignore[arg-type]


def events_are_told_apart_by_class_and_none_is_forgotten(event: Event) -> str:
    assert_type(event.sequence, int)
    assert_type(event.candidate, int | None)
    assert_type(event.terminal, bool)
    match event:
        case CandidateStarted() | CandidateLeased() | CandidateGenerated():
            return event.kind
        case CandidateScored():
            return str(event.score.value)
        case CandidateEnded():
            return str(event.status)
        case CandidatePublished():
            return str(event.score)
        case EffectChanged():
            return event.state
        case Emitted():
            return str(event.data)
        case LateEnd():
            return event.detached.where
        case RunFinished():
            return event.stop_reason
        case _:
            assert_never(event)


def a_forgotten_event_is_an_error(event: Event) -> None:
    match event:
        case CandidateStarted() | CandidateLeased() | CandidateGenerated() | CandidateScored():
            pass
        case CandidateEnded() | CandidatePublished() | EffectChanged() | Emitted() | LateEnd():
            pass
        case _:
            assert_never(event)  # type: ignore[arg-type]


# -- rules of the user's own ---------------------------------------------------------------------


class Cheapest:
    """A selector."""

    name = "cheapest"
    needs_scores = False
    trusted = True

    def choose(
        self, candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
    ) -> int | None:
        eligible = [c for c in candidates if c.eligible]
        return min(eligible, key=lambda c: c.usage.cost).index if eligible else None


class WellAbove:
    """A stopping rule."""

    reason: StopReason = "target"
    takes_the_first = True

    def follow(self, run: Following) -> Follower | None:
        return self

    def ended(self, record: Candidate[Any]) -> bool:
        return record.score is not None and record.score.value > 100


class NoRule:
    """Neither of them."""

    name = "no rule"


def rules_are_whatever_has_the_right_shape() -> None:
    cheapest: InPlace = Cheapest()
    well_above: StopRule = WellAbove()
    selector: Selector = cheapest
    wrong: Selector = NoRule()  # type: ignore[assignment]
    wrong_too: StopRule = NoRule()  # type: ignore[assignment]
    del selector, well_above, wrong, wrong_too
