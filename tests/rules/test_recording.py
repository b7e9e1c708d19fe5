"""Events as lines: every class of event, whatever users put into it, and back.

* `event_line` writes one line of JSON for any event; reading it and writing that again is the same.
* What users have no part in comes back equal.
* `kind` tells the class, whatever word a callback gave to `ctx.emit`.
* What is no line of an event is refused with the place in it.
"""

from __future__ import annotations

import json
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from hortator import Event, Score, Status, Usage
from hortator.protocols import events
from hortator.protocols.candidate import Detached
from hortator.protocols.errors import InvalidReport, RecordedError
from hortator.protocols.recording import EVENTS, event_line, read_event
from tests.rules.results import JSON, PATIENT, events_of

CLASSES = get_args(Event)


def strictly(line: str) -> Any:
    """What the strictest reader reads."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert "\n" not in line
    return json.loads(line.encode(), parse_constant=refuse)


@pytest.mark.parametrize("cls", CLASSES)
@given(data=st.data())
@settings(PATIENT, max_examples=30)
def test_any_event_is_one_line_and_reads_back_to_the_same_line(
    cls: type[Any], data: st.DataObject
) -> None:
    event = data.draw(events_of(cls))
    line = event_line(event)
    assert strictly(line)["format"] == "hortator.event/1"
    again = read_event(line)
    assert type(again) is cls
    assert event_line(again) == line
    assert read_event(line.encode()) is not None
    for field in attrs.fields(cls):
        if field.name in ("sequence", "run_id", "candidate", "time", "status", "statuses", "lease"):
            assert getattr(again, field.name) == getattr(event, field.name)


EXAMPLES: list[Any] = [
    events.CandidateStarted(0, "run-1", 2, 0.5),
    events.CandidateLeased(1, "run-1", 2, 0.5, 7),
    events.CandidateGenerated(2, "run-1", 2, 0.5),
    events.CandidateScored(3, "run-1", 2, 0.5, Score(1.5, rationale="why", metadata={"a": [1]})),
    events.CandidateEnded(4, "run-1", 2, 0.5, Status.ELIGIBLE, False, None),
    events.CandidatePublished(5, "run-1", 2, 0.5, None),
    events.EffectChanged(6, "run-1", 2, 0.5, "mail", "done"),
    events.Emitted(7, "run-1", 2, 0.5, "token", {"text": "Grüße", "of": [1, None]}),
    events.LateEnd(
        8, "run-1", None, 0.5, Detached("run-1", None, "observing", 0.25, "thread", "a.py:1 in f")
    ),
    events.RunFinished(
        9, "run-1", 1.5, "deadline", True, 0, {Status.ELIGIBLE: 3}, (1, 2), Usage(cost="0.25")
    ),
]


def test_there_is_an_example_of_each_class() -> None:
    assert [type(each) for each in EXAMPLES] == list(CLASSES)


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: event.kind)
def test_what_is_ours_comes_back_equal(event: Event) -> None:
    assert read_event(event_line(event)) == event


def test_the_kinds_of_lines_are_those_of_the_classes() -> None:
    assert list(EVENTS.values()) == list(CLASSES)
    for kind, cls in EVENTS.items():
        assert kind == ("emitted" if cls is events.Emitted else cls.kind)


@pytest.mark.parametrize("word", ["token", "finished", "started", "emitted", "kind", ""])
def test_the_word_of_a_callback_is_never_the_kind_of_a_line(word: str) -> None:
    event = events.Emitted(0, "run-1", 0, 0.5, word, {"kind": "finished", "terminal": True})
    line = strictly(event_line(event))
    assert (line["kind"], line["emitted"]) == ("emitted", word)
    assert read_event(event_line(event)) == event


def test_an_error_comes_back_by_name_and_message() -> None:
    error = KeyError("seed")
    ended = events.CandidateEnded(0, "run-1", 0, 0.5, Status.GENERATION_FAILED, False, error)
    read = read_event(event_line(ended))
    assert isinstance(read, events.CandidateEnded)
    assert isinstance(read.error, RecordedError)
    assert (read.error.type_name, str(read.error)) == ("KeyError", "'seed'")


def test_data_that_json_has_no_form_for_is_shown() -> None:
    emitted = events.Emitted(0, "run-1", 0, 0.5, "token", {"part": b"x", "of": {1}})
    assert strictly(event_line(emitted))["data"] == {"part": "b'x'", "of": "{1}"}


ENDED: dict[str, Any] = strictly(event_line(EXAMPLES[4]))
EMITTED: dict[str, Any] = strictly(event_line(EXAMPLES[7]))


def but(line: dict[str, Any], **changes: Any) -> str:
    """The line with other values; None takes the key out."""
    gone = {key for key, value in changes.items() if value is None}
    return json.dumps({key: value for key, value in {**line, **changes}.items() if key not in gone})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("", "line 1, column 1: .*was it cut"),
        ("started", "line 1, column 1: it is no JSON .*near 'started'"),
        ("[1]", r"the text: it is \[1\], and not a JSON object"),
        (but(ENDED, format=None), "format: it is missing; here it is 'hortator.event/1'"),
        (but(ENDED, format="hortator.event/7"), "another version of this library wrote it"),
        (but(ENDED, format="hortator.run/1"), "format: it is 'hortator.run/1', and only"),
        (but(ENDED, kind=None), "kind: it is None, and not one of started, leased, "),
        (but(ENDED, kind="began"), "kind: it is 'began', and not one of"),
        (but(ENDED, kind=["ended"]), r"kind: it is \['ended'\], and not"),
        (but(ENDED, status="fine"), "status: .*'eligible'.*; it is 'fine'"),
        (but(ENDED, sequence=None), "sequence: field required"),
        (but(ENDED, sequence="4"), "sequence: .*integer; it is '4'"),
        (but(ENDED, error="no"), "error: .*; it is 'no'"),
        (but(EMITTED, emitted=None), "emitted: field required"),
        (but(EMITTED, emitted=5), "emitted: .*string; it is 5"),
        (but(EMITTED, data=[1]), "data: .*; it is"),
    ],
)
def test_what_is_no_event_is_refused_with_its_place(wrong: str, told: str) -> None:
    with pytest.raises(InvalidReport, match=f"this is not the line of an event: .*{told}"):
        read_event(wrong)


@given(st.sampled_from(EXAMPLES), st.data(), JSON)
@settings(PATIENT, max_examples=100)
def test_a_line_with_anything_anywhere_is_read_or_refused(
    event: Event, data: st.DataObject, value: Any
) -> None:
    line = strictly(event_line(event))
    line[data.draw(st.sampled_from(sorted(line)))] = value
    try:
        read = read_event(json.dumps(line))
    except InvalidReport:
        return
    strictly(event_line(read))


def test_fields_of_later_versions_are_passed_over() -> None:
    assert read_event(but(ENDED, of_a_later_version={"a": 1})) == EXAMPLES[4]
