"""What the commands do, once their flags have been read and checked."""

from __future__ import annotations

from hortator.actors.cli.demo import demo_job, print_tour
from hortator.actors.cli.play import Stop, play
from hortator.actors.cli.report import hand_over, print_account
from hortator.actors.cli.settings import Prepared


def run(request: bytes, prepared: Prepared) -> int:
    """Do `hortator run`. Returns the exit code."""
    job, settings = prepared.job, prepared.settings
    with Stop(*prepared.commands) as stop:
        result = play(job, request, seed=settings.seed, stop=stop)
        print_account(result, job, settings.ballot)
        if settings.json:
            code = hand_over(result.to_json().encode() + b"\n")
        else:
            code = hand_over(b"" if result.selected is None else result.output)
        return code or stop.exit_code(result)


def demo(*, n: int, concurrency: int, timeout: float | None, seed: int | None, json: bool) -> int:
    """Do `hortator demo`: flags as there. Returns the exit code."""
    job, text, solver = demo_job(n=n, concurrency=concurrency, timeout=timeout)
    with Stop(solver) as stop:
        result = play(job, text, seed=seed, stop=stop)
        print_account(result, job)
        code = hand_over(result.to_json().encode() + b"\n") if json else print_tour(result)
        return code or stop.exit_code(result)
