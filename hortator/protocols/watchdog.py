"""What is told of code that holds the event loop."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen(kw_only=True)
class Blocked:
    """One step of one task that held the event loop for too long.

    Attributes:
        run_id: the run on whose behalf it was made, None for code outside of any run.
        candidate: its index there, None for an observer, a rule or code outside of any run.
        phase: what the loop was doing for it, None outside of candidates and observers.
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
        who = "an observer" if self.candidate is None else f"candidate {self.candidate}"
        return f"{who} of {self.run_id} ({self.phase}) at {self.where}"
