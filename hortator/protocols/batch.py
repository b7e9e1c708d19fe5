"""Scoring many candidates in one call: what a job says of it, and how its answer is read."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias

import attrs

from hortator.protocols.attempt import Attempt
from hortator.protocols.candidate import Generated
from hortator.protocols.checking import seconds
from hortator.protocols.errors import InvalidJob, InvalidScore
from hortator.protocols.interfaces import BatchContext, Out, Req
from hortator.protocols.scoring import Score, ScoreLike, read_score
from hortator.protocols.showing import shown
from hortator.protocols.signatures import check_callback

BatchCallback: TypeAlias = (
    Callable[[Req, tuple[Generated[Out], ...], BatchContext], Awaitable[Sequence[ScoreLike]]]
    | Callable[[Req, tuple[Generated[Out], ...], BatchContext], Sequence[ScoreLike]]
)
"""A scorer of many at once: async, or sync and then run in a worker thread."""

RESERVE_SHARE = 0.2
"""Of the time from a run's start to its deadline, so much is kept for scoring all together."""


@attrs.frozen(eq=False)
class BatchScorer(Generic[Req, Out]):
    """Scores many candidates in one call: `BestOfN(score=BatchScorer(fn))`.

    `fn(request, candidates, ctx)` is called with a tuple of `Generated` in index order, and
    returns a number or a `Score` for each of them, in that order. What the call cost is told by
    the `usage` of these scores. `ctx.stopping` and `ctx.raise_if_stopping()` let sync code stop.

    * `together=False`: whenever the scorer is idle it gets what waits. One call at a time, unless
      the job's `score_concurrency` says more.
    * `together=True`: exactly one call with everything that was generated, so that candidates can
      be compared. It is made as soon as nobody generates any more and nobody may still start, or
      `reserve` seconds before the deadline, whichever is first. A candidate that generates at that
      moment can't be scored any more: it is told to stop and is `timed_out` (it sees that time as
      its `ctx.deadline`), and nobody starts any more. Since it is the deadline that has cut the
      run short, `stop_reason` is then `deadline` (or `outer_deadline`) and the result `partial`,
      though the run may be back before the deadline itself. Without a deadline the call waits
      until all have ended.

    An answer that is no sequence, or of the wrong length, fails all candidates of its call, as
    does an error; a bad score in an otherwise good answer fails its own candidate only. With a
    `candidate_timeout` a candidate is `timed_out` if the answer comes after its own time; the call
    itself is cancelled when the time of all its candidates is up.

    If the run is stopped, the call is cancelled; if it swallows that, all its candidates are
    detached.

    Attributes:
        fn: the callback.
        size: at most so many in one call; None for no limit.
        together: whether to score all of them in one call.
        reserve: seconds before the deadline, only with `together`; by default 20 % of the time
            from the start to the deadline. If an outer deadline leaves less than `reserve`, it
            is half of what there is.

    Raises:
        InvalidJob: a value or callback cannot work as written.

    >>> def rank(request, candidates, ctx):
    ...     by_length = sorted(candidates, key=lambda each: len(each.output))
    ...     return [by_length.index(each) for each in candidates]
    >>> BatchScorer(rank, together=True).size is None
    True
    """

    fn: BatchCallback[Req, Out]
    size: int | None = None
    together: bool = False
    reserve: float | None = None

    def __attrs_post_init__(self) -> None:
        check_callback("fn", self.fn, ("request", "candidates", "ctx"))
        if self.size is not None and (type(self.size) is not int or self.size < 1):
            raise InvalidJob(f"size={self.size!r}: write a whole number from 1 up, such as size=8")
        if type(self.together) is not bool:
            raise InvalidJob(f"together={self.together!r}: write True or False")
        if self.together and self.size is not None:
            raise InvalidJob(
                "size with together=True: one call with everything has no size;"
                " leave one of the two out"
            )
        if self.reserve is None:
            return
        if not self.together:
            raise InvalidJob("reserve is for together=True: other batches don't wait for anything")
        seconds("reserve", self.reserve, optional=False)


def as_batch(score: object) -> BatchScorer[Any, Any] | None:
    """A job's `score`, if it scores many at once."""
    return score if isinstance(score, BatchScorer) else None  # pyright: ignore[reportUnknownVariableType]


class Batch:
    """One call of a batch scorer. Changed by the seat that plays it.

    Attributes:
        attempts: the candidates in it, in index order.
        limit: when the own time of all of them is up; infinite if they have none.
        steps: how often the callback has been resumed.
        suspended: whether it has ever let the loop go.
        coroutine: the callback that is being driven, to tell where it is stuck.
        over: it has ended, detached or not.
    """

    attempts: tuple[Attempt, ...]
    limit: float

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self.attempts = tuple(sorted(attempts, key=lambda attempt: attempt.index))
        limits = [math.inf if each.limit is None else each.limit for each in attempts]
        self.limit = max(limits)
        self.steps = 0
        self.suspended = self.over = False
        self.coroutine: Any = None

    @property
    def unsettled(self) -> list[Attempt]:
        """The candidates that have not ended yet, detached ones among them."""
        return [attempt for attempt in self.attempts if not attempt.over]

    @property
    def detached(self) -> bool:
        """Whether the run gave up on it: on all of its candidates at once."""
        return any(attempt.detached for attempt in self.attempts)


def items_of(answer: object) -> list[Any]:
    """The items of a batch scorer's answer.

    Raises:
        InvalidScore: it is not a sequence: text, a mapping, a generator, a set, a number.
    """
    kind = type(answer)
    ordered = hasattr(kind, "__len__") and hasattr(kind, "__getitem__")
    if not ordered or issubclass(kind, (str, bytes, bytearray, Mapping, Score)):
        raise InvalidScore(
            f"the batch scorer returned {shown(answer)}, a {kind.__name__};"
            " return a list with a number or Score for each candidate, in their order"
        )
    sequence: Any = answer  # numpy's arrays are none in name, but do as well
    try:
        return list(sequence)
    except Exception as error:
        # The answer is an object of the user's: whatever it raises, it is no sequence.
        raise InvalidScore(f"the batch scorer returned {shown(answer)}, no sequence") from error


def read_batch(items: Sequence[Any], wanted: int) -> list[Score | InvalidScore]:
    """Read the items of a batch scorer's answer, one for each candidate.

    Returns:
        For each candidate its score, or why what it got is none.

    Raises:
        InvalidScore: there are more or fewer items than candidates.
    """
    if len(items) != wanted:
        raise InvalidScore(
            f"the batch scorer returned {len(items)} scores for {wanted} candidates;"
            " return one for each of them, in their order"
        )
    return [_read(item) for item in items]


def _read(item: object) -> Score | InvalidScore:
    try:
        return read_score(item)
    except InvalidScore as error:
        return error
