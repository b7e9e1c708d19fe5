"""What a run asks of its job outside of any candidate: requests are built, the best is selected.

Both are one `JobCall` at a time. They differ in what a stop means: a builder is cut at once, and
has the work share of the grace to unwind; a selector has until the first half of the delivery
share is over, since it is what the best so far waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import trio

from hortator.actors.callbacks import Interrupt, call_now
from hortator.actors.crew import Crew
from hortator.actors.jobcall import JobCall
from hortator.actors.mailbox import waiting
from hortator.protocols.asking import Asking, build_each
from hortator.protocols.attempt import Attempt
from hortator.protocols.deadlines import Grace, Window
from hortator.protocols.stopping import StopReason

FEWEST_PASSES, MOST_PASSES = 12, 64
"""Scheduler passes that work gets to unwind in when the work share is over: it is given up when
it has not been stepped for the fewest, and at the latest after the most.

One is enough for a task that awaits, one more for each nursery or clean-up around it; a nested
run takes some eight."""


class Caller(Crew):
    """A crew that also calls the job outside of any candidate.

    Attributes:
        window: the deadline, whose it is, and how far it may be moved.
        call: the selector or builder at work, or the last one that was.
        detach_call: how the runtime takes over one that does not end.
    """

    window: Window
    detach_call: Callable[[Crew, JobCall, float], None]
    call: JobCall | None = None

    @property
    def deadline_reason(self) -> StopReason:
        """What the deadline is called in the result."""
        return "outer_deadline" if self.window.outer else "deadline"

    async def heard(self) -> None:
        """Wait until the run has changed; take everything that says so in one go."""
        await self.runner_mailbox.receive()
        for _ in waiting(self.runner_mailbox):
            pass
        self.state.flush()

    def is_around(self, task: trio.lowlevel.Task) -> bool:
        """Also of a task of a selector or builder: the scope of that call is around it."""
        calls = None if self.call is None else self.call.task
        each: trio.lowlevel.Task | None = task
        while each is not None and each is not calls:
            each = None if each.parent_nursery is None else each.parent_nursery.parent_task
        return each is not None or super().is_around(task)

    def latest(self, attempt: Attempt | None) -> float:
        """When a run has to be over that is started by a candidate, or (None) by something else.

        A selector may go on after the deadline; its own limit says for how long.
        """
        if attempt is not None:
            limit = math.inf if attempt.limit is None else attempt.limit
            return min(self.state.deadline, limit)
        selecting = self.call if self.is_selecting else None
        return self.state.deadline if selecting is None else selecting.limit

    @property
    def is_selecting(self) -> bool:
        """Whether a selector is at work."""
        return self.call is not None and not self.call.over and self.call.phase == "selecting"

    def ask(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call code of the user's that belongs on the loop, such as a key function.

        Returns:
            Its value, or `Raised`. An interrupt stops the run.
        """
        value = call_now(function, args, self.context.copy())
        if isinstance(value, Interrupt):
            self._interrupted(value.error)
        return value

    def on_stop(self, now: float) -> None:
        """The run was told to stop, and so is the callback at work, if there is one."""
        super().on_stop(now)
        self.limit_call(now)

    def limit_call(self, now: float) -> None:
        """Say anew how long the callback at work may take, if there is one."""
        if self.call is not None and not self.call.over:
            self._limit(self.call, now)

    # -- the two callbacks -----------------------------------------------------------------------

    async def build(self, function: Callable[..., Any]) -> None:
        """Have the requests built, one after another, before any candidate begins.

        Whatever ends the run meanwhile leaves those that are built to be skipped.
        """
        state = self.state
        requests: list[Any] = []
        await self._call_out("building", function, build_each(state.request, state.n, requests))
        state.built(tuple(requests), trio.current_time())

    async def select(self) -> None:
        """Choose, when every record is made; in place, or by asking for as long as there is time.

        What comes out of it is in `state.choice`.
        """
        state, asks = self.state, self.state.job.asks
        state.skip_pending()
        if state.choose():
            return
        assert asks is not None
        call = await self._call_out("selecting", asks.function, asks.script(state.case()))
        if call is not None and call.answered:
            state.chosen(call.outcome)
        else:
            state.selection_failed(None if call is None else call.failure)

    # -- inside ----------------------------------------------------------------------------------

    async def _call_out(
        self, phase: Literal["selecting", "building"], function: Callable[..., Any], script: Asking
    ) -> JobCall | None:
        """Play a script to its end, or until there is no time left and it is given up.

        Returns:
            The call; None if it was given up.
        """
        state, services = self.state, self.services
        run_id, threads = state.run_id, services.threads
        call = JobCall(phase, function, script, self.context, threads, run_id, self.wake)
        self.call = call
        self._limit(call, trio.current_time())
        services.spawn(call.work)
        while not call.over and trio.current_time() < self._end_of(call):
            until = min(self._end_of(call), math.inf if state.stopping else state.deadline)
            with trio.CancelScope(shield=True, deadline=until):
                await self.heard()
            now = trio.current_time()
            if not state.stopping and now >= state.deadline:
                state.stop(self.deadline_reason, now)
            elif self.grace is None and phase == "building" and not state.admitting:
                self.begin_grace(now)
                self._limit(call, now)
        await last_passes(lambda: None if call.over else call.steps)
        if not call.over:
            call.cut("its run gave up on it")
            if call.thread is not None:
                call.thread.abandon()
            self.detach_call(self, call, trio.current_time())
            return None
        if call.bug is not None:
            self.crashed(call.bug)
        elif call.interrupt is not None:
            self._interrupted(call.interrupt)
        return call

    def _limit(self, call: JobCall, now: float) -> None:
        """Say how long a call may take, as far as that is known."""
        grace = self.grace
        if grace is None:
            # For a selector, what it has at the most: a stop that comes earlier moves that.
            more = 0.9 * self.grace_seconds if call.phase == "selecting" else 0.0
            call.limit_to(self.state.deadline + more)
        elif call.phase == "building" or self._is_pointless():
            call.cut(f"{self.state.run_id}: {self.why or self.state.stop_reason}")
        else:
            call.limit_to(_end_of_selecting(grace, now))

    def _is_pointless(self) -> bool:
        """Whether nobody will be selected anyway, now that the run is stopped."""
        return self.state.interrupt is not None or self.state.job.on_early_stop == "fail"

    def _end_of(self, call: JobCall) -> float:
        """When a call is given up, as far as that is known."""
        if self.grace is None:
            return math.inf
        if call.phase == "building" or self._is_pointless():
            return self.grace.work_until
        return call.limit

    def _interrupted(self, error: BaseException) -> None:
        self.state.interrupt = self.state.interrupt or error
        self.state.stop("cancelled", self.clock.current_time())


def _end_of_selecting(grace: Grace, now: float) -> float:
    """Half of the delivery share is the selector's, also if the loop was blocked over it all."""
    half = (grace.until - grace.work_until) / 2
    return now + half if now > grace.until else grace.work_until + half


async def last_passes(steps_left: Callable[[], int | None]) -> None:
    """Let the scheduler go round a few times before work is given up.

    Clean-up that is cut at this very instant unwinds in them, and so does work that was not
    stepped before because the loop was blocked. Whoever is still being stepped unwinds, or
    spins; the limit tells.

    Args:
        steps_left: how often what is left has been resumed; None once nothing is left.
    """
    before, still = -1, 0
    for _ in range(MOST_PASSES):
        steps = steps_left()
        still = still + 1 if steps == before else 0
        if steps is None or still == FEWEST_PASSES:
            return
        before = steps
        await trio.lowlevel.cancel_shielded_checkpoint()
