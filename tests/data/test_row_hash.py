"""Hashes of row numbers."""

import numpy as np

from gbm_constrained.data.splits import hash_numbers


def test_hashes_are_those_of_splitmix64():
    """The first outputs of the reference generator, whose state starts at zero."""
    golden = 0x9E3779B97F4A7C15
    states = np.array([k * golden % 2**64 for k in range(3)], dtype=np.uint64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hash_numbers(states).tolist() == expected


def test_bits_are_fair_and_seeds_unrelated():
    numbers = np.arange(100_000)
    first, second = hash_numbers(numbers), hash_numbers(numbers, seed=1)
    assert np.unique(first).size == numbers.size
    for bit in range(64):
        ones = (first >> np.uint64(bit)) & np.uint64(1)
        others = (second >> np.uint64(bit)) & np.uint64(1)
        assert abs(ones.mean() - 0.5) < 0.01
        assert abs((ones == others).mean() - 0.5) < 0.01
