"""The ledger's rules: what may be reserved, what a lease covers, what is charged at its end.

Reserve, spend, settle: a lease is granted before anything is spent, it is the cap of one
candidate's generation *and* scoring, and it is settled exactly once on every way out.
"""

from __future__ import annotations

import threading

import attrs

from hortator.protocols.budget import Limits
from hortator.protocols.errors import InvalidJob, LeaseExceeded
from hortator.protocols.lease import (
    Lease as Lease,
    Phase as Phase,
    Rates as Rates,
    Settled as Settled,
    come_to,
)
from hortator.protocols.usage import (
    MOST,
    NOTHING,
    Amounts,
    Malformed,
    Usage,
    UsageReport,
    exact,
    fault,
    plus,
    told,
)

KEPT_MALFORMED = 1000
"""So many malformed reports are kept in a runtime's book: the newest, over all its runs."""


class Book:
    """All leases of one run and what came of them. Pure arithmetic on ints; no clock, no await.

    Invariants, asserted by `check()`:

    1. `reserved` is the sum of the caps of the open leases, and of those that were moved away.
    2. In each limited dimension settled - overrun + reserved <= limit: nothing is promised twice.
    3. `overrun` is what leases were charged beyond their own caps; only work that reports more
       than it was granted makes it grow.
    4. A lease is settled at most once: `granted` = `settled_leases` + `moved` + open ones.
    5. No amount is negative; what is charged and reported stops at `MOST`.
    6. After `freeze()` nothing is granted any more.

    Leases at the common rate are counted instead of summed, so that granting and settling one
    costs the same for one limited dimension as for six.

    `charge` may be called from any thread; everything else belongs to the thread of the event
    loop. Charges only touch their own lease, under the lock.
    """

    limits: Limits
    rates: Rates
    overrun: list[int]
    granted: int
    settled_leases: int
    moved: int
    double_settlements: int
    other_estimated: int
    frozen: bool

    __slots__ = (
        "_common_open",
        "_common_settled",
        "_half_settled",
        "_lock",
        "_other_reserved",
        "_other_settled",
        "_sure",
        "double_settlements",
        "frozen",
        "granted",
        "limits",
        "malformed",
        "moved",
        "open",
        "other_estimated",
        "overrun",
        "rates",
        "reported",
        "settled_leases",
    )

    def __init__(self, limits: Limits = (), rates: Rates | None = None) -> None:
        self.limits = limits
        limited = tuple(position for position, _ in limits)
        rates = rates or Rates.of(NOTHING, NOTHING)
        self.rates = rates if rates.limited == limited else attrs.evolve(rates, limited=limited)
        self.open: dict[int, Lease] = {}
        self.overrun = list(NOTHING)
        self.reported: Amounts = NOTHING
        self.granted = self.settled_leases = self.moved = self.double_settlements = 0
        self.other_estimated = 0
        self.malformed: list[Malformed] = []
        self.frozen = False
        self._lock = threading.Lock()
        self._common_open = self._common_settled = self._half_settled = 0
        self._other_reserved, self._other_settled = list(NOTHING), list(NOTHING)
        # So many leases at the common rate fit for sure; 0: to be worked out.
        self._sure = 0

    @property
    def reserved(self) -> Amounts:
        """What is promised to leases that have not been settled."""
        return tuple(
            self._common_open * each + other
            for each, other in zip(self.rates.combined, self._other_reserved, strict=True)
        )

    @property
    def settled(self) -> Amounts:
        """What the budget was charged."""
        rates, whole, half = self.rates, self._common_settled, self._half_settled
        return tuple(
            min(MOST, whole * each + half * generation + other)
            for each, generation, other in zip(
                rates.combined, rates.generation, self._other_settled, strict=True
            )
        )

    @property
    def estimated(self) -> int:
        """How many settled leases were charged at least partly by estimate."""
        rates, whole, half = self.rates, self._common_settled, self._half_settled
        return self.other_estimated + whole * rates.whole.estimated + half * rates.half.estimated

    def reserve(self, candidate: int) -> Lease | None:
        """Grant a lease over the combined estimate in all dimensions at once, or None."""
        if not self._sure:
            self._sure = self._how_many_fit()
            if not self._sure:
                return None
        self._sure -= 1
        self._common_open += 1
        number = self.granted
        self.granted = number + 1
        lease = self.open[number] = Lease(number, candidate, self.rates.combined, self.rates)
        return lease

    def _how_many_fit(self) -> int:
        assert not self.frozen, "6: a frozen book grants nothing"
        limits = dict(self.limits)
        settled, reserved = self.settled, self.reserved
        fits = MOST
        for position, each in enumerate(self.rates.combined):
            if position in limits:
                left = limits[position] - settled[position] - reserved[position]
                if left < each:
                    return 0
            else:
                left = MOST - reserved[position]
            if each:
                fits = min(fits, left // each)
        return fits

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
        settled, reserved = self.settled, self.reserved
        for position, limit in self.limits:
            if settled[position] + reserved[position] + asked[position] > limit:
                return False
        if any(a + b > MOST for a, b in zip(reserved, asked, strict=True)):
            return False
        self._set_apart(lease)
        lease.cap = plus(lease.cap, asked)
        for position, amount in enumerate(asked):
            self._other_reserved[position] += amount
        return True

    def _set_apart(self, lease: Lease) -> None:
        """Sum this lease from now on, instead of counting it."""
        self._sure = 0
        if lease.cap is self.rates.combined:
            self._common_open -= 1
            for position, amount in enumerate(lease.cap):
                self._other_reserved[position] += amount
            # Equal, but not the common one any more.
            lease.cap = (*lease.cap,)

    def charge(self, lease: Lease, phase: Phase, usage: Usage) -> None:
        """Record what was spent; it is spent, so it is recorded in any case.

        Raises:
            LeaseExceeded: the lease does not cover what it has been charged by now.
        """
        self.record(lease, phase, usage)
        generation, scoring = lease.generation or NOTHING, lease.scoring or NOTHING
        for position in lease.rates.limited:  # also once the lease has moved to a book without
            spent = generation[position] + scoring[position]
            if spent > lease.cap[position]:
                raise LeaseExceeded(
                    f"candidate {lease.candidate} has spent {told(position, spent)},"
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
        rates = lease.rates
        silent = lease.generation is None and lease.scoring is None
        if silent and generated and lease.cap is self.rates.combined:
            # The common case: nothing was reported, so it comes to what was estimated.
            self._common_open -= 1
            if scored:
                self._common_settled += 1
                return rates.whole
            self._half_settled += 1
            self._sure = 0
            return rates.half
        self._set_apart(lease)
        with self._lock:
            outcome = come_to(lease, generated, scored, cut)
        self.reported = plus(self.reported, outcome.reported)
        self.other_estimated += outcome.estimated
        for position, cap in enumerate(lease.cap):
            charged = outcome.charged[position]
            self._other_reserved[position] -= cap
            self._other_settled[position] = min(MOST, self._other_settled[position] + charged)
            if charged > cap:
                self.overrun[position] += charged - cap
        return outcome

    def move(self, lease: Lease, to: Book) -> None:
        """Hand an open lease over to another book in one step; here it counts as outstanding."""
        if self.open.get(lease.number) is not lease:
            raise AssertionError(f"lease {lease.number} is not open in this book")
        del self.open[lease.number]
        self._set_apart(lease)
        self.moved += 1
        with self._lock:
            lease.number = to.granted
        to.granted += 1
        to.open[lease.number] = lease
        for position, cap in enumerate(lease.cap):
            to._other_reserved[position] += cap

    def freeze(self) -> None:
        """Nothing settles here any more: what is still reserved stays shown as outstanding."""
        self.frozen = True
        self._sure = 0

    def absorb(self, other: Book) -> None:
        """Add what another book settled to this one's totals."""
        for position, amount in enumerate(other.settled):
            self._other_settled[position] = min(MOST, self._other_settled[position] + amount)
        self.reported = plus(self.reported, other.reported)
        self.other_estimated += other.estimated
        self.double_settlements += other.double_settlements
        self.malformed = [*self.malformed, *other.malformed][-KEPT_MALFORMED:]

    def report(self) -> UsageReport:
        """The three views of this moment."""
        return UsageReport(
            reported=Usage.of(self.reported),
            charged=Usage.of(self.settled),
            outstanding=Usage.of(tuple(min(MOST, amount) for amount in self.reserved)),
            estimated=self.estimated,
            malformed=tuple(self.malformed),
            double_settlements=self.double_settlements,
        )

    def check(self) -> None:
        """Assert the invariants; the numbers are those of the class's docstring."""
        held = [0] * len(NOTHING)
        for lease in self.open.values():
            held = [a + b for a, b in zip(held, lease.cap, strict=True)]
        settled, reserved = self.settled, self.reserved
        assert self.moved or tuple(held) == reserved, f"1: {reserved} reserved, {held} in leases"
        for position, limit in self.limits:
            promised = settled[position] - self.overrun[position] + reserved[position]
            assert promised <= limit, f"2: {told(position, promised)} of {told(position, limit)}"
        assert all(amount >= 0 for amount in self.overrun), f"3: overrun {self.overrun}"
        assert self.granted == self.settled_leases + self.moved + len(self.open), "4: leases lost"
        assert all(0 <= amount <= MOST for amount in (*settled, *self.reported)), f"5: {settled}"
        assert all(amount >= 0 for amount in reserved), f"5: {reserved}"
