"""A run's events on their way to its subscribers: one writer, one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hortator.protocols.events import Event

Deliver: TypeAlias = Callable[[Sequence[Event]], None]
"""A subscriber: is handed events in their order, and must not raise."""


class Feed:
    """The single writer of one run's event sequence.

    Attributes:
        run_id: the run.
        sequence: the number that the next event will have, from 0, without a gap.
        subscribers: who is handed every event.
        closed: the terminal event is made, and nothing follows it.
    """

    run_id: str
    sequence: int
    closed: bool

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.sequence = 0
        self.subscribers: tuple[Deliver, ...] = ()
        self.closed = False
        self._told: list[Event] = []
        self._telling = False

    def tell(self, event: Callable[..., Event], index: int, now: float, *rest: Any) -> None:
        """Number an event and hand it to every subscriber at once.

        The events of a candidate's life are numbered where they happen, in `RunState`; whoever
        plays candidates calls `flush` before it lets the loop go.
        """
        assert not self.closed, "an event after the terminal one"
        number = self.sequence
        self.sequence = number + 1
        if self.subscribers:
            self._told.append(event(number, self.run_id, index, now, *rest))
            self.flush()

    def flush(self) -> None:
        """Hand over the events that have been numbered and not told yet."""
        if self._telling:
            return  # a subscriber caused these: everybody gets the ones before them first
        self._telling = True
        while self._told:
            told, self._told = self._told, []
            for deliver in self.subscribers:
                deliver(told)
        self._telling = False

    def subscribe(self, deliver: Deliver) -> None:
        """Have every event from now on handed to `deliver`, which must not raise."""
        self.subscribers = (*self.subscribers, deliver)

    def unsubscribe(self, deliver: Deliver) -> None:
        """Undo `subscribe`; a no-op if it was undone before."""
        self.subscribers = tuple(kept for kept in self.subscribers if kept is not deliver)
