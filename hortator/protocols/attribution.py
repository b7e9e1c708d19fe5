"""Who spent what: the ledger tree as an account that adds up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from hortator.protocols.usage import NOTHING, Amounts, Usage, exact, minus, plus

if TYPE_CHECKING:
    from hortator.protocols.candidate import Candidate


_NO_USAGE = Usage()


@attrs.frozen
class Attribution:
    """One node of the tree: what it was charged, and which parts of it that was.

    The charges of a node's children sum to its own; so the leaves sum to the root.

    Attributes:
        name: "runtime", an account's or run's name, "candidate 3", "generating", "scoring", …
        charged: what the node was charged, everything below it included.
        children: its parts; empty for a leaf.

    >>> part = Attribution("generating", Usage(model_calls=2))
    >>> whole = Attribution("candidate 0", Usage(model_calls=2), (part,))
    >>> [leaf.name for leaf in whole.leaves()]
    ['generating']
    """

    name: str
    charged: Usage
    children: tuple[Attribution, ...] = ()

    def leaves(self) -> Iterator[Attribution]:
        """The nodes without children, from left to right."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def __str__(self) -> str:
        return "\n".join(self._lines(""))

    def _lines(self, indent: str) -> Iterator[str]:
        parts = [
            f"{getattr(self.charged, field.name)} {field.name}"
            for field in attrs.fields(Usage)
            if field.name != "cost" and getattr(self.charged, field.name)
        ]
        if self.charged.cost:
            parts.append(f"${self.charged.cost:f}")
        yield f"{indent}{self.name}: {', '.join(parts) or 'nothing'}"
        for child in self.children:
            yield from child._lines(indent + "  ")


def node(name: str, charged: Amounts, children: Iterable[Attribution], rest: str) -> Attribution:
    """A node with these parts, and one more named `rest` for what they leave over."""
    parts = [child for child in children if child.charged != Usage()]
    left = minus(charged, sum_of(parts))
    if not parts:
        return Attribution(name, Usage.of(charged))
    if any(left):
        parts.append(Attribution(rest, Usage.of(left)))
    return Attribution(name, Usage.of(charged), tuple(parts))


def sum_of(parts: Iterable[Attribution]) -> Amounts:
    """What the nodes were charged together."""
    total = NOTHING
    for part in parts:
        total = plus(total, exact(part.charged))
    return total


def of_run(
    run_id: str, charged: Amounts, candidates: Iterable[Candidate[Any]], rest: str = "choosing"
) -> Attribution:
    """The tree of one run, of its records and of what it was charged as a whole."""
    if not any(charged):
        return Attribution(run_id, _NO_USAGE)
    return node(run_id, charged, map(of_candidate, candidates), rest)


def of_candidate(candidate: Candidate[Any]) -> Attribution:
    """The tree of one candidate: its generation, its scoring, the runs that it started."""
    name = f"candidate {candidate.index}"
    if candidate.usage == Usage():
        return Attribution(name, candidate.usage)
    charged, scoring = exact(candidate.usage), Attribution("scoring", candidate.scoring)
    own = minus(charged, sum_of((scoring, *candidate.nested)))
    generating = Attribution("generating", Usage.of(own))
    return node(name, charged, (generating, scoring, *candidate.nested), "not known")
