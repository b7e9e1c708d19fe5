"""The scorer actor: scores what has generated, as many at a time as the job generates.

It has no task of its own while it is idle: the seat that has just generated lends it one, and
the candidate is handed over in place. When all its places are taken the candidate goes into its
mailbox, and a seat that has finished scoring takes it from there: first come, first served.
"""

from __future__ import annotations

from hortator.actors.callbacks import Failed, call_user
from hortator.actors.crew import Crew, Seat
from hortator.protocols.attempt import Attempt
from hortator.protocols.candidate import Status
from hortator.protocols.errors import InvalidScore
from hortator.protocols.scoring import read_score


async def scorer(crew: Crew, seat: Seat, attempt: Attempt) -> None:
    """Score one candidate, in the place that was taken for it.

    If it is cancelled, the candidate is cut with its output kept and without a score.
    """
    state, role = crew.state, crew.scorer_role
    shown = attempt.shown()
    attempt.status = Status.SCORING
    came_back = False
    try:
        if role.asynchronous:
            attempt.scorer_ran = True
            answer = await call_user(
                role.function,
                (attempt.request, shown, attempt.ctx),
                attempt.space,
                attempt,
                seat.on_suspend,
            )
        else:
            seat.on_suspend()
            answer = await crew.in_thread(
                seat, attempt, role, (attempt.request, shown, attempt.ctx)
            )
        came_back = True
    finally:
        if not attempt.detached:  # a detached scorer's place was freed when it was given up
            crew.scoring -= 1
        if not came_back:
            crew.was_cut(attempt)
    if attempt.ended or isinstance(answer, Failed):
        crew.ended_badly(attempt, answer)
        return
    now = crew.clock.current_time()
    try:
        score = read_score(answer)
    except InvalidScore as error:
        attempt.record_cost(answer)
        state.failed(attempt, error, now)
    else:
        state.scored(attempt, score, now)
