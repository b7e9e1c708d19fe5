"""Whatever a user's object is, as something that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hortator.protocols.showing import shown

DEEPEST = 100
"""Levels of lists and dicts that are written as such: Python's own writer gives up at some 1000."""

LONGEST_INT = 2000
"""Bits of a whole number: of more, a Python may refuse to write or read the digits."""

LONGEST_REPR = 1_000_000
"""Characters of a repr; of a longer one the head is kept, and "..." says so."""


def plain(value: object) -> tuple[Any, bool]:
    """`value` as plain JSON data, and whether that is all of it.

    Text, whole and finite numbers, booleans, None, lists, tuples and dicts with text as keys stay
    what they are. Every other part (a set, bytes, NaN, a key that is no text, an object, what
    holds itself, what lies deeper than `DEEPEST`) becomes its repr, and then it is not all of it.
    Never raises.

    >>> plain({"tokens": (1, 2)})
    ({'tokens': [1, 2]}, True)
    >>> plain([float("nan"), {3}])
    (['nan', '{3}'], False)
    """
    writing = _Writing()
    return writing.of(value), writing.exact


def text(value: object) -> str:
    """`value` if it is text, in a form that stays the same when it is read back; else its repr.

    Two halves of a surrogate pair that stand side by side are one character: JSON readers make
    one of them.

    >>> text("x"), text(3)
    ('x', '3')
    """
    if not isinstance(value, str):
        return text(shown(value, most=LONGEST_REPR))
    same = str.__str__(value)  # of a subclass too: its own __str__ may say anything
    if same.isascii():
        return same
    return same.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


class _Writing:
    """One value on its way to plain data.

    Attributes:
        exact: nothing of it had to be replaced by its repr.
    """

    def __init__(self) -> None:
        self.exact = True
        self._inside: set[int] = set()  # the containers around the value at hand

    def of(self, value: object) -> Any:
        try:
            return self._of(value)
        except Exception:  # noqa: BLE001
            # A container of a class of the user's, whose own methods raise.
            return self._shown(value)

    def _of(self, value: object) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return text(value)
        if isinstance(value, int):
            number = int.__int__(value)
            return number if number.bit_length() <= LONGEST_INT else self._shown(value)
        if isinstance(value, float):
            real = float.__float__(value)
            return real if math.isfinite(real) else self._shown(real)
        if not isinstance(value, (list, tuple, dict)):
            return self._shown(value)
        return self._container(value)  # pyright: ignore[reportUnknownArgumentType]

    def _container(self, value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> Any:
        if id(value) in self._inside or len(self._inside) >= DEEPEST:
            return self._shown(value)
        self._inside.add(id(value))
        try:
            if not isinstance(value, dict):
                return [self.of(each) for each in value]
            return {self._key(key): self.of(each) for key, each in value.items()}
        finally:
            self._inside.discard(id(value))

    def _key(self, key: object) -> str:
        self.exact = self.exact and isinstance(key, str)
        return text(key)

    def _shown(self, value: object) -> str:
        self.exact = False
        return text(shown(value, most=LONGEST_REPR))


def plain_mapping(data: Mapping[str, Any]) -> Any:
    """A mapping of any class as a plain dict.

    >>> plain_mapping({"rank": 1, "of": {2}})
    {'rank': 1, 'of': '{2}'}
    """
    try:
        return plain(dict(data))[0]
    except Exception:  # noqa: BLE001
        # Of a class of the user's, whose own methods raise; or no mapping at all.
        return plain(data)[0]
