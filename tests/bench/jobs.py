"""The jobs that are measured, and what each measured run has to have done."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import trio

from hortator import BestOfN, Budget, CandidateContext, Event, RunResult, Runtime, Status, Usage
from hortator.protocols.candidate import Candidate, Generated
from tests.bench.floor import score_of
from tests.bench.measure import Contender

CONCURRENCY = 64
TIMEOUT = 100.0
ESTIMATE = Usage(model_calls=1, total_tokens=500, cost=Decimal("0.002"))


class Sink:
    """What an observer does: count events per kind, keep the last time."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.last = 0.0

    def __call__(self, event: Event) -> None:
        self.counts[event.kind] = self.counts.get(event.kind, 0) + 1
        self.last = event.time


class AsyncSink(Sink):
    """The same as an async observer, which has a task and a mailbox."""

    async def __call__(self, event: Event) -> None:  # type: ignore[override]
        super().__call__(event)


async def generate(request: str, ctx: CandidateContext) -> str:
    """Let the loop go once, as the floor's generator does."""
    await trio.lowlevel.checkpoint()
    return f"answer {ctx.index}"


async def score(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    """The floor's score."""
    return float(score_of(candidate.output))


def times(n: int) -> Usage:
    """n estimates."""
    return Usage(
        model_calls=ESTIMATE.model_calls * n,
        total_tokens=ESTIMATE.total_tokens * n,
        cost=ESTIMATE.cost * n,
    )


def job(n: int, **changes: Any) -> BestOfN[str, str]:
    """Best of n with everything on: a timeout, and a budget in three dimensions."""
    whole = times(n)
    settings: dict[str, Any] = {
        "generate": generate,
        "score": score,
        "n": n,
        "max_concurrency": CONCURRENCY,
        "timeout": TIMEOUT,
        "budget": Budget(
            model_calls=whole.model_calls, total_tokens=whole.total_tokens, cost=whole.cost
        ),
        "estimate": ESTIMATE,
    }
    return BestOfN(**(settings | changes))


def best(n: int) -> int:
    """The index of the best of n answers; the lowest, if several are."""
    return max(range(n), key=lambda index: (score_of(f"answer {index}"), -index))


def check_result(result: RunResult[str], n: int, charged: Usage, winner: int) -> None:
    """All n candidates were eligible, the right one won, the book is closed."""
    candidates = result.candidates
    assert len(candidates) == n, f"{len(candidates)} records of {n} candidates"
    assert result.stop_reason == "completed", result.stop_reason
    left = [c for c in candidates if c.status is not Status.ELIGIBLE]
    assert not left, f"not eligible: {left[:3]}"
    selected: Candidate[str] | None = result.selected
    assert selected is not None
    assert selected.index == winner, f"{selected.index} was selected, {winner} is best"
    assert selected.output == f"answer {winner}", selected.output
    check_book(result)
    assert result.usage.charged == charged, result.usage.charged


def check_book(result: RunResult[Any]) -> None:
    """Nothing is reserved any more, and nothing was settled twice."""
    usage = result.usage
    assert usage.outstanding == Usage(), f"still reserved: {usage.outstanding}"
    assert not usage.double_settlements, f"{usage.double_settlements} settled twice"
    assert not usage.malformed, usage.malformed[:3]


def check_events(result: RunResult[Any], counts: dict[str, int], expected: dict[str, int]) -> None:
    """Exactly these events arrived, and none was dropped."""
    telling = result.telemetry
    assert counts == expected, f"events arrived: {counts}, expected: {expected}"
    assert telling.events == telling.delivered == sum(expected.values()), telling
    assert not telling.dropped, f"{telling.dropped} events were dropped"
    assert not telling.observer_errors, telling


def check_no_event_is_missing(result: RunResult[Any], counts: dict[str, int]) -> None:
    """Whatever did not arrive is counted: an async observer may be cut at the end of the grace."""
    telling = result.telemetry
    arrived = sum(counts.values())
    assert arrived == telling.delivered, f"{arrived} events arrived: {telling}"
    assert telling.delivered + telling.dropped == telling.events, telling


def full_life(n: int) -> dict[str, int]:
    """The 5 n + 1 events of a run of n candidates that all come to their end."""
    kinds = ("started", "leased", "generated", "scored", "ended")
    return dict.fromkeys(kinds, n) | {"finished": 1}


def ours(runtime: Runtime, n: int, *, sink: type[Sink] | None = Sink, **changes: Any) -> Contender:
    """A run of `job(n)` on a runtime. The job is made here, once, as a user makes it.

    Args:
        runtime: where it runs.
        n: how many candidates.
        sink: the observer that counts its events, if any.
        changes: to the job.
    """
    it = job(n, **changes)
    winner = best(n)
    charged = times(n) if it.limits else Usage()

    async def run() -> tuple[RunResult[str], Sink | None]:
        observers = [] if sink is None else [sink()]
        result = await runtime.run(it, "request", observers=observers)
        return result, observers[0] if observers else None

    def check(done: tuple[RunResult[str], Sink | None]) -> None:
        result, watcher = done
        check_result(result, n, charged, winner)
        if isinstance(watcher, AsyncSink):
            check_no_event_is_missing(result, watcher.counts)
        elif watcher is not None:
            check_events(result, watcher.counts, full_life(n))

    return Contender("ours", run, check)
