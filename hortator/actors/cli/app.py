"""The commands and their flags: what a person wrote, checked before anything starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hortator.actors.cli import flags
from hortator.actors.cli.checks import bad, check, check_counts
from hortator.protocols.command import MAX_OUTPUT
from hortator.protocols.errors import InvalidJob

app: typer.Typer = typer.Typer(
    help="The best of N attempts, by one hard deadline.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: it starts faster, and reads well in any terminal
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version  # it is seldom asked for

        try:
            print(f"hortator {version('hortator')}")
        except PackageNotFoundError:  # a checkout that was never installed
            print("hortator, from a folder: not installed, so without a version")
        raise typer.Exit


@app.callback()
def hortator(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell it and exit."),
    ] = False,
) -> None:
    """The best of N attempts, by one hard deadline."""


@app.command(
    short_help="The best of N runs of a command of yours.",
    epilog="""\b
Examples:
  hortator run --generate 'solve --seed {seed}' --score judge -n 16 --timeout 5 <problem
  hortator run --generate 'shuf -n 3 /usr/share/dict/words' --score 'wc -c' --minimize
  hortator run --generate 'ask --seed {seed}' --vote-by 'answer: (.*)' --stop decided <question
""",
)
def run(
    ctx: typer.Context,
    job: flags.Job = None,
    generate: flags.Generate = None,
    score: flags.Score = None,
    request: flags.Request = None,
    n: flags.N = 4,
    concurrency: flags.Concurrency = flags.CORES,
    timeout: flags.Timeout = None,
    minimize: flags.Minimize = False,
    vote: flags.Vote = False,
    vote_by: flags.VoteBy = None,
    target: flags.Target = None,
    stop: flags.Stop = None,
    seed: flags.Seed = None,
    json: flags.Json = False,
    max_calls: flags.MaxCalls = None,
    max_cost: flags.MaxCost = None,
    estimate_calls: flags.EstimateCalls = 1,
    estimate_cost: flags.EstimateCost = None,
    env: flags.Env = None,
    cwd: flags.Cwd = None,
    max_output: flags.MaxOutput = MAX_OUTPUT,
    events: flags.Events = None,
    jobs_from: flags.JobsFrom = None,
    jobs: flags.Jobs = 1,
    out: flags.Out = None,
) -> None:
    """Run a command N times, and print the best of its outputs.

    The best is the one that another command scores best, or one that most of them agree on. It
    goes to standard output as it came, everything else to standard error. When the time is up,
    or at Ctrl-C, the rest are killed and the best so far is printed.
    """
    checked = check(ctx)
    from hortator.actors.cli import commands, settings  # here, so that bad usage is told at once

    try:
        prepared = settings.prepare(settings.Settings(**checked))
        if jobs_from is not None:
            code = commands.run_many(_read_from(ctx, jobs_from), prepared, jobs=jobs, out=out)
        else:
            code = commands.run(_read(ctx, request), prepared)
    except InvalidJob as error:
        ctx.fail(str(error))
    raise typer.Exit(code)


@app.command(short_help="See it at work: a short tour through the 52 places of berlin52.")
def demo(
    ctx: typer.Context,
    n: flags.N = 16,
    concurrency: flags.Concurrency = flags.CORES,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="For the whole run.")] = 5.0,
    seed: flags.Seed = None,
    json: flags.Json = False,
) -> None:
    """Find a short tour through the 52 places of berlin52, a classic of 1991.

    Each candidate is a process that improves a random tour. When the time is up the rest are
    killed, and the best tour is shown beside the shortest that there is.
    """
    check_counts(ctx)
    from hortator.actors.cli import commands  # as in `run`

    code = commands.demo(n=n, concurrency=concurrency, timeout=timeout, seed=seed, json=json)
    raise typer.Exit(code)


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
        raise bad(ctx, "REQUEST", f"standard input cannot be read: {error}") from None


def _read_from(ctx: typer.Context, path: str) -> bytes:
    """The lines of `--jobs-from`."""
    if path == "-":
        return _read(ctx, path)
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise bad(ctx, "--jobs-from", f"{path} cannot be read: {error.strerror}") from None
