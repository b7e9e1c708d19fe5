"""How objects of the user's are shown: their own `repr` and `str` may raise."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


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


def on_one_line(text: str | bytes, limit: int) -> str:
    """The text on one line and safe to print: control characters escaped, cut at `limit`.

    What callbacks and commands say goes to people's terminals in messages, and may hold anything.

    >>> on_one_line(b"a\\x1b[2Jb", 40)
    'a\\\\x1b[2Jb'
    """
    plain = text.decode(errors="replace") if isinstance(text, bytes) else text
    plain = plain.strip()
    cut = plain[: limit - 1] + "…" if len(plain) > limit else plain
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], cut)
