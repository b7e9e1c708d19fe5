"""Nobody waits for somebody who waits for him, and nothing that was spent is lost on the way.

Threads are real here, with the real clock, and end by themselves; all else is virtual time. A run
that waited for ever would be ended by its timeout, and show it in its stop reason.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio
from trio.testing import MockClock

from hortator import BestOfN, Budget, LeaseExceeded, Usage, open_runtime
from hortator.protocols.account import Account

TWO = Usage(model_calls=2)


async def index(request: Any, ctx: Any) -> Any:
    return ctx.index


async def one(request: Any, candidate: Any, ctx: Any) -> float:
    return 1.0


async def test_a_scorer_that_asks_for_more_does_not_wait_for_who_waits_for_its_place(
    autojump_clock: MockClock,
) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        return float(await ctx.reserve(TWO))

    job = BestOfN(
        generate=index,
        score=score,
        n=2,
        max_concurrency=2,
        score_concurrency=1,
        budget=Budget(model_calls=3),
        timeout=60,
    )
    async with open_runtime() as runtime:
        result = await runtime.run(job, "q")
    assert (result.stop_reason, result.elapsed) == ("completed", 0), "nobody could give anything"
    assert [c.score and c.score.value for c in result.candidates] == [0.0, 0.0]


async def test_who_has_the_thread_does_not_wait_for_who_waits_for_it() -> None:
    def generate(request: Any, ctx: Any) -> Any:
        return trio.from_thread.run(ctx.reserve, TWO)

    job = BestOfN(
        generate=generate, score=one, n=2, budget=Budget(model_calls=3), timeout=5, grace=0.1
    )
    async with open_runtime(threads=1) as runtime:
        result = await runtime.run(job, "q")
    assert result.stop_reason == "completed"
    assert [c.output for c in result.candidates] == [False, False], "two held, one is too few"


async def test_nested_runs_of_sync_generators_find_threads() -> None:
    def leaf(request: Any, ctx: Any) -> Any:
        return ctx.index

    async with open_runtime(threads=2) as runtime:
        inner = BestOfN(generate=leaf, score=one, n=2)

        def generate(request: Any, ctx: Any) -> Any:
            return trio.from_thread.run(partial(runtime.run, inner, request)).output

        job = BestOfN(generate=generate, score=one, n=4, max_concurrency=4, timeout=5, grace=0.1)
        result = await runtime.run(job, "q")
        assert (result.stop_reason, [c.output for c in result.candidates]) == ("completed", [0] * 4)


async def test_what_is_reported_later_beyond_what_was_held_is_charged_to_the_account(
    autojump_clock: MockClock,
) -> None:
    async def slow(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        finally:
            try:
                ctx.charge(Usage(model_calls=5))
            except LeaseExceeded:
                pass

    async with open_runtime(budget=Budget(model_calls=20)) as runtime:

        async def outer(request: Any, ctx: Any) -> Any:
            runtime.start(BestOfN(generate=slow, score=one, n=1), request)
            await trio.sleep(1)
            return 1

        job = BestOfN(generate=outer, score=one, n=1, estimate=TWO)
        result = await runtime.run(job, "q")
        assert result.usage.charged.model_calls == 1, "what the nested run held when it was left"
        assert runtime.usage.charged.model_calls == 5, "it is spent, so it is charged"
        assert runtime.usage.outstanding == Usage()
        leaves = runtime.attribution.leaves()
        assert sum(leaf.charged.model_calls for leaf in leaves) == 5
        account = runtime.account("any").parent
        assert isinstance(account, Account)
        account.check()
        assert account.remaining().model_calls == 15
