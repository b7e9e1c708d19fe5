"""The command line, as a person meets it: real processes, real signals, real pipes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hortator.actors.cli import main
from hortator.protocols.brief import brief, number
from hortator.protocols.command import CommandFailed
from tests.shell import LIMIT, Shell, finish, line_with, rest

GRACE = 0.25


# What comes out


def test_the_best_output_goes_to_stdout_and_all_else_to_stderr(shell: Shell) -> None:
    done = shell("run", "--generate", "echo {index}", "--score", "cat", "-n", "4")
    assert (done.code, done.output) == (0, b"3\n")
    for index in range(4):
        assert re.search(rf"\d s  #{index} +started\n", done.told)
        assert re.search(rf"\d s  #{index} +generated\n", done.told)
        assert re.search(rf"\d s  #{index} +scored {index}", done.told)
        assert re.search(rf"\n *{index}  eligible +{index} ", done.told)
    assert "4 candidates: 4 eligible\n" in done.told
    assert re.search(r"\nended: completed, after \d\.\d\d s\n", done.told)
    assert "\nbest: #3, scored 3\n" in done.told
    assert shell.living() == []


def test_it_begins_with_the_plan(shell: Shell) -> None:
    arguments = ["--generate", "echo", "--score", "wc -c", "--concurrency", "2"]
    done = shell("run", *arguments, "-n", "3", "--timeout", "2.5")
    assert done.told.startswith("3 candidates, 2 at a time, at most 2.5 s; ")
    done = shell("run", *arguments, "-n", "1")
    assert done.told.startswith("1 candidate, 1 at a time, no time limit; ")


def test_minimize(shell: Shell) -> None:
    done = shell("run", "--generate", "echo {index}", "--score", "cat", "-n", "3", "--minimize")
    assert (done.code, done.output) == (0, b"0\n")


def test_a_target_ends_the_run(shell: Shell) -> None:
    # The others begin while a score is waited for, so it is not known how many.
    arguments = ["--generate", "echo {index}", "--score", "cat", "-n", "40", "--concurrency", "1"]
    done = shell("run", *arguments, "--target", "2")
    assert done.code == 0
    assert int(done.output) >= 2
    assert "ended: target," in done.told
    assert re.search(r"\n\d+-39 +skipped\n", done.told)
    assert re.search(r"\n40 candidates: .*, \d+ skipped\n", done.told)


def test_the_winners_bytes_come_out_as_they_are(shell: Shell) -> None:
    done = shell("run", "--generate", r"printf '\377\000\r\nx'", "--score", "wc -c", "-n", "1")
    assert (done.code, done.output) == (0, b"\xff\x00\r\nx")


@pytest.mark.parametrize(
    ("arguments", "feed", "request_"),
    [
        (["the request"], b"not this", b"the request"),
        ([os.fsdecode(b"\xff")], None, b"\xff"),
        (["-"], b"from input", b"from input"),
        ([], b"from input\xff", b"from input\xff"),
        ([], None, b""),
        (["--", "-n"], None, b"-n"),
    ],
)
def test_the_request(
    shell: Shell, arguments: list[str], feed: bytes | None, request_: bytes
) -> None:
    done = shell("run", "--generate", "cat", "--score", "wc -c", "-n", "1", *arguments, feed=feed)
    assert (done.code, done.output) == (0, request_)


def test_a_closed_input_is_an_empty_request(shell: Shell) -> None:
    arguments = ["run", "--generate", "cat", "--score", "wc -c", "-n", "1"]
    child = shell.start(*arguments, before=("sh", "-c", 'exec "$@" <&-', "sh"))
    done = finish(child)
    assert (done.code, done.output) == (0, b"")


def test_the_seed_repeats_a_run(shell: Shell) -> None:
    arguments = ["run", "--generate", "echo {seed}", "--score", "cat", "-n", "3"]
    first = shell(*arguments)
    found = re.search(r"\nseed: (\d+) ", first.told)
    assert found
    assert shell(*arguments, "--seed", found[1]).output == first.output
    assert shell(*arguments, "--seed", "1").output != first.output


def test_json_is_the_report(shell: Shell) -> None:
    script = "sh -c 'test {index} != 1 || { echo so much >&2; exit 3; }; echo {index}'"
    judge = """sh -c 'read x; echo "{\\"score\\": $x, \\"rationale\\": \\"r$x\\"}"'"""
    done = shell("run", "--generate", script, "--score", judge, "-n", "3", "--json", "--seed", "5")
    assert done.code == 0
    report = json.loads(done.output)
    assert report["selected"] == 2
    assert report["output"] == "2\n"
    assert report["partial"] is False
    assert report["stop_reason"] == "completed"
    assert report["seed"] == 5
    assert "usage" in report
    assert [c["status"] for c in report["candidates"]] == [
        "eligible",
        "generation_failed",
        "eligible",
    ]
    failed, best = report["candidates"][1], report["candidates"][2]
    assert failed["error"] == {"type": "CommandFailed", "message": "exit code 3: so much"}
    assert best["score"] == {"value": 2.0, "accepted": True, "rationale": "r2"}
    assert "generation_failed: exit code 3: so much\n" in done.told


def test_above_max_output_it_has_failed_and_the_head_is_kept(shell: Shell) -> None:
    arguments = ["--generate", "yes", "--score", "wc -c", "-n", "2", "--max-output", "1000"]
    done = shell("run", *arguments, "--json")
    assert done.code == 1
    for candidate in json.loads(done.output)["candidates"]:
        assert candidate["status"] == "generation_failed"
        assert candidate["error"]["type"] == "OutputTooLarge"
        assert candidate["output"] == "y\n" * 500
    assert "printed more than the 1,000 bytes" in done.told


def test_nothing_eligible(shell: Shell) -> None:
    done = shell("run", "--generate", "no-such-program", "--score", "cat", "-n", "2")
    assert (done.code, done.output) == (1, b"")
    assert "2 candidates: 2 generation_failed\n" in done.told
    assert "cannot start no-such-program: no such program" in done.told
    assert "best: none" in done.told


def test_a_scorer_that_prints_no_number(shell: Shell) -> None:
    done = shell("run", "--generate", "echo good", "--score", "cat", "-n", "1")
    assert (done.code, done.output) == (1, b"")
    assert "scoring_failed: the scorer printed good;" in done.told


def test_a_long_account_lists_the_best(shell: Shell) -> None:
    done = shell("run", "--generate", "echo {index}", "--score", "cat", "-n", "45")
    table = done.told[done.told.index(" status ") :]
    listed = re.findall(r"^ *(\d+)  eligible", table, re.MULTILINE)
    assert listed == [str(index) for index in range(44, 24, -1)]
    assert "45 candidates: 45 eligible" in table


def test_what_left_its_group_is_told(shell: Shell) -> None:
    script = "sh -c 'setsid sleep 60 & sleep 0.05; echo hi'"
    done = shell("run", "--generate", script, "--score", "wc -c", "-n", "1")
    assert (done.code, done.output) == (0, b"hi\n")
    assert re.search(r"hortator: candidate 0: .* left its process group.*sleep 60", done.told)
    assert shell.living() == ["sleep 60"]


# Bad usage


GOOD = ["--generate", "touch {index}", "--score", "wc -c"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", *GOOD, "-n", "0"], "'-n': 0: write a whole number from 1 up"),
        (["run", *GOOD, "-n", "many"], "'-n'"),
        (["run", *GOOD, "--concurrency", "0"], "'--concurrency': 0: write a whole number"),
        (["run", *GOOD, "--timeout", "-1"], "'--timeout': -1.0: write seconds from 0 up"),
        (["run", *GOOD, "--timeout", "nan"], "'--timeout': nan: write seconds from 0 up"),
        (["run", *GOOD, "--timeout", "inf"], "'--timeout': inf: write seconds from 0 up"),
        (["run", *GOOD, "--target", "nan"], "'--target': nan: write a finite number"),
        (
            ["run", *GOOD, "--max-output", "0"],
            "'--max-output': 0: write a number of bytes from 1 up",
        ),
        (["run", *GOOD, "--seed", "x"], "'--seed'"),
        (["run", *GOOD, "--no-such-flag"], "--no-such-flag"),
        (["run", *GOOD, "one", "two"], "two"),
        (["run", "--score", "cat"], "--generate"),
        (["run", "--generate", "touch it"], "Missing option '--score': write the command"),
        (["run", *GOOD, "--env", "A"], "'--env': 'A': write NAME=VALUE"),
        (["run", *GOOD, "--env", "=1"], "'--env': '=1': write NAME=VALUE"),
        (["run", *GOOD, "--cwd", "no/where"], "'--cwd': there is no folder 'no/where'"),
        (["run", *GOOD, "--jobs", "2"], "'--jobs': it goes with many requests: write --jobs-from"),
        (["run", *GOOD, "--out", "x"], "'--out': it goes with many requests"),
        (["run", *GOOD, "--jobs-from", "none", "--jobs", "0"], "'--jobs': 0: write a whole number"),
        (["run", *GOOD, "--jobs-from", "none"], "'--jobs-from': none cannot be read: No such file"),
        (["run", *GOOD, "--jobs-from", "none", "it"], "'REQUEST': the requests come from --jobs"),
        (["run", *GOOD, "--max-calls", "-1"], "'--max-calls': -1: write a whole number"),
        (["run", *GOOD, "--max-calls", "3"], "3 would fit"),
        (["run", *GOOD, "--max-calls", "9", "--estimate-calls", "0"], "0 beside --max-calls"),
        (["run", *GOOD, "--max-cost", "1"], "'--max-cost': money is set aside before"),
        (["run", *GOOD, "--max-cost", "all"], "'--max-cost': 'all': write dollars from 0"),
        (["run", *GOOD, "--estimate-cost", "-1"], "'--estimate-cost': '-1': write dollars"),
        (["run", "--generate", "touch it", "--target", "1", "--vote"], "write --score CMD"),
        (["run", "--generate", "touch it", "--vote-by", "("], "'--vote-by': '(' is no regular"),
        (["run", *GOOD, "--stop", "decided"], "'--stop': decided counts votes: write --vote"),
        (["run", *GOOD, "--stop", "consistent:0.9"], "'--stop': consistent:0.9 counts votes"),
        (["run", *GOOD, "--vote", "--stop", "consistent:1"], "'--stop': 'consistent:1': write"),
        (["run", *GOOD, "--stop", "target:x"], "'--stop': nan: write a finite number"),
        (["run", *GOOD, "--stop", "target"], "'--stop': 'target': write first, target:X"),
        (["run", *GOOD, "--stop", "first:1"], "'--stop': 'first:1': write first"),
        (["run", *GOOD, "--stop", "first", "--target", "1"], "'--stop': it stands beside"),
        (["run", "--generate", "", "--score", "cat"], "'--generate': the command '' cannot"),
        (["run", "--generate", "touch 'it", "--score", "cat"], "no closing quotation in it"),
        (["run", *GOOD[:2], "--score", "'"], "'--score': the command"),
        (["demo", "-n", "0"], "'-n': 0: write a whole number"),
        (["demo", "--timeout", "nan"], "'--timeout': nan"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_bad_usage_is_told_in_one_message(
    arguments: list[str],
    says: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    output, told = capfd.readouterr()
    assert output == ""
    assert says in told
    assert told.count("Error: ") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_shows_how(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    output, _ = capfd.readouterr()
    for word in ("--generate", "--score", "--timeout", "REQUEST", "{seed}", "Examples:"):
        assert word in output
    assert main(["--help"]) == 0


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str) -> None:
    script = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from hortator.actors.cli import main; sys.exit(main(['demo']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode() == (
        f"hortator: the command line needs {missing}, which is not installed."
        " Install it with: pip install 'hortator[cli]'\n"
    )


# Deadlines and leftovers


def test_what_sleeps_is_gone_at_the_deadline(shell: Shell) -> None:
    """Done when 2, first half: back within deadline + grace + 0.5 s of the first started line."""
    arguments = ["--generate", 'sh -c "sleep 60 & sleep 60"', "--score", "wc -c", "-n", "4"]
    child = shell.start("run", *arguments, "--timeout", "1")
    line_with(child.stderr, b"started")
    begun = time.monotonic()
    done = rest(child)
    assert time.monotonic() - begun < 1 + GRACE + 0.5
    assert (done.code, done.output) == (1, b"")
    assert shell.living() == []
    assert "ended: deadline" in done.told


def test_who_holds_the_pipe_delays_nothing(shell: Shell) -> None:
    """Done when 2, second half."""
    arguments = ["--generate", 'sh -c "echo hi; sleep 60 &"', "--score", "wc -c", "-n", "4"]
    child = shell.start("run", *arguments, "--timeout", "5")
    line_with(child.stderr, b"started")
    begun = time.monotonic()
    done = rest(child)
    assert time.monotonic() - begun < 1.5
    assert (done.code, done.output) == (0, b"hi\n")
    assert shell.living() == []


def test_the_best_so_far_is_printed_at_the_deadline(shell: Shell) -> None:
    script = "sh -c 'test {index} = 2 && sleep 60; echo {index}'"
    done = shell("run", "--generate", script, "--score", "cat", "-n", "3", "--timeout", "0.5")
    assert (done.code, done.output) == (0, b"1\n")
    assert "timed_out" in done.told
    assert "the run was cut short" in done.told


def test_a_terminal_that_is_held_does_not_hold_the_deadline(shell: Shell) -> None:
    # Nobody reads standard error, and its pipe holds some dozen lines.
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    script = "sh -c 'test {index} -gt 80 && sleep 60; echo {index}'"
    arguments = ["--generate", script, "--score", "cat", "-n", "90", "--timeout", "1"]
    child = shell.start("run", *arguments, stderr=writer)
    os.close(writer)
    try:
        time.sleep(1)
        ours = ["-m hortator run"]
        until = time.monotonic() + LIMIT
        while [c for c in shell.living() if not any(own in c for own in ours)]:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert child.poll() is None  # it waits for its reader
    finally:
        with open(reader, "rb") as told:
            told.read()
    assert child.wait(LIMIT) == 0
    assert child.stdout is not None
    assert int(child.stdout.read()) <= 80


def test_a_reader_that_goes_away(shell: Shell) -> None:
    child = shell.start("run", "--generate", "head -c 1000000 /dev/zero", "--score", "wc -c")
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    told = child.stderr.read().decode()
    assert child.wait(LIMIT) == 141
    assert "Traceback" not in told
    assert "Broken pipe" not in told


def test_nobody_reads_the_progress(shell: Shell) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    arguments = ["--generate", "echo {index}", "--score", "cat", "-n", "4"]
    child = shell.start("run", *arguments, stderr=writer)
    os.close(writer)
    output, _ = child.communicate(timeout=LIMIT)
    assert (child.returncode, output) == (0, b"3\n")


def test_a_full_disk(shell: Shell) -> None:
    with open("/dev/full", "wb") as full:
        child = shell.start("run", "--generate", "echo", "--score", "wc -c", stdout=full)
    done = finish(child)
    assert done.code == 1
    assert "the output could not be written: [Errno 28]" in done.told
    assert "Traceback" not in done.told


# Signals

# Number 0 ends at once, the others stay until they are killed.
LASTING = ["--generate", "sh -c 'test {index} = 0 || sleep 60 & wait; echo {index}'"]


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_run_and_the_best_so_far_is_printed(
    shell: Shell, signum: signal.Signals, code: int
) -> None:
    child = shell.start("run", *LASTING, "--score", "cat", "-n", "3", "--concurrency", "3")
    line_with(child.stderr, b"scored")
    begun = time.monotonic()
    child.send_signal(signum)
    done = rest(child)
    assert (done.code, done.output) == (code, b"0\n")
    assert time.monotonic() - begun < GRACE + 0.5
    assert shell.living() == []
    assert "ended: cancelled" in done.told
    assert "Traceback" not in done.told


def test_a_signal_before_anything_is_scored(shell: Shell) -> None:
    child = shell.start("run", "--generate", "sleep 60", "--score", "cat", "-n", "3", "--json")
    line_with(child.stderr, b"started")
    child.send_signal(signal.SIGINT)
    done = rest(child)
    assert done.code == 130
    assert json.loads(done.output)["stop_reason"] == "cancelled"
    assert shell.living() == []


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1])
def test_the_second_signal_kills_at_once(shell: Shell, delay: float) -> None:
    stubborn = "sh -c 'trap \"\" TERM; while :; do sleep 60; done'"
    child = shell.start("run", "--generate", stubborn, "--score", "cat", "-n", "3")
    line_with(child.stderr, b"started")
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    time.sleep(delay)
    child.send_signal(signal.SIGTERM)
    done = rest(child)
    assert done.code in (130, 143)
    assert shell.living() == []


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2])
def test_ctrl_c_at_any_instant(shell: Shell, delay: float) -> None:
    script = "sh -c 'sleep 0.0$(({index} * 2)); echo {index}; sleep 60 &'"
    arguments = ["--generate", script, "--score", "cat", "-n", "6", "--concurrency", "3"]
    child = shell.start("run", *arguments, "--json")
    line_with(child.stderr, b"started")
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    done = rest(child)
    report = json.loads(done.output)
    eligible = [c["index"] for c in report["candidates"] if c["status"] == "eligible"]
    assert report["selected"] == max(eligible, default=None)
    # It may have come when all was written already, just before the exit.
    assert done.code == 130 or report["stop_reason"] == "completed"
    assert shell.living() == []


@pytest.mark.parametrize("delay", [0.1, 0.5, 1.0])
def test_ctrl_c_before_the_request_was_read(shell: Shell, delay: float) -> None:
    child = shell.start("run", "--generate", "sleep 60", "--score", "cat", stdin=-1)
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    done = rest(child)
    # Python itself, for as long as it imports, ends by the signal or with 1.
    assert done.code in (130, -signal.SIGINT, 1)
    assert done.output == b""
    assert shell.living() == []


# Small things


def test_numbers() -> None:
    assert [number(x) for x in (7542.0, -1.5, 1e300, 0.1 + 0.2)] == [
        "7542",
        "-1.5",
        "1e+300",
        "0.3",
    ]


def test_errors_on_one_line() -> None:
    assert brief(ValueError()) == "ValueError"
    assert brief(ValueError("a\nb\x1b[0m")) == r"a\nb\x1b[0m"
    trace = "Traceback:\n  line 1\nValueError: why\n"
    assert brief(CommandFailed(["x"], 1, trace)) == "exit code 1: ValueError: why"
    assert brief(CommandFailed(["x"], -11, " \n")) == "killed by SIGSEGV"
