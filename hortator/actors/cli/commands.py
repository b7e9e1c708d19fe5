"""What the commands do, once their flags have been read and checked."""

from __future__ import annotations

from collections.abc import Sequence

from hortator.actors.cli.demo import demo_job, print_tour
from hortator.actors.cli.play import Stop, play
from hortator.actors.cli.report import hand_over, print_account
from hortator.actors.process import command, command_scorer
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.stopping import all_candidates, target as reach


def run(
    request: bytes,
    *,
    generate: Sequence[str],
    score: Sequence[str],
    n: int,
    concurrency: int,
    timeout: float | None,
    minimize: bool,
    target: float | None,
    seed: int | None,
    json: bool,
    max_output: int,
) -> int:
    """Do `hortator run`: flags as there, commands as words. Returns the exit code."""
    generator = command(generate, max_output=max_output)
    scorer = command_scorer(score, max_output=max_output)
    job: BestOfN[bytes, bytes] = BestOfN(
        generate=generator,
        score=scorer,
        n=n,
        max_concurrency=min(concurrency, n),
        timeout=timeout,
        objective="min" if minimize else "max",
        stop=all_candidates() if target is None else reach(target),
    )
    with Stop(generator, scorer.command) as stop:
        result = play(job, request, seed=seed, stop=stop)
        print_account(result, job)
        if json:
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
