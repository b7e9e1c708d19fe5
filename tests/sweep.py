"""The sweep: stop a run at every step that it takes, from every door, and look at what is left.

A *scene* says what is run; a *door* is a way to stop it. `perform` plays a scene once, in virtual
time and on a seeded scheduler, and opens its doors right before one task step. `sweep` does that
before step 1, 2, 3 … until a run gets through without meeting them. What must hold after each is
in `tests/sweep_checks.py`.

It looks at the runtime from outside, with the `Instrument` of `tests/sweep_watch.py`. Nothing is
replaced or patched.
"""

from __future__ import annotations

import gc
import itertools
import math
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any

import attrs

# Its plug-in for Trio makes the scheduler draw its order from `_r`: without it a seed has no
# effect. Imported here and not left to a test runner, so that a sweep run alone repeats as well.
import hypothesis  # noqa: F401
import trio
import trio.testing

# The one private name of Trio that is touched: there is no public way to seed the scheduler.
from trio._core._run import _r as scheduler

from hortator import BestOfN, Budget, Event, RunHandle, RunResult, Runtime, open_runtime
from hortator.actors.crew import Seat
from hortator.actors.runner import Run
from tests.sweep_checks import alive, faults_afterwards, faults_at_the_return
from tests.sweep_doors import (
    BEHIND_A_SHIELD,
    DOORS as DOORS,
    EXTENSION as EXTENSION,
    NEED_HANDLE,
    door,
)
from tests.sweep_watch import Watch

LINGER = 1000.0
"""Virtual seconds that are spent in the runtime after the run: what was left behind would stir."""

GRACE = 0.25
"""The runtime's; 80 % of it are for work to unwind."""
WORK = 0.8 * GRACE

Observe = Callable[[Event], Any]
Receive = Callable[[RunHandle[Any]], Awaitable[None]]


@attrs.frozen(kw_only=True)
class Scene:
    """What is run; made anew for each play.

    Attributes:
        job: what to attempt.
        observers: of the run.
        runtime_observers: of the runtime.
        bound: virtual seconds that may pass between a stop and the return; 0 if no callback
            awaits anything but checkpoints once it is told to stop.
        slow: names of observers that may be cut before they have heard everything.
        late: virtual seconds that a candidate may outlive its own timeout, in a call with others.
        caller_deadline: of the scope around the run, in virtual seconds from the start.
        runtime_budget: of the runtime.
        receivers: receive from the handle while the run goes on.
    """

    job: BestOfN[Any, Any]
    observers: Sequence[Observe] = ()
    runtime_observers: Sequence[Observe] = ()
    bound: float = 0.0
    slow: Collection[str] = ()
    late: float = 0.0
    caller_deadline: float = math.inf
    runtime_budget: Budget | None = None
    receivers: Sequence[Receive] = ()


class Play:
    """One performance of a scene: what its doors act on, and what was seen.

    Attributes:
        outside: the scope around the runtime.
        caller: the scope around the run.
        calling: whether somebody is inside of `caller`.
        runtime: where it runs, once that is open.
        handle: of the run, if it was started and not run.
        leaving: the scope around those that receive from it; `listening` while there are some.
        runs: the run and those nested in it, in the order of their start.
        seats: the tasks that play candidates.
        steps: how many task steps there were at which the doors could have been opened.
        opened_at: when they were opened, in virtual seconds; None if they never were.
        back_at: when the run had come back.
        left_at: when the runtime had been left.
        result: of the run, if it came back with one.
        hit: the candidate that a door cut alone.
        heard: what each observer was told, by a name that the scene gave it.
        awaiting: names of those that await in between.
        awaits: where tasks were cancelled once the doors were open.
        faults: what must not be, in words.
    """

    def __init__(self) -> None:
        self.clock = trio.testing.MockClock(autojump_threshold=0)
        self.outside, self.caller = trio.CancelScope(), trio.CancelScope()
        self.calling = self.listening = False
        self.leaving = trio.CancelScope()
        self.runtime: Runtime | None = None
        self.handle: RunHandle[Any] | None = None
        self.runs: list[Run] = []
        self.seats: dict[Seat, trio.lowlevel.Task] = {}
        self.steps = 0
        self.opened_at: float | None = None
        self.back_at: float | None = None
        self.left_at: float | None = None
        self.result: RunResult[Any] | None = None
        self.hit: tuple[Run, int] | None = None
        self.heard: dict[str, list[Event]] = {}
        self.awaiting: set[str] = set()
        self.awaits: set[str] = set()
        self.faults: list[str] = []

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same async callback; a fault if it begins or ends when the run has come back."""

        async def watched(*args: Any) -> Any:
            self.at_work(function)
            try:
                return await function(*args)
            finally:
                self.at_work(function)

        return watched

    def at_work(self, function: Callable[..., Any]) -> None:
        """A callback is running."""
        if self.back_at is not None:
            self.faults.append(f"{function.__qualname__} ran when the run had come back")

    def listener(self, name: str) -> Observe:
        """A sync observer that keeps what it hears under a name."""
        log = self.heard[name] = []

        def listen(event: Event) -> None:
            self.at_work(listen)
            log.append(event)

        return listen

    def async_listener(self, name: str, pause: float = 0.0) -> Observe:
        """An async observer that keeps what it hears under a name, and takes its time for it."""
        listen = self.listener(name)
        self.awaiting.add(name)

        async def listen_slowly(event: Event) -> None:
            listen(event)
            if pause:
                await trio.sleep(pause)
            else:
                await trio.lowlevel.checkpoint()

        return self.watched(listen_slowly)

    def story(self) -> list[tuple[Any, ...]]:
        """What the first observer was told, without the ids that no two runs share."""
        log = next(iter(self.heard.values()), [])
        return [(e.sequence, e.kind, e.candidate, e.time) for e in log]


# -- playing ---------------------------------------------------------------------------------------


def perform(
    stage: Callable[[Play], Scene], doors: Sequence[str] = (), *, seed: int, step: int = 0
) -> Play:
    """Play a scene once.

    Args:
        stage: makes the scene.
        doors: names of doors that are opened together, in this order.
        seed: of the scheduler and of the run.
        step: before which of the steps at which all of them can be opened; 0 for none.

    Returns:
        What was seen. Its `faults` tell what went wrong; this function raises nothing.
    """
    scheduler.seed(seed)
    play = Play()
    scene = stage(play)
    play.caller.deadline = scene.caller_deadline
    opened = [door(name) for name in doors]
    play.caller.shield = BEHIND_A_SHIELD in opened
    watch = Watch(play, opened, step)
    try:
        with_handle = not NEED_HANDLE.isdisjoint(doors)
        trio.run(_main, scene, play, with_handle, seed, clock=play.clock, instruments=[watch])
    except BaseException as error:
        play.faults.append("raised " + "".join(traceback.format_exception(error)))
    else:
        play.faults += faults_afterwards(scene, play, opened)
        return play
    del watch  # it holds tasks as well
    _forget_quietly(play)
    return play


def _forget_quietly(play: Play) -> None:
    """A loop that died has left coroutines behind; what they say when they go is no news."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    play.runs.clear()
    play.seats.clear()
    play.handle = play.runtime = None
    play.outside, play.caller = trio.CancelScope(), trio.CancelScope()
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook


async def _main(scene: Scene, play: Play, with_handle: bool, seed: int) -> None:
    before = alive()
    with play.outside:
        async with open_runtime(
            budget=scene.runtime_budget, observers=scene.runtime_observers
        ) as runtime:
            play.runtime = runtime
            standing = alive()
            try:
                with play.caller:
                    play.calling = True
                    await trio.lowlevel.cancel_shielded_checkpoint()  # a door before the call
                    await _call(scene, play, runtime, with_handle, seed)
            finally:
                play.calling = False
                play.back_at = trio.current_time()
                play.faults += [f"alive after the run: {t.name}" for t in alive() - standing]
                play.faults += faults_at_the_return(play.runs, runtime)
            await trio.sleep(LINGER)
    play.left_at = trio.current_time()
    play.faults += [f"alive after the runtime: {task.name}" for task in alive() - before]


async def _call(scene: Scene, play: Play, runtime: Runtime, with_handle: bool, seed: int) -> None:
    if not with_handle and not scene.receivers:
        play.result = await runtime.run(scene.job, ["?"], seed=seed, observers=scene.observers)
        return
    async with runtime.start(scene.job, ["?"], seed=seed, observers=scene.observers) as play.handle:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_receive, scene, play, play.handle)
            play.result = await play.handle.result()


async def _receive(scene: Scene, play: Play, handle: RunHandle[Any]) -> None:
    play.listening = bool(scene.receivers)
    with play.leaving:
        async with trio.open_nursery() as nursery:
            for receive in scene.receivers:
                nursery.start_soon(receive, handle)
    play.listening = False


# -- sweeping --------------------------------------------------------------------------------------


class SweepFailed(AssertionError):
    """A run that was stopped at some step went wrong."""


def sweep(
    stage: Callable[[Play], Scene], doors: Sequence[str], *, seed: int, again: str = ""
) -> Iterator[Play]:
    """Play once undisturbed; then open the doors before step 1, 2, 3 … until a run gets through.

    Args:
        stage: makes the scene, anew for each play.
        doors: names of doors that are opened together.
        seed: of the scheduler and of the run.
        again: how to play one step again; `{step}` is replaced.

    Yields:
        Each play that met the doors, in the order of the steps.

    Raises:
        SweepFailed: at the first step that went wrong.
    """
    for step in itertools.count(0):
        play = perform(stage, doors, seed=seed, step=step)
        if play.faults:
            faults = "".join(f"\n* {fault}" for fault in play.faults)
            where = f"step {step}, seed {seed}, {'+'.join(doors)}"
            raise SweepFailed(f"{where}:{faults}\n{again.format(step=step)}")
        if step and play.opened_at is None:
            return
        if step:
            yield play
