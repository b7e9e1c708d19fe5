"""What `hortator` shows to the world, and what its two halves may import.

The names are pinned: adding or removing one is a decision, not an accident.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import hortator

PACKAGE = Path(hortator.__file__).parent

NAMES = {
    # to run a job
    "BatchScorer",
    "BestOfN",
    "Budget",
    "Runtime",
    "RunHandle",
    "best_of_n",
    "command",
    "command_scorer",
    "in_thread",
    "open_runtime",
    # rules
    "Preference",
    "adaptive_consistency",
    "all_candidates",
    "best_score",
    "first_accepted",
    "minimum_bayes_risk",
    "plurality_vote",
    "successive_halving",
    "target",
    "top_k",
    "tournament",
    "vote_decided",
    "weighted_vote",
    # what callbacks and observers are given, and give
    "CandidateContext",
    "Event",
    "Observer",
    "Score",
    "Usage",
    # what comes of a run
    "Blocked",
    "Candidate",
    "Detached",
    "RunResult",
    "Snapshot",
    "Status",
    "UsageReport",
    # to keep what came of it
    "read_events",
    "record_to",
    # errors
    "CandidateError",
    "DoesNotFit",
    "HortatorError",
    "InvalidJob",
    "InvalidReport",
    "LeaseExceeded",
    "NoEligibleCandidate",
    "ObserverFailed",
    "RunEnded",
    "RunStopping",
}


def public(module: types.ModuleType) -> dict[str, Any]:
    """What somebody who types a dot after the module's name is offered, but for submodules."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }


def test_the_public_names_are_exactly_these() -> None:
    assert set(public(hortator)) == NAMES


ALIASES = {"Event", "Observer"}
"""Names of unions; a union has no home of its own."""


@pytest.mark.parametrize("name", sorted(NAMES - ALIASES))
def test_every_public_name_is_defined_in_one_of_the_two_halves(name: str) -> None:
    value = getattr(hortator, name)
    home = value.__module__
    assert home.startswith(("hortator.actors.", "hortator.protocols."))
    assert getattr(importlib.import_module(home), name) is value


def test_the_errors_are_one_tree() -> None:
    for name, value in public(hortator).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            assert issubclass(value, hortator.HortatorError), name
    assert issubclass(hortator.DoesNotFit, hortator.InvalidJob)
    assert issubclass(hortator.InvalidJob, ValueError)
    for error in (hortator.LeaseExceeded, hortator.RunEnded, hortator.RunStopping):
        assert issubclass(error, hortator.CandidateError)


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


# -- child processes: what an import does --------------------------------------------------------


def in_child(*lines: str) -> str:
    """What a fresh interpreter prints that runs these lines, warnings being errors."""
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout.strip()


@pytest.mark.parametrize("folder", ["actors", "protocols"])
def test_a_half_refuses_to_be_imported_under_its_folders_name(folder: str) -> None:
    # A second copy of each class would make `match` fall through silently.
    printed = in_child(
        "import sys",
        f"sys.path.insert(0, {str(PACKAGE)!r})",
        "try:",
        f"    import {folder}",
        "except ImportError as error:",
        "    print(error)",
    )
    assert f"'hortator.{folder}'" in printed, f"import {folder} was not refused: {printed!r}"
    assert f"{folder!r}" in printed


FORBIDDEN = ["trio", "httpx", "httpcore", "anyio", "sniffio", "outcome"]


def test_the_rules_import_neither_trio_nor_httpx() -> None:
    # The facade imports both halves, so an empty package stands in for it here.
    loaded = in_child(
        "import importlib, pkgutil, sys, types",
        "package = sys.modules['hortator'] = types.ModuleType('hortator')",
        f"package.__path__ = [{str(PACKAGE)!r}]",
        "import hortator.protocols",
        "names = [m.name for m in pkgutil.walk_packages(hortator.protocols.__path__)]",
        "for name in names:",
        "    importlib.import_module(f'hortator.protocols.{name}')",
        "print(len(names), *sys.modules)",
    ).split()
    assert int(loaded[0]) >= 19, "not all modules of the rules were found"
    assert "hortator.protocols.ledger" in loaded
    assert [name for name in loaded if name.split(".")[0] in FORBIDDEN] == []
    assert [name for name in loaded if name.startswith("hortator.actors")] == []


def test_the_library_needs_none_of_the_extras() -> None:
    loaded = in_child("import hortator, sys", "print(*sys.modules)").split()
    extras = {"typer", "click", "rich", "numpy", "hypothesis", "pytest"}
    assert [name for name in loaded if name.split(".")[0] in extras] == []
    assert "hortator.actors.cli" not in loaded


def test_importing_starts_nothing_and_prints_nothing() -> None:
    printed = in_child(
        "import threading",
        "import hortator",
        "print(threading.active_count())",
    )
    assert printed == "1"


def test_the_library_logs_under_its_own_name_and_sets_nothing_up() -> None:
    printed = in_child(
        "import logging",
        "import hortator",
        "ours = [n for n in logging.root.manager.loggerDict if n.split('.')[0] == 'hortator']",
        "print(ours, logging.root.handlers, logging.getLogger('hortator').handlers)",
    )
    assert printed == "['hortator'] [] []"
