"""For type checkers only: a job knows its request and its output, from any kind of callback.

Each wrong line carries an ignore, which would be unused if the line stopped being wrong.
"""

from __future__ import annotations

from typing import assert_type

from hortator import (
    BestOfN,
    Candidate,
    CandidateContext,
    RunHandle,
    RunResult,
    Runtime,
    Score,
    best_of_n,
    first_accepted,
)
from hortator.protocols.candidate import Generated


class Answer:
    """An output of the user's own."""

    text: str = ""


async def generate(request: str, ctx: CandidateContext) -> Answer:
    return Answer()


def generate_sync(request: str, ctx: CandidateContext) -> Answer:
    return Answer()


class Generator:
    async def __call__(self, request: str, ctx: CandidateContext) -> Answer:
        return Answer()

    async def method(self, request: str, ctx: CandidateContext) -> Answer:
        return Answer()


class SyncGenerator:
    def __call__(self, request: str, ctx: CandidateContext) -> Answer:
        return Answer()


async def score(request: str, candidate: Generated[Answer], ctx: CandidateContext) -> float:
    return float(len(candidate.output.text))


async def score_richly(request: str, candidate: Generated[Answer], ctx: CandidateContext) -> Score:
    return Score(1.0, usage=candidate.usage)


async def score_either(
    request: str, candidate: Generated[Answer], ctx: CandidateContext
) -> Score | float:
    return 1.0


def score_sync(request: str, candidate: Generated[Answer], ctx: CandidateContext) -> int:
    return 1


class Scorer:
    async def __call__(
        self, request: str, candidate: Generated[Answer], ctx: CandidateContext
    ) -> bool:
        return True


async def the_output_has_the_type_that_the_generator_gives(runtime: Runtime) -> None:
    job = BestOfN(generate=generate, score=score)
    assert_type(job, BestOfN[str, Answer])
    result = await runtime.run(job, "question")
    assert_type(result, RunResult[Answer])
    assert_type(result.output, Answer)
    assert_type(result.raise_for_status(), RunResult[Answer])
    assert_type(result.selected, Candidate[Answer] | None)
    assert_type(result.candidates[0].output, Answer | None)
    assert_type((await best_of_n(job, "question")).output, Answer)


async def so_it_does_through_a_handle(runtime: Runtime) -> None:
    handle = runtime.start(BestOfN(generate=generate, score=score), "question")
    assert_type(handle, RunHandle[Answer])
    async with handle as same:
        assert_type(same, RunHandle[Answer])
        assert_type((await handle.result()).output, Answer)
        async with handle.candidates() as candidates:
            async for candidate in candidates:
                assert_type(candidate, Candidate[Answer])


def every_kind_of_generator_is_understood() -> None:
    assert_type(BestOfN(generate=generate, score=score), BestOfN[str, Answer])
    assert_type(BestOfN(generate=generate_sync, score=score), BestOfN[str, Answer])
    assert_type(BestOfN(generate=Generator(), score=score), BestOfN[str, Answer])
    assert_type(BestOfN(generate=Generator().method, score=score), BestOfN[str, Answer])
    assert_type(BestOfN(generate=SyncGenerator(), score=score), BestOfN[str, Answer])


def every_kind_of_scorer_is_understood() -> None:
    assert_type(BestOfN(generate=generate, score=score_richly), BestOfN[str, Answer])
    assert_type(BestOfN(generate=generate, score=score_either), BestOfN[str, Answer])
    assert_type(BestOfN(generate=generate, score=score_sync), BestOfN[str, Answer])
    assert_type(BestOfN(generate=generate, score=Scorer()), BestOfN[str, Answer])
    assert_type(BestOfN(generate=generate_sync, score=score_sync), BestOfN[str, Answer])


def lambdas_are_allowed() -> None:
    job: BestOfN[str, str] = BestOfN(
        generate=lambda request, ctx: f"{request} {ctx.index}",
        score=lambda request, candidate, ctx: len(candidate.output),
    )
    del job


async def a_generator_that_may_give_nothing_gives_an_optional(runtime: Runtime) -> None:
    async def maybe(request: str, ctx: CandidateContext) -> str | None:
        return None

    async def scored(request: str, c: Generated[str | None], ctx: CandidateContext) -> float:
        return 0.0

    result = await runtime.run(BestOfN(generate=maybe, score=scored), "question")
    assert_type(result.output, str | None)


# -- wrong uses ----------------------------------------------------------------------------------


async def wrong_arguments(runtime: Runtime, job: BestOfN[str, Answer]) -> None:
    await runtime.run(job, 3)  # type: ignore[misc]
    await runtime.run("question", job)  # type: ignore[arg-type]
    await runtime.run(job, "question", on_observer_error="fail")  # type: ignore[arg-type]
    await runtime.run(job, "question", seed=1.5)  # type: ignore[arg-type]
    runtime.start(job, "question", observers=print)  # type: ignore[arg-type]


def wrong_callbacks() -> None:
    async def one_argument(request: str) -> str:
        return request

    async def scores_text(request: str, c: Generated[str], ctx: CandidateContext) -> float:
        return 1.0

    async def answers_text(request: str, c: Generated[Answer], ctx: CandidateContext) -> str:
        return "high"

    BestOfN(generate=one_argument, score=score)  # type: ignore[arg-type]
    BestOfN(generate=generate, score=scores_text)  # type: ignore[arg-type]
    BestOfN(generate=generate, score=answers_text)  # type: ignore[arg-type]
    BestOfN(generate=generate, score=score_of_two)  # type: ignore[arg-type]
    BestOfN(generate="generate", score=score)  # type: ignore[arg-type]


def score_of_two(request: str, candidate: Generated[Answer]) -> float:
    return 1.0


def wrong_options() -> None:
    BestOfN(generate=generate, score=score, n="8")  # type: ignore[arg-type]
    BestOfN(generate=generate, score=score, objective="maximum")  # type: ignore[arg-type]
    BestOfN(generate=generate, score=score, stop=first_accepted)  # type: ignore[arg-type]
    BestOfN(generate=generate, score=score, timeout="2")  # type: ignore[arg-type]
    BestOfN(generate=generate, score=score, budget={"model_calls": 1})  # type: ignore[arg-type]
    BestOfN(generate, score)  # type: ignore[call-arg]


def wrong_reading(result: RunResult[Answer]) -> None:
    _ = result.output.txt  # type: ignore[attr-defined]
    _ = result.selected.output  # type: ignore[union-attr]
    result.seed = 3  # type: ignore[misc]
