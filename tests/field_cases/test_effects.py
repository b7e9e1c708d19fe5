"""B12, B26: what had happened before the cut is told as it was, and what was good is kept.

Virtual time, but for what is published from a thread.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Score, best_of_n, open_runtime
from hortator.protocols.candidate import Effect
from tests.field_cases.scenes import (
    CALLERS,
    DOORS,
    Hold,
    check_account,
    index_score,
    job_of,
    statuses,
    stopped,
)

# B12: an effect whose end is not known is not told as one that did not happen


async def waits(ctx: Any) -> None:
    await trio.sleep_forever()


async def waits_in_a_nursery(ctx: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)


async def breaks_off_with_an_error(ctx: Any) -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise ConnectionError("cut while the answer was on its way") from None


async def breaks_off_with_a_group(ctx: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(breaks_off_with_an_error, ctx)
        await trio.sleep_forever()


async def fails_while_cleaning_up(ctx: Any) -> None:
    try:
        await trio.sleep_forever()
    finally:
        with ctx.cleanup():
            await trio.sleep(0.1)
            raise OSError("could not say goodbye")


IN_FLIGHT = [
    waits,
    waits_in_a_nursery,
    breaks_off_with_an_error,
    breaks_off_with_a_group,
    fails_while_cleaning_up,
]


@pytest.mark.parametrize("phase", ["generation", "scoring"])
@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("in_flight", IN_FLIGHT, ids=lambda each: each.__name__)
@pytest.mark.parametrize("door", ["deadline", "handle.cancel"])
async def test_B12_done_unknown_and_not_started_are_told_apart(
    door: str,
    in_flight: Callable[[Any], Awaitable[None]],
    kind: Any,
    phase: str,
    autojump_clock: MockClock,
) -> None:
    async def three_effects(ctx: Any) -> None:
        effects = [ctx.effect(name, kind) for name in "ABC"]
        async with effects[0]:
            await trio.sleep(1)
        async with effects[1]:
            await in_flight(ctx)
        async with effects[2]:
            raise AssertionError("C was begun")

    async def generate(request: str, ctx: Any) -> str:
        if phase == "generation":
            await three_effects(ctx)
        return "answer"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        await three_effects(ctx)
        return 1.0

    job = job_of(generate, score, n=2, side_effects="allow")
    async with stopped(door, job, at=2) as run:
        for candidate in run.result.candidates:
            assert candidate.effects == (
                Effect("A", kind, "done"),
                Effect("B", kind, "unknown"),
                Effect("C", kind, "not_started"),
            )
        told = [(event.name, event.state) for event in run.record.of("effect")]
        assert sorted(told) == sorted([("A", "unknown"), ("A", "done"), ("B", "unknown")] * 2)
        check_account(run.result, 2)


@pytest.mark.parametrize("door", CALLERS)
async def test_B12_nothing_begins_once_told_to_stop(door: str, autojump_clock: MockClock) -> None:
    begun: list[str] = []

    async def generate(request: str, ctx: Any) -> None:
        queued = ctx.effect("queued", "write")
        try:
            await trio.sleep_forever()
        finally:
            async with queued:
                begun.append("queued")

    async with stopped(door, job_of(generate, n=1, side_effects="allow"), at=2) as run:
        assert begun == [], "an effect was begun after the stop"
        assert run.result.candidates[0].effects == (Effect("queued", "write", "not_started"),)


async def test_B12_one_that_ends_in_spite_of_the_cancel_is_done(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> None:
        async with ctx.effect("commit", "write"):
            with trio.CancelScope(shield=True):
                await trio.sleep(2.1)
        await trio.sleep_forever()

    async with stopped("deadline", job_of(generate, n=1, side_effects="allow"), at=2) as run:
        assert run.late == pytest.approx(0.1)
        assert run.result.candidates[0].effects == (Effect("commit", "write", "done"),)


@pytest.mark.parametrize("error", [ValueError("no"), ExceptionGroup("", [OSError(), KeyError()])])
async def test_B12_an_effect_that_fails_by_itself_has_failed(
    error: Exception, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        try:
            async with ctx.effect("call", "read"):
                raise error
        except Exception:
            pass
        async with ctx.effect("call", "read"):  # the same name again is another effect
            pass
        return "answer"

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate, n=1), "q")
    assert [effect.state for effect in result.candidates[0].effects] == ["failed", "done"]


async def test_B12_a_write_in_an_isolated_run_was_not_begun(autojump_clock: MockClock) -> None:
    begun: list[int] = []

    async def generate(request: str, ctx: Any) -> str:
        if ctx.index:
            async with ctx.effect("send", "write"):
                begun.append(ctx.index)
        return "answer"

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate, n=2), "q")
    assert begun == []
    assert statuses(result) == ["eligible", "side_effect_blocked"]
    assert result.candidates[1].effects == (Effect("send", "write", "not_started"),)


async def test_B12_what_is_left_behind_in_mid_effect_stays_unknown(
    autojump_clock: MockClock,
) -> None:
    free = trio.Event()

    async def generate(request: str, ctx: Any) -> None:
        async with ctx.effect("send", "write"):
            with trio.CancelScope(shield=True):
                await free.wait()

    job = job_of(generate, n=1, side_effects="allow")
    async with stopped("handle.cancel", job, at=2, free=free.set) as run:
        [stuck] = run.result.candidates
        assert stuck.detached
        assert stuck.effects == (Effect("send", "write", "unknown"),)
        free.set()
        await run.runtime.drain()
        assert run.result.candidates[0].effects == (Effect("send", "write", "unknown"),)


# B26: a good answer that exists before the cut is not lost


@pytest.mark.parametrize("door", CALLERS)
async def test_B26_the_snapshot_that_was_published_is_the_result(
    door: str, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        if ctx.index:
            return "a finished answer that scores 0.5"
        await trio.sleep(1)
        ctx.publish("snapshot", 0.9)
        await trio.sleep_forever()
        raise AssertionError

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        return 0.5

    async with stopped(door, job_of(generate, score, n=2), at=2) as run:
        result = run.result
        assert result.output == "snapshot"
        assert result.partial
        selected = result.selected
        status = "timed_out" if "deadline" in door else "cancelled"
        assert (selected.status, selected.partial, selected.eligible) == (status, True, True)
        assert selected.score == Score(0.9)
        assert result.selected_by == "best_score"
        check_account(result, 2)


def nothing(ctx: Any) -> None:
    """Publish nothing."""


def unscored(ctx: Any) -> None:
    ctx.publish("unscored")


def twice(ctx: Any) -> None:
    ctx.publish("better", 0.9)
    ctx.publish("last", 0.7)


def then_unscored(ctx: Any) -> None:
    ctx.publish("scored", 0.8)
    ctx.publish("unscored")


def rejected(ctx: Any) -> None:
    ctx.publish("rejected", Score(0.9, accepted=False))


def below_threshold(ctx: Any) -> None:
    ctx.publish("below", 0.1)


def at_threshold(ctx: Any) -> None:
    ctx.publish("at", 0.5)


def not_a_number(ctx: Any) -> None:
    ctx.publish("scored", 0.8)
    for junk in (float("nan"), float("inf"), "0.9", None):
        try:
            ctx.publish("junk", junk)
        except ValueError:
            pass


def revised_in_place(ctx: Any) -> None:
    draft = {"lines": ["good"]}
    ctx.publish(draft, 0.9)
    draft["lines"].append("half a li")


@pytest.mark.parametrize(
    ("publish", "output", "eligible"),
    [
        (nothing, None, False),
        (unscored, "unscored", False),
        (twice, "last", True),
        (then_unscored, "scored", True),
        (rejected, "rejected", False),
        (below_threshold, "below", False),
        (at_threshold, "at", True),
        (not_a_number, "scored", True),
        (revised_in_place, {"lines": ["good"]}, True),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("how", ["cut", "own timeout", "failed", "detached"])
async def test_B26_what_counts_is_the_last_scored_publication_of_the_unfinished(
    how: str,
    publish: Callable[[Any], None],
    output: object,
    eligible: bool,
    autojump_clock: MockClock,
) -> None:
    free = trio.Event()

    async def generate(request: str, ctx: Any) -> str:
        publish(ctx)
        if how == "failed":
            raise ValueError("after all")
        with trio.CancelScope(shield=how == "detached"):
            await free.wait()
        raise AssertionError

    limits = {"candidate_timeout": 1.0} if how == "own timeout" else {}
    job = job_of(generate, n=1, threshold=0.5, **limits)
    async with stopped("deadline", job, at=2, free=free.set) as run:
        [candidate] = run.result.candidates
        good = eligible and how != "failed"
        assert (candidate.output, candidate.eligible) == (output, good)
        assert candidate.partial == (publish is not nothing)
        assert (run.result.selected is candidate) == good
        assert candidate.detached == (how == "detached")
        status = {"failed": "generation_failed", "detached": "generating"}.get(how, "timed_out")
        assert candidate.status == status


async def test_B26_who_returns_is_scored_for_what_he_returns(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> str:
        ctx.publish("early", 1.0)
        return "final"

    async with open_runtime() as runtime:
        result = await runtime.run(job_of(generate, n=1), "q")
    assert (result.output, result.candidates[0].score) == ("final", Score(0.0))
    assert not result.candidates[0].partial


async def test_B26_a_run_cut_in_scoring_keeps_the_output_and_may_select_the_publication(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        if ctx.index:
            ctx.publish("early", 0.4)
        return "final"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        await trio.sleep_forever()
        raise AssertionError

    async with stopped("deadline", job_of(generate, score, n=2), at=2) as run:
        assert [c.output for c in run.result.candidates] == ["final", "early"]
        assert run.result.output == "early"


async def test_B26_a_nested_run_cut_by_its_parents_deadline_hands_its_best_up(
    autojump_clock: MockClock,
) -> None:
    async def draft(request: str, ctx: Any) -> str:
        ctx.publish(f"draft {ctx.index}", ctx.index)
        await trio.sleep_forever()
        raise AssertionError

    async def generate(request: str, ctx: Any) -> str:
        return str((await best_of_n(job_of(draft, n=2), request)).output)

    async with stopped("deadline", job_of(generate, n=1), at=2) as run:
        assert run.result.output == "draft 1", "the nested run's best so far was lost"
        assert run.late <= 0


async def test_B26_a_thread_may_publish_too(hold: Hold) -> None:
    def generate(request: str, ctx: Any) -> None:
        for percent in range(91):
            ctx.publish(f"{percent} %", percent / 100)
        hold.block()

    job = job_of(generate, index_score, n=1)
    async with stopped("deadline", job, at=0.3, grace=0.05, free=hold.let_go) as run:
        assert run.result.output == "90 %"
        [candidate] = run.result.candidates
        assert (candidate.status, candidate.detached) == ("generating", True)
        assert len(run.record.of("published")) == 91


@pytest.mark.parametrize("door", DOORS)
async def test_B26_what_is_published_after_the_stop_still_counts_until_the_end(
    door: str, autojump_clock: MockClock
) -> None:
    async def generate(request: str, ctx: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ctx.publish("saved on the way out", 0.9)

    async with stopped(door, job_of(generate, n=1), at=2) as run:
        assert run.record.finished.selected == 0
        if run.result is not None:
            assert run.result.output == "saved on the way out"
