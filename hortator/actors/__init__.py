"""Everything that runs: tasks, channels, threads, processes and clocks.

Each module's rules stand, pure, in the module of the same name in `hortator.protocols`.
"""

if __name__ != "hortator.actors":
    raise ImportError(f"import this package as 'hortator.actors', not as {__name__!r}")
