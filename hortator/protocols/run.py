"""The rules of one run: which candidate is next, what each end means, when it is over.

A state machine without clock or await: the time is told to it. It is the single writer of the
run's event sequence; it owns the book and every record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hortator.protocols.attempt import Attempt
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import STEPS, Candidate, Status
from hortator.protocols.copying import CONTAINERS, private_copy
from hortator.protocols.errors import LeaseExceeded, SideEffectBlocked, nothing_but
from hortator.protocols.events import (
    CandidateEnded,
    CandidateGenerated,
    CandidateLeased,
    CandidateScored,
    CandidateStarted,
    RunFinished,
)
from hortator.protocols.feed import Feed
from hortator.protocols.lease import Settled
from hortator.protocols.ledger import Book
from hortator.protocols.result import Snapshot
from hortator.protocols.scoring import Score, passes
from hortator.protocols.stopping import CUT_SHORT, StopReason
from hortator.protocols.usage import NOTHING, Usage

_UNTOUCHED = Settled(NOTHING, NOTHING, False)
_NO_USAGE = Usage()


class RunState(Feed):
    """One run, as its rules see it.

    Invariants:

    1. Terminal records + detached ones + those in flight + those pending = n.
    2. A record, once made, is not made again: `record` asserts it.
    3. Sequence numbers start at 0 and have no gap; nothing follows the terminal event.
    4. After `stopping` no callback starts; after `closed` nothing changes any more.

    Attributes:
        job: what is run.
        request: the run's own copy; each candidate gets one of its own where it is a container.
        seed: of the run.
        began: seconds on Trio's clock.
        deadline: seconds on Trio's clock, infinite for none.
        n: how many candidates there are.
        book: the run's leases.
        flying: candidates that have begun and not ended, by index.
        records: of those that have ended, by index; None for the others.
        next_index: the first candidate that has not begun.
        admitting: whether candidates may still begin.
        stopping: whether those that have begun were told to stop.
        stop_reason: why, once one of the two is so; None before.
        denied: whether some candidate got no lease.
        first: the index of the candidate that met `first_accepted`.
        interrupt: what `run()` raises instead of a result: a KeyboardInterrupt or SystemExit out
            of a callback, or a bug of ours.
    """

    job: BestOfN[Any, Any]
    request: Any
    seed: int
    began: float
    deadline: float
    n: int
    book: Book
    next_index: int
    sequence: int
    admitting: bool
    stopping: bool
    denied: bool

    def __init__(
        self,
        job: BestOfN[Any, Any],
        request: Any,
        *,
        run_id: str,
        seed: int,
        began: float,
        deadline: float,
        on_stop: Callable[[float], None],
        on_idle: Callable[[], None],
    ) -> None:
        self.job = job
        self.request = private_copy(request)
        # Only containers are copied: what private_copy shares once, it shares for all.
        self._shared = type(request) not in CONTAINERS
        super().__init__(run_id)
        self.seed = seed
        self.began, self.deadline = began, deadline
        self.n = job.n
        self.book = Book(job.limits, job.rates)
        self.flying: dict[int, Attempt] = {}
        self.records: list[Candidate[Any] | None] = [None] * job.n
        self.next_index = 0
        self.stop_reason: StopReason | None = None
        self.admitting = True
        self.stopping = self.denied = False
        self.first: int | None = None
        self.interrupt: BaseException | None = None
        self._on_stop, self._on_idle = on_stop, on_idle
        self._whole = job.rates.whole
        self._whole_usage = Usage.of(self._whole.charged)
        self._half, self._half_usage = job.rates.half, Usage.of(job.rates.half.charged)
        self._made: tuple[Candidate[Any], ...] | None = None

    # -- a candidate's way through the run, in order -------------------------------------------

    def begin(self, now: float) -> Attempt | None:
        """Start the next candidate that can be paid for; None if there is none to start."""
        while self.admitting and self.next_index < self.n and now < self.deadline:
            index = self.next_index
            self.next_index = index + 1
            lease = self.book.reserve(index)
            if lease is None:
                self.denied = True
                self._deny(index, now)
                continue
            timeout = self.job.candidate_timeout
            attempt = self.flying[index] = Attempt(
                index,
                self.request if self._shared else private_copy(self.request),
                lease,
                self.book,
                now,
                None if timeout is None else now + timeout,
            )
            number = self.sequence
            self.sequence = number + 2
            if self.subscribers:
                self._told.append(CandidateStarted(number, self.run_id, index, now))
                self._told.append(
                    CandidateLeased(number + 1, self.run_id, index, now, lease.number)
                )
            return attempt
        return None

    def generated(self, attempt: Attempt, output: Any, now: float) -> bool:
        """Take in an output; whether it is to be scored (not if the run is stopping, or late)."""
        attempt.output = output
        attempt.status = Status.GENERATED
        number = self.sequence
        self.sequence = number + 1
        if self.subscribers:
            self._told.append(CandidateGenerated(number, self.run_id, attempt.index, now))
        if not self.stopping and not self.late(attempt, now):
            return True
        self.cut(attempt, now)
        return False

    def scored(self, attempt: Attempt, score: Score, now: float) -> None:
        """Take in a score; it may meet the stopping rule, which stops the run."""
        attempt.score = score
        if score.usage is not None:
            try:
                attempt.book.charge(attempt.lease, "scoring", score.usage)
            except LeaseExceeded as error:
                self.end(attempt, Status.BUDGET_EXCEEDED, now, error)
                return
        number = self.sequence
        self.sequence = number + 1
        if self.subscribers:
            self._told.append(CandidateScored(number, self.run_id, attempt.index, now, score))
        job = self.job
        good = passes(score, job.threshold, job.objective)
        self.end(attempt, Status.ELIGIBLE if good else Status.REJECTED, now)
        if attempt.status is Status.ELIGIBLE and job.stop.met(score.value, job.objective):
            if job.stop.takes_the_first and self.first is None:
                self.first = attempt.index
            self.stop(job.stop.reason, now)

    def failed(self, attempt: Attempt, error: BaseException, now: float) -> None:
        """End a candidate whose callback raised."""
        if attempt.denied or nothing_but(error, LeaseExceeded):
            status = Status.BUDGET_EXCEEDED
        elif nothing_but(error, SideEffectBlocked):
            status = Status.SIDE_EFFECT_BLOCKED
        elif self.stopping or self.late(attempt, now):
            # What it raises once it was told to stop is the form that its stopping took.
            self.cut(attempt, now, error)
            return
        elif attempt.status is Status.GENERATING:
            status = Status.GENERATION_FAILED
        else:
            status = Status.SCORING_FAILED
        self.end(attempt, status, now, error)

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

    # -- the run ---------------------------------------------------------------------------------

    def stop(self, reason: StopReason, now: float, *, in_flight: bool = True) -> None:
        """End the run: admit nobody, and (`in_flight`) tell those in flight to stop.

        The first reason stays, but for one that only stopped admitting.
        """
        if self.closed or self.stopping:
            return
        self.admitting = False
        self.stop_reason = reason
        if in_flight:
            self.stopping = True
            self._on_stop(now)
        elif not self.flying:
            self._on_idle()

    def close(self, now: float, selected: int | None) -> RunFinished:
        """Skip what never started, freeze the book and make the terminal event."""
        assert not self.flying, f"in flight: {sorted(self.flying)}"
        self.admitting = False
        reason = self.reason(selected)
        finished = RunFinished(
            self.sequence,
            self.run_id,
            now,
            reason,
            reason in CUT_SHORT,
            selected,
            Counter(candidate.status for candidate in self.candidates()),
            tuple(c.index for c in self.candidates() if c.detached),
            Usage.of(self.book.settled),
        )
        self.book.freeze()
        self.closed = True
        self.sequence += 1
        self._told.append(finished)
        self.flush()
        return finished

    def skip_pending(self) -> None:
        """Make the records of all candidates that never started."""
        for index, record in enumerate(self.records):
            if record is None and index not in self.flying:
                self.records[index] = Candidate(index, Status.SKIPPED, request=self.request)
        self.next_index = self.n
        self._made = tuple(record for record in self.records if record is not None)

    def reason(self, selected: int | None) -> StopReason:
        """Why the run ended, given what was selected."""
        if self.stop_reason is not None:
            return self.stop_reason
        if self.denied:
            return "budget_exceeded"
        return "completed" if selected is not None else "no_eligible"

    def candidates(self) -> tuple[Candidate[Any], ...]:
        """The records that are made, in index order."""
        if self._made is not None:  # all of them: nothing is made after skip_pending()
            return self._made
        return tuple(record for record in self.records if record is not None)

    def choose(self) -> tuple[int | None, str]:
        """Whom the rules select now, and by which rule."""
        reason = self.reason(0)
        if self.job.on_early_stop == "fail" and reason in CUT_SHORT:
            return None, ""
        if self.first is not None:
            return self.first, self.job.stop.reason
        select = self.job.select
        chosen = select.choose(self.candidates(), self.job.objective, self.job.tie_tolerance)
        return (chosen, select.name) if chosen is not None else (None, "")

    def snapshot(self, now: float) -> Snapshot:
        """The run at this moment."""
        ended = self.candidates()
        statuses = Counter(candidate.status for candidate in ended)
        statuses.update(attempt.status for attempt in self.flying.values())
        pending = self.n - statuses.total()
        if pending:
            statuses[Status.PENDING] = pending
        best = self.job.select.choose(ended, self.job.objective, self.job.tie_tolerance)
        return Snapshot(
            run_id=self.run_id,
            time=now,
            elapsed=now - self.began,
            deadline=None if self.deadline == float("inf") else self.deadline,
            statuses=dict(statuses),
            ended=ended,
            best=best,
            usage=self.book.report(),
            stop_reason=self.stop_reason,
            sequence=self.sequence,
        )

    # -- inside ----------------------------------------------------------------------------------

    def _deny(self, index: int, now: float) -> None:
        self.records[index] = Candidate(index, Status.BUDGET_EXCEEDED, request=self.request)
        self.tell(CandidateEnded, index, now, Status.BUDGET_EXCEEDED, False, None)

    def _if_late(self, attempt: Attempt, status: Status, now: float) -> Status:
        """Whatever ends at or after the deadline is timed out, unless a stop came before that."""
        if not self.late(attempt, now) or status is Status.SKIPPED:
            return status
        stopped_before = status is Status.CANCELLED and self._stopped_early()
        return status if stopped_before else Status.TIMED_OUT

    def _stopped_early(self) -> bool:
        return self.stopping and self.stop_reason not in ("deadline", "outer_deadline")

    def _cut_status(self, attempt: Attempt, now: float) -> Status:
        if not attempt.generator_ran and attempt.status is Status.GENERATING:
            return Status.SKIPPED
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
