"""A short tour through the cities on stdin: one candidate of `hortator demo`.

    python -I two_opt.py --seed 7 <berlin52.tsp

reads a TSPLIB file (EUC_2D) and prints one line, the cities in the order of the
tour. Exit code 2 with one line on stderr: the input cannot be read as that.

The search, from a random tour: 2-opt (Croes 1958, "A method for solving
traveling-salesman problems") and Or-opt (Or 1976, doctoral thesis, Northwestern
University) until neither finds a shorter tour; then `--kicks` times a double bridge
(Martin, Otto, Felten 1991, "Large-step Markov chains for the traveling salesman
problem") and the same again, from the better of the two tours. The work is a count,
not a time, so a seed gives the same tour on a slow machine and on a fast one.

A process is started for each candidate, so this file is run by its path and imports
a few modules of the standard library: importing `hortator` here would cost more than
finding a first tour. That is why it reads its input itself, in `read_cities`, and
does not share `hortator.protocols.tsp`. The parent measures each tour with that
module, so a mistake here shows as a bad score; a test holds the two against each other.
"""

import argparse
import math
import random
import sys
from collections.abc import Sequence

Distances = list[list[int]]
"""The distance from each city to each, by position in the file, from 0."""

KICKS = 40
"""Double bridges in one search: about a quarter of a second of CPU for 52 cities."""

LONGEST_SEGMENT = 3
"""Cities that Or-opt moves at a time, at most; Or's own choice."""


def read_cities(text: str) -> list[tuple[float, float]]:
    """Give the coordinates in the text of a TSPLIB file of type EUC_2D.

    Raises `ValueError` if there are none, or if they are not numbered from 1.
    """
    head, found, body = text.partition("NODE_COORD_SECTION")
    if not found or "EUC_2D" not in head:
        raise ValueError("no TSPLIB file with EDGE_WEIGHT_TYPE: EUC_2D and a NODE_COORD_SECTION")
    fields = body.partition("EOF")[0].split()
    count, left_over = divmod(len(fields), 3)
    if not count or left_over or fields[::3] != [str(i) for i in range(1, count + 1)]:
        raise ValueError("the cities must be lines of number, x and y, numbered 1, 2, 3, ...")
    return [(float(x), float(y)) for x, y in zip(fields[1::3], fields[2::3], strict=True)]


def measure(cities: Sequence[tuple[float, float]]) -> Distances:
    """Give all distances by the nint rule of TSPLIB (Reinelt 1991), as whole numbers."""
    return [
        [int(math.sqrt((x - u) * (x - u) + (y - v) * (y - v)) + 0.5) for u, v in cities]
        for x, y in cities
    ]


def length(tour: Sequence[int], distances: Distances) -> int:
    """Give the length of the closed tour."""
    return sum(distances[tour[i - 1]][tour[i]] for i in range(len(tour)))


def two_opt(tour: list[int], distances: Distances) -> bool:
    """Turn a stretch of the tour round wherever that shortens it; say whether any did.

    One pass over all pairs of edges (a, b) and (c, e): they become (a, c) and (b, e).
    """
    n = len(tour)
    shorter = False
    for i in range(n - 2):
        a = tour[i]
        from_a = distances[a]
        # The first edge and the last share a city.
        for j in range(i + 2, n if i else n - 1):
            b, c, e = tour[i + 1], tour[j], tour[j + 1 - n]
            if from_a[c] + distances[b][e] < from_a[b] + distances[c][e]:
                tour[i + 1 : j + 1] = tour[j:i:-1]
                shorter = True
    return shorter


def or_opt(tour: list[int], distances: Distances) -> bool:
    """Move short segments to where they fit best, either way round; say whether any moved.

    One pass over all segments of up to `LONGEST_SEGMENT` cities.
    """
    n = len(tour)
    shorter = False
    for size in range(1, min(LONGEST_SEGMENT, n - 2) + 1):
        for start in range(n):
            # The segment first: neither it nor the rest then crosses the end of the list.
            ring = tour[start:] + tour[:start]
            segment, rest = ring[:size], ring[size:]
            first, last = distances[segment[0]], distances[segment[-1]]
            gain = first[rest[-1]] + last[rest[0]] - distances[rest[-1]][rest[0]]
            extra, place, turned = cheapest_gap(rest, first, last, distances)
            if extra < gain:
                tour[:] = rest[:place] + segment[:: -1 if turned else 1] + rest[place:]
                shorter = True
    return shorter


def cheapest_gap(
    rest: list[int], first: list[int], last: list[int], distances: Distances
) -> tuple[int, int, bool]:
    """Find where a segment lengthens the path `rest` least: by how much, where, turned or not.

    `first` and `last` are the distances from the two ends of the segment.
    """
    best = (sys.maxsize, 0, False)
    p = rest[0]
    for place in range(1, len(rest)):
        q = rest[place]
        straight, turned = first[p] + last[q], last[p] + first[q]
        extra = min(straight, turned) - distances[p][q]
        if extra < best[0]:
            best = (extra, place, turned < straight)
        p = q
    return best


def descend(tour: list[int], distances: Distances) -> int:
    """Improve the tour in place until no single move shortens it; give its length."""
    while two_opt(tour, distances) or or_opt(tour, distances):
        pass
    return length(tour, distances)


def double_bridge(tour: list[int], rng: random.Random) -> list[int]:
    """Cut the tour into A B C D and give A C B D: far for 2-opt and Or-opt to undo."""
    i, j, k = sorted(rng.sample(range(1, len(tour)), 3))
    return tour[:i] + tour[j:k] + tour[i:j] + tour[k:]


def search(distances: Distances, rng: random.Random, kicks: int = KICKS) -> list[int]:
    """Give a short tour; the same for the same distances, state of `rng` and `kicks`."""
    best = list(range(len(distances)))
    rng.shuffle(best)
    shortest = descend(best, distances)
    for _ in range(kicks if len(best) > 3 else 0):
        tour = double_bridge(best, rng)
        found = descend(tour, distances)
        if found <= shortest:
            best, shortest = tour, found
    return best


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the cities from stdin, print a tour, and give the exit code."""
    parser = argparse.ArgumentParser(description="A short tour through the cities on stdin.")
    parser.add_argument("--seed", type=int, required=True, help="any whole number")
    parser.add_argument("--kicks", type=int, default=KICKS, help="rounds (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        distances = measure(read_cities(sys.stdin.buffer.read().decode(errors="replace")))
    except (ValueError, OverflowError) as error:
        print(f"two_opt: {error}", file=sys.stderr)
        return 2
    tour = search(distances, random.Random(options.seed), options.kicks)
    print(*(city + 1 for city in tour))
    return 0


if __name__ == "__main__":
    sys.exit(main())
