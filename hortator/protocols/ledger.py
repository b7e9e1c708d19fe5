"""The ledger's rules: what may be reserved, what a lease covers, what is charged at its end.

Reserve, spend, settle: a lease is granted before anything is spent, it is the cap of one
candidate's generation *and* scoring, and it is settled exactly once on every way out.
"""

from __future__ import annotations

from hortator.protocols.errors import InvalidJob, LeaseExceeded
from hortator.protocols.lease import (
    ASIDE,
    Lease as Lease,
    Phase as Phase,
    Rates as Rates,
    Settled as Settled,
    come_to,
)
from hortator.protocols.pool import LeasePool, NestedBook
from hortator.protocols.queue import Waiter, answer_waiting
from hortator.protocols.tally import Tally
from hortator.protocols.usage import (
    MOST,
    NOTHING,
    Amounts,
    Malformed,
    Usage,
    exact,
    fault,
    minus,
    most,
    plus,
    told,
)


class Book(Tally):
    """All leases of one run, from the grant to the settlement. No clock, no await.

    What it grants is held at every pool above it, too, and given back there when it is settled.
    Its sums and their invariants are those of `Tally`.

    `charge` may be called from any thread; everything else belongs to the thread of the event
    loop. Charges only touch their own lease, under the lock.
    """

    __slots__ = ()

    # Said again, because this class sets them, too.
    granted: int
    settled_leases: int
    moved: int
    double_settlements: int
    other_estimated: int
    reported: Amounts
    unclaimed: Amounts

    def reserve(self, candidate: int) -> Lease | None:
        """Grant a lease over the combined estimate in all dimensions at once, or None.

        None says that it does not fit now; `ask_for_lease` tells whether waiting may help.
        """
        if not self._sure:
            self._sure = self._how_many_fit()
            if not self._sure:
                return None
        for pool in self.pools:
            if pool.waiters or pool.lacks(self.rates.combined):
                return None
        self._sure -= 1
        self._common_open += 1
        number = self.granted
        self.granted = number + 1
        lease = self.open[number] = Lease(number, candidate, self.rates.combined, self.rates)
        if self.pools:
            self._hold(lease.cap)
        return lease

    def ask_for_lease(self, candidate: int) -> Waiter:
        """Put an ask for a lease, which may have to wait; its `lease` is set once granted."""
        waiter = Waiter(self, (self, *self.pools), candidate, self.rates.combined, None)
        waiter.ask()
        return waiter

    def ask_for_more(self, lease: Lease, usage: Usage) -> Waiter:
        """Put an ask to widen an open lease by `usage`, in all dimensions at once or not at all.

        Raises:
            InvalidJob: the amount is malformed.
        """
        wrong = fault(usage)
        if wrong is not None:
            raise InvalidJob(f"reserve() was asked for {wrong}; ask for a finite number from 0 up")
        waiter = Waiter(self, (self, *self.pools), lease.candidate, exact(usage), lease)
        if self.open.get(lease.number) is not lease:
            waiter.granted = False
        else:
            # It will be settled the long way, where asks that still wait are withdrawn.
            self.set_apart(lease)
            waiter.ask()
        return waiter

    def has_room(self, amounts: Amounts) -> bool:
        """Whether so much could be set aside at this moment."""
        ask = Waiter(self, (self, *self.pools), ASIDE, amounts, None)
        return not self.frozen and (not any(amounts) or ask.held_up_by() is None)

    def set_aside(self, amounts: Amounts) -> Lease | None:
        """Grant a lease for work that belongs to no candidate, or None. It does not wait.

        Like that of a candidate it is a cap, and has to be settled.
        """
        if not self.has_room(amounts):
            return None
        self._sure = 0
        self._free = self._free and not any(amounts)
        limited = [(position, 0) for position in self.rates.limited]
        rates = Rates.of(amounts, NOTHING, tuple(limited))
        lease = Lease(self.granted, ASIDE, amounts, rates)
        self.open[lease.number] = lease
        self.granted += 1
        for position, amount in enumerate(amounts):
            self._other_reserved[position] += amount
        self._hold(amounts)
        return lease

    def rest(self, lease: Lease) -> None:
        """Count an open lease as one whose holder waits: for others of its run, not for more."""
        self.set_apart(lease)  # it is settled the long way, where that ends
        Waiter(self, (self, *self.pools), lease.candidate, NOTHING, lease).rest()

    def resume(self, lease: Lease) -> None:
        """Its holder goes on: undo `rest`, and withdraw whatever else it has asked for."""
        for waiter in lease.asking:
            waiter.withdraw()

    def grant(self, waiter: Waiter) -> None:
        """Give it what it asked for: there is room at all its nodes."""
        lease = waiter.lease
        if lease is None:
            self._sure = 0  # what was sure did not count with this one
            self._common_open += 1
            lease = waiter.lease = Lease(
                self.granted, waiter.index, self.rates.combined, self.rates
            )
            self.open[lease.number] = lease
            self.granted += 1
            self._hold(lease.cap)
            return
        self.set_apart(lease)
        self._free = self._free and not any(waiter.asked)
        lease.cap = plus(lease.cap, waiter.asked)
        for position, amount in enumerate(waiter.asked):
            self._other_reserved[position] += amount
        for pool in self.pools:
            pool.hold(waiter.asked)
        if lease.pool is not None:
            answer_waiting((lease.pool,))  # nested runs may have waited for just that

    def pool_of(self, lease: Lease) -> LeasePool:
        """What the nested runs of a lease's holder draw on."""
        if lease.pool is None:
            self.set_apart(lease)
            lease.pool = LeasePool(lease, self)
        return lease.pool

    def _hold(self, amounts: Amounts) -> None:
        for pool in self.pools:
            pool.hold(amounts)
            pool.open += 1

    def charge(self, lease: Lease, phase: Phase, usage: Usage) -> None:
        """Record what was spent; it is spent, so it is recorded in any case.

        Raises:
            LeaseExceeded: the lease does not cover what it has been charged by now.
        """
        self.record(lease, phase, usage)
        for position in lease.rates.limited:  # also once the lease has moved to a book without
            spent = lease.used(position)
            if spent > lease.cap[position]:
                raise LeaseExceeded(
                    f"{lease.holder} has spent {told(position, spent)},"
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
                outcome = rates.whole
            else:
                self._half_settled += 1
                self._sure = 0
                outcome = rates.half
            if self.pools or self.waiters:
                self._give_back(lease, outcome)
            return outcome
        for waiter in lease.asking:
            waiter.withdraw()
        self.set_apart(lease)
        if lease.pool is not None:
            lease.pool.close()
        with self._lock:
            outcome = come_to(lease, generated, scored, cut)
        if lease.prepaid is not NOTHING and not lease.moved:
            self.unclaimed = plus(self.unclaimed, minus(outcome.charged, lease.prepaid))
        self.reported = plus(self.reported, outcome.reported)
        self.other_estimated += outcome.estimated
        self._free = self._free and not any(outcome.charged)
        for position, cap in enumerate(lease.cap):
            charged = outcome.charged[position]
            self._other_reserved[position] -= cap
            self._other_settled[position] = min(MOST, self._other_settled[position] + charged)
            if charged > cap:
                self.overrun[position] += charged - cap
        if self.pools or self.waiters:
            self._give_back(lease, outcome)
        if lease.pool is not None:
            answer_waiting((lease.pool,))
        return outcome

    def _give_back(self, lease: Lease, outcome: Settled) -> None:
        """Give back at the pools what was held there, and answer whom that helps."""
        waits = bool(self.waiters)
        for pool in self.pools:
            pool.give_back(lease.cap, outcome.charged)
            if not lease.moved:
                pool.open -= 1
            waits = waits or bool(pool.waiters)
        if waits:
            answer_waiting((self, *self.pools))

    def move(self, lease: Lease, to: Book) -> None:
        """Hand an open lease over to another book in one step; here it counts as outstanding.

        At pools above both books it stays held. If this is the book of a nested run, what it
        covers leaves the lease that it was drawn from.
        """
        if self.open.get(lease.number) is not lease:
            raise AssertionError(f"lease {lease.number} is not open in this book")
        for waiter in lease.asking:
            waiter.withdraw()
        del self.open[lease.number]
        self.set_apart(lease)
        self.moved += 1
        with self._lock:
            lease.number = to.granted
        lease.moved = True
        if any(pool.paid for pool in self.pools):
            # Whoever it was drawn from has ended, and was charged all that it covers.
            self._let_go(lease)
        if lease.pool is not None:
            lease.pool.book = to
        to.granted += 1
        to.open[lease.number] = lease
        to._free = to._free and self._free
        for position, cap in enumerate(lease.cap):
            to._other_reserved[position] += cap
            self.away[position] += cap
        for pool in self.pools:
            pool.open -= 1
            pool.cede(lease.cap, to)
        answer_waiting((self, *self.pools))

    def _let_go(self, lease: Lease) -> None:
        # Nothing, but not *the* nothing, which may be the common cap of the other book.
        cap, lease.cap = lease.cap, (*NOTHING,)
        lease.prepaid = most(lease.prepaid, cap)
        for position, amount in enumerate(cap):
            self._other_reserved[position] -= amount

    def charge_late(self, amounts: Amounts) -> None:
        """Charge what came after the end of whoever would have been charged it."""
        self._free = self._free and not any(amounts)
        for position, amount in enumerate(amounts):
            self._other_settled[position] = min(MOST, self._other_settled[position] + amount)
            self.overrun[position] += amount
        for pool in self.pools:
            pool.give_back(NOTHING, amounts)

    def shrink(self, lease: Lease, amounts: Amounts, to: NestedBook) -> None:
        """Take out of an open lease what stands in another book from now on.

        Here it is outstanding; unless it is this very book, where it is a lease of its own.
        """
        self.set_apart(lease)
        self._free = self._free and not any(amounts)
        taken = tuple(map(min, lease.cap, amounts))
        lease.cap, lease.ceded = minus(lease.cap, taken), plus(lease.ceded, amounts)
        if to is self:
            for position, amount in enumerate(taken):
                self._other_reserved[position] -= amount
            return
        for position, amount in enumerate(amounts):
            self._other_reserved[position] += amount - taken[position]
            self.away[position] += amount
        for pool in self.pools:
            pool.cede(amounts, to)

    def freeze(self) -> None:
        """Nothing settles here any more: what is still reserved stays shown as outstanding."""
        assert not self.waiters, "7: somebody still waits"
        self.frozen = True
        self._sure = 0
