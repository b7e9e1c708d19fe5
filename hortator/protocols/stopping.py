"""Rules that end a run before all candidates have ended.

A rule is a description, reusable and without state. For each run it makes a *follower*, which
is told of each candidate's end and says when enough is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.checking import is_number
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


@attrs.frozen
class Following:
    """What a rule is told of the run that it is to follow.

    Attributes:
        n: how many candidates there are.
        objective: whether a larger or a smaller score is better.
        key: of the job's selector, if that is a vote.
        ask: `ask(function, args)` calls code of the user's on the loop; `Raised` if that raises.
    """

    n: int
    objective: Objective
    key: Callable[[Any], Any] | None
    ask: Callable[[Callable[..., Any], tuple[Any, ...]], Any]


class Follower(Protocol):
    """A rule at work in one run."""

    def ended(self, record: Candidate[Any]) -> bool:
        """Take in a candidate's end, whatever its status; whether enough is known now."""
        ...


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

    def follow(self, run: Following) -> Follower | None:
        """A follower for one run; None if nothing ever meets the rule."""
        ...


@attrs.frozen
class AllCandidates:
    """Never ends a run early."""

    reason: StopReason = "completed"
    takes_the_first: bool = False

    def follow(self, run: Following) -> Follower | None:
        """Nobody has to look."""
        return None


@attrs.frozen
class FirstAccepted:
    """Ends with the first eligible candidate, and selects it."""

    reason: StopReason = "first_accepted"
    takes_the_first: bool = True

    def follow(self, run: Following) -> Follower | None:
        """Itself: it has nothing to remember."""
        return self

    def ended(self, record: Candidate[Any]) -> bool:
        """At the first eligible candidate."""
        return record.status is Status.ELIGIBLE


@attrs.frozen
class Target:
    """Ends with the first eligible score at `value` or better; the best so far is selected."""

    value: float
    reason: StopReason = "target"
    takes_the_first: bool = False

    def follow(self, run: Following) -> Follower | None:
        """One that knows the direction."""
        return Reached(self.value, run.objective)


@attrs.frozen
class Reached:
    """A target in one run."""

    value: float
    objective: Objective

    def ended(self, record: Candidate[Any]) -> bool:
        """Once a score is at the target or better."""
        if record.status is not Status.ELIGIBLE or record.score is None:
            return False
        return reaches(record.score.value, self.value, self.objective)


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
    if not is_number(value):
        raise InvalidJob(f"target({value!r}): the target is a finite number, such as target(0.9)")
    return Target(float(value))
