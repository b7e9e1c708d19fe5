"""Best-of-N with everything on, against the same by hand: `python -m tests.bench.best_of_n`.

*Ours* is `Runtime.run` with a ledger in three dimensions, five events per candidate to a sync
observer, a deadline, a record of each candidate; the *floor* is a Trio nursery that does none of
that (`floor.py`). They take turns in one process, and every run is checked after it was measured.

A missed target is told and is no failure. Exit status 1: a check failed, or figures were still
spread too wide after several tries, so that they say nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

import attrs
import trio

from hortator import open_runtime
from tests.bench import jobs, lateness, memory, throughput, tree
from tests.bench.measure import MOST_SPREAD, TRIES, Line, machine

BEGUN = time.perf_counter()


@attrs.frozen(kw_only=True)
class Plan:
    """How much is measured.

    Attributes:
        rounds: for each n, how often ours and the floor take turns.
        large: the n that is very many, and its rounds.
        flying: for each number in flight at the deadline, the rounds.
        unstarted: n of the deadline with few in flight, and its rounds.
        variants: n of the runs for orientation, and their rounds.
        kept: n of the run whose memory is looked at.
        tasks: n of the run whose tasks are counted.
        nested: how many candidates start a run, and the rounds.
        shared: how many runs share a budget, and the rounds.
    """

    rounds: dict[int, int]
    large: tuple[int, int]
    flying: dict[int, int]
    unstarted: tuple[int, int]
    variants: tuple[int, int]
    kept: int
    tasks: int
    nested: tuple[int, int]
    shared: tuple[int, int]


WHOLE = Plan(
    rounds={10: 11, 100: 21, 1_000: 15, 10_000: 7},
    large=(100_000, 3),
    flying={1_000: 7, 10_000: 5},
    unstarted=(100_000, 5),
    variants=(1_000, 5),
    kept=10_000,
    tasks=2_000,
    nested=(300, 11),
    shared=(100, 11),
)
QUICK = Plan(
    rounds={10: 5, 100: 7, 1_000: 5, 10_000: 3},
    large=(20_000, 1),
    flying={1_000: 3},
    unstarted=(20_000, 3),
    variants=(500, 3),
    kept=2_000,
    tasks=500,
    nested=(100, 3),
    shared=(30, 3),
)


@attrs.frozen(kw_only=True)
class Report:
    """All figures, in the order in which they are shown."""

    against_floor: list[Line]
    larger: list[Line]
    deadline: list[Line]
    memory: list[Line]
    tree: list[Line]
    orientation: list[Line]

    @property
    def lines(self) -> list[Line]:
        """All of them."""
        return [
            *self.against_floor,
            *self.larger,
            *self.deadline,
            *self.memory,
            *self.tree,
            *self.orientation,
        ]

    @property
    def missed(self) -> list[Line]:
        """Those that missed their target."""
        return [line for line in self.lines if line.missed]

    @property
    def noisy(self) -> list[Line]:
        """Those whose spread is too wide."""
        return [line for line in self.lines if line.noisy]


async def measure(plan: Plan) -> Report:
    """Take all figures on one runtime.

    Raises:
        AssertionError: a run did not do what it should.
    """
    against_floor: list[Line] = []
    deadline: list[Line] = []
    async with open_runtime() as runtime:
        await throughput.against_floor(runtime, min(plan.rounds), 1)  # makes what is made once
        for n, rounds in plan.rounds.items():
            progress(f"n = {n:,}, {rounds} rounds")
            against_floor.append(await throughput.against_floor(runtime, n, rounds))
        progress(f"n = {plan.large[0]:,}")
        larger = [await throughput.large(runtime, *plan.large)]
        for n, rounds in plan.flying.items():
            progress(f"deadline with {n:,} in flight")
            deadline += await lateness.in_flight(runtime, n, rounds)
        progress(f"deadline of {plan.unstarted[0]:,}, most of them not started")
        deadline += await lateness.unstarted(runtime, *plan.unstarted)
        progress("memory and tasks")
        kept = await memory.kept(runtime, plan.kept)
        kept.append(await memory.tasks(runtime, plan.tasks))
        progress("nested runs")
        nested = [
            await tree.nesting(runtime, *plan.nested, "no-op", jobs.generate),
            await tree.nesting(runtime, *plan.nested, "1 ms each", tree.work),
        ]
        progress("runs on one budget")
        nested.append(await tree.sharing(*plan.shared))
        progress("variants")
        variants = await throughput.variants(runtime, *plan.variants)
    return Report(
        against_floor=against_floor,
        larger=larger,
        deadline=deadline,
        memory=kept,
        tree=nested,
        orientation=variants,
    )


def progress(what: str) -> None:
    """Say what is being measured now."""
    print(f"{time.perf_counter() - BEGUN:6.1f} s  {what} …", file=sys.stderr)


def table(lines: Sequence[Line]) -> list[str]:
    """Ours against the floor, for people."""
    head = (
        f"{'':>10} {'spawn µs':>9} {'ours µs':>9} {'ratio':>6} {'spread':>6} {'target':>6}"
        f" {'stretch':>7}  {'gated µs (ratio)':>17} {'pool µs (ratio)':>16}  verdict"
    )
    rows = [head]
    for line in lines:
        b, figure = line.beside, line.figure
        gated, pool = (f"{b[name]:.1f} ({b[f'{name} ratio']:.2f})" for name in ("gated", "pool"))
        rows.append(
            f"{line.name:>10} {b['spawn']:9.1f} {b['ours']:9.1f} {figure.value:6.2f}"
            f" {figure.spread:6.0%} {_or_dash(line.target):>6} {_or_dash(line.stretch):>7}"
            f"  {gated:>17} {pool:>16}  {line.verdict}"
        )
    return rows


def in_short(line: Line) -> str:
    """The bare figure."""
    return f"{line.figure.value:,.2f} {line.unit}".rstrip()


def told(line: Line) -> str:
    """One figure with all there is to say about it."""
    figure = line.figure
    words = f"{line.name}: {in_short(line)}"
    if figure.rounds > 1:
        words += f", spread {figure.spread:.0%} of {figure.rounds} rounds"
    if line.target is not None:
        words += f" (target {line.target:,g}: {line.verdict})"
    if line.beside:
        words += "; " + ", ".join(f"{name} {value:.2f}" for name, value in line.beside.items())
    return words


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def show(report: Report, about: dict[str, Any]) -> None:
    """Print everything, for people."""
    print(f"Python {about['python']}, trio {about['trio']}, {about['cores']} cores", end="")
    print(f", load {about['load']} before and {about['load_after']} after, {about['seconds']} s")
    print("\nCPU µs per candidate, at most 64 at once; no-op generator, trivial scorer; medians\n")
    print("\n".join(table(report.against_floor)))
    cheaper = all(
        line.beside[name] < line.beside["ours"]
        for line in report.against_floor
        for name in ("gated", "pool")
    )
    print(
        "\ngated and pool keep no ledger, events, deadline or records, and "
        + ("are cheaper than ours." if cheaper else "are not all cheaper than ours: see above.")
    )
    for title, lines in (
        ("Very many", report.larger),
        ("Deadline: seconds from it to the return", report.deadline),
        ("Memory and tasks", report.memory),
        ("Nested runs and shared budgets", report.tree),
        ("For orientation, CPU µs per candidate, no targets", report.orientation),
    ):
        print(f"\n{title}\n")
        print("\n".join(f"  {told(line)}" for line in lines))
    print()
    for line in report.missed:
        print(f"missed: {line.name}: {in_short(line)}, target {line.target:,g}")
    if not report.missed:
        print("all targets met")
    for line in report.noisy:
        print(
            f"too noisy: {line.name}: spread {line.figure.spread:.0%} after {TRIES} tries, and only"
            f" up to {MOST_SPREAD:.0%} says something; run it on a quieter machine"
        )


def as_json(report: Report, about: dict[str, Any]) -> str:
    """Everything, for programs."""
    lines = {
        part: [attrs.asdict(line) | {"missed": line.missed, "noisy": line.noisy} for line in taken]
        for part, taken in attrs.asdict(report, recurse=False).items()
    }
    return json.dumps({"machine": about, **lines}, ensure_ascii=False)


def status(report: Report) -> int:
    """The exit status: 1 if some figures say nothing. A missed target is news, no failure."""
    return 1 if report.noisy else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.best_of_n", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and short")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args(arguments)
    about, begun = machine(), time.perf_counter()
    report: Report | None = None
    try:
        report = trio.run(measure, QUICK if options.quick else WHOLE)
    except* AssertionError as failed:
        broken: BaseException = failed
        while isinstance(broken, BaseExceptionGroup):
            broken = broken.exceptions[0]
        traceback.print_exception(broken)
        print(f"broken: {broken}", file=sys.stderr)
    if report is None:
        return 1
    about["seconds"] = round(time.perf_counter() - begun, 1)
    about["load_after"] = machine()["load"]
    if options.json:
        print(as_json(report, about))
    else:
        show(report, about)
    return status(report)


if __name__ == "__main__":
    raise SystemExit(main())
