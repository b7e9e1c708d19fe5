"""The candidates of one run: who is in flight, and what each end comes to.

Every way out of a candidate's life ends here: its lease is settled, its record is made, its end is
told, exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hortator.protocols.asking import Raised
from hortator.protocols.attempt import Attempt, NestedRun
from hortator.protocols.attribution import Attribution
from hortator.protocols.batch import as_batch
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import STEPS, Candidate, Status
from hortator.protocols.copying import private_copy
from hortator.protocols.events import CandidateEnded
from hortator.protocols.feed import Feed
from hortator.protocols.halving import Pruner, pruner_of
from hortator.protocols.lease import Rates, Settled
from hortator.protocols.ledger import Book
from hortator.protocols.queue import Waiter
from hortator.protocols.scoring import Score, passes
from hortator.protocols.stopping import StopReason
from hortator.protocols.usage import NOTHING, Usage

_UNTOUCHED = Settled(NOTHING, NOTHING, False)
_NO_USAGE = Usage()


class Roster(Feed):
    """Records and candidates in flight of one run.

    Attributes:
        job: what is run.
        request: the run's own copy; each candidate gets one of its own where it is a container.
        began: seconds on Trio's clock.
        deadline: seconds on Trio's clock, infinite for none.
        n: how many candidates there are: those of the job that fit its budget.
        queued: asks for a lease that wait, by the index of the candidate.
        flying: candidates that have begun and not ended, by index.
        records: of those that have ended, by index; None for the others.
        next_index: the first candidate that has not begun.
        admitting: whether candidates may still begin.
        stopping: whether those that have begun were told to stop.
        stop_reason: why, once one of the two is so; None before.
        pruner: what drops single candidates by what they publish, None if nothing does.
        on_drop: told of a candidate that is to stop while the others go on.
    """

    job: BestOfN[Any, Any]
    request: Any
    began: float
    deadline: float
    n: int
    next_index: int
    admitting: bool
    stopping: bool
    sequence: int

    def __init__(
        self,
        job: BestOfN[Any, Any],
        rates: Rates,
        run_id: str,
        began: float,
        deadline: float,
        on_idle: Callable[[], None],
    ) -> None:
        super().__init__(run_id)
        self.job = job
        self.began, self.deadline = began, deadline
        self.n = job.fitted
        self.queued: dict[int, Waiter] = {}
        self.flying: dict[int, Attempt] = {}
        self.records: list[Candidate[Any] | None] = [None] * job.fitted
        self.next_index = 0
        self.stop_reason: StopReason | None = None
        self.admitting = True
        self.stopping = False
        self._on_idle = on_idle
        self.pruner: Pruner | None = pruner_of(job.stop, job.objective)
        self.on_drop: Callable[[Attempt], None] = lambda _: None
        self._after_end: Callable[[Candidate[Any] | None, float], None] | None = None
        self._built: list[Any] | None = None
        self._whole, self._half = rates.whole, rates.half
        self._whole_usage, self._half_usage = Usage.of(rates.combined), Usage.of(rates.generation)
        self._whole_scoring = Usage.of(rates.scoring)
        self._made: tuple[Candidate[Any], ...] | None = None

    @property
    def limited(self) -> bool:
        """Whether candidates have limits of their own."""
        return self.job.candidate_timeout is not None or self.pruner is not None

    def judge(self, attempt: Attempt, score: Score, now: float) -> None:
        """Take in the score of a publication; the rule may drop the candidate for it."""
        if self.pruner is None or self.stopping or attempt.ended or self.late(attempt, now):
            return
        if not self.pruner.published(attempt.index, score.value):
            self.drop(attempt, now)

    def drop(self, attempt: Attempt, now: float) -> None:
        """Tell one candidate to stop, and no other: its own time is up, by a rule.

        A no-op for one that has ended or was told to stop before, and for one that is scored in
        one call with others.
        """
        if self.stopping or attempt.ended or self.late(attempt, now):
            return
        if attempt.status is Status.SCORING and as_batch(self.job.score) is not None:
            return
        assert self.limited, "its seat has no scope of its own"
        attempt.limit, attempt.dropped = now, True
        if attempt.status is Status.GENERATED:  # it waits to be scored, and has nothing to unwind
            self.cut(attempt, now)
        else:
            self.on_drop(attempt)

    def cut(self, attempt: Attempt, now: float, error: BaseException | None = None) -> None:
        """End a candidate that was stopped before its own end."""
        self.end(attempt, self._cut_status(attempt, now), now, error)

    def end(
        self, attempt: Attempt, status: Status, now: float, error: BaseException | None = None
    ) -> None:
        """Settle its lease, make its record and tell of it: exactly once for each attempt."""
        if now >= self.deadline or attempt.limit is not None:
            status = self._if_late(attempt, status, now)
        if status is not Status.ELIGIBLE:
            assert status in STEPS[attempt.status], f"{attempt.status} can't become {status}"
        was_cut = status is Status.CANCELLED or status is Status.TIMED_OUT
        if attempt.nested is not None:
            for run in attempt.nested:
                run.abandon(now)  # what that settles at once is charged as it was
        if not attempt.generator_ran:  # no line of it ran, so nothing can be billed for it
            settled = attempt.book.settle(attempt.lease, generated=False, scored=False, cut=False)
        else:
            settled = attempt.book.settle(
                attempt.lease, generated=True, scored=attempt.scorer_ran, cut=was_cut
            )
        if settled is None:
            raise AssertionError(f"candidate {attempt.index} was settled twice")
        attempt.status, attempt.ended, attempt.over = status, True, True
        attempt.error = error
        nested = () if attempt.nested is None else _charged(attempt, attempt.nested)
        self._record(attempt, settled, now, was_cut, detached=False, nested=nested)
        if self._after_end is not None:
            self._after_end(self.records[attempt.index], now)

    def detach(self, attempt: Attempt, now: float, to: Book) -> None:
        """Give up on work that does not end: its lease moves, its record stays at its phase."""
        attempt.book.move(attempt.lease, to)
        attempt.book = to
        attempt.detached = attempt.ended = True
        self._record(attempt, _UNTOUCHED, now, True, detached=True)
        if self._after_end is not None:
            self._after_end(self.records[attempt.index], now)

    def late(self, attempt: Attempt, now: float) -> bool:
        """Whether `now` is at or after the deadline, the run's or its own."""
        return now >= self.deadline or (attempt.limit is not None and now >= attempt.limit)

    def skip_pending(self) -> None:
        """Make the records of all candidates that never started."""
        for index, record in enumerate(self.records):
            if record is None and index not in self.flying:
                request = self._request_of_idle(index)
                self.records[index] = Candidate(index, Status.SKIPPED, request=request)
        self.next_index = self.n
        self._made = tuple(record for record in self.records if record is not None)

    def candidates(self) -> tuple[Candidate[Any], ...]:
        """The records that are made, in index order."""
        if self._made is not None:  # all of them: nothing is made after skip_pending()
            return self._made
        return tuple(record for record in self.records if record is not None)

    # -- requests --------------------------------------------------------------------------------

    def _request_of(self, index: int) -> Any:
        """A candidate's own request: what was built for it, or else what the run was given."""
        if self._built is not None and index < len(self._built):
            built = self._built[index]
            if not isinstance(built, Raised):
                return private_copy(built)
        return private_copy(self.request)

    def _request_of_idle(self, index: int) -> Any:
        """For the record of one that was never handed it: only what was built needs a copy."""
        return self.request if self._built is None else self._request_of(index)

    # -- inside ----------------------------------------------------------------------------------

    def _if_late(self, attempt: Attempt, status: Status, now: float) -> Status:
        """Whatever ends at or after the deadline is timed out, unless a stop came before that."""
        if not self.late(attempt, now) or status is Status.SKIPPED:
            return status
        if attempt.dropped:  # it was told to stop before any deadline
            return Status.CANCELLED
        stopped_before = status is Status.CANCELLED and self._stopped_early()
        return status if stopped_before else Status.TIMED_OUT

    def _stopped_early(self) -> bool:
        return self.stopping and self.stop_reason not in ("deadline", "outer_deadline")

    def _cut_status(self, attempt: Attempt, now: float) -> Status:
        if not attempt.generator_ran and attempt.status is Status.GENERATING:
            return Status.SKIPPED
        if attempt.dropped:
            return Status.CANCELLED
        own_time_is_up = attempt.limit is not None and now >= attempt.limit
        if self._stopped_early() and not own_time_is_up:
            return Status.CANCELLED
        return Status.TIMED_OUT if self.late(attempt, now) or self.stopping else Status.CANCELLED

    def _record(
        self,
        attempt: Attempt,
        settled: Settled,
        now: float,
        was_cut: bool,
        *,
        detached: bool,
        nested: tuple[Attribution, ...] = (),
    ) -> None:
        index = attempt.index
        assert self.records[index] is None, f"candidate {index} ended twice"
        output, score, partial, status = attempt.output, attempt.score, False, attempt.status
        eligible = status is Status.ELIGIBLE
        if attempt.published and not eligible and status is not Status.REJECTED:
            # Published, then cut: that stands, if it was scored. Published, then failed: kept.
            best = attempt.published_score
            if output is None or (was_cut and best is not None):
                output, score, partial = attempt.published_output, best, True
                eligible = (
                    was_cut
                    and best is not None
                    and passes(best, self.job.threshold, self.job.objective)
                )
        scoring = _NO_USAGE
        if settled is self._whole:
            usage, scoring = self._whole_usage, self._whole_scoring
        elif settled is self._half:
            usage = self._half_usage
        elif settled is _UNTOUCHED:
            usage = _NO_USAGE
        else:
            usage, scoring = Usage.of(settled.charged), Usage.of(settled.scoring)
        effects = attempt.effects
        self.records[index] = Candidate(
            index,
            status,
            detached,
            attempt.request,
            output,
            partial,
            score,
            attempt.error,
            usage,
            settled.estimated,
            attempt.started - self.began,
            now - attempt.started,
            () if effects is None else tuple(effect.record() for effect in effects),
            eligible,
            scoring,
            nested,
        )
        del self.flying[index]
        number = self.sequence
        self.sequence = number + 1
        if self.subscribers:
            self._told.append(
                CandidateEnded(number, self.run_id, index, now, status, detached, attempt.error)
            )
        if attempt.group is not None:
            attempt.group.ended(attempt)
        if (
            not self.flying
            and not self.queued
            and (self.next_index >= self.n or not self.admitting)
        ):
            self._on_idle()


def _charged(attempt: Attempt, nested: list[NestedRun]) -> tuple[Attribution, ...]:
    """What the runs that a candidate has started were charged, which was settled just now."""
    pool = attempt.lease.pool
    assert pool is not None
    return tuple(run.attribution(pool.final[run.book]) for run in nested)
