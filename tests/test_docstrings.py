"""Everything in the package is explained where it is written, and every example there works."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator
from typing import Any

import pytest

import hortator


def modules() -> list[str]:
    """All modules of the package, found by walking it; `__main__` would run on import."""
    walked = pkgutil.walk_packages(hortator.__path__, "hortator.")
    return ["hortator", *(each.name for each in walked if not each.name.endswith("__main__"))]


MODULES = modules()


def own(module: types.ModuleType, thing: Any) -> bool:
    return bool(getattr(thing, "__module__", None) == module.__name__)


def things(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """The public functions and classes that a module defines, and their public members."""
    for name, thing in vars(module).items():
        if name.startswith("_") or not own(module, thing):
            continue
        if inspect.isfunction(thing):
            yield name, thing
        elif inspect.isclass(thing):
            yield name, thing
            for member, value in vars(thing).items():
                inside: Any = value.fget if isinstance(value, property) else value
                inside = inspect.unwrap(getattr(inside, "__func__", inside))
                # What the suite itself has put there to watch a method is not the module's.
                if (
                    not member.startswith("_")
                    and inspect.isfunction(inside)
                    and own(module, inside)
                ):
                    yield f"{name}.{member}", inside


def test_the_walk_finds_the_whole_package() -> None:
    assert len(MODULES) > 40
    assert {"hortator.actors.runtime", "hortator.protocols.ledger", "hortator.actors.cli.app"} <= {
        *MODULES
    }


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_has_a_docstring(name: str) -> None:
    module = importlib.import_module(name)
    assert (module.__doc__ or "").strip(), "the module itself has none"
    assert [where for where, thing in things(module) if not (thing.__doc__ or "").strip()] == []


def test_the_check_looks_at_functions_classes_and_their_members() -> None:
    module = importlib.import_module("hortator.protocols.usage")
    assert {where for where, _ in things(module)} >= {"fault", "Usage", "Usage.of", "Malformed"}
    assert "RunResult.output" in dict(things(importlib.import_module("hortator.protocols.result")))


def examples(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder().find(importlib.import_module(name))
    return [each for each in found if each.examples]


EXAMPLES = [(name, each) for name in MODULES for each in examples(name)]


@pytest.mark.parametrize(
    ("name", "example"), EXAMPLES, ids=[f"{example.name}" for _, example in EXAMPLES]
)
def test_an_example_does_what_it_shows(name: str, example: doctest.DocTest) -> None:
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(example, out=said.append)
    assert not said, "".join(said)


def test_there_are_examples_of_what_people_use() -> None:
    shown = {example.name for _, example in EXAMPLES}
    assert shown >= {
        "hortator",
        "hortator.actors.handle.RunHandle",
        "hortator.actors.observer.in_thread",
        "hortator.actors.runtime.Runtime.run",
        "hortator.actors.runtime.best_of_n",
        "hortator.actors.runtime.open_runtime",
        "hortator.protocols.best_of_n.BestOfN",
        "hortator.protocols.budget.Budget",
        "hortator.protocols.scoring.Score",
        "hortator.protocols.usage.Usage",
    }
