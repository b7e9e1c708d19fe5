"""The rules of a run whose candidates are all scored in one call."""

from __future__ import annotations

import math
from typing import Any

from hortator.protocols.attempt import Attempt
from hortator.protocols.batch import RESERVE_SHARE, as_batch
from hortator.protocols.candidate import Status
from hortator.protocols.lease import Lease
from hortator.protocols.queue import Waiter
from hortator.protocols.run import RunState
from hortator.protocols.stopping import StopReason


class Gathering(RunState):
    """A run that gathers everything before it scores.

    Until its generation ends, a candidate's own limit is `gather_at` at the latest: who generates
    then is cut as late, sees that time as its deadline, and is detached if it doesn't unwind.

    Attributes:
        called: the one call was made, or there was nobody to make it for.
    """

    called: bool = False
    stop_reason: StopReason | None
    _witness: Attempt | None = None
    _cut_for_it: bool = False

    @property
    def limited(self) -> bool:
        """Whether candidates have limits of their own: until they have generated, they do."""
        return True

    @property
    def gather_at(self) -> float:
        """When the one call is made at the latest: seconds on Trio's clock, infinite for never."""
        if self.deadline == math.inf:
            return math.inf
        scorer = as_batch(self.job.score)
        assert scorer is not None
        span = self.deadline - self.began
        reserve = RESERVE_SHARE * span if scorer.reserve is None else scorer.reserve
        return self.deadline - (reserve if reserve < span else span / 2)

    def begin(self, now: float) -> Attempt | None:
        """Start the next candidate, unless it could not be scored any more."""
        return super().begin(self._for_beginners(now))

    def begin_leased(self, ask: Waiter, now: float) -> Attempt | None:
        """Start the candidate whose ask has been answered, by the same rule."""
        return super().begin_leased(ask, self._for_beginners(now))

    def _for_beginners(self, now: float) -> float:
        """To whoever has not begun, the time of the call is the deadline."""
        return self.deadline if now >= self.gather_at else now

    def _started(self, index: int, lease: Lease, now: float) -> Attempt:
        attempt = super()._started(index, lease, now)
        attempt.limit = self.limit_of(attempt)
        return attempt

    def limit_of(self, attempt: Attempt) -> float:
        """When a candidate that generates is cut: at its own limit, or for the call."""
        return min(self._own_limit(attempt), self.gather_at)

    def generated(self, attempt: Attempt, output: Any, now: float) -> bool:
        """Take in an output; whether it is to be scored."""
        if not super().generated(attempt, output, now):
            return False
        attempt.limit = self._own_limit(attempt)
        # It gives nothing back before the call: those that wait for a lease can't hope for its.
        self.book.rest(attempt.lease)
        return True

    def cut(self, attempt: Attempt, now: float, error: BaseException | None = None) -> None:
        """End a candidate that was stopped before its own end."""
        if not self.called and attempt.limit is not None and attempt.limit >= self.gather_at <= now:
            self._cut_for_it = True
        super().cut(attempt, now, error)

    def gather(self, now: float, reason: StopReason) -> bool:
        """Whether it is time for the one call; True once. At `gather_at` it ends all generating.

        Args:
            now: seconds on Trio's clock.
            reason: what the deadline is called.
        """
        if self.called or self.stopping or self.closed:
            return False
        unfinished = self._somebody_generates()
        if unfinished and now < self.gather_at:
            return False
        self.called = True
        if unfinished or self._cut_for_it:
            self.stop(reason, now, in_flight=False)
        for attempt in self.flying.values():
            if attempt.status is Status.GENERATED:
                self.book.resume(attempt.lease)
        return True

    def _somebody_generates(self) -> bool:
        """Whether somebody generates, or may still start."""
        if self.admitting and (self.next_index < self.n or self.queued):
            return True
        # Whoever was found the last time is asked first: else n ends would look at n each.
        known = self._witness
        if known is None or known.ended or known.status is not Status.GENERATING:
            generating = (a for a in self.flying.values() if a.status is Status.GENERATING)
            self._witness = next(generating, None)
        return self._witness is not None

    def _own_limit(self, attempt: Attempt) -> float:
        timeout = self.job.candidate_timeout
        return math.inf if timeout is None else attempt.started + timeout
