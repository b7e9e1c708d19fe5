"""`--job FILE`: a job file as the defaults of the flags."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import typer

from hortator.protocols.errors import InvalidJob

META = "hortator.job"
"""Where a context has its job file: path, lines of the keys, and environment."""


def load(ctx: typer.Context, path: str | None) -> str | None:
    """Read a job file and make its values the defaults of the flags, before those are read.

    Paths in it are relative to its own folder.

    Args:
        ctx: of the command.
        path: as it was written; None if there is none.
    """
    if path is None:
        return None
    from hortator.protocols.jobfile import read_job  # pydantic: only who has a file waits for it

    try:
        job = read_job(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        ctx.fail(f"{path}: it cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        ctx.fail(f"{path}: it is not UTF-8 text")
    except InvalidJob as error:
        ctx.fail(f"{path}{',' if str(error).startswith('line ') else ':'} {error}")
    folder = os.path.dirname(path)
    defaults: dict[str, Any] = {}
    for key, value in job.values.items():
        match key:
            case "generate" | "score":
                defaults[key] = value if isinstance(value, str) else shlex.join(value)
            case "cwd" | "events":
                defaults[key] = os.path.join(folder, value)
            case "max_cost" | "estimate_cost":
                defaults[key] = str(value)
            case "env":
                pass  # not instead of the flags, but under them
            case _:
                defaults[key] = value
    ctx.default_map = defaults
    ctx.meta[META] = (path, job.lines, job.values.get("env", {}))
    return path


def told_by(ctx: typer.Context, name: str) -> str | None:
    """Where in a job file a value comes from, for people; None if it does not come from one."""
    source = ctx.get_parameter_source(name)
    if META not in ctx.meta or source is None or source.name != "DEFAULT_MAP":
        return None
    path, lines, _ = ctx.meta[META]
    return f"{path}, line {lines[name]}: {name}" if name in lines else f"{path}: {name}"


def missing(ctx: typer.Context, name: str) -> str:
    """What to say first of something that was not given."""
    if META in ctx.meta:
        path = ctx.meta[META][0]
        return f"{path}: {name} is missing, and there is no --{name}"
    return f"Missing option '--{name}'"


def environment(ctx: typer.Context) -> dict[str, str]:
    """The environment that a job file gives its commands."""
    return dict(ctx.meta[META][2]) if META in ctx.meta else {}
