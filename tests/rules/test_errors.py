"""The tree of errors: as it is drawn, so it is; and the messages that every error comes with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hortator import HortatorError, NoEligibleCandidate, ObserverFailed
from hortator.protocols import errors
from hortator.protocols.errors import CandidateError

BRANCH = re.compile(r"^(?P<depth>[ │]*)[├└]── (?P<name>\w+)(?P<also> *\(also ValueError\))?", re.M)


def drawn() -> Iterator[tuple[str, str, bool]]:
    """Each error of the drawing, what it hangs on, and whether it is a ValueError too."""
    path = ["HortatorError"]
    for match in BRANCH.finditer(errors.__doc__ or ""):
        del path[len(match["depth"]) // 4 :]  # the drawing is indented by one step
        yield match["name"], path[-1], match["also"] is not None
        path.append(match["name"])


def defined() -> dict[str, type[BaseException]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }


def test_the_drawing_shows_every_error_and_no_other() -> None:
    names = ["HortatorError", *(name for name, _, _ in drawn())]
    assert len(names) == len(set(names))
    assert set(names) == set(defined())


def test_every_error_hangs_where_it_is_drawn() -> None:
    classes = defined()
    for name, parent, is_value_error in drawn():
        bases = classes[name].__bases__
        assert bases[0] is classes[parent], f"{name} is drawn under {parent}"
        expected = is_value_error or issubclass(classes[parent], ValueError)
        assert issubclass(classes[name], ValueError) == expected, name


def test_one_except_catches_all() -> None:
    assert all(issubclass(each, HortatorError) for each in defined().values())
    assert not issubclass(HortatorError, ValueError)


def test_what_a_candidate_failed_of_is_told_from_what_a_run_raises() -> None:
    raised_by_runs = {"InvalidJob", "DoesNotFit", "NoEligibleCandidate", "ObserverFailed"}
    for name, each in defined().items():
        if name in raised_by_runs:
            assert not issubclass(each, CandidateError), name


def test_an_observer_failure_carries_the_result_and_all_failures() -> None:
    first, second = ValueError("no"), KeyError("key")
    error = ObserverFailed("the result", [first, second])
    assert error.result == "the result"
    assert error.failures == (first, second)
    assert error.__cause__ is first
    assert "ValueError" in str(error)
    assert ".result" in str(error), "it does not say where the result is"


def test_a_missing_candidate_carries_all_causes() -> None:
    causes = [ValueError("no"), KeyError("key")]
    assert NoEligibleCandidate("none", causes).causes == tuple(causes)
    assert NoEligibleCandidate("none").causes == ()
