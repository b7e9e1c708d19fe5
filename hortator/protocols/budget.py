"""What a run may spend: its limits, and the check that n candidates fit into them."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias

import attrs

from hortator.protocols.errors import DoesNotFit, InvalidJob
from hortator.protocols.usage import DIMENSIONS, MOST, Amounts, nano_dollars, told


@attrs.frozen(kw_only=True)
class Budget:
    """Limits of one run, over all its candidates together. None is unlimited, 0 is zero.

    Attributes:
        model_calls: requests to a model.
        tool_calls: calls of a tool.
        input_tokens: tokens sent to models.
        output_tokens: tokens received.
        total_tokens: of both kinds.
        cost: money in dollars (`Decimal`, int, float or str).

    >>> Budget(model_calls=16, cost="0.50")
    Budget(model_calls=16, tool_calls=None, input_tokens=None, output_tokens=None, \
total_tokens=None, cost='0.50')
    """

    model_calls: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: Decimal | int | float | str | None = None


Limits: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of a position in `DIMENSIONS` and the limit of that dimension."""


def limits_of(budget: Budget) -> Limits:
    """The limits that are set, as exact amounts.

    Raises:
        InvalidJob: a limit is negative, not finite or not a whole number of calls or tokens.
    """
    if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidJob(f"budget={budget!r}: write budget=Budget(model_calls=16)")
    found: list[tuple[int, int]] = []
    for position, name in enumerate(DIMENSIONS):
        limit = getattr(budget, name, None)
        if limit is None:
            continue
        wrong = InvalidJob(
            f"Budget({name}={limit!r}): a limit is a finite number from 0 up, or None for no limit"
        )
        if name == "cost":
            try:
                limit = nano_dollars(limit)
            except ValueError as error:
                raise wrong from error
        if type(limit) is not int or not 0 <= limit <= MOST:
            raise wrong
        found.append((position, limit))
    return tuple(found)


def most_that_fit(limits: Limits, estimate: Amounts, n: int) -> int:
    """How many of n candidates the limits pay for; 1 if they pay for none, to be refused."""
    fits = [limit // estimate[position] for position, limit in limits if estimate[position]]
    return max(1, min([n, *fits]))


def preflight(limits: Limits, estimate: Amounts, n: int) -> None:
    """Refuse a set of n candidates that could not be paid for.

    Raises:
        InvalidJob: a limit is set, but nothing is estimated in its dimension.
        DoesNotFit: n estimates are more than a limit.
    """
    for position, limit in limits:
        name, each = DIMENSIONS[position], estimate[position]
        if each == 0 and limit > 0:
            raise InvalidJob(
                f"budget.{name} is limited, but the estimate of one candidate has no {name}:"
                f" the ledger reserves before it spends, so write estimate=Usage({name}=...)"
            )
        if each * n > limit:
            raise DoesNotFit(
                f"{n} candidates at an estimated {told(position, each)} each need"
                f" {told(position, each * n)}, the budget allows {told(position, limit)}:"
                f" {limit // each} would fit"
            )
