"""For type checkers only: scoring many candidates in one call, and duplicates once.

Each wrong line carries an ignore, which would be unused if the line stopped being wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from hortator import BatchScorer, BestOfN, CandidateContext, Runtime, Score
from hortator.protocols.candidate import Generated
from hortator.protocols.interfaces import BatchContext


class Answer:
    text: str = ""


async def generate(request: str, ctx: CandidateContext) -> Answer:
    return Answer()


async def rank(
    request: str, candidates: tuple[Generated[Answer], ...], ctx: BatchContext
) -> list[float]:
    assert_type(ctx.run_id, str)
    assert_type(ctx.deadline, float | None)
    assert_type(ctx.stopping, bool)
    ctx.charge(None)  # type: ignore[attr-defined]
    return [float(len(each.output.text)) for each in candidates]


def rank_sync(
    request: str, candidates: Sequence[Generated[Answer]], ctx: BatchContext
) -> list[Score]:
    ctx.raise_if_stopping()
    return [Score(1.0) for _ in candidates]


class Judge:
    async def __call__(
        self, request: str, candidates: tuple[Generated[Answer], ...], ctx: BatchContext
    ) -> Sequence[Score | float]:
        return [1.0, Score(2.0)]


def every_kind_of_batch_scorer_is_understood() -> None:
    assert_type(BatchScorer(rank), BatchScorer[str, Answer])
    assert_type(BatchScorer(rank_sync, 8), BatchScorer[str, Answer])
    assert_type(BatchScorer(Judge(), together=True, reserve=2), BatchScorer[str, Answer])


async def a_job_with_one_is_typed(runtime: Runtime) -> None:
    job = BestOfN(
        generate=generate,
        score=BatchScorer(rank, together=True),
        score_once=lambda output: output.text,
        score_concurrency=2,
    )
    assert_type(job, BestOfN[str, Answer])
    assert_type((await runtime.run(job, "question")).output, Answer)
    await runtime.run(job, 3)  # type: ignore[misc]


async def of_text(request: str, candidates: tuple[Generated[str], ...], ctx: BatchContext) -> None:
    """Returns nothing."""


async def texts(
    request: str, candidates: tuple[Generated[str], ...], ctx: BatchContext
) -> list[float]:
    return []


def key_of_text(output: str) -> int:
    return len(output)


def wrong_uses(scorer: BatchScorer[str, Answer]) -> None:
    BatchScorer(of_text)  # type: ignore[arg-type]
    BatchScorer(rank, size="8")  # type: ignore[arg-type]
    BatchScorer(rank, together="yes")  # type: ignore[arg-type]
    BatchScorer(lambda request, candidates: [1.0])  # type: ignore[arg-type]
    BatchScorer(generate)  # type: ignore[arg-type]
    BestOfN(generate=generate, score=BatchScorer(texts))  # type: ignore[arg-type]
    BestOfN(generate=generate, score=rank)  # type: ignore[arg-type]
    BestOfN(generate=generate, score=scorer, score_concurrency="2")  # type: ignore[arg-type]
    BestOfN(generate=generate, score=scorer, score_once=key_of_text)  # type: ignore[misc]
    scorer.size = 3  # type: ignore[misc]
