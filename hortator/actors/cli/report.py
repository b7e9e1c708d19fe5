"""The account of a run for people, and the output for whoever comes next."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from rich.console import Console
from rich.text import Text

from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.command import CommandFailed, shown
from hortator.protocols.result import RunResult
from hortator.protocols.usage import Usage

LONGEST = 40
"""Candidates that the account lists one by one; of more, the best `SHORTENED`."""

SHORTENED = 20


class _Stderr(Console):
    """Standard error, read by somebody or not."""

    def on_broken_pipe(self) -> None:
        """Say nothing more; Rich's own way is to exit, which would take the run with it."""
        self.quiet = True


_Row: TypeAlias = tuple[tuple[str, str, str, str], str, str]
"""The cells of a line of the account, the note behind them, and the line's style."""

_HEAD: _Row = (("#", "status", "score", "seconds"), "", "bold")

stderr: Console = _Stderr(stderr=True, highlight=False)


def print_plan(job: BestOfN[Any, Any]) -> None:
    """Print to standard error what is about to happen."""
    limit = "no time limit" if job.timeout is None else f"at most {job.timeout:g} s"
    count = f"{job.n} candidates" if job.n > 1 else "1 candidate"
    print_line(Text(f"{count}, {job.max_concurrency} at a time, {limit}; Ctrl-C keeps the best"))


def print_account(result: RunResult[Any], job: BestOfN[Any, Any]) -> None:
    """Print to standard error what became of each candidate, how the run ended, and the best."""
    for line in (Text(), *_table(result, job), *_summary(result)):
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


def brief(error: BaseException) -> str:
    """An error on one short line."""
    if isinstance(error, CommandFailed):
        return shown(error.brief, 120)
    return shown(str(error) or type(error).__name__, 200)


def number(value: float) -> str:
    """A score, without a needless fraction.

    >>> number(7542.0), number(0.125)
    ('7542', '0.125')
    """
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _table(result: RunResult[Any], job: BestOfN[Any, Any]) -> list[Text]:
    """The candidates, a line each; in a terminal no line is wider than that."""
    rows = [_HEAD, *_rows(_listed(result, job), result.selected)]
    a, b, c, d = (max(map(len, column)) for column in zip(*(row[0] for row in rows), strict=True))
    lines: list[Text] = []
    for (index, status, score, seconds), note, style in rows:
        text = f"{index:>{a}}  {status:{b}}  {score:>{c}}  {seconds:>{d}}  {note}"
        line = Text(text.rstrip(), style)
        if stderr.is_terminal:
            line.truncate(stderr.width, overflow="ellipsis")
        lines.append(line)
    return lines


def _listed(result: RunResult[Any], job: BestOfN[Any, Any]) -> list[Candidate[Any]]:
    if len(result.candidates) <= LONGEST:
        return list(result.candidates)
    sign = -1.0 if job.objective == "max" else 1.0

    def rank(candidate: Candidate[Any]) -> tuple[bool, bool, float, int]:
        value = candidate.score.value * sign if candidate.score is not None else 0.0
        return (not candidate.eligible, candidate.score is None, value, candidate.index)

    return sorted(result.candidates, key=rank)[:SHORTENED]


def _rows(candidates: Sequence[Candidate[Any]], best: Candidate[Any] | None) -> Iterator[_Row]:
    """A row for each candidate, but one for all that stand together and never started."""
    for skipped, together in groupby(candidates, lambda each: each.status is Status.SKIPPED):
        group = list(together)
        if skipped and len(group) > 1:
            span = f"{group[0].index}-{group[-1].index}"
            yield (span, str(Status.SKIPPED), "", ""), "", "yellow"
        else:
            yield from (_row(each, each is best) for each in group)


def _row(candidate: Candidate[Any], best: bool) -> _Row:
    cells = (
        str(candidate.index),
        f"{candidate.status}{' (detached)' if candidate.detached else ''}",
        "" if candidate.score is None else number(candidate.score.value),
        "" if candidate.started is None else f"{candidate.elapsed:.2f}",
    )
    style = "bold green" if best else "" if candidate.eligible else "yellow"
    return cells, _note(candidate, best), style


def _note(candidate: Candidate[Any], best: bool) -> str:
    if best:
        return "the best"
    if candidate.error is not None:
        return brief(candidate.error)
    return shown(candidate.score.rationale, 120) if candidate.score is not None else ""


def _summary(result: RunResult[Any]) -> list[Text]:
    counts = Counter(candidate.status for candidate in result.candidates)
    story = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    lines = [Text(f"{len(result.candidates)} candidates: {story}")]
    ended = f"ended: {result.stop_reason}, after {result.elapsed:.2f} s"
    lines.append(Text(f"{ended}; the run was cut short" if result.partial else ended))
    lines.append(Text(f"seed: {result.seed} (again with --seed)"))
    if result.usage.charged != Usage():
        lines.append(Text(f"usage: {_usage(result.usage.charged)}"))
    if result.selected is None or result.selected.score is None:
        lines.append(Text("best: none, no candidate was eligible", "yellow"))
    else:
        best = f"best: #{result.selected.index}, scored {number(result.selected.score.value)}"
        lines.append(Text(best, "bold green"))
    return lines


def _usage(usage: Usage) -> str:
    counts = {
        "model calls": usage.model_calls,
        "tool calls": usage.tool_calls,
        "tokens": usage.total_tokens,
    }
    parts = [f"{count} {name}" for name, count in counts.items() if count]
    return ", ".join([*parts, f"${usage.cost:f}"] if usage.cost else parts)
