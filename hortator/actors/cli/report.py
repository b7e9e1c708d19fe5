"""The account of a run for people, and the output for whoever comes next."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from hortator.protocols.ballot import Ballot
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.brief import costs, number
from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.result import RunResult
from hortator.protocols.showing import on_one_line
from hortator.protocols.table import LONGEST, table
from hortator.protocols.usage import Usage

_UNLIMITED = 10_000
"""Columns of what is no terminal: more than any line has."""


class _Stderr(Console):
    """Standard error, read by somebody or not."""

    def on_broken_pipe(self) -> None:
        """Say nothing more; Rich's own way is to exit, which would take the run with it."""
        self.quiet = True


stderr: Console = _Stderr(stderr=True, highlight=False)


def print_plan(job: BestOfN[Any, Any]) -> None:
    """Print to standard error what is about to happen."""
    limit = "no time limit" if job.timeout is None else f"at most {job.timeout:g} s"
    count = f"{job.n} candidates" if job.n > 1 else "1 candidate"
    print_line(Text(f"{count}, {job.max_concurrency} at a time, {limit}; Ctrl-C keeps the best"))


def print_account(
    result: RunResult[Any], job: BestOfN[Any, Any], ballot: Ballot | None = None
) -> None:
    """Print to standard error what became of each candidate, how the run ended, and the best.

    Args:
        result: of the run.
        job: that was run.
        ballot: how its outputs voted, if they did.
    """
    for line in (Text(), *_table(result, job), *_summary(result, ballot)):
        print_line(line)


def print_line(line: Text) -> None:
    """Print a line to standard error: whole, however wide the terminal is."""
    try:
        stderr.print(line, soft_wrap=True)
    except OSError:
        pass  # nobody reads it: no reason not to go on, and to write the output


def hand_over(output: bytes) -> int:
    """Write the output to standard output as it is; return 0, or what to exit with instead."""
    stdout: Any = sys.stdout  # None, whatever its type says, if we were started with it closed
    if stdout is None:
        return 0
    try:
        stdout.buffer.write(output)
        stdout.flush()
    except OSError as error:
        # Python flushes again when it exits: into nothing, or it would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        print_line(Text(f"hortator: the output could not be written: {error}", "bold red"))
        return 1
    return 0


def _table(result: RunResult[Any], job: BestOfN[Any, Any]) -> Iterator[Text]:
    """The candidates, a line each; in a terminal no line is wider than that."""
    width = stderr.width if stderr.is_terminal else _UNLIMITED
    options = stderr.options.update(width=width)
    # The best output goes to standard output, and those of commands say little in one line.
    made = table(result, width, _listed(result, job), outputs=False)
    for line in stderr.render_lines(made, options):
        text = Text.assemble(*((part.text, part.style or "") for part in line))
        text.rstrip()
        yield text


def _listed(result: RunResult[Any], job: BestOfN[Any, Any]) -> list[Candidate[Any]]:
    if len(result.candidates) <= LONGEST:
        return list(result.candidates)
    sign = -1.0 if job.objective == "max" else 1.0

    def rank(candidate: Candidate[Any]) -> tuple[bool, bool, float, int]:
        value = candidate.score.value * sign if candidate.score is not None else 0.0
        return (not candidate.eligible, candidate.score is None, value, candidate.index)

    return sorted(result.candidates, key=rank)


def _summary(result: RunResult[Any], ballot: Ballot | None) -> list[Text]:
    counts = Counter(candidate.status for candidate in result.candidates)
    story = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    lines = [Text(f"{len(result.candidates)} candidates: {story}")]
    ended = f"ended: {result.stop_reason}, after {result.elapsed:.2f} s"
    lines.append(Text(f"{ended}; the run was cut short" if result.partial else ended))
    lines.append(Text(f"seed: {result.seed} (again with --seed)"))
    if result.usage.charged != Usage():
        lines.append(Text(f"usage: {costs(result.usage.charged)}"))
    lines += [
        Text(f"not counted, so the estimate was charged: #{each.candidate}, {each.what}", "yellow")
        for each in result.usage.malformed
    ]
    if result.selected is None:
        lines.append(Text("best: none, no candidate was eligible", "yellow"))
        return lines
    best = f"best: #{result.selected.index}"
    if ballot is not None:
        best += f", {_votes(result, ballot)}"
    if result.selected.score is not None:
        best += f", scored {number(result.selected.score.value)}"
    lines.append(Text(best, "bold green"))
    return lines


def _votes(result: RunResult[Any], ballot: Ballot) -> str:
    votes = [ballot.vote(each.output or b"") for each in result.candidates if each.eligible]
    winner = ballot.vote(result.output)
    shown = on_one_line(winner or "", 40)
    return f"{votes.count(winner)} of {len(votes)} votes for {shown!r}"
