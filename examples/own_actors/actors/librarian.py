"""A librarian, who answers one question after the other."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

Question = tuple[str, int, trio.MemorySendChannel[str]]
"""What about, which one, and where the answer goes."""


class Librarian:
    """The librarian as others see it."""

    def __init__(self, mailbox: trio.MemorySendChannel[Question]) -> None:
        self._mailbox = mailbox
        self.answered = 0

    async def ask(self, about: str, number: int) -> str:
        """A word about that; the same number always gets the same word."""
        answer, answers = trio.open_memory_channel[str](1)
        with answers:
            await self._mailbox.send((about, number, answer))
            return await answers.receive()


@asynccontextmanager
async def open_library(words: Mapping[str, Sequence[str]]) -> AsyncGenerator[Librarian]:
    """A librarian who works as long as the block lasts."""
    mailbox, questions = trio.open_memory_channel[Question](16)
    librarian = Librarian(mailbox)

    async def work() -> None:
        async for about, number, answer in questions:
            answer.send_nowait(words[about][number % len(words[about])])
            librarian.answered += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        with mailbox:  # closing it ends the work
            yield librarian
