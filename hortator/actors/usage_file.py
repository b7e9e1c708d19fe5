"""The file in which a command reports what it has used."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile

from hortator.protocols.usage import Unreadable, Usage

USAGE = "HORTATOR_USAGE"
"""The environment variable that has the file's path."""

_LONGEST = 65536


class UsageFile:
    """A file of one attempt: there from before its birth until it was read.

    A file, and not a pipe: whoever fills it never waits for us, it outlives shells that close what
    they do not know, and what was reported before a command was killed is in it.

    Attributes:
        path: where it is, for the attempt's environment.
    """

    path: str

    def __init__(self) -> None:
        descriptor, self.path = tempfile.mkstemp(prefix="hortator-usage-")
        os.close(descriptor)

    def read(self) -> Usage | None:
        """What it comes to; None if nothing was reported."""
        try:
            # Not blocking, should somebody have put a pipe in its place.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Unreadable(why=f"its usage report cannot be opened: {error.strerror}")
        with open(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Unreadable(why="its usage report is no longer a file")
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            return Unreadable(why=f"its usage report is longer than {_LONGEST:,} bytes")
        # Here, and not above: importing pydantic costs more than everything else in this library.
        from hortator.protocols.reported import read_usage

        return read_usage(text)

    def remove(self) -> None:
        """Remove the file, if it is still there."""
        with contextlib.suppress(OSError):
            os.unlink(self.path)
