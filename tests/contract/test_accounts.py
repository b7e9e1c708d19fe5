"""Named accounts: budgets of their own below the runtime's, and what their runs came to.

Under virtual time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hortator import Budget, InvalidJob, Usage, best_of_n, open_runtime
from hortator.protocols.account import Account
from tests.contract.scenes import Stubborn, after, statuses
from tests.contract.tree import Asks, a_job, at_most, calls, check, check_is_idle


async def test_an_account_has_a_budget_of_its_own(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(10)) as runtime:
        one, two = runtime.account("one", at_most(2)), runtime.account("two", at_most(3))
        first = await runtime.run(a_job(n=3), "q", account=one)
        second = await runtime.run(a_job(n=3), "q", account=two)
        check_is_idle(runtime)
        assert (one.remaining().model_calls, two.remaining().model_calls) == (0, 0)
        assert (one.usage.charged, two.usage.charged) == (calls(2), calls(3))
        assert runtime.usage.charged == calls(5)
    assert statuses(first) == ["eligible", "eligible", "budget_exceeded"]
    assert statuses(second) == ["eligible"] * 3


async def test_accounts_share_the_runtimes_budget(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(4)) as runtime:
        one, two = runtime.account("one", at_most(3)), runtime.account("two", at_most(3))
        first = await runtime.run(a_job(n=3), "q", account=one)
        second = await runtime.run(a_job(n=3), "q", account=two)
        third = await runtime.run(a_job(), "q")
        check_is_idle(runtime)
        assert two.remaining().model_calls == 2, "of its own; the runtime has nothing left"
    assert statuses(first) == ["eligible"] * 3
    assert statuses(second) == ["eligible", "budget_exceeded", "budget_exceeded"]
    assert statuses(third) == ["budget_exceeded"]


async def test_an_account_without_a_budget_draws_on_the_runtimes(autojump_clock: MockClock) -> None:
    async with open_runtime(budget=at_most(2)) as runtime:
        tenant = runtime.account("tenant")
        result = await runtime.run(a_job(n=3), "q", account=tenant)
        check_is_idle(runtime)
        assert tenant.remaining().model_calls is None
        assert tenant.usage.charged == calls(2)
    assert result.stop_reason == "budget_exceeded"


async def test_accounts_work_without_a_budget_of_the_runtime(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        tenant = runtime.account("tenant", Budget(cost="0.25"))
        job = a_job(n=3, estimate=Usage(cost="0.1"))
        result = await runtime.run(job, "q", account=tenant)
        free = await runtime.run(job, "q")
        check_is_idle(runtime)
        assert str(tenant.remaining().cost) == "0.05"
    assert statuses(result) == ["eligible", "eligible", "budget_exceeded"]
    assert free.stop_reason == "completed"


async def test_what_open_leases_hold_is_not_remaining(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        tenant = runtime.account("tenant", at_most(10))
        handle = runtime.start(a_job(after(1), n=2, each=3), "q", account=tenant)
        await wait_all_tasks_blocked()
        assert tenant.remaining().model_calls == 4
        assert tenant.remaining().seconds is None
        assert tenant.usage.outstanding == calls(6)
        await handle.result()
        assert tenant.remaining().model_calls == 4, "spent, by estimate"
        assert tenant.usage.outstanding == Usage()


async def test_it_is_the_same_account_by_the_same_name(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        tenant = runtime.account("tenant", at_most(3))
        assert runtime.account("tenant") is tenant
        assert runtime.account("tenant", at_most(3)) is tenant
        assert tenant.name == "tenant"
        assert tenant.parent is not None
        assert tenant.parent.accounts == (tenant,)
        with pytest.raises(InvalidJob, match="tenant"):
            runtime.account("tenant", at_most(4))
        with pytest.raises(InvalidJob, match="tenant"):
            runtime.account("tenant", Budget())
    async with open_runtime() as runtime:
        assert runtime.account("tenant", at_most(4)).budget == at_most(4), "another runtime's"


@pytest.mark.parametrize("name", ["", None, 3])
async def test_an_account_has_a_name(autojump_clock: MockClock, name: Any) -> None:
    async with open_runtime() as runtime:
        with pytest.raises(InvalidJob, match="account"):
            runtime.account(name)


@pytest.mark.parametrize("limit", [-1, 1.5, float("nan"), True])
async def test_a_limit_that_cannot_be_one_is_refused(autojump_clock: MockClock, limit: Any) -> None:
    async with open_runtime() as runtime:
        with pytest.raises(InvalidJob, match="limit"):
            runtime.account("tenant", at_most(limit))
        assert runtime.account("tenant", at_most(1)).budget == at_most(1), "it was opened by that"
    with pytest.raises(InvalidJob, match="limit"):
        open_runtime(budget=at_most(limit))


def _of_another_runtime(account: Account) -> Account:
    return account


@pytest.mark.parametrize(
    "wrong",
    [lambda _: "tenant", lambda _: Account("tenant", at_most(3)), _of_another_runtime],
    ids=["a name", "made by hand", "of another runtime"],
)
async def test_an_account_that_is_none_of_this_runtime_is_refused(
    autojump_clock: MockClock, wrong: Callable[[Account], Any]
) -> None:
    async with open_runtime() as other, open_runtime() as runtime:
        account = wrong(other.account("tenant"))
        with pytest.raises(InvalidJob, match="account"):
            await runtime.run(a_job(), "q", account=account)
        with pytest.raises(InvalidJob, match="account"):
            runtime.start(a_job(), "q", account=account)
        assert runtime.usage.charged == Usage()


async def test_an_account_is_refused_for_a_nested_run(autojump_clock: MockClock) -> None:
    told: list[str] = []

    async def outer(request: Any, ctx: Any) -> Any:
        with pytest.raises(InvalidJob) as caught:
            await runtime.run(a_job(), request, account=tenant)
        told.append(str(caught.value))
        return ctx.index

    async with open_runtime() as runtime:
        tenant = runtime.account("tenant", at_most(3))
        result = await runtime.run(a_job(outer), "q", account=tenant)
        check_is_idle(runtime)
    assert statuses(result) == ["eligible"]
    assert "leave account= out" in told[0]


async def test_best_of_n_takes_the_account_too(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        tenant = runtime.account("tenant", at_most(1))
        await best_of_n(a_job(), "q", account=tenant)
        assert tenant.usage.charged == calls(1)


# -- the pool of an account is held, and given back ------------------------------------------------


async def test_runs_of_one_account_wait_for_each_other_and_not_for_others(
    autojump_clock: MockClock,
) -> None:
    async def silent(request: Any, ctx: Any) -> Any:
        await trio.sleep(1)
        ctx.charge(Usage())
        return 1

    async with open_runtime(budget=at_most(10)) as runtime:
        tight, roomy = runtime.account("tight", at_most(1)), runtime.account("roomy", at_most(4))
        slow = [runtime.start(a_job(silent), "q", account=tight) for _ in range(3)]
        fast = [runtime.start(a_job(silent), "q", account=roomy) for _ in range(3)]
        elapsed = [(await handle.result()).elapsed for handle in (*slow, *fast)]
        check_is_idle(runtime)
        assert (tight.remaining().model_calls, roomy.remaining().model_calls) == (1, 4)
    assert sorted(elapsed[:3]) == [1, 2, 3]
    assert elapsed[3:] == [1, 1, 1]


async def test_who_waits_at_the_runtime_is_granted_when_another_account_gives_back(
    autojump_clock: MockClock,
) -> None:
    async def gives_back(request: Any, ctx: Any) -> Any:
        await trio.sleep(2)
        ctx.charge(Usage())
        return 1

    asks = Asks(3)
    async with open_runtime(budget=at_most(5)) as runtime:
        one, two = runtime.account("one", at_most(5)), runtime.account("two", at_most(5))
        holder = runtime.start(a_job(gives_back, each=4), "q", account=one)
        await wait_all_tasks_blocked()
        await runtime.run(a_job(asks), "q", account=two)
        await holder.result()
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 2.0)}


async def test_a_waiter_moves_on_to_the_node_that_holds_it_up_next(
    autojump_clock: MockClock,
) -> None:
    """First its account has no room, then the runtime has none."""

    def for_so_long(seconds: float) -> Callable[[Any, Any], Any]:
        async def generate(request: Any, ctx: Any) -> Any:
            await trio.sleep(seconds)
            ctx.charge(Usage())
            return 1

        return generate

    asks = Asks(3, before=1.0)
    async with open_runtime(budget=at_most(10)) as runtime:
        one, two = runtime.account("one", at_most(5)), runtime.account("two", at_most(9))
        here = runtime.start(a_job(for_so_long(2), each=4), "q", account=one)
        there = runtime.start(a_job(for_so_long(4), each=5), "q", account=two)
        waiter = runtime.start(a_job(asks), "q", account=one)
        await trio.sleep(0.5)
        other = runtime.start(a_job(for_so_long(9), each=4), "q", account=two)
        await trio.sleep(2)
        assert asks.answers == {}, "its account has room; the runtime's went to who came earlier"
        for handle in (here, there, waiter, other):
            await handle.result()
        check_is_idle(runtime)
    assert asks.answers == {0: (True, 4.0)}


async def test_an_account_that_is_spent_denies_while_the_runtime_has_room(
    autojump_clock: MockClock,
) -> None:
    asks = Asks(2)
    async with open_runtime(budget=at_most(100)) as runtime:
        tenant = runtime.account("tenant", at_most(2))
        busy = runtime.start(a_job(after(9)), "q")  # works, but has nothing to give to the tenant
        await wait_all_tasks_blocked()
        result = await runtime.run(a_job(asks), "q", account=tenant)
        await busy.result()
        check_is_idle(runtime)
    assert asks.answers == {0: (False, 0.0)}
    assert statuses(result) == ["eligible"]


async def test_detached_work_of_a_tenant_is_held_and_settled_with_the_tenant(
    autojump_clock: MockClock,
) -> None:
    async with open_runtime(budget=at_most(20)) as runtime:
        tenant = runtime.account("tenant", at_most(5))
        other = runtime.account("other", at_most(5))
        stuck = a_job(Stubborn(50, 0), each=3, timeout=1)
        result = await runtime.run(stuck, "q", account=tenant)
        assert result.usage.outstanding == calls(3)
        assert tenant.usage.outstanding == calls(3)
        assert other.usage.outstanding == Usage()
        assert tenant.remaining().model_calls == 2
        check(runtime)
        await runtime.drain()
        assert tenant.usage.outstanding == Usage()
        assert tenant.usage.charged == calls(3)
        assert tenant.remaining().model_calls == 2
        check_is_idle(runtime)


async def test_usage_shows_what_detached_work_holds_once_while_its_run_goes_on(
    autojump_clock: MockClock,
) -> None:
    job = a_job(Stubborn(50, 0, otherwise=0.9), n=6, max_concurrency=2, each=1, candidate_timeout=1)
    async with open_runtime(budget=at_most(20)) as runtime:
        handle = runtime.start(job, "q")
        await trio.sleep(1.3)  # candidate 0 was given up at 1.2
        assert len(runtime.detached) == 1
        assert handle.snapshot().usage.outstanding == calls(2), "one open, one detached"
        assert runtime.usage.outstanding == calls(2)
        check(runtime)
        await handle.result()
        assert runtime.usage.outstanding == calls(1)
        await runtime.drain()
        check_is_idle(runtime)


async def test_usage_and_marks_are_rolled_up(autojump_clock: MockClock) -> None:
    async def generate(request: Any, ctx: Any) -> Any:
        if ctx.index == 1:
            ctx.charge(calls(2))
        if ctx.index == 2:
            ctx.charge(calls(-1))
        return ctx.index

    async with open_runtime() as runtime:
        one, two = runtime.account("one"), runtime.account("two")
        for account in (one, two, None):
            await runtime.run(a_job(generate, n=3, budget=at_most(9)), "q", account=account)
        for account in (one, two):
            report = account.usage
            assert report.charged == calls(4), "an estimate, a report, an estimate for nonsense"
            assert report.reported == calls(2)
            assert (report.estimated, len(report.malformed)) == (2, 1)
        whole = runtime.usage
        assert whole.charged == calls(12)
        assert (whole.estimated, len(whole.malformed), whole.double_settlements) == (6, 3, 0)
        check_is_idle(runtime)


async def test_many_tenants_at_once_spend_no_more_than_each_may(
    autojump_clock: MockClock,
) -> None:
    spent: dict[str, int] = {}

    def spending(name: str) -> Callable[[Any, Any], Any]:
        async def generate(request: Any, ctx: Any) -> Any:
            await trio.sleep(0.1 * (1 + ctx.index % 3))
            more = ctx.index % 2 and await ctx.reserve(calls(1))
            used = calls(2 if more else 1)
            ctx.charge(used)
            spent[name] = spent.get(name, 0) + used.model_calls
            return ctx.index

        return generate

    async with open_runtime(budget=at_most(40)) as runtime:
        names = [f"tenant {number}" for number in range(8)]
        accounts = {name: runtime.account(name, at_most(7)) for name in names}
        handles = [
            runtime.start(a_job(spending(name), n=4, max_concurrency=2), "q", account=account)
            for _, (name, account) in itertools.product(range(3), accounts.items())
        ]
        for handle in handles:
            await handle.result()
        check_is_idle(runtime)
        assert runtime.usage.charged.model_calls == sum(spent.values()) <= 40
    assert all(used <= 7 for used in spent.values()), f"{spent}"
    assert sum(spent.values()) >= 35, "denied, though there was room"
