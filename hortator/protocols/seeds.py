"""Seeds of candidates: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014), whose n-th output can be computed without those before it."""

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def candidate_seed(run_seed: int, index: int) -> int:
    """The 64-bit seed of one candidate: output number `index` of the stream of `run_seed`.

    >>> candidate_seed(0, 0) == 0xE220A8397B1DCDAF  # the published first output for seed 0
    True
    """
    state = (run_seed + (index + 1) * _GAMMA) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
