"""What the actors of a run tell each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from hortator.protocols.attempt import Attempt


@attrs.frozen
class Look:
    """To the runner: something has changed, look at the run."""


@attrs.frozen
class Finished:
    """To the scorer: a candidate has generated and waits to be scored."""

    attempt: Attempt


@attrs.frozen
class Role:
    """A callback of the job, and which part of a candidate it plays."""

    function: Callable[..., Any]
    asynchronous: bool
    scores: bool
