"""Votes and stopping rules of the command line. Real processes; no test depends on how fast."""

from __future__ import annotations

import json
import re

import pytest

from hortator.protocols.ballot import Ballot, NoVote
from tests.shell import Shell

# Candidate i prints element i: with white space around it, since that is no part of a vote.
ANSWERS = "sh -c 'set -- a b c b; shift {index}; printf \" $1\\n\"'"


def test_what_most_outputs_agree_on_comes_out_as_it_was_printed(shell: Shell) -> None:
    done = shell("run", "--generate", ANSWERS, "--vote", "-n", "4")
    assert (done.code, done.output) == (0, b" b\n")
    assert "\nbest: #1, 2 of 4 votes for 'b'\n" in done.told
    assert len(re.findall(r"#\d +generated\n", done.told)) == 4


def test_scores_break_the_ties_of_a_vote(shell: Shell) -> None:
    script = "sh -c 'echo {index}; echo answer: $(({index} % 2))'"
    arguments = ["--generate", script, "--vote-by", "^answer: (.*)$", "--score", "head -n 1"]
    done = shell("run", *arguments, "-n", "4")
    assert (done.code, done.output) == (0, b"3\nanswer: 1\n")
    assert "\nbest: #3, 2 of 4 votes for '1', scored 3\n" in done.told
    done = shell("run", *arguments, "-n", "4", "--minimize")
    assert done.output == b"0\nanswer: 0\n"


def test_an_output_without_a_match_votes_for_nothing(shell: Shell) -> None:
    script = "sh -c 'test {index} = 2 && echo answer: 7 || echo I do not know'"
    done = shell("run", "--generate", script, "--vote-by", "answer: [0-9]+", "-n", "4", "--json")
    assert done.code == 0
    report = json.loads(done.output)
    assert (report["selected"], report["output"]) == (2, "answer: 7\n")
    silent = report["candidates"][0]
    assert silent["status"] == "generation_failed"
    assert silent["output"] == "I do not know\n"
    assert silent["error"]["type"] == "NoVote"
    assert "no vote: 'answer: [0-9]+' is not found in I do not know" in done.told


def test_nobody_votes(shell: Shell) -> None:
    done = shell("run", "--generate", "echo no", "--vote-by", "yes", "-n", "2")
    assert (done.code, done.output) == (1, b"")
    assert "best: none" in done.told


@pytest.mark.parametrize(
    ("rule", "reason", "at_least"),
    [
        ("decided", "vote_decided", 6),
        ("consistent", "consistency", 4),
        ("consistent:0.6", "consistency", 1),
    ],
)
def test_a_vote_that_is_decided_ends_the_run(
    shell: Shell, rule: str, reason: str, at_least: int
) -> None:
    arguments = ["--generate", "echo yes", "--vote", "-n", "10", "--concurrency", "1"]
    done = shell("run", *arguments, "--stop", rule, "--json")
    assert done.code == 0
    report = json.loads(done.output)
    assert report["stop_reason"] == reason
    ended = [each for each in report["candidates"] if each["status"] == "eligible"]
    assert at_least <= len(ended) < 10


def test_the_first_that_is_accepted_ends_the_run(shell: Shell) -> None:
    answer = '"{\\"score\\": $x, \\"accepted\\": $y}"'
    judge = f"sh -c 'read x; test $x = 2 && y=true || y=false; echo {answer}'"
    arguments = ["--generate", "echo {index}", "--score", judge, "-n", "40", "--concurrency", "1"]
    done = shell("run", *arguments, "--stop", "first")
    assert (done.code, done.output) == (0, b"2\n")
    assert "ended: first_accepted," in done.told


def test_a_target_is_a_rule_too(shell: Shell) -> None:
    arguments = ["--generate", "echo {index}", "--score", "cat", "-n", "40", "--concurrency", "1"]
    done = shell("run", *arguments, "--stop", "target:2")
    assert done.code == 0
    assert int(done.output) >= 2
    assert "ended: target," in done.told


# What an output votes for


@pytest.mark.parametrize(
    ("expression", "output", "vote"),
    [
        ("[0-9]+", b"a 12 b 34", "12"),
        ("x=([0-9]+)", b"x=5", "5"),
        ("x=(.*)|y=(.*)", b"y= 6 ", "6"),
        ("(x)?y", b"y", None),
        ("^a$", b"b\na\nc", "a"),
        ("z", b"", None),
        ("()", b"any", ""),
        (".", b"\xff", "\udcff"),
    ],
)
def test_the_vote_by_an_expression(expression: str, output: bytes, vote: str | None) -> None:
    assert Ballot.parse(expression).vote(output) == vote


def test_what_is_not_found_is_told_on_one_line() -> None:
    with pytest.raises(NoVote, match=r"no vote: 'a\\\\nb' is not found in nothing$"):
        Ballot.parse("a\nb").checked(b" \n")
    assert Ballot().checked(b"") == b""
