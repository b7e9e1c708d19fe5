"""B43, B45, B90: a lease is settled once, at what is known of its cost, and no settlement is lost.

Virtual time. B43 is about the rules of the book itself; the others see leases through the account.
"""
# ruff: noqa: N802  (tests are named after their cases)

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from hortator import Usage, open_runtime
from hortator.protocols.ledger import Book, Lease, Rates
from hortator.protocols.usage import NOTHING, estimated
from tests.field_cases.scenes import (
    DOORS,
    Record,
    check_account,
    job_of,
    statuses,
    stopped,
    tokens,
    virtually,
)
from tests.rules.asks import top_up

ESTIMATE = 10

# B43: a lease is settled once, and whatever comes after that changes nothing


def book() -> Book:
    rates = Rates.of(estimated(tokens(10), "estimate"), estimated(tokens(5), "scoring"))
    return Book(((6, 100),), rates)


def settle(book: Book, lease: Lease) -> object:
    return book.settle(lease, generated=True, scored=True, cut=False)


def settle_as_cut(book: Book, lease: Lease) -> object:
    return book.settle(lease, generated=True, scored=False, cut=True)


def release(book: Book, lease: Lease) -> object:
    return book.settle(lease, generated=False, scored=False, cut=False)


WAYS = [settle, settle_as_cut, release]


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("reported", [0, 7, 40])
def test_B43_the_second_settlement_is_counted_and_changes_nothing(
    reported: int, second: Callable[..., object], first: Callable[..., object]
) -> None:
    ledger = book()
    lease, other = ledger.reserve(0), ledger.reserve(1)
    assert lease is not None
    assert other is not None
    if reported:
        ledger.record(lease, "generating", tokens(reported))
        top_up(ledger, lease, tokens(3))
    assert first(ledger, lease) is not None
    before = (list(ledger.settled), list(ledger.reserved), ledger.reported, ledger.estimated)
    for times in (1, 2, 3):
        assert second(ledger, lease) is None, "the second settlement was taken for a first one"
        assert ledger.double_settlements == ledger.report().double_settlements == times
        assert not top_up(ledger, lease, tokens(1)), "a settled lease was widened"
        ledger.check()
    after = (list(ledger.settled), list(ledger.reserved), ledger.reported, ledger.estimated)
    assert after == before, "a second settlement changed the totals"
    assert ledger.open == {other.number: other}


@pytest.mark.parametrize("way", WAYS)
def test_B43_a_book_does_not_settle_the_lease_of_another_one(way: Callable[..., object]) -> None:
    ledger, elsewhere = book(), book()
    lease, foreign = ledger.reserve(0), elsewhere.reserve(0)
    assert lease is not None
    assert foreign is not None
    assert way(ledger, foreign) is None
    assert ledger.open == {lease.number: lease}, "the rightful lease of that number was lost"
    ledger.check()
    assert way(ledger, lease) is not None
    assert way(elsewhere, foreign) is not None
    assert elsewhere.double_settlements == 0


@pytest.mark.parametrize("way", WAYS)
def test_B43_a_lease_that_has_moved_is_settled_where_it_is_now(way: Callable[..., object]) -> None:
    run, runtime = book(), book()
    leases = [run.reserve(index) for index in range(3)]
    moved = leases[2]
    assert moved is not None
    run.move(moved, runtime)
    assert way(run, moved) is None, "settled in the book that it had left"
    assert tuple(run.settled) == NOTHING
    run.check()
    assert way(runtime, moved) is not None
    assert way(runtime, moved) is None
    assert (run.double_settlements, runtime.double_settlements) == (1, 1)
    for index in (0, 1):
        assert way(run, leases[index]) is not None, "an innocent lease was lost"  # type: ignore[arg-type]
    for each in (run, runtime):
        each.check()


# B45: what was cut before it could report has cost something, and nobody knows how much


def nothing(ctx: Any) -> None:
    for number in range(40):
        ctx.emit("delta", text=f"word {number}")


def a_part(ctx: Any) -> None:
    nothing(ctx)
    ctx.charge(tokens(4))


def more_than_estimated(ctx: Any) -> None:
    nothing(ctx)
    ctx.charge(tokens(30))
    ctx.charge(tokens(3))


def nonsense(ctx: Any) -> None:
    nothing(ctx)
    ctx.charge(Usage(total_tokens=-5))
    ctx.charge(Usage(input_tokens="7", cost=float("nan")))  # type: ignore[arg-type]


REPORTS: dict[Callable[[Any], None], tuple[int, int]] = {
    nothing: (0, ESTIMATE),
    a_part: (4, ESTIMATE),
    more_than_estimated: (33, 33),
    nonsense: (0, ESTIMATE),
}


@pytest.mark.parametrize("phase", ["generation", "scoring"])
@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.__name__)
@pytest.mark.parametrize("door", [*DOORS, "its own timeout", "its own failure"])
async def test_B45_usage_that_is_not_known_is_shown_as_an_estimate_and_not_as_zero(
    door: str, report: Callable[[Any], None], phase: str, autojump_clock: MockClock
) -> None:
    async def stream(ctx: Any) -> None:
        report(ctx)
        if door == "its own failure":
            raise ConnectionError("the peer hung up before it sent the usage")
        await trio.sleep_forever()

    async def generate(request: str, ctx: Any) -> str:
        if phase == "generation":
            await stream(ctx)
        ctx.charge(tokens(1))
        return "answer"

    async def score(request: str, candidate: Any, ctx: Any) -> float:
        await stream(ctx)
        raise AssertionError

    estimates = {"estimate": tokens(ESTIMATE), "scoring_estimate": tokens(ESTIMATE)}
    if door == "its own timeout":
        estimates["candidate_timeout"] = 1.0  # type: ignore[assignment]
    job = job_of(generate, score, n=2, **estimates)
    async with stopped("deadline" if door.startswith("its") else door, job, at=2) as run:
        reported, charged = REPORTS[report]
        if report is a_part and door == "its own failure":
            charged = 4  # it was not cut: what it reported is what it cost
        before = 1 if phase == "scoring" else 0
        usage = run.runtime.usage
        if run.result is not None:
            usage = run.result.usage
            check_account(run.result, 2)
            for candidate in run.result.candidates:
                assert candidate.usage.total_tokens == charged + before
                assert candidate.estimated == (charged > reported), "an estimate is not marked"
            assert len(usage.malformed) == (4 if report is nonsense else 0)
        assert usage.charged.total_tokens == 2 * (charged + before)
        assert usage.reported.total_tokens == 2 * (reported + before)
        assert usage.estimated == (2 if charged > reported else 0)


# B90: a message that is delivered at the instant of a cancel is not lost


def late_settlements(seeds: range) -> None:
    async def scene(seed: int, chance: random.Random) -> None:
        ends = [trio.current_time() + chance.choice([1.0, 2.0]) for _ in range(3)]
        leaves = trio.current_time() + chance.choice([1.0, 2.0])
        told: list[Any] = []

        async def wander() -> None:
            for _ in range(chance.randrange(4)):
                await trio.lowlevel.cancel_shielded_checkpoint()

        async def generate(request: str, ctx: Any) -> None:
            with trio.CancelScope(shield=True):
                await trio.sleep_until(ends[ctx.index])
                await wander()
                ctx.charge(tokens(20 + ctx.index))

        with trio.CancelScope() as around:
            async with open_runtime(observers=[told.append]) as runtime:
                job = job_of(generate, timeout=0.5, estimate=tokens(10))
                result = await runtime.run(job, "q")
                assert statuses(result) == ["generating"] * 3
                with trio.CancelScope(shield=True):
                    await trio.sleep_until(leaves)
                    await wander()
                if chance.random() < 0.5:
                    around.cancel()  # else the runtime is left while they end
                await trio.lowlevel.checkpoint()
        usage = runtime.usage
        assert usage.outstanding == Usage(), f"seed {seed}: a settlement was lost"
        assert usage.charged.total_tokens == 63, f"seed {seed}: {usage.charged}"
        assert usage.double_settlements == 0
        work = runtime.reap()
        assert sorted(w.candidate for w in work) == [0, 1, 2], f"seed {seed}: {work}"  # type: ignore[type-var]
        assert sum(w.late_usage.total_tokens for w in work) == 63  # type: ignore[union-attr]
        late = [event.candidate for event in told if event.kind == "late_end"]
        assert sorted(late) == [0, 1, 2], f"seed {seed}: told of {late}"

    async def scenes() -> None:
        for seed in seeds:
            await scene(seed, random.Random(seed))

    virtually(scenes)


def test_B90_a_settlement_that_comes_as_the_runtime_is_left_is_not_lost() -> None:
    late_settlements(range(150))


@pytest.mark.slow  # 10,000 schedules held, in a minute on a busy core
def test_B90_in_many_more_schedules() -> None:
    late_settlements(range(150, 2_500))


def test_B90_nor_is_a_candidate_that_is_handed_to_the_scorer_as_the_run_is_stopped() -> None:
    async def scene(seed: int, chance: random.Random) -> None:
        delays = [chance.choice([0, 1, 1, 2]) for _ in range(6)]

        async def generate(request: str, ctx: Any) -> str:
            await trio.sleep(delays[ctx.index])
            ctx.charge(tokens(7))
            return "answer"

        async def score(request: str, candidate: Any, ctx: Any) -> float:
            await trio.sleep(1)
            return 1.0

        record = Record()
        job = job_of(generate, score, n=6, max_concurrency=2, estimate=tokens(5))
        async with open_runtime() as runtime:
            handle = runtime.start(job, "q", observers=[record])
            await trio.sleep(chance.choice([1, 2, 3]))
            for _ in range(chance.randrange(12)):
                await trio.lowlevel.checkpoint()
            handle.cancel()
            result = await handle.result()
        check_account(result, 6)
        record.check()
        generated = {event.candidate for event in record.of("generated")}
        for candidate in result.candidates:
            if candidate.index in generated:
                assert candidate.output == "answer", f"seed {seed}: {candidate}"
                assert candidate.usage.total_tokens == 7, f"seed {seed}: {candidate}"

    async def scenes() -> None:
        for seed in range(150):
            await scene(seed, random.Random(seed))

    virtually(scenes)
