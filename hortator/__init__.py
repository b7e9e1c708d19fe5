"""Hortator: N concurrent attempts at one job, inside one budget and one hard deadline.

>>> import trio
>>> from hortator import BestOfN, open_runtime
>>> async def generate(request, ctx):
...     return f"{request} #{ctx.index}"
>>> async def score(request, candidate, ctx):
...     return candidate.index
>>> async def main():
...     async with open_runtime() as runtime:
...         job = BestOfN(generate=generate, score=score, n=4, timeout=2.0)
...         return (await runtime.run(job, "attempt")).output
>>> trio.run(main)
'attempt #3'
"""

from hortator.actors.handle import RunHandle as RunHandle
from hortator.actors.observer import Observer as Observer, in_thread as in_thread
from hortator.actors.process import (
    command as command,
    command_scorer as command_scorer,
)
from hortator.actors.recorder import read_events as read_events, record_to as record_to
from hortator.actors.runtime import (
    Runtime as Runtime,
    best_of_n as best_of_n,
    open_runtime as open_runtime,
)
from hortator.protocols.batch import BatchScorer as BatchScorer
from hortator.protocols.bayes_risk import minimum_bayes_risk as minimum_bayes_risk
from hortator.protocols.best_of_n import BestOfN as BestOfN
from hortator.protocols.budget import Budget as Budget
from hortator.protocols.candidate import (
    Candidate as Candidate,
    Detached as Detached,
    Status as Status,
)
from hortator.protocols.consensus import (
    adaptive_consistency as adaptive_consistency,
    vote_decided as vote_decided,
)
from hortator.protocols.errors import (
    CandidateError as CandidateError,
    DoesNotFit as DoesNotFit,
    HortatorError as HortatorError,
    InvalidJob as InvalidJob,
    InvalidReport as InvalidReport,
    LeaseExceeded as LeaseExceeded,
    NoEligibleCandidate as NoEligibleCandidate,
    ObserverFailed as ObserverFailed,
    RunEnded as RunEnded,
    RunStopping as RunStopping,
)
from hortator.protocols.events import Event as Event
from hortator.protocols.halving import successive_halving as successive_halving
from hortator.protocols.interfaces import CandidateContext as CandidateContext
from hortator.protocols.result import RunResult as RunResult, Snapshot as Snapshot
from hortator.protocols.scoring import Score as Score
from hortator.protocols.selection import best_score as best_score, top_k as top_k
from hortator.protocols.stopping import (
    all_candidates as all_candidates,
    first_accepted as first_accepted,
    target as target,
)
from hortator.protocols.tournament import Preference as Preference, tournament as tournament
from hortator.protocols.usage import Usage as Usage, UsageReport as UsageReport
from hortator.protocols.voting import (
    plurality_vote as plurality_vote,
    weighted_vote as weighted_vote,
)
from hortator.protocols.watchdog import Blocked as Blocked
