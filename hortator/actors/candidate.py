"""The candidate actor: one attempt at a time, in the seat's cancel scope."""

from __future__ import annotations

from hortator.actors.crew import OVER, Crew, Seat, Turn


async def candidate(crew: Crew, seat: Seat, turn: Turn) -> bool:
    """Generate one candidate; whether it is to be scored.

    If it is cancelled, what it has spent and published is kept, and its end is recorded.
    """
    attempt = turn.attempt
    output = await crew.call(seat, turn, crew.generator, (attempt.request, turn.ctx))
    if output is OVER:
        return False
    return crew.state.generated(attempt, output, crew.clock.current_time())
