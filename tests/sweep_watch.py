"""How the sweep looks at a runtime: an instrument that counts steps, and opens doors before one.

It finds runs and seats among the arguments of the tasks that play them, and names the places at
which tasks are cancelled once the doors are open.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import trio

from hortator.actors.crew import Seat
from hortator.actors.runner import Run
from tests.sweep_checks import alive, faults_of_books

if TYPE_CHECKING:
    from tests.sweep import Play
    from tests.sweep_doors import Door

MOST_STEPS = 5_000
"""A play that takes more steps, or idles for more passes, is taken for one without an end."""

LOOKED_AT = ("hortator", "tests")
"""Packages whose functions are named as the place of a cancelled await."""


class Watch(trio.abc.Instrument):
    """Counts task steps, opens the doors before one of them, and sees who is cancelled by it."""

    def __init__(self, play: Play, doors: Sequence[Door], step: int) -> None:
        self._play, self._doors, self._step = play, doors, step
        self._opened = self._gave_up = False
        self._woken: set[trio.lowlevel.Task] = set()
        self._all_steps = self._idle = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """Find the runs and seats: each is an argument of the task that plays it."""
        for value in task.coro.cr_frame.f_locals.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Run) and item not in self._play.runs:
                    self._play.runs.append(item)
                elif isinstance(item, Seat):
                    self._play.seats[item] = task

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        """Whoever is woken once the doors are open may be cancelled."""
        if self._opened:
            self._woken.add(task)

    def before_io_wait(self, timeout: float) -> None:
        """Tell a play in which everybody waits from one that goes on."""
        self._idle += 1
        if self._idle > MOST_STEPS:
            self._give_up("every task waits, and nothing will ever wake one")

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Open the doors if it is time."""
        self._idle = 0
        self._all_steps += 1
        if self._all_steps > MOST_STEPS:
            places = {innermost(task, anywhere=True) for task in alive()} - {None}
            self._give_up(f"no end after {MOST_STEPS} task steps, now at {places}")
        try:
            self._before_step(task)
        except Exception:  # Trio would log it and go on without the instrument
            self._opened = True
            self._play.faults.append(f"a door broke: {traceback.format_exc()}")

    def _before_step(self, task: trio.lowlevel.Task) -> None:
        play = self._play
        if task in self._woken:
            self._woken.discard(task)
            if trio.current_effective_deadline() == -math.inf:
                play.awaits |= {innermost(task)} - {None}
        if self._opened or not all(door.ready(play) for door in self._doors):
            return
        play.steps += 1
        if play.steps == self._step:
            self._opened = True  # first: opening wakes tasks
            for door in self._doors:
                door.open(play)
            play.opened_at = trio.current_time()
            play.faults += faults_of_books(play.runs)

    def _give_up(self, why: str) -> None:
        """End the play. Trio ignores an instrument's errors, but it can't do without a clock."""
        if self._gave_up:
            return
        self._gave_up = True
        self._play.faults.append(why)

        def current_time() -> float:
            raise RuntimeError(why)

        self._play.clock.current_time = current_time  # type: ignore[method-assign]


def innermost(task: trio.lowlevel.Task, *, anywhere: bool = False) -> str | None:
    """`module.function` of the innermost place where a task waits, outside of libraries.

    None if there is none, or (not `anywhere`) if it waits where nothing can cancel it.
    """
    found = None
    frames = [frame for frame, _ in task.iter_await_frames()]
    while frames:
        frame = frames.pop(0)
        if frame.f_code is trio.lowlevel.cancel_shielded_checkpoint.__code__ and not anywhere:
            return None
        module = frame.f_globals.get("__name__", "")
        if module.split(".")[0] in LOOKED_AT:
            found = f"{module}.{frame.f_code.co_qualname}"
        if not frames:
            # A trampoline drives a callback by hand: its frame is the last of the task's own,
            # and the callback's coroutine is a local of it.
            frames = list(_awaited(frame.f_locals.get("coroutine")))
    return found


def _awaited(coroutine: Any) -> Iterator[Any]:
    while coroutine is not None:
        if inspect.iscoroutine(coroutine):
            frame, coroutine = coroutine.cr_frame, coroutine.cr_await
        elif inspect.isgenerator(coroutine):
            frame, coroutine = coroutine.gi_frame, coroutine.gi_yieldfrom
        else:
            return
        if frame is not None:
            yield frame
