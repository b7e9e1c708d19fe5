"""The demo's problem: TSPLIB's rules, and the program that each of its candidates runs.

The program is run as the demo runs it: by its path, isolated, the file on stdin.
"""

import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hortator.actors.cli import two_opt
from hortator.protocols import tsp

PROGRAM = Path(two_opt.__file__)
BERLIN52 = PROGRAM.with_name("berlin52.tsp").read_text()

# From TSPLIB's berlin52.opt.tour.
PUBLISHED = (
    "1 49 32 45 19 41 8 9 10 43 33 51 11 52 14 13 47 26 27 28 12 25 4 6 15 5 24 48 38 37 40 39 "
    "36 35 34 44 46 16 29 50 20 23 30 2 7 42 21 17 3 18 31 22"
)

SQUARE = """\
NAME : square
TYPE: TSP
DIMENSION: 4
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 1.0e+1 0
3 10 10
4 0 10
EOF
"""


def program(stdin: str | bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", str(PROGRAM), *arguments]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run(command, input=data, capture_output=True, timeout=60, check=False)


def only_line(output: bytes) -> str:
    text = output.decode()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    return text[:-1]


@pytest.fixture(scope="module")
def berlin52() -> tsp.Problem:
    return tsp.parse(BERLIN52)


# --- distances and lengths


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 0), (3, 4), 5),
        ((0, 0), (1, 2), 2),  # 2.236
        ((0, 0), (2, 2), 3),  # 2.828
        ((0, 0), (0.5, 0), 1),  # a half goes up, where Python's round() says 0
        ((0, 0), (2.5, 0), 3),  # and 2
        ((0, 0), (0.49, 0), 0),
        ((-565, 0), (0, 575), 806),  # 806.07
        ((565, 575), (25, 185), 666),  # berlin52, 1 to 2: 666.11
    ],
)
def test_a_distance_is_rounded_to_the_nearest_whole_number(
    a: tsp.City, b: tsp.City, expected: int
) -> None:
    assert tsp.distance(a, b) == expected


def test_berlin52_is_read_whole(berlin52: tsp.Problem) -> None:
    assert berlin52.name == "berlin52"
    assert len(berlin52.cities) == 52
    assert [berlin52.cities[i] for i in (0, 51)] == [(565, 575), (1740, 245)]


def test_the_tour_in_the_order_of_the_file(berlin52: tsp.Problem) -> None:
    # The same rule in whole numbers: the root of 4s is twice that of s.
    ends = [(int(x), int(y)) for x, y in berlin52.cities]
    squares = [(x - u) ** 2 + (y - v) ** 2 for (x, y), (u, v) in pairwise([*ends, ends[0]])]
    assert sum((math.isqrt(4 * square) + 1) // 2 for square in squares) == 22205
    assert tsp.tour_length(berlin52, range(1, 53)) == 22205


def test_the_published_tour_has_the_published_length(berlin52: tsp.Problem) -> None:
    assert tsp.BERLIN52_OPTIMUM == 7542
    tour = tsp.read_tour(berlin52, PUBLISHED)
    for same in (tour, tour[::-1], tour[9:] + tour[:9]):
        assert tsp.tour_length(berlin52, same) == 7542


def test_a_tour_goes_back_to_its_start() -> None:
    square = tsp.parse(SQUARE)
    assert tsp.tour_length(square, [1, 2, 3, 4]) == 40
    assert tsp.tour_length(square, [1, 3, 2, 4]) == 48


# --- reading


def test_the_lines_that_most_programs_do_without() -> None:
    text = SQUARE.replace("DIMENSION: 4\n", "").replace("NAME : square\n", "").replace("EOF\n", "")
    assert tsp.parse(text) == tsp.Problem("", tsp.parse(SQUARE).cities)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "NODE_COORD_SECTION is missing"),
        ("EUC_2D", "GEO", "EDGE_WEIGHT_TYPE must be EUC_2D, not 'GEO'"),
        ("DIMENSION: 4", "DIMENSION: 5", "DIMENSION is '5', but there are 4 cities"),
        ("DIMENSION: 4", "DIMENSION: four", "DIMENSION is 'four', but there are 4 cities"),
        ("3 10 10", "3 10", "city 3 must be a line 'number x y', not '3 10'"),
        ("3 10 10", "3 10 ten", "city 3 must be a line 'number x y', not '3 10 ten'"),
        ("3 10 10", "4 10 10", "expected city 3, found '4': number them 1, 2, 3, ..."),
        ("3 10 10", "3 nan 10", "city 3 is out of range: '3 nan 10'"),
        ("3 10 10", "3 10 -inf", "city 3 is out of range: '3 10 -inf'"),
        ("3 10 10", "3 10 1e200", "city 3 is out of range: '3 10 1e200'"),
        ("3 10 10", "3 " + 99 * "x", r"not '3 x{35}\.\.\.'$"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_is_wrong(old: str, new: str, message: str) -> None:
    assert old in SQUARE
    with pytest.raises(tsp.TspError, match=message) as caught:
        tsp.parse(SQUARE.replace(old, new))
    assert "\n" not in str(caught.value)


def test_a_file_without_cities() -> None:
    with pytest.raises(tsp.TspError, match="there is no city after NODE_COORD_SECTION"):
        tsp.parse("EDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\nEOF\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "4 of 4 cities are not visited, the first is 1"),
        ("4 1 3", "1 of 4 cities are not visited, the first is 2"),
        ("1 2 3 3", "city 3 is visited twice"),
        ("0 1 2 3", "there is no city '0': they are numbered 1 to 4"),
        ("1 2 3 5", "there is no city '5': they are numbered 1 to 4"),
        ("1 2 3 4 tour", "a tour is city numbers with spaces between them, not 'tour'"),
        ("1 2 3 4.0", "not '4.0'"),
        ("1 2 3 ٤", "not '٤'"),
        ("1 2 3 " + 5000 * "4", r"not '4{37}\.\.\.'$"),
    ],
)
def test_a_line_that_is_no_tour_says_why(line: str, message: str) -> None:
    with pytest.raises(tsp.TspError, match=message):
        tsp.read_tour(tsp.parse(SQUARE), line)


# --- the program


def test_the_program_measures_as_the_parent_does(berlin52: tsp.Problem) -> None:
    assert tuple(two_opt.read_cities(BERLIN52)) == berlin52.cities
    distances = two_opt.measure(berlin52.cities)
    assert distances == [[tsp.distance(a, b) for b in berlin52.cities] for a in berlin52.cities]
    tour = tsp.read_tour(berlin52, PUBLISHED)
    assert two_opt.length([city - 1 for city in tour], distances) == 7542


def test_a_tour_of_all_cities_at_most_15_percent_too_long(berlin52: tsp.Problem) -> None:
    ended = program(BERLIN52, "--seed", str(2**64 - 1))
    assert (ended.returncode, ended.stderr) == (0, b"")
    tour = tsp.read_tour(berlin52, only_line(ended.stdout))
    assert 7542 <= tsp.tour_length(berlin52, tour) <= 7542 * 1.15


def test_a_seed_gives_one_tour_and_seeds_give_different_ones(berlin52: tsp.Problem) -> None:
    seeds = ["1", "2", "3", "4", str(2**64 - 1), "1"]
    lines = [only_line(program(BERLIN52, "--seed", seed, "--kicks", "1").stdout) for seed in seeds]
    assert lines[0] == lines[-1]
    assert len(set(lines)) == 5
    # Not the same round trip written from another city on.
    assert len({tsp.tour_length(berlin52, tsp.read_tour(berlin52, line)) for line in lines}) > 1


@pytest.mark.parametrize("n", range(1, 9))
def test_few_cities_two_of_them_in_each_place(n: int) -> None:
    cities = "".join(f"{i} {i // 2 * 7 % 10} {i // 2 * 3 % 10}\n" for i in range(1, n + 1))
    text = f"EDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n{cities}"
    tsp.read_tour(tsp.parse(text), only_line(program(text, "--seed", "5").stdout))


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        (b"", b"no TSPLIB file"),
        (b"\xff\xfe\x00", b"no TSPLIB file"),
        (SQUARE.replace("EUC_2D", "GEO"), b"no TSPLIB file"),
        (SQUARE.partition("1 0 0")[0], b"the cities must be lines"),
        (SQUARE.replace("3 10 10", "3 10"), b"the cities must be lines"),
        (SQUARE.replace("3 10 10", "5 10 10"), b"the cities must be lines"),
        (SQUARE.replace("3 10 10", "3 10 ten"), b"'ten'"),
        (SQUARE.replace("3 10 10", "3 10 nan"), b"NaN"),
        (SQUARE.replace("3 10 10", "3 10 inf"), b"infinity"),
    ],
)
def test_input_that_is_no_tsplib_file(stdin: str | bytes, message: bytes) -> None:
    ended = program(stdin, "--seed", "1")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.startswith(b"two_opt: ")
    assert ended.stderr.count(b"\n") == 1
    assert message in ended.stderr


def test_a_first_move_of_each_kind() -> None:
    # A square with its diagonals: one 2-opt move undoes the crossing.
    square = two_opt.measure(tsp.parse(SQUARE).cities)
    tour = [0, 2, 1, 3]
    assert two_opt.two_opt(tour, square)
    assert two_opt.length(tour, square) == 40
    assert not two_opt.two_opt(tour, square)
    # Points on a line, the second visited last but one: Or-opt moves it back.
    line = two_opt.measure([(float(x), 0.0) for x in range(6)])
    tour = [0, 2, 3, 1, 4, 5]
    assert two_opt.or_opt(tour, line)
    assert two_opt.length(tour, line) == 10


def test_the_program_starts_without_the_library() -> None:
    code = f"import runpy, sys; runpy.run_path({str(PROGRAM)!r}); print(*sys.modules)"
    command = [sys.executable, "-I", "-c", code]
    loaded = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.split()
    assert b"argparse" in loaded
    assert not {b"hortator", b"trio", b"attr", b"pydantic"} & set(loaded)
