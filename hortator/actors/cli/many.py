"""Many requests in one call: so many runs at a time, over one runtime, a line for each answer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import trio
from rich.text import Text

from hortator.actors.cli.answers import Answers
from hortator.actors.cli.play import Stop, caught
from hortator.actors.cli.report import print_line
from hortator.actors.cli.settings import Prepared
from hortator.actors.handle import RunHandle
from hortator.actors.recorder import Recorder
from hortator.actors.runtime import Runtime, open_runtime
from hortator.protocols.brief import brief, number
from hortator.protocols.joblines import Asked, answer
from hortator.protocols.result import RunResult
from hortator.protocols.seeds import candidate_seed
from hortator.protocols.showing import on_one_line


class Many:
    """One call with many requests.

    Attributes:
        code: what to exit with, if something went wrong; else 0.
        counts: how many were answered (True) and for how many nothing was eligible (False).
    """

    code: int
    counts: Counter[bool]

    def __init__(self, prepared: Prepared, asked: Sequence[Asked], out: Answers) -> None:
        self._job, self._settings = prepared.job, prepared.settings
        self._left = [each for each in asked if str(each.id) not in out.done]
        self._all, self._out = len(asked), out
        self._runs: set[RunHandle[bytes]] = set()
        self._writing = trio.Lock()
        self.code = 0
        self.counts = Counter()

    def play(self, jobs: int, stop: Stop, recorder: Recorder | None) -> int:
        """Answer what is not yet answered, `jobs` at a time; return the exit code.

        Args:
            jobs: how many runs at a time.
            stop: entered already.
            recorder: told of every event, or None.
        """
        logging.basicConfig(format="hortator: %(message)s", level=logging.WARNING)
        before = self._all - len(self._left)
        known = f", {before} of them answered already" if before else ""
        print_line(Text(f"{self._all} requests{known}; {jobs} at a time; Ctrl-C ends it"))
        begun = trio.run(self._play, jobs, stop, recorder)
        told = f"answered: {self.counts[True]}, nothing eligible: {self.counts[False]}"
        missing = len(self._left) - self.counts.total()
        if missing:
            told += f", not answered: {missing} (again with the same --out)"
        print_line(Text(f"{told}; after {begun:.2f} s"))
        if stop.signum is not None:
            return 128 + stop.signum
        return self.code or (1 if self.counts[False] else 0)

    def cancel(self, reason: str) -> None:
        """End the runs in flight; who asks for this begins no others."""
        for run in self._runs:
            run.cancel(reason)

    async def _play(self, jobs: int, stop: Stop, recorder: Recorder | None) -> float:
        begun = trio.current_time()
        requests = iter(self._left)
        recorders = () if recorder is None else (recorder,)
        async with open_runtime(observers=recorders) as runtime:
            with trio.open_signal_receiver(*caught()) as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(stop.watch, signals, self)
                    async with trio.open_nursery() as workers:
                        for _ in range(min(jobs, len(self._left))):
                            workers.start_soon(self._work, runtime, requests, stop)
                    nursery.cancel_scope.cancel("all is answered")
        return trio.current_time() - begun

    async def _work(self, runtime: Runtime, requests: Iterator[Asked], stop: Stop) -> None:
        for asked in requests:
            if stop.signum is not None or self.code:
                return
            handle = runtime.start(self._job, asked.request, seed=self._seed(asked))
            self._runs.add(handle)
            try:
                result = await handle.result()
            finally:
                self._runs.discard(handle)
            # What was cut by a signal is no answer: the next call asks again.
            if result.stop_reason != "cancelled":
                await self._write(asked, result)

    def _seed(self, asked: Asked) -> int | None:
        seed = self._settings.seed
        return None if seed is None else candidate_seed(seed, asked.number)

    async def _write(self, asked: Asked, result: RunResult[bytes]) -> None:
        """Write an answer, in a thread: a pipe that nobody reads must not hold a deadline."""
        line = answer(asked, result, report=self._settings.json)
        async with self._writing:
            if self.code:
                return
            place = self._all - len(self._left) + self.counts.total() + 1
            told = Text(f"{place}/{self._all}  {on_one_line(str(asked.id), 40)}: {_story(result)}")
            self.code = await trio.to_thread.run_sync(self._hand_over, line, told)
            if self.code:
                self.cancel("the answers cannot be written")
            else:
                self.counts[result.selected is not None] += 1

    def _hand_over(self, line: bytes, told: Text) -> int:
        try:
            code = self._out.add(line)
        except OSError as error:
            print_line(Text(f"hortator: an answer could not be written: {error}", "bold red"))
            return 1
        print_line(told)
        return code


def _story(result: RunResult[bytes]) -> str:
    best = result.selected
    if best is None:
        first = next((each.error for each in result.candidates if each.error is not None), None)
        why = result.stop_reason if first is None else brief(first)
        return f"nothing eligible: {why}"
    scored = "" if best.score is None else f", scored {number(best.score.value)}"
    return f"#{best.index}{scored}, after {result.elapsed:.2f} s"
