"""Seeds of candidates: the published SplitMix64, so that another program can compute them too."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from hortator.protocols.seeds import candidate_seed

PUBLISHED = {
    0: [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
        0xF88BB8A8724C81EC,
        0x1B39896A51A8749B,
    ],
    1234567: [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ],
}


@pytest.mark.parametrize("run_seed", PUBLISHED)
def test_the_seeds_are_the_published_stream(run_seed: int) -> None:
    assert [candidate_seed(run_seed, index) for index in range(5)] == PUBLISHED[run_seed]


@given(st.integers(), st.integers(0, 10**6))
def test_every_run_seed_gives_64_bits(run_seed: int, index: int) -> None:
    assert 0 <= candidate_seed(run_seed, index) < 2**64


@given(st.integers(0, 2**64 - 1))
def test_candidates_of_one_run_have_different_seeds(run_seed: int) -> None:
    assert len({candidate_seed(run_seed, index) for index in range(100)}) == 100


@given(st.integers(0, 2**64 - 1), st.integers(0, 100))
def test_runs_with_different_seeds_do_not_share_a_seed_at_an_index(seed: int, index: int) -> None:
    assert candidate_seed(seed, index) != candidate_seed(seed ^ 1, index)
