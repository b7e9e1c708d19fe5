"""Who waits for what others give back, in which order, and when waiting is over.

First come, first served, at each node apart. Waiting helps only while some lease below the node
belongs to work that goes on by itself; when there is none, everybody would wait for somebody who
waits, and the ask with the highest index is denied, then the next, until somebody works again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

from hortator.protocols.lease import Lease
from hortator.protocols.pool import Node
from hortator.protocols.usage import NOTHING, Amounts

_arrivals = itertools.count()


class Granting(Protocol):
    """The book that an ask was put to."""

    def grant(self, waiter: Waiter) -> None:
        """Give it what it asked for: there is room at all its nodes."""
        ...


class Waiter:
    """An ask for a lease, or for more of one, that may have to wait.

    Attributes:
        index: of the candidate that asks.
        asked: how much more.
        lease: to widen; None until a new one is granted.
        nodes: where there has to be room, from the book up.
        granted: the answer; None while it waits.
        arrival: its place in the order in which all asks were put.
        on_answer: called when an ask that had to wait has its answer.
    """

    index: int
    asked: Amounts
    lease: Lease | None
    nodes: Sequence[Node]
    granted: bool | None
    arrival: int
    on_answer: Callable[[], None]

    __slots__ = (
        "_at",
        "_book",
        "arrival",
        "asked",
        "granted",
        "index",
        "lease",
        "nodes",
        "on_answer",
    )

    def __init__(
        self,
        book: Granting,
        nodes: Sequence[Node],
        index: int,
        asked: Amounts,
        lease: Lease | None,
    ) -> None:
        self._book, self.nodes = book, nodes
        self.index, self.asked, self.lease = index, asked, lease
        self.granted = None
        self.on_answer = _nobody_waits
        self.arrival = next(_arrivals)
        self._at: Node | None = None

    def ask(self) -> None:
        """Be answered at once, or begin to wait."""
        held_up_by = self.held_up_by()
        if held_up_by is None:
            self._answer(True)
        elif self.is_hopeless():
            self._answer(False)
        else:
            if self.lease is not None:
                self.lease.asking = (*self.lease.asking, self)
                self._count(1)
            self._stand_at(held_up_by)
            # Every node: one lease less below each of them works now.
            answer_waiting(self.nodes)

    def rest(self) -> None:
        """Count the lease as one that waits, though it asks for nothing, until `withdraw`."""
        assert self.lease is not None
        self.lease.asking = (*self.lease.asking, self)
        self._count(1)
        answer_waiting(self.nodes)

    def withdraw(self) -> None:
        """Wait no more: the asker was told to stop. A no-op once there is an answer."""
        if self.granted is not None:
            return
        if self._at is not None:
            self.close(False)
            answer_waiting(self.nodes)  # it may have held up those behind it
        elif self.lease is not None and self in self.lease.asking:
            self._leave()
            self._answer(False)

    def close(self, granted: bool) -> None:
        """End the wait with this answer."""
        assert self._at is not None
        self._at.waiters.remove(self)
        self._at = None
        if self.lease is not None:
            self._leave()
        self._answer(granted)
        self.on_answer()

    def held_up_by(self) -> Node | None:
        """The first node that has no room, or somebody waiting who came earlier."""
        for node in self.nodes:
            first = node.waiters[0] if node.waiters else None
            if first is not None and first.arrival < self.arrival:
                return node
            if node.lacks(self.asked):
                return node
        return None

    def is_hopeless(self) -> bool:
        """Whether no release of others can ever make room for it."""
        kept = NOTHING if self.lease is None else self.lease.cap
        return any(node.hopeless(self.asked, kept) for node in self.nodes)

    def move(self, to: Node) -> None:
        """Wait at another node from now on, at the place of its arrival."""
        assert self._at is not None
        self._at.waiters.remove(self)
        self._stand_at(to)

    @property
    def rank(self) -> tuple[int, int]:
        """Who is denied first: the highest index; of equals, who came last."""
        return self.index, self.arrival

    def _stand_at(self, node: Node) -> None:
        self._at = node
        node.line_up(self)

    def _count(self, more: int) -> None:
        """Count the lease, not each of its asks, as one that waits."""
        assert self.lease is not None
        if len(self.lease.asking) == 1:
            for node in self.nodes:
                node.waiting += more

    def _leave(self) -> None:
        assert self.lease is not None
        self._count(-1)
        self.lease.asking = tuple(each for each in self.lease.asking if each is not self)

    def _answer(self, granted: bool) -> None:
        self.granted = granted
        if granted:
            self._book.grant(self)


def answer_waiting(nodes: Sequence[Node]) -> None:
    """Answer whoever can be answered, after something was given back or somebody began to wait."""
    for node in nodes:
        while node.waiters:
            head = node.waiters[0]
            held_up_by = head.held_up_by()
            if held_up_by is None:
                head.close(True)
            elif held_up_by is not node:
                head.move(held_up_by)
                answer_waiting((held_up_by,))
            elif head.is_hopeless():
                head.close(False)
            elif not _may_give_back(node):
                max(node.waiters, key=_rank).close(False)
            else:
                break


def _rank(waiter: Waiter) -> tuple[int, int]:
    return waiter.rank


def _may_give_back(node: Node) -> bool:
    """Whether some lease below goes on by itself, or waits at a node where one does."""
    if node.working > 0:
        return True
    return any(
        other is not node
        and other.working > 0
        and any(waiter.lease is not None and node in waiter.nodes for waiter in other.waiters)
        for first in node.waiters
        for other in first.nodes
    )


def _nobody_waits() -> None:
    """The answer was there at once."""
