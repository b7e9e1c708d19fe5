"""A result as a table for people, made of Rich's parts. Needs the extra `cli`; prints nothing.

Whatever callbacks said is shown letter by letter: cells are `Text`, which knows no markup, and what
would break a line or a terminal is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import attrs
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from hortator.protocols.brief import LONGEST_LINE, brief, head, number
from hortator.protocols.candidate import Candidate, Status, marked
from hortator.protocols.plain import text
from hortator.protocols.result import RunResult
from hortator.protocols.showing import on_one_line
from hortator.protocols.story import story_of_run
from hortator.protocols.usage import Usage

LONGEST = 40
"""Rows that a table has; of more, the first `SHORTENED` and the best."""

SHORTENED = 20

NARROW = 72
"""Columns below which nothing is said of cost, so that there is room for what was made."""

_Row: TypeAlias = tuple[tuple[str, ...], str, int]
"""Cells, style, and how many candidates the row stands for."""

_HEADINGS = ("#", "status", "score", "seconds", "usage", "")
_TO_THE_RIGHT = ("#", "score", "seconds", "usage")
_USAGE = _HEADINGS.index("usage")


@attrs.frozen
class Rendered:
    """The table of all candidates of a result, and under it the line that `repr` gives."""

    result: RunResult[Any]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield table(self.result, options.max_width)
        yield Text(on_one_line(story_of_run(self.result), LONGEST_LINE), "dim")


def table(
    result: RunResult[Any],
    width: int,
    candidates: Sequence[Candidate[Any]] | None = None,
    *,
    outputs: bool = True,
) -> Table:
    """A row for each candidate: status, score, time, cost, and why it failed or what it made.

    Neighbours that never started share a row. No row is wrapped: where there is no room the last
    cell is cut, and where there is little nothing is said of cost.

    Args:
        result: whose candidates.
        width: columns that there are for it.
        candidates: those to list, in this order; None for all, in index order. Of more than
            `LONGEST` rows the first `SHORTENED` are shown and the best.
        outputs: whether to show the heads of outputs.
    """
    best = result.selected
    rows = list(_rows(result.candidates if candidates is None else candidates, best, outputs))
    shown = _shortened(rows, best)
    has_usage = width >= NARROW and any(cells[_USAGE] for cells, _, _ in shown)
    columns = [at for at in range(len(_HEADINGS)) if has_usage or at != _USAGE]
    made = Table(box=None, pad_edge=False, header_style="bold")
    for at in columns:
        heading = _HEADINGS[at]
        # Only the last one gives way in a narrow terminal, and its text is cut, not wrapped.
        made.add_column(
            heading,
            justify="right" if heading in _TO_THE_RIGHT else "left",
            no_wrap=at != columns[-1],
        )
    for cells, style, _ in shown:
        texts = [Text(cells[at], no_wrap=True, overflow="ellipsis") for at in columns]
        made.add_row(*texts, style=style)
    return made


def _rows(
    candidates: Sequence[Candidate[Any]], best: Candidate[Any] | None, outputs: bool
) -> Iterator[_Row]:
    """A row for each candidate, but one for neighbours that never started."""

    def together(place: tuple[int, Candidate[Any]]) -> tuple[bool, int]:
        at, candidate = place
        skipped = candidate.status is Status.SKIPPED
        return skipped, candidate.index - at if skipped else at

    for (skipped, _), places in groupby(enumerate(candidates), together):
        group = [candidate for _, candidate in places]
        first, last = group[0], group[-1]
        if skipped and len(group) > 1:
            span = f"{first.index}-{last.index}"
            yield (span, str(Status.SKIPPED), "", "", "", ""), "yellow", len(group)
        else:
            style = "bold green" if first is best else "" if first.eligible else "yellow"
            note = _note(first, first is best, outputs)
            yield _cells(first, note), style, 1


def _shortened(rows: list[_Row], best: Candidate[Any] | None) -> list[_Row]:
    if len(rows) <= LONGEST:
        return rows
    kept, rest = rows[:SHORTENED], rows[SHORTENED:]
    if best is not None:
        kept += [row for row in rest if row[0][0] == str(best.index)]
    left = sum(count for _, _, count in rows) - sum(count for _, _, count in kept)
    return [*kept, (("...", f"{left} more", "", "", "", ""), "dim", left)]


def _cells(candidate: Candidate[Any], note: str) -> tuple[str, ...]:
    return (
        str(candidate.index),
        marked(candidate),
        "" if candidate.score is None else number(candidate.score.value),
        "" if candidate.started is None else f"{candidate.elapsed:.2f}",
        _usage(candidate.usage),
        note,
    )


def _usage(usage: Usage) -> str:
    """The one figure that says most; the sums of all stand below the table."""
    if usage.cost:
        return f"${usage.cost:f}"
    if usage.total_tokens:
        return f"{usage.total_tokens:,} tokens"
    calls = usage.model_calls + usage.tool_calls
    return f"{calls:,} call{'s' if calls != 1 else ''}" if calls else ""


def _note(candidate: Candidate[Any], best: bool, outputs: bool) -> str:
    """Why it failed; else why it got its score; else the head of what it made."""
    if candidate.error is not None:
        note = brief(candidate.error)
    elif candidate.score is not None and candidate.score.rationale:
        note = on_one_line(text(candidate.score.rationale), 120)
    else:
        note = head(candidate.output) if outputs and candidate.output is not None else ""
    return f"the best: {note}" if best and note else "the best" if best else note
