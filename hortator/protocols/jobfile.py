"""Reads a `job.toml`: text that a person wrote, so pydantic. Its keys are the flags' names."""

from __future__ import annotations

import difflib
import re
import tomllib
from typing import Annotated, Any, TypeAlias

import attrs
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hortator.protocols.errors import InvalidJob
from hortator.protocols.showing import on_one_line

Words: TypeAlias = str | list[str]
Amount: TypeAlias = int | float | str


class _File(BaseModel):
    """What may stand in a job file; everything may be left out, for flags may say it."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    generate: Words | None = None
    score: Words | None = None
    request: str | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    concurrency: Annotated[int, Field(ge=1)] | None = None
    timeout: Annotated[float, Field(ge=0)] | None = None
    minimize: bool | None = None
    vote: bool | None = None
    vote_by: str | None = None
    target: float | None = None
    stop: str | None = None
    seed: int | None = None
    max_calls: Annotated[int, Field(ge=0)] | None = None
    max_cost: Amount | None = None
    estimate_calls: Annotated[int, Field(ge=0)] | None = None
    estimate_cost: Amount | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    max_output: Annotated[int, Field(ge=1)] | None = None
    events: str | None = None


@attrs.frozen
class JobFile:
    """A job file that was read.

    Attributes:
        values: by key, those that stand in it.
        lines: the number of each key's line, from 1.
    """

    values: dict[str, Any]
    lines: dict[str, int]


def read_job(text: str) -> JobFile:
    """Read a job file.

    Raises:
        InvalidJob: it is no TOML, a key is unknown or a value has the wrong type; the message has
            the line and the key.

    >>> read_job('generate = "solve --seed {seed}"\\nn = 8\\n').values["n"]
    8
    >>> read_job("tiemout = 5")
    Traceback (most recent call last):
    hortator.protocols.errors.InvalidJob: line 1: tiemout: there is no such key; is it timeout?
    """
    try:
        written = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = _AT.search(str(error))
        line = f"line {at[1]}: " if at else ""
        raise InvalidJob(f"{line}it is no TOML: {error}") from error
    lines = _lines(text)
    try:
        read = _File.model_validate(written)
    except ValidationError as error:
        raise InvalidJob(_first_fault(error, lines)) from error
    return JobFile(read.model_dump(exclude_unset=True), lines)


_AT = re.compile(r"\(at line (\d+),")
_HEADER = re.compile(r"\s*\[\s*([\w.\"'-]+)\s*\]")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


def _lines(text: str) -> dict[str, int]:
    """The line of each key, as "key" or "table.key": `tomllib` does not tell.

    What looks like a key inside a text of several lines comes after the key itself, so the first
    one counts.
    """
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _plain(header[1]) + "."
            found.setdefault(table[:-1], number)
        elif key := _KEY.match(line):
            found.setdefault(table + _plain(key[1]), number)
    return found


def _plain(key: str) -> str:
    return key.replace('"', "").replace("'", "")


def _first_fault(error: ValidationError, lines: dict[str, int]) -> str:
    first: Any = error.errors(include_url=False, include_context=False)[0]
    parts = [str(part) for part in first["loc"]]
    # Behind the key stands which form of it was tried; only a table has keys of its own.
    key = ".".join(parts[:2]) if parts[0] == "env" else parts[0]
    line = lines.get(key, lines.get(parts[0]))
    where = key if line is None else f"line {line}: {key}"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, _File.model_fields, 1)
        which = f"is it {near[0]}?" if near else f"the keys are {', '.join(_File.model_fields)}"
        return f"{on_one_line(where, 80)}: there is no such key; {which}"
    return f"{where}: {first['msg']}, not {on_one_line(repr(first['input']), 60)}"
