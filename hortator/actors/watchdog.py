"""The watchdog: who holds the event loop, seen from outside.

A loop that is blocked can't be preempted, and nothing on it can say so. So a thread *looks*, a few
times per limit: it sleeps on an event of its own, never wakes the loop, schedules nothing on it
and takes no step of any task. The loop itself only counts its ticks, by a hook of an instrument
that Trio calls before it waits for input. (Whether it waits at the moment is not noted: then no
frame of a task is on its stack. A second hook would double what a tick costs.)

When is it blocked? A long tick is not enough: ten thousand tasks that are runnable at once make
one, while each of them lets the loop go after microseconds. What blocks is one *step*. Within one
tick Trio steps no task twice, for whatever becomes runnable meanwhile waits for the next tick; so
two looks that see the same task, by the frame of its outermost coroutine, in the same tick, have
seen the same step. It is timed from the first look that saw it, so that what is told is never too
much.

Each runtime has a thread of its own, and not the process one for all: the limit and what was
found belong to the runtime, loops may run in several threads, and nothing has to be shared,
counted or locked between them. It costs some 0.2 ms when a runtime is opened.

The frames that were seen are let go by the loop's own thread, at the end of the tick: a frame may
hold the last reference to what a task had, and that must not be finalised in a foreign thread.
"""

from __future__ import annotations

import logging
import threading
import time
import types
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

import attrs
import trio

from hortator.actors.callbacks import call_each, call_user
from hortator.actors.detached import Doing, phase_of
from hortator.actors.frames import frame_of_thread, innermost, is_ours, stack
from hortator.actors.jobcall import JobCall
from hortator.actors.observer import AsyncObserver
from hortator.actors.runner import Run
from hortator.protocols.attempt import Attempt
from hortator.protocols.batch import Batch
from hortator.protocols.events import Event
from hortator.protocols.watchdog import Blocked

logger: logging.Logger = logging.getLogger("hortator")

MOST_KEPT = 100
"""Of the newest steps that blocked the loop."""

LOOKS = 4
"""In the time of one limit."""

JOIN = 0.005
"""Seconds that leaving waits for the thread, which has nothing to do but to end."""

_Who: TypeAlias = tuple[
    str | None,
    int | None,
    Doing | None,
]


class _Step:
    """A step of a task that was seen by two looks or more, or may be.

    Attributes:
        tick: the loop's, in which it is made.
        root: the frame of the task's outermost coroutine.
        first: when it was first seen.
        say_at: after how many seconds it is told (again).
        told: whether it is the newest one among those that are kept.
    """

    __slots__ = ("first", "root", "say_at", "tick", "told")

    def __init__(self, tick: int, root: types.FrameType, first: float, say_at: float) -> None:
        self.tick, self.root, self.first, self.say_at = tick, root, first, say_at
        self.told = False


class _Ticks(trio.abc.Instrument):
    """Counts ticks. Called by the loop at the end of each, before it waits for input.

    Attributes:
        count: how many have ended.
        seen: steps that were seen in this tick; left there by the thread, let go by the loop.
    """

    __slots__ = ("count", "seen")

    def __init__(self) -> None:
        self.count = 0
        self.seen: list[_Step] = []

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1
        if self.seen:
            self.seen.clear()


class Watchdog:
    """Watches the loop that it is started on, until it is stopped."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit or 0.0
        self._pause = self._limit / LOOKS
        self._ticks = _Ticks()
        self._found: deque[Blocked] = deque(maxlen=MOST_KEPT)
        self._over = threading.Event()
        self._loop_frame: types.FrameType | None = None
        self._loop_thread = threading.get_ident()
        self._thread: threading.Thread | None = None

    @property
    def blocked(self) -> Sequence[Blocked]:
        """The newest steps that blocked the loop, oldest first."""
        return tuple(self._found)

    def start(self) -> None:
        """Watch from now on; nothing, without a limit or under a clock that is not the system's.

        Called in a task of the loop.
        """
        if not self._limit or not _is_system_clock(trio.lowlevel.current_clock()):
            return
        # Whoever resumes the task that we are in is the loop: its frame lives as long as it does.
        root = trio.lowlevel.current_task().coro.cr_frame
        self._loop_frame = None if root is None else root.f_back
        thread = threading.Thread(target=self._watch, name="hortator watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no thread to give
            logger.warning("the event loop is not watched: %s", error)
            return
        self._thread = thread
        trio.lowlevel.add_instrument(self._ticks)

    def stop(self) -> None:
        """Watch no longer. The thread ends by itself if it does not end at once."""
        if self._thread is None:
            return
        self._over.set()
        self._thread.join(JOIN)
        self._thread = self._loop_frame = None
        self._ticks.seen.clear()
        try:
            trio.lowlevel.remove_instrument(self._ticks)
        except (KeyError, RuntimeError):
            pass  # the loop is being torn down

    # -- in the thread of its own ----------------------------------------------------------------

    def _watch(self) -> None:
        while not self._over.wait(self._pause):
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        ticks = self._ticks
        tick = ticks.count
        loop = self._loop_frame
        frames = stack(frame_of_thread(self._loop_thread), loop) if loop is not None else []
        if not frames or ticks.count != tick:
            return  # it waits, is between two steps or in the next tick by now, or is left
        last = ticks.seen[-1:]  # the loop may clear it at any moment
        if not last or last[0].root is not frames[0] or last[0].tick != tick:
            ticks.seen.append(_Step(tick, frames[0], now, self._limit))
            return
        step, seconds = last[0], now - last[0].first
        if step.told:
            self._found[-1] = attrs.evolve(self._found[-1], seconds=seconds)
        if seconds >= step.say_at:
            step.say_at *= 2
            self._tell(step, frames, seconds)

    def _tell(self, step: _Step, frames: list[types.FrameType], seconds: float) -> None:
        run_id, candidate, phase = _who(frames)
        blocked = Blocked(
            run_id=run_id,
            candidate=candidate,
            phase=phase,
            where=innermost(frames) or "not known",
            seconds=seconds,
        )
        if step.told:
            self._found[-1] = blocked
        else:
            self._found.append(blocked)
        step.told = True
        logger.warning("the event loop has been blocked for %.2f s by %s", seconds, blocked.tale())


def _is_system_clock(clock: trio.abc.Clock) -> bool:
    # Trio does not export the class; under any other clock the loop's time is not the thread's.
    kind = type(clock)
    return kind.__name__ == "SystemClock" and kind.__module__.split(".")[0] == "trio"


def _who(frames: Sequence[types.FrameType]) -> _Who:
    """On whose behalf a step is made: the innermost callback of a run, or the run itself.

    Nothing but locals of our own frames is read, and nothing of them is called but our own.
    """
    for frame in reversed(frames):
        if not is_ours(frame):
            continue
        function, local = frame.f_code.co_name, frame.f_locals
        if function == call_user.__name__:
            return _whose_call(local["watch"], local["args"])
        if function == call_each.__name__ and isinstance(local["items"][0], get_args(Event)):
            return local["items"][0].run_id, None, "observing"
        for run in (local.get("run"), local.get("self")):
            if isinstance(run, Run):
                return run.state.run_id, None, None
    return None, None, None


def _whose_call(watch: object, args: tuple[Any, ...]) -> _Who:
    if isinstance(watch, Attempt):
        return watch.ctx.run_id, watch.index, phase_of(watch)
    if isinstance(watch, AsyncObserver):
        return args[0].run_id, None, "observing"
    if isinstance(watch, JobCall):
        return watch.run_id, None, watch.phase
    if isinstance(watch, Batch):
        return watch.attempts[0].ctx.run_id, None, "scoring"
    return None, None, None
