"""The ledger's rules, case by case: reserve, spend, settle.

What is reserved is never promised twice; what was spent is recorded whatever the lease says;
every lease is settled exactly once; and no single report can poison the others. The machine
in test_ledger_machine.py takes random walks through the same rules.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from hortator import Budget, InvalidJob, LeaseExceeded, Usage, UsageReport
from hortator.protocols.budget import limits_of
from hortator.protocols.ledger import Book, Lease, Phase, Rates
from hortator.protocols.usage import MOST, NOTHING, Malformed, exact
from tests.rules.asks import top_up

ONE_CALL = Usage(model_calls=1)


def a_book(
    budget: Budget | None = None,
    *,
    generation: Usage | None = None,
    scoring: Usage | None = None,
) -> Book:
    rates = Rates.of(exact(generation or ONE_CALL), exact(scoring or Usage()))
    return Book(limits_of(budget or Budget()), rates)


def granted(book: Book, candidate: int = 0) -> Lease:
    lease = book.reserve(candidate)
    assert lease is not None, "the reservation was denied"
    return lease


def settled(
    book: Book, lease: Lease, *, generated: bool = True, scored: bool = True, cut: bool = False
) -> UsageReport:
    book.settle(lease, generated=generated, scored=scored, cut=cut)
    book.check()
    return book.report()


# -- reserve -------------------------------------------------------------------------------------


def test_a_lease_covers_generation_and_scoring_together() -> None:
    book = a_book(generation=Usage(total_tokens=30), scoring=Usage(total_tokens=12))
    granted(book)
    assert book.report().outstanding == Usage(total_tokens=42)


def test_w_bon_24_of_two_that_ask_with_room_for_one_exactly_one_is_admitted() -> None:
    book = a_book(Budget(model_calls=1))
    assert [book.reserve(0) is None, book.reserve(1) is None] == [False, True]
    book.check()


def test_a_denied_reservation_reserves_nothing_in_any_dimension() -> None:
    book = a_book(
        Budget(model_calls=10, total_tokens=50), generation=Usage(model_calls=1, total_tokens=30)
    )
    lease = granted(book)
    assert book.reserve(1) is None, "60 of 50 tokens were promised"
    assert book.report().outstanding == Usage(model_calls=1, total_tokens=30)
    assert top_up(book, lease, Usage(model_calls=9, total_tokens=20)), "the denied one holds some"


def test_an_amount_that_fits_exactly_is_granted() -> None:
    book = a_book(Budget(total_tokens=60), generation=Usage(total_tokens=30))
    assert book.reserve(0) is not None
    assert book.reserve(1) is not None
    assert book.reserve(2) is None


def test_money_is_compared_without_rounding() -> None:
    book = a_book(Budget(cost="0.3"), generation=Usage(cost="0.1"))
    assert [book.reserve(i) is not None for i in range(4)] == [True, True, True, False]


def test_what_was_settled_counts_against_the_limit_and_what_was_not_used_is_free_again() -> None:
    book = a_book(Budget(total_tokens=60), generation=Usage(total_tokens=30))
    lease = granted(book)
    book.record(lease, "generating", Usage(total_tokens=5))
    settled(book, lease)
    second = granted(book)
    assert not top_up(book, second, Usage(total_tokens=26)), "5 + 30 + 26 of 60"
    assert top_up(book, second, Usage(total_tokens=25)), "the 25 that were not used are not free"


# -- top up --------------------------------------------------------------------------------------


def test_a_top_up_widens_the_lease_in_all_dimensions_or_changes_nothing() -> None:
    book = a_book(Budget(model_calls=5, total_tokens=100), generation=Usage(total_tokens=40))
    lease = granted(book)
    assert top_up(book, lease, Usage(model_calls=1, total_tokens=60))
    before = book.report().outstanding
    assert not top_up(book, lease, Usage(model_calls=1, total_tokens=1)), "no token is left"
    assert book.report().outstanding == before == Usage(model_calls=1, total_tokens=100)
    book.check()


@pytest.mark.parametrize(
    "usage",
    [Usage(model_calls=-1), Usage(total_tokens=1.0), Usage(cost="nan"), Usage(cost="-1")],  # type: ignore[arg-type]
)
def test_a_malformed_top_up_is_refused_with_a_hint(usage: Usage) -> None:
    book = a_book()
    lease = granted(book)
    with pytest.raises(InvalidJob, match=r"reserve\(\) was asked for .*from 0 up"):
        top_up(book, lease, usage)
    assert book.report().outstanding == ONE_CALL


def test_a_settled_lease_cannot_be_widened() -> None:
    book = a_book()
    lease = granted(book)
    settled(book, lease)
    assert not top_up(book, lease, ONE_CALL)
    assert book.report().outstanding == Usage()


# -- spend ---------------------------------------------------------------------------------------


def test_w_bud_18_equality_is_allowed_and_beyond_it_is_recorded_and_refused() -> None:
    book = a_book(Budget(total_tokens=30), generation=Usage(total_tokens=30))
    lease = granted(book)
    book.charge(lease, "generating", Usage(total_tokens=30))
    with pytest.raises(LeaseExceeded, match=r"60 total_tokens.*covers 30.*ctx\.reserve"):
        book.charge(lease, "generating", Usage(total_tokens=30))
    assert settled(book, lease).charged == Usage(total_tokens=60)


def test_what_has_no_limit_has_no_cap() -> None:
    book = a_book(Budget(model_calls=3))
    lease = granted(book)
    book.charge(lease, "generating", Usage(total_tokens=10**12))


def test_both_phases_share_one_cap() -> None:
    book = a_book(
        Budget(total_tokens=30), generation=Usage(total_tokens=20), scoring=Usage(total_tokens=10)
    )
    lease = granted(book)
    book.charge(lease, "generating", Usage(total_tokens=25))
    with pytest.raises(LeaseExceeded):
        book.charge(lease, "scoring", Usage(total_tokens=6))


def test_money_in_the_message_of_an_exceeded_lease_is_in_dollars() -> None:
    book = a_book(Budget(cost=1), generation=Usage(cost="0.50"))
    lease = granted(book)
    with pytest.raises(LeaseExceeded) as caught:
        book.charge(lease, "generating", Usage(cost="0.75"))
    message = str(caught.value)
    assert "0.75" in message, message
    assert "0.5" in message.replace("0.75", ""), message


def test_overspending_leaves_the_others_what_they_were_promised() -> None:
    book = a_book(Budget(model_calls=3))
    spender, other = granted(book, 0), granted(book, 1)
    with pytest.raises(LeaseExceeded):
        book.charge(spender, "generating", Usage(model_calls=9))
    assert settled(book, spender).charged.model_calls == 9
    book.charge(other, "generating", ONE_CALL)  # its own lease still holds
    assert book.reserve(2) is None, "the run's spend is past its limit: nobody else starts"


# -- settle --------------------------------------------------------------------------------------


def test_w_bud_16_a_missing_report_is_charged_at_the_estimate_and_marked() -> None:
    book = a_book(generation=Usage(total_tokens=40), scoring=Usage(total_tokens=2))
    report = settled(book, granted(book))
    assert report.charged == Usage(total_tokens=42)
    assert report.reported == Usage()
    assert report.estimated == 1


def test_each_phase_is_estimated_by_itself() -> None:
    book = a_book(generation=Usage(total_tokens=40), scoring=Usage(total_tokens=2))
    lease = granted(book)
    book.record(lease, "generating", Usage(total_tokens=7))
    report = settled(book, lease)
    assert report.charged == Usage(total_tokens=7 + 2)
    assert report.reported == Usage(total_tokens=7)
    assert report.estimated == 1


def test_a_reported_zero_is_a_report() -> None:
    book = a_book(generation=Usage(total_tokens=40))
    lease = granted(book)
    book.record(lease, "generating", Usage())
    report = settled(book, lease)
    assert (report.charged, report.estimated) == (Usage(), 0)


def test_a_phase_that_never_ran_costs_nothing() -> None:
    book = a_book(generation=Usage(total_tokens=40), scoring=Usage(total_tokens=2))
    report = settled(book, granted(book, 0), generated=False, scored=False)
    assert (report.charged, report.estimated) == (Usage(), 0)
    report = settled(book, granted(book, 1), generated=True, scored=False)
    assert report.charged == Usage(total_tokens=40)


def test_w_bud_21_failed_work_is_charged_what_it_reported() -> None:
    book = a_book(generation=Usage(total_tokens=40))
    lease = granted(book)
    book.record(lease, "generating", Usage(total_tokens=9))
    assert settled(book, lease, scored=False).charged == Usage(total_tokens=9)


def test_w_bud_22_what_was_charged_survives_a_cut_and_a_cut_phase_costs_at_least_its_estimate() -> (
    None
):
    book = a_book(generation=Usage(total_tokens=40))
    early, late = granted(book, 0), granted(book, 1)
    book.record(early, "generating", Usage(total_tokens=10))
    book.record(late, "generating", Usage(total_tokens=50))
    settled(book, early, scored=False, cut=True)
    report = settled(book, late, scored=False, cut=True)
    assert report.reported == Usage(total_tokens=10 + 50)
    assert report.charged == Usage(total_tokens=40 + 50)
    assert report.estimated == 1


def test_a_cut_in_scoring_leaves_the_ended_generation_at_its_report() -> None:
    book = a_book(generation=Usage(total_tokens=40), scoring=Usage(total_tokens=5))
    lease = granted(book)
    book.record(lease, "generating", Usage(total_tokens=3))
    book.record(lease, "scoring", Usage(total_tokens=1))
    assert settled(book, lease, cut=True).charged == Usage(total_tokens=3 + 5)


def test_b43_the_second_settlement_is_counted_and_changes_nothing() -> None:
    book = a_book()
    lease = granted(book)
    assert book.settle(lease, generated=True, scored=True, cut=False) is not None
    before = book.report()
    assert book.settle(lease, generated=True, scored=True, cut=True) is None
    after = book.report()
    assert (before.double_settlements, after.double_settlements) == (0, 1)
    assert (after.charged, after.outstanding) == (before.charged, before.outstanding)
    book.check()


def test_a_lease_of_another_book_is_not_settled_here() -> None:
    ours, theirs = a_book(), a_book()
    kept, foreign = granted(ours), granted(theirs)
    assert ours.settle(foreign, generated=True, scored=True, cut=False) is None
    assert ours.report().outstanding == ONE_CALL, "the lease of the same number was closed"
    assert ours.settle(kept, generated=True, scored=True, cut=False) is not None


# -- malformed reports ---------------------------------------------------------------------------

MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"total_tokens": -5}, "total_tokens=-5"),
    ({"model_calls": True}, "model_calls=True"),
    ({"output_tokens": 1.5}, "output_tokens=1.5"),
    ({"input_tokens": MOST + 1}, f"input_tokens={MOST + 1}"),
    ({"cost": math.nan}, "cost=NaN"),
    ({"cost": math.inf}, "cost=Infinity"),
    ({"cost": "-0.01"}, "cost=-0.01"),
    ({"cost": "1e999999"}, "cost=1E+999999"),
]


@pytest.mark.parametrize("phase", ["generating", "scoring"])
@pytest.mark.parametrize(("fields", "what"), MALFORMED)
def test_a_malformed_report_is_quarantined_and_the_estimate_stands(
    phase: Phase, fields: dict[str, Any], what: str
) -> None:
    book = a_book(
        Budget(total_tokens=1000), generation=Usage(total_tokens=40), scoring=Usage(total_tokens=2)
    )
    lease = granted(book, candidate=6)
    book.charge(lease, phase, Usage(**fields))  # must not raise: one report poisons nothing
    report = settled(book, lease)
    assert report.malformed == (Malformed(6, what),)
    assert report.charged == Usage(total_tokens=42)
    assert (report.reported, report.estimated) == (Usage(), 1)


def test_a_phase_with_one_true_and_one_malformed_report_costs_at_least_its_estimate() -> None:
    book = a_book(generation=Usage(total_tokens=40))
    lease = granted(book)
    book.record(lease, "generating", Usage(total_tokens=1))
    book.record(lease, "generating", Usage(total_tokens=-1))
    report = settled(book, lease)
    assert report.reported == Usage(total_tokens=1)
    assert report.charged == Usage(total_tokens=40), "who knows what the malformed one stood for?"
    assert report.estimated == 1


# -- saturation ----------------------------------------------------------------------------------


def test_w_bon_47_w_bud_19_sums_of_the_largest_amounts_stop_instead_of_wrapping() -> None:
    book = a_book(generation=Usage())
    for candidate in range(2):
        lease = granted(book, candidate)
        book.record(lease, "generating", Usage(total_tokens=MOST, cost=Decimal(MOST) / 10**9))
        settled(book, lease)
    report = book.report()
    for view in (report.charged, report.reported):
        assert (view.total_tokens, view.cost) == (MOST, Decimal(MOST) / 10**9)


def test_w_bon_24_a_reservation_that_would_overflow_is_denied_though_nothing_is_limited() -> None:
    book = a_book(generation=Usage(total_tokens=MOST))
    lease = granted(book)
    assert book.reserve(1) is None
    assert not top_up(book, lease, Usage(total_tokens=1))
    assert book.report().outstanding == Usage(total_tokens=MOST)
    settled(book, lease, generated=False, scored=False)
    assert book.report().outstanding == Usage()
    assert book.reserve(1) is not None, "a residue of the first lease is in the way"


# -- the end of a book ----------------------------------------------------------------------------


def test_a_frozen_book_grants_nothing() -> None:
    book = a_book(Budget(model_calls=9))
    settled(book, granted(book))
    book.freeze()
    with pytest.raises(AssertionError, match="6"):
        book.reserve(0)


def test_a_book_takes_over_the_totals_of_another() -> None:
    run, runtime = a_book(generation=Usage(total_tokens=40)), Book()
    settled(run, granted(run))
    lease = granted(run)
    run.record(lease, "generating", Usage(total_tokens=1))
    settled(run, lease)
    runtime.absorb(run)
    runtime.absorb(run)
    report = runtime.report()
    assert report.charged == Usage(total_tokens=82)
    assert report.reported == Usage(total_tokens=2)
    assert report.estimated == 2


def test_the_bare_book_has_no_limits_and_estimates_nothing() -> None:
    book = Book()
    lease = granted(book)
    assert lease.cap == NOTHING
    assert settled(book, lease) == UsageReport()


def test_a_lease_that_rests_is_not_counted_as_waiting_any_more_once_it_is_settled() -> None:
    one_call = Rates.of(exact(Usage(model_calls=1)), NOTHING)
    book = Book((), one_call)
    lease = book.reserve(0)
    assert lease is not None
    book.rest(lease)
    assert (book.waiting, book.working) == (1, 0)
    book.settle(lease, generated=True, scored=True, cut=False)
    assert (book.waiting, book.working) == (0, 0)
    book.check()
