"""What outlived its run: who it is, where it is stuck, what it came to in the end."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from hortator.actors.callbacks import Failed
from hortator.actors.frames import awaited, innermost, stack
from hortator.protocols.account import Account
from hortator.protocols.attempt import Attempt
from hortator.protocols.candidate import Detached, Status
from hortator.protocols.usage import Usage

Doing: TypeAlias = Literal["generating", "scoring", "observing", "selecting", "building"]

_WHO = {"observing": "an observer", "selecting": "the selector", "building": "the builder"}


class DetachedWork:
    """A task or thread that a run gave up on.

    Attributes:
        attempt: the candidate, None for an observer, selector or builder.
        ended: whether it has ended since.
        account: where its lease is settled, None if it has none.
    """

    run_id: str
    attempt: Attempt | None
    since: float
    ended: bool
    account: Account | None

    def __init__(
        self,
        run_id: str,
        attempt: Attempt | None,
        phase: Doing,
        since: float,
        frame: Callable[[], types.FrameType | None] | None,
        coroutine: Any,
        account: Account | None = None,
    ) -> None:
        self.account = account
        self.run_id, self.attempt, self.since = run_id, attempt, since
        self.phase: Doing = phase
        self.ended = False
        self._frame, self._coroutine = frame, coroutine
        self._kind: Literal["task", "thread"] = "task" if frame is None else "thread"
        self._last_where = "not known"
        self._late_usage: Usage | None = None
        self._error: BaseException | None = None
        self.where()

    @property
    def is_thread(self) -> bool:
        """Whether a worker thread carries it."""
        return self._kind == "thread"

    def end(self, value: Any, late_usage: Usage | None) -> None:
        """It has ended: with a value that nobody wants any more, or with an error."""
        self.ended = True
        self._late_usage = late_usage
        self._error = value.error if isinstance(value, Failed) else None
        self._coroutine = self._frame = None

    def where(self) -> str:
        """ "file:line in function" of the innermost place outside trio and this library."""
        if not self.ended:
            if self._frame is not None:
                frame = self._frame()
                frames = stack(frame)
            else:
                frames = awaited(self._coroutine)
            self._last_where = innermost(frames) or self._last_where
        return self._last_where

    def tale(self) -> str:
        """Who it is and where it stands, for a log line."""
        who = f"candidate {self.attempt.index}" if self.attempt is not None else _WHO[self.phase]
        return f"{who} of {self.run_id} ({self.phase}) at {self.where()}"

    def record(self) -> Detached:
        """What is known of it at this moment."""
        attempt = self.attempt
        return Detached(
            run_id=self.run_id,
            candidate=None if attempt is None else attempt.index,
            phase=self.phase,
            since=self.since,
            kind=self._kind,
            where=self.where(),
            lease=Usage() if attempt is None or self.ended else Usage.of(attempt.lease.cap),
            ended=self.ended,
            late_usage=self._late_usage,
            error=self._error,
        )


def phase_of(attempt: Attempt) -> Doing:
    """What a candidate that is given up is doing."""
    return "scoring" if attempt.status is Status.SCORING else "generating"
