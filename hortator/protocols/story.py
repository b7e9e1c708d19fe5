"""A run, and a moment of a run, in one line each: what `repr` and the tables say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hortator.protocols.brief import costs, head, scored
from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.plain import text
from hortator.protocols.showing import on_one_line

if TYPE_CHECKING:
    from hortator.protocols.result import RunResult, Snapshot


def counted(candidates: Iterable[Candidate[Any]]) -> str:
    """How many candidates ended how, in the order of a candidate's life.

    >>> counted([Candidate(0, Status.ELIGIBLE), Candidate(1, Status.SCORING, detached=True)])
    '1 scoring (detached), 1 eligible'
    """
    counts = Counter((each.status, each.detached) for each in candidates)
    return ", ".join(
        f"{counts[status, detached]} {status}{' (detached)' if detached else ''}"
        for status in Status
        for detached in (False, True)
        if counts[status, detached]
    )


def story_of_run(result: RunResult[Any]) -> str:
    """What came of a run: who was selected, what became of the others, why it ended, its cost."""
    best = result.selected
    chosen = "nothing selected" if best is None else _chosen(best, result.selected_by)
    ended = f"{result.stop_reason} after {result.elapsed:.2f} s"
    parts = [
        f"{result.run_id}: {chosen}",
        counted(result.candidates) or "no candidates",
        f"{ended}, partial" if result.partial else ended,
        costs(result.usage.charged),
    ]
    return "; ".join(filter(None, parts))


def story_of_moment(snapshot: Snapshot) -> str:
    """Where a run stands."""
    statuses = snapshot.statuses
    standing = ", ".join(f"{statuses[each]} {each}" for each in Status if statuses.get(each))
    ending = f"ending: {snapshot.stop_reason}" if snapshot.stop_reason is not None else ""
    best = "none eligible" if snapshot.best is None else f"best: #{snapshot.best}"
    at = f"{snapshot.run_id}: after {snapshot.elapsed:.2f} s"
    parts = [at, standing, best, ending, costs(snapshot.usage.charged)]
    return "; ".join(filter(None, parts))


def _chosen(best: Candidate[Any], by: object) -> str:
    with_score = f" ({scored(best.score)})" if best.score is not None else ""
    return f"#{best.index}{with_score} by {on_one_line(text(by), 40)}: {head(best.output)}"
