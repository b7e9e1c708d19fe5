"""Events as lines of JSON: one event, one line.

::

    {"format": "hortator.event/1", "kind": "scored", "sequence": 3, "run_id": "run-1", ...}

`kind` says which class of event it is, always. An event that a callback told by `ctx.emit` has the
kind "emitted", and the callback's own word under `emitted`: whatever word it chose, its line can't
be mistaken for another. Errors and scores are written as in the report of a run, and in the data of
an emitted event what JSON has no form for becomes its repr.
"""

from __future__ import annotations

from typing import Any, get_args

from hortator.protocols.encoding import fields_of
from hortator.protocols.events import Emitted, Event
from hortator.protocols.report import as_json

FORMAT = "hortator.event/1"
"""Changes when a reader of today could no longer read a line; a field more is no such change."""

EMITTED = "emitted"

EVENTS: dict[str, type[Any]] = {
    EMITTED if each is Emitted else each.kind: each for each in get_args(Event)
}
"""The class of each kind of line."""


def event_line(event: Event) -> str:
    """An event as one line of JSON, without the line break. Never raises.

    >>> from hortator.protocols.events import CandidateStarted
    >>> event_line(CandidateStarted(0, "run-1", 2, 0.5))[31:]
    '"kind": "started", "sequence": 0, "run_id": "run-1", "candidate": 2, "time": 0.5}'
    """
    fields = fields_of(event, type(event))
    if isinstance(event, Emitted):
        kind = {"kind": EMITTED, EMITTED: fields.pop("kind")}
    else:
        kind = {"kind": event.kind}
    return as_json({"format": FORMAT, **kind, **fields})


def read_event(line: str | bytes) -> Event:
    """The event that a line was written from.

    It equals the one that was written, but that errors come back as `RecordedError` and the data
    of an emitted event as what JSON made of it. Fields that this version does not know are passed
    over; one that the line lacks gets its default.

    >>> from hortator.protocols.events import CandidateStarted
    >>> read_event(event_line(CandidateStarted(0, "run-1", 2, 0.5)))
    CandidateStarted(sequence=0, run_id='run-1', candidate=2, time=0.5)

    Raises:
        InvalidReport: the line is no event that this version knows.
    """
    # Here, and not above: importing pydantic costs more than everything else in this library.
    from hortator.protocols.reading import read_line

    return read_line(line)
