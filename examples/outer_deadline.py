"""A deadline of your own around a run: you get the best so far inside it.

This program gives itself one second for everything. The run sees the scope around it, stops a
little before that ends, and hands over what it has. Two of the four candidates are too slow.

    python examples/outer_deadline.py

prints

    the best so far: Beagle
    it ended because of: outer_deadline
    Fram: eligible
    Beagle: eligible
    Endurance: timed_out
    Victory: timed_out
    and there is time left to say so: True
"""

import trio

from hortator import BestOfN, CandidateContext, open_runtime
from hortator.protocols.candidate import Generated

SHIPS = ["Fram", "Beagle", "Endurance", "Victory"]
SECONDS = [0.05, 0.1, 60, 60]


async def generate(request: str, ctx: CandidateContext) -> str:
    await trio.sleep(SECONDS[ctx.index])  # yours asks a model, a solver or a service
    return SHIPS[ctx.index]


async def score(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    return len(candidate.output)


async def main() -> None:
    job = BestOfN(generate=generate, score=score, n=4, max_concurrency=4)
    async with open_runtime() as runtime:
        with trio.move_on_after(1) as everything:
            await trio.sleep(0.1)  # other work of yours
            result = await runtime.run(job, "the ship with the longest name")
            print("the best so far:", result.output)
            print("it ended because of:", result.stop_reason)
            for ship, candidate in zip(SHIPS, result.candidates, strict=True):
                print(f"{ship}: {candidate.status}")
            left = everything.deadline - trio.current_time()
            print("and there is time left to say so:", left > 0)


trio.run(main)
