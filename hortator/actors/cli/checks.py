"""What a person wrote on the command line, checked before anything starts."""

from __future__ import annotations

import math
import os
from decimal import Decimal
from typing import Any

import typer

from hortator.actors.cli.jobfile import environment, missing, told_by
from hortator.protocols.ballot import Ballot
from hortator.protocols.budget import Budget
from hortator.protocols.command import BadCommand, Template
from hortator.protocols.consensus import adaptive_consistency, vote_decided
from hortator.protocols.errors import InvalidJob
from hortator.protocols.stopping import StopRule, all_candidates, first_accepted, target
from hortator.protocols.usage import MOST, Usage, dollars, nano_dollars


def check(ctx: typer.Context) -> dict[str, Any]:
    """The settings that the flags of `hortator run` come to, by name.

    Raises:
        typer.BadParameter: a flag, or two together, cannot be meant.
    """
    given = ctx.params
    check_counts(ctx)
    if given["max_output"] < 1:
        raise bad(ctx, "--max-output", f"{given['max_output']}: write a number of bytes from 1 up")
    _check_many(ctx)
    if given["cwd"] is not None and not os.path.isdir(given["cwd"]):
        raise bad(ctx, "--cwd", f"there is no folder {given['cwd']!r}")
    ballot = _ballot(ctx)
    if given["generate"] is None:
        ctx.fail(
            f"{missing(ctx, 'generate')}: write the command that makes a candidate, such as"
            " 'solve --seed {seed}'"
        )
    if given["score"] is None and ballot is None:
        ctx.fail(
            f"{missing(ctx, 'score')}: write the command that judges a candidate, such as"
            " 'wc -c'; or let the candidates vote, with --vote or --vote-by REGEX"
        )
    return {
        "generate": _words(ctx, "--generate", given["generate"]),
        "score": None if given["score"] is None else _words(ctx, "--score", given["score"]),
        "ballot": ballot,
        "budget": _budget(ctx),
        "estimate": Usage(
            model_calls=_calls(ctx, "--estimate-calls", "estimate_calls") or 0,
            cost=_money(ctx, "--estimate-cost", "estimate_cost") or 0,
        ),
        "env": _env(ctx),
        "stop": _rule(ctx, voting=ballot is not None),
        **{name: given[name] for name in _AS_THEY_ARE},
    }


_AS_THEY_ARE = (
    "n",
    "concurrency",
    "timeout",
    "minimize",
    "seed",
    "json",
    "cwd",
    "max_output",
    "events",
)


def bad(ctx: typer.Context, flag: str, why: str) -> typer.BadParameter:
    """The error of a flag whose value cannot be meant, or of the key in a job file."""
    told = told_by(ctx, flag.lstrip("-").replace("-", "_"))
    if told is not None:
        ctx.fail(f"{told}: {why}")
    return typer.BadParameter(why, ctx, param_hint=f"'{flag}'")


def check_counts(ctx: typer.Context) -> None:
    """Check the flags that all commands have.

    Raises:
        typer.BadParameter: one of them cannot be meant.
    """
    for flag, name in (("-n", "n"), ("--concurrency", "concurrency")):
        value = ctx.params[name]
        if value < 1:
            raise bad(ctx, flag, f"{value}: write a whole number from 1 up, such as {flag} 4")
    timeout = ctx.params["timeout"]
    if timeout is not None and not 0 <= timeout < math.inf:
        raise bad(ctx, "--timeout", f"{timeout}: write seconds from 0 up, such as --timeout 5")


def _check_many(ctx: typer.Context) -> None:
    given = ctx.params
    if given["jobs"] < 1:
        raise bad(ctx, "--jobs", f"{given['jobs']}: write a whole number from 1 up")
    if given["jobs_from"] is None:
        for flag, name, unset in (("--jobs", "jobs", 1), ("--out", "out", None)):
            if given[name] != unset:
                raise bad(ctx, flag, "it goes with many requests: write --jobs-from FILE too")
    elif given["request"] is not None:
        raise bad(ctx, "REQUEST", "the requests come from --jobs-from: write one of the two")


def _words(ctx: typer.Context, flag: str, command: str) -> tuple[str, ...]:
    try:
        return Template.parse(command).words
    except BadCommand as error:
        raise bad(ctx, flag, str(error)) from None


def _env(ctx: typer.Context) -> dict[str, str]:
    found = environment(ctx)
    for written in ctx.params["env"] or ():
        name, equals, value = written.partition("=")
        if not name or not equals or "\0" in written:
            raise bad(ctx, "--env", f"{written!r}: write NAME=VALUE, such as --env MODEL=small")
        found[name] = value
    return found


def _ballot(ctx: typer.Context) -> Ballot | None:
    expression = ctx.params["vote_by"]
    if expression is None:
        return Ballot() if ctx.params["vote"] else None
    try:
        return Ballot.parse(expression)
    except InvalidJob as error:
        raise bad(ctx, "--vote-by", str(error)) from None


def _budget(ctx: typer.Context) -> Budget:
    cost = _money(ctx, "--max-cost", "max_cost")
    if cost is not None and ctx.params["estimate_cost"] is None:
        raise bad(
            ctx,
            "--max-cost",
            "money is set aside before it is spent: write --estimate-cost too, with the dollars"
            " that one candidate is expected to cost",
        )
    calls = _calls(ctx, "--max-calls", "max_calls")
    if calls and not ctx.params["estimate_calls"]:
        raise bad(ctx, "--estimate-calls", "0 beside --max-calls: write 1, or what one comes to")
    return Budget(model_calls=calls, cost=cost)


def _calls(ctx: typer.Context, flag: str, name: str) -> int | None:
    calls: int | None = ctx.params[name]
    if calls is not None and not 0 <= calls <= MOST:
        raise bad(ctx, flag, f"{calls}: write a whole number from 0 up, such as {flag} 8")
    return calls


def _money(ctx: typer.Context, flag: str, name: str) -> Decimal | None:
    written: str | None = ctx.params[name]
    if written is None:
        return None
    try:
        nano = nano_dollars(written)
    except ValueError:
        nano = -1
    if nano < 0:
        raise bad(ctx, flag, f"{written!r}: write dollars from 0 up, such as {flag} 0.50")
    return dollars(nano)


def _rule(ctx: typer.Context, *, voting: bool) -> StopRule:
    """The rule of `--stop` or `--target`."""
    written, value = ctx.params["stop"], ctx.params["target"]
    if value is not None and written is not None and _beaten(ctx, "target", "stop"):
        value = None
    elif value is not None and written is not None and _beaten(ctx, "stop", "target"):
        written = None
    if value is not None and written is not None:
        raise bad(ctx, "--stop", "it stands beside --target: write one of the two")
    if value is not None:
        return _target(ctx, "--target", value)
    name, colon, after = (written or "").partition(":")
    match name, colon:
        case ("", ""):
            return all_candidates()
        case ("first", ""):
            return first_accepted()
        case ("target", ":"):
            return _target(ctx, "--stop", _number(after))
        case ("decided", "") | ("consistent", _) if not voting:
            raise bad(ctx, "--stop", f"{written} counts votes: write --vote or --vote-by REGEX")
        case ("decided", ""):
            return vote_decided()
        case ("consistent", ""):
            return adaptive_consistency()
        case ("consistent", ":") if 0.5 < _number(after) < 1:
            return adaptive_consistency(confidence=_number(after))
        case _:
            raise bad(
                ctx,
                "--stop",
                f"{written!r}: write first, target:X with a finite number, decided, consistent, or"
                " consistent:P with a probability above 0.5 and below 1, such as consistent:0.95",
            )


def _beaten(ctx: typer.Context, one: str, other: str) -> bool:
    """Whether one stands in a job file, and the other, a flag, goes before it."""
    return told_by(ctx, one) is not None and told_by(ctx, other) is None


def _target(ctx: typer.Context, flag: str, value: float) -> StopRule:
    if not math.isfinite(value):
        example = "--target 0.9" if flag == "--target" else "--stop target:0.9"
        raise bad(ctx, flag, f"{value}: write a finite number, such as {example}")
    if ctx.params["score"] is None:
        raise bad(ctx, flag, "a target is one of scores: write --score CMD")
    return target(value)


def _number(text: str) -> float:
    """A number, or one that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
