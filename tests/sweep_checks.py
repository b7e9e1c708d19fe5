"""What must hold after a run, from whatever door and at whatever step it was stopped.

Each check is a generator of faults in words, so that one play can show several.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import trio

from hortator import Event, RunResult, Runtime, Status, Usage
from hortator.actors.runner import Run
from hortator.protocols.candidate import TERMINAL

if TYPE_CHECKING:
    from tests.sweep import Play, Scene
    from tests.sweep_doors import Door

ULPS = 1e-9
"""What sums of virtual seconds may be off by. Nothing is allowed where no time may pass at all."""

IN_TIME = frozenset({"handle", "candidate", "deadline", "extend"})
"""Doors after which a run is still back inside its caller's deadline."""

PATIENT = 100.0
"""Nobody runs into a timeout of so many virtual seconds, unless a door moves it."""


def alive() -> set[trio.lowlevel.Task]:
    """Every live task, from the root of all tasks down."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    found, left = {root}, [root]
    while left:
        for nursery in left.pop().child_nurseries:
            found |= nursery.child_tasks
            left.extend(nursery.child_tasks)
    return found


def faults_of_books(runs: Sequence[Run]) -> Iterator[str]:
    """Every book adds up, at any time."""
    books: dict[str, Any] = {run.state.run_id: run.state.book for run in runs}
    if runs:
        books["the runtime"] = runs[0].services.account
    for owner, book in books.items():
        try:
            book.check()
        except AssertionError as error:
            yield f"the book of {owner} does not add up: {error}"


def faults_at_the_return(runs: Sequence[Run], runtime: Runtime) -> Iterator[str]:
    """Right after a run of cooperative callbacks nothing is detached and every lease is settled."""
    yield from (f"detached, though it ends when told to: {work}" for work in runtime.detached)
    yield from faults_of_books(runs)
    for run in runs:
        book, who = run.state.book, run.state.run_id
        if book.open:
            yield f"{who} has open leases: {list(book.open.values())}"
        if book.waiters or run.state.queued:
            yield f"{who} is waited for by {book.waiters}, {run.state.queued}"
        if book.double_settlements:
            yield f"{who} settled {book.double_settlements} leases twice"
        if not run.finished.is_set():
            yield f"{who} goes on"
    if runtime.usage.outstanding != Usage():
        yield f"the runtime's book has open leases: {runtime.usage.outstanding}"


def faults_afterwards(scene: Scene, play: Play, doors: Sequence[Door]) -> Iterator[str]:
    """When everything is over: what the runs told, and how long the stop took."""
    if not play.runs and play.opened_at is None:
        yield "no run was found among the tasks"
    for run in play.runs:
        # A jump past a nested run's whole grace is a blocked loop to that run.
        stalls = {"stall"} if run is play.runs[0] else {"stall", "deadline"}
        stalled = any(door.name in stalls for door in doors)
        yield from _faults_of_run(scene, play, run, stalled=stalled)
    hurry = scene.caller_deadline
    opened = {door.name for door in doors} if play.opened_at is not None else set()
    if play.caller.cancelled_caught and hurry > 0 and opened <= IN_TIME:
        yield f"the caller's deadline, {hurry}, passed before the run was back"
    if not opened & {"deadline", "stall"}:
        yield from _faults_of_own_timeouts(scene, play)
    if play.opened_at is None:
        return
    stops = {door.name for door in doors if door.stops}
    if stops:
        from_outside = stops & {"runtime", "runtime behind a shield"}
        back_at = play.left_at if from_outside else play.back_at
        assert back_at is not None
        took = back_at - play.opened_at
        if took > scene.bound + (ULPS if scene.bound else 0):
            yield f"{took} virtual seconds went by after the stop; at most {scene.bound} may"
    if "caller" in stops and play.result is not None and play.result.stop_reason == "cancelled":
        yield "the caller was cancelled, and got the result of what it had cancelled"
    if "runtime behind a shield" in stops and "caller" not in stops and play.result is None:
        yield "the caller was shielded, and got no result"
    if play.hit is not None:
        yield from _faults_of_hit(scene, play, alone=not stops)


def _faults_of_own_timeouts(scene: Scene, play: Play) -> Iterator[str]:
    """Nobody outlives the own timeout of a candidate, whatever it waits for."""
    timeout = scene.job.candidate_timeout
    for record in play.runs[0].state.candidates() if play.runs and timeout is not None else ():
        if record.elapsed > timeout + scene.bound + scene.late + ULPS:
            yield f"candidate {record.index} took {record.elapsed}, its own timeout is {timeout}"


def _faults_of_hit(scene: Scene, play: Play, *, alone: bool) -> Iterator[str]:
    """The candidate that was cut alone ended at once, by its timeout, and no other one with it."""
    assert play.hit is not None
    assert play.opened_at is not None
    run, index = play.hit
    record = run.state.records[index]
    assert record is not None
    assert record.started is not None
    took = run.state.began + record.started + record.elapsed - play.opened_at
    if took > scene.bound + ULPS:
        yield f"candidate {index} was cut, and ended {took} virtual seconds later"
    stopped = run.state.stop_reason not in (None, "deadline", "outer_deadline")
    if record.status is not Status.TIMED_OUT and not (
        stopped and record.status is Status.CANCELLED
    ):
        yield f"candidate {index} was cut by its own timeout, and is {record.status}"
    own_timeout = run.state.job.candidate_timeout
    if (
        alone
        and run.state.stop_reason is None
        and own_timeout is not None
        and own_timeout > PATIENT
    ):
        cut = {Status.TIMED_OUT, Status.CANCELLED}
        others = [c for c in run.state.candidates() if c.index != index and c.status in cut]
        if others and run.state.pruner is None:
            yield f"candidate {index} was cut alone, and so were {others}"


def _faults_of_run(scene: Scene, play: Play, run: Run, *, stalled: bool) -> Iterator[str]:
    state, result = run.state, run.result
    who = state.run_id
    if state.interrupt is not None:
        yield f"{who} broke: {''.join(traceback.format_exception(state.interrupt))}"
    if result is None:
        yield f"{who} has no result"
        return
    if result.telemetry.refused:
        yield f"{who}: contexts were used {result.telemetry.refused} times after the end"
    if [record.index for record in result.candidates] != list(range(state.n)):
        yield f"{who} has the records of {[c.index for c in result.candidates]}, of {state.n}"
    unfinished = [c for c in result.candidates if c.status not in TERMINAL]
    if unfinished:
        yield f"{who} is over, and these are not: {unfinished}"
    if run.state.pruner is None and result.stop_reason in ("completed", "no_eligible"):
        cancelled = [c.index for c in result.candidates if c.status is Status.CANCELLED]
        if cancelled:
            yield f"{who} came to its own end, and {cancelled} are cancelled"
    for name, log in play.heard.items():
        events = [event for event in log if event.run_id == who]
        if not events and run is not play.runs[0]:
            continue  # an observer of the run around this one; this one is none of its business
        may_be_cut = name in scene.slow or (stalled and name in play.awaiting)
        faults = _faults_of_prefix if may_be_cut else _faults_of_telling
        yield from (f"{who}, as {name} heard it: {fault}" for fault in faults(events, result))


def _faults_of_prefix(events: Sequence[Event], result: RunResult[Any]) -> Iterator[str]:
    """Whoever was cut has heard a beginning, and nothing twice."""
    if [event.sequence for event in events] != list(range(len(events))):
        yield f"not in order, or with gaps: {[event.sequence for event in events]}"
    if any(event.terminal for event in events) and len(events) != result.telemetry.events:
        yield "the terminal event was told before others"


def _faults_of_telling(events: Sequence[Event], result: RunResult[Any]) -> Iterator[str]:
    """Who started has ended once; one terminal event, and it is the last."""
    kinds = [event.kind for event in events]
    if [event.sequence for event in events] != list(range(result.telemetry.events)):
        yield f"of {result.telemetry.events} events it got {[e.sequence for e in events]}"
    times = [event.time for event in events]
    if times != sorted(times):
        yield f"time ran backwards: {times}"
    if [event.terminal for event in events] != [False] * (len(events) - 1) + [True]:
        yield f"the terminal event is not the last, or not the only one: {kinds}"
    starts = Counter(event.candidate for event in events if event.kind == "started")
    ends = Counter(event.candidate for event in events if event.kind == "ended")
    told = {event.candidate: event.status for event in events if event.kind == "ended"}
    for record in result.candidates:
        index = record.index
        if starts[index] > ends[index] or ends[index] > 1:
            yield f"candidate {index} started {starts[index]} times, ended {ends[index]} times"
        if (record.started is not None) != bool(starts[index]):
            yield f"candidate {index} started at {record.started}, told {starts[index]} times"
        if told.get(index, record.status) is not record.status:
            yield f"candidate {index} was told as {told[index]}, its record says {record.status}"
