"""What work costs: tokens, calls and money, and the repair of what callbacks report.

Inside, an amount is a tuple of eight ints in the order of `DIMENSIONS`, money in nano-dollars,
so that sums are exact. Outside it is a `Usage`, money as `Decimal` dollars.
"""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from typing import Literal, TypeAlias

import attrs

from hortator.protocols.errors import InvalidJob

Dimension: TypeAlias = Literal[
    "model_calls",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "total_tokens",
    "cost",
]

DIMENSIONS: tuple[Dimension, ...] = (
    "model_calls",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "total_tokens",
    "cost",
)
TOTAL, COST = 6, 7

Amounts: TypeAlias = tuple[int, ...]
"""One int for each of `DIMENSIONS`."""

NOTHING: Amounts = (0,) * len(DIMENSIONS)
MOST = 2**63 - 1
"""The largest amount of any dimension; sums stop there instead of growing past it."""

NANO = Decimal(1_000_000_000)
_EXACT = Context(prec=60)
"""Money is divided and rounded under a context of our own: the user's may have any precision."""
_MOST_MONEY = _EXACT.divide(Decimal(MOST), NANO)


def _decimal(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (Decimal, int, float, str)):
        raise ValueError(f"{value!r} is not an amount of money")
    try:
        return Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not an amount of money") from error


def nano_dollars(dollars: Decimal | int | float | str) -> int:
    """Dollars as whole nano-dollars, rounded half to even.

    >>> nano_dollars("0.0000000015")
    2

    Raises:
        ValueError: not a finite number, or beyond `MOST` nano-dollars either way.
    """
    exact = _decimal(dollars)
    if not exact.is_finite() or not -_MOST_MONEY <= exact <= _MOST_MONEY:
        raise ValueError(f"{dollars!r} is not a finite amount of money")
    return int(_EXACT.multiply(exact, NANO).to_integral_value(context=_EXACT))


def dollars(nano: int) -> Decimal:
    """Nano-dollars as exact dollars.

    >>> dollars(2_000_000)
    Decimal('0.002')
    """
    return _EXACT.divide(Decimal(nano), NANO)


def told(position: int, amount: int) -> str:
    """One amount for people.

    >>> told(COST, 1_500_000_000), told(TOTAL, 12_000)
    ('$1.5', '12,000 total_tokens')
    """
    if position == COST:
        return f"${dollars(amount):f}"
    return f"{amount:,} {DIMENSIONS[position]}"


def _money(value: object) -> Decimal:
    try:
        return _decimal(value)
    except ValueError as error:
        raise InvalidJob(
            f"Usage(cost={value!r}): write dollars as a Decimal, int, float or str, cost='0.002'"
        ) from error


@attrs.frozen(kw_only=True)
class Usage:
    """An amount of work: calls, tokens and money.

    Attributes:
        model_calls: requests to a model.
        tool_calls: calls of a tool.
        input_tokens: tokens sent to models.
        output_tokens: tokens received from models, reasoning included.
        cached_tokens: the part of `input_tokens` that a cache answered for.
        reasoning_tokens: the part of `output_tokens` that was reasoning.
        total_tokens: of both kinds; raised to `input_tokens + output_tokens` when it is recorded.
        cost: money in dollars; a `Decimal`, or whatever `Decimal(...)` takes.

    >>> Usage(model_calls=1, cost="0.002").cost
    Decimal('0.002')
    """

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    cost: Decimal = attrs.field(default=Decimal(0), converter=_money)

    @classmethod
    def of(cls, amounts: Amounts) -> Usage:
        """The public form of an internal tuple of amounts."""
        if amounts == NOTHING:
            return _NONE
        calls, tools, sent, received, cached, reasoning, total, nano = amounts
        return cls(
            model_calls=calls,
            tool_calls=tools,
            input_tokens=sent,
            output_tokens=received,
            cached_tokens=cached,
            reasoning_tokens=reasoning,
            total_tokens=total,
            cost=dollars(nano),
        )

    def __add__(self, other: Usage) -> Usage:
        """The sum in each dimension; it stops at `MOST` instead of growing past it."""
        return Usage.of(plus(exact(self), exact(other)))


_NONE = Usage()


@attrs.frozen(kw_only=True)
class Unreadable(Usage):
    """A report that cannot be read: something was used, and nobody knows how much.

    Its cost is not a number, so that it can't be taken for a usage that could be true.

    Attributes:
        why: what cannot be read, for people.
    """

    why: str

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "cost", Decimal("NaN"))


@attrs.frozen
class Malformed:
    """A report that could not be true, kept apart from the sums.

    Attributes:
        candidate: the index of the candidate that reported it.
        what: which dimension had which value.
    """

    candidate: int
    what: str


def plus(left: Amounts, right: Amounts) -> Amounts:
    """Add two amounts; each dimension stops at `MOST`."""
    if right is NOTHING:
        return left
    if left is NOTHING:
        return right
    return tuple([min(a + b, MOST) for a, b in zip(left, right, strict=True)])


def minus(left: Amounts, right: Amounts) -> Amounts:
    """Take one amount from another; no dimension goes below zero."""
    if right is NOTHING:
        return left
    return tuple([max(a - b, 0) for a, b in zip(left, right, strict=True)])


def most(left: Amounts, right: Amounts) -> Amounts:
    """The larger of two amounts in each dimension."""
    return tuple(map(max, left, right))


def fault(usage: object) -> str | None:
    """Say what in `usage` cannot be true (negative, not finite, too large), or None."""
    if not isinstance(usage, Usage):
        return f"no Usage but a {type(usage).__name__}"
    for name in DIMENSIONS[:COST]:
        value = getattr(usage, name)
        # bool is an int that nobody means as a count; floats come from careless division.
        if type(value) is not int or not 0 <= value <= MOST:
            return f"{name}={value!r}"
    if not usage.cost.is_finite() or not 0 <= usage.cost <= _MOST_MONEY:
        return usage.why if isinstance(usage, Unreadable) else f"cost={usage.cost}"
    return None


def exact(usage: Usage) -> Amounts:
    """`usage` as a tuple of ints, its total raised to the sum of its parts.

    Only for a usage in which `fault` finds nothing.
    """
    total = min(MOST, max(usage.total_tokens, usage.input_tokens + usage.output_tokens))
    return (
        usage.model_calls,
        usage.tool_calls,
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
        total,
        nano_dollars(usage.cost) if usage.cost else 0,
    )


def estimated(usage: Usage, name: str) -> Amounts:
    """An estimate of a job as amounts.

    Raises:
        InvalidJob: it is negative, not finite or too large.
    """
    wrong = fault(usage)
    if wrong is not None:
        raise InvalidJob(
            f"{name} has {wrong}; every part of a Usage is a finite number from 0 up,"
            f" such as {name}=Usage(model_calls=1, total_tokens=500)"
        )
    return exact(usage)


@attrs.frozen(kw_only=True)
class UsageReport:
    """What a run or runtime cost, in three views that are never mixed up.

    Attributes:
        reported: the sum of what callbacks reported.
        charged: what the budget was charged: reports, and estimates where a report was missing.
        outstanding: reserved by work that has not ended (detached), so neither spent nor free.
        estimated: how many candidates were charged at least partly by estimate.
        malformed: reports that could not be true, and were replaced by the estimate.
        double_settlements: second settlements of one lease, ignored; above 0 it is a bug.
    """

    reported: Usage = Usage()
    charged: Usage = Usage()
    outstanding: Usage = Usage()
    estimated: int = 0
    malformed: tuple[Malformed, ...] = ()
    double_settlements: int = 0

    def __add__(self, other: UsageReport) -> UsageReport:
        """Both together, view by view."""
        return UsageReport(
            reported=self.reported + other.reported,
            charged=self.charged + other.charged,
            outstanding=self.outstanding + other.outstanding,
            estimated=self.estimated + other.estimated,
            malformed=self.malformed + other.malformed,
            double_settlements=self.double_settlements + other.double_settlements,
        )
