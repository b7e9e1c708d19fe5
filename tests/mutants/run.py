"""Plant one fault after another in a copy of the tree; each must turn its test red.

    python -m tests.mutants.run            all of them
    python -m tests.mutants.run NAME ...   some

The named tests are run once on the copy as it is, where all must pass. Then each fault is planted
alone, and its test run alone: it must fail, of itself (a file that can't be imported does not
count, nor does a test that has to be killed here). Exits with 1 if a fault is not noticed, or
can't be planted any more.

Most of a short test's time is Python's, for importing what pytest, Trio and pydantic need. So that
is imported here, once, and each run of pytest is a fork; what is tested is imported there.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tests.mutants.catalogue import ROOT, Mutant, NotThere, load

COPIED = ("hortator", "tests", "pyproject.toml")

WORKERS = 2

LIMIT = 60.0
"""Seconds that a test may take with a fault planted. It fails far sooner, or it hangs."""

LIMIT_OF_ALL = 240.0
"""Seconds that all of them may take together, with nothing planted."""

TOLD = 12
"""Lines of pytest's that are shown of one that was not noticed."""


def main(names: Sequence[str]) -> int:
    """Plant these (all, if none is named) and say what came of each; the exit code."""
    mutants = load()
    unknown = sorted(set(names) - {mutant.name for mutant in mutants})
    if unknown:
        print(f"no such mutant: {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = [mutant for mutant in mutants if not names or mutant.name in names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        failed = _play_all(chosen, Path(folder).resolve())
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _play_all(mutants: Sequence[Mutant], folder: Path) -> int:
    """Returns how many were not noticed."""
    tree = folder / "tree-1"
    _copy(tree)
    _import_what_all_need(folder)
    names = sorted({mutant.killed_by for mutant in mutants})
    unchanged = _play_unchanged(tree, names)
    if unchanged is None:
        return len(mutants)
    trees = [tree]
    for number in range(2, WORKERS + 1):
        trees.append(folder / f"tree-{number}")
        shutil.copytree(tree, trees[-1])  # compiled by now, so that nothing is compiled again
    useless = [mutant for mutant in mutants if mutant.killed_by in unchanged]
    for mutant in useless:
        failure = unchanged[mutant.killed_by]
        _say(f"NO USE {mutant.name}: {mutant.killed_by} fails without it", failure)
    left = iter([mutant for mutant in mutants if mutant not in useless])  # for whoever is free
    players = [_play(tree, left) for tree in trees]
    failed = len(useless)
    try:
        while players:
            for player in tuple(players):
                try:
                    failed += next(player)
                except StopIteration:
                    players.remove(player)
            time.sleep(0.02)
    finally:
        for player in players:
            player.close()
    return failed


def _play_unchanged(tree: Path, names: Sequence[str]) -> dict[str, str] | None:
    """Run the tests on the tree as it is; what is printed of each that fails. None: they can't."""
    shares = [names[number::WORKERS] for number in range(min(WORKERS, len(names)))]
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(_Pytest(tree, share, LIMIT_OF_ALL)) for share in shares]
        for run in runs:
            while not run.over():
                time.sleep(0.02)
    for run in runs:
        if run.code not in (0, 1):
            _say("the tests can't be run on the tree as it is:", run.output(), lines=60)
            return None
    seconds = max(run.seconds for run in runs)
    print(f"unchanged: {len(names)} tests, {seconds:.1f} s", flush=True)
    return {name: run.output() for run in runs for name in names if run.failed(name)}


def _copy(tree: Path) -> None:
    """Copy what git knows of, and what it would be told of next."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *COPIED],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    for name in os.fsdecode(listed.stdout).split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _import_what_all_need(folder: Path) -> None:
    """Import pytest with its plugins, and what the library needs, but not the library."""
    empty = folder / "empty"
    empty.mkdir()
    os.chdir(empty)
    import pydantic
    import pytest
    import trio.testing  # noqa: F401

    pydantic.TypeAdapter(tuple[int, ...])  # it imports most of itself when that is made
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--assert=plain", "-p", "no:cacheprovider", str(empty)])
    gc.collect()
    gc.freeze()  # each fork collects all its garbage, twice: not what all of them share, too


def _play(tree: Path, mutants: Iterator[Mutant]) -> Generator[int, None, None]:
    """Plant one after another; yields 1 for each that was not noticed, and 0 while waiting."""
    for mutant in mutants:
        path = tree / mutant.file
        try:
            changed = mutant.planted(tree)
        except NotThere as wrong:
            _say(f"NOT PLANTED {mutant.name}: {wrong}")
            yield 1
            continue
        original = path.read_text(encoding="utf-8")
        _write(path, changed)
        with _Pytest(tree, [mutant.killed_by], LIMIT) as run:
            while not run.over():
                yield 0
        _write(path, original)
        yield _judge(mutant, run)


def _judge(mutant: Mutant, run: _Pytest) -> int:
    """Say what came of it; 1 if it was not noticed."""
    match run.code:
        case 1 | 70 if told := run.failed(mutant.killed_by):  # 70: what it left broke pytest's end
            print(f"killed {mutant.name} in {run.seconds:.1f} s: {told[0]}", flush=True)
            return 0
        case 0:
            _say(f"SURVIVED {mutant.name} ({mutant.why}): {mutant.killed_by} passes")
        case None:
            _say(f"HANGS {mutant.name}: not over after {LIMIT:g} s", run.output())
        case code:
            _say(f"BROKEN {mutant.name}: pytest exits with {code}", run.output())
    return 1


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    # Python knows a stale one by its size and its time in whole seconds: not well enough here.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


class _Pytest:
    """A run of pytest on the hortator of a tree, in a fork and a session of its own.

    Attributes:
        code: how it ended; None as long as it has not, or if it was killed at its limit.
        seconds: how long it took.
    """

    def __init__(self, tree: Path, tests: Sequence[str], limit: float) -> None:
        self.code: int | None = None
        self.seconds = 0.0
        self._began, self._limit, self._ended = time.monotonic(), limit, False
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  # closed with this object
        self._pid = os.fork()
        if not self._pid:
            _be_pytest(tree, tests, self._printed.fileno())

    def over(self) -> bool:
        """Whether it has ended; at its limit it is killed."""
        if self._ended:
            return True
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        self.seconds = time.monotonic() - self._began
        if pid:
            self._ended, self.code = True, os.waitstatus_to_exitcode(status)
        elif self.seconds > self._limit:
            self._kill()
        return self._ended

    def output(self) -> str:
        """What it printed."""
        self._printed.seek(0)
        return self._printed.read().decode("utf-8", "replace")

    def failed(self, name: str) -> list[str]:
        """What it tells of failures of this test, or of cases of it: a line for each."""
        told = re.compile(rf"(?:FAILED|ERROR) ({re.escape(name)}(?:\[.*\])?(?: - .*)?)")
        return [found[1] for line in self.output().splitlines() if (found := told.fullmatch(line))]

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has no session of its own yet
            os.killpg(self._pid, signal.SIGKILL)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._ended = True

    def __enter__(self) -> _Pytest:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            self._kill()


def _be_pytest(tree: Path, tests: Sequence[str], printed: int) -> NoReturn:
    """Be a process that runs these tests, from here to its end."""
    code = 70  # unless pytest comes to its own end
    try:
        os.setsid()
        for number in (1, 2):
            os.dup2(printed, number)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        os.environ["COLUMNS"] = "300"  # or pytest cuts the names of the tests
        os.environ.pop("PYTEST_ADDOPTS", None)
        sys.dont_write_bytecode = False  # whatever the environment says: the trees are ours
        sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]  # ours are not those of the tree
        import pytest

        options = ["-q", "--color=no", "--tb=short", "-rfE", "--assert=plain"]
        plugins = ["-p", "tests.mutants.where", "-p", "no:cacheprovider"]
        first = ["--exitfirst"] if len(tests) == 1 else []
        code = int(pytest.main([*options, *plugins, *first, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def _say(head: str, output: str = "", *, lines: int = TOLD) -> None:
    print(head, *(f"    | {line}" for line in output.splitlines()[-lines:]), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
