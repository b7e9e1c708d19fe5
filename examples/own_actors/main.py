"""A program that has a package called `actors` itself: the library doesn't get in its way.

`actors` is a usual name for the part of a program that is made of actors. Here it holds a
librarian: a task with a mailbox, whom all candidates ask for words. Everything of the library is
below `hortator`, so there is nothing to rename.

    python examples/own_actors/main.py

prints

    6 questions were answered
    the best: a long galley
    actors is the package of: own_actors
"""

from pathlib import Path

import trio
from actors.librarian import Librarian, open_library

import actors
from hortator import BestOfN, CandidateContext, open_runtime
from hortator.protocols.candidate import Generated


async def main() -> None:
    async with open_library({"size": ["long", "short"], "thing": ["oar", "galley"]}) as librarian:
        async with open_runtime() as runtime:
            job = BestOfN(generate=generate, score=score, n=3, timeout=10)
            result = await runtime.run(job, librarian)
    print(librarian.answered, "questions were answered")
    print("the best:", result.output)
    print("actors is the package of:", Path(str(actors.__file__)).parents[1].name)


async def generate(librarian: Librarian, ctx: CandidateContext) -> str:
    size = await librarian.ask("size", ctx.index)
    return f"a {size} {await librarian.ask('thing', ctx.index // 2)}"


async def score(librarian: Librarian, candidate: Generated[str], ctx: CandidateContext) -> float:
    return len(candidate.output)


trio.run(main)
