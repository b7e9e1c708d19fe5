"""The candidates of one run: who is in flight, and what each end comes to.

Every way out of a candidate's life ends here: its lease is settled, its record is made, its end is
told, exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hortator.protocols.attempt import Attempt
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import STEPS, Candidate, Status
from hortator.protocols.events import CandidateEnded
from hortator.protocols.feed import Feed
from hortator.protocols.lease import Settled
from hortator.protocols.ledger import Book
from hortator.protocols.scoring import passes
from hortator.protocols.stopping import StopReason
from hortator.protocols.usage import NOTHING, Usage

_UNTOUCHED = Settled(NOTHING, NOTHING, False)
_NO_USAGE = Usage()


class Roster(Feed):
    """Records and candidates in flight of one run.

    Attributes:
        job: what is run.
        began: seconds on Trio's clock.
        deadline: seconds on Trio's clock, infinite for none.
        n: how many candidates there are: those of the job that fit its budget.
        flying: candidates that have begun and not ended, by index.
        records: of those that have ended, by index; None for the others.
        next_index: the first candidate that has not begun.
        admitting: whether candidates may still begin.
        stopping: whether those that have begun were told to stop.
        stop_reason: why, once one of the two is so; None before.
    """

    job: BestOfN[Any, Any]
    began: float
    deadline: float
    n: int
    next_index: int
    admitting: bool
    stopping: bool

    def __init__(
        self,
        job: BestOfN[Any, Any],
        run_id: str,
        began: float,
        deadline: float,
        on_idle: Callable[[], None],
    ) -> None:
        super().__init__(run_id)
        self.job = job
        self.began, self.deadline = began, deadline
        self.n = job.fitted
        self.flying: dict[int, Attempt] = {}
        self.records: list[Candidate[Any] | None] = [None] * job.fitted
        self.next_index = 0
        self.stop_reason: StopReason | None = None
        self.admitting = True
        self.stopping = False
        self._on_idle = on_idle
        self._whole = job.rates.whole
        self._whole_usage = Usage.of(self._whole.charged)
        self._half, self._half_usage = job.rates.half, Usage.of(job.rates.half.charged)
        self._made: tuple[Candidate[Any], ...] | None = None

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
        self._record(attempt, settled, now, was_cut, detached=False)

    def detach(self, attempt: Attempt, now: float, to: Book) -> None:
        """Give up on work that does not end: its lease moves, its record stays at its phase."""
        attempt.book.move(attempt.lease, to)
        attempt.book = to
        attempt.detached = attempt.ended = True
        self._record(attempt, _UNTOUCHED, now, True, detached=True)

    def late(self, attempt: Attempt, now: float) -> bool:
        """Whether `now` is at or after the deadline, the run's or its own."""
        return now >= self.deadline or (attempt.limit is not None and now >= attempt.limit)

    def skip_pending(self, request: object) -> None:
        """Make the records of all candidates that never started, with this request."""
        for index, record in enumerate(self.records):
            if record is None and index not in self.flying:
                self.records[index] = Candidate(index, Status.SKIPPED, request=request)
        self.next_index = self.n
        self._made = tuple(record for record in self.records if record is not None)

    def candidates(self) -> tuple[Candidate[Any], ...]:
        """The records that are made, in index order."""
        if self._made is not None:  # all of them: nothing is made after skip_pending()
            return self._made
        return tuple(record for record in self.records if record is not None)

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
        self, attempt: Attempt, settled: Settled, now: float, was_cut: bool, *, detached: bool
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
        if settled is self._whole:
            usage = self._whole_usage
        elif settled is self._half:
            usage = self._half_usage
        else:
            usage = Usage.of(settled.charged) if settled is not _UNTOUCHED else _NO_USAGE
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
        )
        del self.flying[index]
        number = self.sequence
        self.sequence = number + 1
        if self.subscribers:
            self._told.append(
                CandidateEnded(number, self.run_id, index, now, status, detached, attempt.error)
            )
        if not self.flying and (self.next_index >= self.n or not self.admitting):
            self._on_idle()
