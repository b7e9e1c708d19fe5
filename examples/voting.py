"""A vote: where answers can be compared but not scored, the most frequent one wins.

No scorer is needed. `key` says what of an output is compared: here the last number in it.
`vote_decided` ends the run as soon as those that are left can't change who wins, so the last
candidates are never started and cost nothing.

    python examples/voting.py

prints

    #0 votes for 42
    #1 votes for 17
    #2 votes for 42
    #3 votes for 42
    #4 votes for 42
    #5 skipped
    #6 skipped
    elected: So it must be 42.
    it ended because of: vote_decided
"""

import re

import trio

from hortator import BestOfN, CandidateContext, open_runtime, plurality_vote, vote_decided

ANSWERS = [
    "So it must be 42.",
    "6 times 9 is 17.",
    "After some thought: 42.",
    "I make it 42!",
    "42",
    "17, surely.",
    "Is it 42?",
]


def last_number(output: str) -> str:
    numbers: list[str] = re.findall(r"\d+", output)
    return numbers[-1]


async def generate(request: str, ctx: CandidateContext) -> str:
    await trio.sleep(0.02)  # yours asks a model
    return ANSWERS[ctx.index]


async def main() -> None:
    job = BestOfN[str, str](  # of text, text: no scorer tells the types
        generate=generate,
        select=plurality_vote(key=last_number),
        stop=vote_decided(),
        n=7,
        max_concurrency=1,  # more of them are quicker, and may cost a few votes too many
        timeout=10,
    )
    async with open_runtime() as runtime:
        result = await runtime.run(job, "What do you get if you multiply six by nine?")
    for candidate in result.candidates:
        if candidate.output is None:
            print(f"#{candidate.index} {candidate.status}")
        else:
            print(f"#{candidate.index} votes for {last_number(candidate.output)}")
    print("elected:", result.output)
    print("it ended because of:", result.stop_reason)


trio.run(main)
