"""The workplace: the nursery that all work lives in, and what outlives single runs.

The work nursery belongs to the runtime and not to the run. That is what makes a deadline hard:
a run can return while an uncooperative attempt has not yet died. No task here ever raises into
the nursery: seats, runners, observers and the ledger are shielded from the scopes around the
runtime; a cancel of those arrives as a stop of every run, brought by the sentinel.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from hortator.actors.callbacks import Failed
from hortator.actors.crew import Crew, Seat
from hortator.actors.detached import DetachedWork, phase_of
from hortator.actors.jobcall import JobCall
from hortator.actors.ledger import SettleLate, ledger, settle_late
from hortator.actors.mailbox import open_mailbox
from hortator.actors.observer import AsyncObserver, Observer, Subscription, SyncObserver, observe
from hortator.actors.runner import Run, runner
from hortator.actors.threads import Threads
from hortator.protocols.account import Account
from hortator.protocols.attempt import Attempt
from hortator.protocols.events import LateEnd
from hortator.protocols.lease import Settled
from hortator.protocols.usage import Usage

logger: logging.Logger = logging.getLogger("hortator")


class Workplace:
    """Tasks, threads and books of one runtime.

    Attributes:
        threads: the worker threads of sync callbacks.
        account: the root of all budgets, with what all runs came to.
        runs: those that have no result yet.
        work: what outlived its run, ended or not.
        observers: of all runs.
        closing: the runtime is being left.
    """

    threads: Threads
    account: Account
    closing: bool

    def __init__(
        self,
        nursery: trio.Nursery,
        account: Account,
        *,
        grace: float,
        threads: int,
        exit_grace: float,
    ) -> None:
        self.threads = Threads(threads)
        self.account = account
        self.runs: set[Run] = set()
        self.work: dict[Attempt | Subscription | JobCall, DetachedWork] = {}
        self.observers: list[SyncObserver | AsyncObserver] = []
        self.closing = False
        self._nursery, self._grace, self._exit_grace = nursery, grace, exit_grace
        self._changed: trio.Event | None = None
        self._tasks = 0
        self._sentinel: trio.lowlevel.Task | None = None
        self._dismissed = False
        self._unraised: list[BaseException] = []
        self._shield = trio.CancelScope(shield=True)
        self._ledger, mailbox = open_mailbox(SettleLate)
        self._late_feeds: list[Subscription] = []
        self._late_events = 0
        self.spawn(ledger, mailbox, self._shield, self._settled_late)
        self.spawn(self._watch_for_cancel)

    # -- what runs are lent ----------------------------------------------------------------------

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a task in the work nursery. It must not raise."""
        self._tasks += 1
        self._nursery.start_soon(self._counted, task, *args)

    def open_observer(
        self, callback: Observer, context: contextvars.Context
    ) -> SyncObserver | AsyncObserver:
        """The actor of an observer, started if it needs a task."""
        observer = observe(callback, context)
        if isinstance(observer, AsyncObserver):
            self.spawn(observer.work)
        return observer

    def watch_all(self, observers: Sequence[Observer]) -> None:
        """Have these observers told of every run, and of the late ends of detached work."""
        context = contextvars.copy_context()
        self.observers = [self.open_observer(each, context.copy()) for each in observers]
        self._late_feeds = [Subscription(each, self.tell_changed) for each in self.observers]
        for feed in self._late_feeds:
            feed.on_failure = self._late_observer_failed

    def _late_observer_failed(self, error: BaseException) -> None:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            self._unraised.append(error)  # it belongs to no run, so all of them are stopped
            self.stop_runs()

    def begin(self, run: Run) -> None:
        """Have a run played."""
        job = run.state.job
        if job.fitted < job.n:
            logger.info(
                "%s: the budget fits %d of %d candidates; the others are left out",
                run.state.run_id,
                job.fitted,
                job.n,
            )
        self.runs.add(run)
        run.detach_call = self.detach_call
        self.spawn(self._play, run)

    def detach(self, crew: Crew, seat: Seat, attempt: Attempt, now: float) -> None:
        """Take over work that a run gives up on: its lease, and its name."""
        frame = None if seat.thread is None else seat.thread.frame
        self.work[attempt] = DetachedWork(
            crew.state.run_id,
            attempt,
            phase_of(attempt),
            now,
            frame,
            attempt.coroutine,
            crew.account,
        )
        crew.state.detach(attempt, now, crew.account.book)

    def detach_observer(self, crew: Crew, subscription: Subscription, now: float) -> None:
        """Take over an observer whose call does not end."""
        observer = subscription.observer
        assert isinstance(observer, AsyncObserver)
        self.work[subscription] = work = DetachedWork(
            crew.state.run_id, None, "observing", now, None, observer.coroutine
        )
        observer.on_call_over = lambda: work.end(None, None)

    def detach_call(self, crew: Crew, call: JobCall, now: float) -> None:
        """Take over a selector or builder that does not end."""
        self.work[call] = work = DetachedWork(
            crew.state.run_id, None, call.phase, now, call.frame(), call.coroutine
        )

        def ended() -> None:
            error = call.failure or call.interrupt or call.bug
            work.end(None if error is None else Failed(error), None)
            self._tell_late(work.run_id, None, LateEnd, work.record())
            self.tell_changed()

        call.on_over = ended

    def tell_late(
        self, crew: Crew, attempt: Attempt, event: Callable[..., Any], rest: tuple[Any, ...]
    ) -> None:
        """Tell the runtime's observers of what detached work does: no run listens to it."""
        self._tell_late(crew.state.run_id, attempt.index, event, *rest)

    def _tell_late(
        self, run_id: str, index: int | None, event: Callable[..., Any], *rest: Any
    ) -> None:
        number = self._late_events
        self._late_events = number + 1
        now = trio.current_time()
        for feed in self._late_feeds:
            feed.deliver([event(number, run_id, index, now, *rest)])

    def ended_late(self, attempt: Attempt, value: Any) -> None:
        """Detached work has ended: have its lease settled."""
        attempt.over = True
        if inspect.iscoroutine(value):
            value.close()  # a sync callback made it, and nobody will await it any more
        message = SettleLate(attempt, value)
        try:
            self._ledger.send_nowait(message)
        except trio.ClosedResourceError:  # a thread that ends after the runtime was left
            settle_late(message, self._settled_late)

    def raised(self, failure: BaseException) -> None:
        """Somebody was told of it: it need not be raised when the runtime is left."""
        self._unraised = [each for each in self._unraised if each is not failure]

    def alive(self) -> list[DetachedWork]:
        """Detached work that has not ended."""
        return [work for work in self.work.values() if not work.ended]

    async def changed(self) -> None:
        """Wait until a task of the runtime or a piece of detached work has ended."""
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def tell_changed(self) -> None:
        """Wake up whoever waits for a change."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def _settled_late(self, attempt: Attempt, settled: Settled, value: Any) -> None:
        work = self.work[attempt]
        assert work.account is not None
        work.account.settled_late(settled.charged)
        work.end(value, Usage.of(settled.charged))
        self._tell_late(work.run_id, attempt.index, LateEnd, work.record())
        self.tell_changed()

    # -- tasks -----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _counted(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await task(*args)
        finally:
            self._tasks -= 1
            self.tell_changed()

    async def _play(self, run: Run) -> None:
        try:
            await runner(run)
        finally:
            self.runs.discard(run)
            run.account.end(run.state.book, run.aside, nested=run.nested)
            if run.state.interrupt is not None:
                self._unraised.append(run.state.interrupt)
            if run.parent is not None:
                run.parent.children.discard(run)
                run.parent.below.discard(run)
                run.parent.wake()

    def unraised(self) -> BaseException | None:
        """What ended a run from inside a callback, and no `result()` has raised."""
        return self._unraised[0] if self._unraised else None

    async def _watch_for_cancel(self) -> None:
        """The sentinel: sleep until a scope around the runtime is cancelled, then stop the runs.

        The cancel is taken as a wake-up instead of an exception, so that nothing is raised into
        the nursery, where it would come out as a group instead of the body's own exception.
        """
        task = trio.lowlevel.current_task()

        def cancelled(_: object) -> trio.lowlevel.Abort:
            self._sentinel = None
            trio.lowlevel.reschedule(task)
            return trio.lowlevel.Abort.FAILED

        if not self._dismissed:
            self._sentinel = task
            await trio.lowlevel.wait_task_rescheduled(cancelled)
            self.stop_runs()

    # -- leaving ---------------------------------------------------------------------------------

    def stop_runs(self) -> None:
        """Stop every run as `handle.cancel` would."""
        now = trio.current_time()
        for run in tuple(self.runs):
            run.state.stop("cancelled", now)

    async def leave(self, *, stop: bool) -> None:
        """Wait for the runs, or stop them; then for detached work, tasks without limit.

        It waits under shields of limited length, one after another: Trio has no way to leave a
        task behind. A cancel that arrives meanwhile reaches the runs through the sentinel.
        May be called again after a KeyboardInterrupt out of it.
        """
        self.closing = True
        if stop:
            self.stop_runs()
        while self.runs:
            await self._wait(1.0)
        await self._wait_for_threads()
        await self._wait_for_tasks()
        await self._close()

    async def _wait(self, seconds: float) -> None:
        """Wait for a change, for so many seconds at the most, whatever is cancelled."""
        deadline = trio.current_time() + max(0.0, seconds)
        with trio.CancelScope(shield=True, deadline=deadline):
            await self.changed()

    async def _wait_for_threads(self) -> None:
        until = trio.current_time() + self._exit_grace
        while any(work.is_thread for work in self.alive()) and trio.current_time() < until:
            await self._wait(until - trio.current_time())
        left = [work.tale() for work in self.alive() if work.is_thread]
        if left:
            logger.warning(
                "left %d detached thread(s) running after %g s: %s",
                len(left),
                self._exit_grace,
                "; ".join(left),
            )

    async def _wait_for_tasks(self) -> None:
        await self._wait_and_say(
            lambda: [work.tale() for work in self.alive() if not work.is_thread],
            "task(s) that swallow their cancellation",
        )

    async def _wait_and_say(self, stuck: Callable[[], list[str]], what: str) -> None:
        """Wait without limit, and say for whom after the grace and at doubling intervals."""
        began = trio.current_time()
        pause = max(self._grace, 0.01)
        warn_at = began + pause
        while left := stuck():
            now = trio.current_time()
            if now >= warn_at:
                logger.warning(
                    "leaving the runtime waits since %.2f s for %d %s: %s",
                    now - began,
                    len(left),
                    what,
                    "; ".join(left),
                )
                pause *= 2
                warn_at = now + pause
            await self._wait(warn_at - now)

    async def _close(self) -> None:
        """Let the services end: observers get one more grace for what is left."""
        self._dismissed = True
        if self._sentinel is not None:
            sentinel, self._sentinel = self._sentinel, None
            trio.lowlevel.reschedule(sentinel)
        self._ledger.close()
        limit = trio.current_time() + self._grace
        self._shield.deadline = limit
        for observer in self.observers:
            observer.close()
            observer.limit(limit)
        what = "observer(s) that swallow their cancellation"
        await self._wait_and_say(self._stuck_services, what)
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _stuck_services(self) -> list[str]:
        now = trio.current_time()
        return [
            DetachedWork("the runtime", None, "observing", now, None, each.coroutine).tale()
            for each in self.observers
            if isinstance(each, AsyncObserver) and not each.finished
        ] or (["a task"] if self._tasks else [])
