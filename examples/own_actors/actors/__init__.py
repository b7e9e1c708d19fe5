"""The actors of this program. They know nothing of the library."""
