"""One candidate in flight: everything that is known of it until its record is made."""

from __future__ import annotations

from typing import Any, Protocol

from hortator.protocols.attribution import Attribution
from hortator.protocols.candidate import Effect, EffectKind, EffectState, Generated, Status
from hortator.protocols.lease import Lease
from hortator.protocols.ledger import Book
from hortator.protocols.scoring import Score
from hortator.protocols.usage import Amounts, Usage

_NO_USAGE = Usage()


class Declared:
    """A side effect that a callback declared; its state is changed in place."""

    name: str

    __slots__ = ("kind", "name", "state")

    def __init__(self, name: str, kind: EffectKind) -> None:
        self.name = name
        self.kind: EffectKind = kind
        self.state: EffectState = "not_started"

    def record(self) -> Effect:
        """What became of it, as it stands."""
        return Effect(self.name, self.kind, self.state)


class NestedRun(Protocol):
    """A run that a candidate has started, as that candidate's own end sees it."""

    def abandon(self, now: float) -> None:
        """Whoever started it has ended: stop it, if it goes on."""
        ...

    @property
    def book(self) -> Book:
        """Its leases."""
        ...

    def attribution(self, charged: Amounts) -> Attribution:
        """Who was charged what, of what the candidate was charged for it."""
        ...


class Attempt:
    """A candidate from the grant of its lease to its end. Changed by its run and its own task.

    Attributes:
        index: its place in the run.
        status: where it stands.
        request: its own copy.
        lease: what it may spend; `book` is where that is settled.
        started: seconds on Trio's clock.
        limit: when its own timeout ends, or when it was dropped; None without either.
        generator_ran: whether the generator's first line ran; `scorer_ran` likewise.
        suspended: whether a callback of it has ever let the loop go.
        steps: how often its callback has been resumed; what is not stepped can't unwind.
        denied: a top-up of its lease was refused.
        dropped: a rule has told it alone to stop, at `limit`.
        coroutine: the callback that is being driven, to tell where it is stuck.
        ctx: what its callbacks are handed.
        space: its own copy of the context that `start()` was called in.
        ended: its record is made; its context refuses from now on.
        detached: the run gave up on it; it ends at the runtime.
        over: it has really ended, detached or not.
        group: those that share its scoring, if the job scores duplicates once.
        nested: runs that it has started, None if there was none.
    """

    index: int
    request: Any
    lease: Lease
    book: Book
    started: float
    limit: float | None

    # What most candidates never change stands on the class: making one costs half as much.
    status: Status = Status.GENERATING
    output: Any = None
    score: Score | None = None
    error: BaseException | None = None
    generator_ran: bool = False
    scorer_ran: bool = False
    suspended: bool = False
    denied: bool = False
    dropped: bool = False
    ended: bool = False
    detached: bool = False
    over: bool = False
    steps: int = 0
    published: int = 0
    published_output: Any = None
    published_score: Score | None = None
    effects: list[Declared] | None = None
    coroutine: Any = None
    ctx: Any = None
    space: Any = None
    group: Any = None
    nested: list[NestedRun] | None = None

    def __init__(
        self,
        index: int,
        request: Any,
        lease: Lease,
        book: Book,
        started: float,
        limit: float | None,
    ) -> None:
        self.index = index
        self.request = request
        self.lease = lease
        self.book = book
        self.started = started
        self.limit = limit

    def shown(self) -> Generated[Any]:
        """What a scorer sees of it."""
        spent = self.lease.generation
        return Generated(self.index, self.output, _NO_USAGE if spent is None else Usage.of(spent))

    def record_cost(self, answer: object) -> None:
        """What an unusable score cost is spent all the same: record it, if the answer has it."""
        usage = getattr(answer, "usage", None)
        if isinstance(usage, Usage):
            self.book.record(self.lease, "scoring", usage)
