"""A lease: what one candidate may spend, and what it comes to at its end."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from hortator.protocols.budget import Limits
from hortator.protocols.usage import NOTHING, Amounts, most, plus

Phase: TypeAlias = Literal["generating", "scoring"]


@attrs.frozen
class Settled:
    """What a lease came to at its end.

    Attributes:
        charged: what the budget was charged.
        reported: what its holder had reported.
        estimated: whether some of the charge is an estimate.
    """

    charged: Amounts
    reported: Amounts
    estimated: bool


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
        whole = Settled(combined, NOTHING, any(combined))
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
    """

    number: int
    candidate: int
    cap: Amounts
    rates: Rates

    # What most leases never change stands on the class, as in `Attempt`.
    generation: Amounts | None = None
    scoring: Amounts | None = None
    doubtful: tuple[Phase, ...] = ()

    def __init__(self, number: int, candidate: int, cap: Amounts, rates: Rates) -> None:
        self.number = number
        self.candidate = candidate
        self.cap = cap
        self.rates = rates

    @property
    def reported(self) -> Amounts:
        """What was reported over both phases."""
        return plus(self.generation or NOTHING, self.scoring or NOTHING)


def come_to(lease: Lease, generated: bool, scored: bool, cut: bool) -> Settled:
    """What a lease comes to; see `Book.settle`."""
    rates, doubtful = lease.rates, lease.doubtful
    unsure = "generating" in doubtful or (cut and not scored)
    first, guessed = _phase(lease.generation, rates.generation, generated, unsure)
    unsure = "scoring" in doubtful or cut
    second, guessed_too = _phase(lease.scoring, rates.scoring, scored, unsure)
    return Settled(plus(first, second), lease.reported, guessed or guessed_too)


def _phase(
    reported: Amounts | None, estimate: Amounts, ran: bool, unsure: bool
) -> tuple[Amounts, bool]:
    """What one phase is charged, and whether some of that is the estimate."""
    if reported is None:
        return (estimate, any(estimate)) if ran else (NOTHING, False)
    if not unsure:
        return reported, False
    charged = most(reported, estimate)
    return charged, charged != reported
