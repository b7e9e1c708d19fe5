"""The bench measures what it says it does. How fast anything is, is not tested here.

Rules of this file: everything runs with very few candidates and once, so that no spread and no
target can matter.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from hortator import RunResult, Runtime, Usage, open_runtime
from tests.bench import floor, jobs
from tests.bench.best_of_n import Plan, Report, as_json, measure, show, status
from tests.bench.measure import TRIES, Figure, Line, machine, ratios, until_quiet

TINY = Plan(
    rounds={70: 1, 100: 1},
    large=(80, 1),
    flying={5: 1},
    unstarted=(90, 1),
    variants=(6, 1),
    kept=20,
    tasks=70,
    nested=(8, 1),
    shared=(4, 1),
)
N = 4
FLOOR = "99f1f2650ac0a929c01a9b13cc5c52a92040ac67c2130a46069257fa535ca654"


def line(*samples: float, target: float | None = None) -> Line:
    return Line("a figure", Figure.of(samples), "×", target)


def report(of: Line) -> Report:
    return Report(against_floor=[], larger=[of], deadline=[], memory=[], tree=[], orientation=[])


@pytest.mark.slow
async def test_every_figure_is_taken_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    about = machine()
    taken = await measure(TINY)
    show(taken, about | {"seconds": 0.0, "load_after": about["load"]})
    shown = capsys.readouterr().out
    for each in taken.lines:
        assert each.name in shown
        assert each.figure.rounds == 1
    for title in ("spawn µs", "gated µs", "pool µs", "cheaper", "Deadline", "thread call"):
        assert title in shown
    told = json.loads(as_json(taken, about))
    assert [each["name"] for each in told["deadline"]] == [each.name for each in taken.deadline]


def test_the_floor_is_the_one_that_the_targets_are_ratios_to() -> None:
    source = "".join(
        inspect.getsource(function)
        for function in (floor.score_of, floor.gen_noop, floor.spawn, floor.gated, floor.pool)
    )
    assert hashlib.sha256(source.encode()).hexdigest() == FLOOR, (
        "tests/bench/floor.py was edited, or reformatted: the targets hold for its exact wording"
    )


async def one_run(runtime: Runtime) -> tuple[RunResult[str], jobs.Sink]:
    run = jobs.ours(runtime, N)
    done = await run.run()
    run.check(done)
    return done


def without_a_record(result: RunResult[str], counts: dict[str, int]) -> RunResult[str]:
    return attrs.evolve(result, candidates=result.candidates[:-1])


def with_another_winner(result: RunResult[str], counts: dict[str, int]) -> RunResult[str]:
    others = [c for c in result.candidates if c is not result.selected]
    return attrs.evolve(result, selected=others[0])


def with_an_open_lease(result: RunResult[str], counts: dict[str, int]) -> RunResult[str]:
    return attrs.evolve(result, usage=attrs.evolve(result.usage, outstanding=Usage(total_tokens=1)))


def charged_too_little(result: RunResult[str], counts: dict[str, int]) -> RunResult[str]:
    return attrs.evolve(result, usage=attrs.evolve(result.usage, charged=jobs.times(N - 1)))


def with_a_dropped_event(result: RunResult[str], counts: dict[str, int]) -> RunResult[str]:
    return attrs.evolve(result, telemetry=attrs.evolve(result.telemetry, dropped=1))


def without_an_event(result: RunResult[str], counts: dict[str, int]) -> RunResult[str]:
    counts["scored"] -= 1
    return result


def without_the_last_event(result: RunResult[str], counts: dict[str, int]) -> RunResult[str]:
    del counts["finished"]
    return result


@pytest.mark.parametrize(
    "spoil",
    [
        without_a_record,
        with_another_winner,
        with_an_open_lease,
        charged_too_little,
        with_a_dropped_event,
        without_an_event,
        without_the_last_event,
    ],
)
async def test_a_run_that_did_less_than_it_should_breaks_the_bench(
    spoil: Callable[[RunResult[str], dict[str, int]], RunResult[str]],
) -> None:
    async with open_runtime() as runtime:
        check = jobs.ours(runtime, N).check
        result, sink = await one_run(runtime)
        with pytest.raises(AssertionError):
            check((spoil(result, sink.counts), sink))


async def test_figures_are_taken_anew_while_they_are_spread_and_not_for_ever() -> None:
    taken: list[int] = []

    def take(restless: int) -> Any:
        async def lines() -> list[Line]:
            taken.append(restless)
            return [line(1, 2, 9) if len(taken) <= restless else line(1, 1, 1)]

        return lines

    assert not (await until_quiet(take(1)))[0].noisy
    assert len(taken) == 2
    taken.clear()
    assert (await until_quiet(take(99)))[0].noisy
    assert len(taken) == TRIES


def test_a_wide_spread_fails_the_bench_and_a_missed_target_does_not() -> None:
    missed = report(line(3.0, 3.1, 3.0, target=2.0))
    assert missed.missed
    assert status(missed) == 0
    noisy = report(line(1.0, 2.0, 9.0, target=100.0))
    assert not noisy.missed
    assert status(noisy) == 1


def test_a_figure_is_a_median_with_the_quartiles_apart() -> None:
    figure = Figure.of([4.0, 1.0, 2.0, 100.0, 3.0])
    assert figure == Figure(3.0, 2 / 3, 5)
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
