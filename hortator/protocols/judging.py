"""What a judge may spend: money that is set aside before it is asked, and settled after."""

from __future__ import annotations

from hortator.protocols.ledger import Book, Lease
from hortator.protocols.usage import MOST, Amounts, Usage


class Purse:
    """A lease over all comparisons of one selection, or over as many as there is room for.

    `afford` and `spend` may be called from the thread that a sync judge runs in.
    """

    def __init__(self, book: Book, estimate: Amounts, most: int) -> None:
        """Set the money aside.

        Args:
            book: of the run.
            estimate: what one comparison is expected to cost.
            most: how many comparisons there are.
        """
        self._book, self._estimate = book, estimate
        self._lease = book.set_aside(_times(estimate, _how_many(book, estimate, most)))
        self._asked = self._answered = self._told = 0

    def afford(self) -> bool:
        """Whether there is money for one more comparison, which is then made."""
        lease = self._lease
        if lease is None or any(
            lease.used(position) + self._estimate[position] > lease.cap[position]
            for position in lease.rates.limited
        ):
            return False
        self._asked += 1
        return True

    def spend(self, usage: Usage | None) -> None:
        """A comparison was made; without a report it is charged what was expected."""
        lease = self._lease  # the loop may settle it meanwhile
        if lease is not None:
            self._answered += 1
            self._told += usage is not None
            self._record(lease, usage)

    def settle(self) -> None:
        """The selection is over; a comparison that was cut is charged what was expected."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        for _ in range(self._asked - self._answered):
            self._record(lease, None)
        self._book.settle(lease, generated=False, scored=False, cut=False)
        if self._asked > self._told and any(self._estimate):
            self._book.other_estimated += 1

    def _record(self, lease: Lease, usage: Usage | None) -> None:
        if usage is not None:
            self._book.record(lease, "generating", usage)
        elif any(self._estimate):
            self._book.record(lease, "generating", Usage.of(self._estimate))


def _how_many(book: Book, estimate: Amounts, most: int) -> int:
    """So many times the estimate fit, `most` at the most."""
    fits, too_many = 0, most + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if book.has_room(_times(estimate, middle)):
            fits = middle
        else:
            too_many = middle
    return fits


def _times(amounts: Amounts, count: int) -> Amounts:
    return tuple(min(MOST, amount * count) for amount in amounts)
