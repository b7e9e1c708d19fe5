"""What `hortator run` was asked to do, checked, and the job that it makes."""

from __future__ import annotations

import os
from collections.abc import Mapping

import attrs

from hortator.actors.process import Command, CommandScorer, command, command_scorer
from hortator.protocols.ballot import Ballot, NoVote
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.budget import Budget
from hortator.protocols.interfaces import CandidateContext
from hortator.protocols.selection import best_score
from hortator.protocols.stopping import StopRule
from hortator.protocols.usage import Usage
from hortator.protocols.voting import plurality_vote


@attrs.frozen(kw_only=True)
class Settings:
    """The flags of `hortator run`, commands as words, each checked by itself.

    Attributes:
        generate: the words of the generator.
        score: those of the scorer, or None.
        ballot: how outputs vote, or None if the best score is selected.
        stop: the rule that ends the run early.
        budget: limits over all candidates.
        estimate: what one candidate is expected to need.
        json: whether a report is printed instead of the output.
        env: what is set in the environment of the commands.
        cwd: the folder that they run in, or None for ours.
        events: the file that events are written to, or None.
    """

    generate: tuple[str, ...]
    score: tuple[str, ...] | None
    ballot: Ballot | None
    n: int
    concurrency: int
    timeout: float | None
    minimize: bool
    stop: StopRule
    budget: Budget
    estimate: Usage
    seed: int | None
    json: bool
    env: Mapping[str, str]
    cwd: str | None
    max_output: int
    events: str | None


@attrs.frozen(eq=False)
class Voter:
    """A generator whose outputs vote: one that votes for nothing has failed.

    Attributes:
        command: makes the outputs.
        ballot: reads the votes.
    """

    command: Command
    ballot: Ballot

    async def __call__(self, request: bytes, ctx: CandidateContext) -> bytes:
        """Run the command and look for a vote in what it printed.

        Cancelled, it leaves behind as little as a `Command` does.

        Raises:
            NoVote: there is none; the output is kept.
            CommandNotStarted, CommandFailed, OutputTooLarge: as for a `Command`.
        """
        output = await self.command(request, ctx)
        try:
            return self.ballot.checked(output)
        except NoVote:
            ctx.publish(output)
            raise


@attrs.frozen(eq=False)
class Prepared:
    """A job that can be run, and the commands that it runs.

    Attributes:
        settings: what was asked for.
        job: the job.
        commands: those to kill when everything has to end at once.
    """

    settings: Settings
    job: BestOfN[bytes, bytes]
    commands: tuple[Command, ...]


def prepare(settings: Settings) -> Prepared:
    """Make the job of some settings.

    Raises:
        InvalidJob: they cannot work together.
    """
    env = {**os.environ, **settings.env} if settings.env else None
    limit, folder = settings.max_output, settings.cwd
    generator = command(settings.generate, max_output=limit, env=env, cwd=folder, usage=True)
    scorer: CommandScorer | None = None
    if settings.score is not None:
        scorer = command_scorer(settings.score, max_output=limit, env=env, cwd=folder, usage=True)
    ballot = settings.ballot
    job: BestOfN[bytes, bytes] = BestOfN(
        generate=generator if ballot is None else Voter(generator, ballot),
        score=scorer,
        n=settings.n,
        max_concurrency=min(settings.concurrency, settings.n),
        timeout=settings.timeout,
        budget=settings.budget,
        estimate=settings.estimate,
        objective="min" if settings.minimize else "max",
        select=best_score() if ballot is None else plurality_vote(key=ballot.vote),
        stop=settings.stop,
    )
    commands = (generator,) if scorer is None else (generator, scorer.command)
    return Prepared(settings, job, commands)
