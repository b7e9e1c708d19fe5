"""The ledger's rules: what may be reserved, what a lease covers, what is charged at its end.

Reserve, spend, settle: a lease is granted before anything is spent, it is the cap of one
candidate's generation *and* scoring, and it is settled exactly once on every way out.
"""

from __future__ import annotations

import threading
from typing import Literal, TypeAlias

import attrs

from hortator.protocols.budget import Limits
from hortator.protocols.errors import InvalidJob, LeaseExceeded
from hortator.protocols.usage import (
    DIMENSIONS,
    MOST,
    NOTHING,
    Amounts,
    Malformed,
    Usage,
    UsageReport,
    exact,
    fault,
    most,
    plus,
    told,
)

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
        parts: the positions and amounts of `combined` that are not 0.
        whole: what a candidate that reported nothing in either phase comes to.
    """

    generation: Amounts
    scoring: Amounts
    combined: Amounts
    parts: tuple[tuple[int, int], ...]
    whole: Settled

    @classmethod
    def of(cls, generation: Amounts, scoring: Amounts) -> Rates:
        """The rates of two estimates."""
        combined = plus(generation, scoring)
        parts = tuple((position, amount) for position, amount in enumerate(combined) if amount)
        whole = Settled(combined, NOTHING, bool(parts))
        return cls(generation, scoring, combined, parts, whole)


@attrs.define(eq=False)
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
    generation: Amounts | None = None
    scoring: Amounts | None = None
    doubtful: tuple[Phase, ...] = ()

    @property
    def reported(self) -> Amounts:
        """What was reported over both phases."""
        return plus(self.generation or NOTHING, self.scoring or NOTHING)


class Book:
    """All leases of one run and what came of them. Pure arithmetic on ints; no clock, no await.

    Invariants, asserted by `check()`:

    1. `reserved` is the sum of the caps of the open leases.
    2. In each limited dimension settled - overrun + reserved <= limit: nothing is promised twice.
    3. `overrun` is what leases were charged beyond their own caps; only work that reports more
       than it was granted makes it grow.
    4. A lease is settled at most once: `granted` = `settled_leases` + `moved` + open ones.
    5. No amount is negative, and none is above `MOST`.
    6. After `freeze()` nothing changes any more.

    `charge` may be called from any thread; everything else belongs to the thread of the event
    loop. Charges only touch their own lease, under the lock.
    """

    __slots__ = (
        "_lock",
        "double_settlements",
        "estimated",
        "frozen",
        "granted",
        "limits",
        "malformed",
        "moved",
        "open",
        "overrun",
        "rates",
        "reported",
        "reserved",
        "settled",
        "settled_leases",
    )

    def __init__(self, limits: Limits = (), rates: Rates | None = None) -> None:
        self.limits = limits
        self.rates = rates or Rates.of(NOTHING, NOTHING)
        self.open: dict[int, Lease] = {}
        self.reserved = list(NOTHING)
        self.settled = list(NOTHING)
        self.overrun = list(NOTHING)
        self.reported: Amounts = NOTHING
        self.granted = self.settled_leases = self.moved = 0
        self.estimated = self.double_settlements = 0
        self.malformed: list[Malformed] = []
        self.frozen = False
        self._lock = threading.Lock()

    def reserve(self, candidate: int) -> Lease | None:
        """Grant a lease over the combined estimate in all dimensions at once, or None."""
        assert not self.frozen, "6: a frozen book grants nothing"
        asked = self.rates.combined
        settled, reserved = self.settled, self.reserved
        for position, limit in self.limits:
            if settled[position] + reserved[position] + asked[position] > limit:
                return None
        for position, amount in self.rates.parts:
            if reserved[position] + amount > MOST:
                return None
        for position, amount in self.rates.parts:
            reserved[position] += amount
        number = self.granted
        self.granted = number + 1
        lease = self.open[number] = Lease(number, candidate, asked, self.rates)
        return lease

    def top_up(self, lease: Lease, usage: Usage) -> bool:
        """Widen an open lease by `usage` in all dimensions at once, or change nothing.

        Raises:
            InvalidJob: the amount is malformed.
        """
        wrong = fault(usage)
        if wrong is not None:
            raise InvalidJob(f"reserve() was asked for {wrong}; ask for a finite number from 0 up")
        asked = exact(usage)
        if self.open.get(lease.number) is not lease:
            return False
        for position, limit in self.limits:
            if self.settled[position] + self.reserved[position] + asked[position] > limit:
                return False
        if any(a + b > MOST for a, b in zip(self.reserved, asked, strict=True)):
            return False
        lease.cap = plus(lease.cap, asked)
        for position, amount in enumerate(asked):
            self.reserved[position] += amount
        return True

    def charge(self, lease: Lease, phase: Phase, usage: Usage) -> None:
        """Record what was spent; it is spent, so it is recorded in any case.

        Raises:
            LeaseExceeded: the lease does not cover what it has been charged by now.
        """
        self.record(lease, phase, usage)
        spent = lease.reported
        for position, _ in self.limits:
            if spent[position] > lease.cap[position]:
                raise LeaseExceeded(
                    f"candidate {lease.candidate} has spent {told(position, spent[position])},"
                    f" its lease covers {told(position, lease.cap[position])};"
                    " ask with `await ctx.reserve(...)` before spending more"
                )

    def record(self, lease: Lease, phase: Phase, usage: Usage) -> None:
        """Add a report to a lease; one that can't be true is put aside in `malformed`."""
        wrong = fault(usage)
        with self._lock:
            if wrong is not None:
                self.malformed.append(Malformed(lease.candidate, wrong))
                lease.doubtful = (*lease.doubtful, phase)
            elif phase == "generating":
                lease.generation = plus(lease.generation or NOTHING, exact(usage))
            else:
                lease.scoring = plus(lease.scoring or NOTHING, exact(usage))

    def settle(self, lease: Lease, *, generated: bool, scored: bool, cut: bool) -> Settled | None:
        """Close a lease and charge what its work came to; None if it was closed before.

        A phase that ran and reported nothing is charged its estimate. A phase that was cut
        (`cut`: cancelled or timed out) may be billed for more than it lived to report, and one
        with a malformed report did report more than is known: both are charged the estimate or
        the report, whichever is more, in each dimension.

        Args:
            lease: granted by this book.
            generated: whether the generator's first line ran.
            scored: whether the scorer's first line ran.
            cut: whether the last phase that ran was cut before it ended.
        """
        if self.open.get(lease.number) is not lease:
            self.double_settlements += 1
            return None
        del self.open[lease.number]
        self.settled_leases += 1
        rates, settled, reserved = lease.rates, self.settled, self.reserved
        if (
            lease.generation is None
            and lease.scoring is None
            and lease.cap is rates.combined
            and generated
            and scored
        ):
            # The common case, and the same sums as below: nothing was reported or topped up.
            for position, amount in rates.parts:
                reserved[position] -= amount
                settled[position] = min(MOST, settled[position] + amount)
            self.estimated += rates.whole.estimated
            return rates.whole
        with self._lock:
            outcome = _come_to(lease, generated, scored, cut)
        self.reported = plus(self.reported, outcome.reported)
        self.estimated += outcome.estimated
        for position, cap in enumerate(lease.cap):
            charged = outcome.charged[position]
            reserved[position] -= cap
            settled[position] = min(MOST, settled[position] + charged)
            if charged > cap:
                self.overrun[position] += charged - cap
        return outcome

    def move(self, lease: Lease, to: Book) -> None:
        """Hand an open lease over to another book in one step; here it counts as outstanding."""
        if self.open.get(lease.number) is not lease:
            raise AssertionError(f"lease {lease.number} is not open in this book")
        del self.open[lease.number]
        self.moved += 1
        with self._lock:
            lease.number = to.granted
        to.granted += 1
        to.open[lease.number] = lease
        for position, cap in enumerate(lease.cap):
            to.reserved[position] += cap

    def freeze(self) -> None:
        """Nothing settles here any more: what is still reserved stays shown as outstanding."""
        self.frozen = True

    def remaining(self, position: int) -> int | None:
        """What is neither spent nor reserved in one dimension; None if it is not limited."""
        for limited, limit in self.limits:
            if limited == position:
                return max(0, limit - self.settled[position] - self.reserved[position])
        return None

    def absorb(self, other: Book) -> None:
        """Add what another book settled to this one's totals."""
        for position in range(len(NOTHING)):
            self.settled[position] = min(MOST, self.settled[position] + other.settled[position])
        self.reported = plus(self.reported, other.reported)
        self.estimated += other.estimated
        self.double_settlements += other.double_settlements

    def report(self) -> UsageReport:
        """The three views of this moment."""
        return UsageReport(
            reported=Usage.of(self.reported),
            charged=Usage.of(tuple(self.settled)),
            outstanding=Usage.of(tuple(self.reserved)),
            estimated=self.estimated,
            malformed=tuple(self.malformed),
            double_settlements=self.double_settlements,
        )

    def check(self) -> None:
        """Assert the invariants; the numbers are those of the class's docstring."""
        held = [0] * len(NOTHING)
        for lease in self.open.values():
            held = [a + b for a, b in zip(held, lease.cap, strict=True)]
        if not self.moved:
            assert held == self.reserved, f"1: reserved {self.reserved}, open leases {held}"
        for position, limit in self.limits:
            promised = self.settled[position] - self.overrun[position] + self.reserved[position]
            assert promised <= limit, f"2: {DIMENSIONS[position]} {promised} of {limit}"
        assert all(amount >= 0 for amount in self.overrun), f"3: overrun {self.overrun}"
        assert self.granted == self.settled_leases + self.moved + len(self.open), "4: leases lost"
        for amounts in (self.settled, self.reserved, list(self.reported)):
            assert all(0 <= amount <= MOST for amount in amounts), f"5: {amounts}"


def _come_to(lease: Lease, generated: bool, scored: bool, cut: bool) -> Settled:
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
