"""Jobs that cannot work as written are refused where they are written.

Always `InvalidJob`, which is a `ValueError` too, and always with a message that shows how to
write it right. `DoesNotFit` is the special case of n estimates that a limit cannot pay for.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from hortator import BestOfN, Budget, DoesNotFit, HortatorError, InvalidJob, Usage
from hortator.protocols.budget import limits_of
from hortator.protocols.usage import MOST

HUGE = pytest.param(10**400, id="too large for a float")


async def generate(request: str, ctx: object) -> str:
    raise AssertionError("a callback ran while the job was being written")


async def score(request: str, candidate: object, ctx: object) -> float:
    raise AssertionError("a callback ran while the job was being written")


def a_job(**options: Any) -> BestOfN[str, str]:
    return BestOfN(**{"generate": generate, "score": score, **options})


def refused(**options: Any) -> str:
    """The message of the refusal."""
    with pytest.raises(InvalidJob) as caught:
        a_job(**options)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, HortatorError)
    return str(caught.value)


# -- numbers and names ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n", "max_concurrency"])
@pytest.mark.parametrize("value", [0, -1, True, False, 2.0, 2.5, math.nan, "3", None])
def test_a_number_of_candidates_is_a_whole_number_from_1_up(name: str, value: Any) -> None:
    message = refused(**{name: value})
    assert message.startswith(f"{name}={value!r}")
    assert f"a whole number from 1 up, such as {name}=4" in message


@pytest.mark.parametrize("name", ["timeout", "candidate_timeout", "grace"])
@pytest.mark.parametrize("value", [-1, -0.001, math.inf, -math.inf, math.nan, True, "2", HUGE])
def test_seconds_are_finite_from_0_up_or_none(name: str, value: Any) -> None:
    message = refused(**{name: value})
    assert message.startswith(f"{name}=")
    assert f"seconds from 0 up, or {name}=None" in message


@pytest.mark.parametrize("name", ["timeout", "candidate_timeout", "grace"])
@pytest.mark.parametrize("value", [None, 0, 0.0, 2, 2.5])
def test_good_seconds_are_kept(name: str, value: float | None) -> None:
    assert getattr(a_job(**{name: value}), name) == value


@pytest.mark.parametrize("value", [-1, -1e-12, math.inf, math.nan, True, "0", None, HUGE])
def test_a_tolerance_is_finite_and_from_0_up(value: Any) -> None:
    message = refused(tie_tolerance=value)
    assert message.startswith("tie_tolerance=")
    assert "from 0 up" in message


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, True, "0.5", HUGE])
def test_a_threshold_is_a_finite_number(value: Any) -> None:
    message = refused(threshold=value)
    assert message.startswith("threshold=")
    assert "finite number" in message


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("objective", ("max", "min")),
        ("on_early_stop", ("best_so_far", "fail")),
        ("side_effects", ("isolate", "allow")),
    ],
)
@pytest.mark.parametrize("value", ["maximum", "", None, 1])
def test_a_choice_is_one_of_those_named(name: str, good: tuple[str, ...], value: Any) -> None:
    message = refused(**{name: value})
    assert message.startswith(f"{name}={value!r}")
    assert all(repr(each) in message for each in good)
    for each in good:
        assert getattr(a_job(**{name: each}), name) == each


# -- limits and estimates ------------------------------------------------------------------------

LIMITS = ["model_calls", "tool_calls", "input_tokens", "output_tokens", "total_tokens"]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [-1, 1.0, math.inf, math.nan, True, "3", MOST + 1])
def test_a_limit_of_a_count_is_a_whole_number_from_0_up(name: str, value: Any) -> None:
    message = refused(budget=Budget(**{name: value}), estimate=Usage(**{name: 1}))
    assert message.startswith(f"Budget({name}={value!r})")
    assert "from 0 up, or None for no limit" in message


@pytest.mark.parametrize(
    "value", [-1, "-0.01", math.inf, math.nan, "ten", True, object(), "1e999999", 1e300]
)
def test_a_limit_of_money_is_an_amount_from_0_up(value: Any) -> None:
    message = refused(budget=Budget(cost=value), estimate=Usage(cost=1))
    assert message.startswith("Budget(cost=")
    assert "from 0 up, or None for no limit" in message


@pytest.mark.parametrize("value", [0, 1, 0.25, "0.25", Decimal("0.25")])
def test_money_may_be_written_in_every_usual_way(value: Any) -> None:
    ((_, nano),) = limits_of(Budget(cost=value))
    assert nano == int(Decimal(str(value)) * 10**9)


@pytest.mark.parametrize("name", ["estimate", "scoring_estimate"])
@pytest.mark.parametrize(
    "usage",
    [
        Usage(model_calls=-1),
        Usage(model_calls=1.5),  # type: ignore[arg-type]
        Usage(total_tokens=True),
        Usage(total_tokens=MOST + 1),
        Usage(cost="-1"),
        Usage(cost=math.nan),
        Usage(cost=math.inf),
        {"model_calls": 1},
        1,
        None,
    ],
)
def test_an_estimate_is_a_usage_of_finite_amounts_from_0_up(name: str, usage: Any) -> None:
    message = refused(**{name: usage})
    assert message.startswith(name)
    assert f"{name}=Usage(model_calls=1, total_tokens=500)" in message


@pytest.mark.parametrize("budget", [{"model_calls": 1}, 1, None])
def test_a_budget_that_is_no_budget_is_not_taken_for_no_limit(budget: Any) -> None:
    assert "budget=Budget(model_calls=16)" in refused(budget=budget)


@pytest.mark.parametrize("name", [*LIMITS, "cost"])
def test_w_bon_16_a_limit_needs_an_estimate_in_its_dimension(name: str) -> None:
    budget = Budget(**{name: 100})
    message = refused(budget=budget, estimate=Usage())
    assert f"budget.{name} is limited" in message
    assert f"estimate=Usage({name}=...)" in message
    a_job(budget=budget, estimate=Usage(**{name: 1}))
    a_job(budget=budget, estimate=Usage(), scoring_estimate=Usage(**{name: 1}))


@pytest.mark.parametrize(
    ("generation", "scoring", "fits"),
    [(40, 0, False), (33, 0, True), (0, 33, True), (20, 20, False), (20, 13, True), (34, 0, False)],
)
def test_w_bon_16_n_times_both_halves_of_the_estimate_must_fit(
    generation: int, scoring: int, fits: bool
) -> None:
    options: dict[str, Any] = {
        "n": 3,
        "budget": Budget(total_tokens=100),
        "estimate": Usage(total_tokens=generation),
        "scoring_estimate": Usage(total_tokens=scoring),
    }
    if fits:
        assert a_job(**options).n == 3
        return
    with pytest.raises(DoesNotFit) as caught:
        a_job(**options)
    each = generation + scoring
    assert isinstance(caught.value, InvalidJob)
    assert f"{each * 3} total_tokens" in str(caught.value)
    assert f"{100 // each} would fit" in str(caught.value)


def test_w_bon_16_calls_are_estimated_at_one_a_candidate() -> None:
    assert a_job(n=4, budget=Budget(model_calls=4)).n == 4
    with pytest.raises(DoesNotFit, match="4 would fit"):
        a_job(n=5, budget=Budget(model_calls=4))


def test_w_bon_16_three_times_ten_cents_are_thirty_cents() -> None:
    assert a_job(n=3, budget=Budget(cost=0.3), estimate=Usage(cost=0.1)).n == 3


def test_a_refusal_over_money_speaks_of_dollars() -> None:
    with pytest.raises(DoesNotFit) as caught:
        a_job(n=3, budget=Budget(cost="0.25"), estimate=Usage(cost="0.1"))
    assert all(part in str(caught.value) for part in ("0.1", "0.3", "0.25", "2 would fit"))


@pytest.mark.parametrize("name", [*LIMITS, "cost"])
def test_a_limit_of_zero_is_zero_and_not_unlimited(name: str) -> None:
    with pytest.raises(DoesNotFit, match="0 would fit"):
        a_job(budget=Budget(**{name: 0}), estimate=Usage(**{name: 1}))
    assert a_job(budget=Budget(**{name: 0}), estimate=Usage()).n == 3, "nothing fits into nothing"


def test_w_bon_17_without_a_limit_no_estimate_is_needed() -> None:
    assert a_job(estimate=Usage(), scoring_estimate=Usage()).n == 3
    assert a_job(estimate=Usage(total_tokens=MOST), n=1000).n == 1000


# -- W-BON-15: the first violated rule wins ------------------------------------------------------

TWICE_THE_MOST = {
    "estimate": Usage(total_tokens=MOST),
    "scoring_estimate": Usage(total_tokens=MOST),
}
VIOLATIONS: list[tuple[str, dict[str, Any]]] = [
    ("n=0", {"n": 0}),
    ("max_concurrency=0", {"max_concurrency": 0}),
    ("timeout=-1", {"timeout": -1}),
    ("threshold=nan", {"threshold": math.nan}),
    ("tie_tolerance=-1", {"tie_tolerance": -1}),
    ("estimate has cost=NaN", {"estimate": Usage(cost=math.nan)}),
    ("too large", {**TWICE_THE_MOST, "budget": Budget(total_tokens=MOST, model_calls=1)}),
]


@pytest.mark.parametrize("first", range(len(VIOLATIONS)))
def test_w_bon_15_the_first_violated_rule_is_the_one_named(first: int) -> None:
    options: dict[str, Any] = {}
    for _, violation in reversed(VIOLATIONS[first:]):
        options.update(violation)
    assert VIOLATIONS[first][0] in refused(**options)


def test_w_bon_15_calls_come_before_tokens_and_tokens_before_money() -> None:
    estimate = Usage(model_calls=1, total_tokens=40, cost=1)
    for budget, named in [
        (Budget(model_calls=2, total_tokens=100, cost=2), "model_calls"),
        (Budget(model_calls=3, total_tokens=100, cost=2), "total_tokens"),
        (Budget(model_calls=3, total_tokens=120, cost=2), "$"),
    ]:
        assert named in refused(n=3, budget=budget, estimate=estimate)
    a_job(n=3, budget=Budget(model_calls=3, total_tokens=120, cost=3), estimate=estimate)


# -- scorers and rules ---------------------------------------------------------------------------


def test_a_job_needs_a_scorer() -> None:
    message = refused(score=None)
    assert message.startswith("score is missing")
    assert "async def your_scorer(request, candidate, ctx)" in message
    with pytest.raises(InvalidJob):
        BestOfN(generate=generate)  # type: ignore[arg-type]


def test_a_rule_that_was_not_called_is_refused() -> None:
    import hortator

    for name, uncalled in [
        ("stop", hortator.first_accepted),
        ("stop", hortator.all_candidates),
        ("stop", hortator.target),
        ("select", hortator.best_score),
    ]:
        message = refused(**{name: uncalled})
        assert message.startswith(f"{name}=")
        assert "()" in message


@pytest.mark.parametrize("value", ["first_accepted", None, 1, object()])
@pytest.mark.parametrize("name", ["stop", "select"])
def test_what_is_no_rule_is_refused(name: str, value: Any) -> None:
    assert refused(**{name: value}).startswith(f"{name}=")


# -- a job is a value ----------------------------------------------------------------------------


def test_a_job_cannot_be_changed_only_evolved_and_is_then_checked_again() -> None:
    job = a_job(n=4)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        job.n = 5  # type: ignore[misc]
    assert attrs.evolve(job, n=5).n == 5
    with pytest.raises(InvalidJob):
        attrs.evolve(job, n=0)


def test_what_a_job_is_without_being_told() -> None:
    job = a_job()
    assert (job.n, job.max_concurrency, job.timeout, job.objective) == (3, 3, None, "max")
    assert (job.threshold, job.tie_tolerance) == (None, 1e-9)
    assert (job.on_early_stop, job.side_effects) == ("best_so_far", "isolate")
    assert job.budget == Budget()
    assert job.estimate == Usage(model_calls=1)
    assert job.scoring_estimate == Usage()


# -- a budget for fewer than n -------------------------------------------------------------------


@given(
    n=st.integers(1, 50),
    limits=st.dictionaries(st.sampled_from(LIMITS[:-1]), st.integers(1, 200), min_size=1),
    estimates=st.tuples(st.integers(1, 9), st.integers(0, 9)),
)
def test_w_bon_16_shrinking_runs_as_many_as_each_limit_pays_for(
    n: int, limits: dict[str, int], estimates: tuple[int, int]
) -> None:
    generation, scoring = (Usage(**dict.fromkeys(limits, each)) for each in estimates)
    options: dict[str, Any] = {
        "n": n,
        "budget": Budget(**limits),
        "estimate": generation,
        "scoring_estimate": scoring,
        "fit": "shrink",
    }
    fits = min(limits.values()) // sum(estimates)
    if fits:
        made = a_job(**options)
        assert (made.n, made.fitted) == (n, min(n, fits))
    else:
        with pytest.raises(DoesNotFit, match="0 would fit"):
            a_job(**options)


def test_a_job_that_does_not_shrink_has_all_its_candidates() -> None:
    assert a_job(n=7).fitted == 7
    assert a_job(n=7, fit="shrink").fitted == 7, "nothing is limited"


def test_a_job_that_shrinks_still_needs_estimates() -> None:
    assert "is limited" in refused(fit="shrink", budget=Budget(cost=1))


@pytest.mark.parametrize("wrong", ["grow", None, True])
def test_a_way_to_fit_that_does_not_exist_is_refused(wrong: Any) -> None:
    assert "fit=" in refused(fit=wrong)
    assert "'shrink'" in refused(fit=wrong)
