"""What the tests of the ledger tree are played with: calls as money, candidates that ask for more.

Everything is counted in model calls: one dimension is as good as another. Under virtual time.
"""

from __future__ import annotations

from typing import Any

import trio

from hortator import BestOfN, Budget, Runtime, Usage
from hortator.protocols.account import Account
from tests.contract.scenes import after, by_output


def calls(number: int) -> Usage:
    """So many model calls."""
    return Usage(model_calls=number)


def at_most(number: int) -> Budget:
    """A budget of so many model calls."""
    return Budget(model_calls=number)


def a_job(generate: Any = None, *, n: int = 1, each: int = 1, **parts: Any) -> BestOfN[Any, Any]:
    """A job of n candidates at once at so many calls each, after a second each by default."""
    usual = {"score": by_output, "max_concurrency": n, "estimate": calls(each)}
    return BestOfN(generate=generate or after(1), n=n, **{**usual, **parts})


class Asks:
    """A generator: each candidate holds its lease for a time, asks for more, goes on, returns.

    Attributes:
        answers: by index, what `reserve` said and when, in seconds of virtual time.
    """

    def __init__(self, *more: int, before: Any = 0.0, then: Any = 0.0) -> None:
        self._more, self._before, self._then = more, before, then
        self.answers: dict[int, tuple[bool, float]] = {}

    async def __call__(self, request: Any, ctx: Any) -> Any:
        await trio.sleep(_of(self._before, ctx.index))
        more = self._more[min(ctx.index, len(self._more) - 1)]
        if more:
            granted = await ctx.reserve(calls(more))
            self.answers[ctx.index] = (granted, trio.current_time())
            if granted:
                ctx.charge(calls(more + 1))
        await trio.sleep(_of(self._then, ctx.index))
        return ctx.index


def _of(seconds: Any, index: int) -> float:
    return seconds[min(index, len(seconds) - 1)] if isinstance(seconds, tuple) else seconds


def root(runtime: Runtime) -> Account:
    """The account of everything; there is no public way to it, and none is needed."""
    return runtime._workplace.account


def check(runtime: Runtime) -> None:
    """All accounts add up, and nobody waits."""
    account = root(runtime)
    account.check()
    tree = runtime.attribution
    leaves = sum((leaf.charged for leaf in tree.leaves()), Usage())
    assert leaves == tree.charged, f"the leaves do not sum to the root:\n{tree}"
    assert tree.charged == runtime.usage.charged


def check_is_idle(runtime: Runtime) -> None:
    """As `check`, and nothing is held or waited for any more."""
    check(runtime)
    assert runtime.usage.outstanding == Usage(), f"outstanding: {runtime.usage.outstanding}"
    for account in (root(runtime), *root(runtime).accounts):
        assert not account.book.open, f"open leases: {account.book.open}"
        for pool in account.pools:
            assert not pool.waiters, f"{pool.name} has waiters"
            assert (pool.open, pool.waiting) == (0, 0), f"{pool.name} counts {pool.open} as open"
            assert not any(pool.held), f"{pool.name} holds {pool.held}"
