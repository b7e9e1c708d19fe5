"""Rules that count votes, in real runs: the others are cancelled, and what they cost is shown."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    BestOfN,
    Budget,
    Status,
    Usage,
    adaptive_consistency,
    open_runtime,
    plurality_vote,
    vote_decided,
)
from tests.contract.scenes import Record, statuses, stubborn_for

CALL = Usage(model_calls=1)


def voting(outputs: Any, **parts: Any) -> BestOfN[Any, Any]:
    """Candidates that answer one after the other, a second apart; an exception is raised."""

    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(CALL)
        await trio.sleep(1 + ctx.index)
        output = outputs[ctx.index]
        if isinstance(output, BaseException):
            raise output
        return output

    return BestOfN(
        **{
            "generate": generate,
            "select": plurality_vote(),
            "n": len(outputs),
            "max_concurrency": len(outputs),
            "budget": Budget(model_calls=100),
            **parts,
        }
    )


async def run(outputs: Any, *, observers: Any = (), **parts: Any) -> Any:
    async with open_runtime() as runtime:
        return await runtime.run(voting(outputs, **parts), "q", observers=observers)


async def score_by_index(request: Any, candidate: Any, ctx: Any) -> float:
    return float(candidate.index)


@pytest.mark.parametrize("score", [None, score_by_index])
async def test_a_decided_vote_ends_the_run(score: Any, autojump_clock: MockClock) -> None:
    record = Record()
    result = await run("abaaxxx", stop=vote_decided(), score=score, observers=[record])
    # 3 to 1 after four, 3 remain: not yet.
    assert (result.stop_reason, result.elapsed) == ("completed", 7)
    result = await run("abaaaxx", stop=vote_decided(), score=score, observers=[record])
    assert (result.stop_reason, result.partial, result.elapsed) == ("vote_decided", False, 5)
    assert result.selected_by == "plurality_vote"
    assert result.selected.index == (0 if score is None else 4)
    assert statuses(result) == ["eligible"] * 5 + ["cancelled"] * 2
    assert [c.usage.model_calls for c in result.candidates] == [1] * 7
    assert result.usage.charged == Usage(model_calls=7)
    assert record.events[-1].kind == "finished"


async def test_adaptive_consistency_ends_the_run(autojump_clock: MockClock) -> None:
    result = await run("aaaaxxxxx", stop=adaptive_consistency())
    assert (result.stop_reason, result.partial, result.elapsed) == ("consistency", False, 4)
    assert statuses(result) == ["eligible"] * 4 + ["cancelled"] * 5
    assert [c.usage.model_calls for c in result.candidates] == [1] * 9
    sooner = await run("aaaaxxxxx", stop=adaptive_consistency(confidence=0.8))
    assert sooner.elapsed == 2


async def test_candidates_that_were_to_come_are_skipped(autojump_clock: MockClock) -> None:
    result = await run("aaaaa", stop=vote_decided(), max_concurrency=1)
    assert statuses(result) == ["eligible"] * 3 + ["skipped"] * 2
    assert result.usage.charged == Usage(model_calls=3)


async def test_all_that_ended_by_themselves_have_completed(autojump_clock: MockClock) -> None:
    result = await run("abb", stop=vote_decided())
    assert (result.stop_reason, result.elapsed) == ("completed", 3)
    assert (await run("a", stop=vote_decided())).stop_reason == "completed"


async def test_those_that_fail_leave_fewer_votes(autojump_clock: MockClock) -> None:
    result = await run(["a", "a", ValueError(), "x", "x"], stop=vote_decided(), threshold=None)
    # 2 to 0, and after the failure two remain: not yet; they make it a tie.
    assert (result.stop_reason, result.elapsed) == ("completed", 5)
    result = await run(["a", "a", ValueError(), ValueError(), "x"], stop=vote_decided())
    assert (result.stop_reason, result.elapsed) == ("vote_decided", 4)


async def test_so_do_those_that_get_no_lease_or_request(autojump_clock: MockClock) -> None:
    async def build(request: Any, index: int) -> Any:
        if index >= 3:
            raise ValueError
        return request

    result = await run("aaxxx", stop=vote_decided(), build=build)
    # Two of five were not built: after two of "a", one more could not change it.
    assert (result.stop_reason, result.elapsed) == ("vote_decided", 2)
    assert statuses(result) == ["eligible"] * 2 + ["cancelled"] + ["generation_failed"] * 2


async def test_a_detached_candidate_has_no_vote(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 3:
            await stubborn_for(9)
        await trio.sleep((1, 1, 8, 0, 0.5)[ctx.index])
        return "aaxyz"[ctx.index] if ctx.index < 4 else "a"

    async with open_runtime() as runtime:
        result = await runtime.run(
            voting("aaxya", generate=generate, stop=vote_decided(), candidate_timeout=2), "q"
        )
        assert result.stop_reason == "vote_decided"
        await runtime.drain()


async def test_nothing_is_decided_by_the_deadline_itself(autojump_clock: MockClock) -> None:
    # When the deadline cuts all but one, nobody is left who could vote otherwise.
    result = await run("aaxxx", stop=vote_decided(), timeout=2.5)
    assert (result.stop_reason, result.partial, result.output) == ("deadline", True, "a")


async def test_nothing_is_decided_by_what_ends_late_before_the_runner_has_seen_the_deadline(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: Any, ctx: Any) -> str:
        await trio.sleep(0.5 * (1 + ctx.index))
        if ctx.index < 2:
            return "a"
        autojump_clock.jump(9)  # as a step that blocks the loop past the deadline
        return "x"

    # Two votes, and two that remain; with one of these late, one remains.
    result = await run("aaxx", generate=generate, stop=vote_decided(), timeout=5)
    assert (result.stop_reason, result.partial, result.output) == ("deadline", True, "a")
    assert statuses(result) == ["eligible"] * 2 + ["timed_out"] * 2


async def test_a_key_that_raises_is_not_counted_and_fails_the_selection(
    autojump_clock: MockClock,
) -> None:
    result = await run("1x111", select=plurality_vote(int), stop=vote_decided())
    assert (result.stop_reason, result.elapsed) == ("selection_failed", 4)
    assert isinstance(result.selection_error, ValueError)
    assert statuses(result) == ["eligible"] * 4 + ["cancelled"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("rule", [vote_decided, adaptive_consistency])
async def test_an_interrupt_out_of_a_key_ends_the_run(
    rule: Any, kind: type[BaseException], autojump_clock: MockClock
) -> None:
    def key(output: str) -> str:
        raise kind

    record = Record()
    async with open_runtime(observers=[record]) as runtime:
        with pytest.raises(kind):
            await runtime.run(voting("aaaa", stop=rule(key)), "q")
    assert record.terminal.stop_reason == "cancelled"
    assert record.terminal.statuses[Status.CANCELLED] == 3


async def test_a_key_of_its_own_need_not_be_the_selectors(autojump_clock: MockClock) -> None:
    result = await run(["a1", "a2", "a3", "b", "b"], stop=vote_decided(lambda output: output[0]))
    assert (result.stop_reason, result.elapsed) == ("vote_decided", 3)
