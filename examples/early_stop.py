"""An early stop: the first score that is good enough ends the run, and the bill shows all of it.

The others are cancelled at once, but what they cost is in the account, although they lost. Who is
cut is charged what it was estimated to need, since a call that was cut may be billed all the same;
who had not started costs nothing.

    python examples/early_stop.py

prints

    #0 cancelled: $0.004 (estimated)
    #1 eligible: $0.004
    #2 cancelled: $0.004 (estimated)
    #3 skipped: $0
    it ended because of: target
    all together: $0.012, of which $0.008 were reported
    the losers: $0.008
"""

import trio

from hortator import BestOfN, CandidateContext, Usage, open_runtime, target
from hortator.protocols.candidate import Generated

ONE_CALL = Usage(model_calls=1, cost="0.002")


async def generate(request: str, ctx: CandidateContext) -> str:
    ctx.charge(ONE_CALL)  # the first draft
    await trio.sleep(0.2 if ctx.index == 1 else 60)
    ctx.charge(ONE_CALL)  # revised
    return f"{request}, revised"


async def score(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    return 0.95


async def main() -> None:
    job = BestOfN(
        generate=generate,
        score=score,
        stop=target(0.9),
        n=4,
        max_concurrency=3,
        estimate=ONE_CALL + ONE_CALL,
        timeout=10,
    )
    async with open_runtime() as runtime:
        result = await runtime.run(job, "draft")
    for candidate in result.candidates:
        mark = " (estimated)" if candidate.estimated else ""
        print(f"#{candidate.index} {candidate.status}: ${candidate.usage.cost}{mark}")
    print("it ended because of:", result.stop_reason)
    charged, reported = result.usage.charged.cost, result.usage.reported.cost
    print(f"all together: ${charged}, of which ${reported} were reported")
    losers = [each for each in result.candidates if each is not result.selected]
    print(f"the losers: ${sum(each.usage.cost for each in losers)}")


trio.run(main)
