"""What a run hands back, and what it looks like while it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Generic

import attrs

from hortator.protocols.attribution import Attribution, of_run
from hortator.protocols.brief import told
from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.errors import NoEligibleCandidate
from hortator.protocols.interfaces import Out
from hortator.protocols.report import dump
from hortator.protocols.showing import shown
from hortator.protocols.stopping import StopReason
from hortator.protocols.story import story_of_moment, story_of_run
from hortator.protocols.usage import UsageReport, exact


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


@attrs.frozen(kw_only=True, repr=False)
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

    def __repr__(self) -> str:
        return told(self, story_of_moment)


@attrs.frozen(kw_only=True, repr=False)
class RunResult(Generic[Out]):
    """What came of a run. It does not change any more, whatever detached work still does.

    Attributes:
        selected: the record of the best candidate, or None.
        candidates: all records, in index order: n of them, or as many as fit the budget.
        stop_reason: what ended the run.
        partial: whether the run was cut short (by a deadline, stop, budget or lost slots).
        selected_by: the selector or rule that chose, "" if nothing was; "fallback" if the
            built-in order chose in the selector's place.
        usage: what it cost, in three views.
        telemetry: how the telling went.
        seed: of the run; the same seed gives the candidates the same seeds.
        run_id: unique within the process.
        elapsed: seconds from start to end, grace included.
        requested_n: the job's n. There are fewer candidates only with `fit="shrink"`.
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
    requested_n: int = attrs.field(
        default=attrs.Factory(lambda self: len(self.candidates), takes_self=True)
    )
    top: tuple[Candidate[Out], ...] = ()
    selection_error: BaseException | None = None

    def __repr__(self) -> str:
        return told(self, story_of_run)

    def __rich__(self) -> object:
        """What Rich prints for it: a table of the candidates and a line of what came of the run."""
        # Here, and not above: only Rich calls this, and the library does without it.
        from hortator.protocols.table import Rendered

        return Rendered(self)

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

    @property
    def attribution(self) -> Attribution:
        """Who was charged what: the run, its candidates, the runs that those started.

        The leaves sum to the root, `usage.charged`. What detached work comes to after the run
        stands in `Runtime.attribution`.
        """
        return of_run(self.run_id, exact(self.usage.charged), self.candidates)

    def to_json(self, *, encode: Callable[[Any], Any] | None = None) -> str:
        """The report of this run as one JSON object, on one line. It is written whatever is in it.

        Text stays text and pydantic models become their fields. UTF-8 bytes become text, other
        bytes base64, with `"output_is_bytes"` or `"output_is_base64": true` beside the output.
        Everything else becomes its repr, cut at a million characters, with
        `"output_is_repr": true`. `hortator.protocols.report` lists all that stands in a report.

        Args:
            encode: turns an output (any but None) into something JSON can hold; what it makes is
                written like an output, but lists, dicts and numbers as themselves. Where it
                raises, `"output_encode_error"` has what, and the output is written as without it.
        """
        return dump(self, RunResult, encode)

    @classmethod
    def from_json(cls, text: str | bytes) -> RunResult[Any]:
        """A result as its report tells it: `from_json(text).to_json() == text` for any report.

        Outputs come back as text, bytes or the plain data that JSON had of them, errors as
        `RecordedError`, and each `request` as None: no report has it. Fields that this version
        does not know are passed over; one that an earlier version did not write has its default.

        Args:
            text: what `to_json` made, as text or as UTF-8.

        Raises:
            InvalidReport: it is no report that this version can read; the message says where.
        """
        # Here, and not above: importing pydantic costs more than everything else in this library.
        from hortator.protocols.reading import read_report

        return read_report(text)

    def _nothing_selected(self) -> NoEligibleCandidate:
        statuses = Counter(str(candidate.status) for candidate in self.candidates)
        story = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
        errors = [self.selection_error, *(c.error for c in self.candidates)]
        causes = [error for error in errors if error is not None]
        first = f"; the first error: {shown(causes[0], most=500)}" if causes else ""
        return NoEligibleCandidate(
            f"no candidate was selected ({self.stop_reason}): {story}{first}", causes
        )
