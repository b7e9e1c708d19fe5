"""What a scorer may answer, and how it is read."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from hortator.protocols.errors import InvalidScore
from hortator.protocols.usage import Usage

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


def read_score(answer: object) -> Score:
    """Read a scorer's answer: a finite real number (numpy's too; a bool is 0 or 1) or a `Score`.

    Raises:
        InvalidScore: it is something else, or not finite.
    """
    kind = type(answer)
    if (kind is float or kind is int) and math.isfinite(answer):  # type: ignore[arg-type]
        return Score(float(answer))  # type: ignore[arg-type]
    score = answer if isinstance(answer, Score) else None
    value = finite(score.value if score is not None else answer)
    if score is None:
        return Score(value)
    return score if type(score.value) is float else attrs.evolve(score, value=value)


def finite(value: object) -> float:
    """`value` as a finite float.

    Raises:
        InvalidScore: it is not a real number, or infinite, or NaN.
    """
    # numpy's bool is no numbers.Real; its scalars answer item() with the plain Python value.
    plain = value.item() if type(value).__module__ == "numpy" else value  # type: ignore[attr-defined]
    if not isinstance(plain, numbers.Real):
        raise InvalidScore(
            f"the scorer returned {value!r}, a {type(value).__name__};"
            " return a finite number, or Score(number, accepted=..., rationale=...)"
        )
    try:
        number = float(plain)
    except (OverflowError, ValueError) as error:
        raise InvalidScore(f"the scorer returned {value!r}, too large for a float") from error
    if not math.isfinite(number):
        raise InvalidScore(f"the scorer returned {number!r}; a score is a finite number")
    return number


def passes(score: Score, threshold: float | None, objective: Objective) -> bool:
    """Whether the score is accepted and, inclusively, on the right side of the threshold."""
    return score.accepted and (threshold is None or reaches(score.value, threshold, objective))


def reaches(value: float, bound: float, objective: Objective) -> bool:
    """Whether `value` is at `bound` or better, in the direction of `objective`."""
    return value >= bound if objective == "max" else value <= bound
