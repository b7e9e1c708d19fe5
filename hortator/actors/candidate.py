"""The candidate actor: a seat, which plays one candidate after another.

The loop in `play` is the hot one of this library: with a generator that does next to nothing,
what stands there is what a candidate costs. That is why it is one long function.

What a pool could leak from one candidate to the next, and what closes it:

* context variables: each attempt has its own copy of the context of `start()`;
* a cancel that comes late: a scope that was cancelled is left, and another one opened;
* a callback that never lets the loop go: then the seat does, once a candidate;
* the task's name.
"""

from __future__ import annotations

import math

import trio

from hortator.actors.callbacks import Failed, call_user
from hortator.actors.context import Context, current
from hortator.actors.crew import Crew, Seat
from hortator.actors.ledger import answered
from hortator.protocols.attempt import Attempt


@trio.lowlevel.enable_ki_protection
async def candidate(crew: Crew, seat: Seat) -> None:
    """Score what waits, generate what is pending, until there is nothing to do.

    The run's scope, around all seats, ends it; then it raises `Cancelled`, with the end of the
    candidate that it played recorded. A candidate's own timeout cuts that candidate alone, and
    so does a rule that drops it.
    """
    done = False
    while not done:
        with trio.CancelScope() as seat.scope:
            done = await play(crew, seat, seat.scope)
        seat.attempt = None


@trio.lowlevel.enable_ki_protection
async def play(crew: Crew, seat: Seat, own_scope: trio.CancelScope | None = None) -> bool:
    """As `candidate`, which is for candidates that have a timeout of their own.

    Returns:
        Whether there is nothing to do; False if `own_scope` was cancelled, but too late for the
        candidate that it was meant for.
    """
    state, role, score, context = crew.state, crew.generator, crew.score, crew.context
    generate, asynchronous, clock = role.function, role.asynchronous, crew.clock.current_time
    flush = state.flush  # what is told is held back until somebody else gets the loop
    task = trio.lowlevel.current_task()
    name = task.name
    while not state.stopping:
        attempt = crew.next_unscored() if crew.unscored else None
        generates = attempt is None
        if attempt is None:
            if not seat.slot and not crew.take_slot(seat):
                return True
            attempt = state.begin(clock())
            if attempt is None:
                if state.parked is None:
                    return True
                attempt = await _leased(crew, own_scope)
                if attempt is None:
                    continue
            attempt.ctx = ctx = Context(crew, attempt)
            attempt.space = space = context.copy()
            space.run(current.set, ctx)
        seat.attempt = attempt
        task.name = name
        if own_scope is not None and attempt.limit is not None:
            own_scope.deadline = attempt.limit
        if generates:
            came_back = False
            args = (attempt.request, attempt.ctx)
            try:
                if asynchronous:
                    attempt.generator_ran = True
                    output = await call_user(generate, args, attempt.space, attempt, flush)
                else:
                    output = await crew.in_thread(seat, attempt, role, args)
                came_back = True
            finally:
                if not came_back:
                    crew.was_cut(attempt)
            if attempt.ended or isinstance(output, Failed):
                crew.ended_badly(attempt, output)
            elif state.generated(attempt, output, clock()) and crew.take_place(attempt):
                await score(crew, seat, attempt)
        else:
            await score(crew, seat, attempt)
        seat.attempt = None
        if not attempt.suspended:
            flush()
            await trio.lowlevel.cancel_shielded_checkpoint()
        if own_scope is not None and own_scope.cancel_called:
            return False  # it would cut the next one: leave it, and open another
    return True


async def _leased(crew: Crew, own_scope: trio.CancelScope | None) -> Attempt | None:
    """Wait until the candidate that has found no room gets its lease; None if it gets none.

    If it is cancelled, the candidate has not started and holds nothing.
    """
    state = crew.state
    ask, state.parked = state.parked, None
    assert ask is not None
    if own_scope is not None:
        own_scope.deadline = math.inf  # what it had is that of the candidate before
    state.flush()
    try:
        await answered(ask)
    except trio.Cancelled:
        del state.queued[ask.index]
        raise
    return state.begin_leased(ask, crew.clock.current_time())
