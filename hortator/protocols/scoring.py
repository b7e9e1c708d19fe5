"""What a scorer may answer, and how it is read."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from hortator.protocols.errors import InvalidScore
from hortator.protocols.showing import shown
from hortator.protocols.usage import Usage

_PLAIN = 1e300
"""Numbers below it need no closer look."""

Objective: TypeAlias = Literal["max", "min"]


@attrs.frozen
class Score:
    """A candidate's score.

    Attributes:
        value: a finite real number.
        accepted: False rejects the candidate, whatever its value.
        rationale: why, for people.
        usage: what scoring cost, if it cost anything.
        metadata: whatever the scorer wants to keep beside it.

    >>> Score(0.5, rationale="half of the tests pass").accepted
    True
    """

    value: float
    accepted: bool = True
    rationale: str = ""
    usage: Usage | None = None
    metadata: Mapping[str, Any] | None = None


ScoreLike: TypeAlias = Score | float
"""What a scorer may return."""


def read_score(answer: object) -> Score:
    """Read a scorer's answer: a finite real number (numpy's too; a bool is 0 or 1) or a `Score`.

    Raises:
        InvalidScore: it is something else, or not finite.
    """
    kind = type(answer)
    if (kind is float or kind is int) and -_PLAIN < answer < _PLAIN:  # type: ignore[operator]
        return Score(float(answer))  # type: ignore[arg-type]
    if not isinstance(answer, Score):
        return Score(finite(answer))
    if answer.usage is not None and not isinstance(answer.usage, Usage):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidScore(f"Score(usage=...) takes a Usage, not a {type(answer.usage).__name__}")
    if type(answer.value) is float and math.isfinite(answer.value) and answer.accepted is True:
        return answer
    return attrs.evolve(answer, value=finite(answer.value), accepted=_truth(answer.accepted))


def finite(value: object, who: str = "the scorer") -> float:
    """`value`, which `who` returned, as a finite float.

    Raises:
        InvalidScore: it is not a real number, or infinite, or NaN.
    """
    try:
        # numpy's bool is no numbers.Real; its scalars answer item() with the plain value.
        plain = value.item() if type(value).__module__ == "numpy" else value  # type: ignore[attr-defined]
        number = float(plain) if isinstance(plain, numbers.Real) else None
    except Exception as error:
        # The answer is an object of the user's: whatever it raises, it is no number.
        raise InvalidScore(f"{who} returned {shown(value)}, which is no number") from error
    if number is None:
        raise InvalidScore(
            f"{who} returned {shown(value)}, a {type(value).__name__}; return a finite number"
            + (", or Score(number, accepted=..., rationale=...)" if who == "the scorer" else "")
        )
    if not math.isfinite(number):
        raise InvalidScore(f"{who} returned {number!r}; a score is a finite number")
    return number


def _truth(value: object) -> bool:
    try:
        return bool(value)
    except Exception as error:
        # As above: an object of the user's, such as an array, that has no truth value.
        raise InvalidScore(f"Score(accepted={shown(value)}): write True or False") from error


def passes(score: Score, threshold: float | None, objective: Objective) -> bool:
    """Whether the score is accepted and, inclusively, on the right side of the threshold."""
    return score.accepted and (threshold is None or reaches(score.value, threshold, objective))


def reaches(value: float, bound: float, objective: Objective) -> bool:
    """Whether `value` is at `bound` or better, in the direction of `objective`."""
    return value >= bound if objective == "max" else value <= bound
