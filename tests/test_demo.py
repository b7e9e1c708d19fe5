"""`hortator demo`, run as a newcomer runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hortator.actors.cli import demo
from hortator.protocols.tsp import BERLIN52_OPTIMUM, parse, read_tour, tour_length

PROBLEM = parse((Path(demo.__file__).parent / "berlin52.tsp").read_text())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hortator", "demo", *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_shows_the_best_tour_beside_the_optimum() -> None:
    done = run("--seed", "1", "-n", "2", "--timeout", "20")
    assert done.returncode == 0
    head, _, tour = done.stdout.partition("\n")
    found = re.fullmatch(r"berlin52: a tour of (\d+), (\d+\.\d\d) % above the shortest, 7542", head)
    assert found
    length = tour_length(PROBLEM, read_tour(PROBLEM, " ".join(tour.split())))
    assert length == int(found[1])
    assert float(found[2]) == pytest.approx(100 * (length / BERLIN52_OPTIMUM - 1), abs=0.005)
    assert max(map(len, done.stdout.splitlines())) < 80
    assert re.search(r"\n0 +eligible +\d{4} ", done.stderr)
    assert "2 candidates: 2 eligible" in done.stderr


def test_json() -> None:
    done = run("--seed", "1", "-n", "1", "--timeout", "20", "--json")
    report = json.loads(done.stdout)
    assert report["selected"] == 0
    length = tour_length(PROBLEM, read_tour(PROBLEM, report["output"]))
    assert report["candidates"][0]["score"]["value"] == length


def test_with_too_little_time_it_says_so() -> None:
    begun = time.monotonic()
    done = run("--timeout", "0.05")
    assert time.monotonic() - begun < 5
    assert done.returncode == 1
    assert "No tour was found in this time" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_in_5_seconds_it_is_near_the_optimum_for_9_of_10_seeds() -> None:
    near = 0
    for seed in range(10):
        done = run("--seed", str(seed))
        found = re.search(r"a tour of (\d+),", done.stdout)
        near += found is not None and int(found[1]) <= 1.03 * BERLIN52_OPTIMUM
    assert near >= 9
