"""Leases of work that outlives its run: they move to the runtime's book in one step.

Here they stay shown as outstanding, for ever, since the run's book is frozen; there they are
settled whenever the work ends, by the rates that they were granted under.
"""

from __future__ import annotations

from hortator import Usage
from hortator.protocols.ledger import Book, Lease, Rates
from hortator.protocols.usage import MOST, exact

ONE_CALL = Usage(model_calls=1)


def a_book(*, generation: Usage = ONE_CALL) -> Book:
    return Book((), Rates.of(exact(generation), exact(Usage())))


def granted(book: Book, candidate: int = 0) -> Lease:
    lease = book.reserve(candidate)
    assert lease is not None, "the reservation was denied"
    return lease


def test_w_bon_48_49_a_moved_lease_is_outstanding_here_and_settled_there() -> None:
    generation = Usage(model_calls=1, total_tokens=50, cost="0.25")
    book, runtime = a_book(generation=generation), Book()
    done, hung = granted(book, 0), granted(book, 1)
    book.record(done, "generating", Usage(model_calls=3))
    book.settle(done, generated=True, scored=True, cut=False)
    book.move(hung, runtime)
    book.freeze()
    book.check()
    runtime.check()
    report = book.report()
    assert report.charged == Usage(model_calls=3)
    assert report.outstanding == generation
    assert runtime.report().outstanding == generation

    runtime.record(hung, "generating", Usage(model_calls=2))
    runtime.settle(hung, generated=True, scored=False, cut=False)
    runtime.check()
    assert book.report() == report, "the frozen book changed"
    assert runtime.report().outstanding == Usage()
    assert runtime.report().charged == Usage(model_calls=2)


def test_a_moved_lease_that_never_reports_is_charged_its_own_estimate() -> None:
    book, runtime = a_book(generation=Usage(total_tokens=50)), Book()
    lease = granted(book)
    book.move(lease, runtime)
    runtime.settle(lease, generated=True, scored=False, cut=True)
    assert runtime.report().charged == Usage(total_tokens=50)
    assert runtime.report().estimated == 1


def test_a_moved_lease_cannot_be_settled_by_the_book_it_left() -> None:
    book, runtime = a_book(), Book()
    lease = granted(book)
    book.move(lease, runtime)
    assert book.settle(lease, generated=True, scored=True, cut=False) is None
    assert book.report().charged == Usage()
    assert runtime.report().outstanding == ONE_CALL


def test_the_largest_leases_of_two_runs_saturate_in_the_runtimes_book() -> None:
    runtime = Book()
    leases: list[Lease] = []
    for _ in range(2):
        run = a_book(generation=Usage(total_tokens=MOST))
        leases.append(granted(run))
        run.move(leases[-1], runtime)
        runtime.check()
    assert runtime.report().outstanding.total_tokens == MOST
    for lease in leases:
        runtime.settle(lease, generated=False, scored=False, cut=False)
        runtime.check()
    assert runtime.report().outstanding == Usage()
