"""One budget for two runs that go on at the same time, and an account of who spent what.

All runs together may make seven calls. A candidate is estimated to need two, so two are reserved
before it starts; here each makes only one, and the other goes back. Ada comes first. Bob's
candidates wait for what hers give back, rather than being refused. In the end one call is left,
which is too little for the last of his.

    python examples/shared_budget.py

prints

    ada: 3 eligible (completed)
    bob: 3 eligible, 1 budget_exceeded (budget_exceeded)
    runtime: 6 model_calls, $0.06
      ada: 3 model_calls, $0.03
        runs that have ended: 3 model_calls, $0.03
      bob: 3 model_calls, $0.03
        runs that have ended: 3 model_calls, $0.03
"""

from collections import Counter

import trio

from hortator import BestOfN, Budget, CandidateContext, Runtime, Usage, open_runtime
from hortator.protocols.candidate import Generated

ONE_CALL = Usage(model_calls=1, cost="0.01")


async def generate(request: str, ctx: CandidateContext) -> str:
    await trio.sleep(0.1)
    ctx.charge(ONE_CALL)
    return f"{request}, draft {ctx.index}"


async def score(request: str, candidate: Generated[str], ctx: CandidateContext) -> float:
    return candidate.index


async def order(runtime: Runtime, name: str, n: int) -> None:
    job = BestOfN(
        generate=generate, score=score, n=n, max_concurrency=n, estimate=ONE_CALL + ONE_CALL
    )
    # An account may have a budget of its own, too: runtime.account(name, Budget(...)).
    result = await runtime.run(job, "a letter", account=runtime.account(name))
    counts = Counter(str(candidate.status) for candidate in result.candidates)
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    print(f"{name}: {told} ({result.stop_reason})")


async def main() -> None:
    async with open_runtime(budget=Budget(model_calls=7)) as runtime:
        async with trio.open_nursery() as customers:
            customers.start_soon(order, runtime, "ada", 3)
            await trio.sleep(0.05)  # she is a little earlier
            customers.start_soon(order, runtime, "bob", 4)
        print(runtime.attribution)


trio.run(main)
