"""What happens in a run, as plain lines on standard error."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from hortator.actors.cli.report import print_line
from hortator.actors.process import CommandScorer
from hortator.protocols.best_of_n import BestOfN
from hortator.protocols.brief import brief, number
from hortator.protocols.candidate import Status
from hortator.protocols.events import (
    CandidateEnded,
    CandidateGenerated,
    CandidateScored,
    CandidateStarted,
    Event,
)


class Progress:
    """An observer that prints a line for each step of a candidate that people wait for."""

    def __init__(self, job: BestOfN[Any, Any]) -> None:
        # A scorer that is no command takes no time, and its score says that there is an output.
        self._slow_score = job.score is None or isinstance(job.score, CommandScorer)
        self._sign = 1.0 if job.objective == "max" else -1.0
        self._begun: float | None = None
        self._best: float | None = None

    def __call__(self, event: Event) -> None:
        """Print the event's line, if it has one."""
        if self._begun is None:
            self._begun = event.time
        line = self._line(event)
        if line is not None:
            seconds = f"{event.time - self._begun:7.2f} s  "
            print_line(Text.assemble((seconds, "dim"), f"#{event.candidate:<4}", line))

    def _line(self, event: Event) -> Text | None:
        match event:
            case CandidateStarted():
                return Text("started", "dim")
            case CandidateGenerated() if self._slow_score:
                return Text("generated", "dim")
            case CandidateScored():
                return self._scored(event)
            case CandidateEnded() if event.status is not Status.ELIGIBLE:
                why = f": {brief(event.error)}" if event.error is not None else ""
                return Text(f"{event.status}{why}", "yellow")
            case _:
                return None

    def _scored(self, event: CandidateScored) -> Text:
        value = event.score.value * self._sign
        line = f"scored {number(event.score.value)}"
        if not event.score.accepted or (self._best is not None and value <= self._best):
            return Text(line)
        self._best = value
        return Text(f"{line}, the best so far", "green")
