"""One absolute deadline for the whole run, and one grace in two shares.

A deadline of a scope around the caller counts too, less a margin, so that the run still returns
inside that scope; and whatever is added up, it never reaches past it.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from hortator.protocols.deadlines import grace_from, window

NEVER = math.inf

moments = st.floats(0, 1e6)
spans = st.floats(0, 1e4)


def test_without_any_limit_there_is_no_deadline() -> None:
    plan = window(5.0, None, NEVER, 0.25)
    assert (plan.deadline, plan.outer, plan.room) == (NEVER, False, NEVER)


def test_the_jobs_timeout_counts_from_the_start() -> None:
    plan = window(5.0, 2.0, NEVER, 0.25)
    assert (plan.deadline, plan.outer) == (7.0, False)


def test_an_outer_deadline_keeps_a_grace_back() -> None:
    plan = window(0.0, None, 10.0, 0.25)
    assert (plan.deadline, plan.outer) == (9.75, True)


def test_of_a_short_outer_deadline_no_more_than_a_tenth_is_kept_back() -> None:
    plan = window(0.0, None, 1.0, 0.25)
    assert (plan.deadline, plan.outer) == (0.9, True)


def test_the_earlier_of_the_two_counts_and_says_whose_it_is() -> None:
    assert not window(0.0, 0.5, 1.0, 0.25).outer
    assert window(0.0, 0.95, 1.0, 0.25).outer, "its own 0.95 s end after the margin"
    assert window(0.0, 0.95, 1.0, 0.25).deadline == 0.9


def test_an_outer_deadline_that_has_passed_is_now() -> None:
    plan = window(5.0, None, 4.0, 0.25)
    assert (plan.deadline, plan.outer, plan.room) == (5.0, True, 0.0)


@given(moments, st.none() | spans, spans, st.floats(0, 10))
def test_the_run_and_its_grace_end_inside_the_outer_scope(
    now: float, timeout: float | None, left: float, grace: float
) -> None:
    outer = now + left
    plan = window(now, timeout, outer, grace)
    assert now <= plan.deadline <= outer
    if timeout is not None:
        assert plan.deadline <= now + timeout
    end = grace_from(plan.deadline, grace, plan.room, 64)
    assert end.until <= outer, "the grace reaches past the scope around the caller"


def test_four_fifths_of_the_grace_are_for_work_and_the_rest_for_delivery() -> None:
    end = grace_from(10.0, 0.25, NEVER, 4)
    assert end.begins == 10.0
    assert end.work_until == pytest.approx(10.2)
    assert end.until == pytest.approx(10.25)


def test_very_many_in_flight_get_a_hundred_microseconds_each() -> None:
    assert grace_from(0.0, 0.25, NEVER, 2500).until == pytest.approx(0.25)
    assert grace_from(0.0, 0.25, NEVER, 10_000).until == pytest.approx(1.0)


def test_no_grace_is_longer_than_the_room_that_an_outer_scope_leaves() -> None:
    assert grace_from(0.0, 0.25, 0.1, 10_000).until == pytest.approx(0.1)
    assert grace_from(3.0, 0.25, 0.0, 8).until == 3.0


@given(moments, st.floats(0, 10), st.floats(0, 10) | st.just(NEVER), st.integers(0, 100_000))
def test_the_shares_are_in_order(begins: float, grace: float, room: float, flying: int) -> None:
    end = grace_from(begins, grace, room, flying)
    assert begins == end.begins <= end.work_until <= end.until <= begins + max(grace, 10.0)


# -- a window that is moved ----------------------------------------------------------------------


def test_a_window_is_moved_by_so_many_seconds() -> None:
    plan = window(5.0, 2.0, NEVER, 0.25).extended(1.5)
    assert (plan.deadline, plan.outer, plan.room) == (8.5, False, NEVER)


def test_a_window_without_a_deadline_has_none_afterwards() -> None:
    assert window(5.0, None, NEVER, 0.25).extended(1.0).deadline == NEVER


@given(moments, spans, spans, st.floats(0, 10), st.lists(st.floats(1e-3, 1e4), min_size=1))
def test_no_extension_gets_past_the_margin_before_the_outer_end(
    now: float, timeout: float, left: float, grace: float, steps: list[float]
) -> None:
    outer = now + left
    plan, most = window(now, timeout, outer, grace), window(now, None, outer, grace)
    for seconds in steps:
        before, plan = plan, plan.extended(seconds)
        assert before.deadline <= plan.deadline <= most.deadline
        assert plan.outer == (before.deadline + seconds > most.deadline)
        end = grace_from(plan.deadline, grace, plan.room, 64)
        assert end.until <= max(outer, plan.deadline)
    assert plan.deadline == pytest.approx(min(now + timeout + sum(steps), most.deadline))
