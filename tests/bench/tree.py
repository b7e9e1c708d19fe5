"""What the ledger tree costs: nested runs beside flat ones, a shared budget beside private ones."""

from __future__ import annotations

from typing import Any

import trio

from hortator import BestOfN, Budget, CandidateContext, RunResult, Runtime, Usage, open_runtime
from tests.bench import jobs
from tests.bench.measure import Contender, Figure, Line, ratios, take_turns, until_quiet

NESTED_TARGET = 1.3
"""The most that best-of-3 in each of many candidates may cost, to as many candidates flat."""

SHARED_TARGET = 1.2
"""The most that runs on one budget may cost, to the same runs with a budget each."""

PLENTY = Budget(model_calls=10**9, total_tokens=10**12, cost=10**6)
PART = 3
EACH = 20


async def work(request: str, ctx: CandidateContext) -> str:
    """About a millisecond on the CPU, which is little for whatever a candidate really does."""
    await trio.lowlevel.checkpoint()
    sum(range(50_000))
    return f"answer {ctx.index}"


def flat(runtime: Runtime, n: int, generate: Any) -> Contender:
    """n times `PART` candidates in one run."""
    job = BestOfN(generate=generate, score=jobs.score, n=n * PART, max_concurrency=jobs.CONCURRENCY)

    async def run() -> RunResult[str]:
        return await runtime.run(job, "request")

    def check(result: RunResult[str]) -> None:
        assert len(result.candidates) == n * PART
        assert all(candidate.eligible for candidate in result.candidates)

    return Contender("flat", run, check)


def nested(runtime: Runtime, n: int, generate: Any) -> Contender:
    """n candidates, each of which is the best of `PART`."""
    inner = BestOfN(generate=generate, score=jobs.score, n=PART, max_concurrency=PART)

    async def outer(request: str, ctx: CandidateContext) -> str:
        return (await runtime.run(inner, request)).output

    job = BestOfN(generate=outer, score=jobs.score, n=n, max_concurrency=jobs.CONCURRENCY)

    async def run() -> RunResult[str]:
        return await runtime.run(job, "request")

    def check(result: RunResult[str]) -> None:
        expected = f"answer {jobs.best(PART)}"
        assert [candidate.output for candidate in result.candidates] == [expected] * n

    return Contender("nested", run, check)


async def nesting(runtime: Runtime, n: int, rounds: int, name: str, generate: Any) -> Line:
    """Best-of-3 in each of n candidates, to three times n candidates flat."""
    contenders = [flat(runtime, n, generate), nested(runtime, n, generate)]

    async def take() -> list[Line]:
        one, other = await take_turns(contenders, rounds, 1)
        beside = {
            "µs a candidate, flat": Figure.of(one).value / n / PART * 1e6,
            "µs a nested run": Figure.of(other).value / n * 1e6,
        }
        title = f"best of {PART} in each of {n:,}, {name}, to {n * PART:,} flat"
        return [Line(title, Figure.of(ratios(other, one)), "×", NESTED_TARGET, beside=beside)]

    return (await until_quiet(take))[0]


async def sharing(runs: int, rounds: int) -> Line:
    """Many runs at once on one budget, to the same with a budget each."""
    private = jobs.job(EACH, max_concurrency=4)
    shared = jobs.job(EACH, max_concurrency=4, budget=Budget())

    def contender(name: str, runtime: Runtime, job: BestOfN[str, str], account: Any) -> Contender:
        async def one(results: list[RunResult[str]]) -> None:
            results.append(await runtime.run(job, "request", account=account))

        async def run() -> list[RunResult[str]]:
            results: list[RunResult[str]] = []
            async with trio.open_nursery() as nursery:
                for _ in range(runs):
                    nursery.start_soon(one, results)
            return results

        def check(results: list[RunResult[str]]) -> None:
            assert len(results) == runs
            for result in results:
                jobs.check_result(result, EACH, jobs.times(EACH), jobs.best(EACH))

        return Contender(name, run, check)

    async with open_runtime() as alone, open_runtime(budget=PLENTY) as together:
        account = together.account("a tenant", PLENTY)
        contenders = [
            contender("private", alone, private, None),
            contender("the runtime's", together, shared, None),
            contender("an account's and the runtime's", together, shared, account),
        ]

        async def take() -> list[Line]:
            own, one, two = await take_turns(contenders, rounds, 1)
            beside = {"an account between": Figure.of(ratios(two, own)).value}
            title = f"{runs:,} runs at once on one budget, to a budget each"
            return [Line(title, Figure.of(ratios(one, own)), "×", SHARED_TARGET, beside=beside)]

        lines = await until_quiet(take)
        assert together.usage.outstanding == Usage()
    return lines[0]
