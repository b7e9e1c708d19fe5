"""The handle of a run that was started: wait for it, watch it, steer it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Generic

import trio

from hortator.actors.runner import Run
from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.checking import is_number, whole
from hortator.protocols.errors import InvalidJob
from hortator.protocols.events import CandidateEnded, Event
from hortator.protocols.interfaces import Out
from hortator.protocols.result import RunResult, Snapshot
from hortator.protocols.showing import shown

PATIENCE = 1.0
"""Seconds that one wait of a join lasts. The run limits itself, so that it needs few of them."""


class RunHandle(Generic[Out]):
    """A run that goes on by itself. Leaving `async with handle` cancels and joins it.

    >>> async def watch(runtime, job):
    ...     async with runtime.start(job, "question") as handle:
    ...         print(handle.snapshot().statuses)
    ...         return await handle.result()
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __repr__(self) -> str:
        state = self._run.state
        now = "ended" if self.ended else f"{len(state.candidates())} of {state.n} ended"
        return f"<RunHandle {state.run_id}: {now}>"

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.state.run_id

    @property
    def ended(self) -> bool:
        """Whether there is a result."""
        return self._run.finished.is_set()

    async def result(self) -> RunResult[Out]:
        """Wait for the result; may be called again and again.

        Cancelling cancels the wait only, not the run.

        Raises:
            ObserverFailed: strict mode, and an observer raised.
            KeyboardInterrupt, SystemExit: came out of a callback.
        """
        await self._run.finished.wait()
        failure = self._run.failure
        if failure is not None:
            self._run.services.raised(failure)
            raise failure
        assert self._run.result is not None
        return self._run.result

    @trio.lowlevel.enable_ki_protection
    def cancel(self, reason: str = "") -> None:
        """Stop the run now: what is in flight is cancelled, the best so far is selected.

        A no-op once the run is stopping. Waits for nothing: `await handle.result()` does.

        Args:
            reason: for the logs of what is cancelled.
        """
        if not self._run.state.stopping:
            self._run.why = reason
        self._run.state.stop("cancelled", self._run.clock.current_time())

    @trio.lowlevel.enable_ki_protection
    def stop_after_current(self) -> None:
        """Start no more candidates, and end when those in flight have ended.

        A no-op if all have begun by then: nobody is kept from anything, so the run is whole.
        """
        self._run.state.stop("stopped", self._run.clock.current_time(), in_flight=False)
        self._run.wake()

    @trio.lowlevel.enable_ki_protection
    def extend(self, seconds: float) -> bool:
        """Move the run's deadline by so many seconds, and so that of the work in flight.

        Contexts, clean-up under way and threads see the new deadline at once; a candidate's own
        timeout, and the deadline of a run that a candidate has started before, stay as they are.
        It never gets past the deadline of the scopes around `start`, less the margin that was
        taken there: the deadline is moved as far as that, and the run then ends with
        "outer_deadline". Waits for nothing.

        Args:
            seconds: to add to the deadline, above 0.

        Returns:
            Whether it was moved. Nothing changes if there is no deadline or it has passed, if
            the run is stopping or over, or if the outer deadline leaves no room.

        Raises:
            InvalidJob: `seconds` is not a finite number above 0.

        >>> async def patient(runtime, job):
        ...     async with runtime.start(job, "question") as handle:
        ...         await trio.sleep(1)
        ...         if handle.snapshot().best is None:
        ...             handle.extend(2)
        ...         return await handle.result()
        """
        if not is_number(seconds) or seconds <= 0:
            raise InvalidJob(
                f"extend({shown(seconds)}): write the seconds to add, a finite number above 0,"
                " such as handle.extend(5); to end a run earlier, handle.cancel()"
            )
        return self._run.extend(seconds)

    @trio.lowlevel.enable_ki_protection
    def snapshot(self) -> Snapshot:
        """The run as it is at this moment."""
        return self._run.state.snapshot(self._run.clock.current_time())

    def events(
        self, *, buffer: int = 1024
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Event | Snapshot]]:
        """Receive the run's events from now on; the channel ends after the terminal event.

        Who comes late gets a `Snapshot` first. Who is slower than `buffer` events loses the
        newest, which `result.telemetry.dropped` counts, but never the terminal one.
        """
        whole("buffer", buffer, least=0, example=1024)
        return self._subscribed(buffer, lambda event: event, snapshot=True)

    def candidates(self) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Candidate[Out]]]:
        """Receive the record of each candidate as it ends; those that have ended come first.

        Candidates that never started are in the result only.
        """
        records = self._run.state.records

        def ended(event: Event) -> Candidate[Any] | None:
            return records[event.candidate] if isinstance(event, CandidateEnded) else None

        return self._subscribed(self._run.state.n, ended, snapshot=False)

    async def __aenter__(self) -> RunHandle[Out]:
        """The handle itself."""
        return self

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel and join, however the block was left: for no longer than the run's grace."""
        if not self.ended:
            self.cancel("left by whoever had started it")
        while not self.ended:
            with trio.move_on_after(PATIENCE, shield=True):
                await self._run.finished.wait()

    @asynccontextmanager
    async def _subscribed(
        self, buffer: int, pick: Callable[[Event], Any], *, snapshot: bool
    ) -> AsyncGenerator[trio.MemoryReceiveChannel[Any]]:
        state = self._run.state
        state.flush()
        # One place more than the buffer: the terminal event always finds room.
        send, receive = trio.open_memory_channel[Any](buffer + 2)
        room = buffer

        def deliver(events: Sequence[Event]) -> None:
            for event in events:
                item = pick(event)
                if item is None:
                    pass
                elif send.statistics().current_buffer_used < room or event.terminal:
                    with suppress(trio.BrokenResourceError):  # the receiver closed its end
                        send.send_nowait(item)
                else:
                    self._run.unheard += 1
                if event.terminal:
                    send.close()

        if snapshot and state.sequence:
            send.send_nowait(self.snapshot())
            room += 1
        elif not snapshot:
            for record in state.candidates():
                if record.status is not Status.SKIPPED or record.started is not None:
                    send.send_nowait(record)
        if state.closed:
            send.close()
        else:
            state.subscribe(deliver)
        try:
            with receive:
                yield receive
        finally:
            state.unsubscribe(deliver)
