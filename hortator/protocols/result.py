"""What a run hands back, and what it looks like while it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Generic

import attrs

from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.errors import NoEligibleCandidate
from hortator.protocols.interfaces import Out
from hortator.protocols.report import dump
from hortator.protocols.showing import shown
from hortator.protocols.stopping import StopReason
from hortator.protocols.usage import UsageReport


@attrs.frozen(kw_only=True)
class Telemetry:
    """How the telling went.

    Attributes:
        events: how many events the run made; their sequence numbers are 0 to events - 1.
        delivered: calls of observers that returned.
        observer_errors: calls of observers that raised.
        dropped: events that were not delivered because an observer was too slow.
        cut: observers whose call was cut at the end of the grace.
        refused: uses of a candidate's context after that candidate had ended.
    """

    events: int = 0
    delivered: int = 0
    observer_errors: int = 0
    dropped: int = 0
    cut: int = 0
    refused: int = 0


@attrs.frozen(kw_only=True)
class Snapshot:
    """A run at one moment.

    Attributes:
        run_id: the run.
        time: seconds on Trio's clock.
        elapsed: seconds since its start.
        deadline: seconds on Trio's clock, None without one.
        statuses: how many candidates stand where.
        ended: records of those that have ended, in index order.
        best: the index of the best so far, None if none is eligible.
        usage: what it has cost so far.
        stop_reason: why it is ending, None while it is not.
        sequence: the number that its next event will have.
    """

    run_id: str
    time: float
    elapsed: float
    deadline: float | None
    statuses: Mapping[Status, int]
    ended: tuple[Candidate[Any], ...]
    best: int | None
    usage: UsageReport
    stop_reason: StopReason | None
    sequence: int


@attrs.frozen(kw_only=True)
class RunResult(Generic[Out]):
    """What came of a run. It does not change any more, whatever detached work still does.

    Attributes:
        selected: the record of the best candidate, or None.
        candidates: all records, in index order, n of them.
        stop_reason: what ended the run.
        partial: whether the run was cut short (by a deadline, stop, budget or lost slots).
        selected_by: the selector or rule that chose, "" if nothing was; "fallback" if the
            built-in order chose in the selector's place.
        usage: what it cost, in three views.
        telemetry: how the telling went.
        seed: of the run; the same seed gives the candidates the same seeds.
        run_id: unique within the process.
        elapsed: seconds from start to end, grace included.
        top: the best ones in order, the selected one first: as many as `top_k` was asked for, and
            with any other selector that one alone.
        selection_error: what the selector failed of, if it did, as itself.
    """

    selected: Candidate[Out] | None
    candidates: tuple[Candidate[Out], ...]
    stop_reason: StopReason
    partial: bool
    selected_by: str
    usage: UsageReport
    telemetry: Telemetry
    seed: int
    run_id: str
    elapsed: float
    top: tuple[Candidate[Out], ...] = ()
    selection_error: BaseException | None = None

    @property
    def output(self) -> Out:
        """The selected candidate's output.

        Raises:
            NoEligibleCandidate: nothing was selected; `.causes` has what the candidates failed of.
        """
        if self.selected is None:
            raise self._nothing_selected()
        return self.selected.output  # type: ignore[return-value]

    def raise_for_status(self) -> RunResult[Out]:
        """Itself, if a candidate was selected.

        Raises:
            NoEligibleCandidate: nothing was.
        """
        if self.selected is None:
            raise self._nothing_selected()
        return self

    def to_json(self, *, encode: Callable[[Any], Any] | None = None) -> str:
        """The report of this run as one JSON object.

        Args:
            encode: turns an output into something JSON can hold. Without it text stays text,
                UTF-8 bytes become text, pydantic models their fields, and everything else its
                repr, with `"output_is_repr": true` beside it.
        """
        return dump(self, encode)

    def _nothing_selected(self) -> NoEligibleCandidate:
        statuses = Counter(str(candidate.status) for candidate in self.candidates)
        story = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
        errors = [self.selection_error, *(c.error for c in self.candidates)]
        causes = [error for error in errors if error is not None]
        first = f"; the first error: {shown(causes[0], most=500)}" if causes else ""
        return NoEligibleCandidate(
            f"no candidate was selected ({self.stop_reason}): {story}{first}", causes
        )
