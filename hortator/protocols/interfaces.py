"""The interfaces that callbacks, selectors and actors are written against."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import attrs

from hortator.protocols.usage import COST, DIMENSIONS, Usage, dollars

Req = TypeVar("Req")
Out = TypeVar("Out")
Message_contra = TypeVar("Message_contra", contravariant=True)


class Address(Protocol[Message_contra]):
    """Where an actor is told things: the sending end of its mailbox fits."""

    def send_nowait(self, value: Message_contra, /) -> None:
        """Leave a message; never waits."""
        ...


@attrs.frozen(kw_only=True)
class Remaining:
    """What a candidate has left. None is unlimited.

    Attributes:
        seconds: until the deadline; never negative.
        model_calls: of its lease; the other amounts likewise.
    """

    seconds: float | None
    model_calls: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: Any = None

    @classmethod
    def of(cls, seconds: float | None, amounts: Iterable[tuple[int, int]]) -> Remaining:
        """So much time, and of each dimension (by its position) so much; none is below zero."""
        left: dict[str, Any] = {}
        for position, amount in amounts:
            name, least = DIMENSIONS[position], max(0, amount)
            left[name] = dollars(least) if position == COST else least
        return cls(seconds=seconds, **left)


class CandidateContext(Protocol):
    """What a callback is given to see and steer its candidate with.

    Everything but the async members, `cleanup` and entering `effect` may also be called from a
    worker thread.
    """

    @property
    def index(self) -> int:
        """The candidate's place in the run, from 0."""
        ...

    @property
    def seed(self) -> int:
        """64 bits, the same for the same run seed and index (SplitMix64)."""
        ...

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def deadline(self) -> float | None:
        """When the candidate is cut, in seconds on Trio's clock; None without a deadline."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the candidate has been told to stop. Sync code should look at it."""
        ...

    def remaining(self) -> Remaining:
        """Seconds, calls, tokens and money that are left."""
        ...

    def charge(self, usage: Usage) -> None:
        """Record what was spent: always recorded, then checked against the lease.

        Raises:
            LeaseExceeded: the lease does not cover it.
            RunEnded: the candidate has ended; nothing was recorded in its result.
        """
        ...

    async def reserve(self, usage: Usage) -> bool:
        """Widen the lease before spending more; False if the budget does not allow it.

        If it is cancelled, nothing was reserved.

        Raises:
            InvalidJob: the amount can't be true.
            RunEnded: the candidate has ended.
        """
        ...

    def publish(self, output: Any, score: Any = None) -> None:
        """Offer an output before the end.

        If the candidate is cut, its last publication that had a score stands as its output,
        marked `partial`, and may be selected. Containers in it are copied.

        Raises:
            InvalidScore: the score is no finite number, nor a `Score` of one.
        """
        ...

    def emit(self, kind: str, **data: Any) -> None:
        """Tell observers something of your own. May be dropped when they are slow."""
        ...

    def raise_if_stopping(self) -> None:
        """For sync code.

        Raises:
            RunStopping: the candidate has been told to stop.
        """
        ...

    def cleanup(self, seconds: float | None = None) -> AbstractContextManager[None]:
        """A shield for clean-up that has to await, limited to what is left of the grace.

        Without it an await in a `finally` is cut at once when the candidate is cancelled.

        Args:
            seconds: at most so long; None for all that is left of the work share of the grace.
        """
        ...

    def effect(
        self, name: str, kind: Literal["read", "write"]
    ) -> AbstractAsyncContextManager[None]:
        """Declare a side effect now, perform it inside `async with`: its end is recorded.

        Entering raises `SideEffectBlocked` for a write in an isolated run.
        """
        ...


class BatchContext(Protocol):
    """What a batch scorer is given to see its call with. All of it may be used from a thread."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...

    @property
    def deadline(self) -> float | None:
        """When the call is cut, in seconds on Trio's clock; None without a deadline."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the call has been told to stop. Sync code should look at it."""
        ...

    def raise_if_stopping(self) -> None:
        """For sync code.

        Raises:
            RunStopping: the call has been told to stop.
        """
        ...


Generate: TypeAlias = (
    Callable[[Req, CandidateContext], Awaitable[Out]] | Callable[[Req, CandidateContext], Out]
)
"""A generator: async, or sync and then run in a worker thread."""
