"""Callbacks, observers and jobs that the tests of the contract are played with.

`Stubborn` and its kin hold out behind a shield for a given time. Unlike code that swallows one
cancellation after the other they let the loop idle, so they work under virtual time; and they
end by themselves, so nothing outlives its test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from hortator import BestOfN, Event
from hortator.protocols.events import RunFinished

GRACE = 0.25
"""The grace of a runtime that is opened without one."""
WORK = 0.8 * GRACE
"""The part of it in which work may unwind."""
SLACK = 1.5
"""Seconds that a loaded machine may take for nothing: for upper bounds on the real clock."""


PATIENCE = 8.0
"""Seconds after which what waits for its release goes on by itself."""


async def echo(request: Any, ctx: Any) -> Any:
    """A candidate that is its own index, after one checkpoint."""
    await trio.lowlevel.checkpoint()
    return ctx.index


async def by_output(request: Any, candidate: Any, ctx: Any) -> float:
    """A scorer that reads the output as the score."""
    return candidate.output


def after(*seconds: float) -> Callable[[Any, Any], Awaitable[Any]]:
    """A generator that takes so many seconds, for each index one number; the last one repeats."""

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(seconds[min(ctx.index, len(seconds) - 1)])
        return ctx.index

    return generate


def job(**parts: Any) -> BestOfN[Any, Any]:
    """A job of four candidates at once, `echo` scored `by_output`, with other parts exchanged."""
    return BestOfN(**{"generate": echo, "score": by_output, "n": 4, "max_concurrency": 4, **parts})


class Stubborn:
    """A generator that can't be cancelled for so many seconds; only chosen candidates are.

    Attributes:
        ended: indices that came to their end.
    """

    def __init__(self, seconds: float, *indices: int, otherwise: float = 0.0) -> None:
        self._seconds, self._indices, self._otherwise = seconds, indices, otherwise
        self.ended: list[int] = []

    async def __call__(self, request: Any, ctx: Any) -> Any:
        if ctx.index in self._indices:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._seconds)
        else:
            await trio.sleep(self._otherwise)
        self.ended.append(ctx.index)
        return ctx.index


async def stubborn_for(seconds: float) -> None:
    """Sleep so long, whatever is cancelled."""
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)


@attrs.define
class Held:
    """A sync generator that waits, for chosen candidates, until it is released.

    Attributes:
        began: indices whose first line ran.
        told: what `ctx.stopping` said in that line.
    """

    indices: tuple[int, ...] = ()
    release: threading.Event = attrs.Factory(threading.Event)
    began: list[int] = attrs.Factory(list)
    told: list[bool] = attrs.Factory(list)

    def __call__(self, request: Any, ctx: Any) -> Any:
        self.told.append(ctx.stopping)
        self.began.append(ctx.index)
        until = time.monotonic() + PATIENCE
        while ctx.index in self.indices and not self.release.is_set():
            time.sleep(0.005)
            if time.monotonic() > until:
                break  # a bug keeps the test from releasing it: let the test fail, not hang
        return ctx.index


class Record:
    """A sync observer that keeps what it is told of its run, and apart what of nested ones."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.nested: list[Event] = []

    def __call__(self, event: Event) -> None:
        nested = bool(self.events) and event.run_id.startswith(f"{self.events[0].run_id}/")
        (self.nested if nested else self.events).append(event)

    @property
    def kinds(self) -> list[str]:
        """The kinds of all events, in the order of their coming."""
        return [event.kind for event in self.events]

    @property
    def terminal(self) -> RunFinished:
        """The terminal event; there is exactly one, and it is the last."""
        found = [event for event in self.events if event.terminal]
        assert len(found) == 1, f"{len(found)} terminal events among {self.kinds}"
        assert found[0] is self.events[-1], f"events after the terminal one: {self.kinds}"
        assert isinstance(found[0], RunFinished), f"{found[0]!r} ends the run"
        return found[0]

    def of(self, index: int) -> list[str]:
        """The kinds of one candidate's events."""
        return [event.kind for event in self.events if event.candidate == index]


class AsyncRecord(Record):
    """An async observer that takes some time over each event, and keeps it afterwards."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self._seconds = seconds

    async def __call__(self, event: Event) -> None:  # type: ignore[override]
        await trio.sleep(self._seconds)
        self.events.append(event)


def statuses(result: Any) -> list[str]:
    """The statuses of a result in index order, as text; detached ones marked."""
    return [f"{c.status}{' (detached)' if c.detached else ''}" for c in result.candidates]


def child(script: str, **options: Any) -> subprocess.Popen[str]:
    """Start a Python process with a script that finds the library where this one found it."""
    import hortator

    root = str(Path(hortator.__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-u", "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        **options,
    )
