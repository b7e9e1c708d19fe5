"""Minimum Bayes risk: the candidate that is most like all the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import attrs

from hortator.protocols.asking import Asking, AskingFailed, Case
from hortator.protocols.errors import InvalidScore
from hortator.protocols.scoring import finite
from hortator.protocols.selection import Asks, first_of
from hortator.protocols.signatures import check_callback

Similarity: TypeAlias = Callable[[Any, Any], Awaitable[float]] | Callable[[Any, Any], float]
"""How alike two outputs are: async, or sync and then run in a worker thread."""


@attrs.frozen
class MinimumBayesRisk:
    """A selector that asks how alike outputs are.

    Attributes:
        function: the similarity.
    """

    function: Callable[..., Any]
    name: str = "minimum_bayes_risk"
    needs_scores: bool = False

    def script(self, case: Case) -> Asking:
        """Ask about each pair once, in index order; the highest mean wins."""
        able = [candidate for candidate in case.candidates if candidate.eligible]
        alike: list[list[float]] = [[] for _ in able]
        for (i, first), (j, second) in itertools.combinations(enumerate(able), 2):
            answer = yield from case.ask(first.output, second.output)
            try:
                similarity = finite(answer, "the similarity function")
            except InvalidScore as error:
                raise AskingFailed(error) from error
            alike[i].append(similarity)
            alike[j].append(similarity)
        # All have as many others. The means are summed exactly: the order can't matter.
        means = [math.fsum(each) / max(1, len(each)) for each in alike]
        most = max(means, default=0.0)
        ties = [
            candidate
            for candidate, mean in zip(able, means, strict=True)
            if mean >= most - case.tolerance
        ]
        winner = first_of(ties, case.objective, case.tolerance)
        return None if winner is None else winner.index


def minimum_bayes_risk(similarity: Similarity) -> Asks:
    """Select the eligible candidate with the highest mean similarity to the other ones.

    Minimum Bayes risk decoding, with the candidates as the sample that stands for what is likely:
    Kumar and Byrne, "Minimum Bayes-risk decoding for statistical machine translation" (HLT-NAACL
    2004); Eikema and Aziz, "Sampling-based approximations to minimum Bayes risk decoding for
    neural machine translation" (EMNLP 2022). Needs no scorer. With m eligible candidates there
    are m (m - 1) / 2 calls, one after another. Means within the job's `tie_tolerance` are ties,
    which the built-in order breaks.

    Args:
        similarity: `similarity(a, b)` of two outputs, a finite number, larger for more alike;
            sync (all pairs in one call of a worker thread) or async. It is taken as symmetric:
            each pair is asked about once, the lower index first. It is cut like a custom
            selector; if it raises, or its number is not finite, the selection has failed.

    Raises:
        InvalidJob: it can't be called with two arguments.

    >>> def similarity(a, b):
    ...     return len(set(a.split()) & set(b.split()))
    >>> minimum_bayes_risk(similarity).name
    'minimum_bayes_risk'
    """
    check_callback("similarity", similarity, ("a", "b"))
    return MinimumBayesRisk(similarity)
