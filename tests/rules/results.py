"""Results as users' callbacks may make them: for the tests of what is told of a result.

What is ours in them (indices, statuses, seconds, what the book says) is as a run makes it; what is
the users' (outputs, messages, names, metadata) is whatever an object can be.
"""

from __future__ import annotations

import json
import math
from typing import Any, get_args

import attrs
import pydantic
from hypothesis import HealthCheck, settings, strategies as st

from hortator import Candidate, Event, RunResult, Score, Status, Usage, UsageReport
from hortator.protocols import events
from hortator.protocols.candidate import Detached, Effect, EffectState
from hortator.protocols.result import Telemetry
from hortator.protocols.stopping import StopReason
from hortator.protocols.usage import MOST, Malformed, dollars

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Making such a result takes a while, and on a loaded machine any one may take long."""


class Answer(pydantic.BaseModel):
    text: str
    certainty: float


class Constants(pydantic.BaseModel):
    """A model whose own JSON has constants that are no JSON."""

    model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")
    certainty: float


class Unwritable(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    thing: object


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class NoAttributes:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Liar:
    """Looks like a model, and is none."""

    def model_dump_json(self) -> str:
        return "{"


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no str")

    __repr__ = __str__


class BadDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


class BadlyWritten(Exception):
    """An exception as some libraries have them: it cannot be shown."""

    def __str__(self) -> str:
        return self.detail  # type: ignore[attr-defined, no-any-return]

    __repr__ = __str__


def cyclic() -> list[Any]:
    ring: list[Any] = [1]
    ring.append({"ring": ring})
    return ring


def deep(levels: int = 5_000) -> Any:
    value: Any = "the bottom"
    for _ in range(levels):
        value = [value]
    return value


STRANGE = [
    Opaque(),
    NoRepr(),
    NoAttributes(),
    Liar(),
    Text("as text"),
    BadDict(a=1),
    Answer,
    Answer(text="42", certainty=math.nan),
    Constants(certainty=math.inf),
    Unwritable(thing=Opaque()),
    cyclic(),
    deep(),
    10**5_000,
    {1: "one", "1": "another", None: {2}},
    {NoRepr(): b"x"},
    "\ud83d\ude00 two halves",
    b"",
    b"\xff",
]


def pick(values: list[Any]) -> st.SearchStrategy[Any]:
    """One of these; not `sampled_from`, which shows them, and some can't be shown."""

    def picked(number: int) -> Any:
        return values[number]

    return st.integers(0, len(values) - 1).map(picked)


TEXT = st.text(st.characters(), max_size=20)
"""With single surrogates, control characters and all."""

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXT
    | st.binary(max_size=8)
    | pick(STRANGE)
    | st.frozensets(st.integers(), max_size=3)
)

ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXT | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=8,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # As text is when it comes out of a JSON reader.
    | TEXT.map(lambda text: json.loads(json.dumps(text))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)

SECONDS = st.floats(0, 1e9) | st.integers(0, 1000)
ERRORS = (
    st.builds(ValueError, TEXT)
    | st.builds(OSError, st.integers(0, 200), TEXT)
    | pick([BadlyWritten(), KeyboardInterrupt(), ExceptionGroup("two", [KeyError(1)])])
)
COUNTS = st.integers(0, MOST)
MONEY = st.integers(0, MOST).map(dollars)
USAGE = st.builds(
    Usage, model_calls=COUNTS, input_tokens=COUNTS, total_tokens=COUNTS, cost=MONEY
) | st.just(Usage())
USERS_USAGE = USAGE | st.sampled_from(
    [
        Usage(model_calls=-1),
        Usage(cost="NaN"),
        Usage(cost="1e999999"),
        Usage(cost="-0"),
        Usage(tool_calls=math.nan),  # type: ignore[arg-type]
        Usage(input_tokens="many"),  # type: ignore[arg-type]
    ]
)
SCORES = st.builds(
    Score,
    st.floats(allow_nan=False, allow_infinity=False),
    accepted=st.booleans(),
    rationale=TEXT | pick([None, 7, NoRepr()]),
    usage=st.none() | USERS_USAGE,
    metadata=st.none() | st.dictionaries(TEXT, ANYTHING, max_size=3),
)
STATES = st.sampled_from(get_args(EffectState))
EFFECTS = st.builds(Effect, TEXT, st.sampled_from(["read", "write"]), STATES)


def candidates(outputs: st.SearchStrategy[Any]) -> st.SearchStrategy[Candidate[Any]]:
    return st.builds(
        Candidate,
        st.just(0),
        st.sampled_from(Status),
        detached=st.booleans(),
        request=st.sampled_from(["question", Opaque()]),
        output=outputs,
        partial=st.booleans(),
        score=st.none() | SCORES,
        error=st.none() | ERRORS,
        usage=USAGE,
        estimated=st.booleans(),
        started=st.none() | SECONDS,
        elapsed=SECONDS,
        effects=st.lists(EFFECTS, max_size=2).map(tuple),
        eligible=st.booleans(),
    )


@st.composite
def results(draw: st.DrawFn, outputs: st.SearchStrategy[Any] = ANYTHING) -> RunResult[Any]:
    """A result of up to five candidates, with a selected one or none."""
    drawn = draw(st.lists(candidates(outputs), max_size=5))
    records = tuple(attrs.evolve(each, index=index) for index, each in enumerate(drawn))
    return RunResult(
        selected=draw(st.sampled_from([None, *records])),
        candidates=records,
        stop_reason=draw(st.sampled_from(get_args(StopReason))),
        partial=draw(st.booleans()),
        selected_by=draw(TEXT),
        usage=draw(REPORTS),
        telemetry=draw(st.builds(Telemetry, events=COUNTS, dropped=COUNTS)),
        seed=draw(st.integers()),
        run_id=draw(st.sampled_from(["run-1", "run-12/3"])),
        elapsed=draw(SECONDS),
    )


REPORTS = st.builds(
    UsageReport,
    reported=USAGE,
    charged=USAGE,
    outstanding=USAGE,
    estimated=COUNTS,
    malformed=st.lists(st.builds(Malformed, COUNTS, TEXT), max_size=2).map(tuple),
    double_settlements=COUNTS,
)

_DETACHED = st.builds(
    Detached,
    run_id=st.just("run-1"),
    candidate=st.none() | COUNTS,
    phase=st.sampled_from(["generating", "scoring", "observing"]),
    since=SECONDS,
    kind=st.sampled_from(["task", "thread"]),
    where=TEXT,
    lease=USAGE,
    ended=st.booleans(),
    late_usage=st.none() | USAGE,
    error=st.none() | ERRORS,
)

_OF_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "sequence": COUNTS,
    "run_id": st.just("run-1"),
    "candidate": COUNTS,
    "time": SECONDS,
    "lease": COUNTS,
    "score": SCORES,
    "status": st.sampled_from(Status),
    "detached": st.booleans(),
    "error": st.none() | ERRORS,
    "name": TEXT,
    "state": STATES,
    "kind": TEXT | st.sampled_from(["started", "finished", "emitted"]),
    "data": st.dictionaries(TEXT, ANYTHING, max_size=3),
    "stop_reason": st.sampled_from(get_args(StopReason)),
    "partial": st.booleans(),
    "selected": st.none() | COUNTS,
    "statuses": st.dictionaries(st.sampled_from(Status), COUNTS),
    "charged": USAGE,
}

_OF_CLASSES: dict[type[Any], dict[str, st.SearchStrategy[Any]]] = {
    events.LateEnd: {"detached": _DETACHED, "candidate": st.none() | COUNTS},
    events.CandidatePublished: {"score": st.none() | SCORES},
    events.RunFinished: {"detached": st.lists(COUNTS, max_size=3).map(tuple)},
}


def events_of(cls: type[Any]) -> st.SearchStrategy[Event]:
    """Events of one class; the users' parts of them are anything."""
    drawn = {**_OF_FIELDS, **_OF_CLASSES.get(cls, {})}
    made: st.SearchStrategy[Event] = st.builds(
        cls, **{field.name: drawn[field.name] for field in attrs.fields(cls)}
    )
    return made
