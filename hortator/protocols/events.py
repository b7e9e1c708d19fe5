"""Everything that observers are told.

Inside, events are told apart by class; outside, by `kind`. A candidate that runs to its end
makes five: started, leased, generated, scored, ended. A run's record has exactly one terminal
event, `RunFinished`, and it is the last. The run numbers its events from 0 without a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from hortator.protocols.candidate import Detached, EffectState, Status
from hortator.protocols.scoring import Score
from hortator.protocols.stopping import StopReason
from hortator.protocols.usage import Usage


@attrs.frozen
class CandidateStarted:
    """A candidate took a slot."""

    kind: ClassVar[str] = "started"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float


@attrs.frozen
class CandidateLeased:
    """The ledger granted the candidate what it is estimated to need."""

    kind: ClassVar[str] = "leased"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float
    lease: int


@attrs.frozen
class CandidateGenerated:
    """The generator returned an output."""

    kind: ClassVar[str] = "generated"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float


@attrs.frozen
class CandidateScored:
    """The scorer returned a score."""

    kind: ClassVar[str] = "scored"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float
    score: Score


@attrs.frozen
class CandidateEnded:
    """A candidate will do nothing more, or is detached. Told once for each that started."""

    kind: ClassVar[str] = "ended"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float
    status: Status
    detached: bool
    error: BaseException | None


@attrs.frozen
class CandidatePublished:
    """A candidate offered an output before its end."""

    kind: ClassVar[str] = "published"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float
    score: Score | None


@attrs.frozen
class EffectChanged:
    """A side effect of a candidate was begun, or ended."""

    kind: ClassVar[str] = "effect"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float
    name: str
    state: EffectState


@attrs.frozen
class Emitted:
    """What a callback told by `ctx.emit`. `kind` is the callback's own word."""

    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int
    time: float
    kind: str
    data: Mapping[str, Any]


@attrs.frozen
class LateEnd:
    """Detached work ended, after its run: told to the runtime's observers only.

    What comes from detached work is numbered apart from its run, whose record is closed: such
    events have the runtime's own sequence, from 0.
    """

    kind: ClassVar[str] = "late_end"
    terminal: ClassVar[bool] = False
    sequence: int
    run_id: str
    candidate: int | None
    time: float
    detached: Detached


@attrs.frozen
class RunFinished:
    """The terminal event of a run: nothing comes after it."""

    kind: ClassVar[str] = "finished"
    terminal: ClassVar[bool] = True
    candidate: ClassVar[None] = None
    sequence: int
    run_id: str
    time: float
    stop_reason: StopReason
    partial: bool
    selected: int | None
    statuses: Mapping[Status, int]
    detached: tuple[int, ...]
    charged: Usage


Event: TypeAlias = (
    CandidateStarted
    | CandidateLeased
    | CandidateGenerated
    | CandidateScored
    | CandidateEnded
    | CandidatePublished
    | EffectChanged
    | Emitted
    | LateEnd
    | RunFinished
)
