"""Many requests in one call: every line is answered once, whatever ends a call and whenever.

Real processes. What has to happen at the same time meets in a folder, so nothing is timed.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from hortator import read_events
from hortator.protocols.errors import InvalidJob
from hortator.protocols.joblines import read_answers, read_requests
from tests.shell import Shell, line_with, rest

ECHO = ["--generate", "cat", "--vote", "-n", "1"]
"""The answer to a line is the line."""


def answers(text: bytes) -> dict[Any, Any]:
    """The answers by id; each id once."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert len({line["id"] for line in lines}) == len(lines), "answered twice"
    return {line["id"]: line for line in lines}


def test_a_thousand_lines_killed_in_the_middle_and_resumed(shell: Shell, tmp_path: Path) -> None:
    lines, out = tmp_path / "lines.txt", tmp_path / "out.jsonl"
    lines.write_text("".join(f"line {number}\n" for number in range(1, 1001)))
    arguments = ["run", *ECHO, "--jobs-from", str(lines), "--jobs", "4", "--out", str(out)]
    for number, signum in ((150, signal.SIGKILL), (400, signal.SIGINT), (650, signal.SIGTERM)):
        child = shell.start(*arguments)
        line_with(child.stderr, b"%d/1000 " % number)
        child.send_signal(signum)
        done = rest(child)
        assert done.code == (-signum if signum == signal.SIGKILL else 128 + signum)
        assert done.output == b""
        assert number <= len(read_answers(out.read_bytes())[0]) < 1000
    torn = out.read_bytes()[:-5]
    out.write_bytes(torn)
    done = shell(*arguments)
    assert done.code == 0
    assert "answered already; 4 at a time" in done.told
    found = answers(out.read_bytes())
    assert {number: each["output"] for number, each in found.items()} == {
        number: f"line {number}" for number in range(1, 1001)
    }
    before = out.read_bytes()
    done = shell(*arguments)
    assert (done.code, out.read_bytes()) == (0, before)
    assert "1000 requests, 1000 of them answered already;" in done.told


def test_what_a_signal_cuts_is_asked_again(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["--generate", "sh -c 'read x; sleep $x; echo $x'", "--vote", "-n", "1"]
    (tmp_path / "lines").write_text("0\n60\n0\n60\n")
    arguments += ["--jobs-from", str(tmp_path / "lines"), "--jobs", "2", "--out", str(out)]
    child = shell.start("run", *arguments)
    line_with(child.stderr, b"2/4 ")
    child.send_signal(signal.SIGINT)
    done = rest(child)
    assert done.code == 130
    assert set(answers(out.read_bytes())) == {1, 3}
    assert "answered: 2, nothing eligible: 0, not answered: 2 (again with" in done.told
    assert shell.living() == []


def test_the_second_signal_kills_at_once(shell: Shell) -> None:
    stubborn = "sh -c 'trap \"\" TERM; echo up >&2; while :; do sleep 60; done'"
    arguments = ["--generate", stubborn, "--vote", "-n", "1", "--jobs-from", "-", "--jobs", "2"]
    child = shell.start("run", *arguments, stdin=-1)
    assert child.stdin is not None
    child.stdin.write(b"a\nb\n")
    child.stdin.close()
    line_with(child.stderr, b"2 requests; 2 at a time")
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGTERM)
    assert rest(child).code in (130, 143)
    assert shell.living() == []


def meeting(folder: Path, count: int) -> str:
    """A command that ends once so many of it are there."""
    wait = f"until [ $(ls {folder} | wc -l) -ge {count} ]; do sleep 0.01; done"
    return f"sh -c 'read x; touch {folder}/$x; {wait}; echo $x'"


def test_so_many_at_a_time_and_no_more(shell: Shell, tmp_path: Path) -> None:
    feed, arguments = b"a\nb\nc\n", ["--vote", "-n", "1", "--jobs-from", "-"]
    script = meeting(tmp_path, 3)
    done = shell(
        "run", "--generate", script, *arguments, "--jobs", "2", "--timeout", "0.5", feed=feed
    )
    # Two of them wait for a third in vain, and then it is there.
    assert [each["output"] for each in answers(done.output).values()] == [None, None, "c\n"]
    assert done.code == 1
    for each in tmp_path.iterdir():
        each.unlink()
    done = shell("run", "--generate", script, *arguments, "--jobs", "3", feed=feed)
    assert done.code == 0
    assert {each["output"] for each in answers(done.output).values()} == {"a\n", "b\n", "c\n"}


def test_requests_with_ids(shell: Shell) -> None:
    feed = b'plain\n{"id": "b", "request": "two\\nlines"}\n\r\n{"id": 7, "request": ""}\n\xff'
    done = shell("run", *ECHO, "--jobs-from", "-", feed=feed)
    found = answers(done.output)
    assert {key: each["output"] for key, each in found.items()} == {
        1: "plain",
        "b": "two\nlines",
        7: "",
        5: "/w==",
    }
    assert found[5]["output_is_base64"] is True
    assert found[1]["selected"] == 0
    assert found[1]["stop_reason"] == "completed"


def test_a_request_that_nobody_answers_is_done_too(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    script = "sh -c 'read x; test $x = good && echo $x'"
    arguments = ["--generate", script, "--score", "wc -c", "-n", "2", "--out", str(out)]
    feed = b"good\nbad\n"
    done = shell("run", *arguments, "--jobs-from", "-", feed=feed)
    assert done.code == 1
    found = answers(out.read_bytes())
    assert (found[1]["output"], found[1]["score"]) == ("good\n", 5.0)
    assert (found[2]["output"], found[2]["stop_reason"]) == (None, "no_eligible")
    assert "2/2  2: nothing eligible: exit code 1\n" in done.told
    assert shell("run", *arguments, "--jobs-from", "-", feed=feed).code == 0


def test_the_seed_repeats_each_answer(shell: Shell) -> None:
    arguments = ["run", "--generate", "echo {seed}", "--vote", "-n", "1", "--jobs-from", "-"]
    first = answers(shell(*arguments, "--seed", "1", feed=b"a\nb\n").output)
    again = answers(shell(*arguments, "--seed", "1", feed=b"\nb\n").output)
    assert again[2]["output"] == first[2]["output"] != first[1]["output"]


def test_reports_and_events_of_all(shell: Shell, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    arguments = [*ECHO, "--jobs-from", "-", "--json", "--events", str(events)]
    found = answers(shell("run", *arguments, feed=b"a\nb\n").output)
    assert found[2]["report"]["candidates"][0]["output"] == "b"
    runs = {event.run_id for event in read_events(events)}
    assert runs == {each["report"]["run_id"] for each in found.values()}


def test_nothing_asked(shell: Shell) -> None:
    done = shell("run", *ECHO, "--jobs-from", "-", feed=b"\n \n")
    assert (done.code, done.output) == (0, b"")


def test_a_file_that_holds_something_else_is_left_alone(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "notes.txt"
    out.write_text("my notes\nand more")
    done = shell("run", *ECHO, "--jobs-from", "-", "--out", str(out), feed=b"a\n")
    assert done.code == 2
    assert f"--out {out}: line 1 is no answer of an earlier call" in done.told
    assert out.read_text() == "my notes\nand more"


def test_two_calls_do_not_share_a_file(shell: Shell, tmp_path: Path) -> None:
    out = str(tmp_path / "out.jsonl")
    (tmp_path / "lines").write_text("a\n")
    arguments = ["--vote", "-n", "1", "--jobs-from", str(tmp_path / "lines"), "--out", out]
    first = shell.start("run", "--generate", "sleep 60", *arguments)
    line_with(first.stderr, b"1 requests")
    done = shell("run", "--generate", "cat", *arguments)
    assert done.code == 2
    assert "another call is adding to it" in done.told
    first.send_signal(signal.SIGINT)
    assert rest(first).code == 130


def test_answers_that_cannot_be_written_end_the_call(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a\n" * 40)
    with open("/dev/full", "wb") as full:
        child = shell.start(
            "run", *ECHO, "--jobs-from", str(tmp_path / "lines"), stdout=full, stderr=-1
        )
    assert child.stderr is not None
    told = child.stderr.read().decode()
    assert child.wait(30) == 1
    assert told.count("could not be written") == 1
    assert "Traceback" not in told


# Lines


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a\n{", "line 2: Invalid JSON"),
        (b'{"id": 1}', "line 1: request: Field required"),
        (b'{"id": 1.5, "request": ""}', "line 1: id: Input should be a valid integer"),
        (b'{"id": 1, "request": "", "n": 4}', "line 1: n: Extra inputs are not permitted"),
        (b'a\n\n{"id": 1, "request": ""}', "line 3: the id 1 is that of line 1 already"),
        (b'{"id": "1", "request": ""}\n{"id": 1, "request": ""}', "line 2: the id 1 is that of"),
    ],
)
def test_a_line_that_is_no_request(text: bytes, says: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        read_requests(text)
    assert str(raised.value).startswith(says)


def test_a_bad_line_is_told_before_anything_starts(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    done = shell("run", *ECHO, "--jobs-from", "-", "--out", str(out), feed=b"a\n{\n")
    assert (done.code, done.output) == (2, b"")
    assert "Error: --jobs-from, line 2: Invalid JSON" in done.told
    assert not out.exists()
