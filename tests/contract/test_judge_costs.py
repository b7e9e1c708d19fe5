"""What a tournament's judge costs: it is set aside before it is spent, and shown apart.

Virtual time. Candidates cost one call each; a comparison is expected to cost two.
"""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from hortator import BestOfN, Budget, Preference, RunResult, Usage, open_runtime, tournament

TWO = Usage(model_calls=2)


async def generate(request: Any, ctx: Any) -> Any:
    return ctx.index


async def by_output(request: Any, first: Any, second: Any) -> Any:
    return first if first.output > second.output else second


def job(judge: Any, calls: int | None, **changes: Any) -> BestOfN[Any, Any]:
    select = tournament(judge, estimate=TWO)
    return BestOfN(
        generate=generate, select=select, n=4, budget=Budget(model_calls=calls), **changes
    )


async def play(the_job: BestOfN[Any, Any]) -> RunResult[Any]:
    async with open_runtime() as runtime:
        result = await runtime.run(the_job, "q", seed=1)
        assert runtime.usage.charged == result.usage.charged
        assert runtime.usage.outstanding == Usage()
    return result


def choosing(result: RunResult[Any]) -> int:
    """Calls that choosing was charged."""
    return sum(c.charged.model_calls for c in result.attribution.children if c.name == "choosing")


async def test_what_is_not_reported_is_charged_at_the_estimate(autojump_clock: MockClock) -> None:
    result = await play(job(by_output, calls=100))
    assert result.output == 3
    assert (choosing(result), result.usage.charged.model_calls) == (6, 10)
    assert result.usage.estimated == 5, "four candidates, and the selection once"


async def test_what_is_reported_is_charged(autojump_clock: MockClock) -> None:
    async def judge(request: Any, first: Any, second: Any) -> Any:
        winner = await by_output(request, first, second)
        return Preference(winner, usage=Usage(model_calls=1))

    result = await play(job(judge, calls=100))
    assert (result.output, choosing(result)) == (3, 3)
    assert result.usage.reported.model_calls == 3


async def test_a_judge_is_asked_only_as_often_as_there_is_money_for(
    autojump_clock: MockClock,
) -> None:
    asked: list[tuple[int, int]] = []

    async def judge(request: Any, first: Any, second: Any) -> Any:
        asked.append((first.index, second.index))
        return await by_output(request, first, second)

    # The candidates take four of seven, so one comparison fits, and no second one.
    result = await play(job(judge, calls=7))
    assert len(asked) == 1, "the other pairs are decided by the built-in order"
    assert (choosing(result), result.usage.charged.model_calls) == (2, 6)
    assert (result.selected_by, result.stop_reason) == ("tournament", "completed")


async def test_without_money_nobody_is_asked(autojump_clock: MockClock) -> None:
    async def judge(request: Any, first: Any, second: Any) -> Any:
        raise AssertionError("asked, though nothing was left to pay for it")

    result = await play(job(judge, calls=4))
    assert (result.output, choosing(result)) == (0, 0), "the lowest index, all else being equal"


async def test_a_comparison_that_is_cut_is_charged_what_was_expected(
    autojump_clock: MockClock,
) -> None:
    async def judge(request: Any, first: Any, second: Any) -> Any:
        await trio.sleep_forever()

    result = await play(job(judge, calls=100, timeout=2))
    assert (result.selected_by, result.stop_reason) == ("fallback", "deadline")
    assert choosing(result) == 2, "a judge that is cut may still be billed"


async def test_a_sync_judge_pays_the_same() -> None:
    def judge(request: Any, first: Any, second: Any) -> Any:
        return Preference(first, usage=Usage(model_calls=3))

    result = await play(job(judge, calls=100))
    assert choosing(result) == 6, "after two comparisons six calls were gone, all there was"
