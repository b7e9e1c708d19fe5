"""`hortator demo`: a short tour through the 52 places of berlin52.

From TSPLIB, G. Reinelt 1991. Nobody can find a shorter tour than 7542: that is proven.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import trio

from hortator.actors.cli.report import hand_over
from hortator.actors.process import Command, command
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import Generated
from hortator.protocols.interfaces import CandidateContext
from hortator.protocols.result import RunResult
from hortator.protocols.tsp import BERLIN52_OPTIMUM, parse, read_tour, tour_length

HERE = Path(__file__).parent


def demo_job(
    *, n: int, concurrency: int, timeout: float | None
) -> tuple[BestOfN[bytes, bytes], bytes, Command]:
    """The demo's job, its request, and the command that its candidates run.

    Args:
        n: how many candidates.
        concurrency: how many at a time.
        timeout: seconds for the whole run, or None.
    """
    text = (HERE / "berlin52.tsp").read_bytes()
    problem = parse(text.decode())

    async def length(request: bytes, candidate: Generated[bytes], ctx: CandidateContext) -> float:
        await trio.lowlevel.checkpoint()  # async, so that it needs no thread
        return tour_length(problem, read_tour(problem, candidate.output.decode()))

    # -I: whatever is in the user's folder or environment, the solver is what we ship.
    solver = command([sys.executable, "-I", str(HERE / "two_opt.py"), "--seed", "{seed}"])
    job = BestOfN(
        generate=solver,
        score=length,
        n=n,
        max_concurrency=min(concurrency, n),
        timeout=timeout,
        objective="min",
    )
    return job, text, solver


def print_tour(result: RunResult[bytes]) -> int:
    """Print the best tour beside the shortest one; return 0, or what to exit with instead."""
    best = result.selected
    if best is None or best.score is None:
        return hand_over(b"No tour was found in this time: give it more, as in --timeout 5.\n")
    length = int(best.score.value)
    gap = 100 * (length - BERLIN52_OPTIMUM) / BERLIN52_OPTIMUM
    tour = textwrap.fill(
        result.output.decode().strip(), 78, initial_indent="  ", subsequent_indent="  "
    )
    head = f"berlin52: a tour of {length}, {gap:.2f} % above the shortest, {BERLIN52_OPTIMUM}"
    return hand_over(f"{head}\n{tour}\n".encode())
