"""For type checkers only: telling an actor what it does not understand is an error on that line.

Each wrong line carries an ignore. If it stops being wrong, the ignore is unused, and that is an
error too (`warn_unused_ignores`).
"""

from __future__ import annotations

import trio

from hortator import Event
from hortator.actors.crew import Crew
from hortator.actors.ledger import LedgerMessage, SettleLate, ledger
from hortator.actors.mailbox import open_mailbox, waiting
from hortator.actors.observer import AsyncObserver, Delivery, Subscription, SyncObserver
from hortator.protocols.attempt import Attempt
from hortator.protocols.interfaces import Address
from hortator.protocols.messages import Finished, Look


def the_runner_is_told_to_look_and_nothing_else(crew: Crew, attempt: Attempt) -> None:
    crew.runner.send_nowait(Look())
    crew.runner.send_nowait(Finished(attempt))  # type: ignore[arg-type]
    crew.runner.send_nowait(Look)  # type: ignore[arg-type]
    crew.runner.send_nowait("look")  # type: ignore[arg-type]


def the_scorer_is_told_of_finished_candidates(
    scorer: trio.MemorySendChannel[Finished], attempt: Attempt
) -> None:
    scorer.send_nowait(Finished(attempt))
    scorer.send_nowait(attempt)  # type: ignore[arg-type]
    scorer.send_nowait(Look())  # type: ignore[arg-type]
    Finished(attempt.index)  # type: ignore[arg-type]


def the_ledger_is_told_of_late_settlements(
    address: trio.MemorySendChannel[LedgerMessage], attempt: Attempt
) -> None:
    address.send_nowait(SettleLate(attempt, None))
    address.send_nowait(Finished(attempt))  # type: ignore[arg-type]
    SettleLate(attempt)  # type: ignore[call-arg]


def an_observer_is_told_of_deliveries(
    observer: AsyncObserver, subscription: Subscription, event: Event
) -> None:
    address, mailbox = open_mailbox(Delivery)
    address.send_nowait(Delivery(subscription, event))
    address.send_nowait(event)  # type: ignore[arg-type]
    observer.take(subscription, [event])
    observer.take(subscription, event)  # type: ignore[arg-type]
    observer.take(subscription, ["started"])  # type: ignore[list-item]
    SyncObserver(event, None)  # type: ignore[arg-type]
    del mailbox


def an_address_is_typed_by_what_it_takes(attempt: Attempt) -> None:
    send, receive = open_mailbox(Finished)
    address: Address[Finished] = send
    address.send_nowait(Finished(attempt))
    address.send_nowait(Look())  # type: ignore[arg-type]
    wrong: Address[Look] = send  # type: ignore[assignment]
    for message in waiting(receive):
        message.attempt.index.bit_length()
        _ = message.candidate  # type: ignore[attr-defined]
    del wrong


async def an_actor_is_given_its_own_mailbox(
    looks: trio.MemoryReceiveChannel[Look],
    settlements: trio.MemoryReceiveChannel[LedgerMessage],
    shield: trio.CancelScope,
) -> None:
    await ledger(settlements, shield, lambda attempt, settled, value: None)
    await ledger(looks, shield, lambda attempt, settled, value: None)  # type: ignore[arg-type]
