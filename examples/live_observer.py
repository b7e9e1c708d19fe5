"""Watching a run while it goes on: an observer is called with each event as it happens.

`ctx.emit` tells observers something of your own; here it is each word as it comes. An observer
that is slow, hangs or raises does not hold the run up. A plain function like this one is called
on the event loop, so it has to be quick; `in_thread(observer)` takes a slow one off it.

    python examples/live_observer.py

prints these lines, some in another order, because the candidates write at the same time:

    #0 writes: row
    #0 writes: your
    #0 writes: boat
    #0 has a score of 13
    #0 ends: eligible
    #1 writes: out
    #1 ends: generation_failed (ValueError: no more words)
    the run ends: completed, 1 eligible, 1 generation_failed
"""

import trio

from hortator import BestOfN, CandidateContext, Event, open_runtime
from hortator.protocols.candidate import Generated
from hortator.protocols.events import CandidateEnded, CandidateScored, Emitted, RunFinished


def watch(event: Event) -> None:
    match event:
        case Emitted(kind="word"):
            print(f"#{event.candidate} writes: {event.data['text']}")
        case CandidateScored():
            print(f"#{event.candidate} has a score of {event.score.value:g}")
        case CandidateEnded():
            why = f" ({type(event.error).__name__}: {event.error})" if event.error else ""
            print(f"#{event.candidate} ends: {event.status}{why}")
        case RunFinished():
            counts = [f"{count} {status}" for status, count in event.statuses.items() if count]
            print(f"the run ends: {event.stop_reason}, {', '.join(sorted(counts))}")
        case _:  # there are more: see hortator.protocols.events
            pass


async def generate(request: str, ctx: CandidateContext) -> str:
    text = request.split(", ")[ctx.index]
    for word in text.split():
        await trio.sleep(0.05)
        ctx.emit("word", text=word)
    if text == "out":
        raise ValueError("no more words")
    return text


async def score(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    return len(candidate.output)


async def main() -> None:
    job = BestOfN(generate=generate, score=score, n=2, max_concurrency=2, timeout=10)
    async with open_runtime(observers=[watch]) as runtime:  # or run(..., observers=[watch])
        await runtime.run(job, "row your boat, out")


trio.run(main)
