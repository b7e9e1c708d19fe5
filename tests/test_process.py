"""Commands as candidates and scorers: what they are told, how they end, what they leave.

On the real clock, since processes know no other. Each test marks its processes in their
environment; what carries the mark of a test afterwards has outlived it.
"""

from __future__ import annotations

import contextlib
import doctest
import logging
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pytest
import trio

from hortator.actors import group, process
from hortator.actors.group import marked
from hortator.actors.process import Command, command, command_scorer
from hortator.actors.runtime import open_runtime
from hortator.protocols import command as rules
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.candidate import Generated
from hortator.protocols.command import (
    BadCommand,
    CommandFailed,
    CommandNotStarted,
    NotAScore,
    OutputTooLarge,
    Tail,
    Template,
    how_it_ended,
    read_answer,
)
from hortator.protocols.result import RunResult
from hortator.protocols.showing import on_one_line
from hortator.protocols.usage import Usage

GRACE = 0.25
WORK = 0.8 * GRACE
AMPLE = 5.0
"""A shield so long that clean-up gets through on any machine: what is left is left for good."""


@attrs.define
class FakeContext:
    """As much of a candidate's context as a command uses."""

    index: int = 3
    seed: int = 77
    cut_at: float | None = None
    work: float = WORK
    told: list[tuple[str, dict[str, Any]]] = attrs.Factory(list)
    published: list[bytes] = attrs.Factory(list)

    @contextlib.contextmanager
    def cleanup(self, seconds: float | None = None) -> Generator[None]:
        begins = trio.current_time() if self.cut_at is None else self.cut_at
        limit = self.work if seconds is None else seconds
        until = min(begins + self.work, trio.current_time() + limit)
        with trio.CancelScope(shield=True, deadline=until):
            yield

    def emit(self, kind: str, **data: Any) -> None:
        self.told.append((kind, data))

    def publish(self, output: bytes, score: object = None) -> None:
        self.published.append(output)


@attrs.define
class Traces:
    """What is left of a test's processes, and of our files."""

    mark: str
    files: int

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "TEST_MARK": self.mark}

    def living(self) -> list[str]:
        return [found.command for found in marked(self.mark)]

    def none(self) -> bool:
        return not self.living() and not children() and open_files() == self.files

    async def none_soon(self) -> bool:
        """For runs whose work share may be too short on a busy machine: the kernel needs time."""
        with trio.move_on_after(5):
            while not self.none():
                await trio.sleep(0.01)
        return self.none()


def children() -> list[str]:
    """Our children, zombies included."""
    tasks = f"/proc/{os.getpid()}/task"
    found: list[str] = []
    for task in os.listdir(tasks):
        with contextlib.suppress(OSError), open(f"{tasks}/{task}/children") as file:
            found += file.read().split()
    return found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def mark() -> Iterator[str]:
    mark = secrets.token_hex(8)
    yield mark
    for found in marked(mark):  # those that are meant to outlive their command, at least
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGKILL)


@pytest.fixture
async def traces(mark: str) -> Traces:
    # A test before this one may have its last thread still at work.
    await trio.to_thread.run_sync(lambda: None)
    assert not children()
    return Traces(mark, open_files())


def call(self: Command, request: str | bytes = b"", **ctx: Any) -> Any:
    return self(request, FakeContext(**ctx))  # type: ignore[arg-type]


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


# What it is told


async def test_tokens_are_replaced_inside_words() -> None:
    run = command("""echo {index} --seed={seed} '{index} and {seed}' {other} {} "$HOME" | >x""")
    assert await call(run) == b"3 --seed=77 3 and 77 {other} {} $HOME | >x\n"


async def test_the_request_is_its_input() -> None:
    assert await call(command("cat"), "größer") == "größer".encode()
    assert await call(command("cat"), b"\xff\x00") == b"\xff\x00"
    assert await call(command("cat"), b"") == b""


async def test_a_request_larger_than_any_pipe_goes_through() -> None:
    request = os.urandom(3_000_000)
    assert await call(command("cat"), request) == request


@pytest.mark.parametrize("script", ["exit 0", "head -c 10", "exec 0<&-; sleep 0.02"])
async def test_who_does_not_read_the_request_is_not_hurt(script: str) -> None:
    assert len(await call(command(sh(script)), b"x" * 1_000_000)) <= 10


async def test_a_request_that_is_no_text_is_refused(traces: Traces) -> None:
    with pytest.raises(TypeError, match="text or bytes, not dict"):
        await call(command("cat", env=traces.env), {"a": 1})  # type: ignore[arg-type]
    assert traces.none()


async def test_environment_and_folder(tmp_path: Path) -> None:
    run = command(sh("echo $WORD $PWD"), env={"WORD": "given"}, cwd=tmp_path)
    assert await call(run) == f"given {tmp_path}\n".encode()


# How it ends


async def test_a_good_end_leaves_nothing(traces: Traces) -> None:
    assert await call(command("echo hi", env=traces.env)) == b"hi\n"
    assert traces.none()


async def test_a_child_that_holds_the_pipe_loses_nothing_and_survives_nothing(
    traces: Traces,
) -> None:
    begun = time.monotonic()
    run = command(sh("echo hi; (sleep 0.01; echo there; exec sleep 60) &"), env=traces.env)
    assert await call(run) == b"hi\nthere\n"
    assert time.monotonic() - begun < 0.5
    assert traces.none()


async def test_what_is_in_the_pipe_is_output_however_late_the_loop_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "LAST_WORDS", 0.0)  # as if it had passed in one blocked step
    for _ in range(10):
        assert len(await call(command("head -c 60000 /dev/zero"))) == 60_000


async def test_after_a_good_end_sigkill_comes_at_once(traces: Traces) -> None:
    run = command(sh("trap '' TERM; sleep 60 & echo hi"), env=traces.env)
    begun = time.monotonic()
    assert await call(run, work=AMPLE) == b"hi\n"
    assert time.monotonic() - begun < AMPLE / 4
    assert traces.none()


async def test_an_output_at_the_limit_is_whole() -> None:
    assert await call(command("echo 123", max_output=4)) == b"123\n"


async def test_above_the_limit_it_is_killed_and_the_head_kept(traces: Traces) -> None:
    run = command(sh("sleep 60 & exec yes"), max_output=100_000, env=traces.env)
    ctx = FakeContext()
    begun = time.monotonic()
    with pytest.raises(OutputTooLarge, match="100,000 bytes of max_output") as raised:
        await run(b"", ctx)  # type: ignore[arg-type]
    assert time.monotonic() - begun < 0.5
    assert raised.value.head == b"y\n" * 50_000
    assert ctx.published == [raised.value.head]
    assert traces.none()


async def test_a_failure_has_its_exit_code_and_the_end_of_its_stderr() -> None:
    run = command(sh("head -c 100000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 3"))
    with pytest.raises(CommandFailed, match=r"exit code 3: x+the end") as raised:
        await call(run)
    error = raised.value
    assert (error.exit_code, error.signal) == (3, None)
    assert len(error.stderr) == 2048
    assert error.command.startswith("sh -c ")


async def test_a_death_by_signal_is_told() -> None:
    with pytest.raises(CommandFailed, match="killed by SIGSEGV") as raised:
        await call(command(sh("kill -SEGV $$")))
    assert (raised.value.exit_code, raised.value.signal) == (None, signal.SIGSEGV)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("no-such-program-here", "no such program on PATH; a word of the shell needs sh -c"),
        ("./no-such-program-here", "no such file"),
        ("/etc/passwd", "Permission denied"),
        ("/etc", "Permission denied"),
    ],
)
async def test_what_cannot_be_started(template: str, why: str, traces: Traces) -> None:
    with pytest.raises(CommandNotStarted, match=why):
        await call(command(template))
    assert traces.none()


async def test_a_script_without_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for run in (command([str(script)]), command("./script", cwd=tmp_path)):
        with pytest.raises(CommandNotStarted, match="its first line names"):
            await call(run)


async def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(CommandNotStarted, match="no folder '/no/such'"):
        await call(command("true", cwd="/no/such"))


# Cancelled


async def cut_after(run: Command, seconds: float, ctx: FakeContext) -> tuple[bool, float]:
    """Cut a run; return whether it was cut, and the seconds that it took to end then."""
    with trio.move_on_after(seconds) as scope:
        ctx.cut_at = scope.deadline
        await run(b"", ctx)  # type: ignore[arg-type]
    return scope.cancelled_caught, trio.current_time() - scope.deadline


async def test_cancelled_the_whole_group_gets_sigterm(traces: Traces, tmp_path: Path) -> None:
    note = tmp_path / "note"
    script = f"(trap 'echo polite >{note}; exit' TERM; sleep 60 & wait) & sleep 60"
    ctx = FakeContext()
    cut, took = await cut_after(command(sh(script), env=traces.env), 0.1, ctx)
    assert cut
    assert took < 0.4 * GRACE
    assert note.read_text() == "polite\n"
    assert traces.none()


async def test_what_ignores_sigterm_gets_sigkill_at_40_percent(traces: Traces) -> None:
    script = "trap '' TERM; echo partial; sleep 60 & while :; do sleep 60; done"
    ctx = FakeContext()
    cut, took = await cut_after(command(sh(script), env=traces.env), 0.1, ctx)
    assert cut
    assert 0.4 * GRACE - 0.01 <= took < GRACE
    assert ctx.published == [b"partial\n"]
    assert traces.none()


async def test_with_no_time_left_it_is_killed_all_the_same(traces: Traces) -> None:
    script = "trap '' TERM; while :; do sleep 60; done"
    ctx = FakeContext()
    with trio.move_on_after(0.1):
        ctx.cut_at = trio.current_time() - 10
        await call(command(sh(script), env=traces.env), cut_at=ctx.cut_at)
    assert await traces.none_soon()


async def test_last_words_after_sigterm_do_not_hang_on_a_full_pipe(traces: Traces) -> None:
    flood = "head -c 1000000 /dev/zero"
    run = command(sh(f"trap '{flood}; exit' TERM; echo up; sleep 60 & wait"), env=traces.env)
    ctx = FakeContext()
    cut, took = await cut_after(run, 0.1, ctx)
    assert cut
    assert took < 0.4 * GRACE
    assert len(ctx.published[0]) == 3 + 1_000_000
    assert traces.none()


async def test_cancelled_beforehand_nothing_is_started(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await call(command(["touch", str(tmp_path / "started")]))
    assert not list(tmp_path.iterdir())


class CutAtStep(trio.abc.Instrument):
    """Cancels a scope before the k-th step of any task but ours."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.left, self.scope = step, scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


SWEPT = [
    "echo hi",
    "echo hi; sleep 60 &",
    "sleep 60 & echo hi; exit 3",
    "(trap '' TERM; sleep 0.05) & cat; sleep 0.01; echo end",
]


@pytest.mark.parametrize("script", SWEPT)
async def test_cancelled_at_any_step_nothing_is_left(script: str, traces: Traces) -> None:
    run = command(sh(script), env=traces.env)
    cuts = 0
    for step in range(1, 200):
        with trio.CancelScope() as scope, contextlib.suppress(CommandFailed):
            instrument = CutAtStep(step, scope)
            trio.lowlevel.add_instrument(instrument)
            try:
                await call(run, b"x" * 200_000, work=AMPLE)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert traces.none(), f"cut at step {step}: {traces.living()} {children()}"
        cuts += scope.cancelled_caught
        if not scope.cancel_called:
            break
    else:
        pytest.fail("no run got through")
    # What is cut after its end keeps its output, so not every cut is seen.
    assert cuts >= 10
    assert run.running == 0


@pytest.mark.parametrize("script", SWEPT)
async def test_cancelled_at_any_instant_nothing_is_left(script: str, traces: Traces) -> None:
    run = command(sh(script), env=traces.env)
    ends: set[bool] = set()
    for cut in range(0, 30, 2):
        with trio.move_on_after(cut / 1000) as scope, contextlib.suppress(CommandFailed):
            await call(run, b"x" * 200_000, work=AMPLE)
        ends.add(scope.cancelled_caught)
        assert traces.none(), f"cut after {cut} ms: {traces.living()} {children()}"
    assert True in ends


async def test_many_at_once_leave_nothing(traces: Traces) -> None:
    run = command(sh("sleep 60 & echo {index}; sleep 60"), env=traces.env)
    begun = time.monotonic()
    with trio.move_on_after(0.2):
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(call, run)
    assert time.monotonic() - begun < 0.2 + GRACE + 0.5
    assert await traces.none_soon()


async def test_without_pidfds_it_ends_just_so(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(pid: int) -> int:
        raise PermissionError("no pidfds in this sandbox")

    monkeypatch.setattr(os, "pidfd_open", forbidden)
    assert await call(command(sh("echo hi; sleep 60 &"), env=traces.env)) == b"hi\n"
    assert traces.none()
    cut, took = await cut_after(command("sleep 60", env=traces.env), 0.1, FakeContext())
    assert cut
    assert took < 0.4 * GRACE
    assert traces.none()


async def test_killed_for_good(traces: Traces) -> None:
    run = command("sleep 60", env=traces.env)
    failures: list[CommandFailed] = []

    async def one() -> None:
        with pytest.raises(CommandFailed, match="SIGKILL") as raised:
            await call(run)
        failures.append(raised.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one)
        while not traces.living():
            await trio.sleep(0.005)
        assert run.running == 1
        nursery.start_soon(one)
        await trio.testing.wait_all_tasks_blocked()
        run.kill()
    assert len(failures) == 2
    assert run.killed
    assert run.running == 0
    assert traces.none()


# What left the group (B105)


async def test_b105_what_left_the_group_is_named_and_left_alone(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    run = command(sh("setsid sleep 60 & sleep 300 & sleep 300"), env=traces.env)
    ctx = FakeContext()
    with caplog.at_level(logging.WARNING, "hortator"):
        cut, took = await cut_after(run, 0.15, ctx)
    assert cut
    assert took < GRACE
    [(kind, data)] = ctx.told
    assert kind == "escaped"
    assert data["commands"] == ["sleep 60"]
    assert traces.living() == ["sleep 60"]
    assert "candidate 3" in caplog.text
    assert f"{data['pids'][0]} (sleep 60)" in caplog.text
    assert not children()


async def test_b105_after_a_good_end_too(traces: Traces) -> None:
    ctx = FakeContext()
    run = command(sh("setsid sleep 60 & sleep 0.05; echo hi"), env=traces.env)
    assert await run(b"", ctx) == b"hi\n"  # type: ignore[arg-type]
    assert [data["commands"] for _, data in ctx.told] == [["sleep 60"]]


async def test_an_outer_attempt_finds_what_an_inner_one_let_go(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = secrets.token_hex(8)
    monkeypatch.setenv(group.MARK, outer)
    run = command(sh("setsid sleep 60 & sleep 0.05; echo hi"), env=traces.env)
    assert await call(run) == b"hi\n"
    assert [found.command for found in marked(outer)] == ["sleep 60"]


# In real runs


def job(template: str | list[str], traces: Traces, **options: Any) -> BestOfN[bytes, bytes]:
    return BestOfN(
        generate=command(template, env=traces.env),
        score=command_scorer("cat", env=traces.env),
        **options,
    )


async def run(what: BestOfN[bytes, bytes]) -> tuple[RunResult[bytes], list[Any]]:
    events: list[Any] = []
    async with open_runtime() as runtime:
        result = await runtime.run(what, b"", seed=1, observers=(events.append,))
    return result, events


async def test_a_run_of_commands(traces: Traces) -> None:
    script = "test {index} = 1 && exit 4; test {index} = 2 && echo words || echo {index}"
    result, _ = await run(job(sh(script), traces, n=4))
    assert [str(c.status) for c in result.candidates] == [
        "eligible",
        "generation_failed",
        "scoring_failed",
        "eligible",
    ]
    assert result.output == b"3\n"
    assert isinstance(result.candidates[1].error, CommandFailed)
    assert isinstance(result.candidates[2].error, NotAScore)
    assert await traces.none_soon()


async def test_b105_a_run_is_back_in_time_and_tells_of_what_escaped(traces: Traces) -> None:
    script = "setsid sleep 60 & echo partial; sleep 300"
    begun = time.monotonic()
    result, events = await run(job(sh(script), traces, n=3, timeout=0.3))
    assert time.monotonic() - begun < 0.3 + GRACE + 0.5
    assert [str(c.status) for c in result.candidates] == ["timed_out"] * 3
    assert [c.output for c in result.candidates] == [b"partial\n"] * 3
    assert result.selected is None
    assert traces.living() == ["sleep 60"] * 3
    escaped = [event for event in events if event.kind == "escaped"]
    assert sorted(event.candidate for event in escaped) == [0, 1, 2]
    assert all(event.data["commands"] == ["sleep 60"] for event in escaped)


async def test_a_stop_a_cancel_and_a_candidates_own_timeout_leave_nothing(traces: Traces) -> None:
    slow = sh("sleep 60 & sleep {index}")
    result, _ = await run(job(slow, traces, n=3, candidate_timeout=0.2))
    assert [str(c.status) for c in result.candidates] == [
        "scoring_failed",
        "timed_out",
        "timed_out",
    ]
    assert await traces.none_soon()
    with trio.move_on_after(0.2):
        await run(job(slow, traces, n=3))
    assert await traces.none_soon()
    async with open_runtime() as runtime, runtime.start(job(slow, traces, n=3), b"") as handle:
        await trio.sleep(0.1)
        handle.cancel()
        assert (await handle.result()).stop_reason == "cancelled"
        assert await traces.none_soon()
    async with open_runtime() as runtime, runtime.start(job(slow, traces, n=3), b""):
        await trio.sleep(0.1)
    assert await traces.none_soon()


async def test_sixty_at_the_deadline(traces: Traces) -> None:
    # More than trio has worker threads for starting and searching.
    begun = time.monotonic()
    what = job(sh("sleep 60 & sleep 60"), traces, n=60, max_concurrency=60, timeout=1.0)
    result, _ = await run(what)
    assert time.monotonic() - begun < 1.0 + GRACE + 0.5
    # On a busy machine some may still be at their clean-up when the grace is over.
    left = [c for c in result.candidates if not c.detached]
    assert {str(c.status) for c in left} <= {"timed_out", "skipped"}
    assert await traces.none_soon()


# Scorers


def generated(output: bytes | str) -> Any:
    return Generated(index=3, output=output, usage=Usage())


async def test_a_scorer_gets_the_output_and_prints_a_number() -> None:
    score = command_scorer("wc -c")
    assert (await score(None, generated(b"12345"), FakeContext())).value == 5  # type: ignore[arg-type]
    assert (await score(None, generated("äö"), FakeContext())).value == 4  # type: ignore[arg-type]


async def test_a_scorer_may_print_an_object() -> None:
    score = command_scorer(["echo", '{"score": -1.5, "accepted": false, "rationale": "no"}'])
    answer = await score(None, generated(b""), FakeContext())  # type: ignore[arg-type]
    assert (answer.value, answer.accepted, answer.rationale) == (-1.5, False, "no")


async def test_a_scorer_that_fails_says_why() -> None:
    ctx = FakeContext()
    score = command_scorer(sh("echo 5; echo cannot judge that >&2; exit 1"))
    with pytest.raises(CommandFailed, match="cannot judge that"):
        await score(None, generated(b""), ctx)  # type: ignore[arg-type]
    with pytest.raises(NotAScore, match="printed nothing"):
        await command_scorer("true")(None, generated(b""), ctx)  # type: ignore[arg-type]
    with pytest.raises(OutputTooLarge):
        await command_scorer("yes", max_output=10)(None, generated(b""), ctx)  # type: ignore[arg-type]
    assert ctx.published == []


# The rules


@pytest.mark.parametrize("text", ["7", "-7.5", " 7\n", "+.5", "7.", "1e3", '{"score": 7}'])
def test_a_score(text: str) -> None:
    assert read_answer(text.encode()).accepted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "printed nothing"),
        ("seven", "printed seven;"),
        ("7 8", "printed 7 8;"),
        ("7\n8", r"printed 7\\n8;"),
        ("nan", "printed nan;"),
        ("inf", "printed inf;"),
        ("1_000", "printed 1_000;"),
        ("1e999", "too large for a float"),
        ("true", "printed true;"),
        ("[7]", "printed"),
        ('{"score": "7"}', "score: Input should be a valid number"),
        ('{"score": true}', "score: Input should be a valid number"),
        ('{"score": NaN}', "finite number"),
        ('{"score": 1e999}', "finite number"),
        ('{"accepted": true}', "score: Field required"),
        ('{"score": 7, "acepted": false}', "acepted: Extra inputs"),
        ('{"score": 7, "accepted": "no"}', "accepted: Input should be a valid boolean"),
        ('{"score": 7', "Invalid JSON"),
        ('{"a": ' * 5000, "Invalid JSON"),
        ("\x1b[2J", r"printed \\x1b\[2J;"),
    ],
)
def test_not_a_score(text: str, why: str) -> None:
    with pytest.raises(NotAScore, match=why) as raised:
        read_answer(text.encode())
    assert '{"score": 0.5, "accepted": true' in str(raised.value)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("", "names no program"),
        ("  ", "names no program"),
        ("'' x", "names no program"),
        ([], "names no program"),
        ("solve 'it", "no closing quotation"),
        ("solve \\", "no escaped character"),
        ("solve \0", "zero byte"),
    ],
)
def test_a_bad_command_is_refused_beforehand(template: str, why: str) -> None:
    with pytest.raises(BadCommand, match=why) as raised:
        command(template)
    assert "'solve --seed {seed}" in str(raised.value)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None])
def test_a_bad_limit_is_refused_beforehand(limit: Any) -> None:
    with pytest.raises(BadCommand, match="bytes from 1 up"):
        command("true", max_output=limit)


def test_quoting_round_trip() -> None:
    words = ["a b", "", "'", '"', "{seed}", "$x", "\\"]
    assert Template.parse(shlex.join(["p", *words])).words == ("p", *words)


def test_a_tail_is_bounded() -> None:
    tail = Tail(3)
    for chunk in (b"a", b"bcdef", b"", "gä".encode()):
        tail.add(chunk)
    assert tail.text == "gä"


def test_how_it_ended_for_signals_without_a_common_name() -> None:
    assert how_it_ended(-40) == "killed by signal 40"


def test_shown_is_short_and_safe() -> None:
    assert on_one_line("  a\tb\u202e\x9b1m\n", 80) == r"a\tb\u202e\x9b1m"
    assert on_one_line(b"\xff" + b"x" * 100, 5) == "\ufffdxxx…"


@pytest.mark.parametrize("module", [group, process, rules])
def test_examples_in_docstrings(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_ctrl_c_while_a_command_runs_leaves_nothing() -> None:
    # The library under a program's own Ctrl-C: no receiver, just KeyboardInterrupt.
    mark = secrets.token_hex(8)

    async def interrupted() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call, command("sleep 60", env={**os.environ, "TEST_MARK": mark}))
            while not marked(mark):
                await trio.sleep(0.005)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(BaseExceptionGroup) as raised:
        trio.run(interrupted, strict_exception_groups=True)
    assert raised.value.split(KeyboardInterrupt)[1] is None
    assert not marked(mark)
    assert not children()


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX only")
