"""`fit="shrink"`: a budget for fewer than n candidates lowers n, and the result says so (issue E).

Under virtual time. Which number it is lowered to is a rule, and tested in tests/rules/test_jobs.py.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Budget, Status, Usage, best_of_n, open_runtime
from tests.contract.scenes import Record, after, job, statuses

CALL = Usage(model_calls=1)


async def test_the_list_has_the_lowered_length_and_the_result_what_was_asked(
    autojump_clock: MockClock,
) -> None:
    record = Record()
    run = job(n=8, budget=Budget(model_calls=5), fit="shrink")
    async with open_runtime() as runtime:
        result = await runtime.run(run, "q", observers=[record])
    assert statuses(result) == ["eligible"] * 5
    assert (len(result.candidates), result.requested_n, run.n, run.fitted) == (5, 8, 8, 5)
    assert (result.stop_reason, result.partial, result.output) == ("completed", False, 4)
    assert result.usage.charged.model_calls == 5
    assert record.kinds.count("started") == 5
    assert record.terminal.statuses == {Status.ELIGIBLE: 5}
    assert json.loads(result.to_json())["requested_n"] == 8


async def test_without_need_nothing_is_lowered(autojump_clock: MockClock) -> None:
    result = await best_of_n(job(n=4, budget=Budget(model_calls=4), fit="shrink"), "q")
    assert (len(result.candidates), result.requested_n) == (4, 4)
    result = await best_of_n(job(n=4), "q")
    assert (len(result.candidates), result.requested_n) == (4, 4)


async def test_it_is_said_once_and_is_no_warning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hortator")
    result = await best_of_n(job(n=8, budget=Budget(model_calls=5), fit="shrink"), "q")
    await best_of_n(job(n=5, budget=Budget(model_calls=5), fit="shrink"), "q")
    (said,) = caplog.records
    assert (said.levelname, said.name) == ("INFO", "hortator")
    assert said.getMessage().startswith(f"{result.run_id}: the budget fits 5 of 8 candidates")


async def test_a_snapshot_counts_those_that_fit(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        run = job(generate=after(1), n=8, budget=Budget(model_calls=5), fit="shrink")
        handle = runtime.start(run, "q")
        assert handle.snapshot().statuses == {Status.PENDING: 5}
        await trio.sleep(0.5)
        assert handle.snapshot().statuses == {Status.GENERATING: 4, Status.PENDING: 1}
        async with handle.candidates() as ended:
            records = [record async for record in ended]
        result = await handle.result()
    assert len(records) == 5
    assert sum(handle.snapshot().statuses.values()) == 5
    assert result.elapsed == 2, "four at a time, and then the fifth"


async def test_one_job_may_shrink_in_many_runs_at_once(autojump_clock: MockClock) -> None:
    run = job(n=8, budget=Budget(model_calls=3), fit="shrink")
    results: list[Any] = []

    async def one() -> None:
        results.append(await best_of_n(run, "q"))

    async with open_runtime():
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one)
    assert [len(result.candidates) for result in results] == [3] * 5


async def test_top_ups_share_what_shrinking_has_left(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(Usage(model_calls=2))
        await trio.sleep(0.1 * ctx.index)
        granted = await ctx.reserve(CALL)
        await trio.sleep(1)
        return granted, trio.current_time()

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        return 1.0

    run = job(
        generate=generate,
        score=score,
        n=9,
        budget=Budget(model_calls=5),
        estimate=Usage(model_calls=2),
        fit="shrink",
    )
    result = await best_of_n(run, "q")
    assert len(result.candidates) == 2
    # Five calls, four were leased: the second asks while the first has the fifth, and waits for
    # what that gives back.
    assert [c.output[0] for c in result.candidates] == [True, True]
    assert result.candidates[1].output[1] - result.candidates[0].output[1] == 1.0
