"""Reads what `RunResult.to_json` and `event_line` wrote: text from a file or network, so pydantic.

The models are made of the classes themselves, field by field: a class says once what it has. A
field that a report lacks gets the default of its class, so that reports of earlier versions stay
readable; fields of later versions are passed over.

Only imported when something is read: importing pydantic costs more than everything else here.
"""

from __future__ import annotations

import base64
import binascii
import enum
import functools
import json
import types
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import (
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    create_model,
)

from hortator.protocols.attribution import Attribution
from hortator.protocols.candidate import Candidate
from hortator.protocols.encoding import FLAGS, RecordedCandidate
from hortator.protocols.errors import InvalidReport, RecordedError
from hortator.protocols.events import Emitted, Event
from hortator.protocols.recording import EMITTED, EVENTS, FORMAT as LINE_FORMAT
from hortator.protocols.report import FORMAT
from hortator.protocols.result import RunResult
from hortator.protocols.showing import shown
from hortator.protocols.usage import Usage

Hint: TypeAlias = Any
"""A type, as annotations have it."""

_SPELT: dict[tuple[type[Any], str], str] = {(Emitted, "kind"): EMITTED}
"""Fields that go by another name in the text."""


def read_report(text: str | bytes) -> RunResult[Any]:
    """A report as a result; see `RunResult.from_json`."""
    what = "the report of a run"
    data = _object(text, what)
    _check_format(data, FORMAT, what)
    result: RunResult[Any] = _read(RunResult, data, what)
    return result


def read_line(line: str | bytes) -> Event:
    """A line as an event; see `read_event` in `recording`."""
    what = "the line of an event"
    data = _object(line, what)
    _check_format(data, LINE_FORMAT, what)
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in EVENTS:
        raise _no(what, "kind", f"it is {shown(kind)}, and not one of {', '.join(EVENTS)}")
    event: Event = _read(EVENTS[kind], data, what)
    return event


# -- the text ------------------------------------------------------------------------------------


def _no(what: str, where: str, why: str) -> InvalidReport:
    return InvalidReport(f"this is not {what}: {where}: {why}")


def _object(text: object, what: str) -> dict[str, Any]:
    if isinstance(text, (bytes, bytearray)):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise _no(what, f"byte {error.start}", "it is not UTF-8") from error
    if not isinstance(text, str):
        why = f"pass what it holds, as str or bytes, and not a {type(text).__name__}"
        raise _no(what, "the text", why)
    try:
        data = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        cut = not text[error.pos :].strip() or error.msg.startswith("Unterminated")
        hint = "; the text ends there: was it cut?" if cut else ""
        near = shown(text[max(0, error.pos - 20) : error.pos + 20])
        raise _no(what, where, f"it is no JSON ({error.msg}, near {near}){hint}") from error
    except (ValueError, RecursionError) as error:
        raise _no(what, "the text", f"it is no JSON that can be read: {error}") from error
    if not isinstance(data, dict):
        raise _no(what, "the text", f"it is {shown(data)}, and not a JSON object")
    return cast("dict[str, Any]", data)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _check_format(data: dict[str, Any], ours: str, what: str) -> None:
    found = data.get("format")
    if found == ours:
        return
    if found is None:
        raise _no(what, "format", f"it is missing; here it is {ours!r}")
    name, _, version = str(found).partition("/")
    later = name == ours.partition("/")[0] and version.isdecimal()
    hint = ": another version of this library wrote it" if later else ""
    raise _no(what, "format", f"it is {shown(found)}, and only {ours!r} is read{hint}")


def _read(cls: Any, data: dict[str, Any], what: str) -> Any:
    try:
        return _adapter(cls).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        why = first["msg"].removeprefix("Value error, ")
        # Of a whole object the head tells nothing.
        seen = "" if isinstance(first["input"], dict) else f"; it is {shown(first['input'])}"
        raise _no(what, where, why[:1].lower() + why[1:] + seen) from error


# -- the models ----------------------------------------------------------------------------------


class _Base(BaseModel):
    model_config = ConfigDict(
        extra="ignore", strict=True, allow_inf_nan=False, protected_namespaces=()
    )


class _Error(_Base):
    type: str
    message: str

    def made(self) -> RecordedError:
        """The error that it tells of."""
        return RecordedError(self.type, self.message)


@functools.cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(_type(cls))


def _type(hint: Hint) -> Hint:
    """What pydantic is to read for a type of ours: the same, made of plain data."""
    origin, args = _taken_apart(hint)
    if origin is tuple:
        items: Any = tuple.__class_getitem__((_type(args[0]), ...))
        return Annotated[items, Strict(False)]  # JSON only has lists
    if origin is Union or origin is types.UnionType:
        return Union[tuple(map(_type, args))]  # noqa: UP007  # made of a tuple
    if origin is Mapping:
        return dict[_type(args[0]), _type(args[1])]  # type: ignore[misc]  # made at run time
    if hint is object or isinstance(hint, TypeVar):
        return Any
    return _class(origin) if isinstance(origin, type) else hint


def _taken_apart(hint: Hint) -> tuple[Any, tuple[Any, ...]]:
    origin: Any = get_origin(hint)
    return (hint if origin is None else origin), get_args(hint)


def _class(cls: type[Any]) -> Hint:
    if issubclass(cls, enum.Enum):
        return Annotated[cls, Strict(False)]
    if issubclass(cls, BaseException):
        return Annotated[_Error, AfterValidator(_Error.made)]
    if cls is Decimal:
        return Annotated[str, AfterValidator(_money)]
    if not attrs.has(cls):
        return cls
    if cls is Attribution:
        return Annotated[_attribution_model(), AfterValidator(_attribution)]
    if cls is Candidate:
        return Annotated[_candidate_model(), AfterValidator(_candidate)]
    if cls is RunResult:
        return Annotated[_result_model(), AfterValidator(_result)]
    return Annotated[_model(cls, _hints(cls)), AfterValidator(functools.partial(_made, cls))]


def _hints(cls: type[Any]) -> dict[str, Hint]:
    hints = get_type_hints(cls)
    return {field.name: _type(hints[field.name]) for field in attrs.fields(cls)}


@functools.cache
def _hints_of_references() -> dict[str, Hint]:
    """The fields of a result that name candidates, which the report does by index."""
    hints = get_type_hints(RunResult)
    return {
        field.name: _by_index(hints[field.name])
        for field in attrs.fields(RunResult)
        if field.name != "candidates" and _names_candidates(hints[field.name])
    }


def _names_candidates(hint: Hint) -> bool:
    origin: Any = get_origin(hint)
    return origin is Candidate or any(map(_names_candidates, get_args(hint)))


def _by_index(hint: Hint) -> Hint:
    origin: Any = get_origin(hint)
    if origin is tuple:
        return Annotated[tuple[int, ...], Strict(False)]
    return int | None


def _model(cls: type[Any], hints: Mapping[str, Hint]) -> type[BaseModel]:
    """A model with these fields of a class; what the class has a default for may be missing."""
    fields: dict[str, Any] = {}
    for field in attrs.fields(cls):
        if field.name in hints:
            default: Any = ... if field.default is attrs.NOTHING else None
            name = _SPELT.get((cls, field.name), field.name)
            fields[field.name] = (hints[field.name], Field(default, validation_alias=name))
    return create_model(cls.__name__, __base__=_Base, **fields)


def _given(model: BaseModel) -> dict[str, Any]:
    """What the text had; the defaults of the rest are the class's own."""
    return {name: getattr(model, name) for name in model.model_fields_set}


def _made(cls: Callable[..., Any], model: BaseModel) -> Any:
    return cls(**_given(model))


def _money(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError("write an amount of money as text, such as '0.002'") from error


# -- trees of charges, candidates and results ------------------------------------------------------


@functools.cache
def _attribution_model() -> type[BaseModel]:
    fields: dict[str, Any] = {
        "name": (str, ...),
        "charged": (_type(Usage), ...),
        "children": (list["Node"], []),  # type: ignore[name-defined]  # noqa: F821  # itself
    }
    model = create_model("Node", __base__=_Base, **fields)
    model.model_rebuild(_types_namespace={"Node": model})
    return model


def _attribution(model: Any) -> Attribution:
    return Attribution(model.name, model.charged, tuple(map(_attribution, model.children)))


@functools.cache
def _candidate_model() -> type[BaseModel]:
    hints = _hints(Candidate)
    del hints["request"]  # no report has it
    record = _model(Candidate, hints)
    flags: dict[str, Any] = {name: (kind | None, None) for name, kind in FLAGS.items()}
    return create_model("Record", __base__=record, **flags)


def _candidate(model: BaseModel) -> RecordedCandidate:
    given = _given(model)
    flags = {name: given.pop(name) for name in FLAGS if name in given}
    given["output"] = _output(given.get("output"), flags)
    return RecordedCandidate(**given, written=flags)


def _output(output: Any, flags: dict[str, Any]) -> Any:
    """The output as it was, if its form tells; without the flags that it needs no more."""
    as_text, as_base64 = flags.pop("output_is_bytes", None), flags.pop("output_is_base64", None)
    if not as_text and not as_base64:
        return output
    if not isinstance(output, str):
        raise ValueError("the output was bytes: they are written as text")
    if as_text:
        return output.encode()
    try:
        return base64.b64decode(output, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the output is no base64: {error}") from error


@functools.cache
def _result_model() -> type[BaseModel]:
    return _model(RunResult, _hints(RunResult) | _hints_of_references())


def _result(model: BaseModel) -> RunResult[Any]:
    given = _given(model)
    indices = Counter(candidate.index for candidate in given["candidates"])
    for index, times in indices.items():
        if times > 1:
            raise ValueError(f"candidates: {times} of them have the index {index}")
    records = {candidate.index: candidate for candidate in given["candidates"]}
    for name in _hints_of_references().keys() & given.keys():
        found = given[name]
        if isinstance(found, tuple):
            listed = cast("tuple[int, ...]", found)
            given[name] = tuple(_record(records, index, name) for index in listed)
        elif found is not None:
            given[name] = _record(records, found, name)
    return RunResult(**given)


def _record(records: Mapping[int, RecordedCandidate], index: int, name: str) -> RecordedCandidate:
    if index not in records:
        raise ValueError(f"{name}: there is no candidate {index}")
    return records[index]
