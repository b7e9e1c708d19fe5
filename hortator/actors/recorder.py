"""Writes the events of a run to a file as they happen, one line of JSON each; reads them back."""

from __future__ import annotations

import inspect
import io
import os
from pathlib import Path
from types import TracebackType
from typing import Protocol

from hortator.protocols.errors import InvalidJob, InvalidReport
from hortator.protocols.events import Event
from hortator.protocols.recording import event_line, read_event


class TextFile(Protocol):
    """A file that is open for text, or anything that text can be written to."""

    def write(self, text: str, /) -> object:
        """Take some text."""
        ...

    def flush(self) -> object:
        """Hand on what was written."""
        ...


class Recorder:
    """An observer that writes each event as a line; made by `record_to`.

    Attributes:
        lines: how many it has written.
        closed: nothing more can be written.
    """

    lines: int
    closed: bool

    def __init__(self, file: TextFile, *, owned: bool) -> None:
        self._file, self._owned = file, owned
        self.lines = 0
        self.closed = False

    def __call__(self, event: Event) -> None:
        """Write the event's line.

        Raises:
            OSError: the file cannot be written to.
            ValueError: it was closed.
        """
        if self.closed:
            raise ValueError(
                f"the recorder was closed before the event {event.sequence} of {event.run_id}:"
                " leave `with record_to(...)` after the runtime that it observes"
            )
        self._file.write(f"{event_line(event)}\n")
        self.lines += 1
        if event.terminal:
            self._file.flush()

    def close(self) -> None:
        """Write out what is left; close the file if it was opened by its path. Once is enough.

        Raises:
            OSError: what was left cannot be written.
        """
        if self.closed:
            return
        self.closed = True
        if self._owned and isinstance(self._file, io.IOBase):
            self._file.close()
        else:
            self._file.flush()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def record_to(file: str | os.PathLike[str] | TextFile) -> Recorder:
    """An observer that writes each event as a line of JSON, for `read_events` to read back.

    A run's observer is told of that run; the runtime's of all its runs and of what outlives them,
    so close it after the runtime. It is a sync observer: what it raises (a full disk, say) is
    counted, or fails a run that asks for that, as with any other. It writes on the loop; if the
    file may be slow, pass `in_thread(recorder)` and close the recorder itself.

    Args:
        file: a path, whose file is opened at once and replaced if it exists; or a file that is open
            for text, which is flushed but not closed.

    Raises:
        OSError: the path cannot be opened.
        InvalidJob: it is no path, and text cannot be written to it.

    >>> async def main(job):
    ...     with record_to("run.jsonl") as recorder:
    ...         async with open_runtime(observers=[recorder]) as runtime:
    ...             return await runtime.run(job, "question")
    """
    if isinstance(file, (str, os.PathLike)):
        # A line is out as soon as it is whole: a process that is killed leaves what it has seen.
        opened = open(file, "w", encoding="utf-8", newline="\n", buffering=1)  # noqa: SIM115
        return Recorder(opened, owned=True)
    given: object = file
    write = getattr(given, "write", None)
    if (
        not callable(write)
        or not callable(getattr(given, "flush", None))
        or inspect.iscoroutinefunction(write)
        or isinstance(given, (io.RawIOBase, io.BufferedIOBase))
    ):
        raise InvalidJob(
            f"record_to({file!r}): write a path, or a file that is open for text,"
            " such as open(path, 'a', encoding='utf-8')"
        )
    return Recorder(file, owned=False)


def read_events(path: str | os.PathLike[str]) -> list[Event]:
    """All events of a file that `record_to` wrote, in the order of their lines.

    Errors come back as `RecordedError`, and the data of emitted events as JSON has it. Empty lines
    are passed over, so files can be put together.

    Raises:
        OSError: it cannot be read.
        InvalidReport: a line is no event; the message has its number.
    """
    events: list[Event] = []
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            events.append(read_event(line))
        except InvalidReport as error:
            raise InvalidReport(f"{os.fspath(path)}, line {number}: {error}") from error
    return events
