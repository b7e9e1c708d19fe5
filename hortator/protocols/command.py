"""The rules of playing a candidate as a command: its words, its bounded output, its answer.

::

    InvalidJob
    └── BadCommand               the command cannot be run as it is written
    CandidateError
    └── CommandError             what became of one run of a command (has `.command`)
        ├── CommandNotStarted    no such file, not executable, too many arguments ...
        ├── CommandFailed        it ended with an exit code other than 0, or by a signal
        └── OutputTooLarge       it printed more than it may (has `.head`)
    InvalidScore
    └── NotAScore                a scorer's output is no number and no JSON object of one
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from typing import Any

import attrs

from hortator.protocols.errors import CandidateError, InvalidJob, InvalidScore
from hortator.protocols.interfaces import Remaining
from hortator.protocols.scoring import Score
from hortator.protocols.showing import on_one_line
from hortator.protocols.usage import DIMENSIONS, Usage, fault

MAX_OUTPUT = 8 * 1024 * 1024
"""Bytes that a command may print if nobody says otherwise."""

STDERR_KEPT = 2048
"""Bytes of its stderr's end that a failed command is remembered by."""

_SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
}
"""Those that have the same number on every POSIX system."""

_TOKEN = re.compile(r"\{(index|seed)\}")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class BadCommand(InvalidJob):
    """A command that cannot be run as it is written. Raised before anything starts."""


class CommandError(CandidateError):
    """What became of one run of a command.

    Attributes:
        command: the words that were run, quoted as a shell would read them.
    """

    def __init__(self, message: str, command: str) -> None:
        super().__init__(message)
        self.command = command


class CommandNotStarted(CommandError):
    """The system could not start the command; `__cause__` is its `OSError`."""

    def __init__(self, words: Sequence[str], why: str) -> None:
        super().__init__(f"cannot start {on_one_line(words[0], 200)}: {why}", shlex.join(words))


class CommandFailed(CommandError):
    """The command ended with an exit code other than 0, or by a signal.

    Attributes:
        exit_code: what it exited with, or None.
        signal: the number of the signal that ended it, or None.
        stderr: the last 2 KiB of what it wrote there.
    """

    def __init__(self, words: Sequence[str], returncode: int, stderr: str) -> None:
        self.exit_code: int | None = returncode if returncode >= 0 else None
        self.signal: int | None = -returncode if returncode < 0 else None
        self.stderr = stderr
        self._how = how_it_ended(returncode)
        said = stderr.strip()
        super().__init__(f"{self._how}: {said}" if said else self._how, shlex.join(words))

    @property
    def brief(self) -> str:
        """How it ended, and the last line of its stderr: where most programs say why."""
        lines = self.stderr.strip().splitlines()
        return f"{self._how}: {lines[-1].strip()}" if lines else self._how


class OutputTooLarge(CommandError):
    """The command printed more than it may, and was killed.

    Attributes:
        limit: bytes that it may print.
        head: the first `limit` bytes of its output.
    """

    def __init__(self, words: Sequence[str], limit: int, head: bytes) -> None:
        super().__init__(
            f"printed more than the {limit:,} bytes of max_output, and was killed",
            shlex.join(words),
        )
        self.limit = limit
        self.head = head


class NotAScore(InvalidScore):
    """A scorer printed something that is no number and no JSON object of one."""

    def __init__(self, output: bytes, why: str = "") -> None:
        seen = on_one_line(output, 80) if output.strip() else "nothing"
        super().__init__(
            f"the scorer printed {seen}{f' ({why})' if why else ''}; it has to print a finite"
            ' number, or {"score": 0.5, "accepted": true, "rationale": "why"}'
        )


@attrs.frozen
class Template:
    """A command with the tokens `{index}` and `{seed}` in it, split into words.

    Attributes:
        words: the program and its arguments, tokens not yet replaced.
    """

    words: tuple[str, ...]

    @classmethod
    def parse(cls, command: str | Sequence[str]) -> Template:
        """Read a command: a line, split by the quoting rules of a shell, or the words of one.

        No shell runs it: `|`, `>`, `*` and `$HOME` are plain words.

        Raises:
            BadCommand: it is empty, a quote is not closed, or it holds a zero byte.

        >>> Template.parse("solve --seed={seed} 'two words'").words
        ('solve', '--seed={seed}', 'two words')
        """
        try:
            words = shlex.split(command) if isinstance(command, str) else list(command)
        except ValueError as error:
            raise _bad(command, f"{str(error).lower()} in it") from error
        if not words or not words[0]:
            raise _bad(command, "it names no program")
        if any("\0" in word for word in words):
            raise _bad(command, "it holds a zero byte")
        return cls(tuple(words))

    def fill(self, *, index: int, seed: int) -> list[str]:
        """The words of one candidate: each token replaced, inside words too.

        Braces of any other kind stay as they are.

        >>> Template.parse("solve --seed={seed} {} {index}").fill(index=3, seed=7)
        ['solve', '--seed=7', '{}', '3']
        """
        values = {"index": str(index), "seed": str(seed)}
        return [_TOKEN.sub(lambda found: values[found[1]], word) for word in self.words]


def _bad(command: str | Sequence[str], why: str) -> BadCommand:
    return BadCommand(
        f"the command {command!r} cannot be run: {why}."
        " Write a program and its arguments, quoted as in a shell:"
        """ 'solve --seed {seed} "two words"'. No shell runs it; for a pipe or a variable"""
        """ write 'sh -c "..."'"""
    )


def check_max_output(limit: int) -> int:
    """Return `limit`, the bytes that a command may print.

    Raises:
        BadCommand: it is no whole number from 1 up.
    """
    if type(limit) is not int or limit < 1:
        raise BadCommand(f"max_output={limit!r}: write a whole number of bytes from 1 up")
    return limit


@attrs.define(eq=False)
class Head:
    """The first bytes of an output, and whether there were more.

    Attributes:
        limit: bytes that are kept.
        overflowed: whether more than `limit` bytes came.
    """

    limit: int
    overflowed: bool = attrs.field(default=False, init=False)
    _data: bytearray = attrs.field(factory=bytearray, init=False)

    def add(self, chunk: bytes | bytearray) -> None:
        """Take what came next.

        >>> head = Head(3)
        >>> head.add(b"abcd")
        >>> head.data, head.overflowed
        (b'abc', True)
        """
        room = self.limit - len(self._data)
        self._data += chunk[:room]
        self.overflowed = self.overflowed or len(chunk) > room

    @property
    def data(self) -> bytes:
        """What was kept."""
        return bytes(self._data)


@attrs.define(eq=False)
class Tail:
    """The last bytes of an output, however long it is.

    Attributes:
        limit: bytes that are kept.
    """

    limit: int
    _data: bytearray = attrs.field(factory=bytearray, init=False)

    def add(self, chunk: bytes | bytearray) -> None:
        """Take what came next.

        >>> tail = Tail(3)
        >>> tail.add(b"abcd")
        >>> tail.text
        'bcd'
        """
        self._data += chunk[-self.limit :]
        del self._data[: -self.limit]

    @property
    def text(self) -> str:
        """What was kept, as text; bytes that are not UTF-8 are marked with U+FFFD."""
        return self._data.decode(errors="replace")


def read_answer(output: bytes) -> Score:
    """Read what a scorer printed: a finite number, or a JSON object with one.

    Raises:
        NotAScore: it is something else; the message shows it and what would be right.

    >>> read_answer(b" 7542").value
    7542.0
    >>> read_answer(b'{"score": 0.5, "accepted": false}').accepted
    False
    """
    text = output.strip()
    if _NUMBER.fullmatch(text):
        value = float(text)
        if not math.isfinite(value):
            raise NotAScore(output, "too large for a float")
        return Score(value)
    if not text.startswith(b"{"):
        raise NotAScore(output)
    # Here, and not above: importing pydantic costs more than everything else in this library.
    from hortator.protocols.answer import read_object

    try:
        return read_object(text)
    except ValueError as error:
        raise NotAScore(output, str(error)) from error.__cause__


def beyond(spent: Usage, left: Remaining) -> Usage | None:
    """How much more was spent than is left; None if nothing.

    >>> beyond(Usage(model_calls=3), Remaining(seconds=None, model_calls=1)).model_calls
    2
    """
    if fault(spent) is not None:
        return None
    over: dict[str, Any] = {}
    for name in DIMENSIONS:
        room = getattr(left, name, None)
        if room is not None and getattr(spent, name) > room:
            over[name] = getattr(spent, name) - room
    return Usage(**over) if over else None


def how_it_ended(returncode: int) -> str:
    """Say how a process ended; `returncode` as `subprocess` gives it, negative for a signal.

    >>> how_it_ended(3), how_it_ended(-9)
    ('exit code 3', 'killed by SIGKILL')
    """
    if returncode >= 0:
        return f"exit code {returncode}"
    return f"killed by {_SIGNALS.get(-returncode, f'signal {-returncode}')}"
