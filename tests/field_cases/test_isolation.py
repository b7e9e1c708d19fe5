"""B37, B59: candidates share what they should share, and nothing else.

Real clock where threads take part, virtual time elsewhere.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Event, best_of_n, in_thread, open_runtime
from tests.field_cases.scenes import (
    DOORS,
    job_of,
    statuses,
    stopped,
)

# B37: context variables go along, and do not leak

span: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")


class Spans:
    """What was read where."""

    def __init__(self) -> None:
        self.read: dict[str, set[str]] = {}

    def note(self, where: str) -> None:
        self.read.setdefault(where, set()).add(span.get())


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_B37_what_was_set_before_the_run_is_seen_everywhere(sync: bool) -> None:
    spans = Spans()

    async def child() -> None:
        spans.note("tool in a nursery")

    async def nested(request: str, ctx: Any) -> int:
        spans.note("nested run")
        return 1

    async def generate(request: str, ctx: Any) -> str:
        spans.note("generator")
        await trio.lowlevel.checkpoint()
        spans.note("generator after a wait")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
        await trio.to_thread.run_sync(spans.note, "tool in a thread")
        await best_of_n(job_of(nested, n=2), request)
        return "answer"

    def sync_generate(request: str, ctx: Any) -> str:
        spans.note("sync generator")
        return "answer"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        await trio.lowlevel.checkpoint()
        spans.note("scorer")
        return 1.0

    def sync_score(request: str, candidate: Any, ctx: Any) -> float:
        spans.note("sync scorer")
        return 1.0

    def observe(event: Event) -> None:
        spans.note("sync observer")

    async def async_observe(event: Event) -> None:
        await trio.lowlevel.checkpoint()
        spans.note("async observer")

    async with open_runtime(grace=5) as runtime:
        span.set("root")
        observers = [observe, async_observe, in_thread(lambda event: spans.note("thread"))]
        job = job_of(sync_generate, sync_score) if sync else job_of(generate, score)
        handle = runtime.start(job, "q", observers=observers)
        span.set("set after the start")
        result = await handle.result()
    assert statuses(result) == ["eligible"] * 3
    assert len(spans.read) == (5 if sync else 9)
    assert spans.read == {where: {"root"} for where in spans.read}


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("ending", ["returns", "fails", "times out"])
async def test_B37_what_a_candidate_sets_no_other_one_sees(
    ending: str, sync: bool, concurrency: int
) -> None:
    first_reads: list[str] = []
    foreign: list[tuple[str, str]] = []

    def check(index: int) -> None:
        if span.get() != f"candidate {index}":
            foreign.append((f"candidate {index}", span.get()))

    def end(ctx: Any) -> str:
        check(ctx.index)
        if ending == "fails" and ctx.index % 2:
            raise OSError
        return "answer"

    async def generate(request: str, ctx: Any) -> str:
        first_reads.append(span.get())
        token = span.set(f"candidate {ctx.index}")
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            check(ctx.index)
        if ending == "times out" and ctx.index % 2:
            await trio.sleep(1)
        span.reset(token)  # in the same context, or this raises
        span.set(f"candidate {ctx.index}")
        return end(ctx)

    def sync_generate(request: str, ctx: Any) -> str:
        first_reads.append(span.get())
        span.set(f"candidate {ctx.index}")
        return end(ctx)

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        check(ctx.index)
        await trio.lowlevel.checkpoint()
        check(ctx.index)
        return 1.0

    def observe(event: Event) -> None:
        first_reads.append(span.get())

    def marks(event: Event) -> None:
        span.set("an observer's")

    job = job_of(
        sync_generate if sync else generate,
        score,
        n=8,
        max_concurrency=concurrency,
        candidate_timeout=0.05 if ending == "times out" and not sync else None,
    )
    span.set("root")
    async with open_runtime() as runtime:
        result = await runtime.run(job, "q", observers=[observe, marks])
    assert len(result.candidates) == 8
    assert set(first_reads) == {"root"}, "something was set that leaked"
    assert foreign == []
    assert span.get() == "root", "what was set inside leaked to the caller"


@pytest.mark.parametrize("door", DOORS)
async def test_B37_nor_after_a_cancel(door: str, autojump_clock: MockClock) -> None:
    reads: list[str] = []

    async def generate(request: str, ctx: Any) -> None:
        reads.append(span.get())
        span.set(f"candidate {ctx.index}")
        try:
            await trio.sleep(1)
        finally:
            reads.append("root" if span.get() == f"candidate {ctx.index}" else span.get())

    span.set("root")
    async with stopped(door, job_of(generate, n=6, max_concurrency=2), at=2.5):
        assert reads == ["root"] * 12
        assert span.get() == "root"


# B59: samples are independent of each other

REQUESTS: dict[str, Callable[[], Any]] = {
    "messages": lambda: [{"role": "user", "content": ["question"]}],
    "dict": lambda: {"messages": ["question"], "state": {"seen": {"question"}}},
    "set": lambda: {"question"},
    "tuple of lists": lambda: (["question"], {"memory": []}),
    "nested deeply": lambda: [[[[["question"]]]]],
}


def deface(value: Any, mark: str) -> None:
    """Change every container in it that can be changed."""
    if isinstance(value, dict):
        for each in list(value.values()):
            deface(each, mark)
        value[mark] = mark
    elif isinstance(value, (list, tuple)):
        for each in value:
            deface(each, mark)
        if isinstance(value, list):
            value.append(mark)
    elif isinstance(value, set):
        value.add(mark)


@pytest.mark.parametrize("concurrency", [1, 5])
@pytest.mark.parametrize("kind", REQUESTS)
async def test_B59_no_candidate_sees_what_another_one_did_to_the_request(
    kind: str, concurrency: int, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []
    scored: list[tuple[int, Any]] = []

    async def generate(request: Any, ctx: Any) -> str:
        seen.append(copy.deepcopy(request))
        deface(request, f"answer {ctx.index}")
        await trio.sleep(1)
        seen.append(copy.deepcopy(request))
        return f"answer {ctx.index}"

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        scored.append((ctx.index, copy.deepcopy(request)))
        deface(request, "judged")
        return float(ctx.index)

    original = REQUESTS[kind]()
    job = job_of(generate, score, n=5, max_concurrency=concurrency)
    async with open_runtime() as runtime:
        for _ in range(2):  # a second run of the same job starts from the same request
            handle = runtime.start(job, original)
            before = copy.deepcopy(original)
            deface(original, "the caller's, after the start")
            result = await handle.result()
            expected = []
            for index in range(5):
                own = copy.deepcopy(before)
                deface(own, f"answer {index}")
                expected.append(own)
            assert seen.count(before) == 5, "a prompt holds what another candidate did"
            assert all(seen.count(own) == 1 for own in expected)
            assert sorted(scored, key=lambda each: each[0]) == list(enumerate(expected))
            for own, candidate in zip(expected, result.candidates, strict=True):
                deface(own, "judged")
                assert candidate.request == own
            seen.clear()
            scored.clear()
            original = REQUESTS[kind]()


async def test_B59_what_is_no_container_is_shared(autojump_clock: MockClock) -> None:
    class Session:
        """An opaque object: copying it would be a surprise."""

    class Messages(list[str]):
        """So would copying a container of the user's own."""

    shared = [Session(), Messages(["question"]), "text" * 10_000, b"bytes"]
    seen: list[list[Any]] = []

    async def generate(request: list[Any], ctx: Any) -> str:
        seen.append(request)
        return "answer"

    await best_of_n(job_of(generate, n=3), shared)
    assert len({id(request) for request in seen}) == 3
    for request in seen:
        assert all(a is b for a, b in zip(request, shared, strict=True))


async def test_B59_a_request_may_hold_itself(autojump_clock: MockClock) -> None:
    request: list[Any] = ["question"]
    request.append(request)
    seen: list[Any] = []

    async def generate(request: list[Any], ctx: Any) -> str:
        seen.append(request)
        request[0] = f"answer {ctx.index}"
        return "answer"

    await best_of_n(job_of(generate, n=2), request)
    assert [each[1] is each for each in seen] == [True, True]
    assert (seen[0][0], seen[1][0], request[0]) == ("answer 0", "answer 1", "question")
