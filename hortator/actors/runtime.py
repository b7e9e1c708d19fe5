"""The runtime that people open, and the runs that they start on it."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType
from typing import Any, Literal

import trio

from hortator.actors.handle import RunHandle
from hortator.actors.launch import launch, origin
from hortator.actors.observer import Observer, check_observers
from hortator.actors.runner import Run
from hortator.actors.watchdog import Watchdog
from hortator.actors.workplace import Workplace
from hortator.protocols.account import Account
from hortator.protocols.attribution import Attribution
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.budget import Budget
from hortator.protocols.candidate import Detached
from hortator.protocols.checking import is_number, seconds, whole
from hortator.protocols.errors import InvalidJob, RuntimeClosed
from hortator.protocols.interfaces import Out, Req
from hortator.protocols.result import RunResult
from hortator.protocols.showing import shown
from hortator.protocols.usage import UsageReport
from hortator.protocols.watchdog import Blocked

_ambient: contextvars.ContextVar[Runtime | None] = contextvars.ContextVar(
    "hortator runtime", default=None
)


class Runtime:
    """Runs jobs. Made by `open_runtime`; one is enough for a whole application."""

    def __init__(self, workplace: Workplace, grace: float, watchdog: Watchdog) -> None:
        self._workplace, self._grace, self._watchdog = workplace, grace, watchdog

    def __repr__(self) -> str:
        place = self._workplace
        state = "open" if self.is_open else "left"
        return f"<Runtime, {state}: {len(place.runs)} runs, {len(place.alive())} detached>"

    async def run(
        self,
        job: BestOfN[Req, Out],
        request: Req,
        *,
        seed: int | None = None,
        observers: Sequence[Observer] = (),
        on_observer_error: Literal["ignore", "raise"] = "ignore",
        account: Account | None = None,
    ) -> RunResult[Out]:
        """Run a job and return its result, at the latest at its deadline plus the grace.

        The deadline is the job's timeout or the deadline of the scopes around this call, less a
        margin, whichever is first; so `with trio.move_on_after(2): await runtime.run(...)`
        returns the best so far inside those two seconds. It is looked up once, at the start: a
        scope around the call that is moved later cancels the call.

        If the call is cancelled, its work is cancelled, the terminal event is delivered, and
        `Cancelled` is raised, all within the grace. To keep the best so far of a run that you
        cancel yourself, use `start`.

        Called by a candidate, it starts a *nested* run. That draws on the candidate's lease alone,
        ends within the candidate's deadline and half of its grace, has an id that begins with the
        id of the run around it ("run-7/2.1": candidate 2's first), and is told to the observers
        of the runs around it, too. When its candidate ends, it is cancelled.

        Args:
            job: what to attempt, and how often.
            request: handed to each candidate; containers in it are copied for each.
            seed: of the run; drawn if None, and kept in the result.
            observers: called with every event, sync on the loop or async in a task of their own.
            on_observer_error: "ignore" counts what observers raise; "raise" stops the run.
            account: of this runtime; the run draws on its budget and on the runtime's. Without
                one it draws on the runtime's alone.

        Raises:
            InvalidJob, DoesNotFit: before anything starts.
            RuntimeClosed: the runtime is being left.
            RunEnded: called in the name of a candidate that the run around it gave up on.
            ObserverFailed: only with on_observer_error="raise".
            KeyboardInterrupt, SystemExit: came out of a callback; the books are closed.

        >>> async def main(job):
        ...     async with open_runtime() as runtime:
        ...         result = await runtime.run(job, "question")
        ...         return result.output
        """
        run = self._start(job, request, seed, observers, on_observer_error, account)
        async with RunHandle[Out](run) as handle:
            # A thread that called this does nothing meanwhile, and the run may need one.
            with self._workplace.threads.lent() if run.adopted else nullcontext():
                return await handle.result()

    @trio.lowlevel.enable_ki_protection
    def start(
        self,
        job: BestOfN[Req, Out],
        request: Req,
        *,
        seed: int | None = None,
        observers: Sequence[Observer] = (),
        on_observer_error: Literal["ignore", "raise"] = "ignore",
        account: Account | None = None,
    ) -> RunHandle[Out]:
        """Start a job and return at once; no callback runs before the next checkpoint.

        Takes the arguments of `run`, and raises what is wrong with them here. The run goes on
        until it ends, or `cancel` is called, or the runtime is left by an exception.

        Raises:
            InvalidJob, DoesNotFit: before anything starts.
            RuntimeClosed: the runtime is being left.
            RunEnded: called in the name of a candidate that the run around it gave up on.
        """
        return RunHandle(self._start(job, request, seed, observers, on_observer_error, account))

    def _start(
        self,
        job: BestOfN[Any, Any],
        request: object,
        seed: int | None,
        observers: Sequence[Observer],
        on_observer_error: Literal["ignore", "raise"],
        account: Account | None,
    ) -> Run:
        where = origin()
        if self._workplace.closing and where.run is None:
            raise RuntimeClosed("this runtime is being left: start runs inside its `async with`")
        _check(job, seed, on_observer_error)
        check_observers(observers)
        self._check_account(account)
        return launch(
            self._workplace,
            job,
            request,
            origin=where,
            account=account,
            grace=self._grace,
            seed=seed,
            observers=observers,
            strict=on_observer_error == "raise",
        )

    @property
    def is_open(self) -> bool:
        """Whether runs can be started: it has not been left, nor is being left."""
        return not self._workplace.closing

    @property
    def detached(self) -> Sequence[Detached]:
        """Work that outlived its run, ended or not; `reap()` forgets what has ended."""
        return tuple(work.record() for work in self._workplace.work.values())

    @property
    def blocked(self) -> Sequence[Blocked]:
        """The newest steps that blocked the event loop, oldest first; see `open_runtime`."""
        return self._watchdog.blocked

    @property
    def usage(self) -> UsageReport:
        """What all runs have cost so far; what they and detached work still hold is outstanding."""
        return self._workplace.account.usage

    @property
    def attribution(self) -> Attribution:
        """Who was charged what: accounts, runs in flight, and what has ended; it adds up.

        The tree of a run that has ended is in its result: `result.attribution`.
        """
        return self._workplace.account.attribution

    @trio.lowlevel.enable_ki_protection
    def account(self, name: str, budget: Budget | None = None) -> Account:
        """The account with this name, opened if it is new: one for each tenant, say.

        Its runs draw on its budget *and* on the runtime's. A run that finds no room waits until
        others give something back, or until nobody can; it is never refused with `DoesNotFit`.

        Args:
            name: unique within the runtime.
            budget: limits over all its runs; None for none, or for those of a known account.

        Raises:
            InvalidJob: it is known with another budget, or a limit can't be one.

        >>> async def main(job):
        ...     async with open_runtime(budget=Budget(cost=10)) as runtime:
        ...         tenant = runtime.account("tenant a", Budget(cost=1))
        ...         await runtime.run(job, "question", account=tenant)
        ...         print(tenant.usage.charged.cost, tenant.remaining().cost)
        """
        return self._workplace.account.child(name, budget)

    def _check_account(self, account: object) -> None:
        if account is None or account is self._workplace.account:
            return
        if not isinstance(account, Account) or account not in self._workplace.account.accounts:
            raise InvalidJob(
                f"account={shown(account)} is none of this runtime's:"
                " write account=runtime.account('name')"
            )

    @trio.lowlevel.enable_ki_protection
    def reap(self) -> Sequence[Detached]:
        """Take the detached work that has ended out of `detached`, and return it."""
        work = self._workplace.work
        ended = [key for key, each in work.items() if each.ended]
        return tuple(work.pop(key).record() for key in ended)

    async def drain(self, timeout: float | None = None) -> Sequence[Detached]:
        """Wait until all detached work has ended.

        Args:
            timeout: seconds to wait at the most; None waits without limit.

        Returns:
            What is still alive. Cancelling cancels the wait only. Runs in flight are not waited
            for, though they may be about to leave something behind.

        Raises:
            InvalidJob: the timeout is no number of seconds.
        """
        seconds("timeout", timeout)
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while self._workplace.alive():
                await self._workplace.changed()
        return tuple(work.record() for work in self._workplace.alive())


def open_runtime(
    *,
    budget: Budget | None = None,
    grace: float = 0.25,
    threads: int = 40,
    observers: Sequence[Observer] = (),
    exit_grace: float = 1.0,
    watchdog: float | None = 0.5,
) -> AbstractAsyncContextManager[Runtime]:
    """Open a runtime for the length of an `async with` block.

    Leaving the block normally waits for the runs in flight; leaving it by an exception or a
    cancellation stops them first. Then it waits for detached *tasks*, without limit, since Trio
    can't leave a task behind: a WARNING under the logger "hortator" names them after the grace
    and at doubling intervals. Detached *threads* are waited for no longer than `exit_grace`. The
    block's exception leaves as itself, not in a group; only a KeyboardInterrupt or SystemExit that
    came out of a callback, or a Ctrl-C while leaving, goes before it.

    Args:
        budget: limits over all runs together; None for none. A run waits where it finds no room.
        grace: seconds that a run may take past its stop, if its job allows so much: 80 % for
            work to unwind, the rest to deliver what is left to tell.
        threads: worker threads for sync callbacks, over all runs.
        observers: told of every run, and of late ends of detached work.
        exit_grace: seconds that leaving waits for detached threads.
        watchdog: a single step of a task that holds the event loop for so many seconds is named
            in a WARNING (run, candidate, file and line; again at doubling intervals) and kept in
            `runtime.blocked`. It can't be stopped: no deadline holds while it goes on. None
            watches nothing, and so does any clock but the system's. Code that does not let
            other Python threads run can be named only when it has done so.

    Raises:
        InvalidJob: an argument can't work as written.

    >>> async def main():
    ...     async with open_runtime(grace=0.5) as runtime:
    ...         ...
    """
    for name, value in (("grace", grace), ("exit_grace", exit_grace)):
        seconds(name, value, optional=False)
    whole("threads", threads, example=40)
    if watchdog is not None and not (is_number(watchdog) and watchdog > 0):
        raise InvalidJob(f"watchdog={watchdog!r}: write seconds above 0, or None to watch nothing")
    check_observers(observers)
    root = Account("runtime", Budget() if budget is None else budget)
    return _OpenRuntime(root, grace, threads, observers, exit_grace, Watchdog(watchdog))


class _OpenRuntime:
    """`open_runtime` at work. A class, not a generator: no scope is open across a `yield`."""

    def __init__(
        self,
        account: Account,
        grace: float,
        threads: int,
        observers: Sequence[Observer],
        exit_grace: float,
        watchdog: Watchdog,
    ) -> None:
        self._account = account
        self._grace, self._threads = grace, threads
        self._observers, self._exit_grace = observers, exit_grace
        self._watchdog = watchdog
        self._manager: AbstractAsyncContextManager[trio.Nursery]
        self._workplace: Workplace
        self._outside: Runtime | None = None

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Runtime:
        self._manager = trio.open_nursery()
        nursery = await self._manager.__aenter__()
        self._workplace = Workplace(
            nursery,
            self._account,
            grace=self._grace,
            threads=self._threads,
            exit_grace=self._exit_grace,
        )
        self._workplace.watch_all(self._observers)
        runtime = Runtime(self._workplace, self._grace, self._watchdog)
        self._watchdog.start()
        self._outside = _ambient.get()
        _ambient.set(runtime)
        return runtime

    @trio.lowlevel.enable_ki_protection
    async def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _ambient.set(self._outside)
        stop = error is not None
        interrupt: BaseException | None = None
        left = False
        while not left:
            try:
                await self._workplace.leave(stop=stop)
                left = True
            except KeyboardInterrupt as pressed:
                # Trio hands it to the main task, wherever that waits, also behind a shield. It
                # stops the runs; the nursery has to be left in order all the same.
                interrupt, stop = pressed, True
        # Every task has ended. The body's exception is not handed to the nursery, which would
        # put it into a group: returning None lets it go on as itself.
        await self._manager.__aexit__(None, None, None)
        interrupt = interrupt or self._workplace.unraised()
        if interrupt is not None and interrupt is not error:
            raise interrupt

    @trio.lowlevel.enable_ki_protection
    async def _leave_watched(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._leave(kind, error, traceback)
        finally:
            self._watchdog.stop()

    # By this name its waits are seen for what they are: not clean-up alone.
    __aexit__ = _leave_watched


async def best_of_n(job: BestOfN[Req, Out], request: Req, **as_run: Any) -> RunResult[Out]:
    """Run one job: on the runtime around the call if there is one, else on its own.

    **With its own runtime it returns in time only for work that ends**: Trio can't leave a
    task behind, so it waits for a callback that swallows its cancellation (and says so in the
    log). What must end uses a process; what must return in time, an `open_runtime` around it.

    Args:
        job: what to attempt, and how often.
        request: handed to each candidate.
        as_run: the other arguments of `Runtime.run`.

    Cancelling it does what cancelling `Runtime.run` does.

    Raises:
        What `Runtime.run` raises.

    >>> async def main(job):
    ...     return (await best_of_n(job, "question")).output
    """
    runtime = _ambient.get()
    if runtime is not None and (runtime.is_open or origin().run is not None):
        return await runtime.run(job, request, **as_run)
    async with open_runtime() as own:
        return await own.run(job, request, **as_run)


def _check(job: object, seed: object, on_observer_error: object) -> None:
    if not isinstance(job, BestOfN):
        raise InvalidJob(f"run() takes a BestOfN(...), not {job!r}")
    if seed is not None and type(seed) is not int:
        raise InvalidJob(f"seed={seed!r}: write a whole number, or None to have one drawn")
    if on_observer_error not in ("ignore", "raise"):
        raise InvalidJob(f"on_observer_error={on_observer_error!r}: write 'ignore' or 'raise'")
