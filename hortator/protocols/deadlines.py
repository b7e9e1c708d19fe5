"""When a run has to be over: one absolute deadline, and one grace in two shares."""

from __future__ import annotations

import math

import attrs

WORK_SHARE = 0.8
"""Of the grace, for work to unwind; the rest is for delivering what is left to tell."""

MARGIN_SHARE = 0.1
"""Of the time left to an outer deadline, at most so much is kept back."""

PER_CANDIDATE = 100e-6
"""Seconds of grace that each candidate in flight is worth, if that is more than the grace."""

SAFE = 0.9
"""Of the room between our deadline and an outer one, so much may become grace."""


@attrs.frozen
class Window:
    """The time a run has.

    Attributes:
        deadline: seconds on Trio's clock; infinite for none.
        outer: whether the deadline comes from a scope around the caller.
        room: the most that the grace may be, so that the run returns inside the outer scope.
        latest: the latest that the deadline may be moved to.
        end: when the outer scope ends.
    """

    deadline: float
    outer: bool
    room: float
    latest: float = math.inf
    end: float = math.inf

    def extended(self, seconds: float) -> Window:
        """The same with so many seconds more, but never past `latest`."""
        asked = self.deadline + seconds
        deadline = min(asked, self.latest)
        room = math.inf if self.end == math.inf else SAFE * max(0.0, self.end - deadline)
        return Window(deadline, self.latest < asked, room, self.latest, self.end)


def window(now: float, timeout: float | None, outer: float, grace: float) -> Window:
    """Plan a run that starts now.

    The deadline is min(now + timeout, outer - margin) with margin = min(grace, 10 % of the
    time left), so that an outer `move_on_after` still gets the best so far, inside itself.

    Args:
        now: seconds on Trio's clock.
        timeout: the job's, in seconds, or None.
        outer: `trio.current_effective_deadline()` of the caller.
        grace: seconds; the most the run may take past its deadline.
    """
    own = math.inf if timeout is None else now + timeout
    if outer == math.inf:
        return Window(own, False, math.inf)
    margin = min(grace, MARGIN_SHARE * max(0.0, outer - now))
    latest = max(now, outer - margin)
    deadline = min(own, latest)
    room = SAFE * max(0.0, outer - deadline)
    return Window(deadline, latest < own, room, latest, outer)


@attrs.frozen
class Grace:
    """The end of a run, set when it is told to stop.

    Attributes:
        begins: when the work had to stop.
        work_until: what has not ended by then is detached.
        until: what has not been delivered by then is cut.
    """

    begins: float
    work_until: float
    until: float


def grace_from(begins: float, grace: float, room: float, in_flight: int) -> Grace:
    """The two shares of the grace of a run that stops at `begins`, in seconds on Trio's clock.

    Args:
        begins: when the run had to stop.
        grace: the runtime's, in seconds; more if very many candidates are in flight.
        room: the most that it may be, in seconds: what the job, an outer deadline and a run
            around this one leave.
        in_flight: how many candidates have to unwind.
    """
    whole = min(max(grace, PER_CANDIDATE * in_flight), room)
    return Grace(begins, begins + WORK_SHARE * whole, begins + whole)
