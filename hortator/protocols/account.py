"""Accounts: budgets that many runs share, and what came of all of them."""

from __future__ import annotations

import attrs

from hortator.protocols.attribution import Attribution, node, sum_of
from hortator.protocols.budget import Budget, limits_of
from hortator.protocols.errors import InvalidJob
from hortator.protocols.interfaces import Remaining
from hortator.protocols.ledger import Book, Lease
from hortator.protocols.pool import Pool
from hortator.protocols.usage import (
    NOTHING,
    Usage,
    UsageReport,
    exact,
    minus,
    plus,
)


class Account:
    """A budget that runs share: the runtime's, or one of its named accounts.

    Get one from `Runtime.account`, and name it in `Runtime.run(..., account=...)`. What its runs
    reserve is reserved at every account above it, too. A run that finds no room waits until
    others give something back.

    Attributes:
        name: "runtime" for the root.
        budget: the limits over all its runs, present and past.
        parent: the account that it is a part of, None for the root.

    >>> tenant = Account("tenant a", Budget(model_calls=100))
    >>> tenant.remaining().model_calls
    100
    """

    name: str
    budget: Budget
    parent: Account | None
    pools: tuple[Pool, ...]
    book: Book

    def __init__(self, name: str, budget: Budget, parent: Account | None = None) -> None:
        self.name, self.budget, self.parent = name, budget, parent
        limits = limits_of(budget)
        own = (Pool(f"the budget of {name}", limits),) if limits else ()
        self.pools = own + (() if parent is None else parent.pools)
        self.book = Book(pools=self.pools, name=name)
        self._limits, self._own = limits, own
        self._children: dict[str, Account] = {}
        self._live: dict[Book, None] = {}
        self._late = NOTHING

    def child(self, name: str, budget: Budget | None) -> Account:
        """The part of this account with that name, opened if it is new.

        Raises:
            InvalidJob: the name is empty, or it was opened with another budget.
        """
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(f"account({name!r}): an account is named by a text, 'tenant a'")
        if name == self.name:
            raise InvalidJob(f"account({name!r}): that is the whole; give its parts other names")
        known = self._children.get(name)
        if known is None:
            known = self._children[name] = Account(name, budget or Budget(), self)
        elif budget is not None and limits_of(budget) != limits_of(known.budget):
            raise InvalidJob(
                f"account({name!r}) was opened with {known.budget!r}, and a budget does not change:"
                " leave the second argument out to get that account, or use another name"
            )
        return known

    def __repr__(self) -> str:
        return f"<Account {self.name}: {len(self._live)} runs, {self.budget!r}>"

    @property
    def accounts(self) -> tuple[Account, ...]:
        """Its parts, in the order in which they were opened."""
        return tuple(self._children.values())

    @property
    def usage(self) -> UsageReport:
        """What all its runs came to so far; what they and detached work hold is outstanding."""
        total = self.book.report()
        for book in self._live:
            # What detached work of it holds stands in this account's own book by now.
            total += attrs.evolve(book.report(), outstanding=Usage.of(book.promised))
        for child in self._children.values():
            total += child.usage
        return total

    @property
    def attribution(self) -> Attribution:
        """Who was charged what: its parts, its runs in flight, those that have ended.

        Runs that have ended are one leaf here; the tree of each is in its result.
        """
        parts = [child.attribution for child in self.accounts]
        parts += [Attribution(book.name, Usage.of(book.settled)) for book in self._live]
        charged = plus(self.book.settled, sum_of(parts))
        ended = minus(self.book.settled, self._late)
        parts.append(Attribution("runs that have ended", Usage.of(ended)))
        return node(self.name, charged, parts, "detached work that has ended")

    def remaining(self) -> Remaining:
        """What is neither spent nor promised; None where there is no limit.

        Limits of the accounts above may leave less.
        """
        left = [
            (position, limit - pool.spent[position] - pool.held[position])
            for pool in self._own
            for position, limit in self._limits
        ]
        return Remaining.of(None, left)

    def begin(self, book: Book) -> None:
        """A run of its own has started (a nested one draws on a lease instead)."""
        self._live[book] = None

    def end(self, book: Book, aside: Lease | None = None, *, nested: bool = False) -> None:
        """A run has ended: take its sums over, if nobody else did.

        Args:
            book: of the run.
            aside: the lease that was set aside for it, if it was.
            nested: whether it has drawn on a lease.
        """
        if not nested:
            del self._live[book]
            self.book.absorb(book)
            return
        self.book.absorb_marks(book)
        if any(book.unclaimed):
            self.book.charge_late(book.unclaimed)
            self.settled_late(book.unclaimed)
        if aside is not None and aside.pool is not None:
            home = aside.pool.book
            settled = home.settle(aside, generated=False, scored=False, cut=False)
            if home is self.book and settled is not None:
                self.settled_late(settled.charged)

    def settled_late(self, charged: tuple[int, ...]) -> None:
        """Detached work of one of its runs has ended, and was charged this."""
        self._late = plus(self._late, charged)

    def check(self) -> None:
        """Assert the invariants of its book, its pools and its parts."""
        self.book.check()
        charged = exact(self.usage.charged)
        for pool in self._own:
            pool.check()
            for position, _ in self._limits:
                spent = pool.spent[position], charged[position]
                assert spent[0] == spent[1], f"{self.name}: {spent[0]} spent, {spent[1]} charged"
        for child in self.accounts:
            child.check()
