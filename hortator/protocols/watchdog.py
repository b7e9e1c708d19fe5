"""What is told of code that holds the event loop."""

from __future__ import annotations

from typing import Literal

import attrs

_WHO = {
    "generating": "a generator",
    "scoring": "a batch scorer",
    "observing": "an observer",
    "selecting": "the selector",
    "building": "the builder",
}


@attrs.frozen(kw_only=True)
class Blocked:
    """One step of one task that held the event loop for too long.

    Attributes:
        run_id: the run on whose behalf it was made, None for code outside of any run.
        candidate: its index there, None for what belongs to no single one.
        phase: which callback of the run it was, None for keys and for code outside of any run.
        where: "file:line in function", the innermost place outside trio and this library, as it
            was seen last.
        seconds: how long it was seen to go on, at least.
    """

    run_id: str | None
    candidate: int | None
    phase: Literal["generating", "scoring", "observing", "selecting", "building"] | None
    where: str
    seconds: float

    def tale(self) -> str:
        """Who it is and where it stands, for a log line."""
        if self.run_id is None:
            return f"code outside of any run at {self.where}"
        if self.phase is None:
            return f"{self.run_id} at {self.where}"
        who = _WHO[self.phase] if self.candidate is None else f"candidate {self.candidate}"
        return f"{who} of {self.run_id} ({self.phase}) at {self.where}"
