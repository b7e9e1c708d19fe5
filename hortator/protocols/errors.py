"""Every error of the library, in one tree.

::

    HortatorError
    ├── InvalidJob (also ValueError)      a job, limit or callback that cannot work as written
    │   └── DoesNotFit                    n estimates do not fit the job's own limits
    ├── InvalidChoice (also ValueError)   a selector's or judge's answer is none of its choices
    ├── NoEligibleCandidate               `RunResult.output` was read, and nothing was selected
    ├── ObserverFailed                    strict mode: an observer raised (has `.result`)
    ├── RuntimeClosed                     a run was started on a runtime that has been left
    ├── InvalidReport (also ValueError)   a text is no report or event of a run
    ├── RecordedError                     in a result that was read: what a candidate failed of
    └── CandidateError                    why one candidate failed: kept on it, never raised
        ├── LeaseExceeded                 spent more than its lease covers
        ├── RunEnded                      used its context after its own end
        ├── RunStopping                   `ctx.raise_if_stopping()`: told to stop
        ├── SideEffectBlocked             a write was tried in an isolated run
        ├── NoThreadLeft                  every worker thread is held by detached work
        ├── StrayCancelled                a Cancelled came out, though nobody had cancelled
        └── InvalidScore (also ValueError)   the scorer's answer is not a finite number

What a user's callback raises is kept as itself on its candidate; it is never wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class HortatorError(Exception):
    """The base of all errors that this library raises."""


class InvalidJob(HortatorError, ValueError):
    """A job, limit, callback or argument cannot work as written. Nothing was started by it."""


class DoesNotFit(InvalidJob):
    """The estimates of all n candidates together do not fit a limit of the job's own budget."""


class InvalidChoice(HortatorError, ValueError):
    """What a selector or judge returned is not one of what it was given.

    Kept as the `selection_error` of a result, never raised.
    """


class NoEligibleCandidate(HortatorError):
    """`RunResult.output` was read, but no candidate was selected.

    Attributes:
        causes: what the selection failed of, if it did; then what each failed candidate failed
            of, in index order.
    """

    def __init__(self, message: str, causes: Sequence[BaseException] = ()) -> None:
        super().__init__(message)
        self.causes: tuple[BaseException, ...] = tuple(causes)


class ObserverFailed(HortatorError):
    """An observer raised in a run with `on_observer_error="raise"`. The books are closed.

    Attributes:
        result: what the run came to, up to the stop.
        failures: what observers raised, in the order of their calls.
    """

    __cause__: BaseException | None

    def __init__(self, result: Any, failures: Sequence[BaseException]) -> None:
        super().__init__(
            f"an observer raised {type(failures[0]).__name__}; .result has the run's result"
        )
        self.result = result
        self.failures: tuple[BaseException, ...] = tuple(failures)
        self.__cause__ = failures[0]


class RuntimeClosed(HortatorError):
    """A run was started on a runtime that has been left or is being left."""


class InvalidReport(HortatorError, ValueError):
    """A text is not the report of a run, or not an event: the message says where, and why."""


class RecordedError(HortatorError):
    """What a candidate failed of, as a report tells it. Nothing raises it.

    >>> error = RecordedError("KeyError", "'seed'")
    >>> error.type_name, str(error)
    ('KeyError', "'seed'")

    Attributes:
        type_name: the name of the class that it had when the run was recorded.
    """

    def __init__(self, type_name: str, message: str) -> None:
        super().__init__(type_name, message)
        self.type_name: str = type_name
        self._message = message

    def __str__(self) -> str:
        return self._message


class CandidateError(HortatorError):
    """Why one candidate failed, as this library tells it."""


class LeaseExceeded(CandidateError):
    """The candidate has spent more than its lease covers. The spend is recorded all the same."""


class RunEnded(CandidateError):
    """A candidate's context was used after the candidate had ended. Nothing was changed by it."""


class RunStopping(CandidateError):
    """`ctx.raise_if_stopping()` was called, and the candidate has been told to stop."""


class SideEffectBlocked(CandidateError):
    """A write was tried by a candidate of a job with `side_effects="isolate"`."""


class NoThreadLeft(CandidateError):
    """A sync callback could not start: every worker thread is held by detached work."""


class StrayCancelled(CandidateError):
    """A callback let a `trio.Cancelled` out though neither it nor the run had been cancelled.

    Most often a cancel scope or nursery of a library was closed in another task than the one
    that opened it. Fails that candidate alone.
    """


class InvalidScore(CandidateError, ValueError):
    """The scorer's answer is not a finite real number, nor a `Score` of one."""


def nothing_but(error: BaseException, kind: type[Exception]) -> bool:
    """Whether it is such an error, or a group of nothing but such errors."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)[1] is None  # pyright: ignore[reportUnknownMemberType]
    return isinstance(error, kind)
