"""The slot of work that was detached is not used again; without a slot a run ends (clause 5).

Under virtual time.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from hortator import open_runtime
from tests.contract.scenes import WORK, Record, Stubborn, after, job, statuses


@attrs.define
class Gauge:
    """A generator that counts how many of its candidates are at work at once."""

    stuck: Stubborn
    now: int = 0
    most_after_the_loss: int = 0
    lost: bool = False

    async def __call__(self, request: Any, ctx: Any) -> Any:
        self.now += 1
        if self.lost:
            self.most_after_the_loss = max(self.now, self.most_after_the_loss)
        try:
            return await self.stuck(request, ctx)
        finally:
            self.now -= 1
            self.lost = self.lost or trio.current_time() > 1


async def test_its_slot_is_not_used_again(autojump_clock: MockClock) -> None:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.lowlevel.checkpoint()  # the seat gives its slot to somebody else meanwhile
        return candidate.output

    gauge = Gauge(Stubborn(50, 0, otherwise=0.4))
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=gauge, score=score, n=9, max_concurrency=2, candidate_timeout=0.5), "q"
        )
    assert statuses(result) == ["generating (detached)"] + ["eligible"] * 8
    assert gauge.most_after_the_loss == 2, "one that is stuck and one that works"
    assert (result.stop_reason, result.partial) == ("completed", False)
    assert result.elapsed == pytest.approx(8 * 0.4), "the slot that is left did all the rest"


async def test_when_no_slot_is_left_the_run_ends(autojump_clock: MockClock) -> None:
    record = Record()
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=Stubborn(50, 1, 2), n=5, max_concurrency=2, candidate_timeout=0.5),
            "q",
            observers=[record],
        )
    assert (result.stop_reason, result.partial, result.output) == ("slots_lost", True, 0)
    assert statuses(result) == ["eligible"] + ["generating (detached)"] * 2 + ["skipped"] * 2
    assert result.elapsed == pytest.approx(0.5 + WORK), "each got its timeout and a work share"
    assert record.terminal.stop_reason == "slots_lost"


async def test_losing_the_last_slot_with_the_last_candidate_is_no_loss(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(
            job(generate=Stubborn(50, 2, 3), max_concurrency=2, candidate_timeout=0.5), "q"
        )
    assert (result.stop_reason, result.output) == ("completed", 1)
    assert statuses(result)[2:] == ["generating (detached)"] * 2


async def test_a_lost_slot_of_one_run_is_not_lost_for_the_next(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        await runtime.run(job(generate=Stubborn(50, 0, 1, 2, 3), timeout=1), "q")
        result = await runtime.run(job(generate=after(1)), "q")
    assert (result.output, result.elapsed) == (3, pytest.approx(1))
