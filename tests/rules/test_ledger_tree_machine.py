"""The ledger tree under random operations, against a model that is too simple to be wrong.

The model keeps lists of leases and asks, and works everything else out anew whenever it is asked:
what is held and spent at a node, who works below it, whether an ask fits. It does not predict who
is answered when; after each step it judges the answers:

* nobody is left waiting who fits, unless somebody who came earlier waits at one of its nodes;
* nobody is left waiting where nobody below works (or waits higher up, where somebody works);
* nobody overtakes at a node; nobody is denied while somebody works on and it is not hopeless, and
  of those that wait for nobody the highest index is denied first;
* each ask has one answer; nothing is promised twice at any node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

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

from hortator import Budget, Usage
from hortator.protocols.account import Account
from hortator.protocols.budget import limits_of
from hortator.protocols.ledger import Book, Lease, Rates
from hortator.protocols.pool import Node
from hortator.protocols.queue import Waiter
from hortator.protocols.usage import DIMENSIONS, exact

NAMES = ("model_calls", "total_tokens")
"""The dimensions that the model knows; one of calls is as good as one of money."""

Sum = tuple[int, int]
Limits = tuple[int | None, int | None]
NOTHING: Sum = (0, 0)

_arrivals = itertools.count()


def plus(*amounts: Sum) -> Sum:
    return sum(each[0] for each in amounts), sum(each[1] for each in amounts)


def within(amount: Sum, limits: Limits) -> bool:
    return all(limit is None or each <= limit for each, limit in zip(amount, limits, strict=True))


def usage(amount: Sum) -> Usage:
    return Usage(model_calls=amount[0], total_tokens=amount[1])


def known(amounts: Any) -> Sum:
    """What the library says, in the model's words."""
    calls, tokens = (amounts[DIMENSIONS.index(name)] for name in NAMES)
    return calls, tokens


@attrs.define(eq=False)
class Held:
    """A lease. `cap` is what it covers now, `charged` what it came to."""

    lease: Lease
    run: Run
    cap: Sum
    reports: list[Sum] = attrs.Factory(list)
    nested: list[Run] = attrs.Factory(list)
    state: Literal["open", "moved", "closed"] = "open"
    moved: bool = False
    charged: Sum = NOTHING
    prepaid: Sum = NOTHING

    @property
    def spent(self) -> Sum:
        return plus(*self.reports)

    @property
    def claim(self) -> Sum:
        """What is taken as spent if whoever it was drawn from ends now."""
        return max(self.cap[0], self.spent[0]), max(self.cap[1], self.spent[1])

    def comes_to(self) -> Sum:
        """A silent candidate its estimate of generating; else all that it and its runs came to."""
        if not self.reports and not self.nested:
            whole = self.run.generation
            return max(0, whole[0] - self.prepaid[0]), max(0, whole[1] - self.prepaid[1])
        whole = plus(self.spent, *(run.owed() for run in self.nested))
        return max(0, whole[0] - self.prepaid[0]), max(0, whole[1] - self.prepaid[1])


@attrs.define(eq=False)
class Run:
    """A book. `above` are the places where its leases are held, too, from the nearest on."""

    book: Book
    limits: Limits
    generation: Sum
    scoring: Sum
    account: Account
    above: list[Place]
    outer: Held | None = None
    held: list[Held] = attrs.Factory(list)
    away: Sum = NOTHING
    begun: int = 0
    frozen: bool = False

    def owed(self) -> Sum:
        """What it was charged, and what it still holds."""
        settled = [each.charged for each in self.held if each.state == "closed" and not each.moved]
        return plus(*settled, *(each.claim for each in self.held if each.state == "open"))

    @property
    def estimate(self) -> Sum:
        return plus(self.generation, self.scoring)

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else 1 + self.outer.run.depth

    @property
    def paid(self) -> bool:
        """Whether a candidate around it has ended, and was charged all that it held."""
        outer = self.outer
        return outer is not None and (
            outer.state == "closed" or (not outer.moved and outer.run.paid)
        )

    @property
    def alive(self) -> bool:
        """Whether it goes on, and nobody around it has ended."""
        return not self.frozen and not self.paid


@attrs.frozen(eq=False)
class Place:
    """A node: which leases are held there, and under which limits."""

    node: Node
    leases: Callable[[], list[Held]]
    limits: Callable[[], Limits]
    away: Callable[[], Sum] = lambda: NOTHING
    closed: Callable[[], bool] = lambda: False

    def settled(self) -> Sum:
        return plus(*(each.charged for each in self.leases() if each.state == "closed"))

    def reserved(self) -> Sum:
        held = [each.cap for each in self.leases() if each.state != "closed"]
        return plus(*held, self.away())

    def fits(self, asked: Sum) -> bool:
        whole = plus(self.settled(), self.reserved(), asked)
        return not self.closed() and within(whole, self.limits())

    def hopeless(self, ask: Ask) -> bool:
        kept = NOTHING if ask.held is None else ask.held.cap
        return self.closed() or not within(plus(self.settled(), kept, ask.asked), self.limits())


@attrs.define(eq=False)
class Ask:
    """An ask that may wait. `ours` says that the asker itself ended the wait."""

    waiter: Waiter
    run: Run
    held: Held | None
    asked: Sum
    arrival: int
    answers: int = 0
    ours: bool = False
    counted: bool = False

    @property
    def waits(self) -> bool:
        return self.waiter.granted is None

    @property
    def rank(self) -> tuple[int, int]:
        return self.waiter.index, self.arrival


@attrs.frozen
class Before:
    """What was so before a step."""

    at: dict[Ask, Place]
    working: set[Held]


small = st.sampled_from([0, 1, 1, 2, 3])
amounts = st.tuples(small, small)
more = st.tuples(*[st.sampled_from([0, 1, 2, 5, 9])] * 2)
limits = st.tuples(*[st.sampled_from([None, None, 4, 6, 9, 12])] * 2)
which = st.integers(0, 60)


def budget(of: Limits) -> Budget:
    return Budget(model_calls=of[0], total_tokens=of[1])


class TreeMachine(RuleBasedStateMachine):
    """A runtime with accounts, runs, nested runs, leases and asks."""

    reached: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []
        self.asks: list[Ask] = []
        self.places: dict[Node, Place] = {}

    @initialize(root=limits, tenants=st.lists(limits, max_size=2), one=limits, estimate=amounts)
    def open(self, root: Limits, tenants: list[Limits], one: Limits, estimate: Sum) -> None:
        self.root = Account("runtime", budget(root))
        self.accounts = [self.root]
        self.limits = {"runtime": root}
        for number, limit in enumerate(tenants):
            name = f"tenant {number}"
            self.limits[name] = limit
            self.accounts.append(self.root.child(name, budget(limit)))
        # Without a run most of the rules have nothing to do.
        self._run(self.accounts[-1], one, plus(estimate, (1, 0)), NOTHING)

    # -- the model -------------------------------------------------------------------------------

    @property
    def held(self) -> list[Held]:
        return [each for run in self.runs for each in run.held]

    @property
    def waiting(self) -> list[Ask]:
        return [ask for ask in self.asks if ask.waits]

    def at(self, ask: Ask) -> Place:
        """Where it stands; there is exactly one such place."""
        found = [node for node in ask.waiter.nodes if ask.waiter in node.waiters]
        assert len(found) == 1, f"it stands at {[node.name for node in found]}"
        return self.places[found[0]]

    def path(self, run: Run) -> list[Place]:
        return [self.places[run.book], *run.above]

    def below(self, place: Place) -> list[Held]:
        """Open leases under a place. Detached work is no part of any run."""
        return [each for each in place.leases() if each.state == "open"]

    def waits(self, held: Held) -> bool:
        return any(ask.held is held for ask in self.waiting)

    def working(self, place: Place) -> set[Held]:
        return {each for each in self.below(place) if not self.waits(each)}

    def may_give_back(self, place: Place) -> bool:
        if self.working(place):
            return True
        higher = [(ask.held, self.at(ask)) for ask in self.waiting if ask.held is not None]
        below = self.below(place)
        return any(
            held in below and other is not place and self.working(other) for held, other in higher
        )

    def held_up(self, ask: Ask, place: Place) -> bool:
        earlier = [
            other
            for other in self.waiting
            if other.arrival < ask.arrival and self.at(other) is place
        ]
        return bool(earlier) or not place.fits(ask.asked)

    def pool_place(self, account: Account) -> Iterator[Place]:
        """The pools of an account and of those above it."""
        for pool in account.pools:
            if pool not in self.places:
                name = pool.name.removeprefix("the budget of ")
                self.places[pool] = Place(
                    pool,
                    lambda pool=pool: self._held_at(pool),  # type: ignore[misc]
                    lambda name=name: self.limits[name],  # type: ignore[misc]
                )
            yield self.places[pool]

    def _held_at(self, pool: Any) -> list[Held]:
        """Leases of the runs themselves, and those of nested runs that left their candidate's."""
        return [
            each
            for each in self.held
            if pool in each.run.account.pools and (each.run.outer is None or each.moved)
        ]

    # -- what happens ----------------------------------------------------------------------------

    def step(self, act: Callable[[], Any]) -> Any:
        """Do something, and judge the answers that were given to those who waited."""
        before = Before(
            {ask: self.at(ask) for ask in self.waiting},
            {each for each in self.held if each.state == "open" and not self.waits(each)},
        )
        value = act()
        answered = [ask for ask in self.asks if not ask.waits and not ask.counted]
        for ask in answered:
            ask.counted = True
            if ask.waiter.granted:
                self._granted(ask)
        for ask in answered:
            waited = ask in before.at
            assert ask.answers == (1 if waited else ask.answers), "not one answer"
            if ask.waiter.granted:
                self._has_not_overtaken(ask, before)
                self.reached.add("granted after a wait" if waited else "granted at once")
            elif not ask.ours:
                self._is_rightly_denied(ask, before, answered)
        return value

    def _granted(self, ask: Ask) -> None:
        if ask.held is None:
            lease = ask.waiter.lease
            assert lease is not None
            ask.run.held.append(Held(lease, ask.run, ask.run.estimate))
        else:
            ask.held.cap = plus(ask.held.cap, ask.asked)

    def _has_not_overtaken(self, ask: Ask, before: Before) -> None:
        for other, place in before.at.items():
            if other.waits and other.arrival < ask.arrival and self.at(other) is place:
                assert place not in self.path(ask.run), f"overtook at {place.node.name}"

    def _is_rightly_denied(self, ask: Ask, before: Before, answered: list[Ask]) -> None:
        path = self.path(ask.run)
        if any(place.hopeless(ask) for place in path):
            self.reached.add("hopeless")
            return
        waited = {other.held for other in answered}
        still = {
            each
            for each in before.working - waited
            if each.state == "open" and not self.waits(each)
        }

        def nobody_helped(place: Place) -> bool:
            if before.at.get(ask) is not place and not self.held_up(ask, place):
                return False
            if any(each in still for each in self.below(place) if each is not ask.held):
                return False
            stayed = [o for o, at in before.at.items() if o.waits and at is place]
            return all(other.rank < ask.rank for other in stayed if self.at(other) is place)

        assert any(map(nobody_helped, path)), f"denied, and others work: {ask}"
        self.reached.add("denied, since nobody works")

    def _run(self, account: Account, of: Limits, generation: Sum, scoring: Sum) -> None:
        rates = Rates.of(exact(usage(generation)), exact(usage(scoring)))
        book = Book(limits_of(budget(of)), rates, account.pools, f"run {len(self.runs)}")
        account.begin(book)
        above = list(self.pool_place(account))
        self._know(Run(book, of, generation, scoring, account, above))

    def _know(self, run: Run) -> None:
        self.runs.append(run)
        self.places[run.book] = Place(
            run.book,
            lambda: [each for each in run.held if not each.moved],
            lambda: run.limits,
            lambda: run.away,
            lambda: run.frozen,
        )

    @precondition(lambda self: sum(run.alive for run in self.runs) < 4)
    @rule(account=which, of=limits, generation=amounts, scoring=amounts)
    def start_a_run(self, account: int, of: Limits, generation: Sum, scoring: Sum) -> None:
        self._run(self.accounts[account % len(self.accounts)], of, generation, scoring)

    def _some(self, number: int, *states: str) -> Held:
        there = [each for each in self.held if each.state in states]
        # What happens deep down is rarer than its share of the bugs.
        deepest = max(each.run.depth for each in there)
        if number % 3 == 0:
            there = [each for each in there if each.run.depth == deepest]
        elif number % 3 == 1:
            there = [each for each in there if each.nested] or there
        return there[number // 3 % len(there)]

    @precondition(
        lambda self: (
            sum(run.alive for run in self.runs) < 6 and any(e.run.alive for e in self._open())
        )
    )
    @rule(number=which, of=limits, generation=amounts, scoring=amounts)
    def start_a_nested_run(self, number: int, of: Limits, generation: Sum, scoring: Sum) -> None:
        there = [each for each in self._open() if each.run.alive and each.run.depth < 2]
        if not there:
            return
        if number % 2:  # or few walks get deep enough
            there = [each for each in there if each.run.depth] or there
        held = there[number % len(there)]
        pool = held.run.book.pool_of(held.lease)
        rates = Rates.of(exact(usage(generation)), exact(usage(scoring)))
        book = Book(limits_of(budget(of)), rates, (pool,), f"run {len(self.runs)}")
        pool.books.append(("generating", book))
        if pool not in self.places:
            capped = [DIMENSIONS.index(name) in held.lease.rates.limited for name in NAMES]

            def left() -> Limits:
                calls, tokens = (
                    max(0, cap - spent) if is_capped else None
                    for cap, spent, is_capped in zip(held.cap, held.spent, capped, strict=True)
                )
                return calls, tokens

            self.places[pool] = Place(
                pool,
                lambda: [e for run in held.nested for e in run.held if not e.moved],
                left,
                closed=lambda: held.state == "closed",
            )
        run = Run(book, of, generation, scoring, held.run.account, [self.places[pool]], held)
        held.nested.append(run)
        self._know(run)
        self.reached.add("nested" if run.depth == 1 else "nested in a nested one")

    def _open(self) -> list[Held]:
        return [each for each in self.held if each.state == "open"]

    @precondition(lambda self: any(run.alive for run in self.runs))
    @rule(number=which)
    def begin_a_candidate(self, number: int) -> None:
        there = [run for run in self.runs if run.alive]
        if number % 2:
            there = [run for run in there if run.depth] or there
        run = there[number % len(there)]
        index = run.begun
        run.begun += 1

        def begin() -> None:
            lease = run.book.reserve(index)
            if lease is None:
                self._ask(run, None, run.estimate, lambda: run.book.ask_for_lease(index))
                return
            run.held.append(Held(lease, run, run.estimate))
            for other in self.waiting:
                there = self.at(other) in self.path(run)
                assert not there, f"a lease overtook at {self.at(other).node.name}"

        self.step(begin)

    @precondition(lambda self: self._open())
    @rule(number=which, asked=more)
    def ask_for_more(self, number: int, asked: Sum) -> None:
        held = self._some(number, "open")
        if not held.run.alive:
            return
        book, more = held.run.book, usage(asked)
        self.step(
            lambda: self._ask(held.run, held, asked, lambda: book.ask_for_more(held.lease, more))
        )

    @precondition(lambda self: self._open())
    @rule(number=which)
    def ask_for_as_much_as_is_not_hopeless(self, number: int) -> None:
        held = self._some(number, "open")
        most = [
            limit - plus(place.settled(), held.cap)[0]
            for place in self.path(held.run)
            if (limit := place.limits()[0]) is not None
        ]
        if most and min(most) >= 0:
            self.ask_for_more(number, (min(most), 0))

    def _ask(self, run: Run, held: Held | None, asked: Sum, put: Callable[[], Waiter]) -> None:
        waiter = put()
        ask = Ask(waiter, run, held, asked, next(_arrivals))
        self.asks.append(ask)
        if ask.waits:
            self.reached.add("a lease waits" if held is None else "a top-up waits")

            def answered() -> None:
                ask.answers += 1

            waiter.on_answer = answered

    @precondition(lambda self: self.waiting)
    @rule(number=which)
    def cancel_who_waits(self, number: int) -> None:
        ask = self.waiting[number % len(self.waiting)]
        ask.ours = True
        self.step(ask.waiter.withdraw)
        self.reached.add("cancelled while it waited")

    @precondition(lambda self: any(each.state != "closed" for each in self.held))
    @rule(number=which, amount=amounts)
    def spend(self, number: int, amount: Sum) -> None:
        held = self._some(number, "open", "moved")
        held.reports.append(amount)
        held.run.book.record(held.lease, "generating", usage(amount))

    @precondition(lambda self: self._open())
    @rule(number=which)
    def end_a_candidate(self, number: int) -> None:
        held = self._some(number, "open")
        self._end(held, held.run.book)

    @precondition(lambda self: any(each.state == "moved" for each in self.held))
    @rule(number=which)
    def end_what_was_detached(self, number: int) -> None:
        held = self._some(number, "moved")
        self._end(held, held.run.account.book)
        held.run.account.settled_late(exact(usage(held.charged)))
        self.reached.add("settled late")

    def _end(self, held: Held, book: Book) -> None:
        charged = held.comes_to()
        for ask in self.waiting:
            ask.ours = ask.ours or ask.held is held

        def end() -> None:
            held.charged, held.state = charged, "closed"
            for below in [each for run in held.nested for each in run.held]:
                if below.state == "open":
                    below.prepaid = below.claim
            outcome = book.settle(held.lease, generated=True, scored=False, cut=False)
            assert outcome is not None, "an open lease was not settled"
            # What it comes to once it is paid for changes nothing but what its run shows.
            if held.moved or not held.run.paid:
                assert known(outcome.charged) == charged
            held.charged = known(outcome.charged)

        self.step(end)
        # Its runs are told to stop: whoever waits in them is cancelled.
        for run in held.nested:
            if any(each.state == "open" for each in run.held):
                self.reached.add("a nested run was abandoned")
            self._abandon(run)

    def _abandon(self, run: Run) -> None:
        for ask in self.waiting:
            if ask.run is run and ask.waits:
                ask.ours = True
                self.step(ask.waiter.withdraw)
        for held in run.held:
            for nested in held.nested:
                self._abandon(nested)

    @precondition(lambda self: self._open())
    @rule(number=which)
    def give_up_on_a_candidate(self, number: int) -> None:
        left = [each for each in self._open() if each.run.paid]
        held = left[number % len(left)] if left and number % 2 else self._some(number, "open")
        for ask in self.waiting:
            ask.ours = ask.ours or ask.held is held
        paid = held.run.paid

        def move() -> None:
            held.state, held.moved = "moved", True
            if paid:
                more = [max(a, b) for a, b in zip(held.prepaid, held.cap, strict=True)]
                held.prepaid, held.cap = (more[0], more[1]), NOTHING
            else:
                self._take_out(held)
            held.run.book.move(held.lease, held.run.account.book)

        self.step(move)
        self.reached.add("detached" if held.run.outer is None else "detached in a nested run")
        if paid:
            self.reached.add("detached when it was paid for")

    def _take_out(self, held: Held) -> None:
        """It stands with the account from now on, and is outstanding in all runs around it."""
        run: Run | None = held.run
        while run is not None:
            run.away = plus(run.away, held.cap)
            outer = run.outer
            run = None
            if outer is not None:
                less = [a - min(a, b) for a, b in zip(outer.cap, held.cap, strict=True)]
                outer.cap = less[0], less[1]
                run = None if outer.moved else outer.run

    @precondition(lambda self: any(self._may_close(run) for run in self.runs))
    @rule(number=which)
    def end_a_run(self, number: int) -> None:
        there = [run for run in self.runs if self._may_close(run)]
        run = there[number % len(there)]
        run.book.freeze()
        run.frozen = True
        if run.outer is None:
            run.account.end(run.book)

    def _may_close(self, run: Run) -> bool:
        idle = not any(ask.run is run for ask in self.waiting)
        over = bool(run.held) and all(each.state != "open" for each in run.held)
        return idle and over and not run.frozen

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def all_invariants_of_the_library_hold(self) -> None:
        self.root.check()
        for run in self.runs:
            run.book.check()
            for pool in run.book.pools:
                pool.check()

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        for place in self.places.values():
            kept = [
                (min(held.charged[0], held.cap[0]), min(held.charged[1], held.cap[1]))
                for held in place.leases()
                if held.state == "closed"
            ]
            promised = plus(*kept, place.reserved())
            run = next((run for run in self.runs if run.book is place.node), None)
            if run is not None and run.paid:
                continue
            own = next((r.spent for r in self.held if r.lease.pool is place.node), None)
            if own is None:  # who has overspent a lease has nothing left to promise
                assert within(promised, place.limits()), f"{place.node.name}: {promised}"

    @invariant()
    def all_sums_are_those_of_the_model(self) -> None:
        for run in self.runs:
            place = self.places[run.book]
            if run.paid:
                continue  # what it shows then is nobody's business any more
            assert known(run.book.settled) == place.settled(), f"{run.book.name} settled"
            assert known(run.book.reserved) == place.reserved(), f"{run.book.name} reserved"
        for account in self.accounts:
            for pool, place in zip(account.pools, self.pool_place(account), strict=True):
                for number, name in enumerate(NAMES):
                    position = DIMENSIONS.index(name)
                    if place.limits()[number] is not None:
                        assert pool.spent[position] == place.settled()[number], pool.name
                        assert pool.held[position] == place.reserved()[number], pool.name

    @invariant()
    def the_runtime_adds_up(self) -> None:
        charged, outstanding = [], []
        for held in self.held:
            if held.run.outer is None or held.moved:
                (charged if held.state == "closed" else outstanding).append(
                    held.charged if held.state == "closed" else held.cap
                )
        report = self.root.usage
        assert known(exact(report.charged)) == plus(*charged)
        tree = self.root.attribution
        assert tree.charged == report.charged
        assert sum((leaf.charged for leaf in tree.leaves()), Usage()) == tree.charged

    @invariant()
    def who_waits_is_counted(self) -> None:
        for node, place in self.places.items():
            assert node.working == len(self.working(place)), f"{node.name} counts who works"

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        for ask in self.waiting:
            place = self.at(ask)
            assert any(self.held_up(ask, each) for each in self.path(ask.run)), (
                f"it fits, and nobody came earlier: {ask.asked} at {place.node.name}"
            )
            assert self.may_give_back(place), f"nobody works below {place.node.name}"


TreeMachineTest = TreeMachine.TestCase
TreeMachineTest.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[each for each in Phase if each is not Phase.explain],
)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_tree_keeps_to_the_model() -> None:
    TreeMachine.reached.clear()
    run_state_machine_as_test(
        TreeMachine,
        settings=settings(
            max_examples=300,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            phases=[each for each in Phase if each is not Phase.explain],
        ),
    )
    assert TreeMachine.reached == {
        "a lease waits",
        "a top-up waits",
        "granted at once",
        "granted after a wait",
        "hopeless",
        "denied, since nobody works",
        "cancelled while it waited",
        "nested",
        "nested in a nested one",
        "a nested run was abandoned",
        "detached",
        "detached in a nested run",
        "detached when it was paid for",
        "settled late",
    }, "the random walks did not get everywhere"
