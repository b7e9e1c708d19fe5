"""Plays the run that `tests/data` keeps a record of: `python -m tests.recorded_run` writes it anew.

The record shows that what one version has written, later ones can read. So write it anew only when
the format has got a new number; a new field of an event or result is no reason.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from hortator import BestOfN, Budget, RunResult, Score, Usage, open_runtime, record_to

DATA = Path(__file__).parent / "data"
EVENTS = DATA / "recorded_run.jsonl"
REPORT = DATA / "recorded_run.json"

CALL = Usage(model_calls=1, total_tokens=100, cost="0.002")


async def generate(request: Any, ctx: Any) -> Any:
    """Sixteen candidates with every sort of end; they act one after the other."""
    await trio.sleep(0.1 * (ctx.index + 1))
    ctx.charge(CALL)
    match ctx.index:
        case 0:
            ctx.emit("token", text="Grüße 🚣", seen={"of": [1, None]}, part=b"\xff")
            ctx.emit("finished", note="not the end of the run")
            async with ctx.effect("look up", "read"):
                await trio.sleep(0.01)
            return "the first"
        case 1:
            return b"rejected"
        case 2:
            async with ctx.effect("send mail", "write"):
                raise ValueError("no such address: \ud800")
        case 3:
            ctx.publish("a draft")
            ctx.publish("a better draft", Score(0.6, rationale="it has an end"))
            async with ctx.effect("save", "write"):
                await trio.sleep(60)
        case 4:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            raise OSError(5, "too late")
        case 5:
            return b"\xff\xfe"
        case 6:
            ctx.charge(CALL)
        case _:
            return {"index": ctx.index}


async def score(request: Any, candidate: Any, ctx: Any) -> Any:
    """The index decides."""
    scores = {0: Score(0.75, metadata={"tests": 3}), 1: 0.25, 5: math.nan}
    return scores.get(ctx.index, Score(0.9, usage=Usage(cost="0.0000001")))


async def play(events: Path) -> RunResult[Any]:
    """Play the run, with its events written to this file, and wait for what outlives it."""
    job = BestOfN(
        generate=generate,
        score=score,
        n=16,
        max_concurrency=8,
        timeout=0.95,
        threshold=0.5,
        budget=Budget(model_calls=20, cost="0.1"),
        estimate=CALL,
        scoring_estimate=Usage(cost="0.0001"),
        side_effects="allow",
    )
    with record_to(events) as recorder:
        async with open_runtime(observers=[recorder]) as runtime:
            result = await runtime.run(job, {"a": ["question"]}, seed=7)
            await runtime.drain()
    # Where detached work was stuck is told with the whole path of this file.
    text = events.read_text(encoding="utf-8")
    events.write_text(text.replace(f"{Path(__file__).parent}/", "tests/"), encoding="utf-8")
    return result


def main() -> None:
    """Write the record anew."""
    result = trio.run(play, EVENTS, clock=MockClock(autojump_threshold=0))
    REPORT.write_text(result.to_json() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
