"""The report of a run: it can always be written, it is always JSON, and it can be read back.

* Whatever users' objects are, `to_json` writes one line that the strictest JSON reader takes.
* Reading a report and writing it again gives the same text.
* What is read back is what JSON can hold of the result, and it says which outputs are reprs.
* A text that is no report is refused with the place in it and what should stand there.
* Fields of later versions are passed over, fields that earlier ones did not write have defaults.
"""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

import hortator
from hortator import (
    BestOfN,
    Candidate,
    HortatorError,
    NoEligibleCandidate,
    RunResult,
    Score,
    Status,
    Usage,
    UsageReport,
    open_runtime,
)
from hortator.protocols.errors import InvalidReport, RecordedError
from hortator.protocols.plain import DEEPEST, LONGEST_REPR, plain, text
from hortator.protocols.result import Telemetry
from tests.rules.results import (
    ANYTHING,
    JSON,
    PATIENT,
    STRANGE,
    Answer,
    Constants,
    Liar,
    NoRepr,
    Opaque,
    Unwritable,
    cyclic,
    deep,
    results,
)


def strictly(line: str) -> Any:
    """What the strictest reader reads: JSON has no NaN, text is UTF-8, a line is a line."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert "\n" not in line
    return json.loads(line.encode(), parse_constant=refuse)


def of(output: Any = "the best", **changes: Any) -> RunResult[Any]:
    """The result of one candidate with this output."""
    best = Candidate(0, Status.ELIGIBLE, output=output, score=Score(0.5), eligible=True)
    result: RunResult[Any] = RunResult(
        selected=best,
        candidates=(best,),
        stop_reason="completed",
        partial=False,
        selected_by="best_score",
        usage=UsageReport(),
        telemetry=Telemetry(),
        seed=1,
        run_id="run-1",
        elapsed=0.5,
    )
    return attrs.evolve(result, **changes)


def with_error(error: BaseException) -> RunResult[Any]:
    failed = Candidate(0, Status.GENERATION_FAILED, error=error)
    return of(selected=None, candidates=(failed,), stop_reason="no_eligible")


# -- it can always be written --------------------------------------------------------------------


@given(results())
@PATIENT
def test_any_result_is_one_line_of_json_and_is_read_back_to_the_same_text(
    result: RunResult[Any],
) -> None:
    line = result.to_json()
    report = strictly(line)
    assert report["format"] == "hortator.run/1"
    again = RunResult.from_json(line)
    assert again.to_json() == line
    assert RunResult.from_json(line.encode()).to_json() == line


@given(results(), ANYTHING)
@PATIENT
def test_whatever_encode_makes_is_written_and_read_back(result: RunResult[Any], made: Any) -> None:
    line = result.to_json(encode=lambda _: made)
    strictly(line)
    assert RunResult.from_json(line).to_json() == line


@pytest.mark.parametrize("output", STRANGE, ids=lambda output: type(output).__name__)
def test_a_strange_output_is_written_alone_and_in_a_list(output: Any) -> None:
    for line in (of(output).to_json(), of([output]).to_json(encode=list)):
        strictly(line)
        assert RunResult.from_json(line).to_json() == line


@given(results(outputs=JSON))
@PATIENT
def test_plain_data_that_encode_lets_through_comes_back_equal(result: RunResult[Any]) -> None:
    read = RunResult.from_json(result.to_json(encode=lambda output: output))
    for ours, theirs in zip(result.candidates, read.candidates, strict=True):
        assert theirs.output == ours.output
        assert type(theirs.output) is type(ours.output)


@given(JSON)
@PATIENT
def test_json_is_plain(value: Any) -> None:
    assert plain(value) == (value, True)


@given(ANYTHING)
@PATIENT
def test_plain_data_stays_what_it_is(value: Any) -> None:
    data, _ = plain(value)
    assert plain(data) == (data, True)
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_two_keys_that_look_the_same_in_json_are_said_not_to_be_all() -> None:
    assert plain({1: "a", "1": "b"})[1] is False


def test_what_is_too_deep_or_holds_itself_is_shown() -> None:
    data, exact = plain(cyclic())
    assert (data, exact) == ([1, {"ring": "[1, {'ring': [...]}]"}], False)
    data, exact = plain(deep())
    assert not exact
    levels = 0
    while isinstance(data, list):
        data, levels = data[0], levels + 1
    assert levels == DEEPEST


def test_a_container_that_is_held_twice_does_not_hold_itself() -> None:
    twice = [1]
    assert plain([twice, twice]) == ([[1], [1]], True)


def test_a_very_long_repr_is_cut_and_text_is_not() -> None:
    report = strictly(of([0] * LONGEST_REPR).to_json())
    assert len(report["output"]) == LONGEST_REPR + len("...")
    assert report["output"].endswith("...")
    assert len(strictly(of("x" * 2 * LONGEST_REPR).to_json())["output"]) == 2 * LONGEST_REPR


# -- the form of an output -----------------------------------------------------------------------


def form(output: Any, **options: Any) -> dict[str, Any]:
    """What the report says of an output; at the top and in the record it is the same."""
    report = strictly(of(output).to_json(**options))
    at_top, of_record = (
        {key: value for key, value in each.items() if key.startswith("output")}
        for each in (report, report["candidates"][0])
    )
    assert at_top == of_record
    return at_top


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("text", {"output": "text"}),
        (None, {"output": None}),
        ("Grüße".encode(), {"output": "Grüße", "output_is_bytes": True}),
        (b"", {"output": "", "output_is_bytes": True}),
        (b"\xff\xfe", {"output": "//4=", "output_is_base64": True}),
        (Answer(text="42", certainty=0.5), {"output": {"text": "42", "certainty": 0.5}}),
        (
            Constants(certainty=math.inf),
            {"output": {"certainty": "inf"}, "output_has_reprs": True},
        ),
        (Opaque(), {"output": "<opaque>", "output_is_repr": True}),
        ([1, 2], {"output": "[1, 2]", "output_is_repr": True}),
        ({"a": 1}, {"output": "{'a': 1}", "output_is_repr": True}),
        (math.nan, {"output": "nan", "output_is_repr": True}),
        (NoRepr(), {"output": "<NoRepr, whose repr raises>", "output_is_repr": True}),
        (Answer, {"output": repr(Answer), "output_is_repr": True}),
    ],
)
def test_the_form_of_an_output(output: Any, told: dict[str, Any]) -> None:
    assert form(output) == told


@pytest.mark.parametrize("output", [Unwritable(thing=Opaque()), Liar()])
def test_what_only_looks_like_a_model_is_shown(output: Any) -> None:
    assert form(output) == {"output": repr(output), "output_is_repr": True}


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([1, 2.5, None], {"output": [1, 2.5, None]}),
        ((1, 2), {"output": [1, 2]}),
        ("text", {"output": "text"}),
        (None, {"output": None}),
        (b"text", {"output": "text", "output_is_bytes": True}),
        (Answer(text="42", certainty=0.5), {"output": {"text": "42", "certainty": 0.5}}),
        ({1}, {"output": "{1}", "output_is_repr": True}),
        ({"a": {1}}, {"output": {"a": "{1}"}, "output_has_reprs": True}),
        ({1: "a"}, {"output": {"1": "a"}, "output_has_reprs": True}),
        ([math.nan], {"output": ["nan"], "output_has_reprs": True}),
    ],
)
def test_the_form_of_what_encode_makes(made: Any, told: dict[str, Any]) -> None:
    assert form(Opaque(), encode=lambda _: made) == told


def test_an_encode_that_raises_does_not_take_the_report_along() -> None:
    assert form({1, 2}, encode=dict) == {
        "output": "{1, 2}",
        "output_is_repr": True,
        "output_encode_error": "TypeError: cannot convert dictionary update sequence element #0"
        " to a sequence",
    }
    assert form("text", encode=len)["output"] == 4


# -- what is read back ---------------------------------------------------------------------------


def test_outputs_come_back_as_what_they_were() -> None:
    for output in ("text", "", b"text", b"", b"\xff\xfe", None):
        assert RunResult.from_json(of(output).to_json()).output == output
    model = Answer(text="42", certainty=0.5)
    assert RunResult.from_json(of(model).to_json()).output == model.model_dump()
    assert RunResult.from_json(of({1}).to_json()).output == "{1}"


def test_a_result_that_was_read_is_a_result() -> None:
    score = Score(0.5, rationale="half", usage=Usage(cost="0.25"), metadata={"rank": 1})
    best = Candidate(
        1,
        Status.TIMED_OUT,
        request="question",
        output="text",
        partial=True,
        score=score,
        usage=Usage(model_calls=1, cost="0.0000001"),
        started=0.25,
        elapsed=1.5,
        eligible=True,
    )
    other = Candidate(0, Status.SCORING, detached=True)
    written = of(
        selected=best,
        candidates=(other, best),
        stop_reason="deadline",
        partial=True,
        usage=UsageReport(charged=Usage(total_tokens=5), double_settlements=1),
        telemetry=Telemetry(events=9, cut=1),
    )
    read = RunResult.from_json(written.to_json())
    for field in attrs.fields(RunResult):
        if field.name not in ("selected", "candidates"):
            assert getattr(read, field.name) == getattr(written, field.name), field.name
    assert read.selected is read.candidates[1]
    for ours, theirs in zip(written.candidates, read.candidates, strict=True):
        assert isinstance(theirs, Candidate)
        assert theirs.request is None
        assert type(theirs.status) is Status
        for field in attrs.fields(Candidate):
            if field.name != "request":
                assert getattr(theirs, field.name) == getattr(ours, field.name), field.name


def test_an_error_comes_back_by_name_and_message() -> None:
    read = RunResult.from_json(with_error(KeyError("seed")).to_json())
    error = read.candidates[0].error
    assert isinstance(error, RecordedError)
    assert isinstance(error, HortatorError)
    assert (error.type_name, str(error)) == ("KeyError", "'seed'")
    assert "KeyError" in repr(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.type_name, str(copy)) == ("KeyError", "'seed'")
    with pytest.raises(NoEligibleCandidate, match="KeyError") as caught:
        _ = read.output
    assert caught.value.causes == (error,)


def test_text_of_two_surrogates_is_one_character_from_the_start() -> None:
    assert text("\ud83d\ude00") == "😀"
    assert text("\ude00\ud83d") == "\ude00\ud83d"


# -- what is refused -----------------------------------------------------------------------------

GOOD: dict[str, Any] = json.loads(
    of(b"text", telemetry=Telemetry(events=3), usage=UsageReport(estimated=2)).to_json()
)


def changed(*path: Any, to: Any) -> str:
    """The good report with another value at this place."""
    report = json.loads(json.dumps(GOOD))
    inside = report
    for part in path[:-1]:
        inside = inside[part]
    inside[path[-1]] = to
    return json.dumps(report)


CANDIDATE = GOOD["candidates"][0]

REFUSED = [
    ("", "line 1, column 1: .*the text ends there: was it cut"),
    ("[]", r"the text: it is \[\], and not a JSON object"),
    ("null", "the text: it is None, and not a JSON object"),
    ("{}", "format: it is missing; here it is 'hortator.run/1'"),
    ("{'a': 1}", "line 1, column 2: .*near \"{'a': 1}\""),
    ('{"a": NaN}', "NaN is no JSON number"),
    ("[" * 100_000, "no JSON that can be read"),
    (b"\xff{}", "byte 0: it is not UTF-8"),
    (None, "not a NoneType"),
    (Path("report.json"), "pass what it holds, as str or bytes"),
    (changed("format", to="hortator.run/2"), "only 'hortator.run/1' is read: another version"),
    (changed("format", to="hortator.event/1"), "it is 'hortator.event/1', and only"),
    (changed("format", to=1), "format: it is 1, and only"),
    (changed("seed", to="1"), "seed: input should be a valid integer; it is '1'"),
    (changed("partial", to=0), "partial: .*boolean; it is 0"),
    (changed("stop_reason", to="bored"), "stop_reason: .*'completed'.*; it is 'bored'"),
    (changed("elapsed", to=None), "elapsed: .*number; it is None"),
    (changed("selected", to=3), "selected: there is no candidate 3"),
    (changed("selected", to="0"), "selected: .*integer; it is '0'"),
    (changed("candidates", to={}), "candidates: .*tuple"),
    (changed("candidates", to=[CANDIDATE] * 2), "candidates: 2 of them have the index 0"),
    (changed("candidates", 0, to=7), r"candidates\.0: .*; it is 7"),
    (changed("candidates", 0, "status", to="fine"), r"candidates\.0\.status: .*'eligible'.*'fine'"),
    (changed("candidates", 0, "index", to=True), r"candidates\.0\.index: .*; it is True"),
    (changed("candidates", 0, "score", "value", to="x"), r"candidates\.0\.score\.value: .*'x'"),
    (changed("candidates", 0, "error", to={"type": "E"}), r"candidates\.0\.error\.message: field"),
    (changed("candidates", 0, "output", to=5), r"candidates\.0: the output was bytes"),
    (changed("candidates", 0, "output_is_bytes", to="y"), r"candidates\.0\.output_is_bytes"),
    (changed("candidates", 0, "usage", "cost", to=0.25), r"usage\.cost: .*string; it is 0.25"),
    (changed("candidates", 0, "usage", "cost", to="much"), r"usage\.cost: .*'0.002'; it is 'much'"),
    (changed("usage", "malformed", to=[1]), r"usage\.malformed\.0: .*; it is 1"),
    (changed("telemetry", "events", to=1.5), r"telemetry\.events: .*; it is 1.5"),
]


@pytest.mark.parametrize(("wrong", "told"), REFUSED)
def test_what_is_no_report_is_refused_with_its_place(wrong: Any, told: str) -> None:
    with pytest.raises(InvalidReport, match=f"this is not the report of a run: .*{told}") as caught:
        RunResult.from_json(wrong)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 800


def test_base64_that_is_none_is_refused() -> None:
    line = of(b"\xff").to_json().replace('"/w=="', '"/w="')
    with pytest.raises(InvalidReport, match=r"candidates\.0: the output is no base64"):
        RunResult.from_json(line)


@given(st.data())
@settings(PATIENT, max_examples=60)
def test_a_report_that_was_cut_is_refused_wherever_the_cut_is(data: st.DataObject) -> None:
    line = json.dumps(GOOD)
    cut = data.draw(st.integers(0, len(line) - 1))
    with pytest.raises(InvalidReport):
        RunResult.from_json(line[:cut])


@given(st.data(), JSON)
@settings(PATIENT, max_examples=200)
def test_a_report_with_anything_anywhere_is_read_or_refused(
    data: st.DataObject, value: Any
) -> None:
    paths = [path for path in _paths(GOOD) if path]
    wrong = changed(*data.draw(st.sampled_from(paths)), to=value)
    try:
        read = RunResult.from_json(wrong)
    except InvalidReport:
        return
    strictly(read.to_json())


def _paths(value: Any) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else []
    items = enumerate(value) if isinstance(value, list) else items
    return [(), *((key, *path) for key, inner in items for path in _paths(inner))]


# -- other versions ------------------------------------------------------------------------------


def test_fields_of_later_versions_are_passed_over() -> None:
    report = json.loads(json.dumps(GOOD))
    for each in (
        report,
        report["usage"],
        report["usage"]["charged"],
        report["telemetry"],
        report["candidates"][0],
        report["candidates"][0]["score"],
    ):
        each["of_a_later_version"] = {"a": 1}
    assert json.loads(RunResult.from_json(json.dumps(report)).to_json()) == GOOD


def defaulted(cls: Any) -> list[str]:
    without = ("request", "output")
    return [
        field.name
        for field in attrs.fields(cls)
        if field.default is not attrs.NOTHING and field.name not in without
    ]


@pytest.mark.parametrize("name", defaulted(Candidate))
def test_a_field_that_an_earlier_version_did_not_write_has_its_default(name: str) -> None:
    report = json.loads(json.dumps(GOOD))
    del report["candidates"][0][name]
    read = RunResult.from_json(json.dumps(report)).candidates[0]
    assert getattr(read, name) == getattr(Candidate(0, Status.ELIGIBLE), name)


def test_fields_of_a_result_that_an_earlier_version_did_not_write_have_their_defaults() -> None:
    for name in defaulted(RunResult):
        report = {key: value for key, value in GOOD.items() if key != name}
        read = RunResult.from_json(json.dumps(report))
        default = attrs.fields_dict(RunResult)[name].default
        # How many were asked for: as many as there are, for a report that does not say.
        expected = len(read.candidates) if name == "requested_n" else default
        assert getattr(read, name) == expected, name


def test_every_field_of_a_result_is_in_its_report() -> None:
    assert set(GOOD) - {"format", "output", "output_is_bytes"} == {
        field.name for field in attrs.fields(RunResult)
    }
    assert set(CANDIDATE) - {"output", "output_is_bytes"} == {
        field.name for field in attrs.fields(Candidate) if field.name not in ("request", "output")
    }


# -- real runs -----------------------------------------------------------------------------------


async def test_a_real_run_with_every_kind_of_output(autojump_clock: Any) -> None:
    outputs: list[Any] = ["text", b"text", b"\xff", Answer(text="42", certainty=math.nan), *STRANGE]

    async def generate(request: Any, ctx: Any) -> Any:
        return outputs[ctx.index] if ctx.index < len(outputs) else outputs[99]

    async def score(request: Any, candidate: Any, ctx: Any) -> Score:
        return Score(1, metadata={"of": candidate.output})

    async with open_runtime() as runtime:
        job = BestOfN(generate=generate, score=score, n=len(outputs) + 1)
        result = await runtime.run(job, {"a": {1}})
    line = result.to_json()
    strictly(line)
    read = RunResult.from_json(line)
    assert read.to_json() == line
    assert read.output == "text"
    assert isinstance(read.candidates[-1].error, RecordedError)


# -- what it costs to import ---------------------------------------------------------------------


def test_pydantic_is_imported_when_something_is_read_and_not_before() -> None:
    script = """
import sys, hortator
from hortator.protocols import recording, report
print("pydantic" in sys.modules)
try:
    hortator.RunResult.from_json("{}")
except hortator.HortatorError:
    print("pydantic" in sys.modules)
"""
    root = str(Path(hortator.__file__).parents[1])
    child = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert child.stdout.split() == ["False", "True"], child.stderr
