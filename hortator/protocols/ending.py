"""How a run ends: why it does, who is selected, and what is told of it.

The rules of `RunState` that come last. Nothing here stops or starts anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hortator.protocols.asking import Case, Raised
from hortator.protocols.attribution import Attribution, of_run
from hortator.protocols.candidate import Status
from hortator.protocols.choosing import NOBODY, Choice, chosen, failed
from hortator.protocols.copying import private_copy
from hortator.protocols.events import RunFinished
from hortator.protocols.judging import Purse
from hortator.protocols.ledger import Book
from hortator.protocols.result import Snapshot
from hortator.protocols.roster import Roster
from hortator.protocols.selection import first_of
from hortator.protocols.stopping import CUT_SHORT, StopReason
from hortator.protocols.usage import Amounts, Usage, exact

_NO_USAGE = Usage()


class Ending(Roster):
    """A run's end.

    Attributes:
        seed: of the run.
        book: the run's leases.
        denied: whether some candidate got no lease.
        first: the index of the candidate that met `first_accepted`.
        choice: who was selected, once that is known.
        interrupt: what `run()` raises instead of a result: a KeyboardInterrupt or SystemExit out
            of a callback, or a bug of ours.
    """

    seed: int
    book: Book
    sequence: int
    admitting: bool
    closed: bool
    denied: bool
    first: int | None
    choice: Choice | None
    interrupt: BaseException | None
    _ask: Callable[[Callable[..., Any], tuple[Any, ...]], Any]
    _purse: Purse | None = None

    def reason(self, selected: int | None) -> StopReason:
        """Why the run ended, given what was selected."""
        if self.choice is not None and self.choice.reason is not None:
            return self.choice.reason
        if self.stop_reason is not None:
            return self.stop_reason
        if self.denied:
            return "budget_exceeded"
        return "completed" if selected is not None else "no_eligible"

    def choose(self) -> bool:
        """Select, if that takes no waiting; whether `choice` is known now.

        A selector that asks is needed only if the run has not decided by itself.
        """
        records, job = self.candidates(), self.job
        if self._is_to_fail():
            self.choice = NOBODY
        elif self.first is not None:
            self.choice = Choice(index=self.first, by=job.stop.reason, top=(self.first,))
        elif not any(record.eligible for record in records):
            self.choice = NOBODY
        elif job.in_place is not None and job.in_place.trusted:
            self.chosen(job.in_place.choose(records, job.objective, job.tie_tolerance))
        elif self.interrupt is not None:  # no code of the user's is called any more
            self.selection_failed(None)
        elif job.in_place is not None:
            terms = (records, job.objective, job.tie_tolerance)
            answer = self._ask(job.in_place.choose, terms)
            if isinstance(answer, Raised):
                self.selection_failed(answer.error)
            else:
                self.chosen(answer)
        return self.choice is not None

    @property
    def selected(self) -> int | None:
        """The index of the chosen candidate, None if there is none."""
        return None if self.choice is None else self.choice.index

    def case(self) -> Case:
        """What a selector that asks is given; money for a judge is set aside."""
        asks, entrants = self.job.asks, sum(record.eligible for record in self.candidates())
        estimate = exact(getattr(asks, "estimate", _NO_USAGE))
        self._purse = purse = Purse(self.book, estimate, max(0, entrants - 1))
        return Case(
            request=private_copy(self.request),
            candidates=self.candidates(),
            objective=self.job.objective,
            tolerance=self.job.tie_tolerance,
            seed=self.seed,
            afford=purse.afford,
            spend=purse.spend,
        )

    def chosen(self, index: int | None) -> None:
        """The selector has named one, or (None) declined."""
        self._settle_judge()
        reason = self.reason(0)
        self.choice = (
            NOBODY if self._is_to_fail() else chosen(self.job, self.candidates(), reason, index)
        )

    def selection_failed(self, error: BaseException | None) -> None:
        """The selector has raised, or (None) was cut."""
        self._settle_judge()
        reason = self.reason(0)
        self.choice = (
            Choice(error=error)
            if self._is_to_fail()
            else failed(self.job, self.candidates(), reason, error)
        )

    def _settle_judge(self) -> None:
        if self._purse is not None:
            self._purse.settle()

    def _is_to_fail(self) -> bool:
        return self.job.on_early_stop == "fail" and self.reason(0) in CUT_SHORT

    def attribution(self, charged: Amounts) -> Attribution:
        """Who was charged what, when the candidate that started this run has ended.

        Args:
            charged: what that candidate was charged for it.
        """
        rest = "choosing" if self.closed else "still at work"
        return of_run(self.run_id, charged, self.candidates(), rest)

    def close(self, now: float, selected: int | None) -> RunFinished:
        """Skip what never started, freeze the book and make the terminal event."""
        assert not self.flying, f"in flight: {sorted(self.flying)}"
        self.admitting = False
        reason = self.reason(selected)
        finished = RunFinished(
            self.sequence,
            self.run_id,
            now,
            reason,
            reason in CUT_SHORT,
            selected,
            Counter(candidate.status for candidate in self.candidates()),
            tuple(c.index for c in self.candidates() if c.detached),
            Usage.of(self.book.settled),
        )
        self.book.freeze()
        self.closed = True
        self.sequence += 1
        self._told.append(finished)
        self.flush()
        return finished

    def snapshot(self, now: float) -> Snapshot:
        """The run at this moment."""
        ended = self.candidates()
        statuses = Counter(candidate.status for candidate in ended)
        statuses.update(attempt.status for attempt in self.flying.values())
        pending = self.n - statuses.total()
        if pending:
            statuses[Status.PENDING] = pending
        # Selectors with code of the user's are not asked for what is best so far.
        best = first_of(ended, self.job.objective, self.job.tie_tolerance)
        return Snapshot(
            run_id=self.run_id,
            time=now,
            elapsed=now - self.began,
            deadline=None if self.deadline == float("inf") else self.deadline,
            statuses=dict(statuses),
            ended=ended,
            best=None if best is None else best.index,
            usage=self.book.report(),
            stop_reason=self.stop_reason,
            sequence=self.sequence,
        )
