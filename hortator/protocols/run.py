"""The rules of one run: which candidate is next, what each end means, when it is over.

A state machine without clock or await: the time is told to it. It is the single writer of the
run's event sequence; it owns the book and every record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hortator.protocols.asking import Raised, plainly
from hortator.protocols.attempt import Attempt
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.choosing import Choice
from hortator.protocols.copying import CONTAINERS, private_copy
from hortator.protocols.duplicates import ANSWERED
from hortator.protocols.ending import Ending
from hortator.protocols.errors import LeaseExceeded, SideEffectBlocked, nothing_but
from hortator.protocols.events import (
    CandidateEnded,
    CandidateGenerated,
    CandidateLeased,
    CandidateScored,
    CandidateStarted,
)
from hortator.protocols.lease import Lease
from hortator.protocols.ledger import Book
from hortator.protocols.pool import Pool
from hortator.protocols.queue import Waiter
from hortator.protocols.scoring import Score, passes
from hortator.protocols.stopping import Following, StopReason


class RunState(Ending):
    """One run, as its rules see it.

    Invariants:

    1. Terminal records + detached ones + those in flight + those pending = n.
    2. A record, once made, is not made again: `record` asserts it.
    3. Sequence numbers start at 0 and have no gap; nothing follows the terminal event.
    4. After `stopping` no callback starts; after `closed` nothing changes any more.

    Attributes:
        parked: the ask of the candidate that `begin` has just put into the queue.
    """

    request: Any
    seed: int
    first: int | None
    choice: Choice | None
    interrupt: BaseException | None
    book: Book
    denied: bool
    next_index: int
    sequence: int
    admitting: bool
    stopping: bool
    closed: bool
    stop_reason: StopReason | None

    def __init__(
        self,
        job: BestOfN[Any, Any],
        request: Any,
        *,
        run_id: str,
        seed: int,
        began: float,
        deadline: float,
        pools: Sequence[Pool] = (),
        on_stop: Callable[[float], None],
        on_idle: Callable[[], None],
        ask: Callable[[Callable[..., Any], tuple[Any, ...]], Any] = plainly,
    ) -> None:
        self.book = Book(
            job.limits, job.rates_under({p for pool in pools for p in pool.capped}), pools, run_id
        )
        super().__init__(job, self.book.rates, run_id, began, deadline, on_idle)
        self.request = private_copy(request)
        # Only containers are copied: what private_copy shares once, it shares for all.
        self._shared = type(request) not in CONTAINERS
        self.seed = seed
        self.denied = False
        # Nobody may start who has no time at all.
        self.admitting = job.candidate_timeout != 0
        self.parked: Waiter | None = None
        self.first = self.choice = self.interrupt = None
        self._on_stop = on_stop
        self._ask = ask
        self._scores = job.score is not None
        key = getattr(job.selector, "key", None)  # only votes have one
        self._follower = job.stop.follow(Following(self.n, job.objective, key, ask))
        if self._follower is not None:
            self._after_end = self._follow

    # -- a candidate's way through the run, in order -------------------------------------------

    def begin(self, now: float) -> Attempt | None:
        """Start the next candidate that can be paid for; None if there is none to start."""
        while self.admitting and self.next_index < self.n and now < self.deadline:
            index = self.next_index
            self.next_index = index + 1
            if self._built is not None and self.records[index] is not None:
                continue  # its request could not be built
            lease = self.book.reserve(index)
            if lease is None:
                ask = self.book.ask_for_lease(index)
                if ask.granted is None:
                    self.queued[index] = self.parked = ask
                    return None
                lease = ask.lease
            if lease is not None:
                return self._started(index, lease, now)
            self._deny(index, now)
        return None

    def begin_leased(self, ask: Waiter, now: float) -> Attempt | None:
        """Start the candidate whose ask has been answered; None if it does not start.

        A lease that was granted to a candidate that may not start any more is handed back.
        """
        del self.queued[ask.index]
        attempt = None
        if not self.admitting or now >= self.deadline:
            if ask.lease is not None:
                self.book.settle(ask.lease, generated=False, scored=False, cut=False)
        elif ask.lease is not None:
            attempt = self._started(ask.index, ask.lease, now)
        else:
            self._deny(ask.index, now)
        if not self.flying and not self.queued:
            self._on_idle()
        return attempt

    def _started(self, index: int, lease: Lease, now: float) -> Attempt:
        timeout = self.job.candidate_timeout
        attempt = self.flying[index] = Attempt(
            index,
            self.request if self._shared else self._request_of(index),
            lease,
            self.book,
            now,
            None if timeout is None else now + timeout,
        )
        number = self.sequence
        self.sequence = number + 2
        if self.subscribers:
            self._told.append(CandidateStarted(number, self.run_id, index, now))
            self._told.append(CandidateLeased(number + 1, self.run_id, index, now, lease.number))
        return attempt

    def generated(self, attempt: Attempt, output: Any, now: float) -> bool:
        """Take in an output; whether it is to be scored (not if the run is stopping, or late)."""
        attempt.output = output
        attempt.status = Status.GENERATED
        number = self.sequence
        self.sequence = number + 1
        if self.subscribers:
            self._told.append(CandidateGenerated(number, self.run_id, attempt.index, now))
        if self.stopping or self.late(attempt, now):
            self.cut(attempt, now)
        elif self._scores:
            return True
        else:
            self.end(attempt, Status.ELIGIBLE, now)
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
        if attempt.group is not None and attempt.status in ANSWERED:
            for waiting in attempt.group.share(attempt, score):
                if not waiting.ended:
                    self.take_over(waiting, attempt.group.score, now)

    def take_over(self, attempt: Attempt, score: Score, now: float) -> None:
        """Give a candidate the score of another one with an equal key; it was not scored itself."""
        attempt.status = Status.SCORING
        self.scored(attempt, score, now)

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

    # -- requests --------------------------------------------------------------------------------

    def built(self, requests: Sequence[Any], now: float) -> None:
        """Take in what the job's builder made, as far as it came: one request, or `Raised`.

        A candidate whose request could not be built has failed before it began.
        """
        self._built, self._shared = list(requests), False
        for index, request in enumerate(requests):
            if isinstance(request, Raised):
                self._never_began(index, Status.GENERATION_FAILED, now, request.error)

    # -- the run ---------------------------------------------------------------------------------

    def stop(self, reason: StopReason, now: float, *, in_flight: bool = True) -> None:
        """End the run: admit nobody, and (`in_flight`) tell those in flight to stop.

        The first reason stays, but for one that only stopped admitting.
        """
        if self.closed or self.stopping:
            return
        if reason == "stopped" and (not self.admitting or not self._somebody_may_begin()):
            return
        self.admitting = False
        self.stop_reason = reason
        for ask in tuple(self.queued.values()):
            ask.withdraw()
        if in_flight:
            self.stopping = True
            self._on_stop(now)
        elif not self.flying:
            self._on_idle()

    def _somebody_may_begin(self) -> bool:
        return self.next_index < self.n or bool(self.queued)

    def abandon(self, now: float) -> None:
        """The candidate that started this run has ended: stop it, if it goes on."""
        self.stop("cancelled", now)

    # -- inside ----------------------------------------------------------------------------------

    def _deny(self, index: int, now: float) -> None:
        self.denied = True
        self._never_began(index, Status.BUDGET_EXCEEDED, now, None)

    def _never_began(
        self, index: int, status: Status, now: float, error: BaseException | None
    ) -> None:
        request = self._request_of_idle(index)
        record = Candidate[Any](index, status, request=request, error=error)
        self.records[index] = record
        self.tell(CandidateEnded, index, now, status, False, error)
        if self._after_end is not None:
            self._after_end(record, now)

    def _follow(self, record: Candidate[Any] | None, now: float) -> None:
        """Have the stopping rule look at an end; it may stop the run.

        Not at the deadline, nor after a stop: what those end is no news for the rule.
        """
        assert self._follower is not None
        assert record is not None
        if self.stopping or now >= self.deadline or not self._follower.ended(record):
            return
        if self.job.stop.takes_the_first and self.first is None:
            self.first = record.index
        self.stop(self.job.stop.reason, now)
