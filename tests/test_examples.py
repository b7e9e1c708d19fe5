"""The examples do what the docstring at their top says.

* Each is a process of its own with a limit, started from the root by the very command that its
  docstring shows. Warnings are errors, and nothing may be written to standard error.
* What it prints is compared with what the docstring shows, line by line. Where candidates really
  run at the same time, their lines may stand in any order.
* The web app is a real server on the loopback, and its client a plain socket.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
WEB_APP = FOLDER / "web_app.py"

PROGRAMS = sorted([*FOLDER.glob("*.py"), *FOLDER.glob("*/main.py")])
PRINTING = [program for program in PROGRAMS if program != WEB_APP]
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
        "web_app.py",
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_it_is_short_and_can_be_read(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    shown = ast.get_docstring(ast.parse(text)) or ""
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("program", PRINTING, ids=lambda program: program.stem)
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


# -- the web app -----------------------------------------------------------------------------------


class Server:
    """The web app in a process of its own, which is killed at the limit: no read waits for ever.

    Attributes:
        process: it.
        port: where it listens.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout
        assert process.stderr
        self._out, self._err = process.stdout, process.stderr
        where = self._err.readline()
        found = re.search(r"Running on http://127\.0\.0\.1:(\d+) ", where)
        assert found, where + self._err.read()
        self.port = int(found[1])

    def lines(self, count: int) -> list[str]:
        """The next lines that it prints, sorted: candidates are started and end in any order."""
        lines = [self._out.readline() for _ in range(count)]
        assert all(lines), f"the server has ended: {self.errors()}"
        return sorted(line.rstrip() for line in lines)

    def errors(self) -> str:
        """What it has written to standard error; it has to have ended."""
        return self._err.read()


@pytest.fixture
def server() -> Iterator[Server]:
    with subprocess.Popen(
        [*command_of(WEB_APP), "0"],  # any port that is free
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        limit = threading.Timer(LIMIT, process.kill)
        limit.start()
        try:
            yield Server(process)
        finally:
            limit.cancel()
            process.kill()


def shown_query() -> str:
    """The path and query of the request that its docstring shows."""
    tool, address = shlex.split(blocks(WEB_APP)[1])
    assert tool == "curl"
    return address.removeprefix("http://127.0.0.1:8000")


def test_a_client_that_stays_is_answered(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}{shown_query()}"
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        body = answer.read().decode()
    assert f"gets `{body.strip()}`" in WEB_APP.read_text(encoding="utf-8")
    assert json.loads(body)["output"]
    assert Counter(line.split()[-1] for line in server.lines(6)) == {"started": 3, "eligible": 3}


def test_the_run_of_a_client_that_goes_away_is_cancelled(server: Server) -> None:
    path = re.sub(r"seconds=\d+", "seconds=25", shown_query())
    with socket.create_connection(("127.0.0.1", server.port), timeout=LIMIT) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert server.lines(3) == [f"run-1 #{index} started" for index in range(3)]
    left = time.monotonic()
    assert server.lines(3) == [f"run-1 #{index} cancelled" for index in range(3)]
    assert time.monotonic() - left < 10, "it was not the client's leaving that ended them"

    with urllib.request.urlopen(  # the server goes on
        f"http://127.0.0.1:{server.port}{path.replace('25', '0')}", timeout=LIMIT
    ) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_in_order(server: Server, number: signal.Signals) -> None:
    server.process.send_signal(number)
    assert server.process.wait(timeout=LIMIT) == 0
    assert server.errors() == ""
