"""What the field cases share: ways to stop a run, what is true of every account, observers.

A *door* is a way to stop a run from outside. Most faults of cancelling show up at one door and
not at another, so a case about it is played at all of them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import attrs
import trio
from trio.testing import MockClock

from hortator import BestOfN, Event, RunResult, Runtime, Usage, open_runtime
from hortator.protocols.candidate import TERMINAL, Status

T = TypeVar("T")

GRACE = 0.25
"""Seconds; the grace of a runtime that is opened without arguments."""

CALLERS = ("deadline", "outer deadline", "handle.cancel", "leaving the handle")
"""Doors whose caller gets a result."""

SLACK = 0.6
"""Seconds more than is due that the real clock may show on a loaded machine."""

HOLDS = 5.0
"""Seconds after which a stubborn piece of work ends although nobody has let it go."""

DOORS = (*CALLERS, "the runtime's scope", "the caller's scope")

REAL_DOORS = tuple(door for door in DOORS if door != "outer deadline")
"""For the real clock: inside an outer deadline there are a few milliseconds between being in time
and not, which a loaded machine does not keep to. That door is played in virtual time."""


def virtually(main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Play a scene on a loop of its own, in virtual time: for scenes that are played often."""
    return trio.run(functools.partial(main, *args), clock=MockClock(autojump_threshold=0))


async def index_score(request: Any, candidate: Any, ctx: Any) -> float:
    """Score a candidate by its index: the last one is the best."""
    return float(candidate.index)


async def output_score(request: Any, candidate: Any, ctx: Any) -> Any:
    """Let a candidate's output be its score."""
    return candidate.output


def job_of(
    generate: Callable[..., Any], score: Callable[..., Any] = index_score, **job: Any
) -> Any:
    """A job, all of it in flight at once unless it says otherwise."""
    return BestOfN(generate=generate, score=score, **{"max_concurrency": job.get("n", 3), **job})


def statuses(result: RunResult[Any]) -> list[str]:
    """The statuses in index order."""
    return [str(candidate.status) for candidate in result.candidates]


def live_tasks() -> set[trio.lowlevel.Task]:
    """All tasks of the loop that have not ended."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return set(_below(root))


def _below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _below(child)


def check_account(result: RunResult[Any], n: int) -> None:
    """Assert what is true of the account of any run, however it ended."""
    candidates = result.candidates
    assert [c.index for c in candidates] == list(range(n)), "not n records in index order"
    for c in candidates:
        if c.detached:
            assert c.status in (Status.GENERATING, Status.SCORING), f"{c.index} lost its phase"
        else:
            assert c.status in TERMINAL, f"{c.index} has not ended: {c.status}"
        if c.status is Status.SKIPPED:
            assert c.usage == Usage(), f"{c.index} never started and cost {c.usage}"
    usage = result.usage
    total = functools.reduce(lambda a, b: a + b, (c.usage for c in candidates), Usage())
    assert usage.charged == total, "the run was not charged the sum of its candidates"
    assert usage.double_settlements == 0, "a lease was settled twice"
    if not any(c.detached for c in candidates):
        assert usage.outstanding == Usage(), "a lease is open, and nobody holds it"
    if result.selected is not None:
        assert candidates[result.selected.index] is result.selected
        assert result.selected.eligible, "what was selected is not eligible"


async def spent_cancelled() -> BaseException:
    """A Cancelled of a scope that has been closed long since."""
    with trio.CancelScope() as inner:
        inner.cancel()
        try:
            await trio.sleep(1)
        except trio.Cancelled as error:
            return error
    raise AssertionError


def tokens(count: int) -> Usage:
    """So many tokens."""
    return Usage(total_tokens=count)


@attrs.define(eq=False)
class Record:
    """An observer that keeps what it is told, and when; events of nested runs it leaves out."""

    events: list[Event] = attrs.Factory(list)
    times: list[float] = attrs.Factory(list)

    def __call__(self, event: Event) -> None:
        if self.events and event.run_id.startswith(f"{self.events[0].run_id}/"):
            return
        self.events.append(event)
        self.times.append(trio.current_time())

    @property
    def finished(self) -> Any:
        """The terminal event."""
        return self.events[-1]

    def of(self, kind: str) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if event.kind == kind]

    def check(self) -> None:
        """Assert: no gap in the sequence, one terminal event and it is last, one end for each."""
        assert [e.sequence for e in self.events] == list(range(len(self.events)))
        assert [e.terminal for e in self.events].count(True) == 1, "not one terminal event"
        assert self.events[-1].terminal, f"{self.events[-1].kind} came after the terminal event"
        started = Counter(e.candidate for e in self.of("started"))
        ended = Counter(e.candidate for e in self.of("ended"))
        assert not ended or max(ended.values()) == 1, "a candidate ended twice"
        assert started.keys() <= ended.keys(), "a candidate that started never ended"


class Slow:
    """An async observer that takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begun: list[Event] = []
        self.done: list[Event] = []

    async def __call__(self, event: Event) -> None:
        self.begun.append(event)
        await trio.sleep(self.seconds)
        self.done.append(event)


class Hold:
    """Holds stubborn work, in a task or a thread, until the test lets it go."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._until = time.monotonic() + HOLDS

    @property
    def on(self) -> bool:
        """Whether to go on being stubborn."""
        return not self._free.is_set() and time.monotonic() < self._until

    def let_go(self) -> None:
        """Let all of it end."""
        self._free.set()

    def block(self) -> None:
        """Hold a thread; its innermost frame is this one."""
        while self.on:
            time.sleep(0.005)


@attrs.define
class Stopped:
    """A run that was stopped.

    Attributes:
        runtime: it was run on this one, which is still open.
        result: None at the door whose caller gets Cancelled instead.
        stopped_at: seconds on Trio's clock.
        late: seconds from then until its caller had the control back.
        record: what an observer was told.
    """

    runtime: Runtime
    result: Any
    stopped_at: float
    late: float
    record: Record


@asynccontextmanager
async def stopped(
    door: str,
    job: Any,
    *,
    at: float,
    request: Any = "question",
    watchers: Sequence[Any] = (),
    free: Callable[[], None] = lambda: None,
    **options: Any,
) -> AsyncGenerator[Stopped]:
    """Run a job, stop it `at` seconds after its start by a door, look at what came of it.

    The run has `watchers` for observers besides the record. At last `free` lets stubborn work go,
    also when what was seen was wrong, and the runtime is left.
    """
    record, result = Record(), None
    around, shield = trio.CancelScope(), trio.CancelScope(shield=True)
    with around:
        async with open_runtime(**options) as runtime:
            run = functools.partial(runtime.run, request=request, observers=[record, *watchers])
            start = functools.partial(runtime.start, request=request, observers=[record, *watchers])
            until = trio.current_time() + at
            with shield:  # who looks at it is not cancelled with the runtime's scope
                async with trio.open_nursery() as nursery:
                    if door == "deadline":
                        result = await run(attrs.evolve(job, timeout=at))
                    elif door == "outer deadline":
                        with trio.move_on_after(at + min(options.get("grace", GRACE), at / 9)):
                            result = await run(job)
                        assert result is not None, "no result inside the caller's move_on_after"
                    elif door == "handle.cancel":
                        handle = start(job)
                        await trio.sleep_until(until)
                        handle.cancel("the test's reason")
                        result = await handle.result()
                    elif door == "leaving the handle":
                        async with start(job) as handle:
                            await trio.sleep_until(until)
                        result = await handle.result()
                    elif door == "the runtime's scope":
                        handle = start(job)
                        nursery.start_soon(_cancel_at, around, until)
                        result = await handle.result()
                    else:
                        assert door == "the caller's scope", door
                        with trio.CancelScope() as scope:
                            nursery.start_soon(_cancel_at, scope, until)
                            await run(job)
                        assert scope.cancelled_caught, "run() did not raise Cancelled"
                    late = trio.current_time() - until
                try:
                    yield Stopped(runtime, result, until, late, record)
                finally:
                    free()


async def _cancel_at(scope: trio.CancelScope, when: float) -> None:
    await trio.sleep_until(when)
    scope.cancel()


class StopAtStep(trio.abc.Instrument):
    """Calls something before the k-th step of any task, counted from when it is added."""

    def __init__(self, step: int, stop: Callable[[], None]) -> None:
        self._left, self._stop = step, stop
        self.reached = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count."""
        self._left -= 1
        if not self._left:
            self.reached = True
            self._stop()
