"""The candidate actor: a seat, which plays one candidate after another in one cancel scope.

The loop below is the hot one of this library: with a generator that does next to nothing, what
stands here is what a candidate costs. That is why it is one long function.
"""

from __future__ import annotations

import trio

from hortator.actors.callbacks import Failed, call_user
from hortator.actors.context import Context
from hortator.actors.crew import Crew, Seat


@trio.lowlevel.enable_ki_protection
async def candidate(crew: Crew, seat: Seat) -> None:
    """Score what waits, generate what is pending, until there is nothing to do.

    Cancelling the seat's scope cuts the candidate that it plays; it goes on with the next, if
    any. What a pool could leak from one candidate to the next, and what closes it:

    * context variables: each attempt has its own copy of the context of `start()`;
    * a cancel that comes late: a scope that was cancelled is left, and another one opened;
    * a callback that never lets the loop go: then the seat does, once a candidate;
    * the task's name.
    """
    state, role, score, context = crew.state, crew.generator, crew.score, crew.context
    generate, asynchronous, clock = role.function, role.asynchronous, crew.clock.current_time
    flush = state.flush  # what is told is held back until somebody else gets the loop
    task = trio.lowlevel.current_task()
    name = task.name
    while True:
        with seat.scope as scope:
            while True:
                attempt = crew.next_unscored() if crew.unscored else None
                if attempt is None:
                    if not seat.slot and not crew.take_slot(seat):
                        return
                    fresh = attempt = state.begin(clock())
                    if attempt is None:
                        return
                    attempt.ctx = Context(crew, attempt)
                    attempt.space = context.copy()
                else:
                    fresh = None
                seat.attempt = attempt
                task.name = name
                if attempt.limit is not None:
                    scope.deadline = min(state.deadline, attempt.limit)
                if fresh is None:
                    await score(crew, seat, attempt)
                else:
                    came_back = False
                    try:
                        if asynchronous:
                            attempt.generator_ran = True
                            args = (attempt.request, attempt.ctx)
                            output = await call_user(
                                generate, args, attempt.space, attempt, flush
                            )
                        else:
                            args = (attempt.request, attempt.ctx)
                            output = await crew.in_thread(seat, attempt, role, args)
                        came_back = True
                    finally:
                        if not came_back:
                            crew.was_cut(attempt)
                    if attempt.ended or isinstance(output, Failed):
                        crew.ended_badly(attempt, output)
                    elif state.generated(attempt, output, clock()) and crew.take_place(attempt):
                        await score(crew, seat, attempt)
                seat.attempt = None
                if not attempt.suspended:
                    flush()
                    await trio.lowlevel.cancel_shielded_checkpoint()
                if state.stopping or (attempt.limit is not None and scope.cancel_called):
                    break  # leave the scope: it is cancelled, or about to be
        seat.attempt = None
        if state.stopping or clock() >= state.deadline:
            return  # a scope opened now would be cancelled already; the runner does the rest
        seat.scope = trio.CancelScope(shield=True, deadline=state.deadline)
