"""The scorer's places: who waits to be scored, how many are scored at once, and who is not at all.

Three ways lead past the plain one: a batch scorer takes what waits instead of one after another;
a run that scores all together waits until that is due; and of duplicates only the first is scored.
"""

from __future__ import annotations

import math

import trio

from hortator.actors.callbacks import Failed, call_now
from hortator.actors.mailbox import open_mailbox
from hortator.protocols.attempt import Attempt
from hortator.protocols.batch import Batch, as_batch
from hortator.protocols.candidate import Status
from hortator.protocols.duplicates import Duplicates, Group
from hortator.protocols.errors import CandidateError
from hortator.protocols.gathering import Gathering
from hortator.protocols.messages import Finished
from hortator.protocols.run import RunState
from hortator.protocols.stopping import StopReason


class Places:
    """Who is scored when, in one run.

    Attributes:
        state: the rules.
        clock: Trio's.
        places: how many scoring calls may run at once.
        scoring: how many do; a batch takes its place when its seat is opened.
        unscored: candidates that wait in the scorer's mailbox.
        batched: whether they are scored many in one call.
        gathering: the rules, if they are all scored in one call; else None.
    """

    state: RunState
    clock: trio.abc.Clock
    places: int
    scoring: int
    unscored: int
    batched: bool
    gathering: Gathering | None

    @property
    def deadline_reason(self) -> StopReason:
        """What the deadline is called in the result."""
        raise NotImplementedError

    def open_seat(self, *, slot: bool) -> None:
        """Start a task for what is to be done."""
        raise NotImplementedError

    def ended_badly(self, attempt: Attempt, value: Failed) -> None:
        """A callback raised."""
        raise NotImplementedError

    def arrange_places(self, state: RunState) -> None:
        """Take the rules over, before anything runs."""
        job = state.job
        self.state = state
        self.scoring = self.unscored = 0
        batch = as_batch(job.score)
        self.batched = batch is not None
        self.places = job.score_concurrency or (1 if self.batched else job.max_concurrency)
        self._most = None if batch is None else batch.size
        self.gathering = state if isinstance(state, Gathering) else None
        once = job.score_once
        self._duplicates = None if once is None else Duplicates(once, self._score_next)
        self._plain = self._duplicates is None and not self.batched  # the hot way: one test
        # Opened when somebody has to wait.
        self._scorer: trio.MemorySendChannel[Finished] | None = None
        self._scorer_mailbox: trio.MemoryReceiveChannel[Finished] | None = None

    def take_place(self, attempt: Attempt) -> bool:
        """Take a place for scoring; without one the candidate waits in the scorer's mailbox."""
        if self._plain and self.scoring < self.places:
            self.scoring += 1
            return True
        if self._duplicates is not None and not self._is_first(attempt):
            return False
        if self.scoring < self.places and not self.batched:
            self.scoring += 1
            return True
        self._wait(attempt)
        return False

    def next_unscored(self) -> Attempt | None:
        """Take a place and the candidate that has waited longest, if there are both."""
        while self.unscored and self.scoring < self.places and not self.batched:
            attempt, now = self._next(), self.clock.current_time()
            if attempt.ended:  # it may have been cut while it waited
                continue
            if self.state.late(attempt, now):
                self.state.cut(attempt, now)
                continue
            attempt.book.resume(attempt.lease)
            self.scoring += 1
            return attempt
        return None

    def next_batch(self) -> Batch | None:
        """Take what waits, as much as goes into one call; the place for it was taken before."""
        attempts: list[Attempt] = []
        now = self.clock.current_time()
        while self.unscored and (self._most is None or len(attempts) < self._most):
            attempt = self._next()
            if attempt.ended:
                continue
            if self.state.late(attempt, now):
                self.state.cut(attempt, now)
            else:
                attempt.book.resume(attempt.lease)
                attempts.append(attempt)
        return Batch(attempts) if attempts else None

    def offer_places(self) -> None:
        """Have what waits scored, if there is a place for it."""
        if self.unscored and self.scoring < self.places and not self.state.stopping:
            if self.batched:
                self.scoring += 1
            self.open_seat(slot=False)

    @property
    def gather_at(self) -> float:
        """When everything is scored in one call at the latest; infinite if that is not due."""
        rules = self.gathering
        return math.inf if rules is None or rules.called else rules.gather_at

    def gather(self) -> None:
        """Have everything scored in one call, if that is due."""
        gathering, now = self.gathering, self.clock.current_time()
        if gathering is not None and gathering.gather(now, self.deadline_reason):
            self.offer_places()

    def cut_waiting(self, now: float) -> None:
        """Cut those who wait for a score: all if the run is stopping, else whose time is up."""
        for attempt in list(self.state.flying.values()):
            waits = attempt.status is Status.GENERATED and not attempt.ended
            if waits and (self.state.stopping or self.state.late(attempt, now)):
                self.state.cut(attempt, now)

    # -- inside ----------------------------------------------------------------------------------

    def _wait(self, attempt: Attempt) -> None:
        if self._scorer is None:
            self._scorer, self._scorer_mailbox = open_mailbox(Finished)
        self.unscored += 1
        self._scorer.send_nowait(Finished(attempt))
        if self.gathering is None:
            # Until then it goes on no more than those do whose place it waits for.
            attempt.book.rest(attempt.lease)
            self.offer_places()

    def _next(self) -> Attempt:
        assert self._scorer_mailbox is not None
        self.unscored -= 1
        return self._scorer_mailbox.receive_nowait().attempt

    def _is_first(self, attempt: Attempt) -> bool:
        """Whether it is to be scored itself: nobody with an equal key is, or was."""
        assert self._duplicates is not None
        found = call_now(self._duplicates.find, (attempt.output,), attempt.space)
        if attempt.ended:  # the key has stopped the run
            return False
        if isinstance(found, Failed):
            attempt.status = Status.SCORING
            self.ended_badly(attempt, found)
            return False
        group: Group = found
        if group.join(attempt):
            return True
        if group.score is not None:
            self.state.take_over(attempt, group.score, self.clock.current_time())
        else:
            # It gives nothing back before the first one's end, which may wait for more.
            attempt.book.rest(attempt.lease)
        return False

    def _score_next(self, attempt: Attempt, lost: Attempt) -> None:
        """The first of some duplicates has got no score: this one is to be scored instead."""
        if self.state.stopping:
            return  # it is cut with all the others that wait
        attempt.book.resume(attempt.lease)
        if self.gathering is None or not self.gathering.called:
            self._wait(attempt)
            return
        # The one call was made: what its first one failed of, they have all failed of.
        error = lost.error or CandidateError(
            f"it shares the score of candidate {lost.index}, which the scoring call has not given"
        )
        for each in (attempt, *attempt.group.dissolve()):
            if not each.ended:
                each.status = Status.SCORING
                self.state.failed(each, error, self.clock.current_time())
