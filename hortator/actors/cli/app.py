"""The commands and their flags: what a person wrote, checked before anything starts."""

from __future__ import annotations

import math
import os
import sys
from typing import Annotated, Any

import typer

from hortator.protocols.command import MAX_OUTPUT, BadCommand, Template

CORES = os.cpu_count() or 1

app: typer.Typer = typer.Typer(
    help="The best of N attempts, by one hard deadline.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: it starts faster, and reads well in any terminal
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

N = Annotated[int, typer.Option("-n", metavar="N", help="How many candidates.")]
Concurrency = Annotated[
    int, typer.Option(metavar="K", show_default="one a core", help="How many of them at a time.")
]
Seed = Annotated[
    int | None, typer.Option(metavar="S", help="Of the run; each candidate's comes from it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a report of the run as JSON instead.")]


@app.command(
    short_help="The best of N runs of a command of yours.",
    epilog="""\b
Examples:
  hortator run --generate 'solve --seed {seed}' --score judge -n 16 --timeout 5 <problem
  hortator run --generate 'shuf -n 3 /usr/share/dict/words' --score 'wc -c' --minimize
""",
)
def run(
    ctx: typer.Context,
    generate: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="Makes one candidate: gets the request on its input, prints the candidate."
            " {index} and {seed} in it are replaced. No shell runs it.",
        ),
    ],
    score: Annotated[
        str,
        typer.Option(
            metavar="CMD",
            help="Judges one: gets the candidate on its input, prints a number, or"
            ' {"score": 0.5, "accepted": true, "rationale": "why"}.',
        ),
    ],
    request: Annotated[
        str | None,
        typer.Argument(
            metavar="REQUEST",
            help="Standard input if it is -, or if it is left out and that is no terminal.",
        ),
    ] = None,
    n: N = 4,
    concurrency: Concurrency = CORES,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", show_default="no limit", help="For the whole run."),
    ] = None,
    minimize: Annotated[
        bool, typer.Option("--minimize", help="The lowest score is the best.")
    ] = False,
    target: Annotated[
        float | None, typer.Option(metavar="X", help="Stop at the first score that reaches X.")
    ] = None,
    seed: Seed = None,
    json: Json = False,
    max_output: Annotated[
        int,
        typer.Option(
            metavar="BYTES", show_default="8 MiB", help="What a command may print at most."
        ),
    ] = MAX_OUTPUT,
) -> None:
    """Run a command N times, and print the output that another command scores best.

    The output goes to standard output as it came, everything else to standard error. When the
    time is up, or at Ctrl-C, the rest are killed and the best so far is printed.
    """
    _check_counts(ctx, n=n, concurrency=concurrency, timeout=timeout)
    if target is not None and not math.isfinite(target):
        raise _bad(ctx, "--target", f"{target}: write a finite number, such as --target 0.9")
    if max_output < 1:
        raise _bad(ctx, "--max-output", f"{max_output}: write a number of bytes from 1 up")
    generator, scorer = _words(ctx, "--generate", generate), _words(ctx, "--score", score)
    text = _read(ctx, request)
    from hortator.actors.cli import commands  # here, so that help and bad usage are told at once

    code = commands.run(
        text,
        generate=generator,
        score=scorer,
        n=n,
        concurrency=concurrency,
        timeout=timeout,
        minimize=minimize,
        target=target,
        seed=seed,
        json=json,
        max_output=max_output,
    )
    raise typer.Exit(code)


@app.command(short_help="See it at work: a short tour through the 52 places of berlin52.")
def demo(
    ctx: typer.Context,
    n: N = 16,
    concurrency: Concurrency = CORES,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="For the whole run.")] = 5.0,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """Find a short tour through the 52 places of berlin52, a classic of 1991.

    Each candidate is a process that improves a random tour. When the time is up the rest are
    killed, and the best tour is shown beside the shortest that there is.
    """
    _check_counts(ctx, n=n, concurrency=concurrency, timeout=timeout)
    from hortator.actors.cli import commands  # as in `run`

    code = commands.demo(n=n, concurrency=concurrency, timeout=timeout, seed=seed, json=json)
    raise typer.Exit(code)


def _bad(ctx: typer.Context, flag: str, why: str) -> typer.BadParameter:
    return typer.BadParameter(why, ctx, param_hint=f"'{flag}'")


def _check_counts(ctx: typer.Context, *, n: int, concurrency: int, timeout: float | None) -> None:
    for flag, value in (("-n", n), ("--concurrency", concurrency)):
        if value < 1:
            raise _bad(ctx, flag, f"{value}: write a whole number from 1 up, such as {flag} 4")
    if timeout is not None and not 0 <= timeout < math.inf:
        raise _bad(ctx, "--timeout", f"{timeout}: write seconds from 0 up, such as --timeout 5")


def _words(ctx: typer.Context, flag: str, command: str) -> tuple[str, ...]:
    try:
        return Template.parse(command).words
    except BadCommand as error:
        raise _bad(ctx, flag, str(error)) from None


def _read(ctx: typer.Context, argument: str | None) -> bytes:
    """The request: the argument, or standard input."""
    if argument is not None and argument != "-":
        return os.fsencode(argument)
    stdin: Any = sys.stdin  # None, whatever its type says, if we were started with it closed
    if stdin is None or (argument is None and stdin.isatty()):
        return b""
    try:
        return bytes(stdin.buffer.read())
    except OSError as error:
        raise _bad(ctx, "REQUEST", f"standard input cannot be read: {error}") from None
