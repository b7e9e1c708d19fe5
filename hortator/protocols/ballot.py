"""Votes of commands: what an output votes for, as whole text or by a regular expression.

::

    CandidateError
    └── NoVote    the regular expression was not found in an output
"""

from __future__ import annotations

import re

import attrs

from hortator.protocols.errors import CandidateError, InvalidJob
from hortator.protocols.showing import on_one_line


class NoVote(CandidateError):
    """An output in which there is nothing to vote for."""

    def __init__(self, pattern: str, output: bytes) -> None:
        seen = on_one_line(output, 80) if output.strip() else "nothing"
        super().__init__(f"no vote: {on_one_line(pattern, 80)!r} is not found in {seen}")


@attrs.frozen
class Ballot:
    """Reads votes out of outputs.

    Attributes:
        pattern: what is searched for; None if the whole output is the vote.
    """

    pattern: re.Pattern[str] | None = None

    @classmethod
    def parse(cls, expression: str) -> Ballot:
        """A ballot by a regular expression of Python's, in which `^` and `$` match at each line.

        Raises:
            InvalidJob: it is no regular expression.

        >>> Ballot.parse("answer: (.*)$").vote(b"so,\\nanswer: 42\\n")
        '42'
        """
        try:
            return cls(re.compile(expression, re.MULTILINE))
        except re.error as error:
            raise InvalidJob(
                f"{expression!r} is no regular expression: {error}."
                " Write one of Python's, such as 'answer: (.*)'"
            ) from error

    def vote(self, output: bytes) -> str | None:
        """What an output votes for, without the white space around it; None if for nothing.

        That is the first group of the first match that took part in it, the whole match if the
        expression has no group, and the whole output if there is no expression.

        >>> Ballot().vote(b" 42\\n")
        '42'
        >>> Ballot.parse("[0-9]+").vote(b"none") is None
        True
        """
        text = output.decode("utf-8", "surrogateescape")
        if self.pattern is None:
            return text.strip()
        found = self.pattern.search(text)
        if found is None:
            return None
        groups = [group for group in found.groups() if group is not None]
        if self.pattern.groups and not groups:
            return None
        return (groups[0] if groups else found[0]).strip()

    def checked(self, output: bytes) -> bytes:
        """The output, if it votes for something.

        Raises:
            NoVote: it does not.
        """
        if self.pattern is not None and self.vote(output) is None:
            raise NoVote(self.pattern.pattern, output)
        return output
