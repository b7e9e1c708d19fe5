"""How the best of the candidates that have ended is chosen. Pure: no selector awaits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import attrs

from hortator.protocols.candidate import Candidate
from hortator.protocols.scoring import Objective


class Selector(Protocol):
    """A rule that chooses among candidates."""

    @property
    def name(self) -> str:
        """What a result's `selected_by` says."""
        ...

    def choose(
        self, candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
    ) -> int | None:
        """The index of the chosen one, or None if none is eligible."""
        ...


def tie_set(
    candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
) -> list[Candidate[Any]]:
    """The eligible candidates whose score is within `tolerance` of the *best* score.

    Measured against the best, not against the neighbour: a chain of near ties can't walk the
    choice away from it, and the order of the candidates doesn't matter.
    """
    sign = 1.0 if objective == "max" else -1.0
    scored = [
        (sign * candidate.score.value, candidate)
        for candidate in candidates
        if candidate.eligible and candidate.score is not None
    ]
    if not scored:
        return []
    best = max(value for value, _ in scored)
    return [candidate for value, candidate in scored if value >= best - tolerance]


@attrs.frozen
class BestScore:
    """The best score; within the tie set lower cost, then fewer tokens, then lower index."""

    name: str = "best_score"

    def choose(
        self, candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
    ) -> int | None:
        """The index of the best one, or None if none is eligible."""
        ties = tie_set(candidates, objective, tolerance)
        if not ties:
            return None
        return min(ties, key=lambda c: (c.usage.cost, c.usage.total_tokens, c.index)).index


def best_score() -> Selector:
    """Select the best score, in the direction of the job's `objective`.

    >>> best_score().name
    'best_score'
    """
    return BestScore()
