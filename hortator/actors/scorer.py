"""The scorer actor: scores what has generated, as many at a time as the job generates.

It has no task of its own while it is idle: the seat that has just generated lends it one, and
the candidate is handed over in place. When all its places are taken the candidate goes into its
mailbox, and a seat that has finished scoring takes it from there: first come, first served.
"""

from __future__ import annotations

from hortator.actors.crew import OVER, Crew, Finished, Seat, Turn
from hortator.protocols.candidate import Generated, Status
from hortator.protocols.errors import InvalidScore
from hortator.protocols.scoring import read_score
from hortator.protocols.usage import Usage

_NO_USAGE = Usage()


def hand_over(crew: Crew, turn: Turn) -> bool:
    """Take a place for scoring; without one the candidate waits in the mailbox."""
    if crew.scoring < crew.state.job.max_concurrency:
        crew.scoring += 1
        return True
    crew.unscored += 1
    crew.scorer.send_nowait(Finished(turn))
    return False


def next_waiting(crew: Crew) -> Turn | None:
    """Take a place and the candidate that has waited longest, if there are both."""
    while crew.unscored and crew.scoring < crew.state.job.max_concurrency:
        crew.unscored -= 1
        turn = crew.scorer_mailbox.receive_nowait().turn
        now = crew.clock.current_time()
        if not crew.state.late(turn.attempt, now):
            crew.scoring += 1
            return turn
        crew.state.cut(turn.attempt, now)  # its time ran out while it waited
    return None


async def scorer(crew: Crew, seat: Seat, turn: Turn) -> None:
    """Score one candidate, in the place that was taken for it.

    If it is cancelled, the candidate is cut with its output kept and without a score.
    """
    attempt, state = turn.attempt, crew.state
    lease = attempt.lease
    spent = _NO_USAGE if lease.generation is None else Usage.of(lease.generation)
    shown = Generated(attempt.index, attempt.output, spent)
    attempt.status = Status.SCORING
    try:
        answer = await crew.call(
            seat,
            turn,
            crew.scorer_role,
            (attempt.request, shown, turn.ctx),
            lambda: crew.give_up_slot(seat),
        )
    finally:
        if not attempt.detached:  # the place of a detached scorer was freed when it was given up
            crew.scoring -= 1
    if answer is OVER:
        return
    now = crew.clock.current_time()
    try:
        score = read_score(answer)
    except InvalidScore as error:
        usage = getattr(answer, "usage", None)
        if isinstance(usage, Usage):  # what an unusable score cost is spent all the same
            attempt.book.record(lease, "scoring", usage)
        state.failed(attempt, error, now)
        return
    state.scored(attempt, score, now)
