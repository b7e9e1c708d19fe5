"""One run under the signals of a command line: the first ends it, the second ends us."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator
from types import FrameType, TracebackType
from typing import Any, Protocol, TypeVar

import trio

from hortator.actors.cli.progress import Progress
from hortator.actors.cli.report import print_plan
from hortator.actors.observer import in_thread
from hortator.actors.process import Command
from hortator.actors.recorder import Recorder
from hortator.actors.runtime import open_runtime
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.result import RunResult

Out = TypeVar("Out")

LAST_LOOKS = 40
"""So often, 5 ms apart, the second signal looks whether the groups that it killed are gone."""


class Cancellable(Protocol):
    """What a signal ends: the handle of a run, or all that are in flight."""

    def cancel(self, reason: str, /) -> None:
        """End it, and keep what it has come to."""
        ...


class Stop:
    """The signals of one command, from before its run until its output is written.

    The first one is remembered, and ends the run if there is one: the best so far is printed.
    The second kills every process group and leaves at once.

    Attributes:
        signum: the first signal that came, or None.
    """

    def __init__(self, *commands: Command) -> None:
        self.signum: int | None = None
        self._commands = commands
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        for signum in caught():
            self._before[signum] = signal.signal(signum, self._outside_of_a_run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def exit_code(self, result: RunResult[Any]) -> int:
        """What to exit with after this result: 0, 1, or 128 + the signal."""
        if self.signum is not None:
            return 128 + self.signum
        return 0 if result.selected is not None else 1

    def _outside_of_a_run(self, signum: int, frame: FrameType | None) -> None:
        # No process of ours is alive then: nothing to kill.
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum

    async def watch(self, signals: AsyncIterator[int], run: Cancellable) -> None:
        """Do what the signals say for as long as a run goes on."""
        if self.signum is not None:
            run.cancel(signal.Signals(self.signum).name)
        async for signum in signals:
            if self.signum is not None:
                await self._leave(signum)
            self.signum = signum
            run.cancel(signal.Signals(signum).name)

    async def _leave(self, signum: int) -> None:
        for each in self._commands:
            each.kill()
        for _ in range(LAST_LOOKS):
            if not any(each.running for each in self._commands):
                break
            await trio.sleep(0.005)
        os._exit(128 + signum)


def caught() -> list[signal.Signals]:
    """The signals that end a run; SIGHUP not under `nohup`."""
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hangup]


def play(
    job: BestOfN[bytes, Out],
    request: bytes,
    *,
    seed: int | None,
    stop: Stop,
    recorder: Recorder | None = None,
) -> RunResult[Out]:
    """Run a job with its progress on standard error, until it or a signal ends it.

    Args:
        job: what to run.
        request: for its candidates.
        seed: of the run; None to have one drawn.
        stop: entered already.
        recorder: told of every event, or None.
    """
    # What a run warns of, such as processes that left their group, is news for whoever looks on.
    logging.basicConfig(format="hortator: %(message)s", level=logging.WARNING)
    print_plan(job)
    return trio.run(_play, job, request, seed, stop, recorder)


async def _play(
    job: BestOfN[bytes, Out],
    request: bytes,
    seed: int | None,
    stop: Stop,
    recorder: Recorder | None,
) -> RunResult[Out]:
    # In a thread: a terminal that is held (Ctrl-S) or a full pipe must not hold the deadline.
    observer = in_thread(Progress(job))
    # On the loop: an event that was dropped would be missed later, when the run is looked at.
    recorders = () if recorder is None else (recorder,)
    async with open_runtime(observers=recorders) as runtime:
        handle = runtime.start(job, request, seed=seed, observers=(observer,))
        with trio.open_signal_receiver(*caught()) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop.watch, signals, handle)
                result = await handle.result()
                nursery.cancel_scope.cancel("the run is over")
    return result
