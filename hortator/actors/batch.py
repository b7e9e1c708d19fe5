"""The batch scorer actor: a seat without a slot, which scores what waits, many in one call.

Its seat is opened when there is something to score, and left when there is nothing any more. A
call has a scope of its own, which ends when the time of all its candidates is up; the scope of the
run is around it.
"""

from __future__ import annotations

import contextvars
import math
from typing import Any

import trio

from hortator.actors.callbacks import Failed, await_too, call_user
from hortator.actors.crew import Crew, Seat
from hortator.actors.threads import ThreadCall
from hortator.protocols.attempt import Attempt
from hortator.protocols.batch import Batch, items_of, read_batch
from hortator.protocols.candidate import Status
from hortator.protocols.copying import private_copy
from hortator.protocols.errors import InvalidScore, RunStopping


class BatchCall:
    """What a batch scorer sees of its call; see `BatchContext` for what its members promise."""

    __slots__ = ("_batch", "_crew")

    def __init__(self, crew: Crew, batch: Batch) -> None:
        self._crew, self._batch = crew, batch

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._crew.state.run_id

    @property
    def deadline(self) -> float | None:
        """Seconds on Trio's clock, None without a deadline."""
        latest = min(self._crew.state.deadline, self._batch.limit)
        return None if latest == math.inf else latest

    @property
    def stopping(self) -> bool:
        """Whether the call has been told to stop, or has ended."""
        state, batch = self._crew.state, self._batch
        if state.stopping or batch.over or batch.detached:
            return True
        # The clock is asked too: a thread sees the deadline also while the loop is blocked.
        return self._crew.clock.current_time() >= min(state.deadline, batch.limit)

    def raise_if_stopping(self) -> None:
        """Raise `RunStopping` if told to stop."""
        if self.stopping:
            raise RunStopping(f"{self._told()} has been told to stop")

    def _told(self) -> str:
        return f"the scoring of candidates {[each.index for each in self._batch.attempts]}"


@trio.lowlevel.enable_ki_protection
async def batch_scorer(crew: Crew, seat: Seat) -> None:
    """Score what waits, until nothing does; a place was taken for that.

    The run's scope, around all seats, ends it; then it raises `Cancelled`, with the ends of the
    candidates in the call recorded.
    """
    given_up = False
    try:
        while not crew.state.stopping and not given_up:
            batch = crew.next_batch()
            if batch is None:
                return
            seat.batch = batch
            for attempt in batch.attempts:
                attempt.status = Status.SCORING
                # That its generator was refused a top-up says nothing of an error in here.
                attempt.denied = False
            with trio.CancelScope(deadline=batch.limit):
                await _score(crew, seat, batch)
            if not batch.suspended:
                crew.state.flush()
                await trio.lowlevel.cancel_shielded_checkpoint()
            given_up = batch.detached
            seat.batch = None
    finally:
        # The place of a call that was given up was freed then.
        if not given_up and (seat.batch is None or not seat.batch.detached):
            crew.scoring -= 1


async def _score(crew: Crew, seat: Seat, batch: Batch) -> None:
    """Make one call, and hand out what it comes to; if it is cancelled, all in it are cut."""
    role, space = crew.scorer_role, crew.context.copy()
    shown = tuple(attempt.shown() for attempt in batch.attempts)
    args = (private_copy(crew.state.request), shown, BatchCall(crew, batch))
    came_back = False
    try:
        if role.asynchronous:
            _started(batch)
            answer = await call_user(role.function, args, space, batch, seat.on_suspend)
        else:
            answer = await _in_thread(crew, seat, batch, args, space)
        came_back = True
    finally:
        batch.over = True
        if not came_back:
            for attempt in batch.unsettled:
                crew.was_cut(attempt)
    if isinstance(answer, Failed) or batch.detached:
        _fail(crew, batch, answer)
    else:
        _hand_out(crew, batch, answer)


def _started(batch: Batch) -> None:
    for attempt in batch.attempts:
        attempt.scorer_ran = True


async def _in_thread(
    crew: Crew, seat: Seat, batch: Batch, args: tuple[Any, ...], space: contextvars.Context
) -> Any:
    """Make the call in a worker thread; see `Crew.in_thread`."""

    def may_start() -> bool:
        if args[-1].stopping:
            return False
        _started(batch)
        return True

    def late(value: Any) -> None:
        for attempt in batch.unsettled:
            crew.services.ended_late(attempt, value)

    indices = ", ".join(str(attempt.index) for attempt in batch.attempts)
    seat.thread = thread = ThreadCall(
        crew.services.threads, f"{crew.state.run_id} candidates {indices}", late
    )
    batch.suspended = True
    crew.state.flush()
    try:
        value = await thread.run(crew.scorer_role.function, args, space, may_start)
    finally:
        seat.thread = None
    if batch.detached:
        return value
    return await await_too(value, lambda: args[-1].stopping, space, batch)


def _fail(crew: Crew, batch: Batch, answer: Any) -> None:
    """The call raised, or it came back after the run had given up on it."""
    if not batch.unsettled:
        return
    *others, last = batch.unsettled
    for attempt in others:
        if attempt.detached:
            crew.ended_badly(attempt, answer)
        else:
            crew.state.failed(attempt, answer.error, crew.clock.current_time())
    crew.ended_badly(last, answer)  # it stops the run, if this has to be


def _hand_out(crew: Crew, batch: Batch, answer: Any) -> None:
    """Give each candidate its score, in index order."""
    state, attempts, items = crew.state, batch.attempts, []
    now = crew.clock.current_time()
    try:
        items = items_of(answer)
        scores = read_batch(items, len(attempts))
    except InvalidScore as error:
        for position, item in enumerate(items):
            # What it cost is spent all the same. Whose it was can't be told any more.
            _record_cost(attempts[min(position, len(attempts) - 1)], item)
        for attempt in batch.unsettled:
            state.failed(attempt, error, now)
        return
    for attempt, score, item in zip(attempts, scores, items, strict=True):
        if attempt.ended:
            continue
        if isinstance(score, InvalidScore):
            _record_cost(attempt, item)
            state.failed(attempt, score, now)
        else:
            state.scored(attempt, score, now)


def _record_cost(attempt: Attempt, item: Any) -> None:
    if not attempt.ended:
        attempt.record_cost(item)
