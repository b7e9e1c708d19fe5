"""A seat: the task that plays candidates, and lends itself to the scorer in between.

This is the hot loop of the library: with a generator that does next to nothing, what stands
here and in what it calls is what a candidate costs. What a pool could leak from one candidate
to the next, and what closes it:

* context variables: each turn has its own copy of the context of `start()`;
* a cancel that comes late: a scope that was cancelled is left, and another one opened;
* a callback that never lets the loop go: then the seat does, once a candidate;
* the task's name.
"""

from __future__ import annotations

import trio

from hortator.actors.candidate import candidate
from hortator.actors.context import Context
from hortator.actors.crew import Crew, Seat, Turn
from hortator.actors.scorer import hand_over, next_waiting, scorer


@trio.lowlevel.enable_ki_protection
async def play(crew: Crew, seat: Seat) -> None:
    """Score what waits, generate what is pending, until there is nothing to do.

    Cancelling the seat's scope cuts what it plays; it goes on with the next, if any.
    """
    state = crew.state
    task = trio.lowlevel.current_task()
    name = task.name
    while True:
        with trio.CancelScope(shield=True, deadline=state.deadline) as scope:
            seat.scope = scope
            while not scope.cancel_called:
                turn = next_waiting(crew)
                if turn is None:
                    turn = _next_pending(crew, seat)
                    if turn is None:
                        return
                    waits = False
                else:
                    waits = True
                attempt = turn.attempt
                if attempt.limit is not None:
                    scope.deadline = min(state.deadline, attempt.limit)
                seat.attempt = attempt
                task.name = name
                if waits or (await candidate(crew, seat, turn) and hand_over(crew, turn)):
                    await scorer(crew, seat, turn)
                seat.attempt = None
                if not attempt.suspended:
                    await trio.lowlevel.cancel_shielded_checkpoint()
        seat.attempt = None
        if crew.clock.current_time() >= state.deadline:
            return  # a scope opened now would be cancelled already; the runner does the rest


def _next_pending(crew: Crew, seat: Seat) -> Turn | None:
    if not crew.take_slot(seat):
        return None
    attempt = crew.state.begin(crew.clock.current_time())
    if attempt is None:
        return None
    return Turn(attempt, Context(crew, attempt), crew.context.copy())
