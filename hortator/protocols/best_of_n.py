"""A job: what to attempt, how often, under which limits, and what counts as best."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias

import attrs

from hortator.protocols.batch import BatchScorer, as_batch
from hortator.protocols.budget import Budget, Limits, limits_of, most_that_fit, preflight
from hortator.protocols.candidate import Generated
from hortator.protocols.errors import InvalidJob
from hortator.protocols.interfaces import CandidateContext, Generate, Out, Req
from hortator.protocols.lease import Rates
from hortator.protocols.pool import Pool
from hortator.protocols.scoring import Objective, ScoreLike
from hortator.protocols.selection import BestScore, Selector, best_score
from hortator.protocols.showing import shown
from hortator.protocols.signatures import check_callback, is_async
from hortator.protocols.stopping import (
    AllCandidates,
    FirstAccepted,
    StopRule,
    Target,
    all_candidates,
)
from hortator.protocols.usage import DIMENSIONS, MOST, NOTHING, Usage, estimated

Scorer: TypeAlias = (
    Callable[[Req, Generated[Out], CandidateContext], Awaitable[ScoreLike]]
    | Callable[[Req, Generated[Out], CandidateContext], ScoreLike]
)
"""A scorer: async, or sync and then run in a worker thread."""

DEFAULT_ESTIMATE = Usage(model_calls=1)
_LARGEST = sys.float_info.max
_CALLS = DIMENSIONS.index("model_calls")


@attrs.frozen(kw_only=True, eq=False)
class BestOfN(Generic[Req, Out]):
    """N attempts at one job. Immutable and reusable: it holds no state of any run.

    Attributes:
        generate: `generate(request, ctx)` makes one candidate's output.
        score: `score(request, candidate, ctx)` returns a finite number or a `Score`; or a
            `BatchScorer`, which scores many in one call.
        n: how many candidates.
        max_concurrency: how many may generate at the same time; as many again may be scored.
        score_concurrency: how many scoring calls may run at the same time, apart from
            generation; None for `max_concurrency`, or for 1 with a `BatchScorer`.
        score_once: `score_once(output)` is a key; of candidates with equal keys the first to be
            generated is scored, and the others wait for its score and take it over: the scorer is
            not called for them, and no scoring is charged. If that fails or is cut, the next one
            is scored itself. Keys are compared by hash, those that have none by `==`. Called on
            the loop; if it raises, its candidate is `scoring_failed`.
        timeout: seconds for the whole run; None for no deadline, 0 skips everything.
        candidate_timeout: seconds for each candidate's generation and scoring.
        grace: seconds that the run may take past its deadline to unwind and to deliver; None
            for the runtime's. Can only lower it.
        budget: limits over all candidates together.
        estimate: what one candidate's generation is expected to need; it is reserved before
            the candidate starts. `model_calls` counts only if the budget limits it.
        scoring_estimate: what one candidate's scoring is expected to need.
        fit: what happens if n of both estimates are more than the budget: "raise" refuses the
            job; "shrink" runs as many as fit, at least one. What a runtime's budget or a run
            around this one leaves plays no part in it.
        objective: whether a larger or a smaller score is better.
        threshold: a score that is worse is rejected; inclusive.
        tie_tolerance: scores this near to the best one are ties.
        select: how the best is chosen; `best_score()` by default.
        stop: what ends the run early; `all_candidates()`, nothing, by default.
        on_early_stop: whether a run that is cut short selects the best so far, or nothing.
        side_effects: "isolate" blocks writes declared with `ctx.effect`.
        fitted: how many candidates a run has: n, or fewer with fit="shrink". Not an argument.

    Raises:
        InvalidJob: a value or callback cannot work as written.
        DoesNotFit: the budget does not pay for n candidates; with fit="shrink", not for one.

    >>> async def generate(request, ctx):
    ...     return f"{request} #{ctx.index}"
    >>> async def score(request, candidate, ctx):
    ...     return len(candidate.output)
    >>> BestOfN(generate=generate, score=score, n=8, timeout=2.0).n
    8
    """

    generate: Generate[Req, Out]
    score: Scorer[Req, Out] | BatchScorer[Req, Out] | None = None
    n: int = 3
    max_concurrency: int = 3
    score_concurrency: int | None = None
    score_once: Callable[[Out], Any] | None = None
    timeout: float | None = None
    candidate_timeout: float | None = None
    grace: float | None = None
    budget: Budget = attrs.field(factory=Budget)
    estimate: Usage = DEFAULT_ESTIMATE
    scoring_estimate: Usage = Usage()
    fit: Literal["raise", "shrink"] = "raise"
    objective: Objective = "max"
    threshold: float | None = None
    tie_tolerance: float = 1e-9
    select: Selector = attrs.field(factory=best_score)
    stop: StopRule = attrs.field(factory=all_candidates)
    on_early_stop: Literal["best_so_far", "fail"] = "best_so_far"
    side_effects: Literal["isolate", "allow"] = "isolate"
    fitted: int = attrs.field(init=False, repr=False)
    limits: Limits = attrs.field(init=False, repr=False)
    rates: Rates = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        _whole("n", self.n)
        _whole("max_concurrency", self.max_concurrency)
        for name in ("timeout", "candidate_timeout", "grace"):
            _seconds(name, getattr(self, name))
        if self.threshold is not None:
            _number("threshold", self.threshold)
        _number("tie_tolerance", self.tie_tolerance, least=0.0, hint="a finite number from 0 up")
        _one_of("fit", self.fit, ("raise", "shrink"))
        _one_of("objective", self.objective, ("max", "min"))
        _one_of("on_early_stop", self.on_early_stop, ("best_so_far", "fail"))
        _one_of("side_effects", self.side_effects, ("isolate", "allow"))
        check_callback("generate", self.generate, ("request", "ctx"))
        if self.score is None:
            raise InvalidJob(
                "score is missing: `select` needs scores. Write score=your_scorer with"
                " `async def your_scorer(request, candidate, ctx): return a_number`"
            )
        _scoring(self)
        _rule("stop", self.stop, (AllCandidates, FirstAccepted, Target), "first_accepted()")
        _rule("select", self.select, (BestScore,), "best_score()")
        limits = limits_of(self.budget)
        generation = estimated(self.estimate, "estimate")
        if all(position != _CALLS for position, _ in limits):
            # Only a limit makes calls countable: a job over processes has no model to call.
            generation = (NOTHING[_CALLS], *generation[1:])
        scoring = estimated(self.scoring_estimate, "scoring_estimate")
        if any(a + b > MOST for a, b in zip(generation, scoring, strict=True)):
            raise InvalidJob("estimate and scoring_estimate together are too large to count")
        rates = Rates.of(generation, scoring, limits)
        shrinks = self.fit == "shrink"
        fitted = most_that_fit(limits, rates.combined, self.n) if shrinks else self.n
        preflight(limits, rates.combined, fitted)
        object.__setattr__(self, "fitted", fitted)
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "rates", rates)

    def rates_under(self, pools: Sequence[Pool]) -> Rates:
        """The rates where these budgets are shared: they too make `model_calls` countable."""
        calls = self.estimate.model_calls
        counted = self.rates.generation[_CALLS] == calls
        if counted or all(_CALLS not in pool.capped for pool in pools):
            return self.rates
        rates = self.rates
        generation = (calls, *rates.generation[1:])
        return Rates.of(generation, rates.scoring, self.limits)


def _scoring(job: BestOfN[Any, Any]) -> None:
    """Check what a job says of scoring."""
    if job.score_concurrency is not None:
        _whole("score_concurrency", job.score_concurrency)
    if job.score_once is not None:
        check_callback("score_once", job.score_once, ("output",))
        if is_async(job.score_once):
            raise InvalidJob(
                "score_once is async, but a key is made on the loop, at once:"
                " write `def key(output): ...`"
            )
    batch, timeout = as_batch(job.score), job.timeout
    if batch is None:
        check_callback("score", job.score, ("request", "candidate", "ctx"))
    elif batch.reserve is not None and timeout and batch.reserve >= timeout:
        raise InvalidJob(
            f"BatchScorer(reserve={batch.reserve!r}) with timeout={timeout!r}: that leaves no time"
            " to generate; reserve less"
        )


def _whole(name: str, value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InvalidJob(f"{name}={value!r}: write a whole number from 1 up, such as {name}=4")


def _seconds(name: str, value: Any) -> None:
    if value is None:
        return
    _number(name, value, least=0.0, hint=f"seconds from 0 up, or {name}=None for no limit")


def _number(
    name: str, value: Any, *, least: float = -math.inf, hint: str = "a finite number"
) -> None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not -_LARGEST <= value <= _LARGEST or value < least:
        raise InvalidJob(f"{name}={value!r}: write {hint}")


def _rule(name: str, value: Any, kinds: tuple[type, ...], example: str) -> None:
    # Selection must not fail, so only rules that are known to be pure get this far.
    if not isinstance(value, kinds):
        raise InvalidJob(
            f"{name}={shown(value)} is not a rule of this library: write {name}={example}, with ()"
        )


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidJob(f"{name}={value!r}: write one of {', '.join(map(repr, allowed))}")
