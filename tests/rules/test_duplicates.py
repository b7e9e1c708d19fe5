"""Which candidates share one scoring, and who is scored when the first one is lost."""

from __future__ import annotations

import itertools
import math
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from hortator import Score, Status, Usage
from hortator.protocols.attempt import Attempt
from hortator.protocols.duplicates import Duplicates, Group

_numbers = itertools.count()


def an_attempt() -> Attempt:
    return Attempt(next(_numbers), None, None, None, 0.0, None)  # type: ignore[arg-type]


@attrs.define
class Asked:
    """Keeps who was to be scored next, and after whom."""

    pairs: list[tuple[Attempt, Attempt]] = attrs.Factory(list)

    def __call__(self, following: Attempt, lost: Attempt) -> None:
        self.pairs.append((following, lost))


def grouped(*keys: Any) -> list[int]:
    """For each key, the number of its group, counted in the order of their coming."""
    duplicates = Duplicates(lambda key: key, Asked())
    groups: list[Group] = []
    for key in keys:
        group = duplicates.find(key)
        if not any(group is known for known in groups):
            groups.append(group)
    return [
        next(i for i, known in enumerate(groups) if known is duplicates.find(key)) for key in keys
    ]


def test_equal_keys_are_one_group() -> None:
    assert grouped("a", "b", "a", 1, 1.0, True, None, None) == [0, 1, 0, 2, 2, 2, 3, 3]


def test_keys_without_a_hash_are_one_group_if_they_are_equal() -> None:
    assert grouped([1], [2], [1], {"a": 1}, {"a": 1}) == [0, 1, 0, 2, 2]


@given(st.lists(st.integers(0, 5)), st.booleans())
def test_groups_are_those_of_a_dict(keys: list[int], hashable: bool) -> None:
    known: dict[int, int] = {}
    expected = [known.setdefault(key, len(known)) for key in keys]
    assert grouped(*(key if hashable else [key] for key in keys)) == expected


def test_what_is_no_number_equals_nothing() -> None:
    assert grouped([math.nan], [float("nan")]) == [0, 1]


@pytest.mark.parametrize("error", [ValueError, TypeError, KeyError])
def test_what_a_key_raises_is_raised(error: type[Exception]) -> None:
    def key(output: Any) -> Any:
        raise error("mine")

    with pytest.raises(error, match="mine"):
        Duplicates(key, Asked()).find("x")


# -- one group -----------------------------------------------------------------------------------


def a_group(count: int) -> tuple[Group, list[Attempt], Asked]:
    asked = Asked()
    group = Group("key", asked)
    attempts = [an_attempt() for _ in range(count)]
    for attempt in attempts:
        group.join(attempt)
    return group, attempts, asked


def end(group: Group, attempt: Attempt, status: Status, *, detached: bool = False) -> None:
    attempt.status, attempt.ended, attempt.detached = status, True, detached
    group.ended(attempt)


def test_the_first_is_scored_and_the_others_wait() -> None:
    group, (first, second, third), _ = a_group(3)
    assert (group.first, group.waiting) == (first, [second, third])


@pytest.mark.parametrize("status", [Status.ELIGIBLE, Status.REJECTED])
def test_who_waited_is_told_once_with_the_score_less_its_usage(status: Status) -> None:
    group, (first, second, third), asked = a_group(3)
    end(group, first, status)
    score = Score(1.0, rationale="why", usage=Usage(total_tokens=3))
    assert group.share(first, score) == [second, third]
    assert group.score == Score(1.0, rationale="why")
    assert group.share(first, score) == []
    assert asked.pairs == []


def test_who_comes_later_neither_waits_nor_is_scored() -> None:
    group, (first, *_), _ = a_group(1)
    group.share(first, Score(1.0))
    assert group.join(an_attempt()) is False
    assert group.waiting == []


@pytest.mark.parametrize(
    "status",
    [
        Status.SCORING_FAILED,
        Status.BUDGET_EXCEEDED,
        Status.CANCELLED,
        Status.TIMED_OUT,
        Status.SIDE_EFFECT_BLOCKED,
    ],
)
def test_a_first_one_that_is_lost_is_followed_by_the_next_in_flight(status: Status) -> None:
    group, (first, second, third), asked = a_group(3)
    end(group, second, Status.TIMED_OUT)
    assert asked.pairs == [], "somebody who waited was taken for the first one"
    end(group, first, status)
    assert asked.pairs == [(third, first)]
    assert (group.first, group.waiting) == (third, [])


def test_a_first_one_that_is_detached_is_lost() -> None:
    group, (first, second), asked = a_group(2)
    first.detached = first.ended = True
    first.status = Status.SCORING
    group.ended(first)
    assert asked.pairs == [(second, first)]


def test_when_all_are_lost_the_next_to_come_is_the_first() -> None:
    group, (first,), asked = a_group(1)
    end(group, first, Status.SCORING_FAILED)
    assert (group.first, asked.pairs) == (None, [])
    another = an_attempt()
    assert group.join(another) is True
    assert group.first is another
