"""What a run hands back: the output or a full account of why there is none, and the JSON report."""

from __future__ import annotations

import json
import math
from typing import Any

import attrs
import pydantic
import pytest

from hortator import (
    Candidate,
    HortatorError,
    NoEligibleCandidate,
    RunResult,
    Score,
    Status,
    Usage,
    UsageReport,
)
from hortator.protocols.candidate import Effect
from hortator.protocols.result import Telemetry
from hortator.protocols.usage import DIMENSIONS, Malformed


def good(output: Any = "the best", index: int = 1) -> Candidate[Any]:
    return Candidate(
        index,
        Status.ELIGIBLE,
        request="question",
        output=output,
        score=Score(0.9, rationale="short"),
        usage=Usage(model_calls=1, total_tokens=500, cost="0.0000001"),
        started=0.25,
        elapsed=1.5,
        effects=(Effect("mail", "write", "unknown"),),
        eligible=True,
    )


def failed(error: BaseException, index: int = 0) -> Candidate[Any]:
    return Candidate(index, Status.GENERATION_FAILED, request="question", error=error)


def a_result(*candidates: Candidate[Any], **changes: Any) -> RunResult[Any]:
    selected = next((c for c in candidates if c.eligible), None)
    result: RunResult[Any] = RunResult(
        selected=selected,
        candidates=candidates,
        stop_reason="completed" if selected else "no_eligible",
        partial=False,
        selected_by="best_score" if selected else "",
        usage=UsageReport(
            reported=Usage(total_tokens=500),
            charged=Usage(model_calls=1, total_tokens=540, cost="0.25"),
            outstanding=Usage(total_tokens=40),
            estimated=1,
            malformed=(Malformed(0, "cost=NaN"),),
        ),
        telemetry=Telemetry(events=11, delivered=22, dropped=3),
        seed=42,
        run_id="run-7",
        elapsed=1.75,
    )
    return attrs.evolve(result, **changes)


def report(result: RunResult[Any], **options: Any) -> dict[str, Any]:
    """The report, read by the strictest reader: JSON has no NaN, and text is UTF-8."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    text = result.to_json(**options)
    read: dict[str, Any] = json.loads(text.encode(), parse_constant=refuse)
    return read


# -- the output ----------------------------------------------------------------------------------


def test_b53_a_selected_output_is_handed_out() -> None:
    result = a_result(failed(ValueError("no")), good())
    assert result.output == "the best"
    assert result.raise_for_status() is result


def test_an_output_of_none_is_an_output() -> None:
    assert a_result(good(output=None)).output is None


def test_b53_without_a_selection_output_and_status_raise_with_all_causes() -> None:
    first, second = ValueError("no"), KeyError("key")
    result = a_result(
        failed(first), Candidate(1, Status.REJECTED, score=Score(0.1)), failed(second, 2)
    )
    for ask in (lambda: result.output, result.raise_for_status):
        with pytest.raises(NoEligibleCandidate) as caught:
            ask()
        assert isinstance(caught.value, HortatorError)
        assert caught.value.causes == (first, second)
        message = str(caught.value)
        assert "no_eligible" in message
        assert "2 generation_failed, 1 rejected" in message
        assert "ValueError('no')" in message


class BadlyWritten(Exception):
    """An exception as some libraries have them: it cannot be shown."""

    def __str__(self) -> str:
        return self.detail  # type: ignore[attr-defined, no-any-return]

    def __repr__(self) -> str:
        return self.detail  # type: ignore[attr-defined, no-any-return]


def test_a_cause_that_cannot_be_shown_does_not_hide_the_others() -> None:
    with pytest.raises(NoEligibleCandidate, match="1 generation_failed") as caught:
        a_result(failed(BadlyWritten())).raise_for_status()
    assert len(caught.value.causes) == 1


def test_a_result_is_a_value() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        a_result(good()).selected = None  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        good().status = Status.REJECTED  # type: ignore[misc]


# -- the report ----------------------------------------------------------------------------------


def test_w_bon_65_the_keys_of_the_report() -> None:
    whole = report(a_result(failed(ValueError("no")), good()))
    assert set(whole) >= {
        "format",
        "run_id",
        "seed",
        "requested_n",
        "stop_reason",
        "partial",
        "selected",
        "selected_by",
        "output",
        "elapsed",
        "usage",
        "telemetry",
        "candidates",
    }
    for candidate in whole["candidates"]:
        assert set(candidate) >= {
            "index",
            "status",
            "detached",
            "partial",
            "score",
            "output",
            "usage",
            "estimated",
            "started",
            "elapsed",
            "error",
            "effects",
            "eligible",
        }
    assert set(whole["usage"]) >= {"reported", "charged", "outstanding", "estimated", "malformed"}
    assert set(whole["usage"]["charged"]) == set(DIMENSIONS)
    assert set(whole["telemetry"]) == set(attrs.asdict(Telemetry()))


def test_the_report_says_what_the_result_says() -> None:
    whole = report(a_result(failed(ValueError("no")), good()))
    assert (whole["run_id"], whole["seed"], whole["elapsed"]) == ("run-7", 42, 1.75)
    assert (whole["selected"], whole["output"]) == (1, "the best")
    assert (whole["selected_by"], whole["stop_reason"]) == ("best_score", "completed")
    assert whole["telemetry"]["dropped"] == 3
    assert whole["usage"]["charged"]["total_tokens"] == 540
    assert whole["usage"]["outstanding"]["total_tokens"] == 40
    assert whole["usage"]["malformed"] == [{"candidate": 0, "what": "cost=NaN"}]
    bad, best = whole["candidates"]
    assert bad["error"] == {"type": "ValueError", "message": "no"}
    assert (bad["status"], bad["score"], bad["output"]) == ("generation_failed", None, None)
    assert bad["started"] is None
    assert best["score"] == {"value": 0.9, "accepted": True, "rationale": "short"}
    assert (best["status"], best["error"], best["output"]) == ("eligible", None, "the best")
    assert (best["started"], best["elapsed"]) == (0.25, 1.5)
    assert best["effects"] == [{"name": "mail", "kind": "write", "state": "unknown"}]


def test_money_is_text_with_all_its_digits() -> None:
    whole = report(a_result(good()))
    assert whole["usage"]["charged"]["cost"] == "0.25"
    assert whole["candidates"][0]["usage"]["cost"] == "0.0000001", "not 1E-7"


def test_without_a_selection_the_report_has_none() -> None:
    whole = report(a_result(failed(ValueError("no"))))
    assert (whole["selected"], whole["output"], whole["selected_by"]) == (None, None, "")


class Answer(pydantic.BaseModel):
    text: str
    certainty: float


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("text", "text"),
        ("", ""),
        ("Grüße, 世界 🚣", "Grüße, 世界 🚣"),
        ("line\nline\x00", "line\nline\x00"),
        ("Grüße".encode(), "Grüße"),
        (None, None),
        (Answer(text="42", certainty=0.5), {"text": "42", "certainty": 0.5}),
    ],
)
def test_text_and_models_are_shown_as_they_are(output: Any, shown: Any) -> None:
    whole = report(a_result(good(output)))
    assert whole["output"] == whole["candidates"][0]["output"] == shown
    assert "output_is_repr" not in whole


@pytest.mark.parametrize("output", [Opaque(), {"a": (1,)}, 3.5, [math.nan]])
def test_everything_else_is_shown_as_its_repr_and_says_so(output: Any) -> None:
    whole = report(a_result(good(output)))
    assert whole["output"] == whole["candidates"][0]["output"] == repr(output)
    assert whole["output_is_repr"] is True
    assert whole["candidates"][0]["output_is_repr"] is True


def test_encode_turns_outputs_into_something_json_can_hold() -> None:
    whole = report(a_result(good({1, 2})), encode=sorted)
    assert whole["output"] == whole["candidates"][0]["output"] == [1, 2]
    assert "output_is_repr" not in whole


@pytest.mark.parametrize("part", ["\ud800", "ab\udcff"])
def test_text_that_is_no_utf_8_does_not_break_the_report(part: str) -> None:
    assert report(a_result(good(part)))["selected"] == 1


def test_a_model_with_a_nan_does_not_break_the_report() -> None:
    whole = report(a_result(good(Answer(text="42", certainty=math.nan))))
    assert whole["output"]["text"] == "42"


def test_what_cannot_be_shown_does_not_break_the_report() -> None:
    whole = report(a_result(failed(BadlyWritten()), good(NoRepr())))
    assert whole["selected"] == 1
    assert whole["candidates"][0]["error"]["type"] == "BadlyWritten"
