"""A callback of a job outside of any candidate: a selector or builder at work.

It has a task of its own in the work nursery, under a scope with its own limit. An async callback
is awaited there, call by call; a sync one runs in a worker thread, all its calls in one go, and
whether there is time for the next one is asked in between. The run waits for it, and gives it up
if it doesn't end: then it is detached like any other work.
"""

from __future__ import annotations

import contextvars
import inspect
import math
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal

import trio

from hortator.actors.callbacks import Failed, Interrupt, call_now, call_user
from hortator.actors.threads import ThreadCall, Threads
from hortator.protocols.asking import Asking, AskingFailed
from hortator.protocols.signatures import is_async

_NO_MORE = object()
"""From the thread: every call has been made, or there was no time for the next one."""


class JobCall:
    """One callback, called as often as its script asks for.

    Attributes:
        phase: what it does, for which run.
        limit: until when it may go on, in seconds on Trio's clock.
        over: it has ended; `on_over` was told.
        answered: its script came to its end, with `outcome`.
        failure: what the script failed of.
        interrupt: a KeyboardInterrupt or SystemExit out of it; it ends the run.
        bug: an error of ours.
        steps: how often an async callback has been resumed.
        thread: the sync callback that is waited for.
        task: its task, once that runs; none of the run's own scopes is around it.
        coroutine: the async callback that is being driven.
    """

    phase: Literal["selecting", "building"]
    run_id: str
    limit: float
    over: bool
    answered: bool
    steps: int
    suspended: bool

    def __init__(
        self,
        phase: Literal["selecting", "building"],
        function: Callable[..., Any],
        script: Asking,
        context: contextvars.Context,
        threads: Threads,
        run_id: str,
        on_over: Callable[[], None],
    ) -> None:
        self.phase, self.run_id = phase, run_id
        self._function, self._script, self._space = function, script, context.copy()
        self._asynchronous = is_async(function)
        self._threads, self._name = threads, f"{run_id} {phase}"
        self.on_over = on_over
        self._scope = trio.CancelScope(shield=True)
        self._clock = trio.lowlevel.current_clock()
        self.limit = math.inf
        self._told = False
        self.over = self.answered = self.suspended = False
        self.outcome: Any = None
        self.failure: BaseException | None = None
        self.interrupt: BaseException | None = None
        self.bug: Exception | None = None
        self.steps = 0
        self.thread: ThreadCall | None = None
        self.task: trio.lowlevel.Task | None = None
        self.coroutine: Any = None

    def limit_to(self, deadline: float) -> None:
        """Let it go on until then, in seconds on Trio's clock, and cut it."""
        self.limit = self._scope.deadline = deadline

    def cut(self, why: str) -> None:
        """Tell it to end now."""
        self._told = True
        self._scope.cancel(why)

    def may_go_on(self) -> bool:
        """Whether there is time for another call; asked in its thread, too."""
        return not self._told and self._clock.current_time() < self.limit

    def frame(self) -> Callable[[], FrameType | None] | None:
        """How to see where its thread is; None if it is a task."""
        return None if self.thread is None else self.thread.frame

    @trio.lowlevel.enable_ki_protection
    async def work(self) -> None:
        """Play the script. Raises nothing."""
        self.task = trio.lowlevel.current_task()
        try:
            with self._scope:
                await self._play()
        except Exception as bug:  # noqa: BLE001
            # A bug of ours must not raise into the work nursery; the run raises it.
            self.bug = bug
        if self.thread is None:  # else its thread tells, when it has really ended
            self._end()

    def _end(self) -> None:
        self.over = True
        self.coroutine = None
        self.on_over()

    async def _play(self) -> None:
        args = self._next(None)
        while args is not None and self.may_go_on():
            value = await (self._call(args) if self._asynchronous else self._call_in_thread(args))
            if value is _NO_MORE:
                return
            if isinstance(value, Interrupt):
                self.interrupt = value.error
                return
            args = self._next(value)
            if not self.suspended:  # many calls that never let the loop go would hold it
                await trio.lowlevel.checkpoint()

    async def _call(self, args: tuple[Any, ...]) -> Any:
        self.suspended = False
        return await call_user(self._function, args, self._space, self)

    async def _call_in_thread(self, args: tuple[Any, ...]) -> Any:
        """Make as many calls as can be made in a thread.

        Returns:
            What came of the last one, if that has to be looked at here; else `_NO_MORE`.
        """
        self.suspended = True
        self.thread = thread = ThreadCall(self._threads, self._name, self._ended_late)
        try:
            value = await thread.run(self._drive, (args,), self._space.copy(), self.may_go_on)
        finally:
            if not thread.given_up:
                self.thread = None
        if thread.given_up:
            return _NO_MORE
        if inspect.isawaitable(value):  # a sync callable that returns an awaitable
            if self.may_go_on():
                return await call_user(lambda: value, (), self._space, self)
            if inspect.iscoroutine(value):
                value.close()
            return _NO_MORE
        # Told to stop before its first line: that is no failure of the callback.
        return value if self.may_go_on() or not isinstance(value, Failed) else _NO_MORE

    def _drive(self, args: tuple[Any, ...] | None) -> Any:
        """In the thread: call after call, until one has to be looked at on the loop."""
        while args is not None:
            value = call_now(self._function, args, self._space)
            if isinstance(value, Interrupt) or inspect.isawaitable(value):
                return value
            args = self._next(value)
            if not self.may_go_on():
                break
        return _NO_MORE

    def _next(self, value: Any) -> tuple[Any, ...] | None:
        """What the script asks for next, given what came of the call before; None at its end."""
        try:
            return self._script.send(value)
        except StopIteration as end:
            self.answered, self.outcome = True, end.value
        except AskingFailed as failed:
            self.failure = failed.error
        return None

    def _ended_late(self, value: Any) -> None:
        """Its thread has ended, which the run had given up on."""
        if inspect.iscoroutine(value):
            value.close()  # nobody will await it any more
        self.thread = None
        self._end()
