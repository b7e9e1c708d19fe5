"""Clean-up under way in one run: shields, each limited by what its candidate has left.

The limits were known when the shields were opened. When a deadline moves after that, or one
candidate is told to stop alone, they are set anew; a stop of the run only ever shortens them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import trio

from hortator.protocols.attempt import Attempt
from hortator.protocols.deadlines import WORK_SHARE, Grace
from hortator.protocols.run import RunState


class Timed(Protocol):
    """What has to be known of the run around a candidate."""

    state: RunState
    grace: Grace | None

    @property
    def grace_seconds(self) -> float:
        """How long a grace is, at the most."""
        ...


class Cleanups:
    """The shields that the callbacks of one run have opened."""

    def __init__(self, around: Timed) -> None:
        self._around = around
        self._open: dict[trio.CancelScope, tuple[Attempt, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def shield(self, attempt: Attempt, seconds: float | None) -> Generator[None]:
        """A shield for clean-up of one candidate, for at most so many seconds."""
        most = float("inf") if seconds is None else trio.current_time() + seconds
        until = min(most, self._limit(attempt))
        with trio.CancelScope(shield=True, deadline=until) as scope:
            self._open[scope] = attempt, most
            try:
                yield
            finally:
                del self._open[scope]

    def cut_at(self, until: float) -> None:
        """The run stops: whatever still cleans up at this time is cut."""
        for scope in self._open:
            scope.deadline = min(scope.deadline, until)

    def move(self, only: Attempt | None = None) -> None:
        """Set the limits anew, of all or of one candidate: what they hang on has moved."""
        for scope, (attempt, most) in self._open.items():
            if only is None or attempt is only:
                scope.deadline = min(most, self._limit(attempt))

    def _limit(self, attempt: Attempt) -> float:
        """When the work share of the grace ends, the run's or that of its own limit."""
        around = self._around
        share = WORK_SHARE * around.grace_seconds
        until = around.state.deadline + share if around.grace is None else around.grace.work_until
        return until if attempt.limit is None else min(until, attempt.limit + share)
