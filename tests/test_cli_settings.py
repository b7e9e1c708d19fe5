"""Where commands of the command line run, and what is kept of it. Real processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from hortator import read_events
from tests.shell import Shell, line_with, rest

ONE = ["--vote", "-n", "1"]


def test_the_environment_of_the_commands(shell: Shell) -> None:
    arguments = ["--env", "A=1", "--env", "B=x=y", "--env", "C=", "--env", "A=2"]
    script = 'sh -c "echo $A,$B,$C,$TEST_MARK"'
    done = shell("run", "--generate", script, *ONE, *arguments)
    assert (done.code, done.output) == (0, f"2,x=y,,{shell.mark}\n".encode())
    # The scorer's is the same, and so is what a run is found by.
    done = shell("run", "--generate", "echo", "--score", 'sh -c "echo $A"', "-n", "1", *arguments)
    assert "\nbest: #0, scored 2\n" in done.told


def test_the_folder_of_the_commands(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "rate").write_text("#!/bin/sh\npwd >&2; echo 4\n")
    (tmp_path / "rate").chmod(0o755)
    arguments = ["--generate", "pwd", "--score", "./rate", "-n", "1", "--cwd", str(tmp_path)]
    done = shell("run", *arguments)
    assert (done.code, done.output) == (0, f"{os.path.realpath(tmp_path)}\n".encode())
    assert "\nbest: #0, scored 4\n" in done.told


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--help"], ["--help"]])
def test_what_is_asked_of_it_is_told_on_stdout(shell: Shell, arguments: list[str]) -> None:
    done = shell(*arguments)
    assert (done.code, done.told) == (0, "")
    assert done.output.lower().startswith((b"hortator", b"usage: hortator"))


def test_events_are_written_as_they_happen(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("what was there\n")
    arguments = ["--generate", "sh -c 'test {index} = 1 && exec sleep 60; echo {index}'"]
    child = shell.start("run", *arguments, "--vote", "-n", "2", "--events", str(path), "--json")
    line_with(child.stderr, b"generated")
    child.send_signal(signal.SIGINT)
    done = rest(child)
    events = read_events(path)
    assert [event.sequence for event in events] == list(range(len(events)))
    assert events[-1].terminal
    assert events[-1].run_id == json.loads(done.output)["run_id"]


def test_what_was_seen_is_there_after_a_kill(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    child = shell.start("run", "--generate", "sleep 60", *ONE, "--events", str(path))
    line_with(child.stderr, b"started")
    child.kill()
    rest(child)
    assert [event.kind for event in read_events(path)][:2] == ["started", "leased"]


def test_events_that_cannot_be_written(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "none" / "events.jsonl"
    done = shell("run", "--generate", "echo", *ONE, "--events", str(path))
    assert (done.code, done.output) == (2, b"")
    assert done.told.count("Error: ") == 1
    assert f"--events {path}: it cannot be written to: No such file" in done.told
    done = shell("run", "--generate", "echo", *ONE, "--events", "/dev/full")
    assert (done.code, done.output) == (0, b"\n")
    assert "hortator: /dev/full is not whole: No space left on device\n" in done.told
    assert "Traceback" not in done.told
