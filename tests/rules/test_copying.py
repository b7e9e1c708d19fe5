"""How a request is shared: containers are copied for each candidate, everything else is shared."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from hortator.protocols.copying import private_copy

MUTABLE = (list, dict, set)

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)


def containers(value: Any) -> list[Any]:
    """All mutable containers in a value, at any depth."""
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = list(value.values())
    elif isinstance(value, (list, tuple)):
        inside = list(value)
    found = [value] if isinstance(value, MUTABLE) else []
    return found + [each for item in inside for each in containers(item)]


@given(trees)
def test_a_copy_is_equal_and_shares_no_container(value: Any) -> None:
    copy = private_copy(value)
    assert copy == value
    assert type(copy) is type(value)
    theirs = {id(each) for each in containers(value)}
    assert not [each for each in containers(copy) if id(each) in theirs]


def test_b59_what_one_candidate_does_to_its_messages_no_other_sees() -> None:
    request: Any = {"messages": [{"role": "user", "tags": {"a"}}], "limits": ([1], 2)}
    first, second = private_copy(request), private_copy(request)
    first["messages"][0]["role"] = "assistant"
    first["messages"].append({})
    first["messages"][0]["tags"].add("b")
    first["limits"][0].append(2)
    assert second == request == {"messages": [{"role": "user", "tags": {"a"}}], "limits": ([1], 2)}


class Opaque:
    """A class of the user's own."""


class Point(NamedTuple):
    """A subclass of a container is opaque as well."""

    xs: list[int]


@pytest.mark.parametrize(
    "value",
    [
        "a string",
        b"bytes",
        bytearray(b"x"),
        3,
        None,
        frozenset({1}),
        Opaque(),
        Point([1]),
        OrderedDict(a=[1]),
        defaultdict(list),
    ],
    ids=lambda value: type(value).__name__,
)
def test_b109_strings_and_opaque_objects_are_shared(value: Any) -> None:
    assert private_copy(value) is value
    assert private_copy([value])[0] is value


def test_a_container_held_twice_is_copied_once() -> None:
    shared: list[int] = []
    first, second = private_copy([shared, shared])
    assert first is second
    assert first is not shared


def test_a_container_that_holds_itself_can_be_copied() -> None:
    loop: list[Any] = []
    loop.append({"self": loop})
    copy = private_copy(loop)
    assert copy is not loop
    assert copy[0]["self"] is copy


def test_keys_are_kept_as_they_are() -> None:
    key = (1, "a")
    assert next(iter(private_copy({key: []}))) is key
