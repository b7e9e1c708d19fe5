"""A candidate's life: its statuses, the legal steps between them, and its record."""

from __future__ import annotations

import enum
from typing import Any, Generic, Literal, TypeAlias

import attrs

from hortator.protocols.attribution import Attribution
from hortator.protocols.brief import costs, head, named, scored, told
from hortator.protocols.interfaces import Out
from hortator.protocols.scoring import Score
from hortator.protocols.showing import message, on_one_line
from hortator.protocols.usage import Usage


class Status(enum.StrEnum):
    """Where a candidate stands. `detached` is a flag beside it, not a status.

    Ended: everything from `eligible` on. A record of a finished run shows `generating` or
    `scoring` only together with `detached=True`: the work never ended, and that is where it is.
    """

    PENDING = "pending"
    GENERATING = "generating"
    GENERATED = "generated"
    SCORING = "scoring"
    ELIGIBLE = "eligible"
    """Scored, accepted, and at the threshold or better; or generated, in a job without scorer."""
    REJECTED = "rejected"
    """Scored, but not accepted or not at the threshold."""
    GENERATION_FAILED = "generation_failed"
    """The generator or the builder of its request raised; `error` has what."""
    SCORING_FAILED = "scoring_failed"
    """The scorer raised, or its answer is no score; `error` has what."""
    BUDGET_EXCEEDED = "budget_exceeded"
    """No lease could be granted, or more was spent than the lease covers."""
    SIDE_EFFECT_BLOCKED = "side_effect_blocked"
    """A write was tried in an isolated run."""
    CANCELLED = "cancelled"
    """Stopped by a stop, a cancellation or a rule that was met; it has really stopped."""
    TIMED_OUT = "timed_out"
    """Stopped by the deadline or its own timeout, or it ended at or after the deadline."""
    SKIPPED = "skipped"
    """No callback of it ever started."""


_CUT = frozenset({Status.CANCELLED, Status.TIMED_OUT})
_FAILED = _CUT | {Status.BUDGET_EXCEEDED, Status.SIDE_EFFECT_BLOCKED}

STEPS: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset(
        {Status.GENERATING, Status.GENERATION_FAILED, Status.BUDGET_EXCEEDED, Status.SKIPPED}
    ),
    Status.GENERATING: _FAILED | {Status.GENERATED, Status.GENERATION_FAILED, Status.SKIPPED},
    Status.GENERATED: _CUT | {Status.SCORING, Status.ELIGIBLE},
    Status.SCORING: _FAILED | {Status.ELIGIBLE, Status.REJECTED, Status.SCORING_FAILED},
}
"""The legal steps. A status that is no key is terminal."""

TERMINAL: frozenset[Status] = frozenset(Status) - STEPS.keys()

EffectState: TypeAlias = Literal["not_started", "unknown", "done", "failed"]
EffectKind: TypeAlias = Literal["read", "write"]


@attrs.frozen
class Effect:
    """What became of one side effect of a candidate.

    Attributes:
        name: as the callback named it.
        kind: "read" or "write".
        state: "done" or "failed" if it ended by itself; "unknown" if it was begun and cut, so
            that it may or may not have happened; "not_started" if it was never begun.
    """

    name: str
    kind: EffectKind
    state: EffectState


@attrs.frozen
class Generated(Generic[Out]):
    """What a scorer is shown of a candidate.

    Attributes:
        index: its place in the run, from 0.
        output: what the generator returned.
        usage: what it has reported so far.
    """

    index: int
    output: Out
    usage: Usage


@attrs.frozen(repr=False)
class Candidate(Generic[Out]):
    """The record of one candidate. Its list in a result is in index order, one for each of n.

    Attributes:
        index: its place in the run, from 0.
        status: where it ended; for detached work, the phase that it is stuck in.
        detached: it had not ended when the run returned: see `Runtime.detached`.
        request: the request as this candidate got it (its own copy of any container).
        output: what it produced, or None; if `partial`, its last publication.
        partial: `output` was published by work that was cut, or that failed, before its end.
        score: of `output`, if it was scored.
        error: what it failed of, as itself.
        usage: what the budget was charged for it, the runs that it started included.
        estimated: whether part of `usage` is the estimate, for want of a report.
        started: seconds from the run's start to its own, None if it never started.
        elapsed: seconds from its start to its end.
        effects: what became of its side effects, in the order of their declaration.
        eligible: whether it may be selected: its status is `eligible`, or it was cut and its
            last scored publication is acceptable.
        scoring: the part of `usage` that its scoring came to.
        nested: what the runs that it started came to, a tree each.
    """

    index: int
    status: Status
    detached: bool = False
    request: object = None
    output: Out | None = None
    partial: bool = False
    score: Score | None = None
    error: BaseException | None = None
    usage: Usage = Usage()
    estimated: bool = False
    started: float | None = None
    elapsed: float = 0.0
    effects: tuple[Effect, ...] = ()
    eligible: bool = False
    scoring: Usage = Usage()
    nested: tuple[Attribution, ...] = ()

    def __repr__(self) -> str:
        return told(self, _told)


def marked(candidate: Candidate[Any]) -> str:
    """The status of a candidate, with what stands beside it.

    >>> marked(Candidate(0, Status.TIMED_OUT, output="draft", partial=True))
    'timed_out (partial)'
    """
    marks = [word for word in ("detached", "partial") if getattr(candidate, word)]
    return f"{candidate.status} ({', '.join(marks)})" if marks else str(candidate.status)


def _told(candidate: Candidate[Any]) -> str:
    time = "" if candidate.started is None else f"{candidate.elapsed:.2f} s"
    parts = [marked(candidate), scored(candidate.score), time, costs(candidate.usage)]
    line = f"#{candidate.index} {', '.join(filter(None, parts))}"
    error = candidate.error
    if error is not None:
        line += f"; {named(error)}: {on_one_line(message(error), 80)}"
    return line if candidate.output is None else f"{line}; {head(candidate.output)}"


@attrs.frozen
class Detached:
    """Work that outlived its run. What it still does changes no result and is raised nowhere.

    Attributes:
        run_id: the run that started it.
        candidate: its index there, None for an observer, selector or builder.
        phase: what it was doing when the run gave up on it.
        since: seconds on Trio's clock, when that was.
        kind: whether a task or a worker thread carries it.
        where: "file:line in function", the innermost place outside trio and this library.
        lease: what is still reserved for it.
        ended: whether it has ended since.
        late_usage: what it came to, once it has ended.
        error: what it raised at its end, if it did.
    """

    run_id: str
    candidate: int | None
    phase: Literal["generating", "scoring", "observing", "selecting", "building"]
    since: float
    kind: Literal["task", "thread"]
    where: str
    lease: Usage = Usage()
    ended: bool = False
    late_usage: Usage | None = None
    error: BaseException | None = None
