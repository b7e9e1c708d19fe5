"""What people see of a result: one line from `repr`, a table from Rich.

* A `repr` never raises, whatever users' objects are; it is one line, printable, and never huge.
* It says who was selected and why, how the others ended, why the run ended, and what it cost.
* The table has a row for each candidate, one for neighbours that never started, and no row is
  wrapped at any width; what users wrote is shown letter by letter and never read as markup.
* The library does without Rich until Rich asks for a table.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from rich.cells import cell_len
from rich.console import Console

import hortator
from hortator import Candidate, RunResult, Score, Snapshot, Status, Usage, UsageReport
from hortator.protocols.brief import LONGEST_HEAD, LONGEST_LINE, costs, head
from hortator.protocols.encoding import RecordedCandidate
from hortator.protocols.errors import RecordedError
from hortator.protocols.result import Telemetry
from hortator.protocols.story import counted
from hortator.protocols.table import LONGEST, NARROW, SHORTENED
from tests.rules.results import (
    ANYTHING,
    PATIENT,
    STRANGE,
    BadlyWritten,
    NoRepr,
    cyclic,
    deep,
    results,
)


def eligible(index: int, output: Any = "the best", value: float = 0.5, **more: Any) -> Any:
    score = Score(value)
    fields = {"output": output, "score": score, "started": 0.0, "elapsed": 1.5, "eligible": True}
    return Candidate(index, Status.ELIGIBLE, **{**fields, **more})


def of(*candidates: Any, **changes: Any) -> RunResult[Any]:
    result: RunResult[Any] = RunResult(
        selected=next((each for each in candidates if each.eligible), None),
        candidates=candidates,
        stop_reason="completed",
        partial=False,
        selected_by="best_score",
        usage=UsageReport(),
        telemetry=Telemetry(),
        seed=1,
        run_id="run-7",
        elapsed=2.004,
    )
    return attrs.evolve(result, **changes)


def failed(index: int, error: BaseException) -> Candidate[Any]:
    return Candidate(index, Status.GENERATION_FAILED, error=error, started=0.0, elapsed=0.25)


# -- one line ------------------------------------------------------------------------------------


def one_line(line: str) -> None:
    assert line.isprintable() or not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", line)
    line.encode()
    # An escape of one character has up to six.
    assert len(line) <= 6 * LONGEST_LINE


@given(results())
@PATIENT
def test_any_result_has_a_repr_of_one_line(result: RunResult[Any]) -> None:
    one_line(repr(result))
    assert repr(result).startswith(f"<RunResult {result.run_id}: ")
    for candidate in result.candidates:
        one_line(repr(candidate))
        assert repr(candidate).startswith(f"<Candidate #{candidate.index} {candidate.status}")


@given(ANYTHING)
@PATIENT
def test_the_head_of_anything_is_short(output: Any) -> None:
    one_line(head(output))
    assert len(head(output)) <= 6 * LONGEST_HEAD


@pytest.mark.parametrize("output", STRANGE, ids=lambda output: type(output).__name__)
def test_a_strange_output_has_a_head(output: Any) -> None:
    one_line(head(output))


def test_the_story_of_a_result() -> None:
    result = of(
        eligible(0, output="a\nb" * 100),
        eligible(1, value=0.25),
        failed(2, ValueError("no")),
        Candidate(3, Status.GENERATING, detached=True),
        stop_reason="deadline",
        partial=True,
        usage=UsageReport(charged=Usage(model_calls=1, total_tokens=1540, cost="0.25")),
    )
    assert repr(result) == (
        "<RunResult run-7: #0 (score 0.5) by best_score: "
        r"'a\nba\nba\nba\nba\nba\nba\nba\nba\nba\nba\nba\nba\nba\nba\…; "
        "1 generating (detached), 2 eligible, 1 generation_failed; deadline after 2.00 s, partial; "
        "1 model call, 1,540 tokens, $0.25>"
    )


def test_the_story_of_a_result_without_a_selection_or_a_cost() -> None:
    result = of(failed(0, ValueError("no")), stop_reason="no_eligible")
    assert repr(result) == (
        "<RunResult run-7: nothing selected; 1 generation_failed; no_eligible after 2.00 s>"
    )
    assert "no candidates" in repr(of())


def test_the_story_of_a_candidate() -> None:
    usage = Usage(tool_calls=2)
    assert repr(eligible(3, usage=usage)) == (
        "<Candidate #3 eligible, score 0.5, 1.50 s, 2 tool calls; 'the best'>"
    )
    cut = Candidate(0, Status.TIMED_OUT, output=[0] * 100, partial=True)
    assert repr(cut) == "<Candidate #0 timed_out (partial); [0, 0, 0, 0, 0, 0, ...]>"
    assert repr(failed(1, KeyError("seed"))) == (
        "<Candidate #1 generation_failed, 0.25 s; KeyError: 'seed'>"
    )
    recorded = RecordedCandidate(2, Status.SCORING_FAILED, error=RecordedError("OSError", "full"))
    assert repr(recorded) == "<RecordedCandidate #2 scoring_failed; OSError: full>"


def test_the_story_of_a_moment() -> None:
    moment = Snapshot(
        run_id="run-7",
        time=12.5,
        elapsed=0.5,
        deadline=None,
        statuses={Status.PENDING: 5, Status.ELIGIBLE: 2, Status.GENERATING: 1},
        ended=(eligible(0), eligible(1)),
        best=1,
        usage=UsageReport(charged=Usage(cost="0.002")),
        stop_reason="stopped",
        sequence=17,
    )
    assert repr(moment) == (
        "<Snapshot run-7: after 0.50 s; 5 pending, 1 generating, 2 eligible; best: #1;"
        " ending: stopped; $0.002>"
    )
    assert "none eligible" in repr(attrs.evolve(moment, best=None))


def test_a_record_that_was_made_by_hand_of_wrong_parts_has_a_repr() -> None:
    assert repr(Candidate(0, Status.ELIGIBLE, score="high")) == "<Candidate: AttributeError>"  # type: ignore[arg-type]
    assert repr(of(elapsed="long")) == "<RunResult: ValueError>"
    assert "by <NoRepr, whose repr raises>:" in repr(of(eligible(0), selected_by=NoRepr()))


def test_many_huge_parts_make_a_short_line() -> None:
    huge = [eligible(index, output=["x" * 10_000_000] * 3) for index in range(2)]
    assert len(repr(of(*huge))) < 300
    assert len(repr(failed(0, ValueError("x" * 10_000_000)))) < 200
    for output in (cyclic(), deep(), {"k" * 1000: "v" * 1000}):
        assert len(repr(eligible(0, output=output))) < 300


def test_an_error_that_cannot_be_shown() -> None:
    assert "BadlyWritten" in repr(failed(0, BadlyWritten()))
    assert "BadlyWritten" in table(of(failed(0, BadlyWritten())))


def test_counts_and_costs() -> None:
    assert counted([]) == ""
    assert costs(Usage()) == ""
    assert costs(Usage(model_calls=2, tool_calls=1)) == "2 model calls, 1 tool call"
    assert costs(Usage(total_tokens=1)) == "1 token"
    assert costs(Usage(cost="0.0000001")) == "$0.0000001"


# -- the table -----------------------------------------------------------------------------------


def table(result: RunResult[Any], width: int = 100, **options: Any) -> str:
    """What Rich prints."""
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(result)
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]
    return printed


def rows(printed: str) -> list[str]:
    """The lines between the headings and the line below the table."""
    lines = printed.splitlines()
    end = next(at for at, line in enumerate(lines) if line.startswith("run-7: "))
    return lines[1:end]


MIXED = of(
    eligible(0, "[bold]loud[/bold] :smile: [/]", usage=Usage(cost="0.25")),
    eligible(1, "日本語の出力がここにある、とても長い文章です。これは幅が広い" * 5, value=0.25),
    failed(2, ValueError("[red]no\nsuch\x1b[2J place[/red]")),
    Candidate(3, Status.GENERATING, detached=True, started=0.0, usage=Usage(model_calls=2)),
    Candidate(4, Status.TIMED_OUT, partial=True, output="draft", started=0.5, eligible=True),
    *[Candidate(index, Status.SKIPPED) for index in range(5, 38)],
    Candidate(38, Status.REJECTED, score=Score(0.1, rationale="[dim]too short"), output="x"),
    Candidate(39, Status.SKIPPED),
)


def test_a_row_for_each_candidate_and_one_for_those_that_never_started() -> None:
    printed = rows(table(MIXED))
    assert [line.split()[:2] for line in printed] == [
        ["0", "eligible"],
        ["1", "eligible"],
        ["2", "generation_failed"],
        ["3", "generating"],
        ["4", "timed_out"],
        ["5-37", "skipped"],
        ["38", "rejected"],
        ["39", "skipped"],
    ]
    assert "(detached)" in printed[3]
    assert "(partial)" in printed[4]


def test_the_cells_of_a_row() -> None:
    printed = table(of(eligible(0, usage=Usage(cost="0.25")), failed(1, ValueError("no"))), 80)
    assert [line.rstrip() for line in printed.splitlines()] == [
        "#  status             score  seconds  usage",
        "0  eligible             0.5     1.50  $0.25  the best: 'the best'",
        "1  generation_failed            0.25         no",
        "run-7: #0 (score 0.5) by best_score: 'the best'; 1 eligible, 1",
        "generation_failed; completed after 2.00 s",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("colour", [True, False])
def test_no_row_is_wrapped_and_none_is_too_wide(width: int, colour: bool) -> None:
    printed = table(MIXED, width, force_terminal=colour, no_color=not colour)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    assert len(rows(plain)) == 8
    assert all(cell_len(line) <= width for line in plain.splitlines())
    assert ("\x1b[" in printed) == colour
    assert any("…" in line for line in rows(plain)), "nothing was cut: the test shows nothing"
    assert "'[bold]" in plain, "no room is left for what was made"
    assert ("$0.25" in "".join(rows(plain))) == (width >= NARROW)


def test_what_users_wrote_is_never_markup() -> None:
    printed = table(MIXED, 200)
    assert "'[bold]loud[/bold] :smile: [/]'" in printed
    assert r"[red]no\nsuch\x1b[2J place[/red]" in printed
    assert "[dim]too short" in printed
    assert "[bold]loud" in printed.splitlines()[-1] + printed.splitlines()[-2]


@given(results())
@PATIENT
def test_any_result_has_a_table(result: RunResult[Any]) -> None:
    printed = table(result, 80)
    printed.encode()
    assert "\x1b" not in printed


def test_forty_candidates_have_a_row_each_and_of_more_the_best_is_among_the_first() -> None:
    def many(count: int, best: int) -> RunResult[Any]:
        records = [eligible(index, f"answer {index}") for index in range(count)]
        return of(*records, selected=records[best])

    assert len(rows(table(many(LONGEST, 7)))) == LONGEST
    printed = rows(table(many(LONGEST + 1, 35)))
    assert len(printed) == SHORTENED + 2
    assert "the best: 'answer 35'" in printed[-2]
    assert f"{LONGEST + 1 - SHORTENED - 1} more" in printed[-1]
    printed = rows(table(many(LONGEST + 1, 3)))
    assert len(printed) == SHORTENED + 1
    assert f"{LONGEST + 1 - SHORTENED} more" in printed[-1]


def test_without_candidates_there_is_a_heading_and_the_story() -> None:
    assert "nothing selected" in table(of())


def test_rich_is_imported_when_rich_asks_and_not_before() -> None:
    script = """
import sys, trio, hortator
async def generate(request, ctx): return 1
async def score(request, candidate, ctx): return 1
result = trio.run(hortator.best_of_n, hortator.BestOfN(generate=generate, score=score, n=1), "q")
repr(result), result.to_json()
print("rich" in sys.modules)
result.__rich__()
print("rich" in sys.modules)
"""
    root = str(Path(hortator.__file__).parents[1])
    child = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert child.stdout.split() == ["False", "True"], child.stderr
