"""Our own values as plain JSON data, field by field as their classes list them.

A new field of a class is written without a line here. What needs a form of its own: money is text
with all its digits, an error its type's name and message, an output what it can be read back from.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import attrs

from hortator.protocols.brief import named
from hortator.protocols.candidate import Candidate
from hortator.protocols.plain import plain, plain_mapping, text
from hortator.protocols.scoring import Score
from hortator.protocols.showing import message, shown
from hortator.protocols.usage import COST, DIMENSIONS, Usage, fault

Encode: TypeAlias = Callable[[Any], Any]
"""Turns an output into something JSON can hold."""

LONGEST_MONEY = 40
"""Digits before or after the point; an amount with more is written with an exponent."""

FLAGS: dict[str, type[Any]] = {
    "output_is_bytes": bool,
    "output_is_base64": bool,
    "output_is_repr": bool,
    "output_has_reprs": bool,
    "output_encode_error": str,
}
"""What may stand beside an output, to say what form it is in."""

Coerce: TypeAlias = Callable[[Any], Any]


@attrs.frozen(repr=False)
class RecordedCandidate(Candidate[Any]):
    """A candidate as it was read from a report.

    Attributes:
        written: what the report says of the form of its output: `output_is_repr` and the like.
    """

    written: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


def encoded(value: Any, encode: Encode | None = None) -> Any:
    """A value of ours as plain data; `encode` is for the outputs in it.

    >>> encoded(Score(0.5, rationale="half"))
    {'value': 0.5, 'accepted': True, 'rationale': 'half'}
    """
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value, encode)
    if attrs.has(value.__class__):
        return fields_of(value, value.__class__, encode)
    return plain(value)[0]


def fields_of(
    value: object,
    cls: Any,
    encode: Encode | None = None,
    *,
    without: frozenset[str] = frozenset(),
    write: Callable[[Any, Encode | None], Any] = encoded,
) -> dict[str, Any]:
    """The fields that `cls` defines, as `value` has them, in the order of their definition.

    Args:
        value: an instance of `cls`.
        cls: an attrs class of ours.
        encode: for the outputs in it.
        without: names of fields that are left out.
        write: writes what a field holds, unless its type alone says how.
    """
    return {
        name: write(getattr(value, name), encode)
        if coerce is None
        else coerce(getattr(value, name))
        for name, coerce in _fields(cls)
        if name not in without
    }


def encoded_output(output: object, encode: Encode | None) -> dict[str, Any]:
    """The key `output`, and what has to be said of its form; see `RunResult.to_json`. Never raises.

    >>> encoded_output(b"text", None)
    {'output': 'text', 'output_is_bytes': True}
    >>> encoded_output({1}, None)
    {'output': '{1}', 'output_is_repr': True}
    """
    if output is None:
        return {"output": None}
    if encode is None:
        return _output(output) or _as_repr(output)
    try:
        made = encode(output)
    except Exception as error:  # noqa: BLE001
        # One output that it cannot encode must not take the account of all the others along.
        why = text(f"{type(error).__name__}: {message(error)}")
        return {**(_output(output) or _as_repr(output)), "output_encode_error": why}
    return {"output": None} if made is None else _output(made) or _as_data(made)


# -- inside --------------------------------------------------------------------------------------


@functools.cache
def _fields(cls: Any) -> tuple[tuple[str, Coerce | None], ...]:
    return tuple((field.name, _coerce(str(field.type))) for field in attrs.fields(cls))


def _coerce(hint: str) -> Coerce | None:
    """What makes a field what its class says it is: users put in what they like."""
    if hint in ("str", "<class 'str'>"):
        return text
    if hint.startswith("Mapping[str, Any]"):
        return plain_mapping
    if hint.startswith("float"):
        return _real
    return None


def _real(value: Any) -> Any:
    return plain(float(value) if type(value) is int else value)[0]


_NOT_OF_CANDIDATES = frozenset({"request", "output"})


def _candidate(candidate: Candidate[Any], encode: Encode | None) -> dict[str, Any]:
    said = fields_of(candidate, Candidate, encode, without=_NOT_OF_CANDIDATES)
    return {**said, **candidate_output(candidate, encode)}


def candidate_output(candidate: Candidate[Any], encode: Encode | None) -> dict[str, Any]:
    """The output of a candidate, as in `encoded_output`; one that was read is written as it was."""
    output = candidate.output
    if encode is None and isinstance(candidate, RecordedCandidate):
        form = _bytes(output) if isinstance(output, bytes) else _as_data(output)
        return {**form, **candidate.written}
    return encoded_output(output, encode)


_SELDOM = ("usage", "metadata")


def _score(score: Score, _: Encode | None) -> dict[str, Any]:
    said = fields_of(score, Score, without=frozenset(_SELDOM))
    # What cannot be true is told in the usage of the run, as malformed.
    if score.usage is not None and fault(score.usage) is None:
        said["usage"] = _usage(score.usage, None)
    if score.metadata is not None:
        said["metadata"] = plain_mapping(score.metadata)
    return said


def _usage(usage: Usage, _: Encode | None) -> dict[str, Any]:
    counts: dict[str, Any] = {name: plain(getattr(usage, name))[0] for name in DIMENSIONS[:COST]}
    return {**counts, "cost": _money(usage.cost)}


def _money(cost: Decimal) -> str:
    short = cost.is_finite() and -LONGEST_MONEY <= cost.adjusted() <= LONGEST_MONEY
    return format(cost, "f") if short else str(cost)


def _error(error: BaseException, _: Encode | None) -> dict[str, str]:
    return {"type": text(named(error)), "message": text(message(error))}


def _listed(items: Sequence[Any], encode: Encode | None) -> list[Any]:
    return [encoded(each, encode) for each in items]


def _mapped(pairs: Mapping[Any, Any], encode: Encode | None) -> dict[str, Any]:
    return {text(key): encoded(each, encode) for key, each in pairs.items()}


_WRITERS: tuple[tuple[Any, Callable[[Any, Encode | None], Any]], ...] = (
    (Candidate, _candidate),
    (Usage, _usage),
    (Score, _score),
    (BaseException, _error),
    ((tuple, list), _listed),
    (Mapping, _mapped),
)


def _output(output: object) -> dict[str, Any] | None:
    """Text, bytes and pydantic models, each in its own form; None for everything else."""
    if isinstance(output, str):
        return {"output": text(output)}
    if isinstance(output, bytes):
        return _bytes(output)
    try:
        # Asked for by name: importing pydantic costs more than everything else here.
        as_json: Any = getattr(output, "model_dump_json", None)
        if not callable(as_json) or isinstance(output, type):
            return None
        return _as_data(json.loads(str(as_json())))
    except Exception:  # noqa: BLE001
        # A model with a field that JSON has no form for, or an object that only looks like one.
        return None


def _bytes(output: bytes) -> dict[str, Any]:
    try:
        return {"output": output.decode(), "output_is_bytes": True}
    except UnicodeDecodeError:
        return {"output": base64.b64encode(output).decode(), "output_is_base64": True}


def _as_data(value: object) -> dict[str, Any]:
    data, exact = plain(value)
    if exact:
        return {"output": data}
    how = "output_is_repr" if isinstance(data, str) else "output_has_reprs"
    return {"output": data, how: True}


def _as_repr(output: object) -> dict[str, Any]:
    return {"output": text(shown(output, most=1_000_000)), "output_is_repr": True}
