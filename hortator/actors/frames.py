"""Where code stands: from a frame or a coroutine to "file:line in function"."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

_OURS = ("trio", "hortator", "outcome", "contextlib")


def is_ours(frame: types.FrameType) -> bool:
    """Whether it is a frame of this library's."""
    return package_of(frame) == "hortator"


def package_of(frame: types.FrameType) -> str:
    """The top-level package of the code that the frame runs."""
    name: str = frame.f_globals.get("__name__", "")
    return name.split(".")[0]


def frame_of_thread(ident: int) -> types.FrameType | None:
    """Where a thread is at this moment, if it is running."""
    # The documented way to look at another thread; its underscore is a warning, not a fence.
    return sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage]


def awaited(coroutine: Any) -> list[types.FrameType]:
    """The frames from a coroutine to what it awaits, outermost first."""
    frames: list[types.FrameType] = []
    while coroutine is not None:
        for kind in ("cr", "gi", "ag"):
            frame = getattr(coroutine, f"{kind}_frame", None)
            if frame is not None:
                frames.append(frame)
                inner = "gi_yieldfrom" if kind == "gi" else f"{kind}_await"
                coroutine = getattr(coroutine, inner, None)
                break
        else:
            return frames
    return frames


def stack(
    frame: types.FrameType | None, below: types.FrameType | None = None
) -> list[types.FrameType]:
    """The frames that lead to one, outermost first; only those that `below` has called, if given.

    Empty if `below` is not among them.
    """
    frames: list[types.FrameType] = []
    while frame is not below:
        if frame is None:
            return []
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def innermost(frames: Sequence[types.FrameType]) -> str | None:
    """ "file:line in function" of the last of them outside trio and this library."""
    theirs = [frame for frame in frames if package_of(frame) not in _OURS]
    for frame in (theirs or frames)[-1:]:
        code = frame.f_code
        return f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
    return None
