"""How late a run is back after its deadline, beside a bare nursery with as many tasks asleep."""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable

import attrs
import trio
import trio.testing

from hortator import CandidateContext, Runtime, Status
from hortator.protocols.deadlines import PER_CANDIDATE
from tests.bench import floor, jobs
from tests.bench.measure import Figure, Line, ratios, until_quiet

MOST_OF_BARE = 2.0
MOST_UNSTARTED = 2.0
"""CPU µs for each candidate that never started, where `PACE` holds."""

PACE = 23.7
"""CPU µs for each of 1,000 candidates of the floor, on the machine on which that was said."""

GRACE = 0.25
"""The runtime's own, if few candidates are in flight."""

AHEAD = 0.05
"""Seconds before the deadline at which everything has to be asleep, or the run says nothing."""


@attrs.frozen
class Late:
    """Seconds from the deadline to the return, on the clock and on the CPU."""

    wall: float
    cpu: float


class NotAsleep(Exception):
    """The deadline came while candidates were still being started: it has to be later."""


async def one(runtime: Runtime, n: int, concurrency: int, timeout: float) -> Late:
    """Run n candidates that all sleep when the deadline passes, and check what is left of them.

    Raises:
        NotAsleep: the timeout is too short for this machine.
    """
    flying = min(n, concurrency)
    started, asleep = 0, trio.Event()
    cpu = at = 0.0

    async def generate(request: str, ctx: CandidateContext) -> str:
        nonlocal started
        started += 1
        if started == flying:
            asleep.set()
        await trio.sleep(3600)
        return "never"

    async def look() -> None:
        nonlocal cpu, at
        await asleep.wait()
        await trio.testing.wait_all_tasks_blocked()
        cpu, at = time.process_time(), trio.current_time()

    job = jobs.job(n, generate=generate, max_concurrency=concurrency, timeout=timeout)
    sink = jobs.Sink()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        deadline = trio.current_time() + timeout
        result = await runtime.run(job, "request", observers=[sink])
        wall, cpu = trio.current_time() - deadline, time.process_time() - cpu
        nursery.cancel_scope.cancel()
    if not 0 < at < deadline - AHEAD:
        raise NotAsleep
    assert len(result.candidates) == n, f"{len(result.candidates)} records of {n} candidates"
    assert result.stop_reason == "deadline", result.stop_reason
    cut = [c for c in result.candidates if c.status is Status.TIMED_OUT and not c.detached]
    assert len(cut) == flying, f"{len(cut)} timed out, {flying} were in flight"
    skipped = sum(c.status is Status.SKIPPED for c in result.candidates)
    assert skipped == n - flying, f"{skipped} skipped, {n - flying} never started"
    jobs.check_book(result)
    jobs.check_events(
        result, sink.counts, dict.fromkeys(("started", "leased", "ended"), flying) | {"finished": 1}
    )
    return Late(wall, cpu)


class Sleepers:
    """Runs of n candidates that sleep, with a timeout that the machine can keep up with."""

    def __init__(self, runtime: Runtime, n: int, concurrency: int) -> None:
        self._runtime, self._n, self._concurrency = runtime, n, concurrency
        self._timeout = 0.2 + 150e-6 * min(n, concurrency)

    async def __call__(self) -> Late:
        """One run; with a longer timeout if not everything was asleep in time."""
        for _ in range(4):
            try:
                return await one(self._runtime, self._n, self._concurrency, self._timeout)
            except NotAsleep:
                self._timeout *= 2
        raise AssertionError(f"{self._timeout:g} s do not suffice to start {self._n} candidates")


async def bare(n: int) -> Late:
    """The bare nursery."""
    return Late(*await floor.bare(n))


async def spawn() -> Late:
    """The floor, which tells how fast the machine is now."""
    begun, cpu = trio.current_time(), time.process_time()
    await floor.spawn(1_000, jobs.CONCURRENCY, floor.gen_noop)
    return Late(trio.current_time() - begun, time.process_time() - cpu)


async def in_turns(players: list[Callable[[], Awaitable[Late]]], rounds: int) -> list[list[Late]]:
    """Results of players that take turns, each on a clean heap."""
    taken: list[list[Late]] = [[] for _ in players]
    for _ in range(rounds):
        for place, play in enumerate(players):
            gc.collect()
            taken[place].append(await play())
    return taken


async def in_flight(runtime: Runtime, n: int, rounds: int) -> list[Line]:
    """Lateness with all n in flight: as a multiple of the bare nursery's, and in the grace."""
    ours = Sleepers(runtime, n, n)

    async def take() -> list[Line]:
        theirs, mine = await in_turns([lambda: bare(n), ours], rounds)
        cpu = Figure.of(ratios([late.cpu for late in mine], [late.cpu for late in theirs]))
        wall = Figure.of(ratios([late.wall for late in mine], [late.wall for late in theirs]))
        worst = max(late.wall for late in mine)
        beside = {
            "ms": Figure.of([late.wall for late in mine]).value * 1e3,
            "bare ms": Figure.of([late.wall for late in theirs]).value * 1e3,
            "CPU ratio": cpu.value,
            "CPU spread": cpu.spread,
        }
        return [
            Line(f"late with {n:,} in flight", wall, "×", MOST_OF_BARE, beside=beside),
            within_grace(f"latest with {n:,} in flight", worst, n),
        ]

    return await until_quiet(take)


def within_grace(name: str, worst: float, flying: int) -> Line:
    """The latest return of several runs, beside the grace."""
    grace = max(GRACE, PER_CANDIDATE * flying) * 1e3
    return Line(name, Figure(worst * 1e3, 0.0, 1), "ms", grace)


async def unstarted(runtime: Runtime, n: int, rounds: int) -> list[Line]:
    """What the candidates that never started add to the lateness of the 64 that are in flight."""
    flying = min(n, jobs.CONCURRENCY)
    few, many = Sleepers(runtime, flying, flying), Sleepers(runtime, n, flying)

    async def take() -> list[Line]:
        short, long, hand = await in_turns([few, many, spawn], rounds)
        waited = n - flying
        each = [(b.cpu - a.cpu) / waited * 1e6 for a, b in zip(short, long, strict=True)]
        pace = Figure.of([late.cpu for late in hand]).value / 1_000 * 1e6
        beside = {
            "late ms": Figure.of([late.wall for late in long]).value * 1e3,
            "spawn µs": pace,
            f"µs if spawn took {PACE} µs": Figure.of(each).value * PACE / pace,
        }
        name = f"each of {waited:,} candidates that never started"
        return [
            Line(name, Figure.of(each), "µs", MOST_UNSTARTED, beside=beside),
            within_grace(
                f"latest with {waited:,} not started", max(late.wall for late in long), flying
            ),
        ]

    return await until_quiet(take)
