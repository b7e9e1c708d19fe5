"""Job files: what flags say, in TOML. A bad one is one message with file, line and key."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hortator.actors.cli import main
from tests.shell import Shell

WHOLE = """\
# Everything that a job file may say.
generate = ["sh", "-c", "echo $A $B {index}; cat; pwd"]
score = "head -c 3"
request = "asked\\n"
n = 3
concurrency = 2
timeout = 20
minimize = true
vote_by = ".*"
stop = "decided"
seed = 7
max_calls = 6
max_cost = 0.5
estimate_calls = 2
estimate_cost = "0.125"
cwd = "inside"
max_output = 1000
events = "events.jsonl"

[env]
A = "1"
"B" = "2"
"""


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "job.toml"
        path.write_text(text)
        return str(path)

    return write


def test_everything_a_job_file_may_say(
    shell: Shell, job: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "inside").mkdir()
    done = shell("run", "--job", job(WHOLE.replace('"head -c 3"', "'sh -c \"echo $A$B\"'")))
    assert done.code == 0, done.told
    # Its folders and files are beside it, wherever we are.
    folder = os.path.realpath(tmp_path / "inside").encode()
    assert done.output == b"1 2 0\nasked\n" + folder + b"\n"
    assert "3 candidates, 2 at a time, at most 20 s;" in done.told
    assert "\nbest: #0, 1 of 3 votes for '1 2 0', scored 12\n" in done.told
    assert "\nusage: 6 model calls, $0.375\n" in done.told
    assert "\nseed: 7 " in done.told
    assert (tmp_path / "events.jsonl").is_file()


def test_flags_go_before_it(shell: Shell, job: Callable[[str], str]) -> None:
    path = job('generate = "sh -c \'echo $A $B\'"\nvote = true\nn = 9\nenv = {A = "1", B = "2"}\n')
    done = shell("run", "-n", "1", "--env", "A=3", "--job", path, "--json")
    report = json.loads(done.output)
    assert len(report["candidates"]) == 1
    assert report["output"] == "3 2\n"


def test_a_rule_of_a_flag_goes_before_a_target(shell: Shell, job: Callable[[str], str]) -> None:
    path = job('generate = "echo {index}"\nscore = "cat"\ntarget = 1e9\nn = 9\nconcurrency = 1\n')
    done = shell("run", "--job", path, "--stop", "first")
    assert "ended: first_accepted," in done.told
    path = job('generate = "echo {index}"\nscore = "cat"\nstop = "first"\nn = 9\nconcurrency = 1\n')
    done = shell("run", "--job", path, "--target", "5")
    assert "ended: target," in done.told


GOOD = 'generate = "touch {index}"\nscore = "wc -c"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n = 0\n", ", line 1: n: Input should be greater than or equal to 1, not 0"),
        ("\n\nn = '4'\n", ", line 3: n: Input should be a valid integer, not '4'"),
        ("vote = 1\n", ", line 1: vote: Input should be a valid boolean, not 1"),
        ("timeout = -1\n", ", line 1: timeout: Input should be greater than or equal to 0"),
        ("timeout = inf\n", ", line 1: timeout: Input should be a finite number, not inf"),
        ("generate = 4\n", ", line 1: generate: Input should be a valid string, not 4"),
        ("score = ['a', 4]\n", ", line 1: score: "),
        ("env = {A = 1}\n", ", line 1: env.A: Input should be a valid string, not 1"),
        ("[env]\nB = '1'\nA = 1\n", ", line 3: env.A: Input should be a valid string"),
        ("tiemout = 5\n", ", line 1: tiemout: there is no such key; is it timeout?"),
        ("\nzzz = 5\n", ", line 2: zzz: there is no such key; the keys are generate, score,"),
        ("[tool.x]\ny = 1\n", ": tool: there is no such key; "),
        ("n = \n", ", line 1: it is no TOML: Invalid value (at line 1, column 5)"),
        ("n = 1\nn = 2\n", "it is no TOML: Cannot overwrite a value"),
        ("score = 'cat'\n", ": generate is missing, and there is no --generate: write the"),
        ("generate = 'touch a'\n", ": score is missing, and there is no --score: write the"),
        ("generate = ''\nvote = true\n", ", line 1: generate: the command '' cannot be run"),
        (f"{GOOD}stop = 'soon'\n", ", line 3: stop: 'soon': write first"),
        (f"{GOOD}vote_by = '('\n", ", line 3: vote_by: '(' is no regular expression"),
        (f"{GOOD}max_cost = 'all'\n", ", line 3: max_cost: 'all': write dollars from 0 up"),
        (f"{GOOD}cwd = 'none'\n", ", line 3: cwd: there is no folder '"),
        (f"{GOOD}target = 1\nstop = 'first'\n", ", line 4: stop: it stands beside --target"),
    ],
)
def test_a_bad_job_file_is_one_message(
    text: str,
    says: str,
    job: Callable[[str], str],
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = job(text)
    assert main(["run", "--job", path]) == 2
    output, told = capfd.readouterr()
    assert output == ""
    assert f"Error: {path}" in told
    assert says in told
    assert told.count("Error: ") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["job.toml"]


def test_a_job_file_that_cannot_be_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    for says in ("it cannot be read: No such file or directory", "it is not UTF-8 text"):
        assert main(["run", "--job", str(path)]) == 2
        assert f"Error: {path}: {says}\n" in capfd.readouterr().err
        path.write_bytes(b"\xff")
