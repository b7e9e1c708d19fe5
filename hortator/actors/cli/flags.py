"""The flags of `hortator run`, as a person reads of them in `--help`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from hortator.actors.cli.jobfile import load

CORES: int = os.cpu_count() or 1

Job = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        is_eager=True,
        callback=load,
        help="A file in TOML that says what flags say, as max_cost = 0.5; flags go before it.",
    ),
]
Generate = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Makes one candidate: gets the request on its input, prints the candidate."
        " {index} and {seed} in it are replaced. No shell runs it.",
    ),
]
Score = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Judges one: gets the candidate on its input, prints a number, or"
        ' {"score": 0.5, "accepted": true, "rationale": "why"}. Left out only with a vote.',
    ),
]
Request = Annotated[
    str | None,
    typer.Argument(
        metavar="REQUEST",
        help="Standard input if it is -, or if it is left out and that is no terminal.",
    ),
]
N = Annotated[int, typer.Option("-n", metavar="N", help="How many candidates.")]
Concurrency = Annotated[
    int, typer.Option(metavar="K", show_default="one a core", help="How many of them at a time.")
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", show_default="no limit", help="For the whole run."),
]
Minimize = Annotated[bool, typer.Option("--minimize", help="The lowest score is the best.")]
Vote = Annotated[
    bool,
    typer.Option(
        "--vote", help="The output that most candidates agree on is the best; scores break ties."
    ),
]
VoteBy = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        help="As --vote, by what is found in an output: the first group, or the whole match. An"
        " output in which nothing is found has failed.",
    ),
]
Target = Annotated[float | None, typer.Option(metavar="X", help="The same as --stop target:X.")]
Stop = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="End early: first (at the first that is accepted), target:X (at a score of X or"
        " better), decided (the rest cannot change the vote), consistent or consistent:0.95 (they"
        " hardly will, with that confidence).",
    ),
]
Seed = Annotated[
    int | None, typer.Option(metavar="S", help="Of the run; each candidate's comes from it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a report of the run as JSON instead.")]
MaxOutput = Annotated[
    int,
    typer.Option(metavar="BYTES", show_default="8 MiB", help="What a command may print at most."),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default="no limit",
        help="Model calls of all candidates together. A command reports what it has used as JSON"
        ' to the file $HORTATOR_USAGE: {"model_calls": 1, "cost": "0.002"}, one or more lines.',
    ),
]
MaxCost = Annotated[
    str | None,
    typer.Option(
        metavar="DOLLARS",
        show_default="no limit",
        help="Money of all candidates together; needs --estimate-cost.",
    ),
]
EstimateCalls = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Model calls that one candidate is expected to need: set aside before it starts, and"
        " charged if it reports nothing.",
    ),
]
EstimateCost = Annotated[str | None, typer.Option(metavar="DOLLARS", help="Likewise, money.")]
Env = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Set in the environment of the commands, beside what is there; more than once.",
    ),
]
Cwd = Annotated[
    str | None,
    typer.Option(metavar="DIR", show_default="this one", help="The folder the commands run in."),
]
Events = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Write each event of the run to it as it happens, a line of JSON each; what was in"
        " it is lost.",
    ),
]
JobsFrom = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Many requests, one a line, - for standard input: plain text, or"
        ' {"id": "a", "request": "text"}. Each is a run of its own, with all that is said above;'
        " each answer is a line of JSON.",
    ),
]
Jobs = Annotated[int, typer.Option(metavar="N", help="How many of those runs at a time.")]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        show_default="standard output",
        help="Add the answers to this file, and pass over requests whose id is answered in it.",
    ),
]
