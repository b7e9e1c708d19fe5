"""B52, B53, B55, B57: no bad score wins or spoils the others, and a failure is no winner.

Virtual time throughout.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
import pytest
import trio
from trio.testing import MockClock

from hortator import (
    Budget,
    NoEligibleCandidate,
    Score,
    Usage,
    best_of_n,
    first_accepted,
    open_runtime,
    target,
)
from hortator.protocols.errors import InvalidScore
from tests.field_cases.scenes import (
    check_account,
    job_of,
    output_score,
    statuses,
    virtually,
)

# B52: NaN and infinities never win

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, Score])
@pytest.mark.parametrize("objective", ["max", "min"])
def test_B52_nan_and_infinities_lose_in_every_order(
    objective: str, kind: Callable[[float], Any]
) -> None:
    best = 1.0 if objective == "max" else 0.5

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(request[1][ctx.index])
        return kind(request[0][ctx.index])

    async def all_orders() -> None:
        orders = list(itertools.permutations([NAN, 1.0, 0.5, INF, -INF]))
        assert len(orders) == 120
        async with open_runtime() as runtime:
            job = job_of(generate, output_score, n=5, objective=objective)
            for scores, delays in zip(orders, itertools.permutations(range(5)), strict=True):
                result = await runtime.run(job, (scores, delays))
                assert result.selected is not None, scores
                assert result.selected.score.value == best, scores
                for value, candidate in zip(scores, result.candidates, strict=True):
                    if math.isfinite(value):
                        assert candidate.status == "eligible"
                    else:
                        assert candidate.status == "scoring_failed", f"{value} was not flagged"
                        assert isinstance(candidate.error, InvalidScore)
                        assert candidate.score is None
                check_account(result, 5)

    virtually(all_orders)


@pytest.mark.parametrize("bad", [NAN, INF, -INF, np.float64("nan"), Score(INF), Decimal("nan")])
@pytest.mark.parametrize("rule", [first_accepted(), target(-1e308)])
async def test_B52_they_do_not_meet_a_stopping_rule_either(
    rule: Any, bad: Any, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> Any:
        await trio.sleep(ctx.index)
        return bad if ctx.index < 2 else 0.5

    for objective in ("max", "min"):
        job = job_of(generate, output_score, stop=rule, objective=objective)
        result = await best_of_n(job, "q")
        assert result.selected is not None
        assert result.selected.index == 2
        assert statuses(result) == ["scoring_failed", "scoring_failed", "eligible"]


async def test_B52_what_an_unusable_score_cost_is_charged(autojump_clock: MockClock) -> None:
    async def score(request: str, candidate: Any, ctx: Any) -> Score:
        return Score(NAN, usage=Usage(total_tokens=30))

    async def generate(request: str, ctx: Any) -> str:
        return "answer"

    result = await best_of_n(job_of(generate, score), "q")
    assert statuses(result) == ["scoring_failed"] * 3
    assert result.usage.charged.total_tokens == 90


# B53: when all fail, that is said, with every cause, and the same way each time


class ProviderDown(Exception):
    """What a user's provider raises."""


SHARED = ProviderDown("one instance, raised by all")


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("failing", ["generation", "scoring", "shared error"])
async def test_B53_a_job_whose_candidates_all_fail_fails_the_same_way_each_time(
    failing: str, concurrency: int, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> int:
        await trio.sleep(1)
        if failing == "shared error":
            raise SHARED
        if failing == "generation":
            raise ProviderDown(f"candidate {ctx.index}")
        return int(ctx.index)

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        raise ProviderDown(f"candidate {ctx.index}")

    job = job_of(generate, score, max_concurrency=concurrency, timeout=100.0)
    before = attrs.asdict(job, recurse=False)
    seen: list[object] = []
    async with open_runtime() as runtime:
        for _ in range(3):
            result = await runtime.run(job, "q")
            assert (result.selected, result.stop_reason) == (None, "no_eligible")
            assert not result.partial
            for ask in ("output", "raise_for_status", "output"):
                with pytest.raises(NoEligibleCandidate, match=r"3 .*_failed") as raised:
                    getattr(result, ask)()
                assert len(raised.value.causes) == 3
                assert all(isinstance(cause, ProviderDown) for cause in raised.value.causes)
                assert list(raised.value.causes) == [c.error for c in result.candidates]
            seen.append((statuses(result), result.elapsed, [str(c) for c in raised.value.causes]))
    assert seen[0] == seen[1] == seen[2], "an earlier run changed a later one"
    assert attrs.asdict(job, recurse=False) == before, "the job was changed"


async def test_B53_none_is_an_output_and_no_sign_of_failure(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> None:
        return None

    result = await best_of_n(job_of(generate), "q")
    assert result.raise_for_status() is result
    assert result.output is None
    assert result.selected is not None


async def test_B53_rejected_candidates_are_counted_in_the_message(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: str, ctx: Any) -> float:
        if ctx.index == 0:
            raise ProviderDown("the cause")
        return 0.1

    result = await best_of_n(job_of(generate, output_score, threshold=0.5), "q")
    with pytest.raises(NoEligibleCandidate, match=r"2 rejected.*ProviderDown\('the cause'\)"):
        result.raise_for_status()


# B55: the first good one wins, not the first to end


async def fails(ctx: Any) -> float:
    raise ProviderDown


async def is_below(ctx: Any) -> float:
    return 0.1


async def is_no_number(ctx: Any) -> Any:
    return "0.9"


async def is_nan(ctx: Any) -> float:
    return NAN


async def is_refused(ctx: Any) -> Score:
    return Score(0.9, accepted=False)


async def overspends(ctx: Any) -> float:
    ctx.charge(Usage(total_tokens=150))
    return 0.9


async def writes(ctx: Any) -> float:
    async with ctx.effect("send", "write"):
        return 0.9


async def only_publishes(ctx: Any) -> float:
    ctx.publish(0.95, 0.95)
    raise ProviderDown


@pytest.mark.parametrize("objective", ["max", "min"])
@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (fails, "generation_failed"),
        (is_below, "rejected"),
        (is_no_number, "scoring_failed"),
        (is_nan, "scoring_failed"),
        (is_refused, "rejected"),
        (overspends, "budget_exceeded"),
        (writes, "side_effect_blocked"),
        (only_publishes, "generation_failed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_B55_who_fails_first_wins_nothing_and_cancels_nobody(
    concurrency: int,
    bad: Callable[[Any], Any],
    status: str,
    objective: str,
    autojump_clock: MockClock,
) -> None:
    sign = 1 if objective == "max" else -1

    async def generate(request: str, ctx: Any) -> Any:
        if ctx.index == 0:
            await trio.sleep(0.1)
            value = await bad(ctx)
            if isinstance(value, Score):
                return attrs.evolve(value, value=sign * value.value)
            return value if isinstance(value, str) else sign * value
        await trio.sleep(ctx.index)
        return sign * [None, 0.6, 0.9, 1.0][ctx.index]  # type: ignore[operator]

    job = job_of(
        generate,
        output_score,
        n=4,
        max_concurrency=concurrency,
        stop=first_accepted(),
        threshold=sign * 0.5,
        objective=objective,
        budget=Budget(total_tokens=1000),
        estimate=Usage(total_tokens=100),
    )
    result = await best_of_n(job, "q")
    assert result.selected is not None
    assert result.selected.index == 1, "not the first good one"
    rest = ["cancelled"] * 2 if concurrency == 4 else ["skipped"] * 2
    assert statuses(result) == [status, "eligible", *rest]
    assert (result.stop_reason, result.selected_by) == ("first_accepted", "first_accepted")
    assert not result.partial
    check_account(result, 4)


async def test_B55_without_a_good_one_nobody_wins(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> float:
        raise ProviderDown

    result = await best_of_n(job_of(generate, stop=first_accepted()), "q")
    assert (result.selected, result.stop_reason) == (None, "no_eligible")


def test_B55_of_two_good_ones_at_the_same_instant_one_wins() -> None:
    async def generate(request: str, ctx: Any) -> float:
        await trio.sleep(1)
        if ctx.index == 0:
            raise ProviderDown
        return float(ctx.index)

    async def scene() -> Any:
        return await best_of_n(job_of(generate, output_score, n=5, stop=first_accepted()), "q")

    for _ in range(100):  # whoever the scheduler lets go first
        result = virtually(scene)
        assert result.selected is not None
        assert result.selected.status == "eligible"
        assert statuses(result)[0] in ("generation_failed", "cancelled")
        assert result.stop_reason == "first_accepted"
        check_account(result, 5)


# B57: one bad score spoils one candidate


class Unprintable:
    """An answer that can't even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr either")


class NoFloat(Fraction):
    """A real number whose conversion fails."""

    def __float__(self) -> float:
        raise TypeError("no float")


def raises(error: BaseException) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


ANSWERS: dict[str, Callable[[], Any]] = {
    "text": lambda: "I would give it a 9 of 10",
    "number as text": lambda: "0.9",
    "bytes": lambda: b"0.9",
    "None": lambda: None,
    "pair": lambda: (0.9, "0.9"),
    "list": lambda: [0.9],
    "dict": lambda: {"score": 0.9},
    "complex": lambda: 1 + 0j,
    "numpy complex": lambda: np.complex128(1),
    "numpy date": lambda: np.datetime64("2020"),
    "numpy array": lambda: np.array([0.9, 0.8]),
    "empty array": lambda: np.array([]),
    "numpy function": lambda: np.sum,
    "numpy ufunc": lambda: np.add,
    "numpy type": lambda: np.float64,
    "numpy text": lambda: np.str_("0.9"),
    "too large": lambda: 10**400,
    "too large to print": lambda: 10**5000,
    "large fraction": lambda: Fraction(10**400),
    "bad number": lambda: NoFloat(1, 2),
    "function": lambda: max,
    "class": lambda: Score,
    "not printable": Unprintable,
    "Score of text": lambda: Score("0.9"),  # type: ignore[arg-type]
    "Score of None": lambda: Score(None),  # type: ignore[arg-type]
    "Score of Score": lambda: Score(Score(0.9)),  # type: ignore[arg-type]
    "Score with a bad usage": lambda: Score(99.0, usage={"total_tokens": 5}),  # type: ignore[arg-type]
    "error": raises(ProviderDown()),
    "StopIteration": raises(StopIteration(0.9)),
    "StopAsyncIteration": raises(StopAsyncIteration()),
    "GeneratorExit": raises(GeneratorExit()),
    "group": raises(ExceptionGroup("judges", [ValueError(), OSError()])),
    "own base exception": raises(type("Fatal", (BaseException,), {})()),
}


@pytest.mark.parametrize("bad", ANSWERS)
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_B57_one_bad_answer_of_a_judge_leaves_the_others_ranked(sync: bool, bad: str) -> None:
    # On the real clock, for the sync ones are threads; nothing waits here.
    def judge(request: str, candidate: Any, ctx: Any) -> Any:
        return ANSWERS[bad]() if candidate.index == 2 else [0.1, 0.4, None, 0.3, 0.2][ctx.index]

    async def async_judge(request: str, candidate: Any, ctx: Any) -> Any:
        return judge(request, candidate, ctx)

    async def generate(request: str, ctx: Any) -> str:
        return f"answer {ctx.index}"

    async with open_runtime() as runtime:
        job = job_of(generate, judge if sync else async_judge, n=5)
        result = await runtime.run(job, "q")
        again = await runtime.run(job_of(generate, n=2), "q")
    spoilt = result.candidates[2]
    assert spoilt.status == "scoring_failed"
    assert spoilt.error is not None
    assert spoilt.output == "answer 2", "the output was lost with the score"
    assert [s for s in statuses(result) if s == "eligible"] == ["eligible"] * 4
    assert (result.output, result.stop_reason) == ("answer 1", "completed")
    check_account(result, 5)
    assert again.output == "answer 1"


GOOD: list[Any] = [1, 0.7, True, Fraction(7, 10), np.float32(0.7), np.int64(1), np.bool_(True)]


@pytest.mark.parametrize("good", [*GOOD, Score(0.7), Score(1), Score(np.float64(0.7))])  # type: ignore[arg-type]
async def test_B57_what_is_a_finite_real_number_is_a_score(
    good: Any, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> Any:
        return good if ctx.index else 0.5

    result = await best_of_n(job_of(generate, output_score, n=2), "q")
    assert statuses(result) == ["eligible"] * 2
    assert result.selected is not None
    assert result.selected.index == 1
    assert type(result.selected.score.value) is float
