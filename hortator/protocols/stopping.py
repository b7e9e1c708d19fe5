"""Rules that end a run before all candidates have ended.

A rule is a description, reusable and without state. `met` is asked each time a candidate
has been scored and is eligible.
"""

from __future__ import annotations

import sys
from typing import Literal, Protocol, TypeAlias

import attrs

from hortator.protocols.errors import InvalidJob
from hortator.protocols.scoring import Objective, reaches

StopReason: TypeAlias = Literal[
    "completed",
    "first_accepted",
    "target",
    "vote_decided",
    "consistency",
    "deadline",
    "outer_deadline",
    "stopped",
    "cancelled",
    "budget_exceeded",
    "slots_lost",
    "no_eligible",
    "selector_declined",
    "selection_failed",
    "observer_failed",
]

CUT_SHORT: frozenset[StopReason] = frozenset(
    {
        "deadline",
        "outer_deadline",
        "stopped",
        "cancelled",
        "budget_exceeded",
        "slots_lost",
        "observer_failed",
    }
)
"""Reasons that make a result `partial`: the run was ended, it did not end by its own rule."""


class StopRule(Protocol):
    """When enough is known."""

    @property
    def reason(self) -> StopReason:
        """The `stop_reason` of a run that this rule ended."""
        ...

    @property
    def takes_the_first(self) -> bool:
        """Whether the candidate that meets the rule is the one to select."""
        ...

    def met(self, value: float, objective: Objective) -> bool:
        """Whether an eligible score of `value` ends the run."""
        ...


@attrs.frozen
class AllCandidates:
    """Never ends a run early."""

    reason: StopReason = "completed"
    takes_the_first: bool = False

    def met(self, value: float, objective: Objective) -> bool:
        """Never."""
        return False


@attrs.frozen
class FirstAccepted:
    """Ends with the first eligible candidate, and selects it."""

    reason: StopReason = "first_accepted"
    takes_the_first: bool = True

    def met(self, value: float, objective: Objective) -> bool:
        """At the first eligible score."""
        return True


@attrs.frozen
class Target:
    """Ends with the first eligible score at `value` or better; the best so far is selected."""

    value: float
    reason: StopReason = "target"
    takes_the_first: bool = False

    def met(self, value: float, objective: Objective) -> bool:
        """Once a score is at the target or better."""
        return reaches(value, self.value, objective)


def all_candidates() -> StopRule:
    """Let every candidate end by itself: the rule of a job that names none."""
    return AllCandidates()


def first_accepted() -> StopRule:
    """Stop as soon as one candidate is eligible, select it and cancel the others."""
    return FirstAccepted()


def target(value: float) -> StopRule:
    """Stop as soon as one candidate scores `value` or better, and cancel the others.

    Args:
        value: inclusive, and read in the direction of the job's `objective`.

    Raises:
        InvalidJob: it is not a finite number.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not number or not -sys.float_info.max <= value <= sys.float_info.max:
        raise InvalidJob(f"target({value!r}): the target is a finite number, such as target(0.9)")
    return Target(float(value))
