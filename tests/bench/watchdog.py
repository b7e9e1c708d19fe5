"""What the watchdog costs: per tick of the loop, and per runtime.

    python -m tests.bench.watchdog

A tick is one pass of the loop: here a task that lets it go and gets it back. Both ways take turns,
on the CPU's clock of the whole process, so that what the watchdog's thread uses counts as well.
Neighbours on the machine only ever add to it, so the lower quartile is what counts. The target is
less than 1 µs per tick, nearly all of which is Trio's own way of calling a hook.
"""

from __future__ import annotations

import statistics
import sys
import time

import trio

from hortator import open_runtime

TICKS = 50_000
ROUNDS = 15
MOST = 1e-6


async def _ticks(limit: float | None) -> float:
    """Seconds of CPU per tick."""
    async with open_runtime(watchdog=limit):
        began = time.process_time()
        for _ in range(TICKS):
            await trio.lowlevel.cancel_shielded_checkpoint()
        return (time.process_time() - began) / TICKS


async def _opening(limit: float | None, times: int = 200) -> float:
    """Seconds of CPU per runtime that is opened and left."""
    began = time.process_time()
    for _ in range(times):
        async with open_runtime(watchdog=limit):
            pass
    return (time.process_time() - began) / times


def main() -> int:
    """Measure, print, and fail if a tick costs more than it may."""
    added: list[float] = []
    for _ in range(ROUNDS):
        without = trio.run(_ticks, None)
        added.append(trio.run(_ticks, 0.5) - without)
    low, middle, high = statistics.quantiles(added, n=4)
    opened = trio.run(_opening, 0.5) - trio.run(_opening, None)
    print(f"per tick    {low * 1e9:6.0f} ns  (median {middle * 1e9:.0f}, up to {high * 1e9:.0f})")
    print(f"per runtime {opened * 1e6:6.0f} µs")
    return low >= MOST


if __name__ == "__main__":
    sys.exit(main())
