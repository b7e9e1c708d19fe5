"""What users made, and what it cost, in few words: for one line of a `repr` or of a table.

Nothing here raises on what users put in, and nothing is long: outputs and messages are cut, and
what would break a line or a terminal is escaped.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import TypeVar

from hortator.protocols.command import CommandFailed
from hortator.protocols.errors import RecordedError
from hortator.protocols.scoring import Score
from hortator.protocols.showing import message, on_one_line
from hortator.protocols.usage import Usage

LONGEST_HEAD = 60
"""Characters of an output that one line shows."""

LONGEST_LINE = 1000
"""Characters of a whole `repr`; only a run of many sorts of ends comes near it."""

_Told = TypeVar("_Told")


def _shortened() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxlevel = 3
    short.maxstring = short.maxother = short.maxlong = LONGEST_HEAD
    return short


_SHORT = _shortened()


def head(output: object) -> str:
    """The beginning of an output's repr, on one line. Text is cut before it is shown.

    >>> head("one\\ntwo"), len(head("x" * 1_000_000))
    ("'one\\\\ntwo'", 60)
    """
    try:
        if isinstance(output, (str, bytes)):
            output = output[:LONGEST_HEAD]
            return on_one_line(repr(output), LONGEST_HEAD)
        return on_one_line(_SHORT.repr(output), LONGEST_HEAD)
    except Exception:  # noqa: BLE001
        # An object of the user's: whatever it raises must not replace what is told of the run.
        return f"<{type(output).__name__}>"


def brief(error: BaseException) -> str:
    """An error on one short line.

    >>> brief(KeyError("seed")), brief(TimeoutError())
    ("'seed'", 'TimeoutError')
    """
    if isinstance(error, CommandFailed):
        return on_one_line(error.brief, 120)
    return on_one_line(message(error) or named(error), 200)


def number(value: float) -> str:
    """A score, without a needless fraction.

    >>> number(7542.0), number(0.125)
    ('7542', '0.125')
    """
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def costs(usage: Usage) -> str:
    """What was used, "" if nothing was.

    >>> costs(Usage(model_calls=1, total_tokens=540, cost="0.25"))
    '1 model call, 540 tokens, $0.25'
    """
    counts = (
        (usage.model_calls, "model call"),
        (usage.tool_calls, "tool call"),
        (usage.total_tokens, "token"),
    )
    parts = [f"{count:,} {name}{'s' if count != 1 else ''}" for count, name in counts if count]
    return ", ".join([*parts, f"${usage.cost:f}"] if usage.cost else parts)


def scored(score: Score | None) -> str:
    """A score, "" if there is none.

    >>> scored(Score(0.5))
    'score 0.5'
    """
    return "" if score is None else f"score {number(score.value)}"


def named(error: BaseException) -> str:
    """The name of an error's class; of a recorded one, of the class that it had.

    >>> named(RecordedError("ValueError", "no"))
    'ValueError'
    """
    return error.type_name if isinstance(error, RecordedError) else type(error).__name__


def told(what: _Told, tell: Callable[[_Told], str]) -> str:
    """A `repr` that says what `tell` does; or that it can't: one that raises hides what is wrong.

    >>> told(1, lambda number: f"#{number}"), told(1, lambda number: number.name)
    ('<int #1>', '<int: AttributeError>')
    """
    name = type(what).__name__
    try:
        return f"<{name} {on_one_line(tell(what), LONGEST_LINE)}>"
    except Exception as error:  # noqa: BLE001
        # Only a record that was made by hand gets here, of parts that no run makes.
        return f"<{name}: {type(error).__name__}>"
