"""A knock-out tournament: a judge compares two candidates at a time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from hortator.protocols.asking import Asking, AskingFailed, Case
from hortator.protocols.candidate import Candidate, Generated
from hortator.protocols.errors import InvalidJob
from hortator.protocols.interfaces import Out
from hortator.protocols.selection import Asks, first_of, in_order
from hortator.protocols.showing import shown
from hortator.protocols.signatures import check_callback
from hortator.protocols.usage import Usage, estimated

T = TypeVar("T")


@attrs.frozen
class Preference(Generic[Out]):
    """What a judge prefers, with what it has to say about it.

    Attributes:
        winner: the better one of the two it was shown, or None for a tie.
        usage: what the comparison cost, if it cost anything.
        rationale: why, for people.

    >>> Preference(None, rationale="both are right").winner is None
    True
    """

    winner: Generated[Out] | None
    usage: Usage | None = None
    rationale: str = ""


Verdict: TypeAlias = Generated[Any] | Preference[Any] | None
Judge: TypeAlias = (
    Callable[[Any, Generated[Any], Generated[Any]], Awaitable[Verdict]]
    | Callable[[Any, Generated[Any], Generated[Any]], Verdict]
)
"""A judge: async, or sync and then run in a worker thread."""


def bracket(entrants: Sequence[T], seed: int) -> Generator[tuple[T, T], T, T]:
    """A knock-out among at least one entrant: yields pairs and is sent the winner of each.

    The order is drawn from the seed. There are as many byes, all in the first round, as it takes
    for the second one to have a power of two; so there are exactly `len(entrants) - 1` pairs, and
    nobody plays more than one pair less than another on the way to the final.

    Returns:
        Who won the last pair.

    >>> pairs = bracket("abc", seed=1)
    >>> len(next(pairs))
    2
    """
    standing = list(entrants)
    random.Random(seed).shuffle(standing)
    byes = (1 << (len(standing) - 1).bit_length()) - len(standing)
    while len(standing) > 1:
        through, playing = standing[:byes], standing[byes:]
        for first, second in zip(playing[::2], playing[1::2], strict=True):
            through.append((yield first, second))
        standing, byes = through, 0
    return standing[0]


@attrs.frozen
class Tournament:
    """A selector that asks a judge about pairs.

    Attributes:
        function: the judge.
        comparisons: how many there are at the most, None for as many as it takes.
        estimate: what one comparison is expected to cost.
    """

    function: Callable[..., Any]
    comparisons: int | None = None
    estimate: Usage = Usage()
    name: str = "tournament"
    needs_scores: bool = False

    def script(self, case: Case) -> Asking:
        """Play the bracket; a pair that can't be afforded is decided by the built-in order."""
        entrants = in_order(case.candidates, case.objective, case.tolerance)
        if not entrants:
            return None
        if self.comparisons is not None:
            entrants = entrants[: self.comparisons + 1]
        pairs = bracket(sorted(entrants, key=lambda entrant: entrant.index), case.seed)
        winner: Candidate[Any] | None = None
        while True:
            try:
                pair = pairs.send(winner) if winner is not None else next(pairs)
            except StopIteration as over:
                champion: Candidate[Any] = over.value
                return champion.index
            winner = yield from self._play(case, *pair)

    def _play(
        self, case: Case, first: Candidate[Any], second: Candidate[Any]
    ) -> Generator[tuple[Any, ...], Any, Candidate[Any]]:
        winner = None
        answer: object = None
        if case.afford():
            answer = yield from case.ask(case.request, _as_shown(first), _as_shown(second))
            winner, usage = _read(answer, case)
            case.spend(usage)
        if winner is None:
            better = first_of((first, second), case.objective, case.tolerance)
        else:
            better = next((each for each in (first, second) if each.index == winner), None)
        if better is None:
            raise _unusable(answer, case)
        return better


def _read(answer: object, case: Case) -> tuple[int | None, Usage | None]:
    """The index of the winner, None for a tie, and what the comparison cost."""
    usage: Usage | None = None
    if isinstance(answer, Preference):
        usage = answer.usage
        answer = answer.winner  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if answer is None:
        return None, usage
    if isinstance(answer, Generated):
        # By index and not by identity: a judge that asks a process gets an equal copy back.
        return answer.index, usage
    raise _unusable(answer, case)  # pyright: ignore[reportUnknownArgumentType]


def _unusable(answer: object, case: Case) -> AskingFailed:
    return case.unusable(
        f"the judge returned {shown(answer)}: return the better one of the two it was given,"
        " `first` or `second`, or None for a tie, or Preference(first, usage=...)"
    )


def _as_shown(candidate: Candidate[Any]) -> Generated[Any]:
    return Generated(candidate.index, candidate.output, candidate.usage)


def tournament(judge: Judge, *, comparisons: int | None = None, estimate: Usage = Usage()) -> Asks:
    """Select by knock-out: a judge compares two eligible candidates at a time.

    With m eligible candidates there are m - 1 comparisons, one after another, in a bracket that
    is drawn from the run's seed. The judge is cut like a custom selector; then the built-in order
    decides, and `selected_by` is "fallback". If the judge raises, the selection has failed.

    Args:
        judge: `judge(request, first, second)`, sync (in a worker thread) or async. The two are
            shown to it as to a scorer: index, output, usage. It returns the better one of them,
            or None for a tie, which the built-in order breaks, or a `Preference` of either.
        comparisons: at most so many; then only so many and one more of the eligible ones, the
            first in the built-in order, take part.
        estimate: what one comparison is expected to cost. It is set aside for all of them before
            the first one; a pair that there is no money for is decided by the built-in order.
            What a `Preference` does not report is charged at the estimate.

    Raises:
        InvalidJob: the judge can't be called like that, or a number can't be true.

    >>> async def judge(request, first, second):
    ...     return first if len(first.output) >= len(second.output) else second
    >>> tournament(judge, comparisons=7).name
    'tournament'
    """
    check_callback("judge", judge, ("request", "first", "second"))
    if comparisons is not None and (type(comparisons) is not int or comparisons < 0):
        raise InvalidJob(
            f"comparisons={shown(comparisons)}: write a whole number from 0 up, or None for as"
            " many as it takes"
        )
    estimated(estimate, "estimate")
    return Tournament(judge, comparisons, estimate)
