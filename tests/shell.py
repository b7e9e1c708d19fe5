"""Starts the command line as a person does: real processes, real signals, real pipes.

Whatever a test starts has the test's mark in its environment, so that it can be found, and
killed if it outlives the test.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

import attrs

from hortator.actors.group import marked

LIMIT = 30.0
"""Seconds after which a test gives up on the command: far more than it ever needs."""


@attrs.define
class Shell:
    """Starts the command line, and knows what it has left behind."""

    mark: str
    started: list[subprocess.Popen[bytes]] = attrs.Factory(list)

    def start(
        self, *arguments: str, before: tuple[str, ...] = (), **options: Any
    ) -> subprocess.Popen[bytes]:
        options = {"stdin": subprocess.DEVNULL, "stdout": -1, "stderr": -1, **options}
        child = subprocess.Popen(
            [*before, sys.executable, "-m", "hortator", *arguments],
            env={**os.environ, "TEST_MARK": self.mark, "COLUMNS": "80"},
            **options,
        )
        self.started.append(child)
        return child

    def __call__(self, *arguments: str, feed: bytes | None = None) -> Done:
        child = self.start(*arguments, stdin=subprocess.DEVNULL if feed is None else -1)
        return finish(child, feed)

    def living(self) -> list[str]:
        return [found.command for found in marked(self.mark)]


@attrs.frozen
class Done:
    code: int
    output: bytes
    told: str


def finish(child: subprocess.Popen[bytes], feed: bytes | None = None) -> Done:
    output, told = child.communicate(feed, timeout=LIMIT)
    return Done(child.returncode, output, told.decode())


def line_with(stream: IO[bytes] | None, word: bytes) -> bytes:
    """Read lines up to the first with this word in it."""
    assert stream is not None
    for line in stream:
        if word in line:
            return line
    raise AssertionError(f"no line with {word!r}")


def rest(child: subprocess.Popen[bytes]) -> Done:
    """What is left to read of a child whose standard error has been read in part."""
    told: list[bytes] = []
    assert child.stderr is not None
    assert child.stdout is not None
    reader = threading.Thread(target=lambda: told.append(child.stderr.read()))  # type: ignore[union-attr]
    reader.start()
    output = child.stdout.read()
    reader.join()
    return Done(child.wait(LIMIT), output, told[0].decode())


@contextlib.contextmanager
def opened() -> Iterator[Shell]:
    """A shell that kills what a test has left behind."""
    shell = Shell(secrets.token_hex(8))
    try:
        yield shell
    finally:
        for child in shell.started:
            if child.poll() is None:
                child.kill()
            with child:
                pass
        for found in marked(shell.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGKILL)
