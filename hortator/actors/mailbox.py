"""The channel habits of all actors.

A mailbox is the receiving end of a Trio memory channel, typed by the union of its messages; an
address is the sending end. Telling never waits (`send_nowait` into a buffer without a limit:
what bounds it is said where it is filled); a reader takes everything that waits in one go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import trio

M = TypeVar("M")


def open_mailbox(
    _message: type[M],
) -> tuple[trio.MemorySendChannel[M], trio.MemoryReceiveChannel[M]]:
    """The two ends of a mailbox without a limit."""
    return trio.open_memory_channel[M](math.inf)


def waiting(mailbox: trio.MemoryReceiveChannel[M]) -> Iterator[M]:
    """Take what waits in the mailbox, one message after another, without awaiting.

    A reader that has been told to stop looks at that between two messages and leaves the loop:
    what it leaves behind stays in the mailbox.
    """
    while True:
        try:
            yield mailbox.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            return
