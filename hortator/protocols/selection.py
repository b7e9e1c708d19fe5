"""How the best of the candidates that have ended is chosen.

A selector either chooses *in place*, by a pure rule over the records, or it *asks*: it has a
callback of the user's that is called in a task or thread of its own, and a script that says with
what (see `asking.py`). The built-in order stands behind all of them: it breaks their ties, and it
decides when a selector can't.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol

import attrs

from hortator.protocols.asking import Asking, Case
from hortator.protocols.candidate import Candidate
from hortator.protocols.errors import InvalidJob
from hortator.protocols.scoring import Objective
from hortator.protocols.showing import shown


class Selector(Protocol):
    """A rule that chooses among candidates."""

    @property
    def name(self) -> str:
        """What a result's `selected_by` says."""
        ...

    @property
    def needs_scores(self) -> bool:
        """Whether a job with it needs a scorer."""
        ...


class InPlace(Selector, Protocol):
    """A selector that only looks at the records."""

    @property
    def trusted(self) -> bool:
        """Whether no code of the user's runs in it."""
        ...

    def choose(
        self, candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
    ) -> int | None:
        """The index of the chosen one, or None if none is eligible."""
        ...


class Asks(Selector, Protocol):
    """A selector with a callback that may take long: it is never called on the loop."""

    @property
    def function(self) -> Callable[..., Any]:
        """The callback, sync or async."""
        ...

    def script(self, case: Case) -> Asking:
        """Say with what the callback is called, one call after another; return an index or None.

        Raises:
            AskingFailed: a call of it raised, or an answer is of no use.
        """
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


def _price(candidate: Candidate[Any]) -> tuple[Decimal, int, int]:
    return candidate.usage.cost, candidate.usage.total_tokens, candidate.index


def first_of(
    candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
) -> Candidate[Any] | None:
    """The first of the eligible ones in the built-in order, or None if there are none.

    Best score; among ties lower cost, then fewer tokens, then lower index. Where not all have a
    score, as in a job without a scorer, scores are not looked at, and what is whole comes before
    what is partial.
    """
    able = [candidate for candidate in candidates if candidate.eligible]
    if all(candidate.score is not None for candidate in able):
        return min(tie_set(able, objective, tolerance), key=_price, default=None)
    return min(able, key=lambda candidate: (candidate.partial, *_price(candidate)), default=None)


def in_order(
    candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
) -> list[Candidate[Any]]:
    """All eligible candidates in the built-in order: its first, then the first of the rest, …"""
    able = [candidate for candidate in candidates if candidate.eligible]
    if any(candidate.score is None for candidate in able):
        return sorted(able, key=lambda candidate: (candidate.partial, *_price(candidate)))
    sign = 1.0 if objective == "max" else -1.0
    ranked = sorted(((sign * c.score.value, c) for c in able if c.score), key=lambda r: -r[0])
    ties: list[tuple[tuple[Decimal, int, int], Candidate[Any]]] = []
    ordered: list[Candidate[Any]] = []
    taken: set[int] = set()
    best = seen = 0  # the best of the rest; how many were within the tolerance of such a one
    while len(ordered) < len(ranked):
        while ranked[best][1].index in taken:
            best += 1
        while seen < len(ranked) and ranked[seen][0] >= ranked[best][0] - tolerance:
            heapq.heappush(ties, (_price(ranked[seen][1]), ranked[seen][1]))
            seen += 1
        chosen = heapq.heappop(ties)[1]
        taken.add(chosen.index)
        ordered.append(chosen)
    return ordered


@attrs.frozen
class BestScore:
    """The best score; within the tie set lower cost, then fewer tokens, then lower index."""

    name: str = "best_score"
    needs_scores: bool = True
    trusted: bool = True

    def choose(
        self, candidates: Sequence[Candidate[Any]], objective: Objective, tolerance: float
    ) -> int | None:
        """The index of the best one, or None if none is eligible."""
        ties = tie_set(candidates, objective, tolerance)
        return min(ties, key=_price).index if ties else None


@attrs.frozen
class TopK(BestScore):
    """Chooses as `BestScore` does; the result holds the `k` best."""

    k: int = 1
    name: str = "top_k"


@attrs.frozen
class Custom:
    """A selector that is a function of the user's."""

    function: Callable[..., Any]
    name: str
    needs_scores: bool = False

    def script(self, case: Case) -> Asking:
        """Call it once, with the request and all records."""
        answer = yield from case.ask(case.request, case.candidates)
        return read_choice(answer, case)


def best_score() -> InPlace:
    """Select the best score, in the direction of the job's `objective`.

    >>> best_score().name
    'best_score'
    """
    return BestScore()


def top_k(k: int) -> InPlace:
    """Select as `best_score`; `RunResult.top` has the `k` best, the selected one first.

    Args:
        k: how many; fewer are there if fewer are eligible.

    Raises:
        InvalidJob: it is no whole number from 1 up.

    >>> top_k(3).name
    'top_k'
    """
    if type(k) is not int or k < 1:
        raise InvalidJob(f"top_k({shown(k)}): write a whole number from 1 up, such as top_k(3)")
    return TopK(k=k)


def read_choice(answer: object, case: Case) -> int | None:
    """What a selector of the user's has answered, as an index; None if it declines.

    Raises:
        AskingFailed: it is neither one of the candidates, nor an index of one, nor None; or that
            candidate is not eligible.
    """
    if answer is None:
        return None
    if isinstance(answer, Candidate):
        if all(answer is not candidate for candidate in case.candidates):  # pyright: ignore[reportUnknownArgumentType]
            raise case.unusable(
                "the selector returned a Candidate that is not one of those it was given: return"
                " one of them as it is, or its .index"
            )
        index: int = answer.index
    else:
        index = _index(answer, case)
    if not case.candidates[index].eligible:
        raise case.unusable(
            f"the selector returned candidate {index}, which is {case.candidates[index].status}"
            " and not eligible: choose among those with candidate.eligible, or return None"
        )
    return index


def _index(answer: object, case: Case) -> int:
    count = len(case.candidates)
    try:
        # A bool is an int that nobody means as an index: `return a > b` is a slip.
        index = None if isinstance(answer, bool) else operator.index(answer)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001
        # It is an object of the user's: whatever it raises, it is no index.
        index = None
    if index is None:
        raise case.unusable(
            f"the selector returned {shown(answer)}, a {type(answer).__name__}: return one of the"
            " candidates, or its .index, or None"
        )
    if not 0 <= index < count:
        raise case.unusable(
            f"the selector returned {index}: the candidates have the indices 0 to {count - 1}"
        )
    return index
