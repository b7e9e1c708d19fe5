"""What commands report of their usage, and the limits of a run. Real processes.

No report is left behind: every test looks for its file.
"""

from __future__ import annotations

import json
import re
import signal
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hortator.protocols.command import beyond
from hortator.protocols.interfaces import Remaining
from hortator.protocols.reported import read_usage
from hortator.protocols.usage import Usage, fault
from tests.shell import Shell, line_with, rest


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    assert list(tmp_path.iterdir()) == []


def reporting(report: str, then: str = "echo {index}") -> str:
    """A command that reports and then does something else; no single quotes in either."""
    escaped = report.replace('"', '\\"')
    return f'sh -c \'printf "{escaped}" >>"$HORTATOR_USAGE"; {then}\''


def report_of(shell: Shell, *arguments: str) -> Any:
    return json.loads(shell("run", *arguments, "--json").output)


def test_what_commands_report_is_added_up(shell: Shell) -> None:
    twice = reporting(r'{"model_calls": 1, "cost": "0.1"}\n{"input_tokens": 7, "cost": 0.2}\n')
    judge = reporting('{"tool_calls": 1}', "cat")
    report = report_of(shell, "--generate", twice, "--score", judge, "-n", "3")
    charged = report["usage"]["charged"]
    assert (charged["model_calls"], charged["tool_calls"], charged["total_tokens"]) == (3, 3, 21)
    assert Decimal(charged["cost"]) == Decimal("0.9")
    assert report["usage"]["reported"] == charged
    assert report["candidates"][0]["scoring"]["tool_calls"] == 1


def test_the_account_tells_the_usage(shell: Shell) -> None:
    done = shell("run", "--generate", reporting('{"model_calls": 2}'), "--vote", "-n", "2")
    assert "\nusage: 4 model calls\n" in done.told


@pytest.mark.parametrize("then", ["exit 3", "exec yes"])
def test_whoever_fails_is_charged_too(shell: Shell, then: str) -> None:
    script = reporting('{"model_calls": 2}', then)
    report = report_of(shell, "--generate", script, "--vote", "-n", "2", "--max-output", "999")
    assert [each["status"] for each in report["candidates"]] == ["generation_failed"] * 2
    assert report["usage"]["charged"]["model_calls"] == 4


def test_whoever_is_killed_is_charged_what_it_had_reported(shell: Shell) -> None:
    arguments = ["--generate", reporting('{"model_calls": 3}', "sleep 60"), "--vote", "-n", "2"]
    child = shell.start("run", *arguments, "--json", "--concurrency", "2", "--timeout", "1")
    done = rest(child)
    report = json.loads(done.output)
    assert [each["status"] for each in report["candidates"]] == ["timed_out"] * 2
    assert report["usage"]["charged"]["model_calls"] == 6


def test_the_second_signal_leaves_no_report(shell: Shell) -> None:
    arguments = ["--generate", "sh -c 'trap \"\" TERM; while :; do sleep 60; done'"]
    child = shell.start("run", *arguments, "--vote", "-n", "1")
    line_with(child.stderr, b"started")
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGTERM)
    assert rest(child).code in (130, 143)
    assert shell.living() == []


def test_a_limit_of_calls_refuses_what_cannot_be_paid(shell: Shell) -> None:
    done = shell("run", "--generate", "echo", "--vote", "-n", "4", "--max-calls", "3")
    assert (done.code, done.output) == (2, b"")
    assert "4 candidates at an estimated 1 model_calls each" in done.told


def test_more_than_the_estimate_is_reserved_while_there_is_room(shell: Shell) -> None:
    arguments = ["--vote", "-n", "4", "--concurrency", "1", "--max-calls", "6"]
    report = report_of(shell, "--generate", reporting('{"model_calls": 2}'), *arguments)
    assert [each["status"] for each in report["candidates"]] == [
        "eligible",
        "eligible",
        "eligible",
        "budget_exceeded",
    ]
    assert report["usage"]["charged"]["model_calls"] == 6


def test_money(shell: Shell) -> None:
    arguments = ["--vote", "-n", "4", "--concurrency", "1", "--max-cost", "1"]
    spender = reporting('{"cost": "0.5"}')
    report = report_of(shell, "--generate", spender, *arguments, "--estimate-cost", "0.25")
    statuses = [each["status"] for each in report["candidates"]]
    assert statuses == ["eligible", "eligible", "budget_exceeded", "budget_exceeded"]
    assert Decimal(report["usage"]["charged"]["cost"]) == 1


def test_who_reports_nothing_is_charged_the_estimate(shell: Shell) -> None:
    arguments = ["--generate", "echo", "--vote", "-n", "2", "--max-calls", "9"]
    report = report_of(shell, *arguments, "--estimate-calls", "3")
    assert report["usage"]["charged"]["model_calls"] == 6
    assert report["usage"]["estimated"] == 2


@pytest.mark.parametrize(
    "report",
    ["one call", '{"model_calls": -1}', '{"calls": 1}', '{"model_calls": 1', r"\000"],
)
def test_a_malformed_report_is_put_aside_and_the_estimate_charged(
    shell: Shell, report: str
) -> None:
    arguments = ["--vote", "-n", "2", "--max-calls", "2"]
    done = shell("run", "--generate", reporting(report), *arguments, "--json")
    account = json.loads(done.output)
    assert done.code == 0
    assert account["usage"]["charged"]["model_calls"] == 2
    assert account["usage"]["reported"]["model_calls"] == 0
    assert sorted(each["candidate"] for each in account["usage"]["malformed"]) == [0, 1]
    assert re.search(r"\nnot counted, so the estimate was charged: #0, line 1 of its", done.told)
    assert "Traceback" not in done.told


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ('rm "$HORTATOR_USAGE"; mkfifo "$HORTATOR_USAGE"', "no longer a file"),
        ('head -c 70000 /dev/zero >"$HORTATOR_USAGE"', "longer than 65,536 bytes"),
        ('rm "$HORTATOR_USAGE"', ""),
    ],
)
def test_whatever_becomes_of_the_file(shell: Shell, then: str, why: str) -> None:
    done = shell("run", "--generate", reporting("", f"{then}; echo yes"), "--vote", "-n", "1")
    assert (done.code, done.output) == (0, b"yes\n")
    assert (why in done.told) if why else ("not counted" not in done.told)


# Reading a report


def test_nothing_reported_is_no_report() -> None:
    assert read_usage(b"") is None
    assert read_usage(b" \n\n") is None
    assert read_usage(b"{}") == Usage()


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"1",
        b'{"model_calls": 1.5}',
        b'{"model_calls": true}',
        b'{"model_calls": "1"}',
        b'{"cost": "much"}',
        b'{"cost": "NaN"}',
        b'{"cost": -0.1}',
        b'{"cost": 1e99}',
        b'{"model_calls": 99999999999999999999}',
        b"\xff",
    ],
)
def test_a_report_that_cannot_be_read_or_true_is_a_fault(line: bytes) -> None:
    read = read_usage(b'{"model_calls": 1}\n' + line)
    why = fault(read)
    assert why is not None
    assert why.startswith("line 2 of its usage report: ")
    assert len(why) < 300


def test_what_goes_beyond_a_lease() -> None:
    left = Remaining(seconds=None, model_calls=1, cost=Decimal("0.5"))
    assert beyond(Usage(model_calls=1, cost="0.5", tool_calls=9), left) is None
    assert beyond(Usage(model_calls=4, cost="0.75"), left) == Usage(model_calls=3, cost="0.25")
    assert beyond(Usage(model_calls=-4), left) is None
