"""What is refused where a run or a runtime is started, and that nothing has started by then.

A spy is told of everything that could begin: callbacks, events, tasks. After a refusal it has
seen nothing, the runtime is as it was, and the next run works.
"""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import trio

from hortator import (
    BestOfN,
    Budget,
    DoesNotFit,
    Event,
    HortatorError,
    InvalidJob,
    Runtime,
    best_of_n,
    open_runtime,
)
from hortator.protocols.errors import RuntimeClosed


class Spy:
    """Callbacks and an observer that remember that they were called."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def generate(self, request: str, ctx: Any) -> str:
        self.seen.append("generate")
        return request

    async def score(self, request: str, candidate: Any, ctx: Any) -> float:
        self.seen.append("score")
        return 1.0

    def observe(self, event: Event) -> None:
        self.seen.append(event.kind)

    async def observe_later(self, event: Event) -> None:
        self.seen.append(event.kind)

    def job(self, **options: Any) -> BestOfN[str, str]:
        return BestOfN(generate=self.generate, score=self.score, **options)


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def refused(runtime: Runtime, spy: Spy, *args: Any, **options: Any) -> str:
    """The message of a refusal, after which nothing has begun, by `run` and by `start`."""
    await trio.testing.wait_all_tasks_blocked()
    before = (tasks(), runtime.usage, runtime.detached)
    with pytest.raises(InvalidJob):
        await runtime.run(*args, **options)
    with pytest.raises(InvalidJob) as caught:
        runtime.start(*args, **options)
    await trio.testing.wait_all_tasks_blocked()
    assert spy.seen == [], "something had started"
    assert (tasks(), runtime.usage, runtime.detached) == before
    return str(caught.value)


@pytest.mark.parametrize("value", [BestOfN, None, "question", {"n": 3}, print])
async def test_run_takes_a_job_and_nothing_else(autojump_clock: Any, value: Any) -> None:
    spy = Spy()
    async with open_runtime(observers=[spy.observe]) as runtime:
        assert "a BestOfN(...)" in await refused(runtime, spy, value, "question")


async def test_a_request_and_a_job_that_changed_places_are_refused(autojump_clock: Any) -> None:
    spy = Spy()
    async with open_runtime(observers=[spy.observe]) as runtime:
        assert "a BestOfN(...)" in await refused(runtime, spy, "question", spy.job())


@pytest.mark.parametrize("value", [1.0, True, "1", math.nan, [1]])
async def test_a_seed_is_a_whole_number_or_none(autojump_clock: Any, value: Any) -> None:
    spy = Spy()
    async with open_runtime(observers=[spy.observe]) as runtime:
        message = await refused(runtime, spy, spy.job(), "question", seed=value)
    assert message.startswith(f"seed={value!r}")
    assert "None to have one drawn" in message


@pytest.mark.parametrize("value", ["fail", None, True, "RAISE"])
async def test_what_to_do_about_observers_is_one_of_two_words(
    autojump_clock: Any, value: Any
) -> None:
    spy = Spy()
    async with open_runtime(observers=[spy.observe]) as runtime:
        message = await refused(runtime, spy, spy.job(), "question", on_observer_error=value)
    assert all(word in message for word in ("on_observer_error", "'ignore'", "'raise'"))


def takes_nothing() -> None:
    raise AssertionError("called")


def takes_two(run: Any, event: Any) -> None:
    raise AssertionError("called")


async def takes_nothing_async() -> None:
    raise AssertionError("called")


@pytest.mark.parametrize("observer", [takes_nothing, takes_two, takes_nothing_async])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "after a good one"])
async def test_an_observer_takes_one_event(
    autojump_clock: Any, observer: Any, beside: bool
) -> None:
    spy = Spy()
    observers = [spy.observe, observer] if beside else [observer]
    async with open_runtime() as runtime:
        message = await refused(runtime, spy, spy.job(), "question", observers=observers)
    assert "observer(event)" in message


@pytest.mark.parametrize("observer", [3, None, "observer"])
async def test_an_observer_can_be_called(autojump_clock: Any, observer: Any) -> None:
    spy = Spy()
    async with open_runtime() as runtime:
        message = await refused(runtime, spy, spy.job(), "question", observers=[observer])
    assert "async def observer(event)" in message


async def test_a_coroutine_instead_of_an_observer_is_refused(autojump_clock: Any) -> None:
    spy = Spy()
    async with open_runtime() as runtime:
        coroutine = spy.observe_later(None)  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match="observer=observe_later"):
            runtime.start(spy.job(), "question", observers=[coroutine])  # type: ignore[list-item]
    assert spy.seen == []


async def test_one_observer_without_a_list_is_refused_and_the_list_shown(
    autojump_clock: Any,
) -> None:
    spy = Spy()
    async with open_runtime() as runtime:
        message = await refused(runtime, spy, spy.job(), "question", observers=spy.observe)
    assert "observers=[" in message


CHILD = """
    import trio
    from hortator import BestOfN, InvalidJob, open_runtime

    async def generate(request, ctx): return request
    async def score(request, candidate, ctx): return 1.0
    async def good(event): print("called")

    async def main():
        async with open_runtime() as runtime:
            try:
                runtime.start(
                    BestOfN(generate=generate, score=score), "q", observers=[good, lambda: None]
                )
            except InvalidJob:
                print("refused")
        print("left")

    trio.run(main)
"""


def test_a_refused_observer_does_not_keep_a_good_one_alive_for_ever() -> None:
    # In a child: were its task left behind, leaving the runtime would wait for it without end.
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert child.stdout.split() == ["refused", "left"], child.stderr


# -- jobs ----------------------------------------------------------------------------------------


async def test_a_set_that_does_not_fit_is_refused_before_anything_starts(
    autojump_clock: Any,
) -> None:
    spy = Spy()
    async with open_runtime(observers=[spy.observe]) as runtime:
        before = tasks()
        with pytest.raises(DoesNotFit) as caught:
            await runtime.run(spy.job(n=4, budget=Budget(model_calls=3)), "question")
        await trio.testing.wait_all_tasks_blocked()
        assert (spy.seen, tasks()) == ([], before)
    assert isinstance(caught.value, InvalidJob)
    assert "3 would fit" in str(caught.value)


async def test_after_a_refusal_the_same_runtime_runs_the_next_job(autojump_clock: Any) -> None:
    spy = Spy()
    async with open_runtime() as runtime:
        await refused(runtime, spy, None, "question")
        await refused(runtime, spy, spy.job(), "question", seed="x")
        assert (await runtime.run(spy.job(n=1), "question")).output == "question"
    assert spy.seen == ["generate", "score"]


# -- best_of_n, with and without a runtime around it ---------------------------------------------


@pytest.mark.parametrize("around", [False, True], ids=["its own runtime", "a runtime around it"])
async def test_best_of_n_refuses_as_run_does(autojump_clock: Any, around: bool) -> None:
    spy = Spy()

    async def both() -> None:
        with pytest.raises(InvalidJob, match=r"a BestOfN\(\.\.\.\)"):
            await best_of_n(None, "question")  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match="seed"):
            await best_of_n(spy.job(), "question", seed=1.5)

    if around:
        async with open_runtime():
            await both()
    else:
        await both()
    assert spy.seen == []


# -- a closed runtime ----------------------------------------------------------------------------


async def test_a_runtime_that_was_left_starts_nothing(autojump_clock: Any) -> None:
    spy = Spy()
    async with open_runtime(observers=[spy.observe]) as runtime:
        pass
    with pytest.raises(RuntimeClosed, match="inside its `async with`") as caught:
        await runtime.run(spy.job(), "question")
    with pytest.raises(RuntimeClosed):
        runtime.start(spy.job(), "question")
    assert isinstance(caught.value, HortatorError)
    assert spy.seen == []


async def test_a_runtime_that_is_being_left_starts_nothing(autojump_clock: Any) -> None:
    spy, refusals = Spy(), list[Exception]()

    async def slow(request: str, ctx: Any) -> str:
        await trio.sleep(2)
        return request

    async def late() -> None:
        await trio.sleep(1)  # by now the body has been left, and the runtime waits for its run
        try:
            runtime.start(spy.job(), "question")
        except RuntimeClosed as error:
            refusals.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(late)
        async with open_runtime() as runtime:
            handle = runtime.start(BestOfN(generate=slow, score=spy.score, n=1), "question")
    assert (await handle.result()).output == "question", "leaving waits for runs in flight"
    assert len(refusals) == 1
    assert spy.seen == ["score"]


# -- open_runtime --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grace", "exit_grace"])
@pytest.mark.parametrize("value", [-1, -0.001, math.inf, math.nan, "1", None])
def test_a_grace_of_a_runtime_is_seconds_from_0_up(name: str, value: Any) -> None:
    with pytest.raises(InvalidJob) as caught:
        open_runtime(**{name: value})
    assert str(caught.value).startswith(f"{name}={value!r}")
    assert "seconds from 0 up" in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, math.inf, "4", None])
def test_a_number_of_threads_is_a_whole_number_from_1_up(value: Any) -> None:
    with pytest.raises(InvalidJob) as caught:
        open_runtime(threads=value)
    assert str(caught.value).startswith(f"threads={value!r}")
    assert "a whole number from 1 up" in str(caught.value)


@pytest.mark.parametrize("observer", [takes_nothing, takes_two, takes_nothing_async, 3, None])
def test_an_observer_of_a_runtime_is_refused_where_it_is_written(observer: Any) -> None:
    with pytest.raises(InvalidJob, match="observer"):
        open_runtime(observers=[observer])


def test_one_observer_of_a_runtime_without_a_list_is_refused_and_the_list_shown() -> None:
    with pytest.raises(InvalidJob, match=r"observers=\["):
        open_runtime(observers=Spy().observe)  # type: ignore[arg-type]


async def test_no_grace_and_one_thread_are_allowed(autojump_clock: Any) -> None:
    spy = Spy()
    async with open_runtime(grace=0, exit_grace=0, threads=1) as runtime:
        assert (await runtime.run(spy.job(), "question")).output == "question"
