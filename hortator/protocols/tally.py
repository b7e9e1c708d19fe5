"""The sums of a book: what is promised, what was spent, and what has to hold between the two."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import attrs

from hortator.protocols.budget import Limits
from hortator.protocols.lease import Lease, Rates
from hortator.protocols.pool import Node, Pool
from hortator.protocols.queue import Waiter
from hortator.protocols.usage import (
    MOST,
    NOTHING,
    Amounts,
    Malformed,
    Usage,
    UsageReport,
    minus,
    plus,
    told,
)

KEPT_MALFORMED = 1000
"""So many malformed reports are kept in a runtime's book: the newest, over all its runs."""


class Tally(Node):
    """What the leases of one book come to. Pure arithmetic on ints.

    Invariants, asserted by `check()`:

    1. `reserved` is the sum of the caps of the open leases, and of what is `away`.
    2. In each limited dimension settled - overrun + reserved <= limit: nothing is promised twice.
    3. `overrun` is what leases were charged beyond their own caps; only work that reports more
       than it was granted makes it grow.
    4. A lease is settled at most once: `granted` = `settled_leases` + `moved` + open ones.
    5. No amount is negative; what is charged and reported stops at `MOST`.
    6. After `freeze()` nothing is granted any more.
    7. Who waits for a lease, or for more of one, has an answer before the book is frozen.

    Leases at the common rate are counted instead of summed, so that granting and settling one
    costs the same for one limited dimension as for six.

    Attributes:
        limits: of what is settled and reserved together.
        rates: what a candidate is estimated to need.
        pools: what the book draws on, from the nearest to the root.
        open: leases that are not settled, by number.
        away: what is still held by work that belongs to this run no more: it is outstanding.
        overrun: see above.
        reported: what callbacks reported.
        granted: how many leases there were; `settled_leases` and `moved` say what became of them.
        double_settlements: second settlements of one lease, which change nothing.
        malformed: reports that could not be true.
        unclaimed: what leases came to beyond what was charged for them at their candidate's end.
        frozen: the run is over.
    """

    limits: Limits
    rates: Rates
    pools: tuple[Pool, ...]
    open: dict[int, Lease]
    away: list[int]
    overrun: list[int]
    reported: Amounts
    granted: int
    settled_leases: int
    moved: int
    double_settlements: int
    other_estimated: int
    malformed: list[Malformed]
    unclaimed: Amounts
    frozen: bool

    __slots__ = (
        "_common_open",
        "_common_settled",
        "_free",
        "_half_settled",
        "_lock",
        "_other_reserved",
        "_other_settled",
        "_sure",
        "away",
        "double_settlements",
        "frozen",
        "granted",
        "limits",
        "malformed",
        "moved",
        "open",
        "other_estimated",
        "overrun",
        "pools",
        "rates",
        "reported",
        "settled_leases",
        "unclaimed",
    )

    def __init__(
        self,
        limits: Limits = (),
        rates: Rates | None = None,
        pools: Sequence[Pool] = (),
        name: str = "the run",
    ) -> None:
        super().__init__(name)
        self.limits = limits
        self.pools = tuple(pools)
        capped = {position for position, _ in limits}
        for pool in pools:
            capped.update(pool.capped)
        limited = tuple(sorted(capped))
        rates = rates or Rates.of(NOTHING, NOTHING)
        self.rates = rates if rates.limited == limited else attrs.evolve(rates, limited=limited)
        self.away = list(NOTHING)
        self.open = {}
        self.overrun = list(NOTHING)
        self.reported = NOTHING
        self.granted = self.settled_leases = self.moved = self.double_settlements = 0
        self.other_estimated = 0
        self.malformed = []
        self.unclaimed = NOTHING
        self.frozen = False
        self._lock = threading.Lock()
        self._common_open = self._common_settled = self._half_settled = 0
        self._other_reserved, self._other_settled = list(NOTHING), list(NOTHING)
        # Nothing was promised or charged yet, and at the common rate nothing ever is.
        self._free = not any(self.rates.combined)
        # So many leases at the common rate fit for sure; 0: to be worked out.
        self._sure = 0

    @property
    def reserved(self) -> Amounts:
        """What is promised to leases that have not been settled."""
        if self._free:
            return NOTHING
        return tuple(
            self._common_open * each + other
            for each, other in zip(self.rates.combined, self._other_reserved, strict=True)
        )

    @property
    def settled(self) -> Amounts:
        """What the budget was charged."""
        if self._free:
            return NOTHING
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

    def line_up(self, waiter: Waiter) -> None:
        """Have an ask wait here: nobody is granted a lease past it, however sure that was."""
        self._sure = 0
        super().line_up(waiter)

    @property
    def working(self) -> int:
        """How many open leases belong to work that does not wait for more."""
        return len(self.open) - self.waiting

    @property
    def promised(self) -> Amounts:
        """What its open leases cover."""
        return minus(self.reserved, tuple(self.away))

    def lacks(self, asked: Amounts) -> bool:
        """Whether there is no room for so much more at this moment."""
        settled, reserved = self.settled, self.reserved
        for position, limit in self.limits:
            if settled[position] + reserved[position] + asked[position] > limit:
                return True
        return self.frozen or any(a + b > MOST for a, b in zip(reserved, asked, strict=True))

    def hopeless(self, asked: Amounts, kept: Amounts) -> bool:
        """Whether there would be no room even if every other lease were given back."""
        settled = self.settled
        for position, limit in self.limits:
            if settled[position] + kept[position] + asked[position] > limit:
                return True
        return self.frozen or any(a + b > MOST for a, b in zip(kept, asked, strict=True))

    def absorb(self, other: Tally) -> None:
        """Add what another book came to."""
        self.absorb_marks(other)
        self._free = self._free and other._free
        self.reported = plus(self.reported, other.reported)
        if other._free:
            return
        self.other_estimated += other.estimated
        for position, amount in enumerate(other.settled):
            self._other_settled[position] = min(MOST, self._other_settled[position] + amount)

    def absorb_marks(self, other: Tally) -> None:
        """Add only what was wrong in another book: its sums came here through a lease."""
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
        held = [a + b for a, b in zip(held, self.away, strict=True)]
        assert tuple(held) == reserved, f"1: {reserved} reserved, {held} in leases and away"
        for position, limit in self.limits:
            promised = settled[position] - self.overrun[position] + reserved[position]
            assert promised <= limit, f"2: {told(position, promised)} of {told(position, limit)}"
        assert all(amount >= 0 for amount in self.overrun), f"3: overrun {self.overrun}"
        assert self.granted == self.settled_leases + self.moved + len(self.open), "4: leases lost"
        assert all(0 <= amount <= MOST for amount in (*settled, *self.reported)), f"5: {settled}"
        assert all(amount >= 0 for amount in reserved), f"5: {reserved}"
        assert 0 <= self.waiting <= len(self.open), f"7: {self.waiting} of {len(self.open)} wait"

    def _how_many_fit(self) -> int:
        assert not self.frozen, "6: a frozen book grants nothing"
        if self.waiters:
            return 0  # they came first
        if self._free and not self.limits:
            return MOST
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

    def set_apart(self, lease: Lease) -> None:
        """Sum this lease from now on, instead of counting it."""
        self._sure = 0
        if lease.cap is self.rates.combined:
            self._common_open -= 1
            for position, amount in enumerate(lease.cap):
                self._other_reserved[position] += amount
            # Equal, but not the common one any more.
            lease.cap = (*lease.cap,)
