"""Scores, requests and seeds: what goes into a candidate and what is made of its worth (design §5).

Under virtual time.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import trio
from trio.testing import MockClock

from hortator import (
    BestOfN,
    Budget,
    Runtime,
    Score,
    Usage,
    first_accepted,
    open_runtime,
    target,
)
from hortator.protocols.errors import InvalidScore
from hortator.protocols.scoring import Objective
from tests.contract.scenes import job, statuses


def scores(*answers: Any) -> Any:
    """A scorer that gives each candidate the answer at its index."""

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return answers[candidate.index]

    return score


# -- what is a score ------------------------------------------------------------------------------

FINITE: list[tuple[Any, float]] = [
    (1, 1.0),
    (-2.5, -2.5),
    (True, 1.0),
    (False, 0.0),
    (Fraction(1, 4), 0.25),
    (10**300, 1e300),
    (np.float64(0.5), 0.5),
    (np.float32(0.5), 0.5),
    (np.int64(7), 7.0),
    (np.uint8(7), 7.0),
    (np.bool_(True), 1.0),
    (np.array(3.5), 3.5),
    (Score(0.5), 0.5),
    (Score(2, accepted=True), 2.0),
    (Score(np.float32(0.25)), 0.25),
    (Score(True), 1.0),
]


@pytest.mark.parametrize(("answer", "value"), FINITE, ids=repr)
async def test_a_finite_real_number_is_a_score(
    answer: Any, value: float, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(score=scores(answer), n=1), "q")
    (candidate,) = result.candidates
    assert candidate.status == "eligible", candidate.error
    assert candidate.score is not None
    assert candidate.score.value == value
    assert type(candidate.score.value) is float


NO_SCORE: list[Any] = [
    *(math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf")),
    *("0.9", "", b"1", None, 1j, [1.0], (1, "0.9"), {"score": 1}, object, Decimal("NaN")),
    *(10**400, np.array([1.0, 2.0]), np.str_("1")),
    *(Score(math.nan), Score("0.9"), Score(None)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("answer", NO_SCORE, ids=lambda answer: repr(answer)[:20])
async def test_anything_else_is_scoring_failed_and_the_others_are_ranked(
    answer: Any, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(score=scores(0.1, answer, 0.3, 0.2)), "q")
    assert statuses(result) == ["eligible", "scoring_failed", "eligible", "eligible"]
    assert isinstance(result.candidates[1].error, InvalidScore)
    assert result.candidates[1].score is None
    assert (result.output, result.stop_reason) == (2, "completed")


@pytest.mark.parametrize("value", [math.nan, math.inf, "0.9"])
async def test_what_an_unusable_score_cost_is_charged_all_the_same(
    value: Any, autojump_clock: MockClock
) -> None:
    answer = Score(value, usage=Usage(model_calls=3))
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(
                score=scores(answer),
                n=1,
                budget=Budget(model_calls=10),
                scoring_estimate=Usage(model_calls=4),
            ),
            "q",
        )
    assert statuses(result) == ["scoring_failed"]
    assert result.usage.reported.model_calls == 3
    assert result.usage.charged.model_calls == 1 + 3, "generation by estimate, scoring as reported"
    assert result.candidates[0].usage.model_calls == 4


async def test_a_score_keeps_what_the_scorer_says_beside_it(autojump_clock: MockClock) -> None:
    said = Score(1, rationale="all tests pass", usage=Usage(total_tokens=5), metadata={"n": 3})
    async with open_runtime() as runtime:
        result = await runtime.run(job(score=scores(said), n=1), "q")
    assert result.candidates[0].score == said
    assert result.candidates[0].usage == Usage(total_tokens=5)


# -- threshold and target -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        ("max", ["rejected", "eligible", "eligible"]),
        ("min", ["eligible", "eligible", "rejected"]),
    ],
)
async def test_the_threshold_is_inclusive_in_the_direction_of_the_objective(
    objective: Objective, expected: list[str], autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(score=scores(0.4, 0.5, 0.6), n=3, objective=objective, threshold=0.5), "q"
        )
    assert statuses(result) == expected
    assert result.output == (2 if objective == "max" else 0)
    (rejected,) = [c for c in result.candidates if c.status == "rejected"]
    assert rejected.score is not None, "a rejected candidate keeps its score"
    assert rejected.output == rejected.index
    assert not rejected.eligible


async def test_who_is_not_accepted_is_rejected_whatever_its_value(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(score=scores(1, Score(9, accepted=False, rationale="unsafe")), n=2), "q"
        )
    assert statuses(result) == ["eligible", "rejected"]
    assert result.output == 0
    assert result.candidates[1].score == Score(9.0, accepted=False, rationale="unsafe")


async def test_if_all_are_rejected_nothing_is_eligible(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(threshold=99), "q")
    assert (result.stop_reason, result.selected, result.partial) == ("no_eligible", None, False)


@pytest.mark.parametrize(
    ("objective", "values", "selected"),
    [
        ("max", (0.1, 0.49, 0.5, 0.9), 2),
        ("max", (0.1, 0.6, 0.5, 0.9), 1),
        ("min", (0.9, 0.51, 0.5, 0.1), 2),
        ("min", (0.9, 0.4, 0.5, 0.1), 1),
    ],
)
async def test_the_target_is_inclusive_in_the_direction_of_the_objective(
    objective: Objective, values: tuple[float, ...], selected: int, autojump_clock: MockClock
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(
                score=scores(*values),
                max_concurrency=1,
                objective=objective,
                stop=target(0.5),
            ),
            "q",
        )
    assert (result.output, result.stop_reason, result.partial) == (selected, "target", False)
    assert set(statuses(result)[selected + 1 :]) <= {"skipped", "cancelled"}


async def test_a_target_selects_the_best_so_far_and_the_first_accepted_rule_the_first(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep([0.3, 0.1, 0.2, 9][ctx.index])
        return ctx.index

    at_target = job(generate=generate, score=scores(0.5, 0.4, 0.9, 1.0), stop=target(0.8))
    first = job(
        generate=generate, score=scores(0.5, 0.4, 0.9, 1.0), stop=first_accepted(), threshold=0.45
    )
    async with open_runtime() as runtime:
        one = await runtime.run(at_target, "q")
        two = await runtime.run(first, "q")
    assert (one.output, one.stop_reason, one.elapsed) == (2, "target", pytest.approx(0.2))
    assert statuses(one) == ["cancelled", "eligible", "eligible", "cancelled"]
    assert (two.output, two.stop_reason, two.elapsed) == (2, "first_accepted", pytest.approx(0.2))
    assert statuses(two) == ["cancelled", "rejected", "eligible", "cancelled"]
    assert (one.selected_by, two.selected_by) == ("best_score", "first_accepted")
    assert not one.partial
    assert not two.partial


async def test_a_failure_does_not_end_a_run_that_waits_for_the_first_accepted(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(ctx.index)
        if ctx.index < 2:
            raise OSError
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, stop=first_accepted()), "q")
    assert (result.output, result.stop_reason) == (2, "first_accepted")


async def test_a_rule_that_nothing_meets_lets_all_candidates_end(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(stop=target(99)), "q")
    assert (result.output, result.stop_reason) == (3, "completed")


# -- requests -------------------------------------------------------------------------------------


class Opaque:
    """A value of the user's own class."""


async def test_containers_in_a_request_are_copied_for_each_candidate(
    autojump_clock: MockClock,
) -> None:
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(ctx.index / 10)
        seen.append((list(request["list"]), set(request["set"]), dict(request["dict"]["deep"])))
        request["list"].append(ctx.index)
        request["set"].add(ctx.index)
        request["dict"]["deep"][ctx.index] = 1
        request["tuple"][0].append(ctx.index)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        assert request["list"] == [0, ctx.index], "the scorer sees its candidate's own copy"
        return 1.0

    mine: dict[str, Any] = {"list": [0], "set": {0}, "dict": {"deep": {}}, "tuple": ([],)}
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, score=score), mine)
    assert seen == [([0], {0}, {})] * 4, "a candidate saw what another one did to its request"
    assert mine == {"list": [0], "set": {0}, "dict": {"deep": {}}, "tuple": ([],)}
    assert statuses(result) == ["eligible"] * 4
    assert [c.request["list"] for c in result.candidates] == [[0, i] for i in range(4)]  # type: ignore[index]


async def test_the_caller_may_go_on_changing_what_he_handed_over(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(1)
        return list(request)

    mine = [1, 2]
    async with open_runtime() as runtime:
        handle = runtime.start(
            job(generate=generate, score=scores(1, 1, 1, 1), max_concurrency=1), mine
        )
        mine.append(3)
        result = await handle.result()
    assert [candidate.output for candidate in result.candidates] == [[1, 2]] * 4


async def test_strings_and_opaque_objects_are_shared(autojump_clock: MockClock) -> None:
    opaque, text = Opaque(), "a prompt of many words" * 100
    seen: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        seen.append((request["text"], request["opaque"]))
        return ctx.index

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate), {"text": text, "opaque": opaque})
        alone = await runtime.run(job(), opaque)
    assert all(one is text and other is opaque for one, other in seen)
    assert all(candidate.request is opaque for candidate in alone.candidates)


def test_the_docstrings_say_what_is_copied() -> None:
    assert "containers in it are copied for each" in " ".join((Runtime.run.__doc__ or "").split())


# -- seeds ----------------------------------------------------------------------------------------


def splitmix64(seed: int) -> Any:
    """The published generator, word for word."""
    mask = 2**64 - 1
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


async def _seed(request: Any, ctx: Any) -> int:
    return ctx.seed


def seeds_of(result: Any) -> list[int]:
    return [candidate.output for candidate in result.candidates]


SEEDED: BestOfN[Any, Any] = job(generate=_seed, score=scores(*[1] * 4))


@pytest.mark.parametrize("seed", [0, 1, 1234567, 2**64 - 1, 2**80 + 3, -5])
async def test_a_candidates_seed_is_splitmix64_of_run_seed_and_index(
    seed: int, autojump_clock: MockClock
) -> None:
    stream = splitmix64(seed)
    async with open_runtime() as runtime:
        result = await runtime.run(SEEDED, "q", seed=seed)
    assert seeds_of(result) == [next(stream) for _ in range(4)]
    assert result.seed == seed


def test_the_generator_of_this_test_is_the_published_one() -> None:
    stream = splitmix64(1234567)
    assert [next(stream) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


async def test_a_seed_that_is_not_given_is_drawn_and_kept(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        one = await runtime.run(SEEDED, "q")
        two = await runtime.run(SEEDED, "q")
        again = await runtime.run(SEEDED, "q", seed=one.seed)
    assert one.seed != two.seed
    assert seeds_of(one) == seeds_of(again) != seeds_of(two)


async def test_the_seed_does_not_depend_on_who_starts_first(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        one = await runtime.run(job(generate=_seed, score=scores(*[1] * 4)), "q", seed=3)
        two = await runtime.run(
            job(generate=_seed, score=scores(*[1] * 4), max_concurrency=1), "q", seed=3
        )
    assert seeds_of(one) == seeds_of(two)
