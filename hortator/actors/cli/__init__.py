"""The command line: `hortator run` and `hortator demo`. Needs the extra `cli`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: a candidate was selected. 1: none was eligible. 2: bad usage, or the extra is missing.
    130 after Ctrl-C, 143 after SIGTERM, 129 after the terminal was closed: the best so far was
    printed. 141: whoever read the output stopped reading.

    Args:
        arguments: the words after `hortator`; None for those of this process.
    """
    try:
        # Here, so that a missing extra is told in a line and not in a traceback.
        from hortator.actors.cli.app import app

        import_module("rich")  # which `app` needs later
        app(arguments, prog_name="hortator")
    except ModuleNotFoundError as missing:
        name = str(missing.name).partition(".")[0]
        if name not in {"typer", "rich"}:
            raise
        print(
            f"hortator: the command line needs {name}, which is not installed."
            " Install it with: pip install 'hortator[cli]'",
            file=sys.stderr,
        )
        return 2
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except KeyboardInterrupt:  # before anything was started
        return 130
    return 0
