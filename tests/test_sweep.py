"""Stopped at every step and from every door, a run leaves nothing behind and takes no time.

Rules of this file:

* Scenes are in `sweep_scenes.py`, what must hold is in `sweep_checks.py`. A test here chooses what
  is swept, or shows that the sweep would notice. A failure tells how to play that step again.
* The default sweeps take less than a second each, and together touch every door, seed, deadline
  and cap. All combinations of them are swept by the tests that are marked slow.
* A sweep is kept: the tests that look at the same one share it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from hortator import BestOfN, Status
from tests.sweep import DOORS, EXTENSION, Play, Scene, SweepFailed, perform, sweep
from tests.sweep_scenes import SCENES, staged

SEEDS = (1, 2, 3, 4, 5)
DEADLINES = (0.0, 1.0, 1.5, 60.0)
"""Before anything, on and just off the scenes' own times, and long after everything."""
CAPS = (8, 16)
"""Just enough for all, so that top-ups are denied; and twice that, so that they are granted."""

PAIRS = tuple("+".join(pair) for pair in combinations(DOORS, 2))
SHIELDED = "runtime behind a shield"
STALLS = ("caller+stall", "handle+stall", "runtime+stall", "candidate+handle+stall")
EXTENSIONS = (
    "extend",
    "extend+deadline",
    "deadline+extend",
    "extend+handle",
    "handle+extend",
    "extend+candidate",
    "extend+caller",
    "extend+runtime",
)
STOPS = (
    "stop_after_current",
    "stop_after_current+candidate",
    "stop_after_current+deadline",
    "stop_after_current+caller",
    "stop_after_current+runtime",
    "stop_after_current+handle",
)
LEAVINGS = ("leave", "leave+handle", "leave+caller", "leave+stop_after_current")
TREE = ("contended", "deep", "left_behind", "received")
AWAITS = Path(__file__).parent / "data" / "awaits.json"


@attrs.frozen
class Cell:
    """One sweep of the grid."""

    scene: str
    doors: str
    seed: int
    deadline: float
    cap: int

    def __str__(self) -> str:
        return f"{self.scene}-{self.doors}-seed {self.seed}-{self.deadline:g} s-cap {self.cap}"

    def arguments(self) -> str:
        """What `tests.sweep_scenes` is called with, but for the step."""
        return f"{self.scene} '{self.doors}' {self.seed} {self.deadline} {self.cap}"


def _default_cells() -> Iterator[Cell]:
    """One for each door, for each of some further scenes and doors, and for each set of doors."""
    # Each deadline and cap once at least; where the deadline is 0 there is no candidate to cut.
    for number, (door, deadline) in enumerate(zip(DOORS, (60.0, 1.0, 1.5, 0.0, 1.0), strict=True)):
        yield Cell("mixed", door, SEEDS[number], deadline, CAPS[number % 2])
    for number, scene in enumerate(("chosen", "judged", "built")):
        for door in ("caller", "deadline"):  # outside of any candidate, at each of its steps
            yield Cell(scene, door, SEEDS[number], 60.0, 16)
    for number, (scene, door) in enumerate(product(list(SCENES)[1:], DOORS)):
        if scene in ("nested", "batched", "gathered", "repeated", *TREE) or number % 3 == 0:
            yield Cell(scene, door, SEEDS[(number + 1) % 5], (1.0, 60.0, 1.5)[number % 3], 16)
    for number, pair in enumerate(PAIRS):
        scene = ("nested", "mixed", "nested", "tidy")[number % 4]
        yield Cell(scene, pair, SEEDS[number % 5], 1.0, CAPS[number % 2])
    for scene in ("mixed", "nested", "tidy", "overheard_by_the_runtime"):
        yield Cell(scene, SHIELDED, 1, 1.0, 16)
    for number, doors in enumerate(EXTENSIONS):
        scene = ("mixed", "tidy", "nested", "hurried", "nested_and_tidy")[number % 5]
        yield Cell(scene, doors, SEEDS[number % 5], (1.0, 1.5)[number % 2], 16)
    for number, doors in enumerate(STOPS):
        scene = ("contended", "mixed", "contended", "nested", "deep", "contended")[number]
        yield Cell(scene, doors, SEEDS[number % 5], (1.0, 60.0)[number % 2], CAPS[number % 2])
    for number, doors in enumerate(LEAVINGS):
        yield Cell("received", doors, SEEDS[number], 60.0, 16)
    for scene in TREE:
        yield Cell(scene, SHIELDED, 2, 1.0, 8)
    for number, doors in enumerate(STALLS):
        yield Cell(("mixed", "nested")[number % 2], doors, SEEDS[number], 1.0, 16)


CELLS = list(_default_cells())
GRID = [
    *(Cell("mixed", *each) for each in product(DOORS, SEEDS, DEADLINES, CAPS)),
    *(Cell(scene, door, 2, 1.5, 8) for scene, door in product(list(SCENES)[1:], DOORS)),
    *(Cell("mixed", pair, seed, 1.5, 16) for pair, seed in product(PAIRS, SEEDS)),
    *(Cell(scene, pair, 1, 60.0, 16) for scene, pair in product(list(SCENES)[1:], PAIRS)),
    *(Cell(scene, doors, 2, 60.0, 16) for scene, doors in product(SCENES, [SHIELDED, *STALLS])),
    *(Cell(scene, doors, 3, 1.5, 16) for scene, doors in product(SCENES, EXTENSIONS)),
    *(Cell(scene, doors, 4, 1.5, 8) for scene, doors in product(SCENES, STOPS)),
    *(Cell("received", doors, 4, 1.5, 8) for doors in LEAVINGS),
]
GRID = [cell for cell in GRID if cell not in CELLS]
SOME_OF_THE_GRID = GRID[::8]


@attrs.frozen
class Swept:
    """What is kept of a sweep.

    Attributes:
        awaits: where tasks were cancelled.
        reasons: why runs ended that met the doors.
        hits: for each play, the candidate that was cut alone, and the statuses of all.
    """

    awaits: frozenset[str]
    reasons: frozenset[str]
    hits: tuple[tuple[int | None, tuple[Status, ...]], ...]


def play_all(cell: Cell) -> Swept:
    """Sweep a cell."""
    again = (
        f"scene {cell.scene}, deadline {cell.deadline} s, cap {cell.cap}\n"
        f"Once more: python -m tests.sweep_scenes {cell.arguments()} {{step}}"
    )
    stage = staged(cell.scene, cell.deadline, cell.cap)
    awaits: set[str] = set()
    reasons: set[str] = set()
    hits: list[tuple[int | None, tuple[Status, ...]]] = []
    for play in sweep(stage, cell.doors.split("+"), seed=cell.seed, again=again):
        awaits |= play.awaits
        reasons |= {run.state.reason(0) for run in play.runs[:1]}
        statuses = [c.status for run in play.runs[:1] for c in run.state.candidates()]
        hits.append((play.hit and play.hit[1], tuple(statuses)))
    return Swept(frozenset(awaits), frozenset(reasons), tuple(hits))


kept = functools.cache(play_all)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_nothing_is_left_and_no_time_goes_by(cell: Cell) -> None:
    assert kept(cell).hits, "there was no step at which the doors could be opened"


@pytest.mark.slow
@pytest.mark.parametrize("cell", SOME_OF_THE_GRID, ids=str)
def test_nothing_is_left_and_no_time_goes_by_in_a_part_of_the_grid(cell: Cell) -> None:
    _check_all(cell)


@pytest.mark.slow
@pytest.mark.storm
@pytest.mark.parametrize("cell", GRID, ids=str)
def test_nothing_is_left_and_no_time_goes_by_in_the_whole_grid(cell: Cell) -> None:
    _check_all(cell)


def _check_all(cell: Cell) -> None:
    hits = play_all(cell).hits
    assert hits or (cell.deadline == 0.0 and "candidate" in cell.doors), "the doors never opened"


def test_the_default_sweeps_touch_every_value() -> None:
    single = [cell for cell in CELLS if cell.scene == "mixed"]
    assert {cell.doors for cell in single} >= set(DOORS)
    assert {cell.seed for cell in single} == set(SEEDS)
    assert {cell.deadline for cell in single} == set(DEADLINES)
    assert {cell.cap for cell in single} == set(CAPS)
    assert {cell.scene for cell in CELLS} == set(SCENES)


# -- each door does what it is for ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("door", "reason"),
    [
        ("caller", "cancelled"),
        ("handle", "cancelled"),
        ("runtime", "cancelled"),
        (SHIELDED, "cancelled"),
        ("deadline", "deadline"),
        ("candidate", "completed"),
    ],
)
def test_a_door_ends_the_run_by_its_own_reason(door: str, reason: str) -> None:
    reasons = kept(Cell("nested", door, 1, 60.0, 16)).reasons
    assert reason in reasons, f"no run that met the door ended with {reason!r}, but with {reasons}"


def test_a_candidate_that_is_cut_alone_takes_nobody_with_it() -> None:
    usual = perform(staged("nested", 60.0, 16), seed=1).result
    assert usual is not None
    expected = [candidate.status for candidate in usual.candidates]
    hits = kept(Cell("nested", "candidate", 1, 60.0, 16)).hits
    for hit, statuses in hits:
        assert hit is not None
        others = [*expected[:hit], Status.TIMED_OUT, *expected[hit + 1 :]]
        assert list(statuses) == others, f"candidate {hit} was cut"
    assert {hit for hit, _ in hits} == {0, 1, 2}, "not every candidate was cut once"


def test_a_deadline_that_is_moved_at_any_step_is_the_one_that_ends_the_run() -> None:
    for step in (1, 20, 50):
        usual = perform(staged("mixed", 1.0, 16), seed=1).result
        longer = perform(staged("mixed", 1.0, 16), ["extend"], seed=1, step=step).result
        assert usual is not None
        assert longer is not None
        assert (usual.elapsed, longer.elapsed) == (1.0, 1.0 + EXTENSION)
        assert (usual.stop_reason, longer.stop_reason) == ("deadline", "deadline")


# -- it repeats, and it bites --------------------------------------------------------------------


@pytest.mark.parametrize("scene", SCENES)
def test_the_same_seed_tells_the_same_story_and_two_seeds_differ(scene: str) -> None:
    stories = []
    for seed in SEEDS:
        first, second = (perform(staged(scene, 60.0, 16), seed=seed) for _ in range(2))
        assert first.story() == second.story(), f"seed {seed} did not repeat"
        assert len(first.story()) > 10
        stories.append(tuple(first.story()))
    if scene in ("mixed", "settled"):  # in the others nothing happens at the same time
        assert len(set(stories)) > 1, "all seeds tell one story: the scheduler is not seeded"


def test_a_play_stopped_at_the_same_step_is_the_same() -> None:
    first, second = (
        perform(staged("mixed", 60.0, 16), ["handle"], seed=3, step=40) for _ in range(2)
    )
    assert first.story() == second.story()
    assert first.awaits == second.awaits
    assert first.opened_at == second.opened_at


def test_every_known_await_is_cancelled_once() -> None:
    cut = {place for cell in CELLS for place in kept(cell).awaits}
    missing = set(json.loads(AWAITS.read_text())) - cut
    assert not missing, f"no sweep cancels these any more: {sorted(missing)}\nthese: {sorted(cut)}"


# -- what it would say ---------------------------------------------------------------------------


def _scene(generate: Callable[..., Any]) -> Callable[[Play], Scene]:
    async def score(request: Any, candidate: Any, ctx: Any) -> float:
        return 1.0

    job = BestOfN(generate=generate, score=score, n=2, timeout=1.0)
    return lambda play: Scene(job=job, observers=[play.listener("an observer")])


def test_a_failure_says_what_was_wrong_where_and_how_to_see_it_again() -> None:
    async def holds_out(request: Any, ctx: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.125)

    with pytest.raises(SweepFailed) as caught:
        list(sweep(_scene(holds_out), ["caller"], seed=7, again="play --step {step}"))
    told = str(caught.value)
    assert "0.125 virtual seconds went by after the stop; at most 0.0 may" in told
    step = int(told.split()[1].strip(","))
    assert f"step {step}, seed 7, caller:" in told
    assert told.endswith(f"play --step {step}")
    again = perform(_scene(holds_out), ["caller"], seed=7, step=step)
    assert again.faults, "the step that failed does not fail again"
    early = perform(_scene(holds_out), ["caller"], seed=7, step=1)
    assert not early.faults, "cancelled before the run was called, so that nothing began"


def test_a_play_without_an_end_is_ended() -> None:
    async def spins(request: Any, ctx: Any) -> None:
        while True:
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled:
                pass

    play = perform(_scene(spins), ["caller"], seed=1, step=20)
    assert "no end after" in play.faults[0]
    assert "spins" in play.faults[0], "the place is not named"


def test_what_is_left_behind_is_seen() -> None:
    async def holds_out(request: Any, ctx: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(10.0)

    told = "\n".join(perform(_scene(holds_out), ["caller"], seed=1, step=20).faults)
    assert "detached, though it ends when told to" in told
    assert "alive after the run: hortator run-" in told
    assert "is over, and these are not" in told
