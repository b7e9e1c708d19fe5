"""Who was charged what: a tree for each run and one for the runtime, and both add up at any time.

Under virtual time, but for the measured sequence at the end.
"""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import Score, Usage, open_runtime
from hortator.protocols.attribution import Attribution
from tests.contract.scenes import Stubborn, after, by_output, echo, job
from tests.contract.tree import a_job, at_most, calls, check, check_is_idle


def names(tree: Attribution) -> list[str]:
    """Of its parts."""
    return [child.name for child in tree.children]


def adds_up(tree: Attribution) -> None:
    """At every node; so the leaves sum to the root."""
    if tree.children:
        parts = sum((child.charged for child in tree.children), Usage())
        assert parts == tree.charged, f"does not add up at {tree.name}:\n{tree}"
    for child in tree.children:
        adds_up(child)
    assert sum((leaf.charged for leaf in tree.leaves()), Usage()) == tree.charged


def find(tree: Attribution, name: str) -> Attribution:
    """The one node of that name."""
    found, left = [], [tree]
    while left:
        node = left.pop()
        left.extend(node.children)
        found += [node] if node.name == name else []
    assert len(found) == 1, f"{name} is {len(found)} times in\n{tree}"
    return found[0]


async def charge_one(request: Any, ctx: Any) -> Any:
    ctx.charge(calls(1))
    await trio.lowlevel.checkpoint()
    return ctx.index


# -- of a run -------------------------------------------------------------------------------------


async def test_a_run_tells_generating_from_scoring(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(2 + ctx.index))
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        return Score(candidate.output, usage=calls(3))

    async with open_runtime() as runtime:
        job = a_job(generate, n=2, score=score, each=9, budget=at_most(18))
        result = await runtime.run(job, "q")
    tree = result.attribution
    adds_up(tree)
    assert (tree.name, tree.charged) == (result.run_id, calls(13))
    assert names(tree) == ["candidate 0", "candidate 1"]
    assert names(tree.children[0]) == ["generating", "scoring"]
    assert [leaf.charged for leaf in tree.leaves()] == [calls(n) for n in (2, 4, 3, 4)]


async def test_estimates_are_attributed_to_their_phases(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        job = a_job(n=1, each=2, scoring_estimate=calls(3), budget=at_most(5))
        tree = (await runtime.run(job, "q")).attribution
    adds_up(tree)
    assert find(tree, "generating").charged == calls(2)
    assert find(tree, "scoring").charged == calls(3)


async def test_nested_runs_stand_below_their_candidate(autojump_clock: MockClock) -> None:
    async def inner(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1 + ctx.index))
        return ctx.index

    async def outer(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        await runtime.run(a_job(inner, n=2), request)
        await runtime.run(a_job(inner, n=1), request)
        return ctx.index

    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        await runtime.run(a_job(inner, n=1), request)
        return 1.0

    async with open_runtime() as runtime:
        job = a_job(outer, n=2, each=9, score=score, budget=at_most(18))
        result = await runtime.run(job, "q")
    tree = result.attribution
    adds_up(tree)
    one = tree.children[1]
    assert names(one) == ["generating", *(f"{result.run_id}/1.{number}" for number in (1, 2, 3))]
    assert [child.charged for child in one.children] == [calls(n) for n in (1, 3, 1, 1)]
    assert tree.charged == result.usage.charged == calls(12)
    # A leaf for each call that somebody has made, whoever it was.
    assert sorted(leaf.charged.model_calls for leaf in tree.leaves()) == [1] * 8 + [2] * 2


async def test_all_dimensions_add_up(autojump_clock: MockClock) -> None:
    each = Usage(model_calls=1, tool_calls=2, input_tokens=3, output_tokens=4, cost="0.001")

    async def inner(request: Any, ctx: Any) -> Any:
        ctx.charge(each)
        return 1

    async def outer(request: Any, ctx: Any) -> Any:
        await runtime.run(a_job(inner, n=3), request)
        ctx.charge(each)
        return 1

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(outer, n=2), "q")
        check_is_idle(runtime)
    adds_up(result.attribution)
    assert result.attribution.charged == result.usage.charged
    assert (result.usage.charged.tool_calls, str(result.usage.charged.cost)) == (16, "0.008")
    text = str(result.attribution)
    assert "    run-" in text, "a nested run is indented below its candidate"
    assert "$0.004" in text


async def test_a_run_that_cost_nothing_is_one_leaf(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q")
    assert result.attribution == Attribution(result.run_id, Usage())
    assert str(result.attribution).endswith(": nothing")


@pytest.mark.parametrize("deep", [False, True])
async def test_whoever_overspends_is_shown_by_name(autojump_clock: MockClock, deep: bool) -> None:
    async def greedy(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(50 if ctx.index == 1 else 1))
        return ctx.index

    async def outer(request: Any, ctx: Any) -> Any:
        await runtime.run(a_job(greedy, n=2), request)
        return ctx.index

    async with open_runtime() as runtime:
        job = a_job(outer if deep else greedy, n=2, each=2, budget=at_most(4))
        result = await runtime.run(job, "q")
        check_is_idle(runtime)
    tree = result.attribution
    adds_up(tree)
    worst = max(tree.leaves(), key=lambda leaf: leaf.charged.model_calls)
    assert worst.charged == calls(50)


async def test_what_a_run_that_was_left_behind_holds_is_its_part(autojump_clock: MockClock) -> None:
    async def outer(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        runtime.start(a_job(after(9), n=2), request)
        await trio.sleep(1)
        return ctx.index

    async with open_runtime() as runtime:
        result = await runtime.run(a_job(outer, each=5, budget=at_most(5)), "q")
        await wait_all_tasks_blocked()
        check_is_idle(runtime)
    tree = result.attribution
    adds_up(tree)
    assert find(tree, f"{result.run_id}/0.1").charged == calls(2)
    assert tree.children[0].charged == calls(3)


# -- of the runtime -------------------------------------------------------------------------------


async def test_the_runtime_tells_its_accounts_and_its_runs(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(50)) as runtime:
        one, two = runtime.account("one"), runtime.account("two")
        await runtime.run(a_job(charge_one, n=2), "q", account=one)
        await runtime.run(a_job(charge_one, n=3), "q", account=two)
        await runtime.run(a_job(charge_one, n=4), "q")
        tree = runtime.attribution
        adds_up(tree)
        assert (tree.name, tree.charged) == ("runtime", calls(9))
        assert find(tree, "one").charged == calls(2)
        assert find(tree, "two").charged == calls(3)
        assert names(tree) == ["one", "two", "runs that have ended"]
        assert one.attribution == find(tree, "one")


async def test_it_adds_up_while_runs_are_alive(autojump_clock: MockClock) -> None:
    seen: list[Attribution] = []

    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        await trio.sleep(0.3 + 0.1 * ctx.index)
        ctx.charge(calls(1))
        if ctx.index == 1:
            await runtime.run(a_job(charge_one, n=2), request)
        return ctx.index

    async with open_runtime(budget=at_most(99)) as runtime:
        tenant = runtime.account("tenant", at_most(50))
        handles = [
            runtime.start(a_job(generate, n=4, max_concurrency=2, each=4), "q", account=account)
            for account in (tenant, tenant, None)
        ]
        while not all(handle.ended for handle in handles):
            await trio.sleep(0.05)
            tree = runtime.attribution
            adds_up(tree)
            check(runtime)
            seen.append(tree)
        check_is_idle(runtime)
    charged = [tree.charged.model_calls for tree in seen]
    assert charged == sorted(charged), "what was charged went down"
    results = [await handle.result() for handle in handles]
    assert charged[-1] == sum(result.usage.charged.model_calls for result in results)
    alive = {child.name for tree in seen for child in tree.children}
    assert handles[2].run_id in alive, "a run in flight has no name"


async def test_late_ends_of_detached_work_are_told_apart(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(20)) as runtime:
        tenant = runtime.account("tenant")
        stuck = a_job(Stubborn(50, 0, otherwise=0.5), n=2, each=2, timeout=1)
        result = await runtime.run(stuck, "q", account=tenant)
        adds_up(result.attribution)
        adds_up(runtime.attribution)
        assert runtime.attribution.charged == calls(2)
        await runtime.drain()
        tree = runtime.attribution
        adds_up(tree)
        assert tree.charged == calls(4)
        part = find(tree, "tenant")
        assert find(part, "runs that have ended").charged == calls(2)
        assert find(part, "detached work that has ended").charged == calls(2)
    adds_up(result.attribution)
    assert result.attribution.charged == calls(2), "the run's own tree does not change any more"


async def test_a_late_end_while_its_run_goes_on_adds_up_too(autojump_clock: MockClock) -> None:
    generate = Stubborn(2, 0, otherwise=0.9)
    async with open_runtime(budget=at_most(20)) as runtime:
        job = a_job(generate, n=6, max_concurrency=2, candidate_timeout=1)
        handle = runtime.start(job, "q")
        while not handle.ended:
            await trio.sleep(0.25)
            adds_up(runtime.attribution)
            check(runtime)
        result = await handle.result()
        assert result.candidates[0].detached
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(6)
    assert result.usage.charged == calls(5)


# -- many -----------------------------------------------------------------------------------------


async def test_fifty_runs_at_once_on_one_job_object(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        ctx.charge(calls(1))
        await trio.sleep(0.1 * (1 + (ctx.seed + request) % 3))
        if ctx.index == 2:
            await ctx.reserve(calls(1))
        return request * 10 + ctx.index

    job = a_job(generate, n=4, max_concurrency=2, budget=at_most(8))
    async with open_runtime(budget=at_most(260)) as runtime:
        results: dict[int, Any] = {}

        async def one(number: int) -> None:
            results[number] = await runtime.run(job, number, seed=number)

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(one, number)
        check_is_idle(runtime)
        assert runtime.usage.charged == calls(200)
    for number, result in results.items():
        assert result.output == number * 10 + 3, "a request of another run"
        assert result.seed == number
        assert result.usage.charged == calls(4)
        adds_up(result.attribution)
    assert len({result.run_id for result in results.values()}) == 50


def _tasks() -> int:
    task = trio.lowlevel.current_root_task()
    assert task is not None
    found, left = 0, [task]
    while left:
        found += 1
        for nursery in left.pop().child_nurseries:
            left.extend(nursery.child_tasks)
    return found


async def _sequence(runtime: Any, count: int) -> None:
    """Runs of two accounts, one after the other, some nested, some that wait, some stopped."""

    async def outer(request: Any, ctx: Any) -> Any:
        if await ctx.reserve(calls(1)):
            ctx.charge(calls(1))
        if ctx.index == 0:
            await runtime.run(inner, request)
        return ctx.index

    inner = a_job(charge_one, n=2)
    job = a_job(outer, n=3, max_concurrency=2, each=3, budget=at_most(11))
    late = a_job(after(9), n=2, timeout=0.0)
    accounts = [runtime.account("one", at_most(10**6)), runtime.account("two"), None]
    for number in range(count):
        await runtime.run(late if number % 10 == 9 else job, "q", account=accounts[number % 3])


def _measured() -> tuple[int, int]:
    for _ in range(3):
        gc.collect()
    return len(gc.get_objects()), tracemalloc.get_traced_memory()[0]


async def _does_not_grow(count: int) -> None:
    async with open_runtime(budget=at_most(10**7)) as runtime:
        await _sequence(runtime, 60)  # whatever is made once is made now
        await wait_all_tasks_blocked()
        tasks = _tasks()
        tracemalloc.start()
        try:
            await _sequence(runtime, 30)
            objects, memory = _measured()
            await _sequence(runtime, count)
            await wait_all_tasks_blocked()
            grown = [b - a for a, b in zip((objects, memory), _measured(), strict=True)]
        finally:
            tracemalloc.stop()
        assert _tasks() == tasks, "tasks are left"
        check_is_idle(runtime)
        assert runtime.detached == ()
    # A single object kept for each run would be `count` of them; a record, some 500 bytes.
    more_objects, more_memory = grown
    assert more_objects < count / 4, f"{more_objects} objects more after {count} runs"
    assert more_memory < 50 * count, f"{more_memory} bytes more after {count} runs"


@pytest.mark.slow
async def test_a_thousand_runs_in_sequence_leave_nothing(autojump_clock: MockClock) -> None:
    await _does_not_grow(1000)


async def test_a_runtime_forgets_the_runs_that_have_ended(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        for _ in range(20):
            await runtime.run(job(generate=echo, score=by_output), "q")
        assert len(runtime.attribution.children) <= 1
        adds_up(runtime.attribution)
