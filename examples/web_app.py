"""A web app: when a client goes away, the run that was made for it is cancelled.

It needs two more packages, quart-trio and hypercorn: `pip install '.[examples]'`. Nothing has to
be done about clients that leave: the server cancels the handler, and so the run inside it, whose
candidates end at once. One runtime serves all requests.

    python examples/web_app.py

serves until Ctrl-C. In another terminal

    curl 'http://127.0.0.1:8000/best?seconds=1'

gets `{"candidates":3,"output":"draft 2"}` after one second. Ask for more seconds, press Ctrl-C
there, and the server prints that each candidate has ended as `cancelled`.
"""

import signal
import sys

import trio
from hypercorn.config import Config
from hypercorn.trio import serve  # pyright: ignore[reportUnknownVariableType]
from quart import request
from quart_trio import QuartTrio

from hortator import BestOfN, CandidateContext, Event, best_of_n, open_runtime
from hortator.protocols.candidate import Generated
from hortator.protocols.events import CandidateEnded, CandidateStarted


async def generate(seconds: float, ctx: CandidateContext) -> str:
    await trio.sleep(seconds)  # yours asks a model, a solver or a service
    return f"draft {ctx.index}"


async def score(seconds: float, candidate: Generated[str], ctx: CandidateContext) -> float:
    return candidate.index


JOB = BestOfN(generate=generate, score=score, n=3, timeout=30)
app = QuartTrio(__name__)


@app.get("/best")
async def best() -> dict[str, object]:
    # It runs on the runtime around it, the one that main has opened.
    result = await best_of_n(JOB, float(request.args["seconds"]))
    return {"output": result.output, "candidates": len(result.candidates)}


def tell(event: Event) -> None:
    if isinstance(event, CandidateStarted):
        print(f"{event.run_id} #{event.candidate} started", flush=True)
    elif isinstance(event, CandidateEnded):
        print(f"{event.run_id} #{event.candidate} {event.status}", flush=True)


async def main(port: str) -> None:
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def until_told_to_stop() -> None:
            await anext(aiter(signals))

        async with open_runtime(observers=[tell]):
            await serve(app, config, shutdown_trigger=until_told_to_stop)


trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "8000")
