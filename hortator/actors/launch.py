"""How a run is made: what it takes from the place where it is started.

Code that runs for a candidate starts *nested* runs. Those draw on the candidate's lease, end
within its deadline and half of its grace, and are told to the observers of the runs around them.
"""

from __future__ import annotations

import contextvars
import itertools
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio

from hortator.actors.batch import batch_scorer
from hortator.actors.candidate import candidate, play
from hortator.actors.context import current
from hortator.actors.observer import AsyncObserver, Observer, Subscription
from hortator.actors.runner import Run
from hortator.actors.scorer import scorer
from hortator.actors.workplace import Workplace
from hortator.protocols.account import Account
from hortator.protocols.attempt import Attempt
from hortator.protocols.batch import as_batch
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.deadlines import WORK_SHARE, Window, window
from hortator.protocols.errors import InvalidJob, RunEnded
from hortator.protocols.gathering import Gathering
from hortator.protocols.halving import prunes
from hortator.protocols.lease import Lease, Phase
from hortator.protocols.ledger import Book
from hortator.protocols.run import RunState
from hortator.protocols.usage import MOST, NOTHING

_run: contextvars.ContextVar[Run | None] = contextvars.ContextVar("hortator run", default=None)
_numbers = itertools.count(1)


@attrs.frozen
class Origin:
    """Where a run is started.

    Attributes:
        run: the one whose callback starts it, None outside of runs.
        attempt: the candidate that starts it, None outside of candidates.
    """

    run: Run | None = None
    attempt: Attempt | None = None


def origin() -> Origin:
    """Where this very code runs.

    Raises:
        RunEnded: it runs for a candidate that its run gave up on.
    """
    run, context = _run.get(), current.get()
    if run is None:
        return Origin()
    attempt = None if context is None else context.attempt
    if attempt is not None and attempt.detached and not attempt.over:
        raise RunEnded(
            f"candidate {attempt.index} of {run.state.run_id} was told to stop and is detached:"
            " it can't start a run"
        )
    if run.finished.is_set() or (attempt is not None and attempt.over):
        return Origin()  # a task that a candidate has left behind in a nursery of yours
    return Origin(run, attempt)


def launch(
    workplace: Workplace,
    job: BestOfN[Any, Any],
    request: Any,
    *,
    origin: Origin,
    account: Account | None,
    grace: float,
    seed: int | None,
    observers: Sequence[Observer],
    strict: bool,
) -> Run:
    """Start a run and return at once. The arguments have been checked.

    Raises:
        InvalidJob: an account was named for a nested run.
    """
    parent, attempt = origin.run, origin.attempt
    # A runtime of its own, opened within a candidate, has a budget of its own.
    near = parent if parent is not None and parent.services is workplace else None
    if near is None:
        attempt = None
    elif account is not None:
        raise InvalidJob(
            f"account={account.name!r} in a callback: a nested run draws on the lease of its"
            " candidate, so leave account= out"
        )
    most = math.inf if job.grace is None else job.grace

    def half_of_parent(at: float) -> float:
        """A nested run has always returned before the run around it gives up on it."""
        if parent is None:
            return math.inf
        if parent.grace is None:
            return WORK_SHARE * parent.grace_seconds / 2
        return max(0.0, parent.grace.work_until - at) / 2

    adopted = parent is not None and not parent.is_around(trio.lowlevel.current_task())
    span = _span(job, min(grace, most, half_of_parent(trio.current_time())), parent, attempt)

    def room(at: float) -> float:
        """The most that a grace which begins at `at` may be."""
        return min(most, run.window.room, half_of_parent(at))

    context = contextvars.copy_context()
    run = Run(workplace, context, _seated(job), scorer, batch_scorer, grace, room)
    context.run(_run.set, run)
    context.run(current.set, None)
    run.parent, run.adopted = parent, adopted
    run.account = account or (workplace if near is None else near).account
    if parent is not None:
        _have_stopped(run, parent, attempt)
    source = _source(job, near, attempt)
    run.nested = source is not None
    run.adopt(
        (Gathering if _is_together(job) else RunState)(
            job,
            request,
            run_id=_run_id(parent, attempt),
            seed=random.getrandbits(64) if seed is None else seed,
            began=trio.current_time(),
            deadline=span.deadline,
            pools=run.account.pools if source is None else (source.book.pool_of(source.lease),),
            on_stop=run.on_stop,
            on_idle=run.wake,
            ask=run.ask,
        )
    )
    _tie(run, source, attempt)
    _attach_observers(run, workplace, observers, strict, span)
    workplace.begin(run)
    return run


def _is_together(job: BestOfN[Any, Any]) -> bool:
    batch = as_batch(job.score)
    return batch is not None and batch.together


def _seated(job: BestOfN[Any, Any]) -> Callable[..., Awaitable[object]]:
    """How seats play: under a scope of each candidate's own, if one may be cut alone."""
    alone = job.candidate_timeout is not None or _is_together(job) or prunes(job.stop)
    return candidate if alone else play


def _have_stopped(run: Run, parent: Run, attempt: Attempt | None) -> None:
    """See to it that a nested run is stopped, and waited for, when its parent ends."""
    parent.below.add(run)
    if run.adopted or attempt is None:  # no scope of the parent's is around it
        parent.children.add(run)
        run.selects = attempt is None and parent.is_selecting


def _span(
    job: BestOfN[Any, Any], grace: float, parent: Run | None, attempt: Attempt | None
) -> Window:
    outer = trio.current_effective_deadline()
    # Not all of these are scopes around us: a thread has none, and a shield hides them.
    if parent is not None:
        outer = min(outer, parent.latest(attempt))
    return window(trio.current_time(), job.timeout, outer, grace)


def _run_id(parent: Run | None, attempt: Attempt | None) -> str:
    """Unique in the process; a nested run's begins with that of the run around it."""
    if parent is None:
        return f"run-{next(_numbers)}"
    if attempt is None:
        return f"{parent.state.run_id}/run-{next(_numbers)}"
    return f"{parent.state.run_id}/{attempt.index}.{len(attempt.nested or ()) + 1}"


@attrs.frozen
class _Source:
    """What a nested run draws on.

    Attributes:
        lease: its candidate's; or one that was set aside for it, if it is started by a selector,
            builder or batch scorer.
        book: where that is open.
        phase: of the work that the run is a part of.
    """

    lease: Lease
    book: Book
    phase: Phase


def _source(job: BestOfN[Any, Any], parent: Run | None, attempt: Attempt | None) -> _Source | None:
    """What a nested run draws on; None for a run that draws on an account."""
    if attempt is not None:
        phase: Phase = "scoring" if attempt.scorer_ran else "generating"
        return _Source(attempt.lease, attempt.book, phase)
    if parent is None:
        return None
    book = parent.state.book
    each = job.rates_under(book.rates.limited).combined
    needed = tuple(min(MOST, amount * job.fitted) for amount in each)
    lease = book.set_aside(needed) or book.set_aside(NOTHING)
    # Its run is over for whoever observes its end.
    return None if lease is None else _Source(lease, book, "generating")


def _tie(run: Run, source: _Source | None, attempt: Attempt | None) -> None:
    """Have the run counted where it draws from, from its first lease to its end."""
    if source is None:
        run.account.begin(run.state.book)
        return
    source.book.pool_of(source.lease).books.append((source.phase, run.state.book))
    if attempt is not None:
        attempt.nested = [*(attempt.nested or ()), run.state]
    else:
        run.aside = source.lease


def _attach_observers(
    run: Run, workplace: Workplace, observers: Sequence[Observer], strict: bool, span: Window
) -> None:
    """The runtime's observers, the run's own, and those of the runs around it."""
    # In the context of the call: what an observer starts is no part of the run that it observes.
    own = [workplace.open_observer(each, contextvars.copy_context()) for each in observers]
    mine = [Subscription(each, run.wake) for each in own]
    run.prepare(
        [*(Subscription(each, run.wake) for each in workplace.observers), *mine],
        [each for each in own if isinstance(each, AsyncObserver)],
        strict=strict,
        window=span,
    )
    # Told through the subscription of the run that they belong to: that one waits for them, and
    # answers for what they raise.
    inherited = () if run.parent is None else run.parent.passed_on
    run.passed_on = (*inherited, *mine)
    for subscription in inherited:
        run.state.subscribe(subscription.deliver)
