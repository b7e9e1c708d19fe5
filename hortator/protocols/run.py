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
from hortator.protocols.candidate import Candidate, Status
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
from hortator.protocols.halving import Pruner, pruner_of
from hortator.protocols.ledger import Book
from hortator.protocols.result import Snapshot
from hortator.protocols.roster import Roster
from hortator.protocols.scoring import Score, passes
from hortator.protocols.stopping import CUT_SHORT, StopReason
from hortator.protocols.usage import Usage


class RunState(Roster):
    """One run, as its rules see it.

    Invariants:

    1. Terminal records + detached ones + those in flight + those pending = n.
    2. A record, once made, is not made again: `record` asserts it.
    3. Sequence numbers start at 0 and have no gap; nothing follows the terminal event.
    4. After `stopping` no callback starts; after `closed` nothing changes any more.

    Attributes:
        request: the run's own copy; each candidate gets one of its own where it is a container.
        seed: of the run.
        book: the run's leases.
        denied: whether some candidate got no lease.
        first: the index of the candidate that met `first_accepted`.
        pruner: what drops single candidates by what they publish, None if nothing does.
        cuts_singly: whether a candidate may be told to stop while the others go on.
        interrupt: what `run()` raises instead of a result: a KeyboardInterrupt or SystemExit out
            of a callback, or a bug of ours.
    """

    request: Any
    seed: int
    book: Book
    denied: bool
    cuts_singly: bool

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
        on_drop: Callable[[Attempt], None],
    ) -> None:
        super().__init__(job, run_id, began, deadline, on_idle)
        self.request = private_copy(request)
        # Only containers are copied: what private_copy shares once, it shares for all.
        self._shared = type(request) not in CONTAINERS
        self.seed = seed
        self.book = Book(job.limits, job.rates)
        self.denied = False
        self.first: int | None = None
        self.interrupt: BaseException | None = None
        self._on_stop, self._on_drop = on_stop, on_drop
        self.pruner: Pruner | None = pruner_of(job.stop, job.objective)
        self.cuts_singly = job.candidate_timeout is not None or self.pruner is not None

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

    def published(self, attempt: Attempt, score: Score, now: float) -> None:
        """Take in the score of a publication; the rule may drop the candidate for it."""
        if self.pruner is None or self.stopping or attempt.ended or self.late(attempt, now):
            return
        if not self.pruner.published(attempt.index, score.value):
            self.drop(attempt, now)

    def drop(self, attempt: Attempt, now: float) -> None:
        """Tell one candidate to stop, and no other: its own time is up, by a rule.

        A no-op for one that has ended or was told to stop before.
        """
        if self.stopping or attempt.ended or self.late(attempt, now):
            return
        assert self.cuts_singly, "its seat has no scope of its own"
        attempt.limit, attempt.dropped = now, True
        if attempt.status is Status.GENERATED:  # it waits to be scored, and has nothing to unwind
            self.cut(attempt, now)
        else:
            self._on_drop(attempt)

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

    def reason(self, selected: int | None) -> StopReason:
        """Why the run ended, given what was selected."""
        if self.stop_reason is not None:
            return self.stop_reason
        if self.denied:
            return "budget_exceeded"
        return "completed" if selected is not None else "no_eligible"

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
