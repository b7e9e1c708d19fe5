"""Amounts of work: exact sums, money without floats, and the repair of what callbacks report.

Inside, an amount is a tuple of ints, money in nano-dollars. Nothing may get lost or wrap round:
a report that cannot be true is named, never summed.
"""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hortator import InvalidJob, Usage
from hortator.protocols.usage import (
    COST,
    DIMENSIONS,
    MOST,
    NOTHING,
    TOTAL,
    Amounts,
    estimated,
    exact,
    fault,
    most,
    nano_dollars,
    plus,
)

COUNTS = DIMENSIONS[:COST]

amounts = st.tuples(*[st.integers(0, MOST) for _ in DIMENSIONS])
usages = st.builds(
    Usage,
    **{name: st.integers(0, MOST) for name in COUNTS},
    cost=st.decimals(0, Decimal(MOST) / 10**9, places=9),
)


def test_there_are_seven_counts_and_one_amount_of_money() -> None:
    assert DIMENSIONS == (
        "model_calls",
        "tool_calls",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "reasoning_tokens",
        "total_tokens",
        "cost",
    )
    assert exact(Usage()) == NOTHING


@given(usages)
def test_a_usage_survives_the_way_in_and_out(usage: Usage) -> None:
    there = exact(usage)
    assert exact(Usage.of(there)) == there
    assert Usage.of(there).cost == usage.cost


@given(amounts, amounts)
def test_sums_are_exact_up_to_the_most_and_stop_there(left: Amounts, right: Amounts) -> None:
    total = plus(left, right)
    assert total == plus(right, left)
    for a, b, c in zip(left, right, total, strict=True):
        assert c == (a + b if a + b <= MOST else MOST)


@given(amounts, amounts)
def test_the_larger_is_taken_in_each_dimension(left: Amounts, right: Amounts) -> None:
    assert most(left, right) == tuple(a if a >= b else b for a, b in zip(left, right, strict=True))


def test_w_bud_17_a_total_below_its_parts_is_raised_to_their_sum() -> None:
    assert exact(Usage(input_tokens=10, output_tokens=10, total_tokens=1))[TOTAL] == 20
    assert exact(Usage(input_tokens=10, output_tokens=10))[TOTAL] == 20


def test_a_total_above_its_parts_is_believed() -> None:
    assert exact(Usage(input_tokens=10, output_tokens=10, total_tokens=25))[TOTAL] == 25


def test_w_bud_19_the_repaired_total_saturates() -> None:
    assert exact(Usage(input_tokens=MOST, output_tokens=MOST))[TOTAL] == MOST


def test_w_bud_20_ten_cents_and_twenty_two_are_exactly_thirty_two() -> None:
    total = Usage(cost=0.1) + Usage(cost=0.2) + Usage(cost="0.02")
    assert total.cost == Decimal("0.32")


def test_a_float_amount_of_money_means_what_it_prints() -> None:
    assert Usage(cost=0.1).cost == Decimal("0.1"), "not 0.1000000000000000055"


@pytest.mark.parametrize(
    ("dollars", "nano"),
    [
        (1, 10**9),
        ("0.25", 250_000_000),
        (0.1, 100_000_000),
        (Decimal("0.000000001"), 1),
        ("0.0000000005", 0),
        ("0.0000000015", 2),
        ("0.0000000025", 2),
        (0, 0),
    ],
)
def test_money_becomes_whole_nano_dollars_rounded_half_to_even(
    dollars: Decimal | int | float | str, nano: int
) -> None:
    assert nano_dollars(dollars) == nano


@pytest.mark.parametrize(
    "dollars", ["nan", "sNaN", "inf", "-inf", math.nan, math.inf, "ten", "", "1e999999", 1e300]
)
def test_what_is_no_finite_amount_of_money_is_a_value_error(dollars: Any) -> None:
    with pytest.raises(ValueError, match="money"):
        nano_dollars(dollars)


def test_money_is_exact_whatever_the_precision_of_the_callers_decimals() -> None:
    # A decimal context is a context variable: the one around a run reaches all of our code.
    with decimal.localcontext(prec=3):
        assert exact(Usage(cost="1.234567891"))[COST] == 1_234_567_891
        outside = Usage.of((0, 0, 0, 0, 0, 0, 0, 1_234_567_891)).cost
    assert outside == Decimal("1.234567891"), f"rounded to {outside}"


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [-1, MOST + 1, 1.0, 1.5, math.nan, math.inf, True, "3", None])
def test_a_count_that_cannot_be_true_is_named(name: str, value: Any) -> None:
    assert fault(Usage(**{name: value})) == f"{name}={value!r}"


@pytest.mark.parametrize(
    "cost", ["-0.01", "nan", "sNaN", "inf", "-inf", math.nan, math.inf, "1e10", "1e999999"]
)
def test_money_that_cannot_be_true_is_named(cost: Any) -> None:
    wrong = fault(Usage(cost=cost))
    assert wrong is not None
    assert wrong.startswith("cost="), wrong


@given(usages)
def test_nothing_is_wrong_with_a_true_report(usage: Usage) -> None:
    assert fault(usage) is None


@pytest.mark.parametrize("cost", ["two dollars", "$2", "", None, object()])
def test_a_usage_refuses_what_is_no_number_and_says_how_to_write_money(cost: Any) -> None:
    with pytest.raises(ValueError, match=r"cost") as caught:
        Usage(cost=cost)
    assert isinstance(caught.value, InvalidJob)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(model_calls=-1),
        Usage(total_tokens=2.5),  # type: ignore[arg-type]
        Usage(tool_calls=True),
        Usage(input_tokens=MOST + 1),
        Usage(cost=-1),
        Usage(cost="nan"),
        Usage(cost="inf"),
    ],
)
def test_an_estimate_that_cannot_be_true_is_refused_with_an_example(usage: Usage) -> None:
    with pytest.raises(InvalidJob) as caught:
        estimated(usage, "scoring_estimate")
    assert str(caught.value).startswith("scoring_estimate has ")
    assert "scoring_estimate=Usage(model_calls=1, total_tokens=500)" in str(caught.value)


def test_a_usage_is_a_value() -> None:
    usage = Usage(model_calls=1)
    with pytest.raises(AttributeError):
        usage.model_calls = 2  # type: ignore[misc]
    assert usage == Usage(model_calls=1)
    assert hash(usage) == hash(Usage(model_calls=1))
