"""Measuring on a machine that others use too: interleaved, on the CPU's clock, with the spread.

Absolute figures move from machine to machine and from minute to minute. So contenders take turns,
a figure is the median of several rounds, and what is judged is a ratio within one round.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import trio

MOST_SPREAD = 0.30
"""Above this a figure means nothing: the bench fails instead of showing it as good or bad."""

TRIES = 3
"""How often a figure is taken anew until its spread is small enough."""


@attrs.frozen
class Contender:
    """Something to be measured.

    Attributes:
        run: is measured; what it returns goes to `check`.
        check: asserts, off the clock, that what was measured did its work.
    """

    name: str
    run: Callable[[], Awaitable[Any]]
    check: Callable[[Any], None]


@attrs.frozen
class Figure:
    """The median of some samples, and how far they are apart.

    Attributes:
        value: the median.
        spread: the distance between the quartiles, as a share of the median.
        rounds: how many samples there are.
    """

    value: float
    spread: float
    rounds: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Figure:
        """The figure that these samples make."""
        middle = statistics.median(samples)
        if len(samples) < 2 or not middle:
            return cls(middle, 0.0, len(samples))
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(middle, (high - low) / abs(middle), len(samples))


@attrs.frozen
class Line:
    """What was found about one thing, and what it should be.

    Attributes:
        name: what was measured.
        figure: what was found.
        unit: of the figure: "×" for a ratio.
        target: the most that it should be; None if it is printed for orientation.
        stretch: the most that it would be nice to be.
        judged: whether too large a spread fails the bench.
        beside: other figures to be read with this one.
    """

    name: str
    figure: Figure
    unit: str
    target: float | None = None
    stretch: float | None = None
    judged: bool = True
    beside: dict[str, float] = attrs.Factory(dict)

    @property
    def missed(self) -> bool:
        """Whether there is a target and it was not reached."""
        return self.target is not None and self.figure.value > self.target

    @property
    def noisy(self) -> bool:
        """Whether the samples are too far apart to say anything."""
        return self.judged and self.figure.spread > MOST_SPREAD

    @property
    def verdict(self) -> str:
        """One word or two."""
        if self.target is None:
            return ""
        if self.missed:
            return "missed"
        if self.stretch is None:
            return "met"
        return "stretch met" if self.figure.value <= self.stretch else "met, stretch missed"


async def cpu_seconds(contender: Contender) -> float:
    """Run a contender once, on a clean heap, and check what it did."""
    gc.collect()
    begun = time.process_time()
    done = await contender.run()
    used = time.process_time() - begun
    contender.check(done)
    return used


async def take_turns(contenders: Sequence[Contender], rounds: int, each: int) -> list[list[float]]:
    """CPU seconds of contenders that take turns: one list for each, one sample for each round.

    Args:
        contenders: who takes turns.
        rounds: how many samples.
        each: how many runs one sample is the mean of; short runs need more.
    """
    samples: list[list[float]] = [[] for _ in contenders]
    for _ in range(rounds):
        sums = [0.0] * len(contenders)
        for _ in range(each):
            for place, contender in enumerate(contenders):
                sums[place] += await cpu_seconds(contender)
        for place, total in enumerate(sums):
            samples[place].append(total / each)
    return samples


async def until_quiet(take: Callable[[], Awaitable[list[Line]]]) -> list[Line]:
    """Take figures, and take them anew while the machine is too restless for them."""
    for _ in range(TRIES - 1):
        lines = await take()
        if not any(line.noisy for line in lines):
            return lines
    return await take()


def ratios(ours: Sequence[float], floor: Sequence[float]) -> list[float]:
    """Ours to the floor, round by round."""
    return [a / b for a, b in zip(ours, floor, strict=True)]


def machine() -> dict[str, Any]:
    """Where this was measured, and what else the machine is doing."""
    return {
        "python": platform.python_version(),
        "trio": trio.__version__,
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }
