"""KeyboardInterrupt and SystemExit (clause 8), and who is protected from them (design §2).

Raised by a callback they stop that run, and come out of its `run()` or `result()` as themselves
when its books are closed; other runs go on. Real signals are sent to child processes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import BestOfN, Budget, Usage, in_thread, open_runtime
from hortator.protocols.run import RunState
from tests.contract.scenes import SLACK, AsyncRecord, Record, after, child, job

EXITS = [KeyboardInterrupt, SystemExit]


# -- out of a callback ----------------------------------------------------------------------------


def _from_generator(error: BaseException) -> dict[str, Any]:
    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.1)
        if ctx.index == 1:
            raise error
        await trio.sleep(9)

    return {"generate": generate}


def _from_scorer(error: BaseException) -> dict[str, Any]:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await trio.sleep(0.1)
        if candidate.index == 1:
            raise error
        await trio.sleep(9)
        return 1.0

    return {"score": score}


def _in_a_group(error: BaseException) -> dict[str, Any]:
    async def raise_it() -> None:
        raise error

    async def generate(request: Any, ctx: Any) -> Any:
        await trio.sleep(0.1)
        if ctx.index == 1:
            async with trio.open_nursery() as outer, trio.open_nursery() as inner:
                inner.start_soon(raise_it)
                outer.start_soon(trio.sleep_forever)
        await trio.sleep(9)

    return {"generate": generate}


def _from_a_bare_coroutine_call(error: BaseException) -> dict[str, Any]:
    def generate(request: Any, ctx: Any) -> Any:
        async def late() -> Any:
            await trio.sleep(0.1)
            raise error

        return late()

    # Sync by its looks, so that it is called in a thread; what it returns is awaited.
    return {"generate": generate, "n": 1}


PLACES: dict[str, Callable[[BaseException], dict[str, Any]]] = {
    "generator": _from_generator,
    "scorer": _from_scorer,
    "group": _in_a_group,
}


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("place", PLACES)
async def test_it_stops_its_run_and_is_raised_as_itself_with_the_books_closed(
    place: str, kind: type[BaseException], autojump_clock: MockClock
) -> None:
    mine = kind("mine")
    record, slow = Record(), AsyncRecord()
    async with open_runtime() as runtime:
        other = runtime.start(job(generate=after(5)), "q")
        with pytest.raises(kind) as caught:
            await runtime.run(job(**PLACES[place](mine)), "q", observers=[record, slow])
        assert caught.value is mine, "it was wrapped or replaced"
        assert trio.current_time() == pytest.approx(0.1), "the run went on, or the others held it"
        assert record.terminal.stop_reason == slow.terminal.stop_reason == "cancelled"
        assert sum(record.terminal.statuses.values()) == 4
        assert runtime.usage.outstanding == Usage(), "a lease is open"
        result = await other.result()
    assert result.output == 3, "another run was stopped"


@pytest.mark.parametrize("kind", EXITS)
async def test_result_raises_it_again_each_time(
    kind: type[BaseException], autojump_clock: MockClock
) -> None:
    mine = kind("mine")
    async with open_runtime() as runtime:
        handle = runtime.start(job(**_from_generator(mine)), "q")
        for _ in range(2):
            with pytest.raises(kind) as caught:
                await handle.result()
            assert caught.value is mine
        assert handle.ended
        assert handle.snapshot().stop_reason == "cancelled"
    assert caught.value is mine


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("place", ["sync", "async", "runtime"])
async def test_an_observer_that_raises_it_stops_its_run(
    place: str, kind: type[BaseException], autojump_clock: MockClock
) -> None:
    mine = kind("mine")
    record = Record()

    def observe(event: Any) -> None:
        if event.kind == "generated" and event.run_id in victims:
            raise mine

    async def observe_async(event: Any) -> None:
        observe(event)

    victims: set[str] = set()
    observer = observe_async if place == "async" else observe
    mine_only, everybodys = ([], [observe]) if place == "runtime" else ([observer], [])
    async with open_runtime(observers=everybodys) as runtime:
        other = runtime.start(job(generate=after(5)), "q")
        handle = runtime.start(job(generate=after(0.1, 9)), "q", observers=[record, *mine_only])
        victims.add(handle.run_id)
        with pytest.raises(kind) as caught:
            await handle.result()
        assert caught.value is mine
        assert trio.current_time() == pytest.approx(0.1)
        assert record.terminal.stop_reason == "cancelled"
        assert (await other.result()).output == 3, "another run was stopped"


@pytest.mark.parametrize("kind", EXITS)
async def test_the_candidate_that_raised_it_has_it_as_its_error(
    kind: type[BaseException], autojump_clock: MockClock
) -> None:
    mine = kind("mine")
    async with open_runtime() as runtime:
        handle = runtime.start(job(**_from_generator(mine)), "q")
        with pytest.raises(kind):
            await handle.result()
        ended = handle.snapshot().ended
    assert [c.error for c in ended] == [None, mine, None, None]


@pytest.mark.parametrize("kind", EXITS)
async def test_out_of_a_worker_thread_it_does_the_same(kind: type[BaseException]) -> None:
    mine = kind("mine")

    def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 1:
            raise mine
        while not ctx.stopping:
            time.sleep(0.001)

    async with open_runtime() as runtime:
        with pytest.raises(kind) as caught:
            await runtime.run(job(generate=generate, timeout=30), "q")
        assert caught.value is mine
        assert (await runtime.run(job(), "q")).output == 3


@pytest.mark.parametrize("kind", EXITS)
async def test_out_of_an_observer_in_a_thread_it_does_the_same(kind: type[BaseException]) -> None:
    mine = kind("mine")

    def observe(event: Any) -> None:
        if event.kind == "generated":
            raise mine

    async with open_runtime() as runtime:
        with pytest.raises(kind) as caught:
            await runtime.run(
                job(generate=after(0, 9), timeout=30), "q", observers=[in_thread(observe)]
            )
        assert caught.value is mine


async def test_raised_in_place_of_a_cancellation_it_still_is_what_comes_out(
    autojump_clock: MockClock,
) -> None:
    mine = KeyboardInterrupt("mine")

    async def generate(request: Any, ctx: Any) -> Any:
        try:
            await trio.sleep(9)
        except trio.Cancelled:
            raise mine from None

    async with open_runtime() as runtime:
        with pytest.raises(KeyboardInterrupt) as caught:
            await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert caught.value is mine


async def test_a_nested_run_hands_it_on_to_the_run_around_it(
    autojump_clock: MockClock,
) -> None:
    mine = KeyboardInterrupt("mine")
    async with open_runtime() as runtime:

        async def generate(request: Any, ctx: Any) -> Any:
            return await runtime.run(job(**_from_generator(mine)), request)

        with pytest.raises(KeyboardInterrupt) as caught:
            await runtime.run(job(generate=generate), "q")
    assert caught.value is mine


# -- protection -----------------------------------------------------------------------------------


async def test_user_code_runs_without_protection(autojump_clock: MockClock) -> None:
    protected: dict[str, bool] = {}

    def note(where: str) -> None:
        protected[where] = trio.lowlevel.currently_ki_protected()

    async def generate(request: Any, ctx: Any) -> Any:
        note("generator's first step")
        await trio.lowlevel.checkpoint()
        note("generator's second step")
        return 1

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        note("scorer's first step")
        await trio.lowlevel.checkpoint()
        note("scorer's second step")
        return 1.0

    def observe(event: Any) -> None:
        note(f"sync observer of {event.kind}")

    async def observe_async(event: Any) -> None:
        note(f"async observer of {event.kind}")

    async with open_runtime(observers=[observe]) as runtime:
        await runtime.run(job(generate=generate, score=score, n=1), "q", observers=[observe_async])
    assert len(protected) == 4 + 2 * 6, sorted(protected)
    assert not any(protected.values()), "Ctrl-C can't stop a callback that loops for ever"


async def test_actors_run_with_protection(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    protected: dict[str, bool] = {}

    def watch(name: str) -> None:
        real = getattr(RunState, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            protected[name] = trio.lowlevel.currently_ki_protected()
            return real(*args, **kwargs)

        monkeypatch.setattr(RunState, name, watched)

    watch("begin")  # called by a candidate actor
    watch("generated")
    watch("scored")  # by the scorer, in its place
    watch("close")  # by the runner
    async with open_runtime() as runtime:
        await runtime.run(job(), "q")
    assert protected == {"begin": True, "generated": True, "scored": True, "close": True}


# -- real signals ---------------------------------------------------------------------------------

PREAMBLE = """
import signal, time, trio
from hortator import BestOfN, open_runtime

# A parent that ignores Ctrl-C, such as a shell with background jobs, hands that on.
signal.signal(signal.SIGINT, signal.default_int_handler)

told = []

async def score(request, candidate, ctx):
    return candidate.output

async def generate(request, ctx):
    if ctx.index == 0:
        return 7.0
    print("ready", flush=True)
    {wait}

async def main():
    try:
        async with open_runtime(observers=[told.append]) as runtime:
            job = BestOfN(generate=generate, score=score, n=2, max_concurrency=2, timeout=60)
            {body}
    finally:
        print("closed", *[event.stop_reason for event in told if event.terminal], flush=True)

try:
    trio.run(main)
except BaseException as error:
    print("out came", type(error).__name__, flush=True)
"""

WHILE = {
    "user code runs": "while True: pass",
    "the loop idles": "await trio.sleep(60)",
    "a thread works": "await trio.to_thread.run_sync(time.sleep, 0.4)",
}
RUN = "await runtime.run(job, 'q')"
LEAVE = "runtime.start(job, 'q')"  # and then wait for it by leaving the runtime


@pytest.mark.parametrize(
    ("body", "doing"),
    [
        (RUN, "user code runs"),
        (RUN, "the loop idles"),
        (RUN, "a thread works"),
        (LEAVE, "the loop idles"),
        (LEAVE, "user code runs"),
    ],
)
def test_a_real_sigint_closes_the_books_and_leaves_as_itself(body: str, doing: str) -> None:
    with child(PREAMBLE.format(wait=WHILE[doing], body=body)) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.1)
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
            took = time.monotonic() - sent
        finally:
            process.kill()
    assert out.splitlines() == ["closed cancelled", "out came KeyboardInterrupt"], err
    assert took < 0.4 + 2 * SLACK, f"it took {took:.1f} s from the signal to the end"
    assert process.returncode == 0, err


async def test_budget_is_settled_when_it_is_raised(autojump_clock: MockClock) -> None:
    mine = KeyboardInterrupt("mine")
    limited: BestOfN[Any, Any] = job(
        **_from_generator(mine), budget=Budget(model_calls=8), estimate=Usage(model_calls=2)
    )
    async with open_runtime() as runtime:
        with pytest.raises(KeyboardInterrupt):
            await runtime.run(limited, "q")
        assert runtime.usage.charged.model_calls == 8, "what was started is charged"
        assert runtime.usage.outstanding.model_calls == 0
