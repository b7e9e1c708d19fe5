"""Reads what a command reports of its usage: text from outside, so pydantic."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from hortator.protocols.showing import on_one_line
from hortator.protocols.usage import Unreadable, Usage, fault


class _Report(BaseModel):
    """The JSON object of one report."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    cost: Decimal = Decimal(0)


def read_usage(text: bytes) -> Usage | None:
    """What a report comes to: one JSON object a line, added up; None if there is none.

    What can't be read or can't be true makes the whole report `Unreadable`: whoever is charged it
    is charged the estimate instead, and the reason is kept among the malformed reports.

    >>> read_usage(b'{"model_calls": 1, "cost": "0.002"}\\n{"model_calls": 2}\\n').model_calls
    3
    >>> read_usage(b'{"calls": 1}').why
    'line 1 of its usage report: calls: Extra inputs are not permitted: {"calls": 1}'
    """
    total: Usage | None = None
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            one = Usage(**_Report.model_validate_json(line).model_dump())
            why = fault(one)
        except ValidationError as error:
            one, why = Usage(), _first_fault(error)
        if why is not None:
            return Unreadable(
                why=f"line {number} of its usage report: {why}: {on_one_line(line, 80)}"
            )
        total = one if total is None else total + one
    return total


def _first_fault(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])
