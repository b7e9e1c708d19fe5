"""The report of a run as JSON: plain data for people and programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hortator.protocols.candidate import Candidate
from hortator.protocols.scoring import Score
from hortator.protocols.showing import message, shown
from hortator.protocols.usage import DIMENSIONS, Usage, UsageReport

if TYPE_CHECKING:
    from hortator.protocols.result import RunResult

Encode = Callable[[Any], Any]


def dump(result: RunResult[Any], encode: Encode | None) -> str:
    """One JSON object for a result; see `RunResult.to_json`."""
    selected = result.selected
    report = json.dumps(
        {
            "run_id": result.run_id,
            "seed": result.seed,
            "requested_n": result.requested_n,
            "stop_reason": result.stop_reason,
            "partial": result.partial,
            "selected": None if selected is None else selected.index,
            "selected_by": result.selected_by,
            **(_output(selected.output, encode) if selected else {"output": None}),
            "elapsed": result.elapsed,
            "usage": usage_report(result.usage),
            "telemetry": {
                name: getattr(result.telemetry, name)
                for name in ("events", "delivered", "observer_errors", "dropped", "cut", "refused")
            },
            "candidates": [_candidate(candidate, encode) for candidate in result.candidates],
        },
        ensure_ascii=False,
        default=shown,
    )
    if any("\ud800" <= letter <= "\udfff" for letter in report):
        # Half a surrogate pair can't be written as UTF-8; as an escape it can.
        report = json.dumps(json.loads(report))
    return report


def usage(amount: Usage) -> dict[str, int | str]:
    """A usage as plain data; money is text, so that no reader makes a float of it."""
    counts: dict[str, int | str] = {name: getattr(amount, name) for name in DIMENSIONS[:-1]}
    return {**counts, "cost": format(amount.cost, "f")}


def usage_report(report: UsageReport) -> dict[str, Any]:
    """A usage report as plain data."""
    return {
        "reported": usage(report.reported),
        "charged": usage(report.charged),
        "outstanding": usage(report.outstanding),
        "estimated": report.estimated,
        "malformed": [{"candidate": m.candidate, "what": m.what} for m in report.malformed],
    }


def _candidate(candidate: Candidate[Any], encode: Encode | None) -> dict[str, Any]:
    error = candidate.error
    return {
        "index": candidate.index,
        "status": str(candidate.status),
        "detached": candidate.detached,
        "partial": candidate.partial,
        "score": None if candidate.score is None else _score(candidate.score),
        **_output(candidate.output, encode),
        "usage": usage(candidate.usage),
        "estimated": candidate.estimated,
        "started": candidate.started,
        "elapsed": candidate.elapsed,
        "error": None
        if error is None
        else {"type": type(error).__name__, "message": message(error)},
        "effects": [{"name": e.name, "kind": e.kind, "state": e.state} for e in candidate.effects],
    }


def _score(score: Score) -> dict[str, Any]:
    return {"value": score.value, "accepted": score.accepted, "rationale": score.rationale}


def _output(output: object, encode: Encode | None) -> dict[str, Any]:
    if output is None:
        return {"output": None}
    if encode is not None:
        return {"output": encode(output)}
    if isinstance(output, str):
        return {"output": output}
    # Asked for by name: importing pydantic costs more than everything else here.
    as_json = getattr(output, "model_dump_json", None)
    if callable(as_json) and not isinstance(output, type):
        return {"output": json.loads(str(as_json()))}
    if isinstance(output, bytes):
        try:
            return {"output": output.decode()}
        except UnicodeDecodeError:
            pass  # not text: shown as the repr below
    return {"output": shown(output, most=1_000_000), "output_is_repr": True}
