"""The ledger actor: answers what has to wait, and settles what ends after its run.

A run's book is asked in place, by a call: whoever asks runs in the thread that owns the book. An
ask that has to wait stands in the queue of the node that holds it up (`protocols/queue.py`); who
gives something back, or begins to wait, answers in place those whom that concerns.

Only what comes from work that no run waits for any more goes through the mailbox: a run's book is
frozen when the run returns, so the open leases of detached work moved to the runtime's books, and
they are settled there, one after the other, whenever that work ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import trio

from hortator.actors.mailbox import waiting
from hortator.protocols.attempt import Attempt
from hortator.protocols.lease import Settled
from hortator.protocols.queue import Waiter
from hortator.protocols.usage import NOTHING


@attrs.frozen
class SettleLate:
    """Detached work has ended.

    Attributes:
        attempt: whose; its lease is open in `attempt.book`.
        value: what it returned or failed with.
    """

    attempt: Attempt
    value: Any


LedgerMessage: TypeAlias = SettleLate


async def answered(ask: Waiter) -> bool:
    """Wait for the answer to an ask, if there is none yet: whether it was granted.

    If it is cancelled, the ask is withdrawn, and nothing was granted: an answer that had come
    before the cancel is returned, so that no grant is ever lost between the two.
    """
    if ask.granted is None:
        task = trio.lowlevel.current_task()

        def wake() -> None:
            trio.lowlevel.reschedule(task)

        def withdraw(_: object) -> trio.lowlevel.Abort:
            ask.on_answer = _nobody_waits
            ask.withdraw()
            return trio.lowlevel.Abort.SUCCEEDED

        ask.on_answer = wake
        await trio.lowlevel.wait_task_rescheduled(withdraw)
    return bool(ask.granted)


def _nobody_waits() -> None:
    """The asker has been told to stop."""


@trio.lowlevel.enable_ki_protection
async def ledger(
    mailbox: trio.MemoryReceiveChannel[LedgerMessage],
    shield: trio.CancelScope,
    settled: Callable[[Attempt, Settled, Any], None],
) -> None:
    """Settle late work until every address is closed.

    Args:
        mailbox: of late settlements.
        shield: kept by the runtime, which limits it when it is left.
        settled: is told what each lease came to.
    """
    with mailbox, shield:
        async for message in mailbox:
            settle_late(message, settled)
            for another in waiting(mailbox):
                settle_late(another, settled)


def settle_late(message: SettleLate, settled: Callable[[Attempt, Settled, Any], None]) -> None:
    """Settle one piece of late work, and tell what it came to."""
    attempt = message.attempt
    outcome = attempt.book.settle(
        attempt.lease, generated=attempt.generator_ran, scored=attempt.scorer_ran, cut=True
    )
    settled(attempt, outcome or Settled(NOTHING, NOTHING, False), message.value)
