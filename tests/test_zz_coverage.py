"""The last test of a session: the suite has seen everything that the library can say of a run.

Compares what `conftest.py` noted over all tests with the enums. It compares only if all of
`tests/contract` was selected, for that part of the suite reaches everything by itself.
"""

from __future__ import annotations

from typing import Any, get_args

from hortator import Status
from hortator.protocols.events import Event
from hortator.protocols.stopping import StopReason

LATER: set[str] = set()
"""Stop reasons that nothing delivers yet. This list may only shrink."""


def test_every_status_was_seen(seen: Any) -> None:
    missing = set(Status) - seen.statuses
    assert not (seen.whole and missing), f"no run of the suite showed a candidate as {missing}"


def test_every_stop_reason_was_seen(seen: Any) -> None:
    missing = set(get_args(StopReason)) - LATER - seen.reasons
    assert not (seen.whole and missing), f"no run of the suite ended with {missing}"


def test_no_stop_reason_is_put_off_that_was_seen(seen: Any) -> None:
    delivered = LATER & seen.reasons
    assert not delivered, f"runs end with {delivered} by now: take them out of LATER"


def test_no_stop_reason_is_put_off_that_does_not_exist() -> None:
    assert set(get_args(StopReason)) >= LATER, "LATER names a reason that does not exist"


def test_every_class_of_event_was_seen(seen: Any) -> None:
    names = {kind.__name__ for kind in set(get_args(Event)) - seen.events}
    assert not (seen.whole and names), f"no observer of the suite was ever handed a {names}"
