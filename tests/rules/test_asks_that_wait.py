"""Who waits for a lease or for more of one, in single steps: no loop, no time.

What random operations come to is in `test_ledger_tree_machine.py`; these say one thing each, and
fail where a whole run would hang.
"""

from __future__ import annotations

import pytest

from hortator import Budget, Usage
from hortator.protocols.account import Account
from hortator.protocols.budget import limits_of
from hortator.protocols.ledger import Book, Lease, Rates
from hortator.protocols.queue import Waiter
from hortator.protocols.usage import exact


def calls(number: int) -> Usage:
    return Usage(model_calls=number)


def a_book(limit: int | None = None, *, account: Account | None = None, each: int = 1) -> Book:
    limits = limits_of(Budget(model_calls=limit))
    rates = Rates.of(exact(calls(each)), exact(Usage()))
    return Book(limits, rates, () if account is None else account.pools)


def granted(book: Book, candidate: int) -> Lease:
    lease = book.reserve(candidate)
    assert lease is not None, "there is no room"
    return lease


def end(book: Book, lease: Lease, spent: int) -> None:
    book.record(lease, "generating", calls(spent))
    assert book.settle(lease, generated=True, scored=False, cut=False) is not None


def answers(*asks: Waiter) -> list[bool | None]:
    return [ask.granted for ask in asks]


def test_when_all_wait_the_highest_index_is_denied() -> None:
    book = a_book(4)
    first, second = granted(book, 0), granted(book, 1)
    one, two = book.ask_for_more(first, calls(3)), book.ask_for_more(second, calls(3))
    assert answers(one, two) == [None, False], "both wait for each other"
    end(book, second, 0)
    assert answers(one, two) == [True, False]
    book.check()


def test_a_lease_that_asks_twice_waits_once() -> None:
    book = a_book(4)
    first, second = granted(book, 0), granted(book, 1)
    asks = [book.ask_for_more(first, calls(3)) for _ in range(2)]
    assert answers(*asks) == [None, None]
    assert (book.waiting, book.working) == (1, 1)
    asks[0].withdraw()
    assert (book.waiting, book.working) == (1, 1)
    asks[1].withdraw()
    assert (book.waiting, book.working) == (0, 2)
    end(book, second, 0)
    end(book, first, 0)


def test_an_ask_for_a_lease_does_not_count_as_a_lease_that_waits() -> None:
    book = a_book(2)
    first, second = granted(book, 0), granted(book, 1)
    lease = book.ask_for_lease(2)
    assert answers(lease) == [None]
    assert (book.waiting, book.working) == (0, 2)
    end(book, first, 0)
    assert answers(lease) == [True]
    assert lease.lease is not None
    assert lease.lease.candidate == 2
    assert second.cap == exact(calls(1))


def test_a_lease_that_moves_works_no_more() -> None:
    account = Account("runtime", Budget(model_calls=4))
    book, other = a_book(account=account, each=3), a_book(account=account)
    stuck, asker = granted(book, 0), granted(other, 0)
    ask = other.ask_for_more(asker, calls(2))
    assert answers(ask) == [None], "the other one works"
    book.move(stuck, account.book)
    assert answers(ask) == [False], "nobody counts on detached work"
    account.check()


def test_what_waits_at_the_account_is_moved_to_the_runtime_when_that_has_no_room() -> None:
    root = Account("runtime", Budget(model_calls=6))
    tenant, other = root.child("tenant", Budget(model_calls=4)), root.child("other", None)
    mine, its = a_book(account=tenant, each=2), a_book(account=other, each=2)
    first, second = granted(mine, 0), granted(mine, 1)
    theirs = granted(its, 0)
    blocked = its.ask_for_lease(1)  # at the runtime: 6 are held
    ask = mine.ask_for_more(first, calls(1))
    assert ask in tenant.pools[0].waiters
    end(mine, second, 1)  # now the tenant has room; at the runtime somebody came earlier
    assert answers(blocked, ask) == [None, None]
    assert root.pools[0].waiters == [blocked, ask]
    end(its, theirs, 0)
    assert answers(blocked, ask) == [True, True]
    for pool in (*tenant.pools, *other.pools):
        pool.check()


@pytest.mark.parametrize("spent", [0, 1])
def test_an_ask_that_was_denied_stays_denied(spent: int) -> None:
    book = a_book(3)
    lease, other = granted(book, 0), granted(book, 1)
    ask = book.ask_for_more(lease, calls(3))
    assert answers(ask) == [False], "1 + 3 is more than 3"
    end(book, other, spent)
    ask.withdraw()
    assert answers(ask) == [False]
    assert lease.cap == exact(calls(1))


def test_a_hopeless_ask_is_denied_at_once_behind_others_too() -> None:
    book = a_book(5)
    first, second, third = (granted(book, index) for index in range(3))
    waits = book.ask_for_more(first, calls(3))
    hopeless = book.ask_for_more(second, calls(5))
    assert answers(waits, hopeless) == [None, False]
    end(book, third, 0)
    assert answers(waits) == [True]


def test_who_leaves_the_queue_lets_the_next_go() -> None:
    book = a_book(6)
    first, second, third = (granted(book, index) for index in range(3))
    big = book.ask_for_more(first, calls(5))
    small = book.ask_for_more(second, calls(1))
    assert answers(big, small) == [None, None]
    big.withdraw()
    assert answers(big, small) == [False, True]
    end(book, third, 1)


def test_the_answer_is_told_once() -> None:
    book = a_book(2)
    first, second = granted(book, 0), granted(book, 1)
    told: list[bool | None] = []
    ask = book.ask_for_more(first, calls(1))
    ask.on_answer = lambda: told.append(ask.granted)
    assert told == []
    end(book, second, 0)
    ask.withdraw()
    end(book, first, 2)
    assert told == [True]


def test_a_frozen_book_has_nobody_waiting() -> None:
    book = a_book(1)
    lease = granted(book, 0)
    ask = book.ask_for_lease(1)
    with pytest.raises(AssertionError, match="waits"):
        book.freeze()
    ask.withdraw()
    end(book, lease, 1)
    book.freeze()


def test_what_is_set_aside_is_a_lease_and_does_not_wait() -> None:
    account = Account("runtime", Budget(model_calls=3))
    book = a_book(account=account)
    account.begin(book)
    candidate = granted(book, 0)
    assert book.set_aside(exact(calls(3))) is None, "there are 2 left"
    aside = book.set_aside(exact(calls(2)))
    assert aside is not None
    assert book.reserve(1) is None
    book.record(aside, "generating", calls(1))
    book.settle(aside, generated=True, scored=False, cut=False)
    assert account.remaining().model_calls == 1
    granted(book, 1)
    end(book, candidate, 1)
    account.check()
    book.check()


def test_a_nested_book_draws_on_the_lease_and_gives_it_back() -> None:
    account = Account("runtime", Budget(model_calls=9))
    book = a_book(account=account, each=4)
    outer = granted(book, 0)
    pool = book.pool_of(outer)
    nested = Book((), Rates.of(exact(calls(2)), exact(Usage())), (pool,))
    pool.books.append(("generating", nested))
    first, second = granted(nested, 0), granted(nested, 1)
    third = nested.ask_for_lease(2)
    assert answers(third) == [None]
    end(nested, first, 1)
    assert answers(third) == [None], "1 + 2 + 2 is more than 4"
    end(nested, second, 1)
    assert answers(third) == [True]
    assert account.remaining().model_calls == 5, "the outer lease, and nothing else"
    assert third.lease is not None
    end(nested, third.lease, 2)
    settled = book.settle(outer, generated=True, scored=False, cut=False)
    assert settled is not None
    assert settled.charged == exact(calls(4))
    assert account.remaining().model_calls == 5
