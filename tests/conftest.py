"""What holds for every test, and what is collected over all of them.

* Every status, stop reason and class of event that any run of this process shows is noted in
  `Seen`. `test_zz_coverage.py`, which is put last, compares it with what the library can say.
* After each test no thread of the library's is left beyond the test's own release of it, and the
  logger "hortator" is as it was.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from hortator import Event, Snapshot, Status
from hortator.actors.observer import AsyncObserver, Subscription, SyncObserver
from hortator.protocols.events import RunFinished
from hortator.protocols.run import RunState
from tests.shell import Shell, opened

LAST = "test_zz_coverage.py"
CONTRACT = Path(__file__).parent / "contract"

PATIENCE = 2.0
"""Seconds that a thread may take to end once its test has released it."""


@attrs.define
class Seen:
    """What the runs of this session showed.

    Attributes:
        statuses: of records in a result or snapshot, and of candidates in flight in a snapshot.
        reasons: why runs ended.
        events: classes of the events that observers were handed.
        whole: every test of the contract was selected, so nothing may be missing above.
    """

    statuses: set[Status] = attrs.Factory(set)
    reasons: set[str] = attrs.Factory(set)
    events: set[type] = attrs.Factory(set)
    whole: bool = True


SEEN = pytest.StashKey[Seen]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SEEN] = Seen()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background by a shell. The children of the tests would inherit that, and
        # Ctrl-C is what some of them are about.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # likewise, after nohup
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == LAST)  # stable: the others keep their order


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == CONTRACT:
            item.config.stash[SEEN].whole = False


def pytest_collection_finish(session: pytest.Session) -> None:
    selected = {item.path for item in session.items}
    named = any("::" in argument for argument in session.config.args)
    if named or not selected.issuperset(CONTRACT.glob("test_*.py")):
        session.config.stash[SEEN].whole = False


@pytest.fixture(scope="session")
def seen(pytestconfig: pytest.Config) -> Seen:
    """What the runs of this session have shown so far."""
    return pytestconfig.stash[SEEN]


@pytest.fixture(scope="session", autouse=True)
def _watch_all_runs(seen: Seen) -> Iterator[None]:
    close, snapshot = RunState.close, RunState.snapshot

    def watched_close(self: RunState, now: float, selected: int | None) -> RunFinished:
        finished = close(self, now, selected)
        seen.reasons.add(finished.stop_reason)
        seen.statuses.update(finished.statuses)
        return finished

    def watched_snapshot(self: RunState, now: float) -> Snapshot:
        taken = snapshot(self, now)
        seen.statuses.update(taken.statuses)
        return taken

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "close", watched_close)
        patch.setattr(RunState, "snapshot", watched_snapshot)
        for observer in (SyncObserver, AsyncObserver):
            patch.setattr(observer, "take", _noting(observer.take, seen))
        yield


def _noting(take, seen: Seen):  # type: ignore[no-untyped-def]
    def watched_take(self: object, subscription: Subscription, events: Sequence[Event]) -> None:
        seen.events.update(map(type, events))
        take(self, subscription, events)

    return watched_take


@pytest.fixture
def shell() -> Iterator[Shell]:
    """Starts the command line; what it leaves behind is killed after the test."""
    with opened() as shell:
        yield shell


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    until = time.monotonic() + PATIENCE
    while (left := _our_threads()) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left, (
        f"{PATIENCE:g} s after the test these threads still run its callbacks; give them a flag or"
        f" event to end on, and set it before the test ends:\n{_stacks(left)}"
    )


def _our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("hortator")]


def _stacks(threads: Sequence[threading.Thread]) -> str:
    frames = sys._current_frames()
    told = []
    for thread in threads:
        frame = frames.get(thread.ident or 0)
        stack = [] if frame is None else traceback.format_stack(frame)[-3:]
        told.append(f"{thread.name}:\n{''.join(stack)}")
    return "\n".join(told)


@pytest.fixture(autouse=True)
def _logging_is_not_touched() -> Iterator[None]:
    logger = logging.getLogger("hortator")
    before = _settings(logger)
    yield
    after = _settings(logger)
    logger.handlers[:], logger.filters[:] = before["handlers"], before["filters"]
    logger.propagate, logger.disabled = before["propagate"], before["disabled"]
    logger.setLevel(before["level"])
    assert after == before, "the test left the logger 'hortator' set up in another way"


def _settings(logger: logging.Logger) -> dict[str, object]:
    return {
        "level": logger.level,
        "handlers": list(logger.handlers),
        "filters": list(logger.filters),
        "propagate": logger.propagate,
        "disabled": logger.disabled,
    }
