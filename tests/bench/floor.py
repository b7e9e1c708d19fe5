"""What best-of-N costs when it is written by hand: the floor that ours is measured against.

`spawn` is a task per candidate under a limiter, a channel and a maximum: no ledger, no events, no
timeout, no records. It is *the* floor, and kept to the letter, formatting included, because the
targets are ratios to it. `gated` and `pool` do less and are cheaper; `bare` is the nursery that a
deadline is measured against.
"""

# ruff: noqa: UP031

import math
import time

import trio
import trio.testing
from trio.lowlevel import checkpoint

inf = math.inf


# fmt: off
def score_of(text):
    return (len(text) * 31 + (int(text.rsplit(" ", 1)[1]) * 2654435761) % 1000003) % 1000003


async def gen_noop(i):
    await checkpoint()
    return "answer %d" % i


async def spawn(n, mc, gen):
    send, recv = trio.open_memory_channel(inf)
    lim = trio.CapacityLimiter(mc)

    async def cand(i):
        async with lim:
            text = await gen(i)
        await send.send((score_of(text), i, text))

    best = (-1,)
    async with trio.open_nursery() as nursery:
        for i in range(n):
            nursery.start_soon(cand, i)
        for _ in range(n):
            r = await recv.receive()
            if r > best:
                best = r
    return best


async def gated(n, mc, gen):
    best = (-1,)
    sem = trio.Semaphore(mc)

    async def cand(i):
        nonlocal best
        try:
            text = await gen(i)
        finally:
            sem.release()
        r = (score_of(text), i, text)
        if r > best:
            best = r

    async with trio.open_nursery() as nursery:
        for i in range(n):
            await sem.acquire()
            nursery.start_soon(cand, i)
    return best


async def pool(n, mc, gen):
    best = (-1,)
    it = iter(range(n))

    async def worker():
        nonlocal best
        for i in it:
            text = await gen(i)
            r = (score_of(text), i, text)
            if r > best:
                best = r

    async with trio.open_nursery() as nursery:
        for _ in range(min(mc, n)):
            nursery.start_soon(worker)
    return best


# fmt: on
async def bare(n: int) -> tuple[float, float]:
    """A nursery under a deadline, with n tasks asleep in it when that passes.

    Returns:
        Seconds from the deadline to the end of the nursery, on the clock and on the CPU.
    """

    async def plain(i: int) -> None:
        await trio.sleep(3600)

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            for i in range(n):
                nursery.start_soon(plain, i)
            await trio.testing.wait_all_tasks_blocked()
            scope.deadline = deadline = trio.current_time() + 0.1
            cpu = time.process_time()
    return trio.current_time() - deadline, time.process_time() - cpu
