"""The one place that calls user code, and decides what each way out of it means.

`call_user` drives an async callback step by step inside a copy of the context that the run was
started in (a task per candidate would isolate context variables too, at four times the cost).
Actors run under Trio's protection from KeyboardInterrupt; user code runs without it.

What can come out of a callback:

* a value: handed on;
* `Cancelled`, while a scope around us is cancelled: it belongs to that scope and passes;
* a stray `Cancelled`, with no cancelled scope around us: the candidate's failure;
* KeyboardInterrupt or SystemExit: returned as `Interrupt`; its run stops and raises it;
* a group: split by these same rules;
* anything else: the candidate's failure, kept as itself.
"""

from __future__ import annotations

import contextvars
import inspect
import math
import types
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

import trio

from hortator.protocols.asking import Raised
from hortator.protocols.errors import RunStopping, StrayCancelled

_COROUTINE: object = types.CoroutineType


class Failed(Raised):
    """What a callback raised, routed."""

    __slots__ = ()


class Interrupt(Failed):
    """A KeyboardInterrupt or SystemExit out of a callback: it ends the run, not the candidate."""

    __slots__ = ()


class Stepped(Protocol):
    """Who wants to know of the steps of a callback."""

    steps: int
    suspended: bool
    coroutine: Any


@types.coroutine
@trio.lowlevel.enable_ki_protection
def call_user(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    context: contextvars.Context,
    watch: Stepped,
    on_suspend: Callable[[], None] | None = None,
) -> Generator[Any, Any, Any]:
    """Await an async callback, step by step in `context`, and route what comes out of it.

    Args:
        function: makes an awaitable.
        args: its arguments.
        context: where it runs, every step of it.
        watch: is told each step.
        on_suspend: called once, when the callback first lets the loop go.

    Returns:
        Its value, or `Failed`, or `Interrupt`.

    Raises:
        trio.Cancelled: a scope around the caller is cancelled. What the callback had done until
            then stays done.
    """
    run, torn = context.run, False
    try:
        coroutine, trap = run(_begin, function, args)
        send = coroutine.send
        watch.suspended = True
        watch.coroutine = coroutine
        if on_suspend is not None:
            on_suspend()
        while True:
            try:
                answer = yield trap
            except GeneratorExit:  # thrown at us, not by it: the loop is being torn down
                torn = True
                run(coroutine.close)
                raise
            except BaseException as error:  # noqa: BLE001  # thrown for a foreign trap: hand it in
                resume, answer = coroutine.throw, error
            else:
                resume = send
            watch.steps += 1
            trap = run(_step, resume, answer)
    except StopIteration as stop:  # how a coroutine returns
        return stop.value
    except BaseException as error:  # the one place: routed
        if torn or _ours(error):
            raise
        return _routed(error)


@trio.lowlevel.enable_ki_protection
def call_now(
    function: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context
) -> Any:
    """Call a sync callback by the same rules: in a worker thread, or a key on the loop.

    Returns:
        Its value, or `Failed`, or `Interrupt`; it never raises.
    """
    try:
        return context.run(_call, function, args)
    except BaseException as error:  # noqa: BLE001  # the one place: routed
        return _routed(error)


async def await_too(
    value: Any, stopping: Callable[[], bool], context: contextvars.Context, watch: Stepped
) -> Any:
    """What a sync callback has returned; if that is an awaitable, it is awaited by these rules.

    Args:
        value: what it returned, or `Failed`.
        stopping: whether it was told to stop. A coroutine begins at its first await, and that is
            now, so one that was told does not begin.
        context: where it runs.
        watch: is told each step.

    Raises:
        trio.Cancelled: a scope around the caller is cancelled, as of `call_user`.
    """
    if not inspect.isawaitable(value):
        return value
    if stopping():
        if inspect.iscoroutine(value):
            value.close()
        return Failed(RunStopping("told to stop before its first line"))
    return await call_user(lambda: value, (), context, watch)


@trio.lowlevel.enable_ki_protection
def call_each(
    function: Callable[[Any], Any], items: Sequence[Any], context: contextvars.Context
) -> list[Failed]:
    """Call a sync callback on the loop with one item after another, by the same rules.

    Returns:
        What the calls that raised came to; the others went on. It never raises.
    """
    failures: list[Failed] = []
    left = iter(items)  # goes on after the item whose call raised
    while True:
        try:
            context.run(_each, function, left)
        except BaseException as error:  # noqa: BLE001  # the one place: routed
            failures.append(_routed(error))
        else:
            return failures


@trio.lowlevel.disable_ki_protection
def _each(function: Callable[[Any], Any], items: Iterator[Any]) -> None:
    for item in items:
        function(item)


@trio.lowlevel.disable_ki_protection
def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(*args)


@trio.lowlevel.disable_ki_protection
def _begin(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    coroutine: Any = function(*args)
    if type(coroutine) is not _COROUTINE:  # pyright: ignore[reportUnnecessaryComparison]
        coroutine = _awaited(coroutine)
    return coroutine, coroutine.send(None)


@trio.lowlevel.disable_ki_protection
def _step(resume: Callable[[Any], Any], value: Any) -> Any:
    return resume(value)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


def _cancelled_here() -> bool:
    """Whether some scope around the current task is cancelled, ours or an outer one."""
    try:
        return trio.current_effective_deadline() == -math.inf
    except RuntimeError:  # in a worker thread, which no scope is around
        return False


def _ours(error: BaseException) -> bool:
    """Whether `error` is nothing but a cancellation that has to pass through us."""
    if isinstance(error, trio.Cancelled):
        return _cancelled_here()
    group = _as_group(error)
    if group is None or group.split(trio.Cancelled)[1] is not None:
        return False
    return _cancelled_here()


def _routed(error: BaseException) -> Failed:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return Interrupt(error)
    if isinstance(error, trio.Cancelled):
        return Failed(_stray())
    group = _as_group(error)
    if group is None:
        return Failed(error)
    exits, _ = group.split((KeyboardInterrupt, SystemExit))
    if exits is not None:
        return Interrupt(_first_leaf(exits))
    cancels, rest = group.split(trio.Cancelled)
    if cancels is None:
        return Failed(group)
    if rest is None:
        return Failed(_stray())
    if _cancelled_here():
        return Failed(rest)
    return Failed(BaseExceptionGroup(group.message, [_stray(), *rest.exceptions]))


def _as_group(error: BaseException) -> BaseExceptionGroup[BaseException] | None:
    return error if isinstance(error, BaseExceptionGroup) else None  # pyright: ignore[reportUnknownVariableType]


def _first_leaf(error: BaseException) -> BaseException:
    while (group := _as_group(error)) is not None:
        error = group.exceptions[0]
    return error


def _stray() -> StrayCancelled:
    return StrayCancelled(
        "a trio.Cancelled came out of the callback, but nothing around it was cancelled:"
        " look for a cancel scope or nursery that is closed in another task than the one that"
        " opened it, or for a stored Cancelled that is raised again"
    )
