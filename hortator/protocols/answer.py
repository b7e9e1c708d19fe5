"""Reads the JSON object that a command prints as its score: text from outside, so pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hortator.protocols.scoring import Score


class _Answer(BaseModel):
    """The JSON object that a scorer may print."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    score: float
    accepted: bool = True
    rationale: str = ""


def read_object(text: bytes) -> Score:
    """Read the object of a score.

    Raises:
        ValueError: it is something else; the message says where.

    >>> read_object(b'{"score": 0.5, "rationale": "half"}').rationale
    'half'
    """
    try:
        answer = _Answer.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(_first_fault(error)) from error
    return Score(answer.score, accepted=answer.accepted, rationale=answer.rationale)


def _first_fault(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])
