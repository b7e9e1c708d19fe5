"""B91: an error is raised as what it is, in a group only if it was one.

Virtual time throughout.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    BestOfN,
    Budget,
    DoesNotFit,
    Event,
    InvalidJob,
    NoEligibleCandidate,
    ObserverFailed,
    Usage,
    best_of_n,
    open_runtime,
)
from tests.field_cases.scenes import (
    Record,
    index_score,
    job_of,
    live_tasks,
    statuses,
)


async def answers(request: str, ctx: Any) -> str:
    await trio.sleep(1)
    return f"answer {ctx.index}"


# A setup error is the public error itself

SETUP: dict[str, tuple[Callable[[Any], Any], type[BaseException]]] = {
    "no job": (lambda runtime: runtime.run(object(), "q"), InvalidJob),
    "bad seed": (lambda runtime: runtime.run(job_of(answers), "q", seed=0.5), InvalidJob),
    "bad observer": (
        lambda runtime: runtime.run(job_of(answers), "q", observers=[lambda: None]),
        InvalidJob,
    ),
    "bad mode": (
        lambda runtime: runtime.run(job_of(answers), "q", on_observer_error="log"),
        InvalidJob,
    ),
}


@pytest.mark.parametrize("case", SETUP)
async def test_B91_a_setup_error_is_raised_as_itself(case: str, autojump_clock: MockClock) -> None:
    call, kind = SETUP[case]
    record = Record()
    before = live_tasks()
    with pytest.raises(kind) as raised:
        async with open_runtime(observers=[record]) as runtime:
            await call(runtime)
    assert isinstance(raised.value, ValueError)
    assert record.events == [], "something was started"
    assert live_tasks() == before


def test_B91_so_is_that_of_a_job_that_does_not_fit() -> None:
    with pytest.raises(DoesNotFit):
        BestOfN(generate=answers, score=index_score, n=3, budget=Budget(model_calls=2))


# The body's exception leaves the runtime as itself


class Mine(Exception):
    """A user's own."""


LEAVING: list[BaseException] = [
    Mine("body"),
    KeyboardInterrupt(),
    SystemExit(3),
    GeneratorExit(),
    StopAsyncIteration(),
    ExceptionGroup("the body's own group", [Mine(), OSError()]),
]


@pytest.mark.parametrize("error", LEAVING, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "with a run in flight"])
@pytest.mark.parametrize("handle", [False, True], ids=["runtime", "handle"])
async def test_B91_the_bodys_exception_leaves_as_itself(
    handle: bool, busy: bool, error: BaseException, autojump_clock: MockClock
) -> None:
    before = live_tasks()
    with pytest.raises(type(error)) as raised:
        async with open_runtime() as runtime:
            if busy:
                runtime.start(job_of(answers), "q")
            if handle:
                async with runtime.start(job_of(answers), "q"):
                    raise error
            raise error
    assert raised.value is error, f"it came as {raised.value!r}"
    assert live_tasks() == before


# A candidate's own error is kept as itself


async def one_error(ctx: Any) -> None:
    raise ConnectionError("refused")


async def one_in_a_nursery(ctx: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one_error, ctx)
        nursery.start_soon(trio.sleep_forever)


async def several(ctx: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one_error, ctx)
        nursery.start_soon(one_error, ctx)


@pytest.mark.parametrize(
    ("fails", "kind", "inside"),
    [
        (one_error, ConnectionError, []),
        (one_in_a_nursery, ExceptionGroup, [ConnectionError]),
        (several, ExceptionGroup, [ConnectionError, ConnectionError]),
    ],
    ids=["bare", "nursery", "several"],
)
async def test_B91_a_candidates_error_is_kept_as_it_was_raised(
    fails: Callable[[Any], Awaitable[None]],
    kind: type[BaseException],
    inside: list[type[BaseException]],
    autojump_clock: MockClock,
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        await fails(ctx)
        return "answer"

    result = await best_of_n(job_of(generate, n=2), "q")
    assert statuses(result) == ["generation_failed"] * 2
    for candidate in result.candidates:
        assert type(candidate.error) is kind
        assert [type(each) for each in getattr(candidate.error, "exceptions", ())] == inside
    with pytest.raises(NoEligibleCandidate) as raised:
        result.raise_for_status()
    assert [type(cause) for cause in raised.value.causes] == [kind] * 2


# An interrupt gets out, bare, from wherever it is raised and whatever it is raised with


async def bare(interrupt: BaseException) -> None:
    raise interrupt


async def grouped(interrupt: BaseException) -> None:
    raise BaseExceptionGroup("", [interrupt])


async def beside_errors(interrupt: BaseException) -> None:
    inner = BaseExceptionGroup("inner", [OSError(), interrupt])
    raise BaseExceptionGroup("outer", [ValueError(), inner, KeyError()])


async def in_a_nursery(interrupt: BaseException) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(bare, interrupt)


async def on_the_way_out(interrupt: BaseException) -> None:
    try:
        raise Mine
    finally:
        raise interrupt


RAISES = [bare, grouped, beside_errors, in_a_nursery, on_the_way_out]


@pytest.mark.parametrize("where", ["generator", "scorer", "thread", "observer", "async observer"])
@pytest.mark.parametrize("raises", RAISES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(3)])
async def test_B91_an_interrupt_stops_its_run_and_is_raised_bare(
    interrupt: BaseException, raises: Callable[[BaseException], Awaitable[None]], where: str
) -> None:
    # On the real clock, since one of them is a thread.
    async def generate(request: str, ctx: Any) -> str:
        if where == "generator" and ctx.index == 1:
            await raises(interrupt)
        if where == "generator":
            await trio.sleep_forever()
        return "answer"

    def sync_generate(request: str, ctx: Any) -> str:
        if ctx.index == 1:
            if raises is bare:
                raise interrupt
            raise BaseExceptionGroup("", [OSError(), interrupt])
        return "answer"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        if where == "scorer" and ctx.index == 1:
            await raises(interrupt)
        await trio.sleep_forever()
        raise AssertionError

    async def async_observer(event: Event) -> None:
        if event.kind == "generated":
            await raises(interrupt)

    def observer(event: Event) -> None:
        if event.kind == "generated":
            if raises is bare:
                raise interrupt
            raise BaseExceptionGroup("", [OSError(), interrupt])

    watching: list[Any] = [{"observer": observer, "async observer": async_observer}.get(where)]
    record = Record()
    async with open_runtime() as runtime:
        other = runtime.start(job_of(answers, n=1), "q")
        await trio.testing.wait_all_tasks_blocked()
        before = live_tasks()
        job = job_of(sync_generate if where == "thread" else generate, score)
        with pytest.raises(type(interrupt)) as raised:
            observers = [record, *filter(None, watching)]
            await runtime.run(job, "q", observers=observers)
        assert raised.value is interrupt, f"it came as {raised.value!r}"
        record.check()
        assert record.finished.stop_reason == "cancelled"
        assert runtime.usage.outstanding == Usage(), "the books were not closed"
        assert live_tasks() == before, "the run's tasks live on"
        assert not other.ended, "another run was stopped too"
        other.cancel()
        await other.result()


async def test_B91_a_handle_raises_it_each_time(autojump_clock: MockClock) -> None:
    async def generate(request: str, ctx: Any) -> str:
        raise KeyboardInterrupt

    async with open_runtime() as runtime:
        handle = runtime.start(job_of(generate), "q")
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                await handle.result()


async def test_B91_best_of_n_with_its_own_runtime_raises_bare_too(
    autojump_clock: MockClock,
) -> None:
    async def generate(request: str, ctx: Any) -> str:
        raise BaseExceptionGroup("", [KeyboardInterrupt(), OSError()])

    def observer(event: Event) -> None:
        raise ConnectionError

    with pytest.raises(KeyboardInterrupt):
        await best_of_n(job_of(generate), "q")
    with pytest.raises(ObserverFailed) as raised:
        await best_of_n(job_of(answers), "q", observers=[observer], on_observer_error="raise")
    assert isinstance(raised.value.__cause__, ConnectionError)
    with pytest.raises(InvalidJob):
        await best_of_n(object(), "q")  # type: ignore[arg-type]
