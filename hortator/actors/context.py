"""What a callback sees of its candidate: the running half of `CandidateContext`."""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, Literal, Protocol

import trio

from hortator.actors.cleanups import Cleanups
from hortator.actors.ledger import answered
from hortator.protocols.attempt import Attempt, Declared
from hortator.protocols.checking import seconds as check_seconds
from hortator.protocols.copying import private_copy
from hortator.protocols.errors import (
    InvalidJob,
    InvalidScore,
    RunEnded,
    RunStopping,
    SideEffectBlocked,
)
from hortator.protocols.events import CandidatePublished, EffectChanged, Emitted
from hortator.protocols.interfaces import Remaining
from hortator.protocols.run import RunState
from hortator.protocols.scoring import read_score
from hortator.protocols.seeds import candidate_seed
from hortator.protocols.showing import shown
from hortator.protocols.usage import Usage

current: contextvars.ContextVar[Context | None] = contextvars.ContextVar(
    "hortator candidate", default=None
)
"""The candidate that code runs for: set for its callbacks, and whatever those start."""


class Surroundings(Protocol):
    """What a context needs to know of the run around its candidate."""

    state: RunState
    token: trio.lowlevel.TrioToken
    clock: trio.abc.Clock
    loop_thread: int
    refused: int
    cleanups: Cleanups

    def tell_late(self, attempt: Attempt, event: Callable[..., Any], rest: tuple[Any, ...]) -> None:
        """Tell the runtime's observers of what detached work does."""
        ...


class Context:
    """The context of one candidate; see `CandidateContext` for what its members promise.

    Attributes:
        attempt: the candidate, for the runs that it starts.
        around: the run that it belongs to.
    """

    attempt: Attempt
    around: Surroundings

    __slots__ = ("_state", "around", "attempt")

    def __init__(self, around: Surroundings, attempt: Attempt) -> None:
        self.around, self.attempt, self._state = around, attempt, around.state

    def __repr__(self) -> str:
        return f"<Context of candidate {self.attempt.index} of {self.run_id}>"

    @property
    def index(self) -> int:
        """The candidate's place in the run, from 0."""
        return self.attempt.index

    @property
    def seed(self) -> int:
        """64 bits, the same for the same run seed and index."""
        return candidate_seed(self._state.seed, self.attempt.index)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._state.run_id

    @property
    def deadline(self) -> float | None:
        """Seconds on Trio's clock, None without a deadline."""
        latest, limit = self._state.deadline, self.attempt.limit
        if limit is not None:
            latest = min(latest, limit)
        return None if latest == math.inf else latest

    @property
    def stopping(self) -> bool:
        """Whether the candidate has been told to stop, or has ended."""
        attempt, state = self.attempt, self._state
        if state.stopping or attempt.ended:
            return True
        # The clock is asked too: a candidate's own timeout stops no run, and a thread sees the
        # deadline also while the loop is blocked.
        return state.late(attempt, self.around.clock.current_time())

    def remaining(self) -> Remaining:
        """What is left: seconds to the deadline, amounts of the lease (None: not limited)."""
        deadline, lease = self.deadline, self.attempt.lease
        left = [(p, lease.cap[p] - lease.used(p)) for p in lease.rates.limited]
        now = self.around.clock.current_time()
        return Remaining.of(None if deadline is None else max(0.0, deadline - now), left)

    @trio.lowlevel.enable_ki_protection
    def charge(self, usage: Usage) -> None:
        """Record what was spent, then check it against the lease."""
        attempt = self.attempt
        if attempt.over:
            self.around.refused += 1
            raise RunEnded(f"candidate {attempt.index} has ended: its charge was not recorded")
        phase: Literal["generating", "scoring"] = "scoring" if attempt.scorer_ran else "generating"
        attempt.book.charge(attempt.lease, phase, usage)

    async def reserve(self, usage: Usage) -> bool:
        """Widen the lease; wait for what others give back as long as that can help.

        If it is cancelled, nothing was reserved.
        """
        await trio.lowlevel.checkpoint()
        attempt = self.attempt
        if attempt.ended:
            raise RunEnded(f"candidate {attempt.index} has ended: there is nothing to reserve")
        granted = await answered(attempt.book.ask_for_more(attempt.lease, usage))
        attempt.denied = attempt.denied or not granted
        return granted

    @trio.lowlevel.enable_ki_protection
    def publish(self, output: Any, score: Any = None) -> None:
        """Offer an output before the end; the last one that had a score stands if we are cut."""
        try:
            read = None if score is None else read_score(score)
        except InvalidScore as error:
            raise InvalidScore(f"ctx.publish(output, {shown(score)}): {error}") from error
        # A list that is revised after it was published must not change what was published.
        self._on_loop(self._publish, private_copy(output), read)

    @trio.lowlevel.enable_ki_protection
    def emit(self, kind: str, **data: Any) -> None:
        """Tell observers something of your own."""
        self._on_loop(self._tell, Emitted, kind, data)

    def raise_if_stopping(self) -> None:
        """Raise `RunStopping` if told to stop."""
        if self.stopping:
            raise RunStopping(f"candidate {self.attempt.index} has been told to stop")

    def cleanup(self, seconds: float | None = None) -> AbstractContextManager[None]:
        """A shield that ends with the work share of the grace, counted from the run's stop.

        Until the run is stopped it ends that much after the deadline; the stop moves its end,
        and so does `handle.extend`.
        """
        check_seconds("seconds", seconds)
        return self.around.cleanups.shield(self.attempt, seconds)

    def effect(
        self, name: str, kind: Literal["read", "write"]
    ) -> AbstractAsyncContextManager[None]:
        """Declare a side effect; perform it inside `async with`."""
        if kind not in ("read", "write"):
            raise InvalidJob(f"effect({name!r}, {kind!r}): kind is 'read' or 'write'")
        declared = Declared(name, kind)
        attempt = self.attempt
        if attempt.effects is None:
            attempt.effects = []
        attempt.effects.append(declared)
        return self._performed(declared)

    @asynccontextmanager
    async def _performed(self, declared: Declared) -> AsyncGenerator[None]:
        await trio.lowlevel.checkpoint_if_cancelled()  # told to stop: it stays not_started
        if declared.kind == "write" and self._state.job.side_effects == "isolate":
            raise SideEffectBlocked(
                f"the write {declared.name!r} was not begun: this job isolates side effects;"
                " write BestOfN(side_effects='allow') if each candidate may write"
            )
        # Unknown until its end is seen: a cut in the middle may have let it happen or not.
        self._change(declared, "unknown")
        try:
            yield
        except Exception:
            # An error of the effect's own is its end; what comes out of one that was told to
            # stop is not, no more than a Cancelled is: it may have happened or not.
            if not self.stopping:
                self._change(declared, "failed")
            raise
        self._change(declared, "done")

    @trio.lowlevel.enable_ki_protection
    def _change(self, declared: Declared, state: Literal["unknown", "done", "failed"]) -> None:
        if not self.attempt.ended:  # a record that is made does not change any more
            declared.state = state
        self._tell(EffectChanged, declared.name, state)

    def _publish(self, output: Any, score: Any) -> None:
        attempt = self.attempt
        if not attempt.ended:
            attempt.published += 1
            if score is not None or attempt.published_score is None:
                attempt.published_output, attempt.published_score = output, score
        self._tell(CandidatePublished, score)
        if score is not None:
            self._state.judge(attempt, score, trio.current_time())

    def _tell(self, event: Callable[..., Any], *rest: Any) -> None:
        attempt = self.attempt
        if attempt.over:
            self.around.refused += 1
        elif attempt.detached:
            self.around.tell_late(attempt, event, rest)
        else:
            self._state.tell(event, attempt.index, trio.current_time(), *rest)

    def _on_loop(self, function: Callable[..., None], *args: Any) -> None:
        if threading.get_ident() == self.around.loop_thread:
            function(*args)
            return
        try:
            self.around.token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            self.around.refused += 1  # the loop is over, and so is whoever would be told
