"""A process and its group: born together, watched, signalled, and searched for.

What is here knows nothing of candidates; `hortator.actors.process` says when which of it is
done, and why.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence

import attrs
import trio

from hortator.protocols.command import CommandNotStarted
from hortator.protocols.showing import on_one_line

MARK = "HORTATOR_ATTEMPT"
"""The environment variable that a group's processes are found by."""

_CHUNK = 65536
_MOST_IN_A_PIPE = 1024 * 1024
"""Bytes that a pipe holds at most, unless somebody has raised Linux's limit."""

_log = logging.getLogger("hortator")


@attrs.define(eq=False)
class Group:
    """A running command: the process that we started, its pipes, and the group that it leads.

    Invariant: from its birth until `close` the leader is not reaped, and only in that time is
    the group signalled. A group's id is its leader's pid. While the leader is at least a zombie
    nobody else gets that number; once it is reaped and its group empty a stranger may, and a
    late signal would hit him. So the leader's end is seen through a pidfd, which does not reap.

    (Where there are no pidfds the leader is reaped when it ends. A group that still has members
    is ours even then; an empty one is ours in all likelihood.)
    """

    process: trio.Process
    stdin: trio.lowlevel.FdStream
    stdout: trio.lowlevel.FdStream
    stderr: trio.lowlevel.FdStream
    _pidfd: int | None
    _closed: bool = attrs.field(default=False, init=False)

    @property
    def id(self) -> int:
        """The group's id, which is the leader's pid."""
        return self.process.pid

    async def leader_ended(self) -> None:
        """Wait until the leader has ended. Can be cancelled and asked again."""
        if self._pidfd is None:
            await self.process.wait()
        else:
            await trio.lowlevel.wait_readable(self._pidfd)

    async def feed(self, text: bytes) -> None:
        """Write all of its input and close it; cancelled, it may have got a part of it."""
        # A command that does not read its input, or not all of it, is in its right.
        with contextlib.suppress(trio.BrokenResourceError):
            await self.stdin.send_all(text)
        self.stdin.close()

    def signal(self, signum: int) -> None:
        """Send a signal to every process of the group; nothing once it is closed."""
        if not self._closed:
            # macOS says "not permitted" of a group that is all zombies.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.id, signum)

    def drain(self, stream: trio.lowlevel.FdStream, take: Callable[[bytes], None]) -> None:
        """Take what is in a pipe now, without waiting; bounded, for somebody may be filling it."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_IN_A_PIPE // _CHUNK):
                take(os.read(stream.fileno(), _CHUNK))

    def close(self) -> None:
        """Close all files and reap the leader: now, or when it ends, if it has not yet."""
        self._closed = True
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        if self._pidfd is not None:
            trio.lowlevel.notify_closing(self._pidfd)
            os.close(self._pidfd)
        if self.process.poll() is None:
            trio.lowlevel.spawn_system_task(_reap, self.process)


async def _reap(process: trio.Process) -> None:
    """Reap a process that was sent SIGKILL, and say so if that takes long."""
    with trio.move_on_after(1):
        await process.wait()
        return
    _log.warning("process %d does not end, though it was sent SIGKILL", process.pid)
    await process.wait()


async def start(
    words: Sequence[str], env: Mapping[str, str], cwd: str | os.PathLike[str] | None
) -> Group:
    """Start a command as the leader of a session and group of its own.

    Cancelled: either nothing was started and `Cancelled` is raised, or the group is returned.

    Args:
        words: the program and its arguments.
        env: its whole environment.
        cwd: the folder to run it in; None for ours.

    Raises:
        CommandNotStarted: there is no such program, or the system refused.
    """
    try:
        process = await trio.lowlevel.open_process(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=env,
            cwd=cwd,
        )
    except OSError as error:
        raise CommandNotStarted(words, _why(error, words[0], cwd)) from error
    stdin, stdout, stderr = map(_pipe, (process.stdin, process.stdout, process.stderr))
    return Group(process, stdin, stdout, stderr, _open_pidfd(process.pid))


def _why(error: OSError, program: str, cwd: str | os.PathLike[str] | None) -> str:
    if cwd is not None and not os.path.isdir(cwd):
        return f"there is no folder {os.fspath(cwd)!r} to run it in"
    if error.errno != errno.ENOENT:
        return error.strerror or str(error)
    if "/" not in program:
        return "no such program on PATH; a word of the shell needs sh -c"
    if os.path.exists(os.path.join(cwd or "", program)):
        return "the program that its first line names, or its loader, is missing"
    return "no such file"


def _pipe(stream: object) -> trio.lowlevel.FdStream:
    assert isinstance(stream, trio.lowlevel.FdStream)
    return stream


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, an old one, or a sandbox that forbids it
        return None


@attrs.frozen
class Found:
    """A live process that carries a mark.

    Attributes:
        pid: its number.
        group: the id of the group that it is in.
        attempt: the number that its mark ends with, or None.
        command: its words, cut, safe to print.
    """

    pid: int
    group: int
    attempt: int | None
    command: str


@attrs.define(eq=False)
class Lookout:
    """Finds the processes of attempts, one search for all that ask at the same time.

    When a deadline ends many attempts at once, a search for each would take longer than the
    grace. For the tasks of one `trio.run` at a time.

    Attributes:
        mark: what all its attempts' marks begin with.
    """

    mark: str = attrs.field(factory=lambda: secrets.token_hex(12))
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _begun: int = attrs.field(default=0, init=False)
    _ended: int = attrs.field(default=0, init=False)
    _found: list[Found] = attrs.field(factory=list[Found], init=False)

    def environment(self, env: Mapping[str, str], attempt: int) -> dict[str, str]:
        """`env`, with the mark of an attempt in it."""
        mark = f"{self.mark}-{attempt}"
        # Under an outer Hortator its mark stays in ours, so that it finds our processes too.
        outer = os.environ.get(MARK)
        return {**env, MARK: f"{outer}:{mark}" if outer else mark}

    async def look(self, attempt: int) -> list[Found]:
        """All live processes of an attempt, by a search that was begun after this call."""
        asked = self._begun
        async with self._lock:
            if self._ended <= asked:
                self._begun += 1
                self._found = await trio.to_thread.run_sync(
                    marked, self.mark, abandon_on_cancel=True
                )
                self._ended = self._begun
            return [found for found in self._found if found.attempt == attempt]


def marked(mark: str) -> list[Found]:
    """Find all live processes with `mark` in the environment that they were started with.

    Blocks for some 5 µs for each process of the system: for a worker thread. Not found are
    processes of other users, and those that were started with another environment; without
    /proc (outside Linux), none.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    pattern = re.compile(re.escape(mark.encode()) + rb"(?:-(\d+))?")
    return [found for name in names if name.isdigit() and (found := _if_marked(name, pattern))]


def _if_marked(pid: str, pattern: re.Pattern[bytes]) -> Found | None:
    try:
        # A zombie's is empty, and another user's is forbidden.
        mark = pattern.search(_read(f"/proc/{pid}/environ"))
        if mark is None:
            return None
        # "pid (name) state parent group ...", and the name may hold anything.
        group = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[2]
        words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ")
    except OSError:  # it has ended meanwhile, or is not ours to see
        return None
    return Found(int(pid), int(group), int(mark[1]) if mark[1] else None, on_one_line(words, 200))


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()
