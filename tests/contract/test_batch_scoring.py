"""Scoring many candidates in one call, in both readings; how many calls run at once.

Under virtual time, but for sync scorers: those run on the real clock, and are released.
"""
# ruff: noqa: N802  (some tests are named after their cases)

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import (
    BatchScorer,
    BestOfN,
    Budget,
    RunStopping,
    Score,
    Usage,
    first_accepted,
    open_runtime,
    target,
)
from hortator.protocols.errors import InvalidScore
from tests.contract.scenes import (
    GRACE,
    PATIENCE,
    SLACK,
    WORK,
    Record,
    after,
    job,
    statuses,
    stubborn_for as hold_out,
)


@attrs.define
class Calls:
    """A batch scorer that keeps its calls, and answers with the outputs.

    Attributes:
        took: seconds of each call.
        batches: the indices of each call, in the order that it was handed them.
        began: when each call began, in seconds from the first look at the clock.
        most: how many ran at once, at the most.
    """

    took: float = 0.0
    batches: list[list[int]] = attrs.Factory(list)
    began: list[float] = attrs.Factory(list)
    most: int = 0
    now: int = 0
    contexts: list[Any] = attrs.Factory(list)
    zero: float = attrs.field(factory=trio.current_time)

    async def __call__(self, request: Any, candidates: Any, ctx: Any) -> Any:
        self.batches.append([each.index for each in candidates])
        self.began.append(trio.current_time() - self.zero)
        self.contexts.append(ctx)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await trio.sleep(self.took)
        finally:
            self.now -= 1
        return [each.output for each in candidates]


def batch_job(calls: Callable[..., Any], **parts: Any) -> BestOfN[Any, Any]:
    """A job of four at once that is scored by a batch scorer; what is one's of that is its own."""
    own = {key: parts.pop(key) for key in ("size", "together", "reserve") if key in parts}
    return job(score=BatchScorer(calls, **own), **parts)


async def play(the_job: BestOfN[Any, Any], **how: Any) -> Any:
    async with open_runtime() as runtime:
        return await runtime.run(the_job, "q", **how)


# -- whenever it is idle, what waits -----------------------------------------------------------


async def test_whenever_it_is_idle_it_gets_what_waits(autojump_clock: MockClock) -> None:
    calls = Calls(took=2.5)
    result = await play(batch_job(calls, generate=after(1, 2, 3, 4)))
    assert calls.batches == [[0], [1, 2], [3]]
    assert calls.began == [1, 3.5, 6]
    assert calls.most == 1, "two calls at once, though nothing asked for that"
    assert (statuses(result), result.output) == (["eligible"] * 4, 3)
    assert (result.stop_reason, result.partial) == ("completed", False)


async def test_they_are_handed_over_in_index_order(autojump_clock: MockClock) -> None:
    calls = Calls(took=9)
    result = await play(batch_job(calls, generate=after(1, 4, 3, 2)))
    assert calls.batches == [[0], [1, 2, 3]]
    assert [c.score and c.score.value for c in result.candidates] == [0, 1, 2, 3], "mixed up"


async def test_it_gets_at_most_so_many_at_once(autojump_clock: MockClock) -> None:
    calls = Calls(took=1)
    result = await play(batch_job(calls, size=3, n=8, max_concurrency=8))
    assert max(map(len, calls.batches)) == 3
    assert sorted(index for batch in calls.batches for index in batch) == list(range(8))
    assert statuses(result) == ["eligible"] * 8


async def test_generation_goes_on_while_a_batch_is_scored(autojump_clock: MockClock) -> None:
    calls = Calls(took=10)
    result = await play(batch_job(calls, generate=after(1), n=5, max_concurrency=1))
    assert calls.batches == [[0], [1, 2, 3, 4]], "the call held the slot"
    assert result.elapsed == 21


async def test_a_scorer_sees_outputs_and_what_was_spent(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> str:
        ctx.charge(Usage(total_tokens=10 * ctx.index))
        await trio.sleep(1)
        return f"{request} {ctx.index}"

    seen: list[Any] = []

    async def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        seen.append((request, type(candidates), ctx.run_id, ctx.deadline))
        seen.extend((c.index, c.output, c.usage.total_tokens) for c in candidates)
        return [1.0] * len(candidates)

    result = await play(batch_job(score, generate=generate, together=True, n=2))
    first, *others = seen
    assert first == ("q", tuple, result.run_id, None)
    assert others == [(0, "q 0", 0), (1, "q 1", 10)]


async def test_containers_in_the_request_are_its_own(autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        seen.append(list(request))
        request.append("changed")
        return [1.0 for _ in candidates]

    async with open_runtime() as runtime:
        result = await runtime.run(batch_job(score, size=1), ["q"])
    assert seen == [["q"]] * 4
    assert [c.request for c in result.candidates] == [["q"]] * 4


# -- everything in one call --------------------------------------------------------------------


async def test_GAP_31_a_batch_scorer_is_called_once_with_all(autojump_clock: MockClock) -> None:
    calls = Calls(took=1)
    result = await play(batch_job(calls, together=True, n=7, generate=after(5, 1)))
    assert calls.batches == [list(range(7))], "comparing needs all of them in one call"
    assert calls.began == [5], "it was not called as soon as the last one had generated"
    assert (statuses(result), result.output) == (["eligible"] * 7, 6)
    assert (result.stop_reason, result.partial, result.elapsed) == ("completed", False, 6)


async def test_those_that_fail_are_not_waited_for(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> int:
        await trio.sleep(3 if ctx.index == 1 else 1)
        if ctx.index == 1:
            raise ValueError("no answer")
        return ctx.index

    calls = Calls()
    result = await play(batch_job(calls, together=True, generate=generate))
    assert (calls.batches, calls.began) == ([[0, 2, 3]], [3])
    assert statuses(result)[1] == "generation_failed"


async def test_when_nobody_has_generated_there_is_no_call(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> int:
        raise ValueError("no answer")

    calls = Calls()
    result = await play(batch_job(calls, together=True, generate=generate))
    assert (calls.batches, result.stop_reason) == ([], "no_eligible")
    calls = Calls()
    late = await play(batch_job(calls, together=True, generate=after(9), timeout=5))
    assert (calls.batches, statuses(late), late.elapsed) == ([], ["timed_out"] * 4, 4)


async def test_the_call_is_made_a_fifth_of_the_timeout_before_the_deadline(
    autojump_clock: MockClock,
) -> None:
    calls, record = Calls(took=0.5), Record()
    the_job = batch_job(calls, together=True, generate=after(1, 9, 2, 9), timeout=10, n=6)
    result = await play(the_job, observers=[record])
    assert (calls.batches, calls.began) == ([[0, 2]], [8])
    assert calls.contexts[0].deadline == calls.zero + 10
    told = ["eligible", "timed_out", "eligible", "timed_out", "timed_out", "timed_out"]
    assert statuses(result) == told
    assert [c.elapsed for c in result.candidates][1] == 8, "nobody told it that it was in vain"
    # The deadline has cut it short, though it is back before the deadline itself.
    assert (result.stop_reason, result.partial, result.elapsed) == ("deadline", True, 8.5)
    assert record.terminal.stop_reason == "deadline"


async def test_nobody_starts_any_more_once_the_call_is_made(autojump_clock: MockClock) -> None:
    calls = Calls(took=0.5)
    the_job = batch_job(
        calls, together=True, generate=after(3), timeout=10, n=9, max_concurrency=1, reserve=2
    )
    result = await play(the_job)
    assert calls.batches == [[0, 1]]
    assert statuses(result)[:3] == ["eligible", "eligible", "timed_out"]
    assert statuses(result)[3:] == ["skipped"] * 6


async def test_who_generates_sees_when_it_is_cut(autojump_clock: MockClock) -> None:
    seen: list[tuple[float, float]] = []

    async def generate(request: Any, ctx: Any) -> int:
        seen.append((ctx.deadline - trio.current_time(), ctx.remaining().seconds))
        await trio.sleep(9 if ctx.index else 1)
        return ctx.index

    await play(batch_job(Calls(), together=True, generate=generate, timeout=10, reserve=4, n=2))
    assert seen == [(6, 6), (6, 6)], "the deadline is of no use to who can't be scored by then"


async def test_the_reserve_is_a_fifth_of_the_span_to_an_outer_deadline(
    autojump_clock: MockClock,
) -> None:
    calls = Calls(took=0.5)
    async with open_runtime() as runtime:
        with trio.move_on_after(10) as scope:
            result = await runtime.run(
                batch_job(calls, together=True, generate=after(1, 20), n=2), "q"
            )
    span = 10 - GRACE
    assert calls.began == [pytest.approx(0.8 * span)]
    assert statuses(result) == ["eligible", "timed_out"]
    assert (result.stop_reason, result.partial) == ("outer_deadline", True)
    assert not scope.cancelled_caught


async def test_whoever_is_told_first_a_run_that_the_call_has_cut_short_says_so(
    autojump_clock: MockClock,
) -> None:
    the_job = batch_job(Calls(), together=True, generate=after(1, 20), n=2, timeout=10)
    for _ in range(12):  # its seat and the runner wake at the same time, in any order
        result = await play(the_job)
        assert (result.stop_reason, result.partial) == ("deadline", True)


async def test_an_outer_deadline_that_leaves_less_than_the_reserve_is_halved(
    autojump_clock: MockClock,
) -> None:
    calls = Calls(took=0.5)
    async with open_runtime() as runtime:
        with trio.move_on_after(10):
            await runtime.run(
                batch_job(calls, together=True, generate=after(1, 20), n=2, reserve=60), "q"
            )
    assert calls.began == [pytest.approx((10 - GRACE) / 2)]


async def test_without_a_deadline_it_waits_for_all(autojump_clock: MockClock) -> None:
    calls = Calls()
    await play(batch_job(calls, together=True, generate=after(1, 5000)))
    assert calls.began == [5000]


async def test_a_timeout_of_zero_skips_everything(autojump_clock: MockClock) -> None:
    calls = Calls()
    result = await play(batch_job(calls, together=True, timeout=0))
    assert (statuses(result), calls.batches) == (["skipped"] * 4, [])


async def test_a_rule_that_is_met_by_the_call_ends_the_run_by_the_rule(
    autojump_clock: MockClock,
) -> None:
    calls = Calls()
    the_job = batch_job(
        calls, together=True, generate=after(1, 1, 1, 9), timeout=10, stop=target(2)
    )
    result = await play(the_job)
    assert (result.stop_reason, result.partial, result.output) == ("target", False, 2)


async def test_stop_after_current_gathers_those_that_have_begun(autojump_clock: MockClock) -> None:
    calls = Calls()
    async with open_runtime() as runtime:
        handle = runtime.start(
            batch_job(calls, together=True, generate=after(2), n=9, max_concurrency=2), "q"
        )
        await trio.sleep(1)
        handle.stop_after_current()
        result = await handle.result()
    assert (calls.batches, calls.began) == ([[0, 1]], [2])
    assert (result.stop_reason, result.output) == ("stopped", 1)


async def test_who_swallows_the_end_of_its_generating_is_detached_while_the_others_are_scored(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> int:
        if ctx.index == 1:
            await hold_out(50)
        return ctx.index

    calls = Calls(took=1.5)
    async with open_runtime() as runtime:
        result = await runtime.run(
            batch_job(calls, together=True, generate=generate, timeout=10), "q"
        )
        assert [each.candidate for each in runtime.detached] == [1]
    assert calls.began == [8], "the others waited for it"
    assert statuses(result) == ["eligible", "generating (detached)", "eligible", "eligible"]
    assert (result.stop_reason, result.elapsed) == ("deadline", 9.5)


async def test_a_candidates_own_time_is_up_while_it_waits_to_be_gathered(
    autojump_clock: MockClock,
) -> None:
    calls = Calls()
    result = await play(
        batch_job(
            calls,
            together=True,
            generate=after(1),
            n=3,
            max_concurrency=1,
            candidate_timeout=1.75,
        )
    )
    assert calls.batches == [[2]], "the first two were past their own time at 1.75 and 2.75"
    assert statuses(result) == ["timed_out", "timed_out", "eligible"]


async def test_a_moved_deadline_moves_the_call(autojump_clock: MockClock) -> None:
    calls = Calls()
    async with open_runtime() as runtime:
        handle = runtime.start(
            batch_job(calls, together=True, generate=after(1, 12), timeout=10, n=2), "q"
        )
        await trio.sleep(1)
        assert handle.extend(10)
        result = await handle.result()
    assert (calls.batches, calls.began) == ([[0, 1]], [12])
    assert (result.stop_reason, result.output) == ("completed", 1)


# -- leases --------------------------------------------------------------------------------------

SHARED: dict[str, Any] = {"estimate": Usage(total_tokens=100)}


async def test_those_that_are_gathered_do_not_hold_up_who_waits_for_a_lease(
    autojump_clock: MockClock,
) -> None:
    calls = Calls()
    the_job = batch_job(calls, together=True, generate=after(1), timeout=60, **SHARED)
    async with open_runtime(budget=Budget(total_tokens=250)) as runtime:
        result = await runtime.run(the_job, "q")
    assert calls.began == [1]
    assert calls.batches == [[0, 1]], "two have leases, and give nothing back before the call"
    assert statuses(result) == ["eligible"] * 2 + ["budget_exceeded"] * 2


async def test_a_lease_that_another_run_gives_back_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    calls = Calls()

    async def generate(request: Any, ctx: Any) -> int:
        await trio.sleep(5)
        ctx.charge(Usage(total_tokens=1))  # of the 100 that it holds
        return ctx.index

    async with open_runtime(budget=Budget(total_tokens=300)) as runtime:
        other = runtime.start(job(generate=generate, n=1, **SHARED), "q")
        await wait_all_tasks_blocked()
        gathering = batch_job(calls, together=True, generate=after(1), n=3, timeout=60)
        result = await runtime.run(attrs.evolve(gathering, estimate=Usage(total_tokens=75)), "q")
        await other.result()
    assert (calls.batches, calls.began) == ([[0, 1, 2]], [6]), "the last one got its lease at 5"
    assert statuses(result) == ["eligible"] * 3


async def test_the_scoring_estimate_is_charged_for_each_in_a_call(
    autojump_clock: MockClock,
) -> None:
    scored = {"scoring_estimate": Usage(total_tokens=7), "estimate": Usage(total_tokens=3)}

    async def generate(request: Any, ctx: Any) -> int:
        if ctx.index == 2:
            raise ValueError("no answer")
        return ctx.index

    result = await play(batch_job(Calls(), generate=generate, together=True, **scored))
    assert [c.usage.total_tokens for c in result.candidates] == [10, 10, 3, 10]


async def test_what_a_call_cost_is_told_by_its_scores(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> list[Any]:
        await trio.sleep(1)
        return [Score(1.0, usage=Usage(total_tokens=5)), float("nan"), Score("?", usage=six), 4]  # type: ignore[arg-type]

    six = Usage(total_tokens=6)
    result = await play(batch_job(score, together=True, estimate=Usage(total_tokens=1)))
    assert [c.usage.total_tokens for c in result.candidates] == [6, 1, 7, 1]
    assert result.usage.reported.total_tokens == 11


# -- answers -----------------------------------------------------------------------------------


def generator() -> Iterator[float]:
    yield from [1.0] * 4


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([1.0] * 3, "returned 3 scores for 4 candidates"),
        ([1.0] * 5, "returned 5 scores for 4 candidates"),
        ((), "returned 0 scores for 4 candidates"),
        (0.5, "a float"),
        (None, "a NoneType"),
        ("1234", "a str"),
        (b"1234", "a bytes"),
        ({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, "a dict"),
        ({1.0, 2.0, 3.0, 4.0}, "a set"),
        (Score(1.0), "a Score"),
        (generator(), "a generator"),
    ],
)
async def test_an_answer_of_the_wrong_shape_fails_all_of_that_batch(
    answer: Any, told: str, autojump_clock: MockClock
) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        await trio.sleep(1)
        return answer

    result = await play(batch_job(score, together=True))
    assert statuses(result) == ["scoring_failed"] * 4
    for candidate in result.candidates:
        assert isinstance(candidate.error, InvalidScore)
        assert told in str(candidate.error)
        assert "return" in str(candidate.error)
        assert candidate.output == candidate.index, "what was generated is lost"


async def test_what_a_wrong_answer_cost_is_spent_all_the_same(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        return [Score(1.0, usage=Usage(total_tokens=10))] * 6

    result = await play(batch_job(score, together=True))
    assert result.usage.reported.total_tokens == 60


async def test_only_that_batch_fails(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        await trio.sleep(1)
        return [1.0] * (1 if candidates[0].index == 0 else len(candidates))

    result = await play(batch_job(score, size=2))
    assert sorted(statuses(result)) == ["eligible"] * 2 + ["scoring_failed"] * 2


async def test_an_error_fails_all_of_that_batch_as_itself(autojump_clock: MockClock) -> None:
    mine = RuntimeError("no judge")

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        await trio.sleep(1)
        raise mine

    result = await play(batch_job(score, together=True))
    assert statuses(result) == ["scoring_failed"] * 4
    assert all(c.error is mine for c in result.candidates)


async def test_a_refused_top_up_of_its_generator_does_not_blame_a_candidate_for_the_call(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> int:
        assert not await ctx.reserve(Usage(total_tokens=1000))
        return ctx.index

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        raise RuntimeError("no judge")

    limited = {"budget": Budget(total_tokens=40), "estimate": Usage(total_tokens=10)}
    result = await play(batch_job(score, together=True, generate=generate, **limited))
    assert statuses(result) == ["scoring_failed"] * 4


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "high", None])
async def test_a_bad_score_in_a_good_answer_fails_its_own_candidate_only(
    bad: Any, autojump_clock: MockClock
) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        return [bad if c.index == 2 else c.output for c in candidates]

    result = await play(batch_job(score, together=True))
    assert statuses(result) == ["eligible", "eligible", "scoring_failed", "eligible"]
    assert isinstance(result.candidates[2].error, InvalidScore)
    assert result.output == 3


async def test_an_array_is_an_answer(autojump_clock: MockClock) -> None:
    numpy = pytest.importorskip("numpy")

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        return numpy.array([c.output for c in candidates]) * 2

    result = await play(batch_job(score, together=True))
    assert [c.score and c.score.value for c in result.candidates] == [0, 2, 4, 6]


async def test_threshold_and_acceptance_are_judged_as_for_single_scores(
    autojump_clock: MockClock,
) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        return [Score(c.output, accepted=c.index != 3) for c in candidates]

    result = await play(batch_job(score, together=True, threshold=1))
    assert statuses(result) == ["rejected", "eligible", "eligible", "rejected"]
    assert result.output == 2


async def test_the_first_accepted_of_a_call_is_the_one_with_the_lowest_index(
    autojump_clock: MockClock,
) -> None:
    result = await play(batch_job(Calls(), together=True, threshold=1, stop=first_accepted()))
    assert (result.stop_reason, result.output) == ("first_accepted", 1)
    assert statuses(result) == ["rejected", "eligible", "eligible", "eligible"]


async def test_a_rule_that_is_met_cuts_those_that_wait(autojump_clock: MockClock) -> None:
    calls = Calls(took=5)
    result = await play(batch_job(calls, generate=after(1, 2, 3), stop=target(0)))
    assert calls.batches == [[0]]
    assert statuses(result) == ["eligible"] + ["cancelled"] * 3
    assert result.elapsed == 6


# -- events and statuses ------------------------------------------------------------------------


async def test_events_come_in_index_order_for_each_call(autojump_clock: MockClock) -> None:
    record = Record()
    await play(batch_job(Calls(took=1), together=True, generate=after(3, 2, 1)), observers=[record])
    ends = [(e.kind, e.candidate) for e in record.events if e.kind in ("scored", "ended")]
    assert ends == [(kind, index) for index in range(4) for kind in ("scored", "ended")]
    assert [e.sequence for e in record.events] == list(range(21))
    for index in range(4):
        assert record.of(index) == ["started", "leased", "generated", "scored", "ended"]


async def test_its_candidates_are_scoring_while_it_is_called(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(batch_job(Calls(took=9), generate=after(1, 1, 2, 30)), "q")
        await trio.sleep(5)
        told = handle.snapshot().statuses
        assert sum(told.values()) == 4
        assert told["scoring"] + told["generated"] == 3
        assert told["scoring"] >= 1
        handle.cancel()


# -- cut and late -------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True])
async def test_a_stop_cancels_the_call_and_cuts_all_in_it(
    together: bool, autojump_clock: MockClock
) -> None:
    calls = Calls(took=9)
    async with open_runtime() as runtime:
        handle = runtime.start(batch_job(calls, together=together), "q")
        await trio.sleep(1)
        handle.cancel()
        result = await handle.result()
        assert runtime.detached == ()
    assert calls.now == 0, "the call goes on"
    assert statuses(result) == ["cancelled"] * 4
    assert [c.output for c in result.candidates] == [0, 1, 2, 3]
    assert result.elapsed == 1


async def test_the_deadline_cancels_the_call(autojump_clock: MockClock) -> None:
    calls = Calls(took=9)
    result = await play(batch_job(calls, together=True, timeout=4))
    assert calls.began == [0]
    assert (statuses(result), result.elapsed) == (["timed_out"] * 4, 4)
    assert result.stop_reason == "deadline"


async def test_cancelling_the_caller_cancels_the_call(autojump_clock: MockClock) -> None:
    calls = Calls(took=9)
    async with open_runtime() as runtime:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(runtime.run, batch_job(calls), "q")
                await trio.sleep(1)
                scope.cancel()
        assert (trio.current_time() - calls.zero, calls.now) == (1, 0)


async def test_cancelling_around_the_runtime_cancels_the_call(autojump_clock: MockClock) -> None:
    calls = Calls(took=9)
    with trio.CancelScope() as scope:
        async with open_runtime() as runtime:
            handle = runtime.start(batch_job(calls), "q")
            await trio.sleep(1)
            scope.cancel()
    result = await handle.result()
    assert (calls.now, statuses(result)) == (0, ["cancelled"] * 4)


async def test_who_waits_past_its_own_time_is_cut_and_not_called(
    autojump_clock: MockClock,
) -> None:
    calls = Calls(took=2)
    result = await play(
        batch_job(calls, size=1, generate=after(0.5), candidate_timeout=3, n=3, max_concurrency=3)
    )
    assert [len(batch) for batch in calls.batches] == [1, 1]
    assert sorted(statuses(result)) == ["eligible", "timed_out", "timed_out"]
    assert result.elapsed == 3


async def test_who_is_in_a_call_gets_its_status_when_that_answers(
    autojump_clock: MockClock,
) -> None:
    calls = Calls(took=1.5)
    # Candidate 0 waits from 1 on while 1 generates until 2: both are called with at 2.
    the_job = batch_job(
        calls, together=True, generate=after(1), n=2, max_concurrency=1, candidate_timeout=3
    )
    result = await play(the_job)
    assert calls.batches == [[0, 1]]
    assert statuses(result) == ["timed_out", "eligible"]
    assert [c.elapsed for c in result.candidates] == [3.5, 2.5], "cut in the middle of its call"


async def test_a_call_is_cancelled_when_the_time_of_all_in_it_is_up(
    autojump_clock: MockClock,
) -> None:
    calls = Calls(took=60)
    result = await play(batch_job(calls, generate=after(1), candidate_timeout=3))
    assert calls.now == 0
    assert calls.contexts[0].stopping
    assert (statuses(result), result.elapsed) == (["timed_out"] * 4, 3)


async def test_another_call_is_made_after_one_that_was_cancelled(
    autojump_clock: MockClock,
) -> None:
    calls = Calls(took=2)
    the_job = batch_job(
        calls, size=1, generate=after(1), n=3, max_concurrency=1, candidate_timeout=2.5
    )
    result = await play(the_job)
    assert (calls.batches, calls.began) == ([[0], [1], [2]], [1, 2.5, 3.5])
    assert (statuses(result), result.elapsed) == (["timed_out"] * 3, 4.5)


# -- what does not end --------------------------------------------------------------------------


async def test_a_call_that_swallows_its_cancel_is_detached_with_all_in_it(
    autojump_clock: MockClock,
) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        await hold_out(5)
        return [99.0] * len(candidates)

    record = Record()
    limited = {"budget": Budget(total_tokens=400), "estimate": Usage(total_tokens=100)}
    async with open_runtime(observers=[record]) as runtime:
        result = await runtime.run(batch_job(score, together=True, timeout=4, **limited), "q")
        before = (result.candidates, result.usage)
        entries = runtime.detached
        assert [(e.candidate, e.phase, e.kind) for e in entries] == [
            (index, "scoring", "task") for index in range(4)
        ]
        assert all(e.where.startswith(hold_out.__code__.co_filename) for e in entries)
        assert statuses(result) == ["scoring (detached)"] * 4
        assert (result.elapsed, result.selected) == (4 + WORK, None)
        assert runtime.usage.outstanding.total_tokens == 400
        assert await runtime.drain() == ()
        assert [e.ended for e in runtime.detached] == [True] * 4
        assert runtime.usage.outstanding == Usage()
        assert runtime.usage.charged.total_tokens == 400
    assert (result.candidates, result.usage) == before, "a late answer changed the result"
    late = [e.candidate for e in record.events if e.kind == "late_end"]
    assert late == [0, 1, 2, 3], "one late end for each"


async def test_the_error_of_a_detached_call_is_kept_with_each(autojump_clock: MockClock) -> None:
    mine = ValueError("late")

    async def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        await hold_out(5)
        raise mine

    async with open_runtime() as runtime:
        await runtime.run(batch_job(score, together=True, timeout=4), "q")
        await runtime.drain()
        assert [e.error for e in runtime.detached] == [mine] * 4


async def test_its_place_is_free_again_and_no_slot_is_lost(autojump_clock: MockClock) -> None:
    calls = Calls(took=0.125)

    async def score(request: Any, candidates: Any, ctx: Any) -> Any:
        if candidates[0].index == 0:
            await hold_out(50)
        return await calls(request, candidates, ctx)

    the_job = batch_job(
        score, generate=after(0.75), n=6, max_concurrency=1, candidate_timeout=1, size=1
    )
    async with open_runtime() as runtime:
        result = await runtime.run(the_job, "q")
        assert [e.candidate for e in runtime.detached] == [0]
    assert statuses(result)[0] == "scoring (detached)"
    assert (result.stop_reason, result.partial) == ("completed", False), "a slot was lost by it"
    assert calls.batches[:1] == [[1]], "nobody is scored while it hangs"
    assert "eligible" in statuses(result)[2:]


async def test_a_sync_call_that_hangs_is_detached_with_all_in_it() -> None:
    release = threading.Event()
    seen: list[bool] = []

    def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        release.wait(PATIENCE)
        seen.append(ctx.stopping)
        return [99.0] * len(candidates)

    async with open_runtime(grace=0.05, exit_grace=5) as runtime:
        result = await runtime.run(batch_job(score, together=True, timeout=0.25), "q")
        try:
            entries = runtime.detached
            assert [(e.candidate, e.phase, e.kind) for e in entries] == [
                (index, "scoring", "thread") for index in range(4)
            ]
            assert statuses(result) == ["scoring (detached)"] * 4
            assert result.elapsed < 0.25 + 0.05 + SLACK
        finally:
            release.set()
        assert await runtime.drain() == ()
        assert [e.ended for e in runtime.detached] == [True] * 4
        assert runtime.usage.outstanding == Usage()
    assert seen == [True], "a detached call isn't told that it should stop"
    assert statuses(result) == ["scoring (detached)"] * 4


# -- threads -----------------------------------------------------------------------------------


async def test_a_sync_batch_scorer_runs_in_a_thread() -> None:
    where: list[bool] = []
    loop = threading.get_ident()

    def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        where.append(threading.get_ident() == loop)
        return [c.output for c in candidates]

    result = await play(batch_job(score, together=True))
    assert where == [False]
    assert (statuses(result), result.output) == (["eligible"] * 4, 3)


async def test_a_sync_call_that_looks_at_stopping_ends_in_time() -> None:
    told: list[BaseException] = []

    def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        while True:
            time.sleep(0.002)
            try:
                ctx.raise_if_stopping()
            except RunStopping as error:
                told.append(error)
                raise

    async with open_runtime(grace=5) as runtime:
        result = await runtime.run(batch_job(score, together=True, timeout=0.2), "q")
        assert runtime.detached == ()
    assert statuses(result) == ["timed_out"] * 4
    assert "scoring of candidates [0, 1, 2, 3] has been told to stop" in str(told[0])
    assert result.elapsed < 0.2 + SLACK


async def test_an_awaitable_out_of_a_sync_batch_scorer_is_awaited() -> None:
    calls = Calls()
    result = await play(
        batch_job(lambda request, them, ctx: calls(request, them, ctx), together=True)  # noqa: PLW0108  (its kind counts)
    )
    assert (calls.batches, statuses(result)) == ([[0, 1, 2, 3]], ["eligible"] * 4)


async def test_a_call_does_not_start_once_it_was_told_to_stop() -> None:
    release, began = threading.Event(), []

    def generate(request: Any, ctx: Any) -> int:
        release.wait(PATIENCE)  # holds the only thread until the run is stopped
        return ctx.index

    def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        began.append(ctx)
        return [1.0] * len(candidates)

    async with open_runtime(threads=1, grace=5) as runtime:
        blocker = runtime.start(job(generate=generate, n=1), "q")
        await trio.sleep(0.05)
        handle = runtime.start(batch_job(score), "q")
        await trio.sleep(0.05)
        handle.cancel()
        release.set()
        assert statuses(await handle.result()) == ["cancelled"] * 4
        await blocker.result()
    assert began == []


# -- context variables, interrupts --------------------------------------------------------------


async def test_context_variables_of_a_call_are_those_of_the_start(
    autojump_clock: MockClock,
) -> None:
    name = contextvars.ContextVar("name", default="none")
    seen: list[str] = []

    async def generate(request: Any, ctx: Any) -> int:
        name.set(f"candidate {ctx.index}")
        return ctx.index

    async def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        seen.append(name.get())
        name.set("the call before")
        await trio.sleep(1)
        return [1.0] * len(candidates)

    name.set("the caller")
    await play(batch_job(score, generate=generate, size=2))
    assert seen == ["the caller"] * len(seen)
    assert len(seen) >= 2
    assert name.get() == "the caller"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_an_interrupt_out_of_a_call_ends_the_run_and_is_raised(
    kind: type[BaseException], autojump_clock: MockClock
) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        await trio.sleep(1)
        raise kind

    async with open_runtime() as runtime:
        handle = runtime.start(batch_job(score, together=True), "q")
        with pytest.raises(kind):
            await handle.result()
        assert handle.snapshot().statuses == {"scoring_failed": 4}


async def test_a_call_that_never_yields_does_not_hold_the_loop(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidates: Any, ctx: Any) -> list[float]:
        return [1.0] * len(candidates)

    turns = 0

    async def count(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        nonlocal turns
        task_status.started()
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        await nursery.start(count)
        await play(batch_job(score, n=50, max_concurrency=1, size=1))
        nursery.cancel_scope.cancel()
    assert turns >= 50


# -- how many calls at once ---------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "most"), [(None, 1), (1, 1), (3, 3), (9, 8)])
async def test_so_many_batches_are_scored_at_once(
    asked: int | None, most: int, autojump_clock: MockClock
) -> None:
    calls = Calls(took=1)
    the_job = batch_job(calls, size=1, n=8, max_concurrency=8, score_concurrency=asked)
    result = await play(the_job)
    assert (calls.most, len(calls.batches)) == (most, 8)
    assert statuses(result) == ["eligible"] * 8


@pytest.mark.parametrize(("asked", "most"), [(None, 2), (1, 1), (2, 2), (5, 5)])
async def test_so_many_are_scored_at_once_apart_from_generation(
    asked: int | None, most: int, autojump_clock: MockClock
) -> None:
    now = found = 0

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        nonlocal now, found
        now += 1
        found = max(now, found)
        await trio.sleep(10)
        now -= 1
        return candidate.output

    the_job = job(generate=after(1), score=score, n=6, max_concurrency=2, score_concurrency=asked)
    result = await play(the_job)
    assert found == most
    assert statuses(result) == ["eligible"] * 6
    assert result.elapsed <= 1 + 10 * -(-6 // most) + 2
