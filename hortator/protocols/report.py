"""The report of a run as JSON: plain data for people and programs.

::

    {"format": "hortator.run/1",
     "run_id": ..., "seed": ..., "stop_reason": ..., "partial": ...,
     "selected": index or null, "selected_by": ..., "output": of the selected candidate,
     ...                       the other fields of `RunResult`, as their classes list them
     "candidates": [{"index": ..., "error": {"type", "message"}, ..., "output": ...}, ...]}

Wherever else a result names candidates, the report has their indices. The request is left out: it
may be anything, and large. Money is text, so that no reader makes a float of it.

An output stands under `output`, and what has to be said of its form stands beside it:

* text and pydantic models: nothing;
* `output_is_bytes`: it was bytes that are UTF-8 text, and this is the text;
* `output_is_base64`: it was bytes that are not, and this is their base64;
* `output_is_repr`: it was something else, and this is its repr, its head if that is very long;
* `output_has_reprs`: parts inside are reprs, for JSON has no form for them;
* `output_encode_error`: `encode` raised, so it was written as without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hortator.protocols.candidate import Candidate
from hortator.protocols.encoding import Encode, candidate_output, encoded, fields_of

if TYPE_CHECKING:
    from hortator.protocols.result import RunResult

FORMAT = "hortator.run/1"
"""Changes when a reader of today could no longer read it; a field more is no such change."""

_FIRST = ("run_id", "seed", "stop_reason", "partial", "selected", "selected_by")


def dump(result: RunResult[Any], cls: type[Any], encode: Encode | None) -> str:
    """One JSON object for a result of this class; see `RunResult.to_json`."""
    listed = frozenset({"candidates"})
    fields = fields_of(result, cls, encode, without=listed, write=_referred)
    selected = result.selected
    output = {"output": None} if selected is None else candidate_output(selected, encode)
    report = {
        "format": FORMAT,
        **{name: fields.pop(name) for name in _FIRST},
        **output,
        **fields,
        "candidates": encoded(result.candidates, encode),
    }
    return as_json(report)


def as_json(data: Any) -> str:
    """Plain data as JSON on one line, as text that can be written as UTF-8."""
    line = json.dumps(data, ensure_ascii=False, allow_nan=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair can't be written as UTF-8; as an escape it can.
        line = json.dumps(data, allow_nan=False)
    return line


def _referred(value: Any, encode: Encode | None) -> Any:
    """A candidate by its index: its record stands in the list of all."""
    for kind, refer in _REFERRED:
        if isinstance(value, kind):
            return refer(value)
    return encoded(value, encode)


_REFERRED: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Candidate, lambda candidate: candidate.index),
    (tuple, lambda candidates: [_referred(each, None) for each in candidates]),
)
