"""Callbacks are looked at before anything starts: their kind, and what they can be called with."""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from hortator import BestOfN, InvalidJob, in_thread
from hortator.protocols.signatures import check_callback, is_async

REQUEST = ("request", "ctx")


async def good(request: Any, ctx: Any) -> str:
    return "never called here"


def good_sync(request: Any, ctx: Any) -> str:
    return "never called here"


class Callable2:
    """A generator as an object."""

    async def __call__(self, request: Any, ctx: Any) -> str:
        return "never called here"

    async def method(self, request: Any, ctx: Any) -> str:
        return "never called here"

    @classmethod
    async def of_class(cls, request: Any, ctx: Any) -> str:
        return "never called here"

    @staticmethod
    async def static(request: Any, ctx: Any) -> str:
        return "never called here"


class SyncCallable:
    def __call__(self, request: Any, ctx: Any) -> str:
        return "never called here"


class Made:
    """A class called as a function: what it makes is the output."""

    def __init__(self, request: Any, ctx: Any) -> None:
        pass


def supplied_with_a_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that calls the function with one argument more than it takes itself."""

    @functools.wraps(function)
    async def call(request: Any, ctx: Any) -> Any:
        return await function(request, ctx, "client")

    return call


async def needs_a_client(request: Any, ctx: Any, client: str) -> str:
    return client


GOOD: list[Callable[..., Any]] = [
    good,
    good_sync,
    lambda request, ctx: "",
    lambda *everything: "",
    lambda request, ctx, temperature=0.5: "",
    lambda request, *rest, **named: "",
    functools.partial(needs_a_client, client="x"),
    functools.partial(lambda client, request, ctx: "", "x"),
    Callable2(),
    Callable2().method,
    Callable2.of_class,
    Callable2.static,
    SyncCallable(),
    Made,
    supplied_with_a_client(needs_a_client),
    max,  # a builtin: whether it has a signature is up to the interpreter
]


@pytest.mark.parametrize("function", GOOD, ids=lambda f: getattr(f, "__qualname__", repr(f)))
def test_what_can_be_called_with_the_arguments_is_taken(function: Callable[..., Any]) -> None:
    check_callback("generate", function, REQUEST)


async def takes_one(request: Any) -> str:
    return ""


async def takes_none() -> str:
    return ""


async def takes_three(request: Any, ctx: Any, extra: Any) -> str:
    return ""


async def takes_keyword(request: Any, ctx: Any, *, temperature: float) -> str:
    return ""


async def takes_ctx_by_keyword(request: Any, *, ctx: Any) -> str:
    return ""


WRONG_NUMBER: list[Callable[..., Any]] = [
    takes_one,
    takes_none,
    takes_three,
    takes_keyword,
    takes_ctx_by_keyword,
    lambda: "",
    functools.partial(good, "request"),
    Callable2.method,
    SyncCallable.__call__,
]


@pytest.mark.parametrize(
    "function", WRONG_NUMBER, ids=lambda f: getattr(f, "__qualname__", repr(f))
)
def test_a_wrong_number_of_arguments_is_refused_with_the_right_one(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(InvalidJob) as caught:
        BestOfN(generate=function, score=lambda request, candidate, ctx: 1.0)
    message = str(caught.value)
    assert "called as generate(request, ctx)" in message
    assert "write `async def generate(request, ctx): ...`" in message


def test_a_scorer_that_takes_no_context_is_refused() -> None:
    def scorer_of_two(request: Any, candidate: Any) -> float:
        return 1.0

    with pytest.raises(InvalidJob, match=r"async def score\(request, candidate, ctx\)"):
        BestOfN(generate=good, score=scorer_of_two)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["generate", "score"])
def test_a_coroutine_object_is_refused_closed_and_the_right_spelling_shown(name: str) -> None:
    callbacks: dict[str, Any] = {"generate": good, "score": lambda *_: 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "was never awaited" would be ours then
        with pytest.raises(InvalidJob, match=f"{name}=good$") as caught:
            BestOfN(**{**callbacks, name: good("question", None)})
        assert "coroutine" in str(caught.value)
        del caught
        gc.collect()


@pytest.mark.parametrize("value", [None, 3, "generate", ["generate"], object()])
@pytest.mark.parametrize("name", ["generate", "score"])
def test_what_cannot_be_called_is_refused(name: str, value: Any) -> None:
    callbacks: dict[str, Any] = {"generate": good, "score": lambda *_: 1.0, name: value}
    with pytest.raises(InvalidJob) as caught:
        BestOfN(**callbacks)
    assert name in str(caught.value)
    assert "async def" in str(caught.value)


async def generates_many(request: Any, ctx: Any) -> AsyncGenerator[str]:
    yield "one"


class GeneratesMany:
    async def __call__(self, request: Any, ctx: Any) -> AsyncGenerator[str]:
        yield "one"


@pytest.mark.parametrize(
    "function",
    [generates_many, functools.partial(generates_many), GeneratesMany(), GeneratesMany().__call__],
    ids=["function", "partial", "object", "method"],
)
def test_an_async_generator_function_is_refused_and_publish_named(function: Any) -> None:
    with pytest.raises(InvalidJob, match=r"async generator.*ctx\.publish"):
        BestOfN(generate=function, score=lambda *_: 1.0)


# -- sync or async -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        good,
        Callable2(),
        Callable2().method,
        Callable2.of_class,
        functools.partial(good, ctx=1),
        functools.partial(functools.partial(Callable2()), ctx=1),
        supplied_with_a_client(needs_a_client),
    ],
)
def test_async_is_told_from_the_function_or_its_call_through_partials(
    function: Callable[..., Any],
) -> None:
    assert is_async(function)


@pytest.mark.parametrize(
    "function", [good_sync, SyncCallable(), Made, functools.partial(good_sync, 1), lambda: 1, max]
)
def test_everything_else_is_sync(function: Callable[..., Any]) -> None:
    assert not is_async(function)


# -- observers -----------------------------------------------------------------------------------


async def async_observer(event: Any) -> None:
    return None


@pytest.mark.parametrize("observer", [async_observer, 3, None, lambda: None, lambda a, b: None])
def test_in_thread_takes_a_sync_observer_of_one_event_and_nothing_else(observer: Any) -> None:
    with pytest.raises(InvalidJob, match="observer"):
        in_thread(observer)
