"""Checks of plain arguments: numbers that people write."""

from __future__ import annotations

import math
import sys
from typing import Any

from hortator.protocols.errors import InvalidJob
from hortator.protocols.showing import shown

_LARGEST = sys.float_info.max


def is_number(value: object) -> bool:
    """Whether it is a finite real number that is meant as one: a bool is not."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return good and -_LARGEST <= value <= _LARGEST  # type: ignore[operator]


def number(
    name: str, value: Any, *, least: float = -math.inf, hint: str = "a finite number"
) -> None:
    """Refuse what is no finite number, or less than `least`.

    Raises:
        InvalidJob: it is; `hint` says what to write.
    """
    if not is_number(value) or value < least:
        raise InvalidJob(f"{name}={shown(value)}: write {hint}")


def seconds(name: str, value: Any, *, optional: bool = True) -> None:
    """Refuse what is no number of seconds from 0 up; None too, unless it is `optional`.

    Raises:
        InvalidJob: it is.
    """
    if value is None and optional:
        return
    none = f", or {name}=None for no limit" if optional else ""
    number(name, value, least=0.0, hint=f"seconds from 0 up{none}")


def whole(name: str, value: Any, *, least: int = 1, example: int = 4, of: str = "") -> None:
    """Refuse what is no whole number from `least` up.

    Raises:
        InvalidJob: it is; `of` is the function whose argument it is, for the message.
    """
    if type(value) is not int or value < least:
        written = f"{name}={shown(value)}"
        raise InvalidJob(
            f"{f'{of}({written})' if of else written}: write a whole number from {least} up,"
            f" such as {name}={example}"
        )
