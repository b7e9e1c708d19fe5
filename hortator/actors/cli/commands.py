"""What the commands do, once their flags have been read and checked."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from rich.text import Text

from hortator.actors.cli.demo import demo_job, print_tour
from hortator.actors.cli.play import Stop, play
from hortator.actors.cli.report import hand_over, print_account, print_line
from hortator.actors.cli.settings import Prepared
from hortator.actors.recorder import Recorder, record_to
from hortator.protocols.errors import InvalidJob


def run(request: bytes, prepared: Prepared) -> int:
    """Do `hortator run`. Returns the exit code.

    Raises:
        InvalidJob: the file for the events cannot be opened.
    """
    job, settings = prepared.job, prepared.settings
    with Stop(*prepared.commands) as stop, _recording(settings.events) as recorder:
        result = play(job, request, seed=settings.seed, stop=stop, recorder=recorder)
        print_account(result, job, settings.ballot)
        if settings.json:
            code = hand_over(result.to_json().encode() + b"\n")
        else:
            code = hand_over(b"" if result.selected is None else result.output)
        return code or stop.exit_code(result)


def run_many(text: bytes, prepared: Prepared, *, jobs: int, out: str | None) -> int:
    """Do `hortator run --jobs-from`. Returns the exit code.

    Args:
        text: the requests, one a line.
        prepared: what is run for each.
        jobs: how many runs at a time.
        out: the file that answers are added to; None for standard output.

    Raises:
        InvalidJob: a line is no request, or a file cannot be opened.
    """
    # Here, and not above: who has one request does not wait for pydantic.
    from hortator.actors.cli.answers import opened
    from hortator.actors.cli.many import Many
    from hortator.protocols.joblines import read_requests

    try:
        asked = read_requests(text)
    except InvalidJob as error:
        raise InvalidJob(f"--jobs-from, {error}") from error
    with (
        Stop(*prepared.commands) as stop,
        opened(out) as answers,
        _recording(prepared.settings.events) as recorder,
    ):
        return Many(prepared, asked, answers).play(jobs, stop, recorder)


@contextlib.contextmanager
def _recording(path: str | None) -> Generator[Recorder | None]:
    """A recorder into this file, or None; what could not be written is told at the end."""
    if path is None:
        yield None
        return
    try:
        recorder = record_to(path)
    except OSError as error:
        raise InvalidJob(f"--events {path}: it cannot be written to: {error.strerror}") from error
    try:
        yield recorder
    finally:
        try:
            recorder.close()
        except OSError as error:
            print_line(Text(f"hortator: {path} is not whole: {error.strerror}", "bold red"))


def demo(*, n: int, concurrency: int, timeout: float | None, seed: int | None, json: bool) -> int:
    """Do `hortator demo`: flags as there. Returns the exit code."""
    job, text, solver = demo_job(n=n, concurrency=concurrency, timeout=timeout)
    with Stop(solver) as stop:
        result = play(job, text, seed=seed, stop=stop)
        print_account(result, job)
        code = hand_over(result.to_json().encode() + b"\n") if json else print_tour(result)
        return code or stop.exit_code(result)
