"""The travelling salesman's files and distances, as TSPLIB defines them.

Source: G. Reinelt, "TSPLIB: a traveling salesman problem library", ORSA Journal on
Computing 3 (1991), and its format description of 1995. Of the format, this reads what
the demo needs: one list of cities in the plane (`EUC_2D`). Pure: text in, values out.
"""

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

BERLIN52_OPTIMUM: Final = 7542
"""The length of a shortest tour of berlin52, proven; from TSPLIB's list of optima."""

MAX_COORDINATE: Final = 1e9
"""Beyond this a squared distance is so coarse that rounding to a whole number is a guess."""

City: TypeAlias = tuple[float, float]
"""A city's x and y."""


class TspError(ValueError):
    """The text is no problem that we can read, or no tour of it; the message says why."""


@attrs.frozen
class Problem:
    """The cities to visit."""

    name: str
    """The file's NAME, or the empty string."""

    cities: tuple[City, ...]
    """The coordinates; city number 1 of the file is at index 0."""


def parse(text: str) -> Problem:
    """Read the text of a TSPLIB file of type EUC_2D.

    Raises `TspError`: another kind of distance, no cities, a line that is not "number x y",
    cities not numbered from 1 in order, or not as many as DIMENSION says. Without the
    DIMENSION or the closing EOF the file is read all the same, as most programs do.
    """
    head, found, body = text.partition("NODE_COORD_SECTION")
    if not found:
        raise TspError("not a TSPLIB file with cities: the line NODE_COORD_SECTION is missing")
    header = _header(head)
    kind = header.get("EDGE_WEIGHT_TYPE", "")
    if kind != "EUC_2D":
        raise TspError(f"EDGE_WEIGHT_TYPE must be EUC_2D, not {_quote(kind)}")
    lines = [line for line in body.partition("EOF")[0].splitlines() if line.strip()]
    if not lines:
        raise TspError("there is no city after NODE_COORD_SECTION")
    cities = tuple(_city(line, number) for number, line in enumerate(lines, start=1))
    dimension = header.get("DIMENSION", str(len(cities)))
    if dimension != str(len(cities)):
        raise TspError(f"DIMENSION is {_quote(dimension)}, but there are {len(cities)} cities")
    return Problem(header.get("NAME", ""), cities)


def distance(a: City, b: City) -> int:
    """Give the distance by the nint rule: straight, then rounded to the nearest whole number."""
    dx, dy = a[0] - b[0], a[1] - b[1]
    return int(math.sqrt(dx * dx + dy * dy) + 0.5)


def tour_length(problem: Problem, tour: Sequence[int]) -> int:
    """Give the length of the closed tour, the way back to its first city included.

    Raises `TspError` if the tour does not visit each city exactly once.
    """
    check_tour(problem, tour)
    stops = [problem.cities[city - 1] for city in tour]
    return sum(distance(stops[i - 1], stop) for i, stop in enumerate(stops))


def check_tour(problem: Problem, tour: Sequence[int]) -> None:
    """Raise `TspError` unless the tour is a permutation of the numbers from 1 on."""
    n = len(problem.cities)
    seen: set[int] = set()
    for city in tour:
        if not 1 <= city <= n:
            raise TspError(f"there is no city {_quote(str(city))}: they are numbered 1 to {n}")
        if city in seen:
            raise TspError(f"city {city} is visited twice")
        seen.add(city)
    if len(seen) < n:
        missing = next(city for city in range(1, n + 1) if city not in seen)
        raise TspError(f"{n - len(seen)} of {n} cities are not visited, the first is {missing}")


def read_tour(problem: Problem, line: str) -> tuple[int, ...]:
    """Read a tour written as city numbers with space between them.

    Raises `TspError` if the line holds anything else, or no tour of this problem.
    """
    words = line.split()
    for word in words:
        # int() would also take "1_0" and "+1", and gives up on thousands of digits.
        if not (word.isascii() and word.isdecimal() and len(word) < 10):
            raise TspError(f"a tour is city numbers with spaces between them, not {_quote(word)}")
    tour = tuple(map(int, words))
    check_tour(problem, tour)
    return tour


def _header(text: str) -> dict[str, str]:
    """Read the lines "KEY: value" before the cities; the space around the colon is free."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _city(line: str, number: int) -> City:
    """Read the line of the city that must have this number."""
    try:
        label, x, y = line.split()
        city = (float(x), float(y))
    except ValueError:
        raise TspError(f"city {number} must be a line 'number x y', not {_quote(line)}") from None
    if label != str(number):
        raise TspError(f"expected city {number}, found {_quote(label)}: number them 1, 2, 3, ...")
    if not all(abs(value) <= MAX_COORDINATE for value in city):  # false for nan, too
        raise TspError(f"city {number} is out of range: {_quote(line)}")
    return city


def _quote(text: str) -> str:
    """Quote a piece of the input, shortened: the message must stay one line."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
