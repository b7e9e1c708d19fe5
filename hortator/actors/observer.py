"""The observer actor: one subscriber's delivery, one call at a time, in sequence order.

A sync observer is idle whenever it is told something, so it is called in place. An async one
has a task and a mailbox. What waits there is bounded by class: deltas (`ctx.emit`) are dropped
above `SOFT_LIMIT`, events of a candidate's life above `HARD_LIMIT`, the terminal event never.
Each drop is counted. At the end of a run's grace what is still undelivered of it is cut.
"""

from __future__ import annotations

import contextvars
import functools
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import attrs
import trio

from hortator.actors.callbacks import Failed, call_each, call_user
from hortator.actors.mailbox import open_mailbox
from hortator.protocols.errors import InvalidJob
from hortator.protocols.events import Emitted, Event
from hortator.protocols.signatures import check_callback, is_async

Observer: TypeAlias = Callable[[Event], Awaitable[None] | None]
"""An observer: sync and called on the loop, or async."""

SOFT_LIMIT = 1024
HARD_LIMIT = 65_536


class Subscription:
    """One run's events on their way to one observer, and how that went.

    Attributes:
        pending: events that it has not been called with yet.
        observer: whom they are told.
        deliver: hands over some events; never waits.
        closed: the run is over; whatever is still pending is dropped.
        cut: its call was cut, or it never got to the terminal event.
        failures: what its calls raised; `on_failure` is told of each.
        delivered: calls that returned.
        dropped: events that it was not called with.
    """

    observer: AsyncObserver | SyncObserver
    deliver: Callable[[Sequence[Event]], None]
    pending: int
    delivered: int
    dropped: int
    closed: bool
    cut: bool

    def __init__(self, observer: AsyncObserver | SyncObserver, settled: Callable[[], None]) -> None:
        self.observer = observer
        self._settled = settled
        self.deliver = functools.partial(observer.take, self)
        self.pending = self.delivered = self.dropped = 0
        self.failures: list[BaseException] = []
        self.closed = self.cut = False
        self.on_failure: Callable[[BaseException], None] = lambda _: None

    @property
    def calling(self) -> bool:
        """Whether the observer is in a call for this run."""
        return self.observer.calling is self

    def failed(self, failure: Failed) -> None:
        """Count a call that raised."""
        self.failures.append(failure.error)
        self.on_failure(failure.error)

    def done(self) -> None:
        """One event less is pending."""
        self.pending -= 1
        if not self.pending:
            self._settled()

    def close(self) -> None:
        """The run is over: no call for it starts any more, and one that is under way is cut."""
        if self.closed:
            return
        self.closed = True
        if self.pending:
            self.cut = True
            self.dropped += self.pending
            self.observer.cut(self)


class SyncObserver:
    """Calls a sync observer in place."""

    calling: Subscription | None = None

    def __init__(self, callback: Observer, context: contextvars.Context) -> None:
        self._callback, self._context = callback, context
        self._queue: deque[tuple[Subscription, Sequence[Event]]] = deque()
        self._busy = False

    def take(self, subscription: Subscription, events: Sequence[Event]) -> None:
        """Call it now; or, if it is in a call right now, right after that one."""
        if self._busy:
            self._queue.append((subscription, events))  # its own call caused these
            return
        self._busy = True
        while True:
            if not subscription.closed:
                failures = call_each(self._callback, events, self._context)
                subscription.delivered += len(events)
                if failures:
                    subscription.delivered -= len(failures)
                    for failure in failures:
                        subscription.failed(failure)
            if not self._queue:
                break
            subscription, events = self._queue.popleft()
        self._busy = False

    def cut(self, subscription: Subscription) -> None:
        """Nothing is ever pending."""

    def close(self) -> None:
        """Nothing to close."""

    def limit(self, deadline: float) -> None:
        """Nothing to limit: no call of it outlasts the telling."""


@attrs.frozen
class Delivery:
    """To an async observer: an event of a run."""

    subscription: Subscription
    event: Event


class AsyncObserver:
    """The mailbox of an async observer, and the task that empties it.

    Attributes:
        calling: whose event its call under way is about.
        shield: its calls go on while the runtime's scope is cancelled, until this limit, which
            is set when the run (or the runtime) that it belongs to is told to end.
        coroutine: the call under way, to tell where it is stuck.
        closed: nothing is taken any more.
        finished: its task has ended.
        steps: how often its calls have been resumed.
        on_call_over: called when a call ends that its run has given up on.
    """

    shield: trio.CancelScope
    closed: bool
    finished: bool
    steps: int
    suspended: bool

    def __init__(self, callback: Observer, context: contextvars.Context) -> None:
        self._callback, self._context = callback, context
        self._address, self._mailbox = open_mailbox(Delivery)
        self._waiting = 0
        self.calling: Subscription | None = None
        self._call_scope: trio.CancelScope | None = None
        self.shield = trio.CancelScope(shield=True)
        self.closed = self.finished = False
        self.steps = 0
        self.suspended = False
        self.coroutine: Any = None
        self.on_call_over: Callable[[], None] | None = None

    def take(self, subscription: Subscription, events: Sequence[Event]) -> None:
        """Leave events in the mailbox, but those above the limit of their class."""
        for event in events:
            limit = SOFT_LIMIT if isinstance(event, Emitted) else HARD_LIMIT
            if self.closed or self.finished or (self._waiting >= limit and not event.terminal):
                subscription.dropped += 1
                continue
            self._waiting += 1
            subscription.pending += 1
            self._address.send_nowait(Delivery(subscription, event))

    def cut(self, subscription: Subscription) -> None:
        """Cut the call under way, if it is for this run."""
        if self.calling is subscription and self._call_scope is not None:
            self._call_scope.cancel("the run is over")

    def close(self) -> None:
        """Let the task end when its mailbox is empty."""
        self.closed = True
        self._address.close()

    def limit(self, deadline: float) -> None:
        """Cut whatever it is doing at this time, in seconds on Trio's clock."""
        self.shield.deadline = deadline

    @trio.lowlevel.enable_ki_protection
    async def work(self) -> None:
        """Call the observer with one event after another until the address is closed."""
        try:
            with self._mailbox, self.shield:
                async for delivery in self._mailbox:
                    self._waiting -= 1
                    if not delivery.subscription.closed:
                        await self._call(delivery)
        finally:
            self.finished = True

    async def _call(self, delivery: Delivery) -> None:
        subscription = delivery.subscription
        self.calling = subscription
        with trio.CancelScope() as self._call_scope:
            value = await call_user(self._callback, (delivery.event,), self._context, self)
            if isinstance(value, Failed):
                subscription.failed(value)
            else:
                subscription.delivered += 1
        self.calling = self._call_scope = self.coroutine = None
        if self.on_call_over is not None:
            self.on_call_over()
            self.on_call_over = None
        subscription.done()


def observe(callback: Observer, context: contextvars.Context) -> SyncObserver | AsyncObserver:
    """The right kind of actor for an observer that `check_observers` let pass."""
    return (AsyncObserver if is_async(callback) else SyncObserver)(callback, context)


def check_observers(observers: object) -> None:
    """Refuse what can't observe, before any of them is opened.

    Raises:
        InvalidJob: it is no sequence, or one of them can't be called with one event.
    """
    if not isinstance(observers, (list, tuple)):
        raise InvalidJob(f"observers={observers!r}: write a list, observers=[observer]")
    for observer in observers:  # pyright: ignore[reportUnknownVariableType]
        check_callback("observer", observer, ("event",))  # pyright: ignore[reportUnknownArgumentType]


def in_thread(observer: Callable[[Event], None]) -> Observer:
    """Have a slow sync observer called in a worker thread instead of on the loop.

    A call that is cut at the end of a run's grace goes on alone in its thread, unheard; the next
    call, of a later run, waits for it, so that calls never overlap.

    >>> def slow(event): ...
    >>> job_observers = (in_thread(slow),)
    """
    check_callback("observer", observer, ("event",))
    if is_async(observer):
        raise InvalidJob("in_thread() takes a sync observer; pass an async one as it is")

    one_at_a_time = threading.Lock()

    def call(event: Event) -> None:
        with one_at_a_time:
            observer(event)

    async def observe_in_thread(event: Event) -> None:
        await trio.to_thread.run_sync(call, event, abandon_on_cancel=True)

    return observe_in_thread
