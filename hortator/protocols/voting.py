"""Votes: outputs that are equal, or have an equal key, vote for each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs

from hortator.protocols.candidate import Candidate
from hortator.protocols.errors import InvalidJob
from hortator.protocols.scoring import Objective, finite
from hortator.protocols.selection import InPlace, first_of
from hortator.protocols.signatures import check_callback, is_async

T = TypeVar("T")
Key: TypeAlias = Callable[[Any], Any]
"""Makes of an output what it votes for. Sync; called on the loop."""


class Groups:
    """Numbers things from 0 such that equal ones have the same number, hashable or not."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._unhashable: list[tuple[Any, int]] = []

    def __len__(self) -> int:
        return len(self._numbers) + len(self._unhashable)

    def number(self, key: Any) -> int:
        """The number of the things that equal `key`; the next one if there are none yet.

        Raises:
            Exception: what the key's `__eq__` or `__hash__` raises, but for being unhashable.
        """
        try:
            number = self._numbers.get(key)
            hashable = True
        except TypeError:  # unhashable
            number, hashable = None, False
        if number is None:
            number = _equal(key, self._unhashable)
        if number is None and not hashable:
            # Hashable and unhashable things may be equal: a frozenset and a set.
            number = _equal(key, self._numbers.items())
        if number is not None:
            return number
        number = len(self)
        if hashable:
            self._numbers[key] = number
        else:
            self._unhashable.append((key, number))
        return number


def _equal(key: Any, numbered: Any) -> int | None:
    for known, number in numbered:
        if known is key or known == key:
            return int(number)
    return None


def grouped(candidates: Sequence[Candidate[Any]], key: Key | None) -> list[list[Candidate[Any]]]:
    """The eligible candidates, those with equal keys together."""
    groups = Groups()
    members: list[list[Candidate[Any]]] = []
    for candidate in candidates:
        if not candidate.eligible:
            continue
        number = groups.number(candidate.output if key is None else key(candidate.output))
        if number == len(members):
            members.append([])
        members[number].append(candidate)
    return members


def _elected(
    groups: Sequence[Sequence[Candidate[Any]]],
    votes: Sequence[float],
    near: float,
    objective: Objective,
    tolerance: float,
) -> int | None:
    """The representative of the group with the most votes, those `near` to which are ties.

    A tie goes to the group whose representative is the first in the built-in order, so that the
    order in which the candidates stand doesn't matter.
    """
    if not groups:
        return None
    most = max(votes)
    tied = [group for group, count in zip(groups, votes, strict=True) if count >= most - near]
    stand = [first_of(group, objective, tolerance) for group in tied]
    winner = first_of([each for each in stand if each is not None], objective, tolerance)
    return None if winner is None else winner.index


@attrs.frozen
class PluralityVote:
    """The group with the most members."""

    key: Key | None = None
    name: str = "plurality_vote"
    needs_scores: bool = False
    trusted: bool = False

    def choose(
        self, candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
    ) -> int | None:
        """The index of the winning group's representative, or None if none is eligible.

        Raises:
            Exception: what the key function raises.
        """
        groups = grouped(candidates, self.key)
        return _elected(groups, [len(group) for group in groups], 0, objective, tolerance)


@attrs.frozen
class WeightedVote:
    """The group whose members weigh the most together."""

    key: Key | None = None
    weight: Callable[[Candidate[Any]], float] | None = None
    name: str = "weighted_vote"
    trusted: bool = False

    @property
    def needs_scores(self) -> bool:
        """Only if they are what is weighed."""
        return self.weight is None

    def choose(
        self, candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
    ) -> int | None:
        """The index of the winning group's representative, or None if none is eligible.

        Raises:
            Exception: what the key or weight function raises.
            InvalidScore: a weight is no finite number.
        """
        groups = grouped(candidates, self.key)
        votes = [math.fsum(map(self._weigh, group)) for group in groups]
        return _elected(groups, votes, tolerance, objective, tolerance)

    def _weigh(self, candidate: Candidate[Any]) -> float:
        if self.weight is not None:
            return finite(self.weight(candidate), "the weight function")
        return 0.0 if candidate.score is None else candidate.score.value


def plurality_vote(key: Key | None = None) -> InPlace:
    """Select from the largest group of eligible candidates whose outputs agree.

    Self-consistency (Wang et al. 2023, arXiv:2203.11171). Within the winning group, and between
    groups of the same size, the built-in order decides: best score if there are scores, then
    lower cost, fewer tokens, lower index. Needs no scorer.

    Args:
        key: `key(output)` makes what is compared, such as the number at the end of a text; None
            compares the outputs themselves. Keys that can't be hashed are grouped by equality.
            Called on the loop, so it has to be quick. If it raises, the selection has failed.

    Raises:
        InvalidJob: the key can't be called with one argument, or is async.

    >>> plurality_vote(key=lambda output: output.strip().lower()).name
    'plurality_vote'
    """
    return PluralityVote(checked("key", key, "output"))


def weighted_vote(
    key: Key | None = None, *, weight: Callable[[Candidate[Any]], float] | None = None
) -> InPlace:
    """Select from the group of agreeing outputs that weighs the most together.

    Ties are broken as by `plurality_vote`; sums within the job's `tie_tolerance` are ties.

    Args:
        key: as of `plurality_vote`.
        weight: `weight(candidate)` is a finite number, and is called on the loop; None weighs by
            the score, for which the job's objective has to be "max". A negative weight counts
            against its group.

    Raises:
        InvalidJob: a function can't be called with one argument, or is async.

    >>> weighted_vote(weight=lambda candidate: 1 / (1 + candidate.index)).name
    'weighted_vote'
    """
    return WeightedVote(checked("key", key, "output"), checked("weight", weight, "candidate"))


def checked(name: str, function: T, argument: str) -> T:
    """The function, or None.

    Raises:
        InvalidJob: it can't be called with one argument, or is async.
    """
    if function is None:
        return function
    check_callback(name, function, (argument,), word="def")
    if callable(function) and is_async(function):
        raise InvalidJob(
            f"{name} is async, but it is called on the loop: write `def {name}({argument}): ...`"
        )
    return function
