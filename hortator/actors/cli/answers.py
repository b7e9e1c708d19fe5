"""Where the answers to many requests go: a file that is added to, or standard output."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from typing import Protocol

from hortator.actors.cli.report import hand_over
from hortator.protocols.errors import InvalidJob
from hortator.protocols.joblines import read_answers


class Answers(Protocol):
    """Takes lines."""

    @property
    def done(self) -> frozenset[str]:
        """The ids that were answered by earlier calls."""
        ...

    def add(self, line: bytes) -> int:
        """Write a whole line; return 0, or what to exit with instead."""
        ...


class ToStdout:
    """Standard output: nobody knows what was written there before."""

    done: frozenset[str] = frozenset()

    def add(self, line: bytes) -> int:
        """Write a line."""
        return hand_over(line)


class ToFile:
    """A file that holds one whole line for each id that is done.

    Invariant: it is ours alone, and ends with a line break before each line that we add. So
    whenever we are killed, at most the last line is torn, and the next call takes that off.

    Attributes:
        done: the ids that were in it.
    """

    done: frozenset[str]

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor
        with open(descriptor, "rb", closefd=False) as file:
            text = file.read()
        self.done, whole = read_answers(text)
        if whole < len(text):
            os.ftruncate(descriptor, whole)

    def add(self, line: bytes) -> int:
        """Add a line at its end.

        Raises:
            OSError: it cannot be written.
        """
        left = memoryview(line)
        while left:
            left = left[os.write(self._file, left) :]
        return 0


@contextlib.contextmanager
def opened(path: str | None) -> Generator[Answers]:
    """Where answers go: a file, ours alone for as long, or standard output if that is None.

    Raises:
        InvalidJob: it cannot be opened, somebody else adds to it, or it holds something else.
    """
    if path is None:
        yield ToStdout()
        return
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InvalidJob(f"--out {path}: it cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            answers = ToFile(descriptor)
        except BlockingIOError as error:
            raise InvalidJob(f"--out {path}: another call is adding to it") from error
        except OSError as error:
            raise InvalidJob(f"--out {path}: {error.strerror}") from error
        except InvalidJob as error:
            raise InvalidJob(f"--out {path}: {error}") from error
        yield answers
    finally:
        os.close(descriptor)
