"""The book under random operations, against a model that is too simple to be wrong.

The model is a dict for each lease and plain sums over a list of them; it never subtracts, never
saturates on the way and knows no fast path. Every step compares all views of both books (the
run's and the runtime's, where leases of detached work go) and has `check()` assert the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, ClassVar, Literal, TypeAlias

import attrs
import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hortator import Budget, InvalidJob, LeaseExceeded, Usage
from hortator.protocols.budget import limits_of
from hortator.protocols.ledger import Book, Lease, Phase as Part, Rates
from hortator.protocols.usage import DIMENSIONS, MOST, exact
from tests.rules.asks import top_up

Sum = dict[str, int]
"""An amount by the name of its dimension; money in nano-dollars. Grows without a limit."""


Where: TypeAlias = Literal["run", "runtime", "closed"]


@attrs.define(eq=False)
class Held:
    """A lease, as the model knows it."""

    lease: Lease
    candidate: int
    cap: Sum
    estimates: dict[Part, Sum]
    reports: dict[Part, list[Sum]]
    malformed: dict[Part, bool]
    where: Where = "run"
    moved_with: Sum | None = None


@attrs.define
class Account:
    """A book, as the model knows it: lists of what happened, summed when somebody asks."""

    charged: list[Sum] = attrs.Factory(list)
    reported: list[Sum] = attrs.Factory(list)
    malformed: list[tuple[int, str]] = attrs.Factory(list)
    estimated: int = 0
    double: int = 0


def nothing() -> Sum:
    return dict.fromkeys(DIMENSIONS, 0)


def added(amounts: list[Sum]) -> Sum:
    return {name: sum(amount[name] for amount in amounts) for name in DIMENSIONS}


def shown(amount: Sum) -> dict[str, int]:
    """What a view may show of it."""
    return {name: min(value, MOST) for name, value in amount.items()}


def viewed(usage: Usage) -> dict[str, int]:
    counts: dict[str, int] = {name: getattr(usage, name) for name in DIMENSIONS[:-1]}
    return {**counts, "cost": int(usage.cost.scaleb(9))}


def as_sum(usage: Usage) -> Sum:
    """The model's own reading of a true report: its total is at least the sum of its parts."""
    amount = viewed(usage)
    parts = min(MOST, amount["input_tokens"] + amount["output_tokens"])
    return {**amount, "total_tokens": max(amount["total_tokens"], parts)}


counts = st.sampled_from([0, 0, 0, 1, 2, 7, 40, 1000, MOST - 1, MOST])
small = st.sampled_from([0, 0, 1, 2, 7])


def usages(amount: st.SearchStrategy[int]) -> st.SearchStrategy[Usage]:
    return st.builds(
        Usage,
        model_calls=amount,
        input_tokens=amount,
        output_tokens=amount,
        total_tokens=amount,
        reasoning_tokens=amount,
        cost=amount.map(lambda nano: Decimal(nano).scaleb(-9)),
    )


any_usage = usages(small) | usages(counts)
huge = st.sampled_from([Usage(output_tokens=MOST), Usage(model_calls=MOST // 2)])
# Mostly such that some leases fit, and not for ever. (`one_of` takes no weights.)
estimates = st.integers(0, 9).flatmap(lambda tenth: huge if tenth == 9 else usages(small))

malformed: st.SearchStrategy[tuple[Usage, str]] = st.sampled_from(
    [
        (dict[str, Any](total_tokens=-5), "total_tokens=-5"),
        (dict[str, Any](model_calls=True), "model_calls=True"),
        (dict[str, Any](model_calls=1, output_tokens=1.5), "output_tokens=1.5"),
        (dict[str, Any](input_tokens=MOST + 1), f"input_tokens={MOST + 1}"),
        (dict[str, Any](cost=float("nan")), "cost=NaN"),
        (dict[str, Any](cost="-1"), "cost=-1"),
        (dict[str, Any](cost="inf"), "cost=Infinity"),
        (dict[str, Any](cost=MOST), f"cost={MOST}"),
    ]
).map(lambda pair: (Usage(**pair[0]), pair[1]))


def budgets_of(limit: st.SearchStrategy[Any]) -> st.SearchStrategy[Budget]:
    money = limit.map(lambda nano: None if nano is None else Decimal(nano).scaleb(-9))
    counted = dict.fromkeys(("model_calls", "output_tokens", "total_tokens"), limit)
    return st.builds(Budget, cost=money, **counted)


roomy = budgets_of(st.sampled_from([None, None, 60, 100, 200, MOST]))
tight = budgets_of(st.sampled_from([None, 14, 20, 30]))
budgets = roomy | tight

indices = st.integers(0, 9)
phases: st.SearchStrategy[Part] = st.sampled_from(["generating", "scoring"])


def has(*where: Where) -> Callable[[Any], bool]:
    """A precondition: some lease is there."""
    return lambda machine: any(held.where in where for held in machine.held)


class BookMachine(RuleBasedStateMachine):
    """One run's book and the runtime's, and the model of both."""

    reached: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []

    @initialize(
        budget=budgets,
        generation=estimates,
        scoring=estimates,
        first=st.lists(indices, min_size=1, max_size=4),
    )
    def open(self, budget: Budget, generation: Usage, scoring: Usage, first: list[int]) -> None:
        self.limits = {
            name: int(Decimal(value).scaleb(9)) if name == "cost" else value
            for name in DIMENSIONS
            if (value := getattr(budget, name, None)) is not None
        }
        self.estimates: dict[Part, Sum] = {
            "generating": as_sum(generation),
            "scoring": as_sum(scoring),
        }
        self.book = Book(limits_of(budget), Rates.of(exact(generation), exact(scoring)))
        self.runtime = Book()
        self.run_account, self.runtime_account = Account(), Account()
        self.frozen: Any = None
        # Many walks do without some of the rules; without leases they would not get anywhere.
        for candidate in first:
            self._reserve(candidate)

    # -- the model -------------------------------------------------------------------------------

    def reserved(self, where: Literal["run", "runtime"]) -> Sum:
        """What open leases hold; a moved one goes on counting where it came from."""
        caps = [held.cap for held in self.held if held.where == where]
        if where == "run":
            caps += [held.moved_with for held in self.held if held.moved_with is not None]
        return added(caps)

    def fits(self, asked: Sum) -> bool:
        settled, reserved = shown(added(self.run_account.charged)), self.reserved("run")
        return all(reserved[name] + asked[name] <= MOST for name in DIMENSIONS) and all(
            settled[name] + reserved[name] + asked[name] <= most
            for name, most in self.limits.items()
        )

    def spent(self, held: Held) -> Sum:
        return added([*held.reports["generating"], *held.reports["scoring"]])

    def book_of(self, held: Held) -> tuple[Book, Account]:
        if held.where == "run":
            return self.book, self.run_account
        return self.runtime, self.runtime_account

    def pick(self, which: int, *where: Where) -> Held:
        """One of the leases that are there."""
        there = [held for held in self.held if held.where in where]
        return there[which % len(there)]

    # -- what happens ----------------------------------------------------------------------------

    @precondition(lambda self: self.frozen is None)
    @rule(candidate=indices)
    def reserve(self, candidate: int) -> None:
        self._reserve(candidate)

    def _reserve(self, candidate: int) -> None:
        asked = shown(added(list(self.estimates.values())))
        expected = self.fits(asked)
        lease = self.book.reserve(candidate)
        assert (lease is not None) == expected, f"asked {asked}"
        if lease is None:
            self.reached.add("reservation denied")
            return
        reports: dict[Part, list[Sum]] = {"generating": [], "scoring": []}
        doubtful: dict[Part, bool] = {"generating": False, "scoring": False}
        self.held.append(Held(lease, candidate, asked, self.estimates, reports, doubtful))

    @precondition(has("run"))
    @rule(which=indices, usage=estimates)
    def top_up(self, which: int, usage: Usage) -> None:
        held, asked = self.pick(which, "run"), as_sum(usage)
        expected = self.fits(asked)
        assert top_up(self.book, held.lease, usage) == expected, f"asked {asked}"
        if expected:
            held.cap = shown(added([held.cap, asked]))
            self.reached.add("topped up")

    @precondition(has("closed"))
    @rule(which=indices, usage=any_usage)
    def top_up_when_closed(self, which: int, usage: Usage) -> None:
        assert not top_up(self.book, self.pick(which, "closed").lease, usage)

    @precondition(has("run"))
    @rule(which=indices, report=malformed)
    def top_up_by_nonsense(self, which: int, report: tuple[Usage, str]) -> None:
        with pytest.raises(InvalidJob):
            top_up(self.book, self.pick(which, "run").lease, report[0])

    @precondition(has("run", "runtime"))
    @rule(which=indices, phase=phases, usage=any_usage)
    def charge(self, which: int, phase: Part, usage: Usage) -> None:
        held = self.pick(which, "run", "runtime")
        held.reports[phase].append(as_sum(usage))
        self._charge(held, phase, usage)

    @precondition(has("run", "runtime"))
    @rule(which=indices, phase=phases, report=malformed)
    def charge_nonsense(self, which: int, phase: Part, report: tuple[Usage, str]) -> None:
        held = self.pick(which, "run", "runtime")
        held.malformed[phase] = True
        self.book_of(held)[1].malformed.append((held.candidate, report[1]))
        self._charge(held, phase, report[0])

    def _charge(self, held: Held, phase: Part, usage: Usage) -> None:
        book, _ = self.book_of(held)
        limited = self.limits  # a lease that moved is a cap in the same dimensions
        spent = added([shown(added(reports)) for reports in held.reports.values()])
        exceeded = any(spent[name] > held.cap[name] for name in limited)
        try:
            book.charge(held.lease, phase, usage)
        except LeaseExceeded:
            self.reached.add("lease exceeded")
            assert exceeded, f"spent {spent} of {held.cap}"
        else:
            assert not exceeded, f"spent {spent} of {held.cap}, and nobody said so"

    @precondition(has("run", "runtime"))
    @rule(which=indices, generated=st.booleans(), scored=st.booleans(), cut=st.booleans())
    def settle(self, which: int, generated: bool, scored: bool, cut: bool) -> None:
        held = self.pick(which, "run", "runtime")
        generated = generated or bool(held.reports["generating"]) or held.malformed["generating"]
        scored = scored or bool(held.reports["scoring"]) or held.malformed["scoring"]
        book, account = self.book_of(held)
        outcome = book.settle(held.lease, generated=generated, scored=scored, cut=cut)
        first, guessed_first = self._comes_to(held, "generating", generated, cut and not scored)
        second, guessed_second = self._comes_to(held, "scoring", scored, cut)
        assert outcome is not None, "an open lease was not settled"
        charged = added([first, second])
        assert dict(zip(DIMENSIONS, outcome.charged, strict=True)) == shown(charged)
        assert outcome.estimated == (guessed_first or guessed_second)
        account.charged.append(charged)
        account.reported.append(self.spent(held))
        account.estimated += outcome.estimated
        held.where = "closed"

    @staticmethod
    def _comes_to(held: Held, phase: Part, ran: bool, cut: bool) -> tuple[Sum, bool]:
        """What a phase is charged, and whether that is a guess."""
        estimate, reported = held.estimates[phase], added(held.reports[phase])
        if not ran:
            return nothing(), False
        if not held.reports[phase] and not held.malformed[phase]:
            return estimate, any(estimate.values())
        if not cut and not held.malformed[phase]:
            return reported, False
        charged: Sum = {name: max(estimate[name], reported[name]) for name in DIMENSIONS}
        return charged, shown(charged) != shown(reported)

    @precondition(has("closed"))
    @rule(which=indices, cut=st.booleans(), by_the_run=st.booleans())
    def settle_again(self, which: int, cut: bool, by_the_run: bool) -> None:
        held = self.pick(which, "closed")
        book, account = self.runtime, self.runtime_account
        if by_the_run and self.frozen is None:  # whether it was granted there or moved away
            book, account = self.book, self.run_account
        assert book.settle(held.lease, generated=True, scored=True, cut=cut) is None
        account.double += 1
        self.reached.add("settled twice")

    @precondition(has("run"))
    @rule(which=indices)
    def move(self, which: int) -> None:
        held = self.pick(which, "run")
        self.book.move(held.lease, self.runtime)
        held.moved_with = dict(held.cap)
        held.where = "runtime"
        self.reached.add("moved")

    @precondition(
        lambda self: (
            self.frozen is None
            and bool(self.held)
            and all(held.where != "run" for held in self.held)
        )
    )
    @rule()
    def freeze(self) -> None:
        """The run is over: its book is closed, the runtime takes its totals over."""
        self.book.freeze()
        self.frozen = self.book.report()
        self.runtime.absorb(self.book)
        account, run = self.runtime_account, self.run_account
        account.charged += run.charged
        account.reported += run.reported
        account.estimated += run.estimated
        account.double += run.double
        account.malformed += run.malformed
        self.reached.add("frozen")

    @precondition(lambda self: self.frozen is not None)
    @rule()
    def reserve_when_frozen(self) -> None:
        with pytest.raises(AssertionError, match="frozen"):
            self.book.reserve(0)

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def the_books_hold_their_invariants(self) -> None:
        self.book.check()
        self.runtime.check()

    @invariant()
    def all_views_are_those_of_the_model(self) -> None:
        self._same_views(self.book, self.run_account, self.reserved("run"))
        self._same_views(self.runtime, self.runtime_account, self.reserved("runtime"))

    @staticmethod
    def _same_views(book: Book, account: Account, reserved: Sum) -> None:
        report = book.report()
        assert viewed(report.charged) == shown(added(account.charged)), "charged"
        assert viewed(report.reported) == shown(added(account.reported)), "reported"
        assert viewed(report.outstanding) == shown(reserved), "outstanding"
        assert report.estimated == account.estimated
        assert report.double_settlements == account.double
        assert [(m.candidate, m.what) for m in report.malformed] == account.malformed

    @invariant()
    def a_frozen_book_never_changes(self) -> None:
        if self.frozen is not None:
            assert self.book.report() == self.frozen


@pytest.mark.slow
def test_the_book_keeps_to_the_model() -> None:
    BookMachine.reached.clear()
    run_state_machine_as_test(
        BookMachine,
        settings=settings(
            max_examples=200,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            phases=[each for each in Phase if each is not Phase.explain],  # a minute, on failure
        ),
    )
    assert BookMachine.reached == {
        "reservation denied",
        "topped up",
        "lease exceeded",
        "settled twice",
        "moved",
        "frozen",
    }, "the random walks did not get everywhere"
