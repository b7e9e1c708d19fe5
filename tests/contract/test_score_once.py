"""Duplicates: of candidates with equal keys one is scored, and the others take its score over.

Under virtual time.
"""
# ruff: noqa: N802  (some tests are named after their cases)

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import (
    BatchScorer,
    BestOfN,
    Budget,
    Score,
    Usage,
    all_candidates,
    first_accepted,
    open_runtime,
    target,
)
from tests.contract.scenes import Record, after, job, statuses, stubborn_for


class Scorer:
    """A scorer that keeps whom it was called for.

    Attributes:
        asked: indices, in the order of the calls.
        batches: the same, call for call, if it scores many.
    """

    def __init__(self, took: float = 0.0, usage: Usage | None = None) -> None:
        self.asked: list[int] = []
        self.batches: list[list[int]] = []
        self._took, self._usage = took, usage

    async def one(self, request: Any, candidate: Any, ctx: Any) -> Any:
        self.asked.append(candidate.index)
        await trio.sleep(self._took)
        return Score(10 + candidate.index, usage=self._usage, rationale="seen")

    async def many(self, request: Any, candidates: Any, ctx: Any) -> Any:
        self.batches.append([each.index for each in candidates])
        await trio.sleep(self._took)
        return [Score(10 + each.index, usage=self._usage) for each in candidates]


def by_parity(output: int) -> int:
    return output % 2


def once(score: Any, **parts: Any) -> BestOfN[Any, Any]:
    """A job of six at once; the even ones are duplicates of each other, and so are the odd ones."""
    return job(**{"score": score, "score_once": by_parity, "n": 6, "max_concurrency": 6, **parts})


async def play(the_job: BestOfN[Any, Any], **how: Any) -> Any:
    async with open_runtime() as runtime:
        return await runtime.run(the_job, "q", **how)


def values(result: Any) -> list[float | None]:
    return [c.score and c.score.value for c in result.candidates]


IN_ORDER = after(1, 2, 3, 4, 5, 6)


async def test_GAP_30_duplicate_answers_are_scored_once(autojump_clock: MockClock) -> None:
    scorer = Scorer()
    result = await play(once(scorer.one, generate=IN_ORDER))
    assert scorer.asked == [0, 1], "duplicates were scored again"
    assert values(result) == [10, 11, 10, 11, 10, 11]
    assert statuses(result) == ["eligible"] * 6
    assert result.candidates[2].score == result.candidates[0].score
    assert result.output == 1, "of equal scores the lower index"


async def test_those_that_come_meanwhile_wait_for_its_score(autojump_clock: MockClock) -> None:
    scorer, record = Scorer(took=9), Record()
    async with open_runtime() as runtime:
        handle = runtime.start(once(scorer.one), "q", observers=[record])
        await trio.sleep(5)
        assert handle.snapshot().statuses == {"scoring": 2, "generated": 4}
        result = await handle.result()
    assert len(scorer.asked) == 2
    assert (statuses(result), result.elapsed) == (["eligible"] * 6, 9)
    first = scorer.asked[0]
    assert {values(result)[index] for index in range(first % 2, 6, 2)} == {10 + first}
    for index in range(6):
        assert record.of(index) == ["started", "leased", "generated", "scored", "ended"]
    ends = [e.candidate for e in record.events if e.kind == "ended"]
    assert ends.index(first) < min(ends.index(i) for i in range(first % 2, 6, 2) if i != first)


async def test_a_score_that_is_taken_over_costs_nothing(autojump_clock: MockClock) -> None:
    costs = {"estimate": Usage(total_tokens=3), "scoring_estimate": Usage(total_tokens=7)}
    silent = await play(once(Scorer().one, generate=IN_ORDER, **costs))
    assert [c.usage.total_tokens for c in silent.candidates] == [10, 10, 3, 3, 3, 3]
    told = await play(once(Scorer(usage=Usage(total_tokens=50)).one, generate=IN_ORDER, **costs))
    assert [c.usage.total_tokens for c in told.candidates] == [53, 53, 3, 3, 3, 3]
    assert [c.score.usage is None for c in told.candidates] == [False, False] + [True] * 4
    assert [c.score.rationale for c in told.candidates] == ["seen"] * 6


async def test_when_the_first_ones_scoring_fails_the_next_one_is_scored(
    autojump_clock: MockClock,
) -> None:
    asked: list[int] = []

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        asked.append(candidate.index)
        await trio.sleep(20)
        if candidate.index == 0:
            raise ValueError("no judge")
        return "no number" if candidate.index == 1 else candidate.index

    result = await play(once(score, generate=IN_ORDER, score_once=lambda output: 0))
    assert asked == [0, 1, 2]
    assert statuses(result) == ["scoring_failed"] * 2 + ["eligible"] * 4
    assert values(result) == [None, None, 2, 2, 2, 2]
    assert result.elapsed == 61


async def test_the_next_one_is_that_which_generated_next(autojump_clock: MockClock) -> None:
    asked: list[int] = []

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        asked.append(candidate.index)
        await trio.sleep(10)
        if len(asked) < 3:
            raise ValueError("no judge")
        return 1.0

    result = await play(
        once(score, generate=after(3, 1, 2, 4), n=4, score_once=lambda output: "same")
    )
    assert asked == [1, 2, 0]
    failed, fine = "scoring_failed", "eligible"
    assert statuses(result) == [fine, failed, failed, fine]
    assert result.elapsed == 31


async def test_when_the_first_one_is_cut_the_next_one_is_scored(autojump_clock: MockClock) -> None:
    asked: list[int] = []

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        asked.append(candidate.index)
        await trio.sleep(9 if candidate.index == 0 else 0.5)
        return 1.0

    the_job = once(
        score,
        generate=after(1, 1.5),
        n=3,
        max_concurrency=1,
        candidate_timeout=3,
        score_once=lambda output: "same",
    )
    result = await play(the_job)
    assert asked == [0, 1]
    assert statuses(result) == ["timed_out", "eligible", "eligible"]


async def test_when_the_first_one_is_detached_the_next_one_is_scored(
    autojump_clock: MockClock,
) -> None:
    asked: list[int] = []

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        asked.append(candidate.index)
        if candidate.index == 0:
            await stubborn_for(50)
        return 1.0

    the_job = once(
        score,
        generate=after(1),
        n=3,
        max_concurrency=1,
        candidate_timeout=2.5,
        score_concurrency=1,
        score_once=lambda output: "same",
    )
    async with open_runtime() as runtime:
        result = await runtime.run(the_job, "q")
    assert asked == [0, 1], "they wait for somebody who will never answer"
    assert statuses(result) == ["scoring (detached)", "eligible", "eligible"]


async def test_the_first_one_may_be_cut_while_it_waits_for_the_scorer(
    autojump_clock: MockClock,
) -> None:
    asked: list[int] = []

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        asked.append(candidate.index)
        if candidate.index == 0:
            await stubborn_for(50)  # it holds the only place until it is detached at 3.2
        return 1.0

    the_job = once(
        score,
        generate=after(0.25, 0.5),
        n=3,
        max_concurrency=2,
        candidate_timeout=3,
        score_concurrency=1,
        score_once=lambda output: min(output, 1),
    )
    result = await play(the_job)
    assert asked == [0, 2]
    assert statuses(result) == ["scoring (detached)", "timed_out", "eligible"]


async def test_who_waits_is_cut_when_its_own_time_is_up(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        await trio.sleep(1.5)
        return 1.0

    the_job = once(
        score,
        generate=after(0.25, 0.5),
        n=2,
        candidate_timeout=1.6,
        score_once=lambda output: "same",
    )
    result = await play(the_job)
    assert statuses(result) == ["timed_out", "timed_out"], "0 answers at 1.75, 1 can't be scored"
    assert result.elapsed == pytest.approx(1.6)


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_who_waits_is_cut_by_a_stop(how: str, autojump_clock: MockClock) -> None:
    scorer = Scorer(took=9)
    async with open_runtime() as runtime:
        handle = runtime.start(once(scorer.one, timeout=5 if how == "deadline" else None), "q")
        await trio.sleep(2)
        if how == "cancel":
            handle.cancel()
        result = await handle.result()
        assert runtime.detached == ()
    told = "cancelled" if how == "cancel" else "timed_out"
    assert statuses(result) == [told] * 6
    assert len(scorer.asked) == 2, "somebody was scored after the stop"
    assert result.elapsed == (2 if how == "cancel" else 5)


async def test_stop_after_current_waits_for_those_that_wait(autojump_clock: MockClock) -> None:
    scorer = Scorer(took=9)
    async with open_runtime() as runtime:
        handle = runtime.start(once(scorer.one), "q")
        await trio.sleep(2)
        handle.stop_after_current()
        result = await handle.result()
    assert statuses(result) == ["eligible"] * 6
    assert (result.stop_reason, len(scorer.asked)) == ("completed", 2), "nobody was kept"


async def test_they_are_judged_by_the_threshold(autojump_clock: MockClock) -> None:
    result = await play(once(Scorer().one, generate=IN_ORDER, threshold=11))
    assert statuses(result) == ["rejected", "eligible"] * 3


async def test_a_rule_that_the_first_one_meets_cuts_the_others(autojump_clock: MockClock) -> None:
    result = await play(once(Scorer(took=9).one, generate=IN_ORDER, stop=target(10)))
    assert result.stop_reason == "target"
    assert statuses(result) == ["eligible"] + ["cancelled"] * 5
    first = await play(once(Scorer(took=9).one, generate=IN_ORDER, stop=first_accepted()))
    assert (first.stop_reason, first.output) == ("first_accepted", 0)


async def test_one_that_takes_a_score_over_can_meet_the_rule(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    class Third(type(all_candidates())):  # type: ignore[misc]
        def follow(self, run: Any) -> Any:
            return self

        def ended(self, record: Any) -> bool:
            seen.append(record)
            return len(seen) == 3

    the_job = once(Scorer().one, generate=IN_ORDER, stop=Third("target"))
    result = await play(the_job)
    assert result.stop_reason == "target"
    assert statuses(result) == ["eligible"] * 3 + ["cancelled"] * 3


# -- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [list, dict, set, "numpy"])
async def test_keys_without_a_hash_are_compared(kind: Any, autojump_clock: MockClock) -> None:
    scorer = Scorer()

    def key(output: int) -> Any:
        parity = output % 2
        return {parity: 1} if kind is dict else (kind([parity]) if kind != "numpy" else Odd(parity))

    result = await play(once(scorer.one, generate=IN_ORDER, score_once=key))
    assert scorer.asked == [0, 1]
    assert values(result) == [10, 11] * 3


class Odd:
    """No hash, and what `==` says is no bool."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, parity: int) -> None:
        self.parity = parity

    def __eq__(self, other: object) -> Any:
        return [1] if isinstance(other, Odd) and other.parity == self.parity else []


async def test_a_key_that_raises_fails_its_own_candidate(autojump_clock: MockClock) -> None:
    mine = ValueError("no key")

    def key(output: int) -> int:
        if output == 2:
            raise mine
        return output % 2

    scorer = Scorer()
    result = await play(
        once(scorer.one, generate=IN_ORDER, score_once=key, scoring_estimate=Usage(total_tokens=9))
    )
    assert statuses(result) == ["eligible", "eligible", "scoring_failed"] + ["eligible"] * 3
    assert result.candidates[2].error is mine
    assert result.candidates[2].usage.total_tokens == 0, "it was not scored"
    assert result.candidates[2].output == 2


async def test_a_key_that_gives_an_awaitable_says_what_is_wrong(autojump_clock: MockClock) -> None:
    async def slow(output: int) -> int:
        return output

    result = await play(once(Scorer().one, score_once=lambda output: slow(output)))  # noqa: PLW0108  (a sync one)
    assert statuses(result) == ["scoring_failed"] * 6
    assert "not awaited" in str(result.candidates[0].error)


async def test_an_interrupt_out_of_a_key_ends_the_run(autojump_clock: MockClock) -> None:
    def key(output: int) -> int:
        raise KeyboardInterrupt

    async with open_runtime() as runtime:
        handle = runtime.start(once(Scorer().one, score_once=key), "q")
        with pytest.raises(KeyboardInterrupt):
            await handle.result()


async def test_a_key_may_stop_the_run(autojump_clock: MockClock) -> None:
    def key(output: int) -> int:
        handle.cancel()
        return 0

    scorer = Scorer()
    async with open_runtime() as runtime:
        handle = runtime.start(once(scorer.one, generate=IN_ORDER, score_once=key), "q")
        result = await handle.result()
    assert scorer.asked == [], "it was scored after the stop"
    assert statuses(result) == ["cancelled"] * 6


# -- leases ------------------------------------------------------------------------------------


async def test_those_that_wait_do_not_hold_up_the_first_ones_top_up(
    autojump_clock: MockClock,
) -> None:
    answers: list[bool] = []

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        answers.append(await ctx.reserve(Usage(total_tokens=50)))
        return 1.0

    limited = {"budget": Budget(total_tokens=60), "estimate": Usage(total_tokens=10)}
    result = await play(once(score, score_once=lambda output: "same", timeout=60, **limited))
    assert answers == [False], "it waits for those who wait for it"
    assert (statuses(result), result.elapsed) == (["eligible"] * 6, 0)


# -- with batches ------------------------------------------------------------------------------


async def test_of_each_key_only_one_is_in_a_batch(autojump_clock: MockClock) -> None:
    scorer = Scorer(took=9)
    result = await play(once(BatchScorer(scorer.many), generate=after(1, 2, 3, 4, 5, 6)))
    assert scorer.batches == [[0], [1]]
    assert values(result) == [10, 11] * 3


async def test_of_each_key_only_one_is_in_the_one_call(autojump_clock: MockClock) -> None:
    scorer, record = Scorer(took=9), Record()
    the_job = once(BatchScorer(scorer.many, together=True), generate=after(6, 5, 4, 3, 2, 1))
    result = await play(the_job, observers=[record])
    assert scorer.batches == [[4, 5]], "the first of each kind to be generated"
    assert values(result) == [14, 15] * 3
    ends = [e.candidate for e in record.events if e.kind == "ended"]
    assert ends == [4, 2, 0, 5, 3, 1], "each one's duplicates after it, as they were generated"


async def test_there_is_no_second_call_for_those_that_wait(autojump_clock: MockClock) -> None:
    mine = RuntimeError("no judge")
    calls: list[Any] = []

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        calls.append(candidates)
        await trio.sleep(1)
        raise mine

    result = await play(once(BatchScorer(score, together=True)))
    assert len(calls) == 1
    assert statuses(result) == ["scoring_failed"] * 6
    assert all(c.error is mine for c in result.candidates)


async def test_very_many_that_wait_fail_as_one(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        return [float("nan")]

    result = await play(
        once(
            BatchScorer(score, together=True),
            n=1500,
            max_concurrency=1500,
            score_once=lambda output: "same",
        )
    )
    assert set(statuses(result)) == {"scoring_failed"}


async def test_a_second_batch_scores_the_next_one(autojump_clock: MockClock) -> None:
    batches: list[list[int]] = []

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        batches.append([each.index for each in candidates])
        await trio.sleep(10)
        return [1.0] * (0 if len(batches) == 1 else len(candidates))

    result = await play(once(BatchScorer(score), generate=IN_ORDER))
    assert batches == [[0], [1, 2]]
    assert statuses(result) == ["scoring_failed"] + ["eligible"] * 5


async def test_when_the_one_call_is_cut_those_that_wait_are_told_why(
    autojump_clock: MockClock,
) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        await trio.sleep(60)

    the_job = once(
        BatchScorer(score, together=True),
        generate=after(1, 0.5),
        n=2,
        max_concurrency=1,
        candidate_timeout=3,
        score_once=lambda output: "same",
    )
    async with open_runtime() as runtime:
        handle = runtime.start(the_job, "q")
        await wait_all_tasks_blocked()
        result = await handle.result()
    assert statuses(result) == ["timed_out", "scoring_failed"]
    assert "candidate 0" in str(result.candidates[1].error)
    assert result.elapsed == 3
