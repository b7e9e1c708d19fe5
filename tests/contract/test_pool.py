"""Candidates are played by a pool of tasks, and nothing leaks from one to the next (design §2).

Under virtual time.
"""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Event, open_runtime
from tests.contract.scenes import GRACE, Record, after, by_output, echo, job, statuses

VAR = contextvars.ContextVar("VAR", default="nobody's")


# -- first leak: context variables ----------------------------------------------------------------


async def test_callbacks_see_the_context_that_the_run_was_started_in(
    autojump_clock: MockClock,
) -> None:
    seen: set[tuple[str, str]] = set()

    async def generate(request: Any, ctx: Any) -> Any:
        seen.add(("generator", VAR.get()))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        seen.add(("scorer", VAR.get()))
        return 1.0

    def observe(event: Event) -> None:
        seen.add(("observer", VAR.get()))

    async def observe_async(event: Event) -> None:
        seen.add(("async observer", VAR.get()))

    async with open_runtime() as runtime:
        token = VAR.set("the caller's")
        handle = runtime.start(
            job(generate=generate, score=score), "q", observers=[observe, observe_async]
        )
        VAR.set("a later one")  # the run was started before
        await handle.result()
        VAR.reset(token)
    assert seen == {
        (who, "the caller's") for who in ("generator", "scorer", "observer", "async observer")
    }


@pytest.mark.parametrize("concurrency", [1, 4], ids=["one seat", "four seats"])
async def test_what_a_candidate_sets_is_its_own(
    concurrency: int, autojump_clock: MockClock
) -> None:
    found: list[str] = []
    kept: list[tuple[int, str, str]] = []

    async def generate(request: Any, ctx: Any) -> Any:
        found.append(VAR.get())
        VAR.set(f"{ctx.index}'s")
        await trio.sleep(0.1)  # every step runs in the candidate's own copy, not only the first
        kept.append((ctx.index, VAR.get(), "generator"))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.lowlevel.checkpoint()
        kept.append((ctx.index, VAR.get(), "scorer"))
        return candidate.output

    async with open_runtime() as runtime:
        await runtime.run(
            job(generate=generate, score=score, n=8, max_concurrency=concurrency), "q"
        )
    assert found == ["nobody's"] * 8, "a candidate saw what another one had set"
    assert all(value == f"{index}'s" for index, value, _ in kept), kept
    assert len(kept) == 16
    assert VAR.get() == "nobody's", "it leaked to the caller"


async def test_what_an_observer_sets_stays_with_that_observer(autojump_clock: MockClock) -> None:
    found: dict[str, list[str]] = {"one": [], "two": []}

    def one(event: Event) -> None:
        found["one"].append(VAR.get())
        VAR.set("one's")

    def two(event: Event) -> None:
        found["two"].append(VAR.get())

    async with open_runtime() as runtime:
        await runtime.run(job(n=1), "q", observers=[one, two])
    assert found["one"] == ["nobody's"] + ["one's"] * 5
    assert found["two"] == ["nobody's"] * 6


async def test_context_variables_can_be_reset_by_the_token_over_an_await(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        token = VAR.set("mine")
        try:
            await trio.sleep(0.1)
        finally:
            VAR.reset(token)  # a ValueError if a step ran in another copy
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, max_concurrency=2), "q")
        cut = await runtime.run(job(generate=generate, timeout=0.05), "q")
    assert statuses(result) == ["eligible"] * 4
    assert [c.error for c in cut.candidates] == [None] * 4


# -- second leak: a late cancel -------------------------------------------------------------------


async def test_a_timeout_of_one_candidate_does_not_hit_the_next(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=after(9, 0.9, 9, 0.9), max_concurrency=1, candidate_timeout=1), "q"
        )
    assert statuses(result) == ["timed_out", "eligible", "timed_out", "eligible"]
    assert result.elapsed == pytest.approx(1 + 0.9 + 1 + 0.9)


async def test_a_cancel_that_was_swallowed_does_not_hit_the_next(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9 if ctx.index % 2 == 0 else 0.9)
        except trio.Cancelled:
            return "swallowed"
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=generate, max_concurrency=1, candidate_timeout=1), "q"
        )
    assert statuses(result) == ["timed_out", "eligible", "timed_out", "eligible"]


async def test_a_cancel_that_comes_as_the_candidate_returns_does_not_hit_the_next(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 0:
            autojump_clock.jump(1.5)  # its time runs out in its last step, without an await
        else:
            await trio.sleep(0.5)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=generate, n=3, max_concurrency=1, candidate_timeout=1), "q"
        )
    assert statuses(result) == ["timed_out", "eligible", "eligible"]


async def test_the_next_candidate_has_its_whole_time(autojump_clock: MockClock) -> None:
    seen: list[float] = []

    async def generate(request: Any, ctx: Any) -> Any:
        seen.append(trio.current_effective_deadline() - trio.current_time())
        await trio.sleep(0.7)
        return ctx.index

    async with open_runtime() as runtime:
        await runtime.run(job(generate=generate, max_concurrency=1, candidate_timeout=1), "q")
    assert seen == pytest.approx([1.0] * 4)


# -- third leak: a callback that never yields -----------------------------------------------------


async def _at_once(request: Any, ctx: Any) -> Any:
    return ctx.index


@pytest.mark.parametrize("scoring", ["at once", "with an await"])
async def test_callbacks_that_never_yield_do_not_hold_the_loop(
    scoring: str, autojump_clock: MockClock
) -> None:
    n, turns = 50, 0
    at_start: list[int] = []

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def generate(request: Any, ctx: Any) -> Any:
        at_start.append(turns)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        if scoring != "at once":
            await trio.lowlevel.checkpoint()
        return candidate.output

    async with open_runtime() as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await runtime.run(job(generate=generate, score=score, n=n, max_concurrency=1), "q")
        nursery.cancel_scope.cancel()
    # The order inside one pass of the scheduler is random, so two starts may see one number.
    assert len(at_start) == n
    assert all(later > earlier for earlier, later in zip(at_start, at_start[2:], strict=False)), (
        "another task did not get the loop between two candidates"
    )


async def test_a_run_of_callbacks_that_never_yield_can_be_stopped(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=_at_once, n=10_000, max_concurrency=1), "q")
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        handle.cancel()
        result = await handle.result()
    ended = statuses(result).count("eligible")
    assert 0 < ended < 100
    assert statuses(result).count("skipped") == 10_000 - ended


# -- fourth leak: the task's name -----------------------------------------------------------------


async def test_a_task_name_that_a_candidate_sets_does_not_stay(autojump_clock: MockClock) -> None:
    names: list[str] = []

    async def generate(request: Any, ctx: Any) -> Any:
        task = trio.lowlevel.current_task()
        names.append(task.name)
        task.name = f"renamed by {ctx.index}"
        await trio.lowlevel.checkpoint()
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, max_concurrency=1), "q")
    assert names == [names[0]] * 4, "a candidate has the name of the one before it"
    assert result.run_id in names[0]


# -- slots ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "concurrency", "expected"), [(9, 3, 3), (2, 5, 2), (5, 1, 1)])
async def test_no_more_generate_at_once_than_allowed_and_no_fewer(
    n: int, concurrency: int, expected: int, autojump_clock: MockClock
) -> None:
    now = most = 0
    tasks: set[trio.lowlevel.Task] = set()

    async def generate(request: Any, ctx: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        tasks.add(trio.lowlevel.current_task())
        await trio.sleep(0.1)
        now -= 1
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=generate, n=n, max_concurrency=concurrency), "q")
    assert most == expected
    assert len(tasks) <= 2 * expected, "a task for each candidate instead of a pool"
    assert result.elapsed == pytest.approx(0.1 * -(-n // concurrency))


async def test_a_slot_is_held_while_generating_only(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.sleep(1)
        return candidate.output

    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=after(1), score=score, n=3, max_concurrency=1), "q")
    assert result.elapsed == pytest.approx(4), "scoring held the slot, or two scored at once"


async def test_no_more_are_scored_at_once_than_may_generate(autojump_clock: MockClock) -> None:
    now = most = 0

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await trio.sleep(1)
        now -= 1
        return candidate.output

    async with open_runtime() as runtime:
        handle = runtime.start(job(generate=after(0.1), score=score, n=6, max_concurrency=2), "q")
        await trio.sleep(0.65)
        waiting = handle.snapshot().statuses
        result = await handle.result()
    assert most == 2
    assert (waiting["scoring"], waiting["generated"]) == (2, 4), "the others wait to be scored"
    assert statuses(result) == ["eligible"] * 6
    assert result.elapsed == pytest.approx(3.1)


async def test_who_waited_longest_is_scored_first(autojump_clock: MockClock) -> None:
    order: list[int] = []

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        order.append(candidate.index)
        await trio.sleep(1)
        return candidate.output

    async with open_runtime() as runtime:
        await runtime.run(job(generate=after(0.1), score=score, n=5, max_concurrency=1), "q")
    assert order == [0, 1, 2, 3, 4]


async def test_who_waits_to_be_scored_at_the_deadline_is_timed_out_with_its_output(
    autojump_clock: MockClock,
) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.sleep(9)
        return candidate.output

    record = Record()
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=after(0.1), score=score, n=4, max_concurrency=1, timeout=1),
            "q",
            observers=[record],
        )
    assert statuses(result) == ["timed_out"] * 4
    assert [c.output for c in result.candidates] == [0, 1, 2, 3]
    assert record.of(3) == ["started", "leased", "generated", "ended"]
    assert result.elapsed <= 1 + GRACE


async def test_one_job_serves_many_runs_at_once(autojump_clock: MockClock) -> None:
    reused = job(generate=echo, score=by_output)
    async with open_runtime() as runtime:
        handles = [runtime.start(reused, "q") for _ in range(50)]
        results = [await handle.result() for handle in handles]
    assert {result.output for result in results} == {3}
    assert len({result.run_id for result in results}) == 50
