"""Candidates whose outputs are equal by key share one scoring."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import attrs

from hortator.protocols.attempt import Attempt
from hortator.protocols.candidate import Status
from hortator.protocols.scoring import Score

ANSWERED: frozenset[Status] = frozenset({Status.ELIGIBLE, Status.REJECTED})
"""How a candidate ends whose score the others may take over."""

ScoreNext: TypeAlias = Callable[[Attempt, Attempt], None]
"""Is told who is to be scored now, and who was lost without a score."""


class Group:
    """Candidates of one run with equal keys.

    Invariants:

    1. While there is no score, `first` is the one that is scored or waits for that; if it is
       None, nobody of the group is in flight.
    2. Who waits for a score is in `waiting`, in the order of generation, and in no mailbox.

    Attributes:
        key: of all of them.
        first: the one that is scored.
        score: what it was scored with, without its usage; None until then.
        waiting: those that wait for it.
    """

    key: Any
    first: Attempt | None
    score: Score | None

    def __init__(self, key: Any, scored_next: ScoreNext) -> None:
        self.key = key
        self.first, self.score = None, None
        self.waiting: list[Attempt] = []
        self._scored_next = scored_next

    def join(self, attempt: Attempt) -> bool:
        """Take a candidate in; whether it is to be scored itself."""
        attempt.group = self
        if self.first is None:
            self.first = attempt
            return True
        if self.score is None:
            self.waiting.append(attempt)
        return False

    def ended(self, attempt: Attempt) -> None:
        """One of them has ended, or is detached: if it was the first, the next one takes over."""
        if attempt is not self.first or (attempt.status in ANSWERED and not attempt.detached):
            return
        self.first = None
        while self.waiting and self.first is None:
            following = self.waiting.pop(0)
            if not following.ended:
                self.first = following
        if self.first is not None:
            self._scored_next(self.first, attempt)

    def dissolve(self) -> list[Attempt]:
        """Nobody of them will be scored: forget them; who was waiting."""
        waiting, self.waiting, self.first = self.waiting, [], None
        return waiting

    def share(self, attempt: Attempt, score: Score) -> list[Attempt]:
        """Keep the first one's score; who has waited for it."""
        if attempt is not self.first:
            return []
        self.score = score if score.usage is None else attrs.evolve(score, usage=None)
        waiting, self.waiting = self.waiting, []
        return waiting


class Duplicates:
    """The groups of one run.

    Attributes:
        key: makes a key of an output; the user's.
    """

    key: Callable[[Any], Any]

    def __init__(self, key: Callable[[Any], Any], scored_next: ScoreNext) -> None:
        self.key = key
        self._scored_next = scored_next
        self._by_hash: dict[Hashable, Group] = {}
        self._others: list[Group] = []

    def find(self, output: Any) -> Group:
        """The group of an output, a new one if there is none yet. Calls code of the user's.

        Raises:
            Exception: whatever the key raises, or its `__eq__`.
        """
        key = self.key(output)
        if inspect.iscoroutine(key):
            key.close()  # nobody will ever await it
            raise TypeError("score_once returned a coroutine: a key is made at once, not awaited")
        try:
            hash(key)
        except TypeError:
            return self._find_unhashable(key)
        found = self._by_hash.get(key)
        if found is None:
            found = self._by_hash[key] = Group(key, self._scored_next)
        return found

    def _find_unhashable(self, key: Any) -> Group:
        for group in self._others:
            if bool(group.key == key):
                return group
        self._others.append(group := Group(key, self._scored_next))
        return group
