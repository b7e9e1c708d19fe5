"""What comes of a selection: who was chosen, by which rule, or why nobody was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import Candidate
from hortator.protocols.selection import TopK, first_of, in_order
from hortator.protocols.stopping import CUT_SHORT, StopReason

FALLBACK = "fallback"


@attrs.frozen(kw_only=True)
class Choice:
    """A selection that is over.

    Attributes:
        index: of the chosen candidate, or None.
        by: the selector or rule that chose, "" if nobody was chosen.
        top: the indices of the best ones in order, the chosen one first.
        error: what the selection failed of, also if the built-in order then decided.
        reason: why nobody was chosen though there was time; None for the run's own reason.
    """

    index: int | None = None
    by: str = ""
    top: tuple[int, ...] = ()
    error: BaseException | None = None
    reason: StopReason | None = None


NOBODY = Choice()


def chosen(
    job: BestOfN[Any, Any],
    records: Sequence[Candidate[Any]],
    reason: StopReason,
    index: int | None,
) -> Choice:
    """The selector has named one, or (None) has declined to."""
    if index is None:
        return NOBODY if reason in CUT_SHORT else Choice(reason="selector_declined")
    top: tuple[int, ...] = (index,)
    if isinstance(job.selector, TopK):
        ranked = in_order(records, job.objective, job.tie_tolerance)
        top = tuple(candidate.index for candidate in ranked[: job.selector.k])
    return Choice(index=index, by=job.selector.name, top=top)


def failed(
    job: BestOfN[Any, Any],
    records: Sequence[Candidate[Any]],
    reason: StopReason,
    error: BaseException | None,
) -> Choice:
    """The selector has raised, or (error=None) was cut.

    If the run was cut short the built-in order decides, so that its best so far isn't lost.
    """
    if reason not in CUT_SHORT:
        return Choice(error=error, reason="selection_failed")
    best = first_of(records, job.objective, job.tie_tolerance)
    if best is None:
        return Choice(error=error)
    return Choice(index=best.index, by=FALLBACK, top=(best.index,), error=error)
