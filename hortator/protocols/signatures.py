"""Checks of callbacks that can be made before anything starts."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from hortator.protocols.errors import InvalidJob


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine: itself or its `__call__`, partials unwrapped."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (its kind is asked, not its presence)
    )


def name_of(function: Callable[..., Any]) -> str:
    """What a callable is called, partials unwrapped: its `__name__`, or else that of its class.

    >>> name_of(functools.partial(print, end=""))
    'print'
    """
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def check_callback(
    name: str, function: object, arguments: tuple[str, ...], *, word: str = "async def"
) -> None:
    """Refuse what cannot be called with so many positional arguments.

    Args:
        name: of the callback.
        function: is checked.
        arguments: what it is called with.
        word: how its definition begins, for the message.

    Raises:
        InvalidJob: it is a coroutine object, no callable, an async generator function, or takes
            another number of arguments.
    """
    shape = f"{word} {name}({', '.join(arguments)})"
    if inspect.iscoroutine(function):
        called = function.__name__
        function.close()  # it will never be awaited, and that is what we are saying
        raise InvalidJob(
            f"{name}={called}(...) is a coroutine: pass the function itself, {name}={called}"
        )
    if not callable(function):
        raise InvalidJob(f"{name}={function!r} is not callable; write `{shape}: ...`")
    if inspect.isasyncgenfunction(function) or inspect.isasyncgenfunction(
        getattr(function, "__call__", None)  # noqa: B004  (its kind is asked, not its presence)
    ):
        raise InvalidJob(
            f"{name} is an async generator function (it has a `yield`); write `{shape}: ...` with"
            " `return`, and offer early outputs with ctx.publish(output, score)"
        )
    code = getattr(function, "__code__", None)
    if code is not None and _takes_exactly(code, len(arguments), function):
        return  # the usual case, forty times cheaper than a signature
    try:
        # Not the signature of what a decorator wraps: the decorator is what is called.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # some builtins have none: they are tried as they are
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise InvalidJob(
            f"{name} takes {signature}, but is called as {name}({', '.join(arguments)});"
            f" write `{shape}: ...`"
        ) from error


def _takes_exactly(code: types.CodeType, count: int, function: object) -> bool:
    star = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    plain = not star and not code.co_kwonlyargcount
    return plain and code.co_argcount == count + inspect.ismethod(function)
