"""Asks that are answered on the spot, for tests of books without anybody who could wait."""

from __future__ import annotations

from hortator import Usage
from hortator.protocols.ledger import Book, Lease


def top_up(book: Book, lease: Lease, usage: Usage) -> bool:
    """Widen an open lease if there is room at this moment; else nothing has changed."""
    ask = book.ask_for_more(lease, usage)
    ask.withdraw()
    return bool(ask.granted)
