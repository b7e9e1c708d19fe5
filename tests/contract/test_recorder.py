"""`record_to` and `read_events`: a run on disk, line by line.

* Every event that the observer is told is a line, in order, out as soon as it is told.
* A file that cannot be written to is an observer that raises, and nothing worse.
* A recorder that is closed says so; closing twice is once.
* The record in `tests/data` is read by today's code: whoever breaks that gives the format a new
  number. `python -m tests.recorded_run` has made it, and still makes one like it.
"""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest
import trio
from trio.testing import MockClock

from hortator import (
    Event,
    InvalidJob,
    InvalidReport,
    ObserverFailed,
    RunResult,
    Status,
    in_thread,
    open_runtime,
    read_events,
    record_to,
)
from hortator.protocols.events import CandidateEnded, Emitted, LateEnd, RunFinished
from hortator.protocols.recording import event_line, read_event
from tests import recorded_run
from tests.contract.scenes import Record, job


async def test_every_event_is_a_line(autojump_clock: MockClock, tmp_path: Path) -> None:
    path, record = tmp_path / "run.jsonl", Record()
    with record_to(path) as recorder:
        async with open_runtime() as runtime:
            await runtime.run(job(), "q", observers=[recorder, record])
        assert read_events(path) == record.events, "not out before the file is closed"
    assert read_events(path) == record.events
    assert recorder.lines == len(record.events) == 21
    assert path.read_bytes().count(b"\n") == 21


async def test_a_line_is_out_as_soon_as_it_is_told(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    seen: list[int] = []

    def look(event: Event) -> None:
        seen.append(len(read_events(path)))

    path = tmp_path / "run.jsonl"
    with record_to(path) as recorder:
        async with open_runtime() as runtime:
            await runtime.run(job(), "q", observers=[recorder, look])
    assert seen == sorted(seen)
    assert seen[0] >= 1
    assert seen[-1] == 21


async def test_several_runs_in_one_file_are_told_apart_by_their_ids(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    with record_to(path) as recorder:
        async with open_runtime(observers=[recorder]) as runtime:
            results = [await runtime.run(job(), "q") for _ in range(2)]
    ids = Counter(event.run_id for event in read_events(path))
    assert ids == {result.run_id: 21 for result in results}


async def test_in_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with record_to(path) as recorder:
        async with open_runtime() as runtime:
            await runtime.run(job(), "q", observers=[in_thread(recorder)])
    assert [event.sequence for event in read_events(path)] == list(range(21))


async def test_an_open_file_is_flushed_and_stays_open(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("\n")
    with open(path, "a", encoding="utf-8") as file:
        with record_to(file) as recorder:
            async with open_runtime() as runtime:
                await runtime.run(job(), "q", observers=[recorder])
            assert len(read_events(path)) == 21, "the terminal event does not flush the file"
        assert not file.closed
    memory = io.StringIO()
    with record_to(memory) as recorder:
        recorder(read_events(path)[0])
    assert memory.getvalue() == event_line(read_events(path)[0]) + "\n"


def test_a_file_that_was_there_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("no event\n")
    record_to(str(path)).close()
    assert read_events(path) == []


class Full(io.StringIO):
    """A disk that has room for three events."""

    def write(self, text: str, /) -> int:
        if self.tell() > 300:
            raise OSError(28, "No space left on device")
        return super().write(text)


async def test_a_full_disk_is_counted_and_the_run_goes_on(autojump_clock: MockClock) -> None:
    recorder = record_to(Full())
    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[recorder])
    assert (result.output, result.stop_reason) == (3, "completed")
    assert result.telemetry.observer_errors == 21 - recorder.lines > 0
    assert result.telemetry.delivered == recorder.lines > 0


async def test_a_full_disk_fails_the_run_that_asks_for_it(autojump_clock: MockClock) -> None:
    async with open_runtime() as runtime:
        with pytest.raises(ObserverFailed) as caught:
            await runtime.run(job(), "q", observers=[record_to(Full())], on_observer_error="raise")
    assert isinstance(caught.value.__cause__, OSError)


async def test_a_recorder_that_was_closed_says_so(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    with record_to(tmp_path / "run.jsonl") as recorder:
        pass
    recorder.close()
    assert recorder.closed
    with pytest.raises(ValueError, match="leave `with record_to"):
        recorder(read_event(event_line(recorded()[0])))
    async with open_runtime() as runtime:
        result = await runtime.run(job(), "q", observers=[recorder])
    assert result.telemetry.observer_errors == 21


class AsyncFile:
    async def write(self, text: str) -> None: ...

    async def flush(self) -> None: ...


@pytest.mark.parametrize("file", [None, 3, io.BytesIO(), AsyncFile(), object()])
def test_what_no_text_can_be_written_to_is_refused_at_once(file: Any) -> None:
    with pytest.raises(InvalidJob, match="write a path, or a file that is open for text"):
        record_to(file)


def test_a_path_that_cannot_be_opened_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        record_to(tmp_path / "no" / "folder")


@pytest.mark.parametrize("ending", ['{"format": "hortator.ev', "\xff", "{}"])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "run.jsonl"
    with record_to(path) as recorder:
        recorder(recorded()[0])
    with path.open("ab") as file:
        file.write(b"\n" + ending.encode("latin-1"))
    with pytest.raises(InvalidReport, match=r"run.jsonl, line 3: this is not the line of an event"):
        read_events(path)


# -- the kept record -----------------------------------------------------------------------------


def recorded() -> list[Event]:
    return read_events(recorded_run.EVENTS)


def report() -> RunResult[Any]:
    return RunResult.from_json(recorded_run.REPORT.read_bytes())


def test_the_kept_record_is_read_and_has_every_class_of_event() -> None:
    assert {type(event) for event in recorded()} == set(get_args(Event))


def test_the_kept_record_has_every_sort_of_end() -> None:
    result = report()
    ended = {event.status for event in recorded() if isinstance(event, CandidateEnded)}
    assert ended == {
        Status.ELIGIBLE,
        Status.REJECTED,
        Status.GENERATION_FAILED,
        Status.SCORING_FAILED,
        Status.BUDGET_EXCEEDED,
        Status.TIMED_OUT,
        Status.GENERATING,
    }
    assert any(c.detached for c in result.candidates)
    assert any(c.partial for c in result.candidates)
    assert any(c.status is Status.SKIPPED for c in result.candidates)


def check(events: list[Event], result: RunResult[Any]) -> None:
    """What holds between the events of a run and its result."""
    own = [event for event in events if not isinstance(event, LateEnd)]
    assert [event.sequence for event in own] == list(range(result.telemetry.events))
    assert {event.run_id for event in events} == {result.run_id}
    assert [event.terminal for event in own] == [False] * (len(own) - 1) + [True]
    finished = own[-1]
    assert isinstance(finished, RunFinished)
    assert finished.statuses == Counter(c.status for c in result.candidates)
    assert finished.detached == tuple(c.index for c in result.candidates if c.detached)
    assert result.selected is not None
    assert finished.selected == result.selected.index
    assert (finished.stop_reason, finished.partial) == (result.stop_reason, result.partial)
    assert finished.charged == result.usage.charged
    for event in own:
        if isinstance(event, CandidateEnded):
            candidate = result.candidates[event.candidate]
            assert (candidate.status, candidate.detached) == (event.status, event.detached)
            assert str(candidate.error) == str(event.error)
    late = [event for event in events if isinstance(event, LateEnd)]
    assert [event.candidate for event in late] == list(finished.detached)


def test_the_kept_record_fits_its_report() -> None:
    check(recorded(), report())


def test_what_callbacks_told_in_the_kept_record() -> None:
    emitted = [event for event in recorded() if isinstance(event, Emitted)]
    assert [event.kind for event in emitted] == ["token", "finished"]
    assert emitted[0].data == {"text": "Grüße 🚣", "seen": {"of": [1, None]}, "part": "b'\\xff'"}
    best = report().selected
    assert best is not None
    assert (best.output, best.score.value if best.score else None) == ("{'index': 7}", 0.9)


def test_the_kept_record_is_written_again_as_it_was() -> None:
    lines = recorded_run.EVENTS.read_text(encoding="utf-8").splitlines()
    for line in lines:
        # A later version may write more; what was there, it writes as it was.
        again = event_line(read_event(line))
        assert read_event(again) == read_event(line) or "error" in line
    assert RunResult.from_json(report().to_json()).to_json() == report().to_json()


def test_the_run_of_the_record_still_goes_like_that(tmp_path: Path) -> None:
    clock = MockClock(autojump_threshold=0)
    result = trio.run(recorded_run.play, tmp_path / "run.jsonl", clock=clock)
    events = read_events(tmp_path / "run.jsonl")
    check(events, result)
    assert Counter(map(type, events)) == Counter(map(type, recorded()))
    assert [c.status for c in result.candidates] == [c.status for c in report().candidates]
    assert RunResult.from_json(result.to_json()).to_json() == result.to_json()
