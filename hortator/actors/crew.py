"""A run while it is alive: its rules, its seats, and what its actors share.

A *seat* is a task that plays one candidate after another; a *slot* is the right to generate. A
seat holds a slot while it generates, and gives it up when its scorer first lets the loop go, so
that somebody else can generate meanwhile.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from hortator.actors.callbacks import Interrupt, await_too
from hortator.actors.cleanups import Cleanups
from hortator.actors.mailbox import open_mailbox
from hortator.actors.observer import Subscription
from hortator.actors.places import Places
from hortator.actors.seat import Seat as Seat
from hortator.actors.threads import GIVEN_UP, ThreadCall, Threads
from hortator.protocols.account import Account
from hortator.protocols.attempt import Attempt
from hortator.protocols.batch import as_batch
from hortator.protocols.candidate import Status
from hortator.protocols.deadlines import Grace, grace_from
from hortator.protocols.messages import Look, Role
from hortator.protocols.run import RunState
from hortator.protocols.signatures import is_async


class Services(Protocol):
    """What the runtime lends to its runs."""

    threads: Threads

    def spawn(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a task in the work nursery."""
        ...

    def detach(self, crew: Crew, seat: Seat, attempt: Attempt, now: float) -> None:
        """Take over work that a run gives up on."""
        ...

    def detach_observer(self, crew: Crew, subscription: Subscription, now: float) -> None:
        """Take over an observer whose call does not end."""
        ...

    def ended_late(self, attempt: Attempt, value: Any) -> None:
        """Detached work has ended, with this value or failure."""
        ...

    def raised(self, failure: BaseException) -> None:
        """Somebody was told of it."""
        ...

    def tell_late(
        self, crew: Crew, attempt: Attempt, event: Callable[..., Any], rest: tuple[Any, ...]
    ) -> None:
        """Tell the runtime's observers of what detached work does."""
        ...


class Crew(Places):
    """Everything of one run that has to do with time and tasks.

    Attributes:
        score: the scorer actor.
        seats: the tasks that play candidates.
        services: what the runtime lends.
        account: whose budget the run draws on, if it is not nested.
        context: a copy of the one that `start()` was called in.
        generator: the job's generator; `scorer_role` its scorer.
        free_slots: slots that no seat holds.
        lost_slots: slots held for ever by candidates that were given up.
        grace: set once, when the run is told to stop or all its work has ended.
        cleanups: clean-up under way, which the stop limits.
        children: runs that were started through a thread, or by no candidate. None of the scopes
            of candidates is around those, so they have to be stopped by name.
        below: runs that its callbacks have started and that have not ended.
        selects: whether it is a child that a selector has started.
        field_open: whether the nursery of the seats has not been closed yet.
        refused: uses of a context after its candidate's end.
        unheard: events that a receiver of `handle.events()` was too slow for.
        why: what the stop is called where it is carried into a `Cancelled`.
        token: of the loop, to reach it from a thread; `loop_thread` is the loop's own thread.
        runner: the address of the run's runner.
    """

    services: Services
    selects: bool = False
    account: Account
    context: contextvars.Context
    score: Callable[[Crew, Seat, Attempt], Awaitable[None]]
    field_open: bool
    cleanups: Cleanups
    free_slots: int
    scoring: int
    lost_slots: int
    refused: int
    unheard: int
    why: str
    token: trio.lowlevel.TrioToken
    clock: trio.abc.Clock
    loop_thread: int
    runner: trio.MemorySendChannel[Look]
    runner_mailbox: trio.MemoryReceiveChannel[Look]

    def __init__(
        self,
        services: Services,
        context: contextvars.Context,
        play: Callable[[Crew, Seat], Awaitable[object]],
        score: Callable[[Crew, Seat, Attempt], Awaitable[None]],
        score_many: Callable[[Crew, Seat], Awaitable[object]],
        grace: float,
        room: Callable[[float], float],
    ) -> None:
        self.services, self.context = services, context
        self._play, self.score, self._score_many = play, score, score_many
        self._grace, self._room = grace, room
        self.generator: Role
        self.scorer_role: Role
        self.seats: set[Seat] = set()
        self._field: trio.Nursery | None = None
        self.field_open = True
        self.cleanups = Cleanups(self)
        self.children: set[Crew] = set()
        self.below: set[Crew] = set()
        self.free_slots = self.lost_slots = 0
        self.refused = self.unheard = 0
        self.why = ""
        self.grace: Grace | None = None
        self.token = trio.lowlevel.current_trio_token()
        self.clock = trio.lowlevel.current_clock()
        self.loop_thread = threading.get_ident()
        self.runner, self.runner_mailbox = open_mailbox(Look)
        self._name = ""

    def adopt(self, state: RunState) -> None:
        """Take the rules over, before anything runs."""
        job = state.job
        self.arrange_places(state)
        self.generator = Role(job.generate, is_async(job.generate), scores=False)
        if job.score is not None:
            batch = as_batch(job.score)
            score: Any = job.score if batch is None else batch.fn
            self.scorer_role = Role(score, is_async(score), scores=True)
        self.free_slots = job.max_concurrency
        self._name = f"hortator {state.run_id}"

    @property
    def grace_seconds(self) -> float:
        """How long a grace that began now would be, but for very many in flight."""
        return min(self._grace, self._room(self.clock.current_time()))

    def tell_late(self, attempt: Attempt, event: Callable[..., Any], rest: tuple[Any, ...]) -> None:
        """Tell the runtime's observers of what detached work of this run does."""
        self.services.tell_late(self, attempt, event, rest)

    def is_around(self, task: trio.lowlevel.Task) -> bool:
        """Whether a task lives in the run's field, so that the run's scope is around it."""
        nursery = task.parent_nursery
        while nursery is not None and nursery is not self._field:
            nursery = nursery.parent_task.parent_nursery
        return nursery is not None

    # -- seats -----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def hold_field(self) -> None:
        """The run's own nursery: all its seats, under one scope with the run's deadline.

        The runner does not wait for it: a seat that swallows its cancel keeps it open. The scope
        is a shield, limited by the run's deadline and stop: a cancel from around the runtime
        arrives as a stop of the run, so that nothing raises into the work nursery.
        """
        try:
            async with trio.open_nursery() as self._field:
                self._field.cancel_scope.shield = True
                self._field.cancel_scope.deadline = self.state.deadline
                self.fill_seats()
        finally:
            self.field_open = False
            self.wake()

    def fill_seats(self) -> None:
        """Open a seat for every free slot that has a candidate to play."""
        state = self.state
        pending = state.n - state.next_index
        while self.free_slots and pending > 0 and state.admitting:
            self.free_slots -= 1
            pending -= 1
            self.open_seat(slot=True)

    def follow_deadline(self) -> None:
        """The deadline was moved: with it move the ends of generating that hang on it."""
        for seat in self.seats:
            attempt = seat.attempt
            if self.gathering is None or seat.scope is None or attempt is None:
                continue
            if attempt.status is Status.GENERATING and not (attempt.ended or attempt.dropped):
                attempt.limit = seat.scope.deadline = self.gathering.limit_of(attempt)

    def open_seat(self, *, slot: bool) -> None:
        """Start a task: with a slot to generate, without one to score what waits."""
        # The field is open: whoever opens another seat sits in one, or one is stuck there.
        assert self._field is not None
        seat = Seat(self, slot)
        self.seats.add(seat)
        play = self._score_many if self.batched and not slot else self._play
        self._field.start_soon(self._sit, seat, play, name=self._name)

    def take_slot(self, seat: Seat) -> bool:
        """Whether the seat may generate: it holds a slot, or gets one that is free."""
        if not seat.slot and self.free_slots:
            seat.slot = True
            self.free_slots -= 1
        return seat.slot

    @trio.lowlevel.enable_ki_protection
    async def _sit(self, seat: Seat, play: Callable[[Crew, Seat], Awaitable[object]]) -> None:
        try:
            await play(self, seat)
        except Exception as bug:  # noqa: BLE001
            # A bug of ours: callbacks are routed by call_user. It must not raise into the
            # nursery, where it would cut innocent candidates: the run raises it.
            self.crashed(bug)
        finally:
            self.seats.discard(seat)
            if seat.slot:
                self.free_slots += 1
            if self.gathering is not None:
                self.gather()
            if not self.state.stopping:  # else the runner tells of all these ends at once
                self.state.flush()

    def crashed(self, bug: BaseException) -> None:
        """End the run with an error that is not of its callbacks' making."""
        self.state.interrupt = self.state.interrupt or bug
        self.state.stop("cancelled", self.clock.current_time())

    # -- stopping --------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the runner look at the run."""
        self.runner.send_nowait(Look())

    def on_stop(self, now: float) -> None:
        """The run was told to stop: start the grace, cancel what is in flight."""
        state = self.state
        self.begin_grace(min(now, state.deadline))
        if self._field is not None:
            self._field.cancel_scope.cancel(f"{self._name}: {self.why or state.stop_reason}")
        self.cut_waiting(now)
        for child in tuple(self.children):
            if child.selects:
                continue  # a selector has time left after a stop
            child.state.stop("cancelled", now)
        self.wake()

    def begin_grace(self, begins: float) -> None:
        """Fix the two shares of the run's end; clean-up under way ends with the first."""
        in_flight = len(self.state.flying)
        self.grace = grace_from(begins, self._grace, self._room(begins), in_flight)
        self.cleanups.cut_at(self.grace.work_until)

    def give_up_on(self, seat: Seat, now: float) -> None:
        """Detach what a seat plays. A slot that it holds is lost; a scorer's place is not."""
        attempts = seat.playing
        if attempts[0].status is Status.SCORING:
            self.scoring -= 1
        for attempt in attempts:
            if seat.batch is not None:
                attempt.coroutine = seat.batch.coroutine
            self.services.detach(self, seat, attempt, now)
        if seat.slot:
            seat.slot = False
            self.lost_slots += 1
        if seat.thread is not None:
            seat.thread.abandon()
        self.offer_places()

    # -- callbacks -------------------------------------------------------------------------------

    async def in_thread(
        self, seat: Seat, attempt: Attempt, role: Role, args: tuple[Any, ...]
    ) -> Any:
        """Call a sync callback of the candidate that a seat plays, in a worker thread.

        Returns:
            Its value, or `Failed`, or `GIVEN_UP`. If it is an awaitable, that was awaited.

        Raises:
            trio.Cancelled: the seat was cancelled while it waited for a thread.
        """
        state = self.state

        def may_start() -> bool:
            if attempt.ctx.stopping:
                return False
            if role.scores:
                attempt.scorer_ran = True
            else:
                attempt.generator_ran = True
            return True

        seat.thread = thread = ThreadCall(
            self.services.threads,
            f"{state.run_id} candidate {attempt.index}",
            lambda value: self.services.ended_late(attempt, value),
        )
        attempt.suspended = True
        state.flush()
        try:
            book, lease = attempt.book, attempt.lease
            value = await thread.run(
                role.function,
                args,
                attempt.space,
                may_start,
                # Those who have the threads may wait for what this one holds.
                on_queue=lambda: book.rest(lease),
                on_served=lambda: book.resume(lease),
            )
        finally:
            seat.thread = None
        if attempt.ended:
            return value
        return await await_too(value, lambda: attempt.ctx.stopping, attempt.space, attempt)

    def was_cut(self, attempt: Attempt) -> None:
        """A callback let its cancellation through: record the end that this is."""
        if attempt.ended:
            self.services.ended_late(attempt, None)
        else:
            self.state.cut(attempt, self.clock.current_time())

    def ended_badly(self, attempt: Attempt, value: Any) -> None:
        """A callback raised, or it came back after the run had given up on it."""
        if attempt.ended:
            if value is not GIVEN_UP:  # a thread reports by itself
                self.services.ended_late(attempt, value)
            return
        now = self.clock.current_time()
        self.state.failed(attempt, value.error, now)
        if isinstance(value, Interrupt):
            self.state.interrupt = self.state.interrupt or value.error
            self.state.stop("cancelled", now)
