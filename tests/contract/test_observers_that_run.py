"""Observers that start runs of their own: those are no part of the run that is observed.

Virtual time.
"""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from hortator import RunHandle, open_runtime
from tests.contract.scenes import job


async def test_what_an_observer_starts_goes_on_when_the_run_is_over(
    autojump_clock: MockClock,
) -> None:
    started: list[RunHandle[Any]] = []

    async def slowly(request: Any, ctx: Any) -> Any:
        await trio.sleep(5)
        return request

    async with open_runtime() as runtime:

        def follow_up(event: Any) -> None:
            if event.kind == "ended":
                started.append(runtime.start(job(generate=slowly, n=1), 7))

        result = await runtime.run(job(n=1), "first", observers=[follow_up])
        assert result.elapsed == 0, "the run waited for what its observer had started"
        assert "/" not in started[0].run_id, "it is no nested run"
        assert (await started[0].result()).output == 7
