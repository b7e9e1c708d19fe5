"""Callbacks of a job outside of any candidate: what they are called with, one after another.

A *script* is a generator that yields the arguments of the next call and is sent its value; what
it returns is what came of it all. It awaits nothing and calls nothing: whoever plays it
(`actors/jobcall.py`) decides in which task or thread the callback runs, and whether there is time
for another call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import attrs

from hortator.protocols.candidate import Candidate
from hortator.protocols.copying import private_copy
from hortator.protocols.errors import InvalidChoice
from hortator.protocols.scoring import Objective
from hortator.protocols.usage import Usage

Asking: TypeAlias = Generator[tuple[Any, ...], Any, Any]
"""A script."""


class Raised:
    """Sent instead of a value: what the call raised."""

    error: BaseException

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class AskingFailed(Exception):
    """Ends a script that can't go on. `error` is why, as itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def plainly(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a function as it is: for rules that are tried without a run around them."""
    return function(*args)


@attrs.frozen(kw_only=True)
class Case:
    """What a selector that asks is to choose from.

    Attributes:
        request: of the run.
        candidates: all records, in index order.
        objective: whether a larger or a smaller score is better.
        tolerance: scores this near to the best one are ties.
        seed: of the run.
        afford: whether there is money for one more call that costs what was estimated.
        spend: told of each call, with what it has cost if that is known.
    """

    request: Any
    candidates: tuple[Candidate[Any], ...]
    objective: Objective = "max"
    tolerance: float = 1e-9
    seed: int = 0
    afford: Callable[[], bool] = lambda: True
    spend: Callable[[Usage | None], None] = lambda _: None

    def ask(self, *args: Any) -> Asking:
        """Have the callback called once with these.

        Returns:
            Its value.

        Raises:
            AskingFailed: it raised.
        """
        answer = yield args
        if isinstance(answer, Raised):
            raise AskingFailed(answer.error)
        return answer

    def unusable(self, message: str) -> AskingFailed:
        """What to raise for an answer of no use."""
        return AskingFailed(InvalidChoice(message))


def build_each(request: Any, n: int, built: list[Any]) -> Asking:
    """Have a builder called for each of n candidates, each with its own copy of the request.

    What came of each call, `Raised` too, is put into `built` as it comes.
    """
    for index in range(n):
        built.append((yield private_copy(request), index))
