"""The runner actor: one run from its start to its result.

How a run ends
--------------

Whatever ends it (all candidates have ended, a rule is met, a stop, the deadline, a cancel from
any door) the same steps follow, in this order:

1. The stop is taken in place, by whoever causes it: `RunState.stop` admits nobody any more and
   `Crew.on_stop` fixes the grace and cancels what is in flight. Nothing waits in a queue.
2. *Work share* (80 % of the grace): what is in flight unwinds. Cooperative work takes no time
   for it. Each end is recorded by the candidate's own seat.
3. What has not ended by then, though it has been stepped since its cancel, is detached: its lease
   moves to the runtime's book, its record stays at the phase it is stuck in.
4. What never started is skipped, the rules select, the book is frozen, the terminal event made.
   A selector with a callback that may take long has been asked before, if nothing had stopped the
   run by then: only what comes after it is grace. If a stop comes first, or meanwhile, it may go
   on until the first half of the delivery share is over; then the built-in order decides.
5. *Delivery share* (the rest): observers get what they have not got yet; then they are cut.
6. The result is set, and who waits for it wakes up.

Each wait of the runner is a shield with a limit of its own: a cancel from around the runtime
reaches it as a stop, and neither stuck work nor a hung observer can hold a run up for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import trio

from hortator.actors.crew import Seat
from hortator.actors.observer import AsyncObserver, Subscription
from hortator.actors.outside import MOST_PASSES, Caller, last_passes
from hortator.protocols.attempt import Attempt
from hortator.protocols.candidate import Status
from hortator.protocols.choosing import NOBODY
from hortator.protocols.deadlines import WORK_SHARE, Window
from hortator.protocols.errors import ObserverFailed
from hortator.protocols.lease import Lease
from hortator.protocols.result import RunResult, Telemetry
from hortator.protocols.stopping import CUT_SHORT


class Run(Caller):
    """A crew with its observers, and the result that it comes to.

    Attributes:
        subscriptions: of all observers, the run's own and the runtime's.
        own_observers: async observers that live as long as the run.
        strict: whether an observer's failure fails the run.
        finished: set when there is a result or an error.
        parent: the run whose candidate started this one.
        nested: whether it draws on the lease of the candidate that started it.
        adopted: whether none of its parent's scopes is around whoever started it: a thread.
        aside: the lease that was set aside for it, if no candidate has started it.
        passed_on: the subscriptions that nested runs tell, too.
        result: the result; set also when there is a failure to raise.
        failure: what `run()` and `result()` raise instead of returning the result.
    """

    subscriptions: list[Subscription]
    own_observers: Sequence[AsyncObserver]
    parent: Run | None
    strict: bool
    window: Window
    finished: trio.Event
    nested: bool
    adopted: bool
    aside: Lease | None = None
    passed_on: tuple[Subscription, ...]

    def prepare(
        self,
        subscriptions: Sequence[Subscription],
        own_observers: Sequence[AsyncObserver],
        *,
        strict: bool,
        window: Window,
    ) -> None:
        """Take the observers over, before anything runs."""
        self.subscriptions, self.own_observers = list(subscriptions), own_observers
        self.strict, self.window = strict, window
        self.finished = trio.Event()
        self.result: RunResult[Any] | None = None
        self.failure: BaseException | None = None
        self.state.on_drop = self._on_drop
        for subscription in subscriptions:
            subscription.on_failure = self._observer_failed
            self.state.subscribe(subscription.deliver)

    @property
    def has_work(self) -> bool:
        """Whether somebody is in flight, or may still begin."""
        state = self.state
        waits = bool(state.flying) or bool(state.queued)
        return waits or (state.admitting and state.next_index < state.n)

    def _on_drop(self, attempt: Attempt) -> None:
        """A rule has dropped a candidate: cancel it alone, limit the clean-up that it is at."""
        for seat in self.seats:
            if seat.attempt is attempt and seat.scope is not None:
                seat.scope.cancel(f"{self.state.run_id}: candidate {attempt.index} was dropped")
        self.cleanups.move(attempt)
        self.wake()  # it has to be given up on, should it not end

    def extend(self, seconds: float) -> bool:
        """Move the deadline by so many seconds; see `RunHandle.extend`."""
        state, window = self.state, self.window.extended(seconds)
        calls = self.call is not None and not self.call.over
        if state.stopping or not (self.has_work or calls) or window.deadline <= state.deadline:
            return False
        # Whoever ends from then on is late, whether the runner knows already or not.
        if self.clock.current_time() >= state.deadline:
            return False
        self.window, state.deadline = window, window.deadline
        if self._field is not None:  # else it takes the deadline when it is opened
            self._field.cancel_scope.deadline = window.deadline
        self.limit_call(self.clock.current_time())
        self.follow_deadline()
        self.cleanups.move()
        self.wake()
        return True

    def _observer_failed(self, error: BaseException) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self.state.interrupt = self.state.interrupt or error
            self.state.stop("cancelled", self.clock.current_time())
        elif self.strict:
            self.state.stop("observer_failed", self.clock.current_time())


@trio.lowlevel.enable_ki_protection
async def runner(run: Run) -> None:
    """Play a run. It can't be cancelled: it is stopped, and then takes no longer than the grace."""
    state = run.state
    try:
        if state.job.build is not None:
            await run.build(state.job.build)
        await _work(run)
        if run.grace is None and state.job.asks is not None:
            await run.select()
        if run.grace is None:
            run.begin_grace(trio.current_time())
        await _unwind(run)
        if state.choice is None:
            await run.select()
        _leave_children(run)
        state.close(trio.current_time(), state.selected)
        await _deliver(run)
    except Exception as bug:  # noqa: BLE001
        # A bug of ours must not raise into the work nursery; whoever waits for the run gets it.
        run.crashed(bug)
    await _dismiss(run)
    run.result = _result(run)
    run.failure = _failure(run)
    run.finished.set()


def _leave_children(run: Run) -> None:
    """Stop the runs that outlive whoever started them; what they hold is the runtime's then."""
    for child in tuple(run.children):
        child.state.stop("cancelled", trio.current_time())
        if isinstance(child, Run) and child.aside is not None:
            book = run.state.book
            if book.open.get(child.aside.number) is child.aside:
                book.move(child.aside, run.account.book)


async def _work(run: Run) -> None:
    """Wait until all work has ended, or the run has been stopped; at the deadline, stop it."""
    state = run.state
    if trio.current_time() >= state.deadline:
        state.stop(run.deadline_reason, trio.current_time())
    run.services.spawn(run.hold_field)
    while not state.stopping and run.has_work:
        until = min(state.deadline, _next_overdue(run))
        with trio.CancelScope(shield=True, deadline=until):
            await run.heard()
        now = trio.current_time()
        if now >= state.deadline:
            state.stop(run.deadline_reason, now)
        elif state.limited:
            await _give_up_on_overdue(run)
            run.gather()


def _next_overdue(run: Run) -> float:
    """When the next candidate will have outlived its own limit and the work share of a grace.

    One that waits to be scored has nothing to unwind: it is cut at its timeout.
    """
    state = run.state
    if not state.limited:
        return math.inf
    share = WORK_SHARE * run.grace_seconds
    calls = [seat for seat in run.seats if seat.batch is not None]
    called = {attempt.index for seat in calls for attempt in seat.playing}
    due = [
        attempt.limit + (0.0 if attempt.status is Status.GENERATED else share)
        for attempt in state.flying.values()
        if attempt.limit is not None and attempt.index not in called
    ]
    due += [seat.limit + share for seat in calls]
    # Of whoever begins meanwhile, before the runner looks again; who is dropped wakes it.
    due.append(run.gather_at)
    if state.job.candidate_timeout is not None:
        due.append(trio.current_time() + state.job.candidate_timeout + share)
    return min(due)


async def _give_up_on_overdue(run: Run) -> None:
    """Detach candidates that have outlived their own limit and a work share."""
    state = run.state

    def overdue(seat: Seat) -> bool:
        return trio.current_time() >= seat.limit + WORK_SHARE * run.grace_seconds

    run.cut_waiting(trio.current_time())
    if any(overdue(seat) for seat in run.seats):
        await _last_passes(run, overdue)
    for seat in [seat for seat in run.seats if overdue(seat)]:
        run.give_up_on(seat, trio.current_time())
    state.flush()
    pending = state.admitting and state.next_index < state.n
    if run.lost_slots >= state.job.max_concurrency and pending:
        # Nobody can generate any more; those that are being scored end first.
        state.stop("slots_lost", trio.current_time(), in_flight=not state.flying)


async def _unwind(run: Run) -> None:
    """Let what was cancelled end, until the work share is over; detach the rest."""
    grace, state = run.grace, run.state
    assert grace is not None
    if not state.flying:
        for child in tuple(run.children):  # whoever has started them has ended
            child.state.stop("cancelled", trio.current_time())
    # Most often there is nothing left but for tasks to return, which takes no time.
    await _passes_while(lambda: not state.flying and _leaving(run))
    if state.flying or run.below or _leaving(run):
        with trio.move_on_at(grace.work_until, shield=True):
            while state.flying or run.below or _leaving(run):
                await run.heard()
    await _last_passes(run, lambda seat: True)
    now = trio.current_time()
    for seat in list(run.seats):
        if seat.playing:
            run.give_up_on(seat, now)
    # Also if the loop was blocked over the whole grace: what is told to stop takes no time.
    await _passes_while(lambda: bool(run.below) or _leaving(run))


async def _last_passes(run: Run, due: Callable[[Seat], bool]) -> None:
    """Give what these seats play a last chance to unwind."""

    def steps_left() -> int | None:
        left = [seat for seat in run.seats if seat.playing and due(seat)]
        return sum(seat.steps for seat in left) if left else None

    await last_passes(steps_left)


def _leaving(run: Run) -> bool:
    """Whether tasks of the run are about to end by themselves."""
    stuck = any(seat.stuck for seat in run.seats)
    return run.field_open and not stuck


async def _deliver(run: Run) -> None:
    """Wait until every observer has got everything, or the grace is over."""
    grace, now = run.grace, trio.current_time()
    assert grace is not None
    until = grace.until
    if now > until:
        # The loop was blocked over the whole grace. Observers did not cause that: they get the
        # share that was meant for them.
        until = now + (grace.until - grace.work_until)
    if any(subscription.pending for subscription in run.subscriptions):
        with trio.move_on_at(until, shield=True):
            while any(subscription.pending for subscription in run.subscriptions):
                await run.heard()
    await _passes_while(lambda: any(subscription.pending for subscription in run.subscriptions))


async def _passes_while(condition: Callable[[], bool]) -> None:
    """Let the scheduler go round while something is expected that takes no time."""
    for _ in range(MOST_PASSES):
        if not condition():
            return
        await trio.lowlevel.cancel_shielded_checkpoint()


async def _dismiss(run: Run) -> None:
    """Cut what has not been delivered, and let the run's own observers go.

    One whose call swallows its cancel is detached.
    """
    for subscription in run.subscriptions:
        subscription.close()
    for observer in run.own_observers:
        observer.close()
    await _passes_while(
        lambda: (
            any(subscription.calling for subscription in run.subscriptions)
            or not all(observer.finished for observer in run.own_observers)
        )
    )
    for subscription in run.subscriptions:
        if subscription.calling:
            run.services.detach_observer(run, subscription, trio.current_time())


def _failure(run: Run) -> BaseException | None:
    if run.state.interrupt is not None:
        return run.state.interrupt
    failures = [failure for s in run.subscriptions for failure in s.failures]
    return ObserverFailed(run.result, failures) if run.strict and failures else None


def _result(run: Run) -> RunResult[Any]:
    state = run.state
    choice = state.choice or NOBODY
    selected = choice.index
    reason = state.reason(selected)
    subscriptions = run.subscriptions
    records = state.candidates()
    return RunResult(
        selected=None if selected is None else records[selected],
        candidates=records,
        stop_reason=reason,
        partial=reason in CUT_SHORT,
        selected_by=choice.by,
        usage=state.book.report(),
        telemetry=Telemetry(
            events=state.sequence,
            delivered=sum(s.delivered for s in subscriptions),
            observer_errors=sum(len(s.failures) for s in subscriptions),
            dropped=sum(s.dropped for s in subscriptions) + run.unheard,
            cut=sum(s.cut for s in subscriptions),
            refused=run.refused,
        ),
        seed=state.seed,
        run_id=state.run_id,
        elapsed=trio.current_time() - state.began,
        requested_n=state.job.n,
        top=tuple(records[index] for index in choice.top),
        selection_error=choice.error,
    )
