"""Stopping rules for votes: the rest can't change the winner, or hardly will."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import attrs

from hortator.protocols.asking import Raised
from hortator.protocols.candidate import Candidate, Status
from hortator.protocols.checking import is_number
from hortator.protocols.errors import InvalidJob
from hortator.protocols.showing import shown
from hortator.protocols.stopping import Follower, Following, StopReason, StopRule
from hortator.protocols.voting import Groups, Key, checked


def sure(leader: int, runner_up: int, remaining: int) -> bool:
    """Whether so many remaining votes can't even make it a tie.

    >>> sure(3, 1, remaining=2), sure(3, 1, remaining=1)
    (False, True)
    """
    return leader - runner_up > remaining


def stability(leader: int, runner_up: int) -> Fraction:
    """How probable it is that the leading answer is the more frequent one of the two.

    With v1 and v2 votes and a uniform prior that is I½(v2 + 1, v1 + 1), the regularised incomplete
    beta function. For whole numbers it is the chance of more than v2 heads in m = v1 + v2 + 1
    tosses of a fair coin, sum(C(m, j) for j from v2 + 1 to m) / 2**m, and so it is exact.

    >>> stability(3, 0), stability(4, 0)
    (Fraction(15, 16), Fraction(31, 32))
    """
    tosses = leader + runner_up + 1
    heads = sum(math.comb(tosses, j) for j in range(runner_up + 1))
    return 1 - Fraction(heads, 1 << tosses)


class Count:
    """The votes of one run as they come in."""

    def __init__(self, run: Following, key: Key | None, enough: Callable[..., bool]) -> None:
        self._key = run.key if key is None else key
        self._ask, self._enough = run.ask, enough
        self._remaining = run.n
        self._groups = Groups()
        self._votes: list[int] = []
        self._leader = self._runner_up = 0
        self._leading: int | None = None

    def ended(self, record: Candidate[Any]) -> bool:
        """Count its vote, if it has one; a key that raises has none. Whether that is enough.

        When nobody is left there is nothing to stop.
        """
        self._remaining -= 1
        if record.status is Status.ELIGIBLE:
            number = self._ask(self._number, (record.output,))
            if not isinstance(number, Raised):
                self._count(number)
        if not self._remaining or not self._leader:
            return False
        return self._enough(self._leader, self._runner_up, self._remaining)

    def _count(self, number: int) -> None:
        if number == len(self._votes):
            self._votes.append(0)
        self._votes[number] = votes = self._votes[number] + 1
        if number == self._leading:
            self._leader = votes
        elif votes > self._leader:
            self._leader, self._runner_up, self._leading = votes, self._leader, number
        elif votes > self._runner_up:
            self._runner_up = votes

    def _number(self, output: Any) -> int:
        return self._groups.number(output if self._key is None else self._key(output))


@attrs.frozen
class VoteDecided:
    """Ends when the remaining votes can't change the winner of a plurality vote."""

    key: Key | None = None
    reason: StopReason = "vote_decided"
    takes_the_first: bool = False

    def follow(self, run: Following) -> Follower | None:
        """One that counts."""
        return Count(run, self.key, sure)


@attrs.frozen
class AdaptiveConsistency:
    """Ends when the leader of a plurality vote is the more frequent answer, with confidence."""

    key: Key | None = None
    confidence: float = 0.95
    reason: StopReason = "consistency"
    takes_the_first: bool = False

    def follow(self, run: Following) -> Follower | None:
        """One that counts."""
        wanted = Fraction(self.confidence)

        def enough(leader: int, runner_up: int, remaining: int) -> bool:
            return stability(leader, runner_up) >= wanted

        return Count(run, self.key, enough)


def vote_decided(key: Key | None = None) -> StopRule:
    """Stop as soon as the remaining candidates can't change who wins the vote.

    That is so when the leading group is further ahead of the next one than there are candidates
    that have not ended; one that fails has no vote. Which group wins is then what it would have
    been with all candidates; its representative is the first of those that have ended. The others
    are cancelled, and what they cost is shown. Goes with `select=plurality_vote(...)`.

    Args:
        key: as of `plurality_vote`; None takes the selector's. A vote whose key raises isn't
            counted here; the selection will fail of it.

    Raises:
        InvalidJob: the key can't be called with one argument, or is async.

    >>> vote_decided().reason
    'vote_decided'
    """
    return VoteDecided(checked("key", key, "output"))


def adaptive_consistency(key: Key | None = None, confidence: float = 0.95) -> StopRule:
    """Stop as soon as the leading answer is probably the most frequent one.

    The Beta stopping criterion of Aggarwal, Madaan, Yang and Mausam, "Let's sample step by step:
    adaptive-consistency for efficient reasoning and coding with LLMs" (EMNLP 2023,
    arXiv:2305.11860). With v1 and v2 votes for the two largest groups it stops when

        P(p1 > p2) = I½(v2 + 1, v1 + 1) >= confidence,

    where I is the regularised incomplete beta function, computed exactly: see `stability`. At
    0.95 that is after 4 votes to 0, 6 to 1, 8 to 2, 9 to 3. The others are cancelled, and what
    they cost is shown. Goes with `select=plurality_vote(...)`.

    Args:
        key: as of `vote_decided`.
        confidence: a probability, more than 0.5 and less than 1.

    Raises:
        InvalidJob: the key can't be called with one argument, or the confidence can't be meant.

    >>> adaptive_consistency(confidence=0.99).reason
    'consistency'
    """
    if not is_number(confidence) or not 0.5 < confidence < 1:
        raise InvalidJob(
            f"adaptive_consistency(confidence={shown(confidence)}): write a probability above 0.5"
            " and below 1, such as confidence=0.95"
        )
    return AdaptiveConsistency(checked("key", key, "output"), float(confidence))
