"""The README tells the truth: what it shows is run, and what it names exists.

* Each block of Python is a whole program. It runs as a process of its own, and prints what the
  text block behind it shows, but for seconds that it measured; so does the example of
  `hortator run`.
* The two commands that set everything up are run by `.ci/run`; here, what they name is looked up.
* The tables of statuses, stop reasons, rules and selectors are compared with the library's.
* The drawing in CONTRIBUTING.md names functions, and each is in the file that it says.
* Flags, arguments, members, classes, defaults, files and links that it names are looked up.
* The number of blocks of each kind is pinned, so that none comes in that no test looks at.
"""

from __future__ import annotations

import builtins
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
import trio
import typer

import hortator
from hortator import BestOfN, CandidateContext, RunHandle, RunResult, Runtime, Score, Status
from hortator.actors import process
from hortator.actors.cli import demo
from hortator.actors.cli.app import app
from hortator.protocols import errors
from hortator.protocols.consensus import stability
from hortator.protocols.deadlines import MARGIN_SHARE, PER_CANDIDATE, WORK_SHARE
from hortator.protocols.stopping import CUT_SHORT, StopReason
from hortator.protocols.tsp import BERLIN52_OPTIMUM, parse, read_tour, tour_length

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str]] = BLOCK.findall(TEXT)
PROSE = BLOCK.sub("", TEXT)
INLINE: list[str] = re.findall(r"`([^`\n]+)`", PROSE)

LIMIT = 30
"""Seconds for one program. Each takes two at the most, beside the imports."""


def blocks(kind: str) -> list[str]:
    return [code for each, code in BLOCKS if each == kind]


def shown_behind(code: str) -> str:
    """The block behind that one, which shows what it prints."""
    kind, text = BLOCKS[[each for _, each in BLOCKS].index(code) + 1]
    assert kind == "text", f"no text block follows, with what this prints:\n{code}"
    return text


def section(heading: str) -> str:
    """What stands under a heading, up to the next one."""
    _, found, rest = PROSE.partition(f"\n{heading}\n")
    assert found, f"the README has no heading {heading!r}"
    return re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of all lines of the tables in a text, heads included, rules not."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if not all(set(cell) <= {"-", ":"} for cell in row)]


PROGRAMS = blocks("python")
SET_UP, TESTS, RUN = blocks("sh")
DEMO = shown_behind(SET_UP)
SHORT_DEMO = """
from hortator.actors.cli import main

raise SystemExit(main(["demo", "-n", "1", "--seed", "1", "--timeout", "25"]))
"""
BLOCKED = next(text for text in blocks("text") if text.startswith("the event loop"))
BLOCKS_THE_LOOP = """
import time, trio
from hortator import BestOfN, open_runtime, plurality_vote

async def generate(request, ctx):
    time.sleep(0.8)

async def main():
    async with open_runtime() as runtime:
        await runtime.run(BestOfN(generate=generate, select=plurality_vote(), n=1), "")

trio.run(main)
"""


def test_the_number_of_blocks() -> None:
    assert Counter(kind for kind, _ in BLOCKS) == {"sh": 3, "python": 10, "text": 14}
    assert TEXT.count("```") == 2 * len(BLOCKS), "a fence is not closed, or is indented"


# -- what it shows is run --------------------------------------------------------------------------


STARTER = """
import os, signal, sys
import hortator.actors.cli.commands  # once for all: importing takes longer than most programs

for number, code in enumerate(sys.argv[2:]):
    if not os.fork():
        signal.alarm(int(sys.argv[1]))
        file = os.open(f"{number}.txt", os.O_CREAT | os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        exec(compile(code, "program.py", "exec"), {"__name__": "__main__"})
        sys.exit()
while True:
    os.wait()
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each program prints, errors included: a process each, all at the same time."""
    folder = tmp_path_factory.mktemp("printed")
    programs = [*PROGRAMS, SHORT_DEMO, BLOCKS_THE_LOOP]
    paths, plain = os.pathsep.join(sys.path), {"COLUMNS": "80", "TERM": "dumb"}  # for Rich
    subprocess.run(
        [sys.executable, "-W", "error", "-c", STARTER, str(LIMIT), *programs],
        cwd=folder,
        env={**os.environ, **plain, "PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=2 * LIMIT,
        check=False,  # it ends with the error that no child is left
    )
    return {code: (folder / f"{i}.txt").read_text() for i, code in enumerate(programs)}


def unmeasured(text: str) -> list[str]:
    """The lines of a text, without seconds that were measured and blanks at the ends of lines."""
    text = re.sub(r"\b\d+\.\d\d(?= s\b)|(?<=  )\d+\.\d\d\b", "?", text)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("code", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_prints_what_is_shown(code: str, printed: dict[str, str]) -> None:
    assert unmeasured(printed[code]) == unmeasured(shown_behind(code))


def test_the_warning_of_the_watchdog_is_as_it_is_shown(printed: dict[str, str]) -> None:
    assert shapes(printed[BLOCKS_THE_LOOP]) == shapes(BLOCKED)


def test_the_command_line_prints_what_is_shown(tmp_path: Path) -> None:
    for name, words in {"hortator": ["-m", "hortator"], "python3": []}.items():
        tool = tmp_path / name  # so that they are of this environment
        tool.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *words])} "$@"\n')
        tool.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", RUN],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stdout == shown_behind(RUN), done.stderr


def shapes(text: str) -> set[str]:
    """The lines of a text, whatever their numbers and blanks."""
    plain = [" ".join(re.sub(r"\d+(\.\d+)?", "0", line).split()) for line in text.splitlines()]
    return {re.sub(r"0( 0){9,}", "0 0", line) for line in plain}  # a tour, however it is broken


def test_the_demo_prints_lines_as_they_are_shown(printed: dict[str, str]) -> None:
    of_one_with_time_enough = {
        "0 candidate, 0 at a time, at most 0 s; Ctrl-C keeps the best",
        "0 candidates: 0 eligible",
        "ended: completed, after 0 s",
    }
    assert shapes(printed[SHORT_DEMO]) - of_one_with_time_enough <= shapes(DEMO)
    assert "\nberlin52: a tour of " in printed[SHORT_DEMO]


def test_the_tour_of_the_demo_is_as_long_as_it_says() -> None:
    _, head, tour = re.split(r"^(berlin52:.*)\n", DEMO, flags=re.MULTILINE)
    problem = parse((Path(demo.__file__).parent / "berlin52.tsp").read_text())
    length = tour_length(problem, read_tour(problem, " ".join(tour.split())))
    gap = 100 * (length / BERLIN52_OPTIMUM - 1)
    assert head == (
        f"berlin52: a tour of {length}, {gap:.2f} % above the shortest, {BERLIN52_OPTIMUM}"
    )


def test_the_account_of_the_demo_adds_up() -> None:
    account = re.search(r"^(\d+) candidates: (.*)$", DEMO, re.MULTILINE)
    assert account
    counts = {status: int(count) for count, status in (c.split() for c in account[2].split(", "))}
    assert sum(counts.values()) == int(account[1])
    assert counts.keys() <= set(Status)


def test_the_default_of_the_demo_is_what_is_shown() -> None:
    options = {
        each.name: each.default for each in typer.main.get_command(app).commands["demo"].params
    }
    assert DEMO.startswith(f"{options['n']} candidates, ")
    assert f", at most {options['timeout']:g} s;" in DEMO


# -- the commands that set everything up -----------------------------------------------------------


@pytest.mark.source
def test_the_set_up_command_names_what_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    make, install, show = SET_UP.strip().split(" && ")
    assert make == "python3 -m venv .venv"
    words = shlex.split(install)
    assert words[:2] == [".venv/bin/pip", "install"]
    assert any(f".[{extra}]" in words for extra in project["optional-dependencies"])
    assert (ROOT / words[words.index("-c") + 1]).is_file()
    tool, command = show.split()
    assert tool.removeprefix(".venv/bin/") in project["scripts"]
    assert command in typer.main.get_command(app).commands


@pytest.mark.source
def test_the_test_command_exists_and_runs_the_suite() -> None:
    shell, script = TESTS.split()
    assert shell == "bash"
    assert "-m pytest" in (ROOT / script).read_text()


@pytest.mark.source
def test_the_oldest_python_is_the_one_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in PROSE


# -- tables ----------------------------------------------------------------------------------------


def test_every_status_is_explained_once() -> None:
    named = [row[0] for row in rows(section("### How a candidate ends"))[1:]]
    assert sorted(named) == sorted(f"`{status}`" for status in Status)


def test_every_stop_reason_is_explained_once() -> None:
    told = {row[0].strip("`"): row[-1] for row in rows(section("### How a run ends"))[1:]}
    assert len(told) == len(rows(section("### How a run ends"))) - 1
    assert told.keys() == set(get_args(StopReason))
    assert {reason for reason, partial in told.items() if partial == "yes"} == CUT_SHORT


@pytest.mark.parametrize(
    ("heading", "kinds"),
    [
        ("### Stopping early", {"StopRule"}),
        ("### Votes, and other ways to choose", {"InPlace", "Asks"}),
    ],
)
def test_every_rule_and_selector_is_explained_once(heading: str, kinds: set[str]) -> None:
    made = [
        name
        for name, each in vars(hortator).items()
        if inspect.isfunction(each) and each.__annotations__.get("return") in kinds
    ]
    named = [re.match(r"`(\w+)\(", row[0]) for row in rows(section(heading))[1:]]
    assert sorted(each[1] for each in named if each) == sorted(made)
    assert len(made) > 5


def test_the_tables_are_whole() -> None:
    for table in re.split(r"\n\n", PROSE):
        lines = rows(table)
        assert len({len(row) for row in lines}) <= 1, f"rows of different lengths in:\n{table}"
        assert all(all(row) for row in lines), f"an empty cell in:\n{table}"


def test_the_figures_stand_between_their_marks() -> None:
    before, opening, rest = PROSE.partition("<!-- bench -->")
    figures, closing, after = rest.partition("<!-- /bench -->")
    assert opening, "the mark <!-- bench --> is missing"
    assert closing, "the mark <!-- /bench --> is missing"
    assert "bench -->" not in before + after
    assert any(re.search(r"\d\.\d", cell) for row in rows(figures) for cell in row)


# -- names -----------------------------------------------------------------------------------------


def test_the_flags_exist() -> None:
    known = {"--help"}
    for command in typer.main.get_command(app).commands.values():
        known.update(flag for each in command.params for flag in each.opts)
    named = {
        flag
        for text in (*INLINE, RUN)
        for flag in re.findall(r"(?<!\S)--?[a-z]+(?:-[a-z]+)*", text)
    }
    assert named - known - {"-c"} == set()  # -c is Python's
    assert len(named) > 5


def test_the_members_exist() -> None:
    owners = {"ctx": CandidateContext, "handle": RunHandle, "runtime": Runtime, "result": RunResult}
    named = {
        pair
        for text in INLINE
        for pair in re.findall(r"\b(ctx|handle|runtime|result)\.(\w+)", text)
    }
    assert [f"{owner}.{name}" for owner, name in named if not hasattr(owners[owner], name)] == []
    assert {owner for owner, _ in named} == owners.keys()


def test_the_arguments_exist() -> None:
    rules = (hortator.adaptive_consistency, hortator.successive_halving, hortator.weighted_vote)
    takers = (BestOfN, Score, hortator.BatchScorer, hortator.open_runtime, Runtime.run, *rules)
    known = {name for taker in takers for name in inspect.signature(taker).parameters}
    named = {name for text in INLINE for name in re.findall(r"\b([a-z_]+)=", text)}
    assert named - known - {"detached"} == set()  # the last is a field of a record
    assert len(named) > 5


def test_the_classes_and_functions_exist() -> None:
    places = (hortator, errors, process, trio, builtins)
    named = {name for text in INLINE for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", text)}
    called = {name for text in INLINE for name in re.findall(r"(?<![.\w])([a-z]\w+)\(", text)}
    known = {"run", "result", *dir(RunHandle), "generate", "score", "build"}
    missing = [
        name for name in named | (called - known) if not any(hasattr(each, name) for each in places)
    ]
    assert missing == []
    assert {"NoEligibleCandidate", "InvalidJob"} <= named


def test_the_defaults_are_right() -> None:
    defaults = {
        name: each.default
        for name, each in inspect.signature(hortator.open_runtime).parameters.items()
    }
    assert f"past its stop: {defaults['grace']} s," in PROSE
    assert f"({defaults['threads']} of them for a runtime" in PROSE
    assert f"(watchdog=…)` says: {defaults['watchdog']} s," in PROSE
    assert f"first {WORK_SHARE:.0%} are for work".replace("%", " %") in PROSE
    selecting = WORK_SHARE + (1 - WORK_SHARE) / 2
    assert f"until {selecting:.0%} of the grace".replace("%", " %") in PROSE
    assert f"more than {defaults['grace'] / PER_CANDIDATE:,.0f} candidates in flight" in PROSE
    assert f"it grows by {1000 * PER_CANDIDATE:g} ms for each" in PROSE
    assert MARGIN_SHARE == 0.1, "the README speaks of a tenth of the time left"


@pytest.mark.parametrize("rule", [hortator.adaptive_consistency, hortator.successive_halving])
def test_the_defaults_of_rules_are_right(rule: Callable[..., Any]) -> None:
    defaults = {name: each.default for name, each in inspect.signature(rule).parameters.items()}
    written = re.search(rf"`{rule.__name__}\((\w+)=([\d.]+)\)`", PROSE)
    assert written
    assert defaults[written[1]] == float(written[2])


def test_so_many_votes_are_enough() -> None:
    shown = re.findall(r"(\d+) (?:votes )?to (\d+)", section("### Stopping early"))
    pairs = [(int(leader), int(runner_up)) for leader, runner_up in shown]
    assert pairs == [(4, 0), (6, 1), (8, 2)]
    for leader, runner_up in pairs:
        assert stability(leader, runner_up) >= 0.95 > stability(leader - 1, runner_up)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.source
def test_the_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", PROSE)
    inside = [target for target in targets if not target.startswith("https://")]
    assert [target for target in inside if not (ROOT / target).exists()] == []
    assert len(inside) >= 4


@pytest.mark.source
def test_the_files_exist() -> None:
    layout = BLOCKS[-1][1]
    assert layout.startswith("hortator/protocols ")
    named = [name for line in layout.splitlines() for name in re.split(r"  +", line)[0].split(", ")]
    assert [name for name in named if not (ROOT / name).exists()] == []
    spoken_of = [name for name in INLINE if re.fullmatch(r"[\w./]+/\w+\.py", name)]
    places = (ROOT, ROOT / "hortator")
    assert [name for name in spoken_of if not any((each / name).exists() for each in places)] == []
    assert spoken_of


@pytest.mark.source
@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_what_a_page_tells_to_run_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    scripts = re.findall(r"\.ci/\w+", text)
    modules = [f"{name.replace('.', '/')}.py" for name in re.findall(r"-m (tests\.[\w.]+)", text)]
    assert [name for name in [*scripts, *modules] if not (ROOT / name).is_file()] == []
    assert scripts


@pytest.mark.source
def test_the_drawing_of_a_lease_names_what_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    stops = re.findall(r"((?:actors|protocols)/\w+\.py) {2,}(\S.*)$", text, re.MULTILINE)
    missing = [
        (file, name)
        for file, names in stops
        for name in re.split(r"[.,] ?", names)
        if not re.search(rf"^ *(?:async )?(?:def|class) {name}\b", read(file), re.MULTILINE)
    ]
    assert missing == []
    assert len(stops) > 30


def read(file: str) -> str:
    return (ROOT / "hortator" / file).read_text(encoding="utf-8")
