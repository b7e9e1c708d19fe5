"""How a request is shared between candidates."""

from typing import TypeVar

T = TypeVar("T")

CONTAINERS = (list, dict, set, tuple)
"""The types that are copied; their subclasses are opaque."""


def private_copy(value: T) -> T:
    """Copy lists, dicts, sets and tuples, at any depth; share everything else.

    Strings, numbers and opaque objects are handed over as they are: a candidate that mutates
    an object of the user's own class mutates it for all of them.

    >>> messages = [{"role": "user"}]
    >>> private_copy(messages)[0] is messages[0]
    False
    """
    return _copied(value, {})  # type: ignore[return-value]


def _copied(value: object, seen: dict[int, object]) -> object:
    kind = type(value)
    if kind not in CONTAINERS:
        return value
    if id(value) in seen:  # a container that holds itself, or one held twice
        return seen[id(value)]
    if kind is list:
        items: list[object] = []
        seen[id(value)] = items
        items.extend(_copied(item, seen) for item in value)  # type: ignore[attr-defined]
        return items
    if kind is dict:
        pairs: dict[object, object] = {}
        seen[id(value)] = pairs
        pairs.update((key, _copied(item, seen)) for key, item in value.items())  # type: ignore[attr-defined]
        return pairs
    if kind is set:
        return set(value)  # type: ignore[call-overload]
    return tuple(_copied(item, seen) for item in value)  # type: ignore[attr-defined]
