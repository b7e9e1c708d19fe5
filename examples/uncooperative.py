"""Work that does not stop when it is told to: the run returns without it, and says who it is.

Candidate 0 swallows its cancellation, which Trio has no means against. It is *detached*: named in
`runtime.detached` with file and line, while the run returns in time with the best of the others.
Nothing that it does later changes the result. What must end for certain belongs in a process:
`generate=command([...])`.

    python examples/uncooperative.py

prints

    well-behaved (deadline), within a second: True
    #0 generating, detached: True
    #1 eligible, detached: False
    still at work: candidate 0, a task at uncooperative.py:37 in generate
    (candidate 0 has ended, too late)
    still at work: nobody
    ended by now: candidate 0
"""

from pathlib import Path

import trio

from hortator import BestOfN, CandidateContext, open_runtime
from hortator.protocols.candidate import Generated


async def generate(request: str, ctx: CandidateContext) -> str:
    if ctx.index == 1:
        return "well-behaved"
    try:
        await trio.sleep(60)
    except trio.Cancelled:
        # Never do this! A Cancelled has to be raised again, and a shield needs a limit.
        with trio.CancelScope(shield=True):
            await trio.sleep(1.5)
    print("(candidate 0 has ended, too late)")
    return "too late"


async def score(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    return len(candidate.output)


async def main() -> None:
    job = BestOfN(generate=generate, score=score, n=2, timeout=0.2)
    async with open_runtime() as runtime:
        result = await runtime.run(job, "anything")
        print(f"{result.output} ({result.stop_reason}), within a second:", result.elapsed < 1)
        for candidate in result.candidates:
            print(f"#{candidate.index} {candidate.status}, detached: {candidate.detached}")
        for work in runtime.detached:
            place = Path(work.where).name  # "file.py:12 in function"
            print(f"still at work: candidate {work.candidate}, a {work.kind} at {place}")
        alive = await runtime.drain(timeout=10)  # until it has ended, or for ten seconds
        print("still at work:", alive or "nobody")
        for work in runtime.reap():  # takes what has ended off the list
            print(f"ended by now: candidate {work.candidate}")


trio.run(main)
