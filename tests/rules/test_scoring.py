"""What a scorer may answer: a finite real number, or a `Score` of one.

Everything else is that candidate's `InvalidScore`, whatever it is: no answer of a scorer may
raise anything else here, or one bad candidate would end the run of all.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hortator import HortatorError, Score, Usage
from hortator.protocols.errors import InvalidScore
from hortator.protocols.scoring import Objective, passes, reaches, read_score


class Hostile:
    """An answer on which everything raises, even its own repr."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __float__(self) -> float:
        raise RuntimeError("no float")


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**300), 10**300))
def test_a_finite_number_is_taken_as_a_float(answer: float) -> None:
    score = read_score(answer)
    assert score == Score(float(answer))
    assert type(score.value) is float


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (True, 1.0),
        (False, 0.0),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(-3), -3.0),
        (np.bool_(True), 1.0),
        (np.array(2.5), 2.5),
    ],
)
def test_every_kind_of_real_number_is_taken(answer: Any, value: float) -> None:
    assert read_score(answer) == Score(value)
    assert type(read_score(answer).value) is float
    assert read_score(Score(answer, rationale="why")) == Score(value, rationale="why")
    assert type(read_score(Score(answer)).value) is float


def test_a_score_is_handed_on_whole() -> None:
    score = Score(0.5, accepted=False, rationale="why", usage=Usage(model_calls=1), metadata={})
    assert read_score(score) == score


NOT_SCORES = [
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    -(10**5000),
    "0.9",
    b"1",
    None,
    1j,
    [1.0],
    {},
    object(),
    Hostile(),
    np.float64("nan"),
    np.array([1, 2]),
    np.array([]),
    np.str_("1"),
    np.datetime64("2024-01-01"),
]


@pytest.mark.parametrize("answer", NOT_SCORES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("wrap", [False, True], ids=["bare", "in a Score"])
def test_everything_else_is_an_invalid_score(answer: Any, wrap: bool) -> None:
    with pytest.raises(InvalidScore) as caught:
        read_score(Score(answer) if wrap else answer)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, HortatorError)


@pytest.mark.parametrize("answer", ["high", None, [0.9], Decimal("NaN")])
def test_the_message_says_what_to_return_instead(answer: Any) -> None:
    with pytest.raises(InvalidScore, match=r"finite number"):
        read_score(answer)


def test_a_usage_that_is_no_usage_is_an_invalid_score() -> None:
    with pytest.raises(InvalidScore, match="usage"):
        read_score(Score(1.0, usage={"model_calls": 1}))  # type: ignore[arg-type]


def test_a_message_about_a_huge_answer_stays_short() -> None:
    with pytest.raises(InvalidScore) as caught:
        read_score("x" * 1_000_000)
    assert len(str(caught.value)) < 1000


# -- what is done with it ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "objective", "good"),
    [
        (1.0, "max", True),
        (0.999, "max", False),
        (1.001, "max", True),
        (1.0, "min", True),
        (1.001, "min", False),
        (0.999, "min", True),
    ],
)
def test_w_bon_06_a_bound_is_inclusive_and_read_in_the_direction_of_the_objective(
    value: float, objective: Objective, good: bool
) -> None:
    assert reaches(value, 1.0, objective) is good
    assert passes(Score(value), 1.0, objective) is good


def test_without_a_threshold_every_accepted_score_passes() -> None:
    assert passes(Score(-1e300), None, "max")


def test_w_bon_33_what_is_not_accepted_does_not_pass_however_good_it_is() -> None:
    assert not passes(Score(1e300, accepted=False), None, "max")
    assert not passes(Score(1e300, accepted=False), 0.0, "max")
