"""Small things, settled (design §11): names, leases, publications, the end's edges.

Under virtual time.
"""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import hortator
from hortator import (
    Budget,
    InvalidJob,
    LeaseExceeded,
    RunEnded,
    Score,
    Usage,
    open_runtime,
    target,
)
from hortator.protocols.interfaces import Remaining
from tests.contract.scenes import GRACE, WORK, Record, Stubborn, after, job, statuses, stubborn_for

# -- names ----------------------------------------------------------------------------------------

AMOUNTS = [
    *("model_calls", "tool_calls", "input_tokens", "output_tokens"),
    *("cached_tokens", "reasoning_tokens", "total_tokens", "cost"),
]
LIMITED = [name for name in AMOUNTS if name not in ("cached_tokens", "reasoning_tokens")]


def fields(kind: Any) -> list[str]:
    return [field.name for field in attrs.fields(kind)]


def test_names_of_amounts() -> None:
    assert fields(Usage) == AMOUNTS
    assert fields(Budget) == LIMITED
    assert fields(Remaining) == ["seconds", *LIMITED]


def test_names_of_selectors_and_rules() -> None:
    assert hortator.best_score().name == "best_score"
    assert hortator.first_accepted().reason == "first_accepted"
    assert hortator.target(1).reason == "target"
    assert hortator.all_candidates().reason == "completed"


# -- how runs end ---------------------------------------------------------------------------------


async def test_a_rule_that_is_met_before_the_deadline_wins_though_both_are_seen_at_once(
    autojump_clock: MockClock,
) -> None:
    # The score is there just in time; telling of it takes until after the deadline.
    def observe(event: Any) -> None:
        if event.kind == "scored":
            autojump_clock.jump(1)

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=after(0.9), n=1, timeout=1, stop=target(0)), "q", observers=[observe]
        )
    assert (result.stop_reason, result.output, result.partial) == ("target", 0, False)


async def test_elapsed_includes_the_grace_that_was_used(autojump_clock: MockClock) -> None:
    async def observe(event: Any) -> None:
        await trio.sleep(0.03 if event.terminal else 0)

    async with open_runtime() as runtime:
        began = trio.current_time()
        work = await runtime.run(job(generate=Stubborn(1.1, 1), timeout=1), "q")
        assert trio.current_time() - began == pytest.approx(work.elapsed)
        delivery = await runtime.run(job(generate=after(1)), "q", observers=[observe])
    assert work.elapsed == pytest.approx(1.1)
    assert delivery.elapsed == pytest.approx(1.03)


async def test_an_async_generator_function_is_refused() -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        yield 1

    with pytest.raises(InvalidJob, match=r"yield.*ctx\.publish"):
        job(generate=generate)


# -- publish --------------------------------------------------------------------------------------


async def test_published_then_cut_stands_and_can_win(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.publish(f"first of {ctx.index}", ctx.index)
        await trio.sleep(0.5)
        ctx.publish(f"second of {ctx.index}", 10 - ctx.index)
        await trio.sleep(9)

    record = Record()
    async with open_runtime() as runtime:
        late = await runtime.run(job(generate=generate, timeout=1), "q", observers=[record])
        handle = runtime.start(job(generate=generate), "q")
        await trio.sleep(0.25)
        handle.cancel()
        cancelled = await handle.result()
    assert (late.output, late.stop_reason) == ("second of 0", "deadline")
    assert (cancelled.output, cancelled.stop_reason) == ("first of 3", "cancelled")
    for result, status in ((late, "timed_out"), (cancelled, "cancelled")):
        assert statuses(result) == [status] * 4, "a status of its own was made up for it"
        assert all(candidate.partial and candidate.eligible for candidate in result.candidates)
    assert late.candidates[1].score == Score(9.0)
    assert record.of(0).count("published") == 2


async def test_the_last_publication_with_a_score_stands(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.publish("scored", 1)
        ctx.publish("not scored")
        await trio.sleep(9)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert result.output == "scored"


async def test_published_without_a_score_is_kept_and_not_eligible(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.publish(1)
        ctx.publish(2)
        await trio.sleep(9)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    (candidate,) = result.candidates
    assert (candidate.output, candidate.partial, candidate.score) == (2, True, None)
    assert (candidate.eligible, result.selected) == (False, None)


async def test_published_then_failed_is_not_eligible_and_keeps_it_as_partial_output(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 1:
            ctx.publish("draft", 99)
            raise OSError
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate), "q")
    candidate = result.candidates[1]
    assert (candidate.status, candidate.eligible) == ("generation_failed", False)
    assert (candidate.output, candidate.partial) == ("draft", True)
    assert result.output == 3


async def test_published_then_finished_counts_for_what_it_returned(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.publish("draft", 99)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate), "q")
        rejected = await runtime.run(job(generate=generate, threshold=50), "q")
    assert result.output == 3
    assert not any(candidate.partial for candidate in result.candidates)
    assert statuses(rejected) == ["rejected"] * 4


async def test_a_publication_below_the_threshold_is_not_eligible(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.publish(ctx.index, Score(ctx.index, accepted=ctx.index != 3))
        await trio.sleep(9)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, threshold=1, timeout=1), "q")
    assert [c.eligible for c in result.candidates] == [False, True, True, False]
    assert result.output == 2


# -- leases ---------------------------------------------------------------------------------------

CALLS: dict[str, Any] = {"budget": Budget(model_calls=8), "estimate": Usage(model_calls=2)}


async def test_who_is_denied_more_and_returns_is_eligible(autojump_clock: MockClock) -> None:
    answers: list[bool] = []

    async def generate(request: Any, ctx: Any) -> Any:
        answers.append(await ctx.reserve(Usage(model_calls=1)))
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, **CALLS), "q")
    assert answers == [False] * 4, "four leases of two calls fill the budget of eight"
    assert statuses(result) == ["eligible"] * 4


async def test_who_is_denied_more_and_raises_has_exceeded_the_budget(
    autojump_clock: MockClock,
) -> None:
    mine = RuntimeError("no money")

    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 1 and not await ctx.reserve(Usage(model_calls=1)):
            raise mine
        await trio.sleep(1)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, **CALLS), "q")
    assert statuses(result) == ["eligible", "budget_exceeded", "eligible", "eligible"]
    assert result.candidates[1].error is mine


async def test_a_top_up_that_is_granted_covers_what_is_spent(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        assert ctx.remaining().model_calls == 2
        assert await ctx.reserve(Usage(model_calls=3))
        assert ctx.remaining().model_calls == 5
        ctx.charge(Usage(model_calls=4))
        assert ctx.remaining().model_calls == 1
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, max_concurrency=1, **CALLS), "q")
    assert statuses(result) == ["eligible"], result.candidates[0].error
    assert result.usage.charged.model_calls == 4, "what was not spent goes back"


@pytest.mark.parametrize("caught", [False, True])
async def test_a_spend_past_the_lease_is_recorded_and_fatal_only_if_it_gets_out(
    caught: bool, autojump_clock: MockClock
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.1)  # so that all four have their leases
        if ctx.index == 1:
            with contextlib.suppress(*[LeaseExceeded] * caught):
                ctx.charge(Usage(model_calls=3))
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, **CALLS), "q")
    status = "eligible" if caught else "budget_exceeded"
    assert statuses(result) == ["eligible", status, "eligible", "eligible"]
    assert result.candidates[1].usage.model_calls == 3
    assert (result.candidates[1].error is None) == caught


async def test_charging_after_ones_own_end_raises_and_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    errors: list[BaseException] = []
    contexts: list[Any] = []

    async def generate(request: Any, ctx: Any) -> Any:
        contexts.append(ctx)
        await trio.sleep(ctx.index)
        if ctx.index == 1:
            try:
                contexts[0].charge(Usage(model_calls=1))
            except RunEnded as error:
                errors.append(error)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=2, **CALLS), "q")
        before = (result.usage, result.candidates)
        with pytest.raises(RunEnded):
            contexts[1].charge(Usage(model_calls=1))
        assert (result.usage, result.candidates) == before
        assert runtime.usage.reported == Usage()
    assert len(errors) == 1
    assert result.candidates[0].usage.model_calls == 2, "the estimate, and nothing else"
    assert result.telemetry.refused == 1, "it is counted"


async def test_past_the_limit_later_ones_are_denied_and_lease_holders_go_on(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 0:
            with contextlib.suppress(LeaseExceeded):
                ctx.charge(Usage(model_calls=50))
        await trio.sleep(ctx.index)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=4, max_concurrency=2, **CALLS), "q")
    assert statuses(result) == ["eligible", "eligible", "budget_exceeded", "budget_exceeded"]
    assert (result.stop_reason, result.partial, result.output) == ("budget_exceeded", True, 1)


async def test_a_candidate_that_is_denied_is_no_end_of_the_run_while_others_work(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        with contextlib.suppress(LeaseExceeded):
            ctx.charge(Usage(model_calls=9 if ctx.index == 0 else 1))
        await trio.sleep(ctx.index * 3)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=4, max_concurrency=2, **CALLS), "q")
    assert result.elapsed == pytest.approx(3), "candidate 1 was cut off by the denial of another"
    assert result.output == 1


# -- clean-up -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "limit", "finished"),
    [(0.1, None, True), (0.19, None, True), (0.3, None, False), (0.1, 0.05, False)],
)
async def test_cleanup_has_what_is_left_of_the_work_share(
    seconds: float, limit: float | None, finished: bool, autojump_clock: MockClock
) -> None:
    done: list[int] = []

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            with ctx.cleanup(limit):
                await trio.sleep(seconds)
                done.append(ctx.index)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
        assert runtime.detached == (), "cut clean-up is no detached work"
    assert done == [0] * finished
    assert statuses(result) == ["timed_out"]
    assert result.elapsed == pytest.approx(1 + min(seconds, limit or WORK))


async def test_without_cleanup_an_await_is_cut_at_once(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            await trio.sleep(GRACE / 2)

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert statuses(result) == ["timed_out"]
    assert result.elapsed == pytest.approx(1)


# -- detached -------------------------------------------------------------------------------------


async def test_the_place_of_detached_work_is_outside_trio_and_the_library(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        with ctx.cleanup(9), trio.CancelScope(shield=True):
            await ctx.reserve(Usage())
            send, receive = trio.open_memory_channel[int](0)
            with trio.move_on_after(5):
                await receive.receive()  # stuck in trio, which is not what one wants to know
            send.close()

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, n=1, timeout=1), "q")
        (entry,) = runtime.detached
    assert entry.where.startswith(f"{__file__}:"), entry.where
    assert entry.where.endswith("generate"), entry.where


async def test_drain_is_a_wait_that_can_be_cancelled(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await stubborn_for(5)

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, n=1, timeout=1), "q")
        with trio.move_on_after(1) as scope:
            await runtime.drain()
        assert scope.cancelled_caught
        assert [entry.ended for entry in runtime.detached] == [False]
        assert await runtime.drain() == ()
