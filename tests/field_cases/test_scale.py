"""B109, B110: many candidates take few tasks, and one job may run many times at once.

Virtual time, but where threads take part.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from hortator import Budget, Usage, best_of_n, open_runtime
from tests.field_cases.scenes import (
    Record,
    check_account,
    index_score,
    job_of,
    statuses,
    tokens,
    virtually,
)

# B109: a large fan-out takes few tasks and little memory


class Population(trio.abc.Instrument):
    """How many tasks there are, and were at the most, beyond those before."""

    def __init__(self) -> None:
        self.alive = self.peak = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.alive += 1
        self.peak = max(self.peak, self.alive)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.alive -= 1


async def test_B109_ten_thousand_candidates_take_thirty_two_tasks(
    autojump_clock: MockClock,
) -> None:
    prompt = "p" * 100_000
    copies: set[int] = set()

    async def generate(request: str, ctx: Any) -> int:
        copies.add(id(request))
        await trio.lowlevel.checkpoint()
        return int(ctx.index)

    population = Population()
    trio.lowlevel.add_instrument(population)
    async with open_runtime() as runtime:
        job = job_of(generate, n=10_000, max_concurrency=32)
        result = await runtime.run(job, prompt)
    assert result.output == 9999
    assert copies == {id(prompt)}, "the prompt was copied"
    assert population.peak <= 32 + 8, f"{population.peak} tasks for 32 slots"
    assert population.alive == 0


@pytest.mark.parametrize("message", [False, True], ids=["text", "messages"])
def test_B109_the_prompt_is_not_copied_for_each_candidate(message: bool) -> None:
    # 2,000 copies would be 200 MB. At n = 10,000 the peak was 7 MB, nearly all of it records.
    async def generate(request: Any, ctx: Any) -> int:
        await trio.lowlevel.checkpoint()
        return int(ctx.index)

    async def scene() -> int:
        text = "p" * 100_000
        request = [{"role": "user", "content": text}] if message else text
        tracemalloc.start()
        try:
            job = job_of(generate, n=2000, max_concurrency=32)
            result = await best_of_n(job, request)
            assert result.output == 1999
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert virtually(scene) < 8_000_000


async def test_B109_nested_fan_out_is_bounded_by_its_slots(autojump_clock: MockClock) -> None:
    leaves = 0

    async def leaf(request: int, ctx: Any) -> int:
        nonlocal leaves
        leaves += 1
        await trio.sleep(1)
        return 1

    async def branch(request: int, ctx: Any) -> int:
        inner = branch if request > 1 else leaf
        result = await best_of_n(job_of(inner, n=6, max_concurrency=2), request - 1)
        return int(result.output)

    population = Population()
    trio.lowlevel.add_instrument(population)
    result = await best_of_n(job_of(branch, n=6, max_concurrency=2), 2)
    assert result.output == 1
    assert leaves == 6**3
    # At most 1 + 2 + 4 runs at once; each has 2 slots, a runner, and what just comes or goes.
    assert population.peak <= 7 * (2 + 3), f"{population.peak} tasks"
    assert trio.current_time() == 3**3


# B110: one job, many runs at once


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_B110_fifty_runs_of_one_job_at_once(sync: bool) -> None:
    # On the real clock, since the sync ones are threads.
    async def generate(request: int, ctx: Any) -> tuple[int, int]:
        ctx.charge(Usage(model_calls=1, total_tokens=request))
        await trio.lowlevel.checkpoint()
        if ctx.index == 1:
            raise OSError(f"run {request}")
        return request, int(ctx.index)

    def sync_generate(request: int, ctx: Any) -> tuple[int, int]:
        ctx.charge(Usage(model_calls=1, total_tokens=request))
        if ctx.index == 1:
            raise OSError(f"run {request}")
        return request, int(ctx.index)

    budget = Budget(model_calls=3, total_tokens=300)
    estimate = Usage(model_calls=1, total_tokens=100)
    job = job_of(sync_generate if sync else generate, budget=budget, estimate=estimate)
    before = attrs.asdict(job, recurse=False)
    results: dict[int, Any] = {}
    records = [Record() for _ in range(50)]

    async def one(runtime: Any, number: int) -> None:
        results[number] = await runtime.run(job, number, observers=[records[number]])

    async with open_runtime() as runtime:
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(one, runtime, number)
        assert runtime.usage.charged.total_tokens == 3 * sum(range(50))
        assert runtime.usage.outstanding == Usage()
    assert len({result.run_id for result in results.values()}) == 50
    for number, result in results.items():
        assert result.output == (number, 2), "it has another run's answer"
        assert statuses(result) == ["eligible", "generation_failed", "eligible"]
        assert str(result.candidates[1].error) == f"run {number}"
        assert result.usage.charged.total_tokens == 3 * number
        assert {event.run_id for event in records[number].events} == {result.run_id}
        records[number].check()
        check_account(result, 3)
    assert attrs.asdict(job, recurse=False) == before


def test_B110_one_job_on_several_event_loops_at_once() -> None:
    async def generate(request: int, ctx: Any) -> int:
        for _ in range(20):
            await trio.lowlevel.checkpoint()
        return request

    job = job_of(generate, index_score, estimate=tokens(5))
    together = threading.Barrier(4)
    outputs: list[int] = []

    async def scene(number: int) -> None:
        together.wait(5)
        for _ in range(5):
            outputs.append((await best_of_n(job, number)).output)

    threads = [threading.Thread(target=virtually, args=(scene, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outputs) == sorted(list(range(4)) * 5)


async def test_B110_a_job_may_run_itself_inside_itself(autojump_clock: MockClock) -> None:
    async def generate(depth: int, ctx: Any) -> int:
        await trio.sleep(1)
        return depth if depth == 0 else 1 + int((await best_of_n(job, depth - 1)).output)

    job = job_of(generate, n=2)
    result = await best_of_n(job, 3)
    assert (result.output, result.elapsed) == (3, 4)


async def test_B110_one_handle_may_be_awaited_by_many(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> str:
        await trio.sleep(1)
        return "answer"

    got: list[Any] = []

    async def wait(handle: Any, patience: float) -> None:
        with trio.move_on_after(patience):
            got.append(await handle.result())

    async with open_runtime() as runtime:
        handle = runtime.start(job_of(generate), "q")
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(wait, handle, 0.5 if number % 2 else 5)
        assert len(got) == 25, "who gave up waiting took the others along"
        assert all(result is got[0] for result in got)
        assert got[0].output == "answer"
