"""The doors of the sweep: ways to stop a run, or to disturb it, right before some task step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from hortator.actors import candidate
from hortator.actors.runner import Run
from hortator.protocols.attempt import Attempt

if TYPE_CHECKING:
    from tests.sweep import Play


@attrs.frozen
class Door:
    """A way to stop a run.

    Attributes:
        name: for people.
        ready: whether there is something to stop.
        open: stops it. Sync, and done before a step of some task.
        stops: whether it ends the run, and not one candidate alone.
    """

    name: str
    ready: Callable[[Play], bool]
    open: Callable[[Play], None]
    stops: bool = True


def _goes_on(play: Play) -> bool:
    return bool(play.runs) and not play.runs[0].state.closed


def _in_flight(play: Play) -> list[tuple[Run, Attempt, trio.lowlevel.Task]]:
    """The candidates that may be cut alone: those with a timeout of their own, not over yet.

    While somebody cleans up there are none, since the limit of clean-up was known when it began.
    """
    found = [
        (run, seat.attempt, task)
        for run in play.runs
        if not run.cleanups
        for seat, task in play.seats.items()
        if seat in run.seats and seat.attempt is not None
        if not seat.attempt.ended and not seat.attempt.dropped and seat.attempt.limit is not None
    ]
    return sorted(found, key=lambda each: (play.runs.index(each[0]), each[1].index))


def _cut_one(play: Play) -> None:
    """Move the own timeout of one candidate in flight to this moment; of which, the step says.

    That is how the product cancels one candidate and no other: its limit passes, and the scope
    that it is played in expires. That scope is the innermost one among the locals of its task.
    The job needs a `candidate_timeout`, which may be as long as one likes.
    """
    found = _in_flight(play)
    run, attempt, task = found[play.steps % len(found)]
    frames = [frame for frame, _ in task.iter_await_frames()]
    scopes = [
        value
        for frame in frames
        if frame.f_globals["__name__"] == candidate.__name__
        for value in frame.f_locals.values()
        if isinstance(value, trio.CancelScope)
    ]
    attempt.limit = scopes[-1].deadline = play.clock.current_time()
    assert scopes[-1].cancel_called  # asked, it expires now, and not in the loop's next pass
    run.wake()  # it has planned for another limit
    play.hit = run, attempt.index


def _has_deadline(play: Play) -> bool:
    return _goes_on(play) and not play.runs[0].state.stopping and _until_deadline(play) < math.inf


def _until_deadline(play: Play) -> float:
    return max(0.0, play.runs[0].state.deadline - play.clock.current_time())


def _has_handle(play: Play) -> bool:
    return play.handle is not None and _goes_on(play)


def _cancel_handle(play: Play) -> None:
    assert play.handle is not None
    play.handle.cancel("through a door")


def _extend(play: Play) -> None:
    """Move the deadline: refused once it has passed, and never past the caller's."""
    assert play.handle is not None
    run = play.runs[0]
    before, now = run.state.deadline, play.clock.current_time()
    moved = play.handle.extend(EXTENSION)
    after = run.state.deadline
    if moved != (after > before) or (moved and now >= before) or after > play.caller.deadline:
        play.faults.append(f"at {now} extend said {moved}: from {before} to {after}")


DOORS = {
    door.name: door
    for door in (
        # First those that move the clock: opened together with others, they are the same moment.
        Door("deadline", _has_deadline, lambda play: play.clock.jump(_until_deadline(play))),
        Door("candidate", lambda play: bool(_in_flight(play)), _cut_one, stops=False),
        Door("caller", lambda play: play.calling, lambda play: play.caller.cancel("by a door")),
        Door("handle", _has_handle, _cancel_handle),
        Door("runtime", lambda play: True, lambda play: play.outside.cancel("by a door")),
    )
}
"""The ways to stop a run."""

BEHIND_A_SHIELD = Door("runtime behind a shield", lambda play: play.calling, DOORS["runtime"].open)
"""As the door 'runtime', while the caller is shielded from it: it is the runtime that has to stop
the run, and the caller gets a result."""

STALL = Door("stall", _goes_on, lambda play: play.clock.jump(100.0), stops=False)
"""Stops nothing. Opened after another door it blocks the loop for longer than any grace, before
anybody could unwind: what is told may be cut then, but nothing may be lost or called detached."""

EXTENSION = 0.75
"""Virtual seconds; more than any candidate of a scene waits for at a time."""

EXTEND = Door("extend", lambda play: _has_handle(play) and _has_deadline(play), _extend, False)
"""Stops nothing: it gives the run more time, before or after another door is opened. The door
'deadline' then opens at the deadline as it has become."""


def _stop_after_current(play: Play) -> None:
    assert play.handle is not None
    play.handle.stop_after_current()


STOP_AFTER_CURRENT = Door("stop_after_current", _has_handle, _stop_after_current, stops=False)
"""Who waits for a lease leaves the queue, who is in flight goes on to its end."""

LEAVE = Door(
    "leave",
    lambda play: play.listening and _goes_on(play),
    lambda play: play.leaving.cancel("by a door"),
    stops=False,
)
"""Stops nothing: whoever receives from the handle leaves early."""

NEED_HANDLE = frozenset({"handle", "extend", "stop_after_current"})

_OTHERS = (BEHIND_A_SHIELD, STALL, EXTEND, STOP_AFTER_CURRENT, LEAVE)


def door(name: str) -> Door:
    """The door of this name."""
    return {**DOORS, **{other.name: other for other in _OTHERS}}[name]
