"""Sync callbacks in worker threads, under one limiter for the whole runtime.

A thread can't be cancelled. So a call is waited for under a shield until the run gives up on it
(`ThreadCall.abandon`); then the thread goes on alone, keeps its token until it really ends, and
what it ends with goes to `on_late`. A call that is still queued for a token when its run stops
never starts: its first line runs only if nobody has told it to stop by then.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import trio

from hortator.actors.callbacks import Failed, call_now
from hortator.actors.frames import frame_of_thread
from hortator.protocols.errors import NoThreadLeft, RunStopping

GIVEN_UP = object()
"""Instead of a value: nobody waits for the thread any more, and it will report by itself."""


def _nothing() -> None:
    """Nobody wants to know."""


class Threads:
    """The worker threads of one runtime.

    Attributes:
        limiter: at most so many at once.
        abandoned: calls that their run gave up on and that have not ended.
        queued: scopes of calls that wait for a thread.
    """

    limiter: trio.CapacityLimiter

    def __init__(self, total: int) -> None:
        self.limiter = trio.CapacityLimiter(total)
        self.abandoned: dict[ThreadCall, str] = {}
        self.queued: set[trio.CancelScope] = set()

    @contextmanager
    def lent(self) -> Generator[None]:
        """One thread more, while one of them does nothing but wait for work that may need one."""
        self.limiter.total_tokens += 1
        try:
            yield
        finally:
            self.limiter.total_tokens -= 1

    def none_left(self) -> bool:
        """Whether every thread is held by detached work."""
        return len(self.abandoned) >= self.limiter.total_tokens

    def refusal(self) -> Failed:
        """What a call comes to that can't get a thread."""
        held = ", ".join(sorted(self.abandoned.values()))
        return Failed(
            NoThreadLeft(
                f"all {self.limiter.total_tokens} worker threads are held by detached work"
                f" ({held}); use a process for work that can hang, or open_runtime(threads=...)"
            )
        )


class ThreadCall:
    """One sync callback on its way through a worker thread; also what holds its token.

    Attributes:
        given_up: nobody waits for it any more.
    """

    given_up: bool

    def __init__(self, threads: Threads, name: str, on_late: Callable[[Any], None]) -> None:
        self._threads, self._name, self._on_late = threads, name, on_late
        self._scope = trio.CancelScope(shield=True)
        self._ident: int | None = None
        self._value: Any = None
        self.given_up = self._ended = False

    def abandon(self) -> None:
        """Stop waiting for the thread; called by the run when the work share is over."""
        if self._ended:
            return  # in this very pass: who waits for it is about to get its value
        self.given_up = True
        self._threads.abandoned[self] = self._name
        self._scope.cancel("its run gave up on this thread")
        if self._threads.none_left():
            for queue in self._threads.queued:
                queue.cancel("no thread is left")

    def frame(self) -> FrameType | None:
        """Where the thread is at this moment, if it is running."""
        return None if self._ident is None else frame_of_thread(self._ident)

    async def run(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context,
        may_start: Callable[[], bool],
        on_queue: Callable[[], None] = _nothing,
        on_served: Callable[[], None] = _nothing,
    ) -> Any:
        """Run it and wait for it. Cancelling cuts the wait for a token, not the thread.

        Args:
            function: the callback.
            args: its arguments.
            context: where it runs.
            may_start: asked in the thread, right before the callback's first line.
            on_queue: called if it has to wait for a thread; `on_served` when that wait is over.

        Returns:
            The value, or `Failed`, or `Interrupt`, or `GIVEN_UP`.

        Raises:
            trio.Cancelled: cancelled while it waited for a token; it never starts.
        """
        threads = self._threads
        if threads.none_left():
            return threads.refusal()
        with trio.CancelScope() as queue:
            threads.queued.add(queue)
            if not threads.limiter.available_tokens:
                on_queue()
            try:
                await threads.limiter.acquire_on_behalf_of(self)
            finally:
                threads.queued.discard(queue)
                on_served()
        if queue.cancelled_caught:
            return threads.refusal()

        def in_thread() -> None:
            if not may_start():
                self._value = Failed(RunStopping("told to stop before its first line"))
                return
            self._ident = threading.get_ident()
            self._value = call_now(function, args, context)
            self._ident = None

        with self._scope:
            try:
                await trio.to_thread.run_sync(
                    in_thread,
                    abandon_on_cancel=True,
                    limiter=self,  # type: ignore[arg-type]  # trio takes "anything compatible"
                    thread_name=f"hortator {self._name}",
                )
            except RuntimeError as error:  # the system has no thread to give
                return Failed(error)
        return GIVEN_UP if self.given_up else self._value

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Trio asks for a token: we took it before, where waiting for it can be cancelled."""

    def release_on_behalf_of(self, borrower: object) -> None:
        """The thread has really ended: Trio says so on the loop, abandoned or not."""
        self._ended = True
        self._threads.limiter.release_on_behalf_of(self)
        if self.given_up:
            self._threads.abandoned.pop(self, None)
            self._on_late(self._value)
