"""Selectors at work: what they are given, how long they may take, what becomes of their failures.

Under virtual time, with callbacks that hold out behind a shield and end by themselves; hung
threads are held by an event that each test sets.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import trio
from trio.testing import MockClock

from hortator import (
    BestOfN,
    Candidate,
    InvalidJob,
    NoEligibleCandidate,
    ObserverFailed,
    Preference,
    RunResult,
    Status,
    Usage,
    best_of_n,
    first_accepted,
    minimum_bayes_risk,
    open_runtime,
    plurality_vote,
    target,
    top_k,
    tournament,
    weighted_vote,
)
from hortator.protocols.errors import InvalidChoice, InvalidScore, NoThreadLeft
from hortator.protocols.events import LateEnd, RunFinished
from tests.contract.scenes import GRACE, SLACK, WORK, Record, after, echo, job, stubborn_for

CUT = WORK + (GRACE - WORK) / 2
"""Seconds after a stop at which a selector is cut."""


async def run(*, observers: Sequence[Any] = (), seed: int | None = None, **parts: Any) -> Any:
    """Run four candidates, best score 3, with other parts exchanged."""
    async with open_runtime() as runtime:
        return await runtime.run(job(**parts), ["q"], observers=observers, seed=seed)


def unscored(**parts: Any) -> BestOfN[Any, Any]:
    """A job without a scorer."""
    return job(**{"score": None, **parts})


async def choose_1(request: Any, candidates: Sequence[Candidate[Any]]) -> int:
    return 1


def _handed_on(function: Any, *args: Any) -> Any:
    """Sync, but what it returns has to be awaited."""
    return function(*args)


async def of_no_use(*args: Any) -> Any:
    raise LookupError("none of them")


# -- what a selector of one's own is given, and may return ----------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync", "async callable", "sync giving an awaitable"])
async def test_it_gets_the_request_and_all_records_in_index_order(kind: str) -> None:
    seen: list[Any] = []

    def look(request: Any, candidates: Sequence[Candidate[Any]]) -> int:
        seen.append((request, candidates, threading.current_thread()))
        return 1

    async def look_async(request: Any, candidates: Sequence[Candidate[Any]]) -> int:
        await trio.lowlevel.checkpoint()
        return look(request, candidates)

    class Looks:
        async def __call__(self, request: Any, candidates: Any) -> int:
            return look(request, candidates)

    select: Any = {
        "async": look_async,
        "sync": look,
        "async callable": Looks(),
        "sync giving an awaitable": functools.partial(_handed_on, Looks()),
    }[kind]

    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 2:
            raise ValueError("fails")
        await trio.sleep(0)
        return ctx.index

    record = Record()
    result = await run(select=select, generate=generate, observers=[record])
    ((request, candidates, thread),) = seen
    assert request == ["q"]
    assert candidates == result.candidates
    assert [c.index for c in candidates] == [0, 1, 2, 3]
    assert (thread is threading.main_thread()) == (kind != "sync")
    names = {"async": "look_async", "sync": "look", "async callable": "Looks"}
    assert result.selected_by == names.get(kind, "_handed_on")
    assert (result.output, result.stop_reason, result.partial) == (1, "completed", False)
    assert result.top == (result.selected,)
    assert record.terminal.selected == 1
    assert result.selection_error is None


@pytest.mark.parametrize(
    "pick",
    [lambda c: c[1], lambda c: 1, lambda c: c[1].index, lambda c: np.int64(1)],
)
async def test_it_returns_one_of_them_or_an_index(pick: Callable[[Any], Any]) -> None:
    result = await run(select=lambda request, candidates: pick(candidates))
    assert (result.output, result.stop_reason) == (1, "completed")


async def test_it_may_decline() -> None:
    result = await run(select=lambda request, candidates: None)
    assert (result.selected, result.stop_reason) == (None, "selector_declined")
    assert (result.partial, result.selected_by, result.top) == (False, "", ())
    with pytest.raises(NoEligibleCandidate, match="selector_declined"):
        _ = result.output


async def _fails_at_0(request: Any, ctx: Any) -> Any:
    await trio.lowlevel.checkpoint()
    if ctx.index == 0:
        raise ValueError("fails")
    return ctx.index


@pytest.mark.parametrize("answer", [4, -1, True, 1.0, "1", object(), Candidate(1, Status.ELIGIBLE)])
async def test_what_is_none_of_them_fails_the_selection(answer: Any) -> None:
    result = await run(select=lambda request, candidates: answer)
    assert (result.selected, result.stop_reason) == (None, "selection_failed")
    assert (result.partial, result.selected_by) == (False, "")
    assert isinstance(result.selection_error, InvalidChoice)
    assert str(result.selection_error).startswith("the selector returned")


@pytest.mark.parametrize("pick", [lambda c: 0, lambda c: c[0]])
async def test_so_does_one_that_is_not_eligible(pick: Callable[[Any], Any]) -> None:
    result = await run(select=lambda r, candidates: pick(candidates), generate=_fails_at_0)
    assert result.stop_reason == "selection_failed"
    assert "generation_failed" in str(result.selection_error)


FAILING: dict[str, dict[str, Any]] = {
    "a selector": {"select": of_no_use},
    "a sync selector": {"select": lambda r, c: c[9]},
    "a key": {"select": plurality_vote(key=lambda output: {}[output])},
    "a weight": {"select": weighted_vote(weight=lambda c: {}[c.index])},
    "a judge": {"select": tournament(of_no_use)},
    "a similarity": {"select": minimum_bayes_risk(of_no_use)},
    "a sync judge": {"select": tournament(lambda r, a, b: {}[1])},
    "a sync similarity": {"select": minimum_bayes_risk(lambda a, b: {}[1])},
}
ON_THE_LOOP = [case for case in FAILING if "sync" not in case]
"""Virtual time does not wait for threads."""


@pytest.mark.parametrize("case", FAILING)
async def test_what_it_raises_is_kept_as_itself_and_among_the_causes(case: str) -> None:
    result = await run(**FAILING[case], generate=_fails_at_0)
    assert (result.selected, result.stop_reason) == (None, "selection_failed")
    assert isinstance(result.selection_error, LookupError)
    with pytest.raises(NoEligibleCandidate) as caught:
        _ = result.output
    assert caught.value.causes[0] is result.selection_error
    assert isinstance(caught.value.causes[1], ValueError)


@pytest.mark.parametrize("case", ON_THE_LOOP)
async def test_in_a_run_that_was_cut_short_the_built_in_order_decides_then(
    case: str, autojump_clock: MockClock
) -> None:
    result = await run(**FAILING[case], generate=after(0.5, 0.6, 0.7, 5), timeout=1)
    assert (result.output, result.selected_by) == (2, "fallback")
    assert (result.stop_reason, result.partial) == ("deadline", True)
    assert isinstance(result.selection_error, LookupError)
    assert result.top == (result.selected,)


async def test_a_similarity_that_is_not_finite_fails_the_selection() -> None:
    result = await run(select=minimum_bayes_risk(lambda a, b: float("nan")))
    assert (result.stop_reason, type(result.selection_error)) == ("selection_failed", InvalidScore)


async def test_one_that_declines_at_the_deadline_has_declined(autojump_clock: MockClock) -> None:
    async def declines(request: Any, candidates: Any) -> None:
        return None

    result = await run(select=declines, generate=after(0.5, 5), timeout=1)
    assert (result.selected, result.stop_reason, result.selected_by) == (None, "deadline", "")
    assert result.selection_error is None


@pytest.mark.parametrize(
    "select", [of_no_use, tournament(of_no_use), minimum_bayes_risk(of_no_use)]
)
async def test_nobody_is_asked_when_nobody_is_eligible(select: Any) -> None:
    async def fails(request: Any, ctx: Any) -> Any:
        raise ValueError

    result = await run(select=select, generate=fails)
    assert (result.stop_reason, result.selection_error) == ("no_eligible", None)


async def test_nor_if_the_rule_has_named_one() -> None:
    result = await run(select=of_no_use, stop=first_accepted())
    assert (result.stop_reason, result.selected_by) == ("first_accepted", "first_accepted")
    assert result.top == (result.selected,)


async def test_nor_if_a_run_that_is_cut_short_is_to_fail(autojump_clock: MockClock) -> None:
    result = await run(select=of_no_use, on_early_stop="fail", generate=after(0.5, 5), timeout=1)
    assert (result.selected, result.stop_reason) == (None, "deadline")
    assert result.selection_error is None


async def test_a_rule_that_ended_the_run_is_no_excuse_for_a_selector_that_fails() -> None:
    result = await run(select=of_no_use, stop=target(0))
    assert (result.stop_reason, result.selected) == ("selection_failed", None)


# -- without a scorer ----------------------------------------------------------------------------

SCORELESS: dict[str, Any] = {
    "plurality_vote": plurality_vote(key=lambda output: output % 2),
    "weighted_vote": weighted_vote(weight=lambda c: c.index),
    "tournament": tournament(lambda r, a, b: max(a, b, key=lambda c: c.output)),
    "minimum_bayes_risk": minimum_bayes_risk(lambda a, b: -abs(a - b)),
    "choose_1": choose_1,
}


@pytest.mark.parametrize("name", SCORELESS)
async def test_without_a_scorer_what_was_generated_is_eligible(name: str) -> None:
    record = Record()
    async with open_runtime() as runtime:
        result = await runtime.run(
            unscored(select=SCORELESS[name], scoring_estimate=Usage(model_calls=7)),
            "q",
            observers=[record],
        )
    assert result.selected_by == name
    expected = {"plurality_vote": 0, "weighted_vote": 3, "tournament": 3}.get(name, 1)
    assert result.output == expected
    for candidate in result.candidates:
        assert (candidate.status, candidate.score) == (Status.ELIGIBLE, None)
        assert candidate.usage == Usage()
        assert record.of(candidate.index) == ["started", "leased", "generated", "ended"]


async def test_without_scores_the_cheapest_is_the_best_so_far(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.1)
        ctx.charge(Usage(cost=(4, 2, 2, 9)[ctx.index]))
        if ctx.index == 3:
            await trio.sleep(9)
        return ctx.index

    async with open_runtime() as runtime:
        handle = runtime.start(unscored(select=of_no_use, generate=generate, timeout=1), "q")
        await trio.sleep(0.5)
        assert handle.snapshot().best == 1
        result = await handle.result()
    assert (result.output, result.selected_by, result.stop_reason) == (1, "fallback", "deadline")


async def test_without_a_scorer_the_first_generated_may_end_the_run() -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            unscored(select=plurality_vote(), stop=first_accepted(), max_concurrency=1), "q"
        )
    assert (result.output, result.stop_reason) == (0, "first_accepted")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, r"score is missing.*plurality_vote\(\)"),
        ({"select": top_k(2)}, "score is missing"),
        ({"select": weighted_vote()}, "score is missing"),
        ({"select": plurality_vote(), "threshold": 1.0}, "threshold has nothing to compare"),
        ({"select": plurality_vote(), "stop": target(1)}, "needs scores"),
    ],
)
def test_without_a_scorer_what_needs_scores_is_refused(parts: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        unscored(**parts)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (plurality_vote, r"select=plurality_vote\(\.\.\.\), with \(\)"),
        (weighted_vote, r"with \(\)"),
        (tournament, r"with \(\)"),
        (minimum_bayes_risk, r"with \(\)"),
        (top_k, r"with \(\)"),
        (lambda candidates: candidates[0], r"called as select\(request, candidates\)"),
        (of_no_use(1, 2), "pass the function itself"),
        (7, "is not a rule of this library"),
    ],
)
def test_what_cannot_select_is_refused(select: Any, message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        job(select=select)


def test_the_score_weighs_nothing_when_less_is_better() -> None:
    with pytest.raises(InvalidJob, match=r"weighted_vote\(weight=\.\.\.\)"):
        job(select=weighted_vote(), objective="min")
    job(select=weighted_vote(weight=lambda c: 1), objective="min")


# -- built-in ones at work -----------------------------------------------------------------------


async def test_the_k_best_are_in_the_result_in_order() -> None:
    result = await run(select=top_k(3))
    assert [c.index for c in result.top] == [3, 2, 1]
    assert (result.top[0], result.selected_by) == (result.selected, "top_k")
    fewer = await run(select=top_k(9), threshold=2)
    assert [c.index for c in fewer.top] == [3, 2]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_tournament_of_a_real_run(kind: str) -> None:
    asked: list[Any] = []

    def judge(request: Any, first: Any, second: Any) -> Any:
        asked.append((request, {first.index, second.index}, threading.current_thread()))
        return Preference(min(first, second, key=lambda c: c.output), Usage(model_calls=1))

    async def judge_async(*args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return judge(*args)

    result = await run(select=tournament(judge if kind == "sync" else judge_async), n=6)
    assert (result.output, result.selected_by) == (0, "tournament")
    assert len(asked) == 5
    assert {request[0] for request, _, _ in asked} == {"q"}
    threads = {thread for _, _, thread in asked}
    assert len(threads) == 1, "the comparisons were spread over threads"
    assert (threads == {threading.main_thread()}) == (kind == "async")


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_bracket_is_drawn_from_the_seed_of_the_run(kind: str) -> None:
    async def pairs(seed: int) -> list[Any]:
        asked: list[Any] = []

        async def judge_async(request: Any, first: Any, second: Any) -> Any:
            asked.append((first.index, second.index))
            return first

        def judge(request: Any, first: Any, second: Any) -> Any:
            asked.append((first.index, second.index))
            return first

        await run(select=tournament(judge if kind == "sync" else judge_async), n=8, seed=seed)
        return asked

    assert await pairs(1) == await pairs(1)
    assert await pairs(1) != await pairs(2)


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 4, 1, 3)])
@pytest.mark.parametrize("name", SCORELESS)
async def test_the_order_of_completion_does_not_change_the_winner(
    name: str, order: tuple[int, ...], autojump_clock: MockClock
) -> None:
    usual = await run(select=SCORELESS[name], seed=5)
    result = await run(select=SCORELESS[name], generate=after(*order), seed=5)
    assert result.selected.index == usual.selected.index


async def test_many_comparisons_that_never_await_do_not_hold_the_loop() -> None:
    async def judge(request: Any, first: Any, second: Any) -> Any:
        return first

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        async with open_runtime() as runtime:
            result = await runtime.run(job(select=tournament(judge), n=64), "q")
            before = ticks
            nursery.start_soon(tick)
            result = await runtime.run(job(select=tournament(judge), n=64), "q")
        nursery.cancel_scope.cancel()
    assert result.selected is not None
    assert ticks - before > 60


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("a variable", default="unset")


@pytest.mark.parametrize("kind", ["select", "select in a thread", "key", "judge", "build"])
async def test_context_variables_of_the_start_are_seen(kind: str) -> None:
    seen: list[str] = []

    def look(*args: Any) -> Any:
        seen.append(VARIABLE.get())
        VARIABLE.set("changed")
        return 0

    async def look_async(*args: Any) -> Any:
        return look()

    parts: dict[str, Any] = {
        "select": {"select": lambda request, candidates: 0},
        "select in a thread": {"select": lambda r, c: look()},
        "key": {"select": plurality_vote(lambda output: look())},
        "judge": {"select": tournament(lambda r, a, b: (look(), a)[1])},
        "build": {"build": look_async},
    }[kind]
    if kind == "select":

        async def select(request: Any, candidates: Any) -> Any:
            return look()

        parts = {"select": select}
    VARIABLE.set("set before")
    await run(**parts)
    VARIABLE.set("set after")
    assert seen[0] == "set before"


# -- time ----------------------------------------------------------------------------------------


def slow(seconds: float, *, stubborn: bool = False) -> Any:
    """A selector that takes so long."""

    async def select(request: Any, candidates: Any) -> int:
        await (stubborn_for if stubborn else trio.sleep)(seconds)
        return 1

    return select


async def test_the_grace_begins_only_after_selecting(autojump_clock: MockClock) -> None:
    result = await run(select=slow(30))
    assert (result.output, result.stop_reason, result.elapsed) == (1, "completed", 30)


async def test_it_may_use_the_time_until_the_deadline_and_then_some(
    autojump_clock: MockClock,
) -> None:
    in_time = await run(select=slow(0.9), timeout=1)
    assert (in_time.output, in_time.stop_reason, in_time.elapsed) == (1, "completed", 0.9)
    late = await run(select=slow(1 + CUT - 0.01), timeout=1)
    assert (late.output, late.stop_reason, late.partial) == (1, "deadline", True)
    assert late.selected_by == "select"


@pytest.mark.parametrize("work", [echo, after(0, 5)])
async def test_it_is_cut_at_half_of_the_delivery_share(
    work: Any, autojump_clock: MockClock
) -> None:
    result = await run(select=slow(60), timeout=1, generate=work)
    assert (result.selected_by, result.stop_reason, result.partial) == (
        "fallback",
        "deadline",
        True,
    )
    assert result.elapsed == pytest.approx(1 + CUT)
    assert result.selection_error is None
    assert result.output == (3 if work is echo else 0)


async def test_work_that_used_the_whole_work_share_leaves_it_its_own(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 3:
            await stubborn_for(5)
        return ctx.index

    async with open_runtime() as runtime:
        half = CUT - WORK
        result = await runtime.run(job(generate=generate, select=slow(0.9 * half), timeout=1), "q")
        assert (result.output, result.selected_by) == (1, "select")
        cut = await runtime.run(job(generate=generate, select=slow(1.1 * half), timeout=1), "q")
        assert (cut.output, cut.selected_by) == (2, "fallback")
        await runtime.drain()


@pytest.mark.parametrize("how", ["cancel", "stop_after_current"])
async def test_a_stop_while_it_is_selecting(how: str, autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(select=slow(60)), "q")
        await trio.sleep(1)
        getattr(handle, how)()
        if how == "stop_after_current":  # nobody is in flight: there is nothing to cut
            await trio.sleep(1)
            assert not handle.ended
            handle.cancel()
        stopped = trio.current_time()
        result = await handle.result()
    assert (result.stop_reason, result.selected_by) == ("cancelled", "fallback")
    assert trio.current_time() - stopped == pytest.approx(CUT)


async def test_a_cancelled_caller_gets_cancelled_within_the_grace(
    autojump_clock: MockClock,
) -> None:
    record, began = Record(), trio.current_time()
    async with open_runtime(observers=[record]) as runtime:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def cancel() -> None:
                    await trio.sleep(1)
                    scope.cancel()

                nursery.start_soon(cancel)
                await runtime.run(job(select=slow(60)), "q")
        assert scope.cancelled_caught
        assert trio.current_time() - began == pytest.approx(1 + CUT)
        assert runtime.detached == ()
    assert (record.terminal.stop_reason, record.terminal.selected) == ("cancelled", 3)


async def test_the_idiom_of_an_outer_deadline(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        with trio.move_on_after(2) as scope:
            result = await runtime.run(job(select=slow(60)), "q")
    assert not scope.cancelled_caught
    assert (result.stop_reason, result.selected_by) == ("outer_deadline", "fallback")
    assert result.elapsed < 2


async def test_a_scope_around_the_runtime_ends_it_like_a_cancel(autojump_clock: MockClock) -> None:
    with trio.CancelScope() as scope:
        async with open_runtime() as runtime:
            handle = runtime.start(job(select=slow(60)), "q")
            await trio.sleep(1)
            scope.cancel()
            await trio.sleep_forever()
    result = await handle.result()
    assert (result.stop_reason, result.selected_by) == ("cancelled", "fallback")
    assert result.elapsed <= 1 + GRACE


async def test_a_run_that_is_to_fail_when_cut_short_cuts_it_at_once(
    autojump_clock: MockClock,
) -> None:
    result = await run(select=slow(60), timeout=1, on_early_stop="fail")
    assert (result.selected, result.stop_reason, result.elapsed) == (None, "deadline", 1)


async def test_a_failed_observer_stops_it_in_strict_mode(autojump_clock: MockClock) -> None:
    async def observe(event: Any) -> None:
        await trio.sleep(1)
        raise ValueError

    async with open_runtime() as runtime:
        with pytest.raises(ObserverFailed) as caught:
            await runtime.run(
                job(select=slow(60)), "q", observers=[observe], on_observer_error="raise"
            )
    result: RunResult[Any] = caught.value.result
    assert (result.stop_reason, result.selected_by) == ("observer_failed", "fallback")


# -- that does not end ---------------------------------------------------------------------------


async def test_one_that_swallows_its_cancel_is_detached(autojump_clock: MockClock) -> None:
    record = Record()
    async with open_runtime(observers=[record]) as runtime:
        result = await runtime.run(job(select=slow(60, stubborn=True), timeout=1), "q")
        assert (result.output, result.selected_by) == (3, "fallback")
        assert result.elapsed == pytest.approx(1 + CUT)
        (work,) = runtime.detached
        assert (work.phase, work.candidate, work.kind, work.ended) == (
            "selecting",
            None,
            "task",
            False,
        )
        assert "stubborn_for" in work.where
        again = await runtime.run(job(), "q")
        assert again.output == 3
        assert await runtime.drain() == ()
        (ended,) = runtime.reap()
    assert (ended.ended, ended.error) == (True, None)
    late = [event for event in record.events if isinstance(event, LateEnd)]
    assert [event.detached.phase for event in late] == ["selecting"]


async def test_what_a_detached_one_raises_is_raised_nowhere(autojump_clock: MockClock) -> None:
    async def select(request: Any, candidates: Any) -> int:
        await stubborn_for(5)
        raise OSError("late")

    async with open_runtime() as runtime:
        await runtime.run(job(select=select, timeout=1), "q")
        await runtime.drain()
        (work,) = runtime.reap()
    assert isinstance(work.error, OSError)


async def test_a_hung_thread_is_detached() -> None:
    release, began = threading.Event(), time.monotonic()

    def select(request: Any, candidates: Any) -> int:
        release.wait(8)
        return 1

    async with open_runtime(threads=1, grace=0.1) as runtime:
        result = await runtime.run(job(select=select, timeout=0.1), "q")
        assert time.monotonic() - began < 0.2 + SLACK
        assert (result.output, result.selected_by, result.stop_reason) == (
            3,
            "fallback",
            "deadline",
        )
        (work,) = runtime.detached
        assert (work.phase, work.kind, work.candidate) == ("selecting", "thread", None)
        refused = await runtime.run(job(select=select), "q")
        assert refused.stop_reason == "selection_failed"
        assert isinstance(refused.selection_error, NoThreadLeft)
        assert "selecting" in str(refused.selection_error)
        release.set()
        assert await runtime.drain(5) == ()
        (ended,) = runtime.reap()
        assert (ended.ended, ended.error) == (True, None)


@pytest.mark.parametrize("kind", ["judge", "similarity"])
async def test_between_two_calls_in_a_thread_it_is_asked_whether_to_go_on(kind: str) -> None:
    calls = 0

    def similarity(first: Any, second: Any) -> float:
        nonlocal calls
        calls += 1
        time.sleep(0.05)
        return 1.0

    def judge(request: Any, first: Any, second: Any) -> Any:
        similarity(first, second)
        return first

    select = tournament(judge) if kind == "judge" else minimum_bayes_risk(similarity)
    async with open_runtime(grace=0.05) as runtime:
        result = await runtime.run(job(select=select, n=12, timeout=0.1), "q")
        await runtime.drain(5)
        made = calls
        time.sleep(0.15)
    assert result.selected_by == "fallback"
    assert made == calls < 8, "it was called on and on"


# -- interrupts, nesting -------------------------------------------------------------------------


def interrupting(error: BaseException) -> dict[str, dict[str, Any]]:
    def now(*args: Any) -> Any:
        raise error

    async def soon(*args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        raise error

    return {
        "select": {"select": soon},
        "select in a thread": {"select": lambda r, c: now()},
        "key": {"select": plurality_vote(lambda output: now())},
        "judge": {"select": tournament(lambda r, a, b: now())},
        "build": {"build": soon},
        "build in a thread": {"build": lambda r, i: now()},
    }


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("case", interrupting(KeyboardInterrupt()))
async def test_an_interrupt_ends_the_run_and_leaves_as_itself(
    case: str, kind: type[BaseException]
) -> None:
    error, record = kind(), Record()
    async with open_runtime(observers=[record]) as runtime:
        with pytest.raises(kind) as caught:
            await runtime.run(job(**interrupting(error)[case]), "q")
        assert caught.value is error
        assert (await runtime.run(job(), "q")).output == 3
        assert runtime.usage.outstanding == Usage()
    finished = [event for event in record.events if isinstance(event, RunFinished)]
    assert [event.stop_reason for event in finished] == ["cancelled", "completed"]


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("role", ["select", "build"])
async def test_a_selector_or_builder_may_run_a_job_itself(role: str, kind: str) -> None:
    async def select(request: Any, candidates: Any) -> Any:
        inner = await best_of_n(job(generate=after(0.05)), "inner")
        return inner.output - 1

    def in_thread(*args: Any) -> Any:
        return trio.from_thread.run(select, *args)

    result = await run(**{role: select if kind == "async" else in_thread}, timeout=5)
    assert result.stop_reason == "completed"
    assert result.output == (2 if role == "select" else 3)
    requests = [c.request for c in result.candidates]
    assert requests == [["q"] if role == "select" else 2] * 4


async def test_also_after_the_deadline_in_the_time_it_has(autojump_clock: MockClock) -> None:
    inner_results: list[RunResult[Any]] = []

    async def select(request: Any, candidates: Sequence[Candidate[Any]]) -> Any:
        inner_results.append(await best_of_n(job(generate=after(0.1)), "inner"))
        inner_results.append(await best_of_n(job(generate=after(9)), "inner"))
        return 1

    async with open_runtime() as runtime:
        result = await runtime.run(job(select=select, generate=after(0, 0, 5), timeout=1), "q")
        assert runtime.detached == ()
    assert [r.stop_reason for r in inner_results] == ["completed", "outer_deadline"]
    assert (result.output, result.selected_by, result.stop_reason) == (1, "select", "deadline")
    assert result.elapsed < 1 + GRACE
