"""What a job may say of batches, and how the answer of a batch scorer is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from hortator import BatchScorer, BestOfN, HortatorError, InvalidJob, Score, plurality_vote
from hortator.protocols.batch import items_of, read_batch
from hortator.protocols.errors import InvalidScore


async def generate(request: str, ctx: object) -> str:
    raise AssertionError("a callback ran while the job was being written")


async def score(request: str, candidate: object, ctx: object) -> float:
    raise AssertionError("a callback ran while the job was being written")


async def many(request: str, candidates: object, ctx: object) -> list[float]:
    raise AssertionError("a callback ran while the job was being written")


def refused(make: Callable[..., Any], **options: Any) -> str:
    """The message of the refusal."""
    with pytest.raises(InvalidJob) as caught:
        make(**options)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, HortatorError)
    return str(caught.value)


def a_job(**options: Any) -> BestOfN[str, str]:
    return BestOfN(**{"generate": generate, "score": score, **options})


# -- batch scorers -------------------------------------------------------------------------------


def test_a_batch_scorer_is_written_with_its_callback_alone() -> None:
    scorer = BatchScorer(many)
    assert (scorer.fn, scorer.size, scorer.together, scorer.reserve) == (many, None, False, None)
    assert a_job(score=scorer).score is scorer
    assert BatchScorer(many, 8).size == 8
    assert BatchScorer(many, together=True, reserve=0).reserve == 0


@pytest.mark.parametrize("size", [0, -1, True, 2.0, "3", math.nan])
def test_a_size_is_a_whole_number_from_1_up(size: Any) -> None:
    message = refused(BatchScorer, fn=many, size=size)
    assert f"size={size!r}" in message
    assert "size=8" in message


@pytest.mark.parametrize("together", [0, 1, None, "yes"])
def test_together_is_true_or_false(together: Any) -> None:
    assert "True or False" in refused(BatchScorer, fn=many, together=together)


def test_everything_in_one_call_has_no_size() -> None:
    assert "has no size" in refused(BatchScorer, fn=many, size=4, together=True)


@pytest.mark.parametrize("reserve", [-1, -0.1, math.inf, math.nan, True, "2", 10**400])
def test_a_reserve_is_seconds_from_0_up(reserve: Any) -> None:
    message = refused(BatchScorer, fn=many, together=True, reserve=reserve)
    assert "seconds from 0 up" in message


def test_a_reserve_is_for_one_call_with_everything() -> None:
    assert "together=True" in refused(BatchScorer, fn=many, reserve=1.0)


@pytest.mark.parametrize("reserve", [2.0, 3.0])
def test_a_reserve_leaves_time_to_generate(reserve: float) -> None:
    scorer = BatchScorer(many, together=True, reserve=reserve)
    assert "no time to generate" in refused(a_job, score=scorer, timeout=2.0)
    a_job(score=scorer, timeout=3.5)
    a_job(score=scorer)
    a_job(score=scorer, timeout=0)  # everything is skipped anyway


def _two(request: Any, candidates: Any) -> list[float]:
    return []


async def _yields(request: Any, candidates: Any, ctx: Any) -> Any:
    yield 1.0


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (_two, "fn takes (request"),
        (_yields, "async generator function"),
        (None, "not callable"),
        (7, "not callable"),
    ],
)
def test_a_callback_that_cannot_work_is_refused(fn: Any, told: str) -> None:
    message = refused(BatchScorer, fn=fn)
    assert told in message
    assert "async def fn(request, candidates, ctx)" in message


def test_a_coroutine_in_its_place_is_refused() -> None:
    assert "pass the function itself" in refused(BatchScorer, fn=many("q", (), None))


# -- jobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "3", math.nan])
def test_so_many_scoring_calls_are_a_whole_number_from_1_up(value: Any) -> None:
    message = refused(a_job, score_concurrency=value)
    assert message.startswith(f"score_concurrency={value!r}")
    assert "such as score_concurrency=4" in message


async def _async_key(output: Any) -> int:
    return 0


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (_async_key, "score_once is async"),
        (lambda: 0, "score_once takes ()"),
        (lambda output, ctx: 0, "score_once takes (output, ctx)"),
        ("key", "not callable"),
    ],
)
def test_a_key_that_cannot_work_is_refused(key: Any, told: str) -> None:
    assert told in refused(a_job, score_once=key)


@pytest.mark.parametrize("option", [{"score_concurrency": 2}, {"score_once": str}])
def test_without_a_scorer_nothing_is_said_of_scoring(option: dict[str, Any]) -> None:
    vote = plurality_vote(key=str)
    assert a_job(score=None, select=vote).score is None
    assert "of no use: write score=your_scorer" in refused(a_job, score=None, select=vote, **option)


def test_what_is_right_is_taken() -> None:
    assert a_job(score_once=str, score_concurrency=2).score_once is str
    assert a_job().score_concurrency is None


# -- answers -------------------------------------------------------------------------------------


class Items:
    """A sequence in all but name, or one that breaks while it is read."""

    def __init__(self, *items: Any) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, position: int) -> Any:
        item = self._items[position]
        if isinstance(item, Exception):
            raise item
        return item


@pytest.mark.parametrize("answer", [[1.0, 2.0], (1.0, 2.0), Items(1.0, 2.0)])
def test_sequences_are_answers(answer: Any) -> None:
    assert items_of(answer) == [1.0, 2.0]


def test_ranges_are_answers() -> None:
    assert items_of(range(3)) == [0, 1, 2]


@pytest.mark.parametrize(
    "answer",
    [None, 1.0, "12", b"12", bytearray(b"12"), {}, {0: 1.0}, {1.0}, Score(1.0), iter([1.0]), list],
)
def test_everything_else_is_none(answer: Any) -> None:
    with pytest.raises(InvalidScore, match="return a list with a number or Score for each"):
        items_of(answer)


def test_an_answer_that_breaks_while_it_is_read_is_none() -> None:
    mine = ZeroDivisionError("mine")
    with pytest.raises(InvalidScore, match="no sequence") as caught:
        items_of(Items(1.0, mine))
    assert caught.value.__cause__ is mine


def test_each_score_is_read_apart() -> None:
    rich = Score(2.0, rationale="why")
    first, second, third, fourth = read_batch([1, rich, math.nan, "x"], 4)
    assert (first, second) == (Score(1.0), rich)
    assert isinstance(third, InvalidScore)
    assert isinstance(fourth, InvalidScore)


@pytest.mark.parametrize("wanted", [0, 1, 3])
def test_the_length_is_that_of_the_candidates(wanted: int) -> None:
    with pytest.raises(InvalidScore, match=f"returned 2 scores for {wanted} candidates"):
        read_batch([1.0, 2.0], wanted)
