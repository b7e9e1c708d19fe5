"""A lease: what one candidate may spend, and what it comes to at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from hortator.protocols.budget import Limits
from hortator.protocols.usage import NOTHING, Amounts, minus, most, plus

if TYPE_CHECKING:
    from hortator.protocols.pool import LeasePool
    from hortator.protocols.queue import Waiter

Phase: TypeAlias = Literal["generating", "scoring"]

ASIDE = -1
"""Instead of a candidate's index: a lease that was set aside for choosing among all of them."""


@attrs.frozen
class Settled:
    """What a lease came to at its end.

    Attributes:
        charged: what the budget was charged.
        reported: what its holder had reported.
        estimated: whether some of the charge is an estimate.
        scoring: the part of the charge that scoring came to by itself, without nested runs.
    """

    charged: Amounts
    reported: Amounts
    estimated: bool
    scoring: Amounts = NOTHING


@attrs.frozen
class Rates:
    """What one candidate is estimated to need, phase by phase.

    Attributes:
        generation: amounts of generating.
        scoring: amounts of scoring.
        combined: the sum of both: what a lease covers.
        whole: what a candidate that reported nothing in either phase comes to.
        half: what it comes to if it was never scored.
        limited: positions of the dimensions in which a lease is a cap.
    """

    generation: Amounts
    scoring: Amounts
    combined: Amounts
    whole: Settled
    half: Settled
    limited: tuple[int, ...] = ()

    @classmethod
    def of(cls, generation: Amounts, scoring: Amounts, limits: Limits = ()) -> Rates:
        """The rates of two estimates under these limits."""
        combined = plus(generation, scoring)
        whole = Settled(combined, NOTHING, any(combined), scoring)
        half = Settled(generation, NOTHING, any(generation))
        limited = tuple(position for position, _ in limits)
        return cls(generation, scoring, combined, whole, half, limited)


class Lease:
    """What one candidate may spend. Changed by the `Book` that granted it, and by nobody else.

    Attributes:
        number: unique within the book.
        candidate: the index of its holder.
        cap: how much it covers.
        rates: what its holder is charged where it reports nothing.
        generation: what generating has reported so far, None while it has reported nothing.
        scoring: what scoring has reported so far, None while it has reported nothing.
        doubtful: phases of which a report could not be true.
        pool: what nested runs draw on, None while there was none.
        asking: asks for more of it that wait for an answer.
        moved: its holder was given up: it is open in the runtime's own book.
        ceded: what of it detached nested work has taken along.
        prepaid: what somebody else has been charged for it already.
    """

    number: int
    candidate: int
    cap: Amounts
    rates: Rates

    # What most leases never change stands on the class, as in `Attempt`.
    generation: Amounts | None = None
    scoring: Amounts | None = None
    doubtful: tuple[Phase, ...] = ()
    pool: LeasePool | None = None
    asking: tuple[Waiter, ...] = ()
    moved: bool = False
    ceded: Amounts = NOTHING
    prepaid: Amounts = NOTHING

    def __init__(self, number: int, candidate: int, cap: Amounts, rates: Rates) -> None:
        self.number = number
        self.candidate = candidate
        self.cap = cap
        self.rates = rates

    @property
    def holder(self) -> str:
        """Whose it is, for people."""
        return f"candidate {self.candidate}" if self.candidate != ASIDE else "the selection"

    @property
    def reported(self) -> Amounts:
        """What its holder reported over both phases, without nested runs."""
        return plus(self.generation or NOTHING, self.scoring or NOTHING)

    def used(self, position: int) -> int:
        """How much of it is gone in one dimension: reported, or drawn by nested runs."""
        generation, scoring, pool = self.generation, self.scoring, self.pool
        used = (generation[position] if generation else 0) + (scoring[position] if scoring else 0)
        return used if pool is None else used + pool.spent[position] + pool.held[position]


def come_to(lease: Lease, generated: bool, scored: bool, cut: bool) -> Settled:
    """What a lease comes to; see `Book.settle`."""
    rates, doubtful, pool = lease.rates, lease.doubtful, lease.pool
    below = None if pool is None else pool.charged("generating")
    below_scoring = None if pool is None else pool.charged("scoring")
    unsure = "generating" in doubtful or (cut and not scored)
    # Nobody is charged by estimate for what he does not hold any more.
    expected = minus(rates.generation, lease.ceded)
    first, guessed = _phase(lease.generation, below, expected, generated, unsure)
    unsure = "scoring" in doubtful or cut
    expected = minus(rates.scoring, minus(lease.ceded, rates.generation))
    second, guessed_too = _phase(lease.scoring, below_scoring, expected, scored, unsure)
    charged = plus(first, second)
    return Settled(
        # What has moved out of its run is charged only what that run was not charged for it.
        minus(charged, lease.prepaid) if lease.moved else charged,
        lease.reported if pool is None else plus(lease.reported, pool.reported),
        guessed or guessed_too or (pool is not None and pool.estimated),
        minus(second, below_scoring or NOTHING),
    )


def _phase(
    reported: Amounts | None,
    nested: Amounts | None,
    estimate: Amounts,
    ran: bool,
    unsure: bool,
) -> tuple[Amounts, bool]:
    """What one phase is charged, nested runs included, and whether some of that is estimated."""
    if reported is None and nested is None:
        return (estimate, any(estimate)) if ran else (NOTHING, False)
    known = plus(reported or NOTHING, nested or NOTHING)
    if not unsure:
        return known, False
    charged = most(known, estimate)
    return charged, charged != known
