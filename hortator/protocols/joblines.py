"""Many requests in one text, a line each, and the lines that answer them.

Both come from outside, so pydantic reads them.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import attrs
from pydantic import BaseModel, ConfigDict, ValidationError

from hortator.protocols.errors import InvalidJob
from hortator.protocols.result import RunResult
from hortator.protocols.showing import on_one_line


class _Line(BaseModel):
    """A request that is written as JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: int | str
    request: str


class _Answer(BaseModel):
    """What has to be in a line that answers a request; the rest is not looked at."""

    model_config = ConfigDict(strict=True)

    id: int | str


@attrs.frozen
class Asked:
    """One request of many.

    Attributes:
        id: as it was given; the number of its line if it was not.
        number: of its line, from 1.
        request: for the candidates.
    """

    id: int | str
    number: int
    request: bytes


def read_requests(text: bytes) -> list[Asked]:
    """Read requests, one a line: plain text, or `{"id": "a", "request": "text"}`.

    A line is JSON if it begins with `{`. Empty lines are passed over.

    Raises:
        InvalidJob: a line of JSON is no request, or an id comes twice; the message has the line.

    >>> [asked.id for asked in read_requests(b'one\\n\\n{"id": "a", "request": "two"}\\n')]
    [1, 'a']
    """
    found: dict[str, Asked] = {}
    for number, written in enumerate(text.split(b"\n"), start=1):
        line = written.removesuffix(b"\r")
        if not line.strip():
            continue
        asked = Asked(number, number, line)
        if line.startswith(b"{"):
            asked = _from_json(line, number)
        before = found.setdefault(str(asked.id), asked)
        if before is not asked:
            raise InvalidJob(
                f"line {number}: the id {asked.id!r} is that of line {before.number} already"
            )
    return list(found.values())


def _from_json(line: bytes, number: int) -> Asked:
    try:
        read = _Line.model_validate_json(line)
    except ValidationError as error:
        first: Any = error.errors(include_url=False, include_context=False)[0]
        where = f"{first['loc'][0]}: " if first["loc"] else ""
        raise InvalidJob(
            f"line {number}: {where}{first['msg']}; a line that begins with {{ is read as"
            f' {{"id": "a", "request": "text"}}: {on_one_line(line, 60)}'
        ) from error
    return Asked(read.id, number, read.request.encode("utf-8", "surrogatepass"))


def read_answers(text: bytes) -> tuple[frozenset[str], int]:
    """The ids that a text answers, and how long its whole lines are.

    What comes after the last line break was cut off while it was written, and is no answer.

    Raises:
        InvalidJob: a line answers nothing.

    >>> read_answers(b'{"id": 1, "output": "x"}\\n{"id": 2, "ou')
    (frozenset({'1'}), 25)
    """
    whole = text.rfind(b"\n") + 1
    ids: set[str] = set()
    for number, line in enumerate(text[:whole].splitlines(), start=1):
        try:
            ids.add(str(_Answer.model_validate_json(line).id))
        except ValidationError as error:
            raise InvalidJob(
                f"line {number} is no answer of an earlier call, so nothing is added to it:"
                f" {on_one_line(line, 60)}"
            ) from error
    return frozenset(ids), whole


def answer(asked: Asked, result: RunResult[bytes], *, report: bool) -> bytes:
    """The line that answers a request.

    Args:
        asked: the request.
        result: of its run.
        report: whether the whole report of the run is in it.
    """
    line: dict[str, Any] = {"id": asked.id}
    if report:
        line["report"] = json.loads(result.to_json())
    else:
        best = result.selected
        score = None if best is None else best.score
        line |= _text(None if best is None else result.output)
        line |= {
            "selected": None if best is None else best.index,
            "score": None if score is None else score.value,
            "stop_reason": result.stop_reason,
            "seed": result.seed,
            "elapsed": round(result.elapsed, 6),
        }
    return json.dumps(line).encode() + b"\n"


def _text(output: bytes | None) -> dict[str, Any]:
    if output is None:
        return {"output": None}
    try:
        return {"output": output.decode()}
    except UnicodeDecodeError:
        return {"output": base64.b64encode(output).decode(), "output_is_base64": True}
