"""How objects of the user's are shown: their own `repr` and `str` may raise."""

from __future__ import annotations


def shown(value: object, most: int = 80) -> str:
    """`repr(value)`, shortened, or its type's name if the repr raises.

    >>> shown("x" * 100, most=10)
    "'xxxxxxxxx..."
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001
        # It is only for a message, and whatever the object raises must not replace that.
        return f"<{type(value).__name__}, whose repr raises>"
    return text if len(text) <= most else f"{text[:most]}..."


def message(error: BaseException) -> str:
    """`str(error)`, or a note if that raises.

    >>> message(ValueError("no such thing"))
    'no such thing'
    """
    try:
        return str(error)
    except Exception:  # noqa: BLE001
        # As above.
        return f"<{type(error).__name__}, whose message raises>"
