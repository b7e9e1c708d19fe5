"""Where leases draw on something limited: the nodes of the ledger tree.

A lease is held at every node on its path: the book of its run, and the *pools* above that. A
pool is a budget that several runs share (the runtime's, or that of a named account); for a nested
run it is the lease of the candidate that started it, and nothing above that.

::

    runtime ── account ── book of a run ── lease of a candidate ── book of a nested run ── lease
     Pool       Pool           Book             LeasePool                 Book
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hortator.protocols.budget import Limits
from hortator.protocols.lease import Lease, Phase, Settled
from hortator.protocols.usage import DIMENSIONS, NOTHING, Amounts, most, plus

if TYPE_CHECKING:
    from hortator.protocols.queue import Waiter


class Node:
    """One place where an ask can be held up, with the queue of those that it holds up.

    Attributes:
        name: for people.
        waiters: asks that wait here, in the order of their arrival.
        waiting: how many open leases below belong to work that waits for more.
    """

    name: str
    waiters: list[Waiter]
    waiting: int

    __slots__ = ("name", "waiters", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiters = []
        self.waiting = 0

    def line_up(self, waiter: Waiter) -> None:
        """Have an ask wait here, at the place of its arrival."""
        self.waiters.append(waiter)
        self.waiters.sort(key=_arrival)

    @property
    def working(self) -> int:
        """How many open leases below belong to work that neither waits nor is detached."""
        raise NotImplementedError

    def lacks(self, asked: Amounts) -> bool:
        """Whether there is no room for so much more at this moment."""
        raise NotImplementedError

    def hopeless(self, asked: Amounts, kept: Amounts) -> bool:
        """Whether there would be no room even if everybody but the asker gave all back.

        Args:
            asked: how much more.
            kept: what the asker holds already.
        """
        raise NotImplementedError


def _arrival(waiter: Waiter) -> int:
    return waiter.arrival


class Pool(Node):
    """A budget that several runs draw on.

    Invariants, asserted by `check()`:

    1. In each limited dimension spent - overrun + held <= limit.
    2. No amount is negative, and no more leases wait than are open.

    Attributes:
        limits: of what is spent and held together.
        held: what open leases below are promised, and detached ones.
        spent: what settled leases below came to.
        overrun: what leases were charged beyond their caps.
        open: how many leases below are open and not detached.
        closed: nothing is granted any more.
    """

    limits: Limits
    held: list[int]
    spent: list[int]
    overrun: list[int]
    open: int
    closed: bool

    __slots__ = ("closed", "held", "limits", "open", "overrun", "spent")

    def __init__(self, name: str, limits: Limits) -> None:
        super().__init__(name)
        self.limits = limits
        self.held, self.spent = list(NOTHING), list(NOTHING)
        self.overrun = list(NOTHING)
        self.open = 0
        self.closed = False

    @property
    def paid(self) -> bool:
        """Whether somebody has been charged already for all that is held below."""
        return False

    @property
    def capped(self) -> tuple[int, ...]:
        """Positions of the dimensions in which a lease below is a cap."""
        return tuple(position for position, _ in self.limits)

    @property
    def working(self) -> int:
        """How many open leases below belong to work that neither waits nor is detached."""
        return self.open - self.waiting

    def lacks(self, asked: Amounts) -> bool:
        """Whether there is no room for so much more at this moment."""
        spent, held = self.spent, self.held
        for position, limit in self.limits:
            if spent[position] + held[position] + asked[position] > limit:
                return True
        return self.closed

    def hopeless(self, asked: Amounts, kept: Amounts) -> bool:
        """Whether there would be no room even if everybody but the asker gave all back."""
        return self.closed or any(
            self.spent[position] + kept[position] + asked[position] > limit
            for position, limit in self.limits
        )

    def hold(self, amounts: Amounts) -> None:
        """Promise so much to a lease below."""
        held = self.held
        for position, _ in self.limits:
            held[position] += amounts[position]

    def give_back(self, cap: Amounts, charged: Amounts) -> None:
        """A lease below has been settled, open or detached."""
        held, spent = self.held, self.spent
        if charged is cap:  # as expected: most often
            for position, _ in self.limits:
                amount = cap[position]
                held[position] -= amount
                spent[position] += amount
            return
        for position, _ in self.limits:
            held[position] -= cap[position]
            spent[position] += charged[position]
            self.overrun[position] += max(0, charged[position] - cap[position])

    def cede(self, amounts: Amounts, to: NestedBook) -> None:
        """A lease below moved to another book: what it holds stays held here until its end."""

    def check(self) -> None:
        """Assert the invariants; the numbers are those of the class's docstring."""
        for position, limit in self.limits:
            held, spent = self.held[position], self.spent[position]
            promised = spent - self.overrun[position] + held
            name = f"{self.name}: {DIMENSIONS[position]}"
            assert promised <= limit, f"1: {name} {promised} of {limit}"
            assert min(held, spent) >= 0, f"2: {name} held {held}, spent {spent}"
        assert 0 <= self.waiting <= self.open, f"2: {self.waiting} of {self.open} leases wait"


class NestedBook(Protocol):
    """A book, as the pools above it see it."""

    reported: Amounts
    pools: tuple[Pool, ...]

    @property
    def settled(self) -> Amounts:
        """What it was charged."""
        ...

    @property
    def open(self) -> dict[int, Lease]:
        """Its leases that are not settled, by number."""
        ...

    @property
    def estimated(self) -> int:
        """How many of its leases were charged by estimate."""
        ...

    def settle(self, lease: Lease, *, generated: bool, scored: bool, cut: bool) -> Settled | None:
        """Close a lease and charge what its work came to."""
        ...

    def set_apart(self, lease: Lease) -> None:
        """See to it that an open lease is settled by itself."""
        ...

    def shrink(self, lease: Lease, amounts: Amounts, to: NestedBook) -> None:
        """Take a part out of an open lease: it stands in another book from now on."""
        ...


class LeasePool(Pool):
    """The lease of a candidate, as the budget of the runs that this candidate starts.

    Limited by the lease's cap, in the dimensions in which a lease is a cap, less what the
    candidate itself reports. What nested runs are charged counts as spent by the candidate.

    Attributes:
        lease: of the candidate.
        book: where that is open.
        books: of the nested runs, with the phase of the candidate that started each.
        final: once it is closed, what each of these was charged at the candidate's end.
    """

    lease: Lease
    book: NestedBook
    books: list[tuple[Phase, NestedBook]]
    final: dict[NestedBook, Amounts]
    limits: Limits

    __slots__ = ("book", "books", "final", "lease")

    def __init__(self, lease: Lease, book: NestedBook) -> None:
        super().__init__(f"the lease of {lease.holder}", ())
        self.lease, self.book = lease, book
        self.books = []
        self.final = {}

    @property
    def paid(self) -> bool:
        """Whether its candidate has ended, or one further up whose lease it came from."""
        if self.closed or self.lease.moved:
            return self.closed
        return any(pool.paid for pool in self.book.pools)

    @property
    def capped(self) -> tuple[int, ...]:
        """Positions of the dimensions in which the lease is a cap."""
        return self.lease.rates.limited

    def lacks(self, asked: Amounts) -> bool:
        """Whether the lease has no room for so much more at this moment."""
        if not self.lease.rates.limited:
            return self.closed
        self._narrow()
        return super().lacks(asked)

    def hopeless(self, asked: Amounts, kept: Amounts) -> bool:
        """Whether the lease would have no room even if all nested leases were given back."""
        self._narrow()
        return super().hopeless(asked, kept)

    def hold(self, amounts: Amounts) -> None:
        """Promise so much to a lease of a nested run."""
        if self.lease.rates.limited:
            self._narrow()
            super().hold(amounts)

    def give_back(self, cap: Amounts, charged: Amounts) -> None:
        """A lease of a nested run has been settled; nobody asks any more once this is closed."""
        if self.lease.rates.limited and not self.closed:
            self._narrow()
            super().give_back(cap, charged)

    def cede(self, amounts: Amounts, to: NestedBook) -> None:
        """A nested lease moved to another book: this one is narrower by that much."""
        if not self.closed:
            for position, amount in enumerate(amounts):
                self.held[position] = max(0, self.held[position] - amount)
            self.book.shrink(self.lease, amounts, to)

    def close(self) -> None:
        """The candidate has ended: what its runs still hold is taken as spent by it.

        Whatever they come to beyond that later is not the candidate's any more.
        """
        self.closed = True
        for _, book in self.books:
            total = book.settled
            for lease in book.open.values():
                lease.prepaid = most(lease.cap, lease.reported)
                book.set_apart(lease)
                total = plus(total, lease.prepaid)
            self.final[book] = total

    def charged(self, phase: Phase) -> Amounts | None:
        """What nested runs of this phase came to, None without any."""
        total = None
        for begun_in, book in self.books:
            if begun_in == phase:
                total = plus(total or NOTHING, self.final[book] if self.closed else book.settled)
        return total

    @property
    def reported(self) -> Amounts:
        """What the callbacks of the nested runs reported."""
        total = NOTHING
        for _, book in self.books:
            total = plus(total, book.reported)
        return total

    @property
    def estimated(self) -> bool:
        """Whether some of what they are charged is an estimate."""
        return any(book.estimated or (self.closed and book.open) for _, book in self.books)

    def check(self) -> None:
        """Assert the second invariant; the first does not hold for who reports past a cap."""
        assert all(amount >= 0 for amount in (*self.held, *self.spent)), f"2: {self.held}"
        assert 0 <= self.waiting <= self.open, f"2: {self.waiting} of {self.open} leases wait"

    def _narrow(self) -> None:
        """Read the limits anew: the cap may have changed, the candidate have reported more."""
        own, cap = self.lease.reported, self.lease.cap
        self.limits = tuple(
            (position, max(0, cap[position] - own[position]))
            for position in self.lease.rates.limited
        )
