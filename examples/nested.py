"""Best-of-N inside best-of-N: the best of two poems, each of whose lines is the best of three.

A candidate starts runs of its own with `best_of_n`. They end within its deadline, are cancelled
with it, and draw on its lease and on nothing else: six calls for each poem, whoever makes them.

    python examples/nested.py

prints

    grey is the sea / deep is the sea
    candidate 0: 6 calls
      run-1/0.1: 3 calls
      run-1/0.2: 3 calls
    candidate 1: 6 calls
      run-1/1.1: 3 calls
      run-1/1.2: 3 calls
"""

import random

import trio

from hortator import BestOfN, Budget, CandidateContext, Usage, best_of_n, open_runtime
from hortator.protocols.candidate import Generated

WORDS = ["wild", "calm", "grey", "wide", "deep", "blue", "cold", "loud"]


async def write_line(request: str, ctx: CandidateContext) -> str:
    await trio.sleep(0.01)  # yours asks a model
    return f"{random.Random(ctx.seed).choice(WORDS)} is the {request}"


async def beauty(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    return candidate.output.count("e") + candidate.output.count("a")


LINE = BestOfN(generate=write_line, score=beauty, n=3)


async def write_poem(request: str, ctx: CandidateContext) -> str:
    first = await best_of_n(LINE, request, seed=ctx.seed)
    second = await best_of_n(LINE, request, seed=ctx.seed + 1)
    return f"{first.output} / {second.output}"


POEM = BestOfN(
    generate=write_poem,
    score=beauty,
    n=2,
    timeout=10,
    budget=Budget(model_calls=12),
    estimate=Usage(model_calls=6),
)


async def main() -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(POEM, "sea", seed=7)
    print(result.output)
    for poem in result.attribution.children:
        print(f"{poem.name}: {poem.charged.model_calls} calls")
        for line in poem.children:
            print(f"  {line.name}: {line.charged.model_calls} calls")


trio.run(main)
