"""A seat: one task of a run, and what it plays at this moment."""

from __future__ import annotations

import math
from typing import Protocol

import trio

from hortator.actors.threads import ThreadCall
from hortator.protocols.attempt import Attempt
from hortator.protocols.batch import Batch
from hortator.protocols.run import RunState


class Surroundings(Protocol):
    """What a seat needs to know of the run around it."""

    state: RunState
    free_slots: int

    def fill_seats(self) -> None:
        """Open a seat for every free slot that has a candidate to play."""
        ...


class Seat:
    """One task of a run's pool.

    Attributes:
        attempt: the candidate that it plays.
        batch: the scoring call that it plays instead.
        thread: the sync callback that it waits for.
        slot: whether it holds one.
        scope: what cuts its candidate alone, if candidates have limits of their own.
    """

    slot: bool

    __slots__ = ("_crew", "attempt", "batch", "scope", "slot", "thread")

    def __init__(self, crew: Surroundings, slot: bool) -> None:
        self._crew = crew
        self.attempt: Attempt | None = None
        self.batch: Batch | None = None
        self.thread: ThreadCall | None = None
        self.scope: trio.CancelScope | None = None
        self.slot = slot

    @property
    def playing(self) -> list[Attempt]:
        """The candidates that it plays and that have not ended."""
        played = (self.attempt,) if self.batch is None else self.batch.attempts
        return [attempt for attempt in played if attempt is not None and not attempt.ended]

    @property
    def steps(self) -> int:
        """How often the callback has been resumed that it waits for."""
        if self.batch is not None:
            return self.batch.steps
        return 0 if self.attempt is None else self.attempt.steps

    @property
    def limit(self) -> float:
        """When the own time of all that it plays is up; infinite if they have none."""
        limits = [attempt.limit for attempt in self.playing]
        return max((math.inf if each is None else each for each in limits), default=math.inf)

    @property
    def stuck(self) -> bool:
        """Whether the run has given up on it."""
        if self.batch is not None:
            return self.batch.detached
        return self.attempt is not None and self.attempt.detached

    def on_suspend(self) -> None:
        """A scorer lets the loop go: tell what was held back, let somebody else generate."""
        crew = self._crew
        crew.state.flush()
        if self.slot:
            self.slot = False
            crew.free_slots += 1
            crew.fill_seats()
