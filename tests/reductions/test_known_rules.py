"""Searches that know the rules of earlier ones, and searches that end at a given tolerance."""

from __future__ import annotations

import numpy as np
import pytest
from atoms import AtomOracle, coverage_rows, recalls, shares
from reference_losses import GMean, HMean, MinMax, QMean

from gbm_constrained.reductions.methods import solve
from gbm_constrained.reductions.mixtures import FEASIBLE, MixtureProgramme

W = np.random.default_rng(0).dirichlet(np.full(60, 0.3)).reshape(20, 3)
EFFECT = np.concatenate([recalls(W), shares(W)])
WITHIN = coverage_rows(3, 3, W.sum(axis=0), 0.02)
FREE = np.zeros((0, 6)), np.zeros(0)
LOSSES = pytest.mark.parametrize("make", [GMean, HMean, QMean, MinMax])
CONSTRAINTS = pytest.mark.parametrize("constraints", [FREE, WITHIN], ids=["free", "coverage"])


class Knowing(AtomOracle):
    """The oracle, with the rules of an earlier search."""

    def __init__(self, rules, start=()):
        super().__init__(EFFECT)
        self.known, self.start = (
            [(rule, self.u_of(np.frombuffer(rule, np.int8))) for rule in some]
            for some in (rules, start)
        )

    def list_cheapest(self, cost):
        return sorted(self.known, key=lambda known: cost @ known[1])[:3]


@LOSSES
@CONSTRAINTS
def test_a_search_that_starts_at_the_optimum_needs_few_calls(make, constraints):
    programme = MixtureProgramme(make(3, 6), *constraints)
    cold = solve(programme, AtomOracle(EFFECT))
    warm = solve(programme, Knowing([], cold.rules))
    assert warm.value == pytest.approx(cold.value, abs=2e-7)
    assert warm.bound <= cold.value + FEASIBLE
    assert warm.violation <= FEASIBLE
    assert len(warm.history) <= min(len(cold.history), 6)


@LOSSES
@CONSTRAINTS
def test_cheap_known_rules_join_the_pool(make, constraints):
    programme = MixtureProgramme(make(3, 6), *constraints)
    cold = solve(programme, AtomOracle(EFFECT))
    told = solve(programme, Knowing(cold.rules))
    assert told.value == pytest.approx(cold.value, abs=2e-7)
    assert told.bound <= cold.value + FEASIBLE
    assert len(told.history) < len(cold.history)


@LOSSES
@pytest.mark.parametrize("tolerance", [1e-3, 1e-5])
def test_value_and_bound_meet_within_the_tolerance(make, tolerance):
    programme = MixtureProgramme(make(3, 6), *WITHIN)
    exact = solve(programme, AtomOracle(EFFECT))
    found = solve(programme, AtomOracle(EFFECT), tolerance=tolerance)
    assert found.status == "optimal"
    assert found.value - found.bound <= tolerance
    assert found.bound <= exact.value + FEASIBLE
    assert found.value >= exact.bound - FEASIBLE
    assert len(found.history) <= len(exact.history)
