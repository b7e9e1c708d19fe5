"""What a run keeps, and how many tasks it has alive."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import trio

from hortator import CandidateContext, Runtime
from tests.bench import jobs
from tests.bench.measure import Figure, Line

MOST_BYTES = 800
"""That may be kept per finished candidate, beyond its output."""

MORE_TASKS = 8
"""That may be alive beside one per slot, those of the program and of Trio included."""


async def kept(runtime: Runtime, n: int) -> list[Line]:
    """Bytes that a result holds per candidate, and that stay behind when it is dropped."""
    run = jobs.ours(runtime, n)
    run.check(await run.run())  # what Trio and the runtime make once and keep is made now
    tracemalloc.start()
    try:
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        result, sink = await run.run()
        gc.collect()
        holding, _ = tracemalloc.get_traced_memory()
        run.check((result, sink))
        outputs = sum(sys.getsizeof(candidate.output) for candidate in result.candidates)
        del result, sink
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    beyond = Figure((holding - before - outputs) / n, 0.0, 1)
    left = Figure(max(0.0, (after - before) / n), 0.0, 1)
    return [
        Line(f"kept per finished candidate of {n:,}, beyond its output", beyond, "B", MOST_BYTES),
        Line("left behind per candidate once the result is dropped", left, "B"),
    ]


def live_tasks() -> int:
    """Every live task, from the root of all tasks down."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    count, left = 0, [root]
    while left:
        count += 1
        for nursery in left.pop().child_nurseries:
            left.extend(nursery.child_tasks)
    return count


async def tasks(runtime: Runtime, n: int) -> Line:
    """The most tasks that were alive during a run, whoever they belong to."""
    most = 0

    async def generate(request: str, ctx: CandidateContext) -> str:
        nonlocal most
        most = max(most, live_tasks())
        return await jobs.generate(request, ctx)

    run = jobs.ours(runtime, n, generate=generate)
    run.check(await run.run())
    assert most > min(n, jobs.CONCURRENCY), f"only {most} tasks were seen: the walk is wrong"
    target = jobs.CONCURRENCY + MORE_TASKS
    return Line(f"live tasks at most, of {n:,} candidates", Figure(most, 0.0, 1), "", target)
