"""What is said in Hortator, and the rules of saying it: pure values and decisions.

Nothing here awaits, and nothing here touches trio, httpx, a file or a clock.
"""

if __name__ != "hortator.protocols":
    raise ImportError(f"import this package as 'hortator.protocols', not as {__name__!r}")
