"""The examples do what the docstring at their top says.

* Each is a process of its own with a limit, started from the root by the very command that its
  docstring shows. Warnings are errors, and nothing may be written to standard error.
* What it prints is compared with what the docstring shows, line by line. Where candidates really
  run at the same time, their lines may stand in any order.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"

PROGRAMS = sorted([*FOLDER.glob("*.py"), *FOLDER.glob("*/main.py")])
IN_ANY_ORDER = {"live_observer.py"}

LIMIT = 30
"""Seconds for one program. Each takes three at the most, the imports included."""

MOST_LINES = 70


def blocks(program: Path) -> list[str]:
    """The indented paragraphs of a docstring: first a command, last what it prints."""
    text = ast.get_docstring(ast.parse(program.read_text(encoding="utf-8")))
    assert text, f"{program.name} has no docstring"
    indented = re.findall(r"^(?: {4}.*\n?)+", text, re.MULTILINE)
    return [textwrap.dedent(block) for block in indented]


def command_of(program: Path) -> list[str]:
    """The command that a docstring shows, for this interpreter."""
    name, *words = shlex.split(blocks(program)[0])
    assert name == "python"
    assert [ROOT / word for word in words] == [program]
    return [sys.executable, "-u", "-W", "error", *words]


def test_all_of_them_are_known() -> None:
    assert [str(program.relative_to(FOLDER)) for program in PROGRAMS] == [
        "early_stop.py",
        "live_observer.py",
        "nested.py",
        "outer_deadline.py",
        "own_actors/main.py",
        "shared_budget.py",
        "uncooperative.py",
        "voting.py",
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_it_is_short_and_can_be_read(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    shown = ast.get_docstring(ast.parse(text)) or ""
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_it_prints_what_its_docstring_shows(program: Path) -> None:
    done = subprocess.run(
        command_of(program),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    printed, shown = done.stdout.splitlines(), blocks(program)[-1].splitlines()
    assert len(shown) > 1
    if program.name in IN_ANY_ORDER:
        printed, shown = sorted(printed), sorted(shown)
    assert printed == shown
