"""A job: what to attempt, how often, under which limits, and what counts as best."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, Literal, TypeAlias

import attrs

from hortator.protocols.batch import BatchScorer, as_batch
from hortator.protocols.bayes_risk import MinimumBayesRisk
from hortator.protocols.budget import Budget, Limits, limits_of, most_that_fit, preflight
from hortator.protocols.candidate import Candidate, Generated
from hortator.protocols.checking import number, seconds, whole
from hortator.protocols.consensus import AdaptiveConsistency, VoteDecided
from hortator.protocols.errors import InvalidJob
from hortator.protocols.interfaces import CandidateContext, Generate, Out, Req
from hortator.protocols.lease import Rates
from hortator.protocols.scoring import Objective, ScoreLike
from hortator.protocols.selection import (
    Asks,
    BestScore,
    Custom,
    InPlace,
    Selector,
    best_score,
)
from hortator.protocols.showing import shown
from hortator.protocols.signatures import check_callback, is_async, name_of
from hortator.protocols.stopping import (
    AllCandidates,
    FirstAccepted,
    StopRule,
    Target,
    all_candidates,
)
from hortator.protocols.tournament import Tournament
from hortator.protocols.usage import DIMENSIONS, MOST, NOTHING, Usage, estimated
from hortator.protocols.voting import PluralityVote, WeightedVote

Scorer: TypeAlias = (
    Callable[[Req, Generated[Out], CandidateContext], Awaitable[ScoreLike]]
    | Callable[[Req, Generated[Out], CandidateContext], ScoreLike]
)
"""A scorer: async, or sync and then run in a worker thread."""

Builder: TypeAlias = Callable[[Req, int], Awaitable[Req]] | Callable[[Req, int], Req]
"""Makes the request of one candidate: async, or sync and then run in a worker thread."""
Select: TypeAlias = (
    Callable[[Req, Sequence[Candidate[Out]]], Awaitable[Candidate[Out] | int | None]]
    | Callable[[Req, Sequence[Candidate[Out]]], Candidate[Out] | int | None]
)
"""A selector of one's own: async, or sync and then run in a worker thread."""

DEFAULT_ESTIMATE = Usage(model_calls=1)
_CALLS = DIMENSIONS.index("model_calls")


@attrs.frozen(kw_only=True, eq=False)
class BestOfN(Generic[Req, Out]):
    """N attempts at one job. Immutable and reusable: it holds no state of any run.

    Attributes:
        generate: `generate(request, ctx)` makes one candidate's output.
        score: `score(request, candidate, ctx)` returns a finite number or a `Score`; or a
            `BatchScorer`, which scores many in one call. None only with a selector that needs no
            scores: a vote, a tournament, minimum Bayes risk, or one of your own. Then whatever
            was generated is eligible.
        build: `build(request, index)` makes the request of one candidate, sync (in a worker
            thread) or async. All are made before anything is generated, one after another, inside
            the deadline. One that raises fails its own candidate alone.
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
        select: how the best is chosen; `best_score()` by default. Or a function of your own,
            `select(request, candidates)`, sync (in a worker thread) or async: it gets all n
            records and returns one of them, its index, or None to decline. If it raises, or what
            it returns is not eligible, the selection has failed. It is called only if somebody is
            eligible. When a stop or the deadline comes it has until 90 % of the grace are over;
            then it is cut, and the built-in order decides (as it does if the run was cut short
            and it raises): `selected_by` is "fallback".
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
    build: Builder[Req] | None = None
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
    select: Selector | Select[Req, Out] = attrs.field(factory=best_score)
    stop: StopRule = attrs.field(factory=all_candidates)
    on_early_stop: Literal["best_so_far", "fail"] = "best_so_far"
    side_effects: Literal["isolate", "allow"] = "isolate"
    fitted: int = attrs.field(init=False, repr=False)
    limits: Limits = attrs.field(init=False, repr=False)
    rates: Rates = attrs.field(init=False, repr=False)
    selector: Selector = attrs.field(init=False, repr=False)
    in_place: InPlace | None = attrs.field(init=False, repr=False)
    asks: Asks | None = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        whole("n", self.n)
        whole("max_concurrency", self.max_concurrency)
        for name in ("timeout", "candidate_timeout", "grace"):
            seconds(name, getattr(self, name))
        if self.threshold is not None:
            number("threshold", self.threshold)
        number("tie_tolerance", self.tie_tolerance, least=0.0, hint="a finite number from 0 up")
        _one_of("fit", self.fit, ("raise", "shrink"))
        _one_of("objective", self.objective, ("max", "min"))
        _one_of("on_early_stop", self.on_early_stop, ("best_so_far", "fail"))
        _one_of("side_effects", self.side_effects, ("isolate", "allow"))
        check_callback("generate", self.generate, ("request", "ctx"))
        selector = _selector(self.select)
        if self.score is None:
            _check_scoreless(self, selector)
        else:
            _scoring(self)
        if self.build is not None:
            check_callback("build", self.build, ("request", "index"))
        _rule("stop", self.stop, RULES, "first_accepted()")
        _check_votes(self, selector)
        object.__setattr__(self, "selector", selector)
        object.__setattr__(self, "in_place", selector if isinstance(selector, IN_PLACE) else None)
        object.__setattr__(self, "asks", selector if isinstance(selector, ASKING) else None)
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

    def rates_under(self, capped: Iterable[int]) -> Rates:
        """The rates where dimensions at these positions are capped from outside.

        A cap of others on `model_calls` makes them countable, as one of the job's own does.
        """
        calls = self.estimate.model_calls
        counted = self.rates.generation[_CALLS] == calls
        if counted or _CALLS not in capped:
            return self.rates
        rates = self.rates
        generation = (calls, *rates.generation[1:])
        return Rates.of(generation, rates.scoring, self.limits)


def _scoring(job: BestOfN[Any, Any]) -> None:
    """Check what a job says of scoring."""
    if job.score_concurrency is not None:
        whole("score_concurrency", job.score_concurrency)
    if job.score_once is not None:
        check_callback("score_once", job.score_once, ("output",), word="def")
        if is_async(job.score_once):
            raise InvalidJob(
                "score_once is async, but a key is made on the loop, at once:"
                " write `def key(output): ...`"
            )
    batch, timeout = as_batch(job.score), job.timeout
    if batch is None:
        score: object = job.score
        if score is BatchScorer:
            raise InvalidJob("score=BatchScorer is the class: write score=BatchScorer(your_scorer)")
        check_callback("score", score, ("request", "candidate", "ctx"))
    elif batch.reserve is not None and timeout and batch.reserve >= timeout:
        raise InvalidJob(
            f"BatchScorer(reserve={batch.reserve!r}) with timeout={timeout!r}: that leaves no time"
            " to generate; reserve less"
        )


IN_PLACE = (BestScore, PluralityVote, WeightedVote)
ASKING = (Custom, Tournament, MinimumBayesRisk)
RULES = (AllCandidates, FirstAccepted, Target, VoteDecided, AdaptiveConsistency)


def _selector(select: Any) -> Selector:
    """The selector that is meant; a function of the user's is made into one."""
    if isinstance(select, (*IN_PLACE, *ASKING)):
        return select
    if inspect.iscoroutine(select):
        check_callback("select", select, ("request", "candidates"))
    if not callable(select):
        raise _no_rule("select", select, "best_score()")
    try:
        check_callback("select", select, ("request", "candidates"))
    except InvalidJob as error:
        if str(getattr(select, "__module__", "")).startswith("hortator."):
            raise _no_rule("select", select, f"{name_of(select)}(...)") from error
        raise
    return Custom(select, name_of(select))


def _check_scoreless(job: BestOfN[Any, Any], selector: Selector) -> None:
    if selector.needs_scores:
        raise InvalidJob(
            f"score is missing: select={selector.name}(...) needs scores. Write score=your_scorer"
            " with `async def your_scorer(request, candidate, ctx): return a_number`; or select"
            " without scores, such as select=plurality_vote()"
        )
    if job.threshold is not None:
        raise InvalidJob(
            "threshold has nothing to compare: write score=your_scorer, or no threshold"
        )
    for name in ("score_concurrency", "score_once"):
        if getattr(job, name) is not None:
            raise InvalidJob(f"{name} is of no use: write score=your_scorer, or leave it out")
    if isinstance(job.stop, Target):
        raise InvalidJob("stop=target(...) needs scores: write score=your_scorer, or another rule")


def _check_votes(job: BestOfN[Any, Any], selector: Selector) -> None:
    counts = isinstance(job.stop, (VoteDecided, AdaptiveConsistency))
    if counts and not isinstance(selector, PluralityVote):
        raise InvalidJob(
            f"stop={_WRITTEN[job.stop.reason]} counts the votes of a plurality vote: write"
            " select=plurality_vote(), or plurality_vote(key=...) with what is compared"
        )
    if isinstance(selector, WeightedVote) and selector.weight is None and job.objective == "min":
        raise InvalidJob(
            'weighted_vote() weighs by the score, and with objective="min" the worst would weigh'
            " most: write weighted_vote(weight=...), such as"
            " weight=lambda candidate: 1 / (1 + candidate.score.value)"
        )


_WRITTEN = {"vote_decided": "vote_decided()", "consistency": "adaptive_consistency()"}


def _rule(name: str, value: Any, kinds: tuple[type, ...], example: str) -> None:
    # A rule is asked in the middle of a run, so only those that are known get this far.
    if not isinstance(value, kinds):
        raise _no_rule(name, value, example)


def _no_rule(name: str, value: Any, example: str) -> InvalidJob:
    return InvalidJob(
        f"{name}={shown(value)} is not a rule of this library: write {name}={example}, with ()"
    )


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidJob(f"{name}={value!r}: write one of {', '.join(map(repr, allowed))}")
