"""Candidates and scorers that are commands: each attempt a process group that ends with it.

How a command ends
    It is over when its *leader*, the process that we started, has ended. What is in its pipes
    within `LAST_WORDS` after that is its output, so a child that holds a pipe open delays
    nothing. Then the group is killed, after a good end too: no child survives it.

    When it is cancelled (a deadline, a stop, Ctrl-C), the group gets SIGTERM at once, and
    SIGKILL at 40 % of the grace or as soon as its leader and the rest are gone. A command that
    prints more than `max_output` gets SIGKILL at once.

What left the group
    A child that called `setsid` is out of reach of its group's signals. Each attempt has a mark
    in its environment, which children inherit, orphans too. What carries it after the end is
    told as an event `escaped` (pids, commands) and logged as a warning. It is not killed:
    who leaves the group on purpose may be meant to stay. For the limits see `group.marked`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

import attrs
import trio

from hortator.actors.group import Found, Group, Lookout, start
from hortator.actors.usage_file import USAGE, UsageFile
from hortator.protocols.candidate import Generated
from hortator.protocols.command import (
    MAX_OUTPUT,
    STDERR_KEPT,
    CommandFailed,
    Head,
    OutputTooLarge,
    Tail,
    Template,
    beyond,
    check_max_output,
    read_answer,
)
from hortator.protocols.errors import LeaseExceeded, RunEnded
from hortator.protocols.interfaces import CandidateContext
from hortator.protocols.scoring import Score

LAST_WORDS = 0.05
"""Seconds after the leader's end in which its pipes are still read."""

PATIENCE = 0.1
"""Seconds from SIGTERM to SIGKILL where no grace says otherwise."""

LOOK = 0.005
"""Seconds between two looks at who is left of a group."""

SEARCH = 0.25
"""Seconds that cleaning up after a good end may take."""

_log = logging.getLogger("hortator")


def command(
    template: str | Sequence[str],
    *,
    max_output: int = MAX_OUTPUT,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    usage: bool = False,
) -> Command:
    """A generator whose candidates are runs of a command.

    The request (bytes, or text as UTF-8) goes to its standard input; its standard output is
    the candidate: bytes, as they came. POSIX only.

    Args:
        template: the command, as a line or as words; `{index}` and `{seed}` are replaced in
            each word. No shell runs it.
        max_output: bytes that it may print; above that it is killed and has failed.
        env: its whole environment, as for `subprocess`; None for ours.
        cwd: the folder to run it in; None for ours.
        usage: whether it may report what it has used: it then has the path of a file in its
            environment as `HORTATOR_USAGE`, to which it writes a JSON object a line, such as
            `{"model_calls": 1, "cost": "0.002"}`, with the fields of `Usage`. They are added up
            and charged when it has ended, however it ended. Where that is more than its lease
            covers, more is reserved first. A report that can't be true is in the run's
            `usage.malformed`, and the estimate is charged.

    Raises:
        BadCommand: the template is empty, a quote in it is not closed, or the limit is no limit.

    >>> command("solve --seed {seed}").template.words
    ('solve', '--seed', '{seed}')
    """
    if usage:
        # Now, and not at the first report: importing pydantic would hold the loop for a while.
        import_module("hortator.protocols.reported")
    return Command(Template.parse(template), check_max_output(max_output), env, cwd, usage)


def command_scorer(
    template: str | Sequence[str],
    *,
    max_output: int = MAX_OUTPUT,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    usage: bool = False,
) -> CommandScorer:
    """A scorer that is a command: the candidate's output goes to its standard input.

    It prints a number, or a JSON object `{"score": 0.5, "accepted": true, "rationale": "..."}`
    of which only `score` has to be there. Arguments and errors as for `command`.
    """
    # Now, and not at the first answer: importing pydantic would hold the loop for a while.
    import_module("hortator.protocols.answer")
    return CommandScorer(command(template, max_output=max_output, env=env, cwd=cwd, usage=usage))


@attrs.define(eq=False)
class Command:
    """Runs one command, once for each candidate; made by `command`.

    May be used by any number of runs, in one `trio.run` at a time.

    Attributes:
        template: the words, tokens not yet replaced.
        max_output: bytes that it may print.
        env: its whole environment, or None for ours.
        cwd: the folder it runs in, or None for ours.
        usage: whether it may report what it has used.
    """

    template: Template
    max_output: int = MAX_OUTPUT
    env: Mapping[str, str] | None = None
    cwd: str | os.PathLike[str] | None = None
    usage: bool = False
    _lookout: Lookout = attrs.field(factory=Lookout, init=False, repr=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False, repr=False)
    _attempts: set[_Attempt] = attrs.field(factory=set["_Attempt"], init=False, repr=False)
    _killed: bool = attrs.field(default=False, init=False, repr=False)

    async def __call__(self, request: str | bytes, ctx: CandidateContext) -> bytes:
        """Run the command for one candidate and return what it printed.

        Cancelled at any step, it leaves no process of the group, no zombie and no open file
        behind. (A process that even SIGKILL does not end in time is reaped when it does end,
        and logged if that takes long.) Cancelled or failed, what it had printed is published,
        without a score.

        Args:
            request: for its standard input; text as UTF-8.
            ctx: its `index` and `seed` replace the tokens.

        Raises:
            CommandNotStarted: there is no such program, or the system refused to start it.
            CommandFailed: it ended with an exit code other than 0, or by a signal.
            OutputTooLarge: it printed more than `max_output`.
            TypeError: the request is neither text nor bytes.
        """
        head, whole = Head(self.max_output), False
        try:
            output = await self.run(request, ctx, head)
            whole = True
            return output
        finally:
            if head.data and not whole:
                ctx.publish(head.data)

    async def run(self, feed: str | bytes, ctx: CandidateContext, head: Head) -> bytes:
        """As calling it, but nothing is published: what it prints is collected in `head`."""
        words = self.template.fill(index=ctx.index, seed=ctx.seed)
        told = UsageFile() if self.usage else None
        attempt = _Attempt(words, ctx, head, next(self._numbers), self._lookout, told)
        self._attempts.add(attempt)
        whole = False
        try:
            output = await attempt.run(_as_bytes(feed), self)
            await attempt.make_room()
            whole = True
        finally:
            self._attempts.discard(attempt)
            attempt.charge(quietly=not whole)
        return output

    @property
    def running(self) -> int:
        """How many attempts are starting, running or being cleaned up."""
        return len(self._attempts)

    @property
    def killed(self) -> bool:
        """Whether `kill` was called."""
        return self._killed

    def kill(self) -> None:
        """Send SIGKILL to the group of every attempt, now and for good; for leaving at once.

        Each attempt then fails as any command that was killed. What is being started at this
        moment is killed at its birth: wait until `running` is 0.
        """
        self._killed = True
        for attempt in self._attempts:
            attempt.kill()
            attempt.forget()


@attrs.define(eq=False)
class CommandScorer:
    """Scores each candidate by running a command; made by `command_scorer`.

    Attributes:
        command: what is run.
    """

    command: Command

    async def __call__(
        self, request: object, candidate: Generated[bytes] | Generated[str], ctx: CandidateContext
    ) -> Score:
        """Run the command with the candidate's output and read its answer.

        Cancelled, it leaves behind as little as a `Command` does.

        Raises:
            NotAScore: it printed something that is no score.
            CommandNotStarted, CommandFailed, OutputTooLarge: as for a `Command`.
        """
        head = Head(self.command.max_output)
        return read_answer(await self.command.run(candidate.output, ctx, head))


@attrs.define(eq=False)
class _Attempt:
    """One run of a command."""

    words: list[str]
    ctx: CandidateContext
    head: Head
    number: int
    lookout: Lookout
    told: UsageFile | None
    """Where it reports what it has used."""
    tail: Tail = attrs.field(factory=lambda: Tail(STDERR_KEPT), init=False)
    over: bool = attrs.field(default=False, init=False)
    """Its leader has ended by itself, or it printed too much: no need to ask it to end."""
    group: Group | None = attrs.field(default=None, init=False)

    # Protected, since a KeyboardInterrupt between the birth and `try` would leave an orphan.
    @trio.lowlevel.enable_ki_protection
    async def run(self, feed: bytes, owner: Command) -> bytes:
        env = self.lookout.environment(os.environ if owner.env is None else owner.env, self.number)
        if self.told is not None:
            env[USAGE] = self.told.path
        self.group = group = await start(self.words, env, owner.cwd)
        try:
            if owner.killed:
                self.kill()
            await self._converse(group, feed)
        finally:
            try:
                # The inner scope adds nothing to the shield of `cleanup` but what a linter sees.
                with (
                    self.ctx.cleanup(SEARCH if self.over else None),
                    trio.CancelScope(shield=True, deadline=trio.current_effective_deadline()),
                ):
                    await self._end(group)
            finally:
                # Whatever has cut that short: the group does not outlive these lines.
                self.kill()
                group.close()
        if self.head.overflowed:
            raise OutputTooLarge(self.words, self.head.limit, self.head.data)
        if group.process.returncode != 0:
            raise CommandFailed(self.words, group.process.returncode or 0, self.tail.text)
        return self.head.data

    async def make_room(self) -> None:
        """Reserve what was used beyond the lease: an estimate is none that nothing goes over."""
        spent = None if self.told is None else self.told.read()
        over = None if spent is None else beyond(spent, self.ctx.remaining())
        if over is not None:
            await self.ctx.reserve(over)

    def charge(self, *, quietly: bool) -> None:
        """Charge what was reported.

        Args:
            quietly: something else is on its way out, and is not to be replaced.
        """
        spent = None if self.told is None else self.told.read()
        self.forget()
        if spent is None:
            return
        with contextlib.suppress(*(LeaseExceeded, RunEnded) if quietly else ()):
            self.ctx.charge(spent)

    def forget(self) -> None:
        if self.told is not None:
            self.told.remove()

    def kill(self) -> None:
        if self.group is not None:
            self.group.signal(signal.SIGKILL)

    async def _converse(self, group: Group, feed: bytes) -> None:
        """Feed and hear the command until its leader has ended, or it printed too much."""
        async with trio.open_nursery() as nursery:
            quiet = trio.Event()
            nursery.start_soon(group.feed, feed)
            nursery.start_soon(self._listen, group, quiet, nursery.cancel_scope)
            await group.leader_ended()
            self.over = True
            with trio.move_on_after(LAST_WORDS):
                await quiet.wait()
            nursery.cancel_scope.cancel("the command has ended")

    async def _listen(self, group: Group, quiet: trio.Event, until: trio.CancelScope) -> None:
        """Hear both pipes out, then say so; end `until` when it has been too much."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear_errors, group)
            async for chunk in group.stdout:
                self.head.add(chunk)
                if self.head.overflowed:
                    self.over = True
                    until.cancel("it printed too much")
        quiet.set()

    async def _hear_errors(self, group: Group) -> None:
        async for chunk in group.stderr:
            self.tail.add(chunk)

    async def _end(self, group: Group) -> None:
        """End the group, and tell of what left it."""
        if not self.over:
            await self._ask_to_end(group)
        self.kill()
        await group.leader_ended()
        # If the loop was late, its readers were cut with something left in the pipes.
        group.drain(group.stdout, self.head.add)
        group.drain(group.stderr, self.tail.add)
        escaped = await self._gone(group)
        if escaped:
            self._tell(escaped)

    async def _ask_to_end(self, group: Group) -> None:
        """SIGTERM, then wait for the whole group until half of the shield's time is over.

        The shield is the work share of the grace, 80 % of it; half of that is 40 %.
        """
        left = trio.current_effective_deadline() - trio.current_time()
        group.signal(signal.SIGTERM)
        async with trio.open_nursery() as nursery:
            # Whoever writes a last word must not hang on a full pipe.
            nursery.start_soon(self._listen, group, trio.Event(), trio.CancelScope())
            with trio.move_on_after(max(0.0, left / 2) if left < math.inf else PATIENCE):
                await group.leader_ended()
                await self._gone(group)
            nursery.cancel_scope.cancel("asked long enough")

    async def _gone(self, group: Group) -> list[Found]:
        """Wait until no live process is left in the group; return those that have left it."""
        while True:
            found = await self.lookout.look(self.number)
            if all(each.group != group.id for each in found):
                return found
            await trio.sleep(LOOK)  # the system has no event for that

    def _tell(self, escaped: Sequence[Found]) -> None:
        _log.warning(
            "candidate %d: these left its process group and still run (not killed): %s",
            self.ctx.index,
            ", ".join(f"{each.pid} ({each.command})" for each in escaped),
        )
        self.ctx.emit(
            "escaped",
            pids=[each.pid for each in escaped],
            commands=[each.command for each in escaped],
        )


def _as_bytes(feed: object) -> bytes:
    match feed:
        case str():
            return feed.encode("utf-8", "surrogateescape")
        case bytes():
            return feed
        case _:
            raise TypeError(
                f"a command is fed text or bytes, not {type(feed).__name__}: write a generate()"
                " of your own that turns the request into text, or pass text"
            )
