"""The planted faults of `tests/mutants` can be planted, and their killers exist.

That the killers kill is not tested here: `python -m tests.mutants.run` takes minutes.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.catalogue import FOLDER, ROOT, Mutant, NotThere, load

pytestmark = pytest.mark.source  # an installed library has no source tree to plant faults in

MUTANTS = load()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_can_be_planted_and_leaves_good_python(mutant: Mutant) -> None:
    before = (ROOT / mutant.file).read_text(encoding="utf-8")
    after = mutant.planted(ROOT)
    assert after != before, "it changes nothing"
    compile(after, mutant.file, "exec", dont_inherit=True)
    assert mutant.file.startswith("hortator/"), "the fault is to be in the library"
    assert mutant.why.strip(), "say which guarantee it breaks"


def test_every_killer_exists() -> None:
    known = {path: _tests(ROOT / path) for path in {_file(mutant) for mutant in MUTANTS}}
    missing = [
        f"{mutant.name}: {mutant.killed_by}"
        for mutant in MUTANTS
        if mutant.killed_by.partition("::")[2].partition("[")[0] not in known[_file(mutant)]
    ]
    assert not missing, f"no such tests: {missing}"


def _file(mutant: Mutant) -> str:
    return mutant.killed_by.partition("::")[0]


def _tests(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


def test_there_is_one_for_each_thing_that_a_run_promises() -> None:
    names = {mutant.name for mutant in MUTANTS}
    assert names >= {
        "settlement_on_cancel",
        "leases_move",
        "delivery_limit",
        "observers_cut",
        "tie_set",
        "single_writer",
        "stopping_before_the_first_line",
        "scope_is_reopened",
        "context_is_copied",
        "interrupts_leave",
        "two_shares",
        "first_come_first_served",
        "waiting_for_nobody_ends",
        "a_grant_and_a_cancel_at_once",
        "a_grant_to_who_may_not_start_is_handed_back",
        "cancelled_asks_leave_the_queue",
        "nested_charges_are_rolled_up",
        "nested_runs_draw_on_the_lease",
        "nested_runs_end_with_their_candidate",
        "attribution_adds_up",
    }
    assert len(names) == len(list(FOLDER.glob("*.toml")))


def test_a_fault_whose_place_has_changed_is_refused(tmp_path: Path) -> None:
    mutant = Mutant(
        name="", file="a.py", find="one\n", replace="two\n", why="", killed_by="tests/b.py::c"
    )
    for text in ("", "one\none\n"):
        (tmp_path / "a.py").write_text(text)
        with pytest.raises(NotThere, match="must exactly once"):
            mutant.planted(tmp_path)
    (tmp_path / "a.py").write_text("one\nthree\n")
    assert mutant.planted(tmp_path) == "two\nthree\n"
