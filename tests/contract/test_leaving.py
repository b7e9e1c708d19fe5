"""Leaving the runtime (clause 10), and `best_of_n`, which opens and leaves one by itself.

Under virtual time, but for threads and for code that swallows every cancellation (done-when 3):
that runs in a child process, which is killed.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import threading
import time
from collections.abc import Generator
from typing import IO, Any

import pytest
import trio
from trio.testing import MockClock

from hortator import InvalidJob, best_of_n, open_runtime
from tests.contract.scenes import (
    GRACE,
    PATIENCE,
    SLACK,
    WORK,
    Record,
    Stubborn,
    after,
    child,
    job,
    statuses,
    stubborn_for,
)


class Warnings(logging.Handler):
    """Keeps what the library warns of, with the time on Trio's clock."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append((trio.current_time(), record.getMessage()))


@pytest.fixture
def warned() -> Generator[Warnings]:
    handler = Warnings()
    logger = logging.getLogger("hortator")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


# -- runs in flight -------------------------------------------------------------------------------


async def test_a_normal_exit_waits_for_the_runs_in_flight(
    autojump_clock: MockClock, warned: Warnings
) -> None:
    async with open_runtime() as runtime:
        handles = [runtime.start(job(generate=after(seconds)), "q") for seconds in (1, 3)]
    assert trio.current_time() == pytest.approx(3)
    for handle in handles:
        result = await handle.result()
        assert (result.stop_reason, result.output) == ("completed", 3)
    assert warned.told == []


async def test_an_exit_by_exception_stops_the_runs_first(autojump_clock: MockClock) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with open_runtime() as runtime:
            handle = runtime.start(job(generate=after(0.1, 9)), "q")
            await trio.sleep(1)
            raise ValueError("mine")
    assert trio.current_time() == pytest.approx(1)
    result = await handle.result()
    assert (result.stop_reason, result.output) == ("cancelled", 0)


async def test_an_exit_by_cancellation_stops_the_runs_first(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        async with open_runtime() as runtime:
            handle = runtime.start(job(generate=after(0.1, 9)), "q")
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert trio.current_time() == pytest.approx(1)
    assert (await handle.result()).partial


@pytest.mark.parametrize("awaits", [True, False], ids=["after a checkpoint", "without one"])
async def test_a_cancel_that_comes_while_it_waits_for_runs_stops_them(
    awaits: bool, autojump_clock: MockClock
) -> None:
    with trio.CancelScope() as scope:
        async with open_runtime() as runtime:
            handle = runtime.start(job(generate=after(0.1, 9)), "q")
            if awaits:
                await trio.lowlevel.checkpoint()
            # Set only now, so that the run knows nothing of this deadline.
            scope.deadline = trio.current_time() + 1
    assert trio.current_time() == pytest.approx(1), "the runs were not stopped"
    assert (await handle.result()).stop_reason == "cancelled"


# -- detached tasks -------------------------------------------------------------------------------


async def test_detached_tasks_are_waited_for_with_warnings(
    autojump_clock: MockClock, warned: Warnings
) -> None:
    stuck = Stubborn(10, 2)
    async with open_runtime() as runtime:
        result = await runtime.run(job(generate=stuck, timeout=1), "q")
        left_at = trio.current_time()
    assert trio.current_time() == pytest.approx(10), "it did not wait for the task's end"
    assert 2 in stuck.ended
    waited = [at - left_at for at, _ in warned.told]
    # First after the grace, then the pauses double.
    assert waited == pytest.approx([GRACE * (2**k - 1) for k in range(1, 6)])
    where = re.compile(r"scenes\.py:\d+")
    for _, text in warned.told:
        assert f"candidate 2 of {result.run_id}" in text, text
        assert where.search(text), f"file and line of the innermost await are missing: {text}"


@pytest.mark.parametrize("how", ["exception", "cancellation"])
async def test_every_way_of_leaving_waits_for_detached_tasks(
    how: str, autojump_clock: MockClock, warned: Warnings
) -> None:
    stuck = Stubborn(10, 2)
    with trio.CancelScope() as scope, pytest.raises(ValueError, match="mine"):
        async with open_runtime() as runtime:
            runtime.start(job(generate=stuck), "q")
            await trio.sleep(1)
            if how == "exception":
                raise ValueError("mine")
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("mine")
    assert trio.current_time() == pytest.approx(10)
    assert len(warned.told) >= 4


async def test_a_warning_names_all_that_it_waits_for(
    autojump_clock: MockClock, warned: Warnings
) -> None:
    async def observe(event: Any) -> None:
        if event.terminal:
            await stubborn_for(3)

    async with open_runtime() as runtime:
        one = await runtime.run(job(generate=Stubborn(4, 0, 3), timeout=1), "q")
        two = await runtime.run(job(), "q", observers=[observe])
    text = warned.told[0][1]
    for name in (
        f"candidate 0 of {one.run_id}",
        f"candidate 3 of {one.run_id}",
        f"an observer of {two.run_id}",
    ):
        assert name in text, text


async def test_what_ends_inside_the_grace_is_not_warned_of(
    autojump_clock: MockClock, warned: Warnings
) -> None:
    async with open_runtime() as runtime:
        await runtime.run(job(generate=Stubborn(1 + WORK + 0.5 * GRACE, 2), timeout=1), "q")
    assert warned.told == []


async def test_the_loggers_name_is_hortator(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_runtime() as runtime:
        await runtime.run(job(generate=Stubborn(4, 2), timeout=1), "q")
    assert {(record.name, record.levelname) for record in caplog.records} == {
        ("hortator", "WARNING")
    }


# -- detached threads -----------------------------------------------------------------------------


async def test_detached_threads_are_not_waited_for_beyond_exit_grace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = threading.Event()

    def generate(request: Any, ctx: Any) -> Any:
        until = time.monotonic() + PATIENCE
        while ctx.index == 1 and not release.is_set() and time.monotonic() < until:
            time.sleep(0.01)
        return ctx.index

    try:
        async with open_runtime(grace=0.05, exit_grace=0.1) as runtime:
            result = await runtime.run(job(generate=generate, timeout=0.2), "q")
            left_at = time.monotonic()
        took = time.monotonic() - left_at
    finally:
        release.set()
    assert statuses(result)[1] == "generating (detached)"
    assert 0.1 <= took <= 0.1 + SLACK, f"leaving took {took:.2f} s"
    (record,) = caplog.records
    assert f"candidate 1 of {result.run_id}" in record.getMessage()
    assert "test_leaving.py:" in record.getMessage(), record.getMessage()


async def test_detached_threads_that_end_in_time_are_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[int] = []

    def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 1:
            time.sleep(0.5)
            ended.append(1)
        return ctx.index

    async with open_runtime(grace=0.05, exit_grace=20) as runtime:
        result = await runtime.run(job(generate=generate, timeout=0.1), "q")
        assert result.candidates[1].detached
        assert ended == []
    assert ended == [1], "exit_grace was not used"
    assert caplog.records == []


# -- best_of_n ------------------------------------------------------------------------------------


async def test_best_of_n_runs_under_the_runtime_that_it_is_called_in(
    autojump_clock: MockClock,
) -> None:
    outer, inner = Record(), Record()
    async with open_runtime(observers=[outer]):
        result = await best_of_n(job(), "q")
        assert {event.run_id for event in outer.events} == {result.run_id}
        async with open_runtime(observers=[inner]):
            nearer = await best_of_n(job(), "q")
        assert {event.run_id for event in inner.events} == {nearer.run_id}
        again = await best_of_n(job(), "q")
    assert {event.run_id for event in outer.events} == {result.run_id, again.run_id}
    assert result.output == nearer.output == again.output == 3


async def test_best_of_n_inside_a_callback_is_a_nested_run_of_the_same_runtime(
    autojump_clock: MockClock,
) -> None:
    record = Record()

    async def generate(request: Any, ctx: Any) -> Any:
        return (await best_of_n(job(generate=after(0.1, 9), n=2), request)).output

    async with open_runtime(observers=[record]) as runtime:
        result = await runtime.run(job(generate=generate, n=1, timeout=1), "q")
    assert result.output == 0, "the nested run did not see the deadline around it"
    assert len({event.run_id for event in record.events + record.nested}) == 2


async def test_best_of_n_opens_a_runtime_of_its_own_if_there_is_none(
    autojump_clock: MockClock,
) -> None:
    record = Record()
    async with open_runtime():
        pass  # one that has been left is not used
    result = await best_of_n(job(), "q", seed=7, observers=[record])
    assert (result.output, result.seed) == (3, 7)
    assert record.terminal.selected == 3


async def test_best_of_n_takes_a_deadline_of_its_caller(autojump_clock: MockClock) -> None:
    with trio.move_on_after(1) as scope:
        result = await best_of_n(job(generate=after(0.1, 9)), "q")
    assert not scope.cancelled_caught
    assert (result.output, result.stop_reason) == (0, "outer_deadline")


async def test_best_of_n_refuses_what_run_refuses(autojump_clock: MockClock) -> None:
    with pytest.raises(InvalidJob, match="seed"):
        await best_of_n(job(), "q", seed="7")


async def test_best_of_n_on_its_own_waits_for_work_that_does_not_end(
    autojump_clock: MockClock,
) -> None:
    result = await best_of_n(job(generate=Stubborn(5, 1), timeout=1), "q")
    assert trio.current_time() == pytest.approx(5)
    assert (result.output, result.elapsed) == (3, pytest.approx(1 + WORK))


def test_the_docstring_of_best_of_n_says_first_that_it_is_hard_only_for_work_that_ends() -> None:
    summary, first, *_ = (best_of_n.__doc__ or "").split("\n\n")
    assert "only for work that ends" in " ".join(f"{summary} {first}".split())


# -- done when 3 ----------------------------------------------------------------------------------

SWALLOWS_EVERYTHING = """
import json, logging, trio
from hortator import BestOfN, open_runtime

logging.basicConfig()

async def generate(request, ctx):
    while ctx.index == 1:
        try:
            await trio.sleep(0.01)  # stuck
        except BaseException:
            pass
    return ctx.index

async def score(request, candidate, ctx):
    return candidate.output

async def main():
    async with open_runtime() as runtime:
        job = BestOfN(generate=generate, score=score, n=4, max_concurrency=4, timeout=0.4)
        result = await runtime.run(job, "q")
        (entry,) = runtime.detached
        print(json.dumps([result.elapsed, result.output, entry.candidate, entry.where]), flush=True)

trio.run(main)
"""


def test_done_when_3_a_generator_that_swallows_everything_for_ever() -> None:
    with child(SWALLOWS_EVERYTHING) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            elapsed, output, candidate, where = json.loads(_line(process.stdout))
            warning = _line(process.stderr)
            assert process.poll() is None, "it was left though a task was alive"
        finally:
            process.kill()
    assert elapsed <= 0.4 + GRACE + SLACK
    assert (output, candidate) == (3, 1), "the good candidates' best; the stuck one is named"
    assert re.fullmatch(r"<string>:\d+ in generate", where)
    assert "candidate 1 of run-1" in warning, "leaving does not say what it waits for"
    assert "<string>:" in warning


def _line(stream: IO[str], seconds: float = 20) -> str:
    """The next line of a pipe, waited for so long at the most."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(stream.readline()), daemon=True).start()
    return lines.get(timeout=seconds)
