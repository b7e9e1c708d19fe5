"""What a candidate costs, in CPU µs, beside the same by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hortator import Budget, Runtime, Usage
from tests.bench import floor, jobs
from tests.bench.measure import Contender, Figure, Line, ratios, take_turns, until_quiet

TARGETS: dict[int, tuple[float, float | None]] = {
    10: (2.0, None),
    100: (1.2, None),
    1_000: (1.0, 0.7),
    10_000: (0.75, 0.5),
}
"""For each n the most that ours may be of the floor, and the most that it would be nice to be."""

LARGE_TARGET = 1.2
"""The most that a candidate of very many may cost, as a multiple of one of a thousand."""

LEAST = 100
"""Candidates that a sample covers: runs of fewer are repeated."""


def by_hand(name: str, play: Callable[..., Any], n: int) -> Contender:
    """A run of one of the floor's variants."""
    highest = max((floor.score_of(f"answer {index}"), index) for index in range(n))

    async def run() -> Any:
        return await play(n, jobs.CONCURRENCY, floor.gen_noop)

    def check(best: Any) -> None:
        assert best[:2] == highest, f"{name} found {best}, expected {highest}"

    return Contender(name, run, check)


async def against_floor(runtime: Runtime, n: int, rounds: int) -> Line:
    """The ratio of ours to `spawn` for one n, with `gated` and `pool` beside it."""
    target, stretch = TARGETS.get(n, (None, None))
    contenders = [
        by_hand("spawn", floor.spawn, n),
        jobs.ours(runtime, n),
        by_hand("gated", floor.gated, n),
        by_hand("pool", floor.pool, n),
    ]

    async def take() -> list[Line]:
        each = max(1, LEAST // n)
        spawn, ours, gated, pool = await take_turns(contenders, rounds, each)
        beside = {
            c.name: Figure.of(s).value / n * 1e6
            for c, s in zip(contenders, (spawn, ours, gated, pool), strict=True)
        }
        beside["gated ratio"] = Figure.of(ratios(gated, spawn)).value
        beside["pool ratio"] = Figure.of(ratios(pool, spawn)).value
        figure = Figure.of(ratios(ours, spawn))
        return [Line(f"n = {n:,}", figure, "×", target, stretch, beside=beside)]

    return (await until_quiet(take))[0]


async def large(runtime: Runtime, n: int, rounds: int) -> Line:
    """What a candidate of very many costs, as a multiple of one of a thousand."""
    small = min(n, 1_000)
    contenders = [jobs.ours(runtime, small), jobs.ours(runtime, n)]

    async def take() -> list[Line]:
        few: list[float] = []
        many: list[float] = []
        for _ in range(rounds):
            # Several small runs on either side of the large one, so that both see the same machine.
            before = (await take_turns(contenders[:1], 1, 5))[0]
            many += (await take_turns(contenders[1:], 1, 1))[0]
            after = (await take_turns(contenders[:1], 1, 5))[0]
            few.append((before[0] + after[0]) / 2)
        each = [total / n for total in many], [total / small for total in few]
        beside = {
            f"µs at n = {size:,}": Figure.of(samples).value * 1e6
            for size, samples in zip((n, small), each, strict=True)
        }
        name = f"a candidate of {n:,}, to one of {small:,}"
        return [Line(name, Figure.of(ratios(*each)), "×", LARGE_TARGET, beside=beside)]

    return (await until_quiet(take))[0]


async def variants(runtime: Runtime, n: int, rounds: int) -> list[Line]:
    """For orientation: what a candidate costs with less or more, or with sync callbacks."""

    async def charging(request: str, ctx: Any) -> str:
        ctx.charge(jobs.ESTIMATE)
        return await jobs.generate(request, ctx)

    def generating(request: str, ctx: Any) -> str:
        return f"answer {ctx.index}"

    def scoring(request: str, candidate: Any, ctx: Any) -> float:
        return float(floor.score_of(candidate.output))

    named = {
        "everything on, as above": jobs.ours(runtime, n),
        "no observer": jobs.ours(runtime, n, sink=None),
        "no observer, no budget": jobs.ours(
            runtime,
            n,
            sink=None,
            budget=Budget(),
            estimate=Usage(),
        ),
        "an async observer instead": jobs.ours(runtime, n, sink=jobs.AsyncSink),
        "the generator reports its usage": jobs.ours(runtime, n, generate=charging),
        "a sync generator (a thread call)": jobs.ours(runtime, n, generate=generating),
        "a sync scorer (a thread call)": jobs.ours(runtime, n, score=scoring),
    }
    taken = await take_turns(list(named.values()), rounds, 1)
    return [
        Line(name, Figure.of([total / n * 1e6 for total in samples]), "µs", judged=False)
        for name, samples in zip(named, taken, strict=True)
    ]
