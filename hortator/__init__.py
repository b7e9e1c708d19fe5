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
from hortator.actors.observer import Observer as Observer
from hortator.actors.observer import in_thread as in_thread
from hortator.actors.runtime import Runtime as Runtime
from hortator.actors.runtime import best_of_n as best_of_n
from hortator.actors.runtime import open_runtime as open_runtime
from hortator.protocols.best_of_n import BestOfN as BestOfN
from hortator.protocols.candidate import Candidate as Candidate
from hortator.protocols.candidate import Detached as Detached
from hortator.protocols.candidate import Status as Status
from hortator.protocols.errors import CandidateError as CandidateError
from hortator.protocols.errors import DoesNotFit as DoesNotFit
from hortator.protocols.errors import HortatorError as HortatorError
from hortator.protocols.errors import InvalidJob as InvalidJob
from hortator.protocols.errors import LeaseExceeded as LeaseExceeded
from hortator.protocols.errors import NoEligibleCandidate as NoEligibleCandidate
from hortator.protocols.errors import ObserverFailed as ObserverFailed
from hortator.protocols.errors import RunEnded as RunEnded
from hortator.protocols.errors import RunStopping as RunStopping
from hortator.protocols.events import Event as Event
from hortator.protocols.interfaces import CandidateContext as CandidateContext
from hortator.protocols.ledger import Budget as Budget
from hortator.protocols.result import RunResult as RunResult
from hortator.protocols.result import Snapshot as Snapshot
from hortator.protocols.scoring import Score as Score
from hortator.protocols.selection import best_score as best_score
from hortator.protocols.stopping import all_candidates as all_candidates
from hortator.protocols.stopping import first_accepted as first_accepted
from hortator.protocols.stopping import target as target
from hortator.protocols.usage import Usage as Usage
from hortator.protocols.usage import UsageReport as UsageReport
